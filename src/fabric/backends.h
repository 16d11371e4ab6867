/* The fabrics that can be built in; open.c lists those that are. */
#ifndef FABRIC_BACKENDS_H
#define FABRIC_BACKENDS_H

#include "fabric/fabric.h"

extern const struct fab_ops mem_fabric;
extern const struct fab_ops shm_fabric;
extern const struct fab_ops ucx_fabric;   /* if built with UCX        */
extern const struct fab_ops verbs_fabric; /* if built with libibverbs */

#endif
