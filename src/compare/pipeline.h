/*
 * A connection that keeps up to `depth` requests in flight, as Farside's ring does: as soon as
 * replies have come, as many new requests are sent, with one call. A client that waits sleeps in
 * recv(): servers answer many requests sooner if no client looks for replies meanwhile.
 */
#ifndef COMPARE_PIPELINE_H
#define COMPARE_PIPELINE_H

#include "compare/protocol.h"

struct pipeline;

/* Connects to a port of 127.0.0.1. FAR_NO_MEMORY, FAR_SYSTEM. */
int pipeline_open(const struct protocol *protocol, const struct rival_setup *setup, unsigned port,
                  struct pipeline **pipeline);
/* The same with a socket that is connected, which it closes. */
int pipeline_open_socket(const struct protocol *protocol, const struct rival_setup *setup, int fd,
                         struct pipeline **pipeline);
void pipeline_close(struct pipeline *pipeline);

/* Runs the operations. FAR_SYSTEM: the connection broke, nothing came for PIPELINE_PATIENCE_MS, or
 * the server reports an error; FAR_CORRUPT. After an error, the pipeline can only be closed. */
#define PIPELINE_PATIENCE_MS 10000
int pipeline_run(struct pipeline *pipeline, struct rival_op *ops, unsigned count);

#endif
