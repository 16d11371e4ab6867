/* All transports; transports.c lists them. */
#ifndef MEMD_TRANSPORTS_H
#define MEMD_TRANSPORTS_H

#include "memd/memd.h"

/* `open` is NULL where the network is not linked: then it is in a module. */
extern const struct memd_listener_ops memd_ucx;
extern const struct memd_listener_ops memd_verbs;

#endif
