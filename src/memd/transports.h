/* The transports that can be built in; transports.c lists those that are. */
#ifndef MEMD_TRANSPORTS_H
#define MEMD_TRANSPORTS_H

#include "memd/memd.h"

extern const struct memd_listener_ops memd_ucx;
extern const struct memd_listener_ops memd_verbs;

#endif
