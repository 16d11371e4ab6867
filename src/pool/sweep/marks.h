/* Marks: what the catalog, the journals and the tables reach, a bit per 64-byte unit. */
#ifndef POOL_MARKS_H
#define POOL_MARKS_H

#include "pool/op.h"

struct marks {
    struct marker marker;
    struct op *op;
    uint64_t *chunks;   /* by node: chunks that are looked at; the caller sets it */
    uint64_t **reached; /* by node: a bit per unit of those chunks */
    uint64_t reached_bytes;
};

int marks_init(struct marks *marks, struct op *op, bool sweeps);
void marks_free(struct marks *marks);
/* Marks all that is reached. FAR_CORRUPT: a journal is damaged. */
int marks_all(struct marks *marks);
/* Is any unit of these bytes reached? */
bool marks_reached(const struct marks *marks, unsigned node, uint64_t offset_in_chunks,
                   uint32_t bytes);

#endif
