/* All fabrics; open.c lists them. */
#ifndef FABRIC_BACKENDS_H
#define FABRIC_BACKENDS_H

#include "fabric/fabric.h"

extern const struct fab_ops mem_fabric;
extern const struct fab_ops shm_fabric;

/* Networks. `open` is NULL where the network is not linked: then it is in a module. */
extern const struct fab_ops ucx_fabric;
extern const struct fab_ops verbs_fabric;

#endif
