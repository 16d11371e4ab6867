/* Machine 0 takes the runs of the others, adds them to its own, and all take the sum from it. */
#include "bench/merge.h"
#include "base/err.h"
#include "bench/pack.h"

#include <stdlib.h>
#include <string.h>

#define PACKED_MAX PACK_BYTES_MAX(sizeof(struct bench_run))
_Static_assert(PACKED_MAX <= FAR_VALUE_MAX, "a run is one value, whatever is in it");
_Static_assert(sizeof(struct bench_run) % 8 == 0, "a run is packed as words");

struct merging {
    struct meet *meet;
    unsigned char *packed;
    struct bench_run *part;
};

static int post(const struct merging *m, const struct bench_run *run)
{
    return meet_post(m->meet, "run", m->packed, pack(run, sizeof *run, m->packed));
}

/* Takes the run of a machine. Its names are pointers there: those of `like` take their place. The
 * figures of the table remain with machine 0. */
static int take(const struct merging *m, unsigned rank, const struct bench_run *like)
{
    size_t len = 0;
    int rc = meet_take(m->meet, rank, "run", m->packed, PACKED_MAX, &len);
    if (rc == FAR_OK)
        rc = unpack(m->packed, len, m->part, sizeof *m->part);
    m->part->index = like->index;
    m->part->workload = like->workload;
    memset(m->part->space.figure, 0, sizeof m->part->space.figure);
    for (unsigned i = 0; i < FAR_TABLE_FIGURES_MAX; i++)
        m->part->space.session[i].name = like->space.session[i].name;
    return rc;
}

static int add_others(const struct merging *m, struct bench_run *run)
{
    int rc = FAR_OK;
    for (unsigned i = 1; i < meet_machines(m->meet) && rc == FAR_OK; i++) {
        rc = take(m, i, run);
        if (rc == FAR_OK)
            bench_run_merge(run, m->part);
    }
    return rc == FAR_OK ? post(m, run) : rc;
}

static int merge(const struct merging *m, int status, struct bench_run *run)
{
    bool leads = meet_rank(m->meet) == 0;
    if (status == FAR_OK && !leads)
        status = post(m, run);
    status = meet_agree(m->meet, status);
    if (status == FAR_OK && leads)
        status = add_others(m, run);
    status = meet_agree(m->meet, status);
    if (status == FAR_OK && !leads) {
        status = take(m, 0, run);
        *run = *m->part;
    }
    return meet_agree(m->meet, status); /* until then, nobody replaces what another takes */
}

int merge_runs(struct meet *meet, int status, struct bench_run *run)
{
    struct merging m = {.meet = meet, .packed = malloc(PACKED_MAX), .part = malloc(sizeof *m.part)};
    int rc = FAR_OK;
    if (!m.packed || !m.part)
        rc = err_fail(FAR_NO_MEMORY, "no memory for the results of another machine");
    else
        rc = merge(&m, status, run);
    free(m.part);
    free(m.packed);
    return rc;
}
