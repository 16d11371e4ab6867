/*
 * Reading again what a view has cached: the loop of refresh().
 *
 *     struct index_refresh r = {0};
 *     while (index_refresh_again(op, view, &r)) {
 *         rc = ... index_confirm(), index_confirmed(op, view, &r.version), and read what is cached
 *         ... if (rc != FAR_OK)
 *             return rc;
 *         if (index_refresh_holds(op, &r)) {
 *             ... make what was read the view's cache ...
 *             index_refresh_end(view, &r);
 *             return FAR_OK;
 *         }
 *     }
 *     return r.rc;
 *
 * All operations of a ring use one view, each protected by the epoch in which it began. So what is
 * read must not be older than the epoch of any of them: if one began in a later epoch while this
 * one was reading, what was read may name an object that is reused before that one ends. Then it is
 * read again. An operation in flight lets the epoch go on by one only, so the third time is enough.
 */
#ifndef INDEX_REFRESH_H
#define INDEX_REFRESH_H

#include "index/index.h"

#define INDEX_REFRESHES 4

/* All zero at first. */
struct index_refresh {
    uint64_t version; /* of the caches: read before what it is the version of */
    int rc;           /* when there is no other attempt */
    unsigned attempts;
    uint64_t refreshes; /* of the view, and what is known of the epoch, when the attempt began */
    struct epoch_view before;
    bool stale;
};

/* False: another operation has read it since (r->rc is FAR_OK), or there were too many attempts
 * (FAR_CONTENTION). */
bool index_refresh_again(struct op *op, const struct index_view *view, struct index_refresh *r);
/* May the view have what was read? (EPOCH-E2) */
bool index_refresh_holds(struct op *op, struct index_refresh *r);
/* The view has it. */
void index_refresh_end(struct index_view *view, const struct index_refresh *r);

/* All of refresh() for an index whose views keep nothing that becomes invalid while the table is
 * there: it reads the version and the root, which has that many bytes. FAR_NO_TABLE. */
#define INDEX_ROOT_MAX 512u
int index_refresh_root(struct op *op, struct index_view *view, uint32_t bytes);

#endif
