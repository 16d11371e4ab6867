/*
 * Rides: several operations of one session on one key go out as one change (GROUP-G7).
 *
 * The change is a modify whose callback carries out all of them on the value that was found, one
 * after the other. What it publishes is what they leave behind. So all of them take effect at one
 * instant, in that order. If they leave the key as it was, the instant is that of the look, which
 * comes after all of them began. What each returns is known from the callback's last call.
 *
 *   RIDE-1  If the change fails, nothing was done, and everybody executes itself: what is wrong may
 *       concern one of them only. So does one whose callback returned something that is refused. If
 *       the outcome is unknown, that is the status of all.
 *   RIDE-2  A callback of the user gets a copy of what the one before has left: several operations
 *       may use the same memory for their values. Those behind a value that is too long for that
 *       execute themselves.
 */
#ifndef STORE_RIDE_H
#define STORE_RIDE_H

#include "store/store.h"

/* What an operation does with a key that is there, or is not. */
enum change_action store_action(const struct far_op *request, bool present);
/* Asks a modify's callback. FAR_VALUE_SIZE, FAR_INVALID: its decision is refused. */
int store_ask(const struct far_op *request, struct slice old, struct slice *value,
              enum change_action *action);

#define RIDE_VALUE_BYTES 1024u

struct ride {
    const struct far_op *own;
    struct rider *riders;
    int own_rc;
    unsigned carried; /* riders that the last call of the callback has carried out */
    char value[RIDE_VALUE_BYTES];
};

/* Makes the change that carries out `own` and all that ride with it. */
void store_ride_begin(struct ride *ride, const struct far_op *own, struct rider *riders,
                      struct far_op *change);
/* The change has ended with the status *rc. True: that of `own` is in *rc now. False: `own` has to
 * execute itself. */
bool store_ride_end(struct ride *ride, int *rc);

#endif
