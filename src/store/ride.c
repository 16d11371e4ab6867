#include "store/ride.h"

#include <string.h>

/* ---- what one operation does ----------------------------------------------------------------- */

enum change_action store_action(const struct far_op *r, bool present)
{
    static const enum change_action action[FAR_OP_KINDS][2] = {
        [FAR_OP_PUT] = {CHANGE_STORE, CHANGE_STORE},
        [FAR_OP_INSERT] = {CHANGE_STORE, CHANGE_NOTHING},
        [FAR_OP_UPDATE] = {CHANGE_NOTHING, CHANGE_STORE},
        [FAR_OP_DELETE] = {CHANGE_NOTHING, CHANGE_REMOVE},
        [FAR_OP_MODIFY] = {CHANGE_ASK, CHANGE_ASK},
    };
    return action[r->kind][present];
}

int store_ask(const struct far_op *r, struct slice old, struct slice *value,
              enum change_action *action)
{
    *value = (struct slice){NULL, 0};
    *action = CHANGE_NOTHING;
    switch (r->modify(r->modify_arg, old.data, old.len, &value->data, &value->len)) {
    case FAR_STORE:
        if (value->len > index_value_max(r->table->index.ops))
            return FAR_VALUE_SIZE;
        if (!value->data && value->len > 0)
            return FAR_INVALID;
        *action = CHANGE_STORE;
        return FAR_OK;
    case FAR_REMOVE:
        *action = CHANGE_REMOVE;
        return FAR_OK;
    case FAR_KEEP:
        return FAR_OK;
    }
    return FAR_INVALID;
}

/* ---- what several do ------------------------------------------------------------------------- */

/* The key's value, while operations are carried out on it. */
struct state {
    struct slice value; /* data is NULL if there is no key */
    bool changed;
};

static int carry_out(const struct far_op *r, struct state *state)
{
    bool present = state->value.data != NULL;
    enum change_action action = store_action(r, present);
    struct slice given = {r->value_len > 0 ? r->value : "", r->value_len};
    if (action == CHANGE_NOTHING)
        return present ? FAR_EXISTS : FAR_NOT_FOUND;
    if (action == CHANGE_ASK) {
        int rc = store_ask(r, state->value, &given, &action);
        if (rc != FAR_OK || action == CHANGE_NOTHING)
            return rc;
        if (!given.data)
            given.data = ""; /* an empty value */
    }
    state->value = action == CHANGE_STORE ? given : (struct slice){NULL, 0};
    state->changed |= action == CHANGE_STORE || present;
    return FAR_OK;
}

static enum far_decision carry_out_all(void *arg, const void *old, size_t old_len,
                                       const void **value, size_t *value_len)
{
    struct ride *ride = arg;
    struct state state = {.value = {old, old_len}, .changed = false};
    ride->own_rc = carry_out(ride->own, &state);
    ride->carried = 0;
    for (struct rider *r = ride->riders; r; r = r->next) {
        struct slice *now = &state.value;
        if (now->len > sizeof ride->value)
            break;
        if (now->data) /* RIDE-2 */
            now->data = memmove(ride->value, now->data, now->len);
        r->rc = carry_out(r->request, &state);
        ride->carried++;
    }
    *value = state.value.data;
    *value_len = state.value.len;
    return !state.changed ? FAR_KEEP : state.value.data ? FAR_STORE : FAR_REMOVE;
}

void store_ride_begin(struct ride *ride, const struct far_op *own, struct rider *riders,
                      struct far_op *change)
{
    ride->own = own;
    ride->riders = riders;
    ride->own_rc = FAR_CONTENTION;
    ride->carried = 0;
    *change = *own;
    change->kind = FAR_OP_MODIFY;
    change->modify = carry_out_all;
    change->modify_arg = ride;
}

/* RIDE-1. Is an operation done that the change has carried out with this status? */
static bool is_done(int change, int *rc)
{
    if (change == FAR_UNKNOWN)
        *rc = FAR_UNKNOWN;
    bool ended = change == FAR_OK || change == FAR_UNKNOWN || status_means(change, STATUS_ANSWER);
    return ended && (*rc == FAR_OK || *rc == FAR_UNKNOWN || status_means(*rc, STATUS_ANSWER));
}

bool store_ride_end(struct ride *ride, int *rc)
{
    int change = *rc;
    for (struct rider *r = ride->riders, *next; r; r = next) {
        bool carried = ride->carried > 0;
        next = r->next; /* an operation that has its status is gone soon */
        r->state = carried && is_done(change, &r->rc) ? RIDER_DONE : RIDER_ALONE;
        ride->carried -= carried;
    }
    *rc = ride->own_rc;
    return is_done(change, rc);
}
