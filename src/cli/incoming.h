/* Connections that come in at a memory node: what the network's library does not care for. */
#ifndef CLI_INCOMING_H
#define CLI_INCOMING_H

#include <stdint.h>

/* From now on accept() keeps a descriptor in reserve, connections that stay silent are ended, and
 * peers that have not proved themselves cannot send much to UCX. FAR_SYSTEM. */
int incoming_guard(void);
/* From now on a request for a connection must have this knock in it (wire_knock()); 0: none. Those
 * turned away are counted in *refused. Call this before the node listens. */
void incoming_door(uint64_t knock, _Atomic uint64_t *refused);
/* The peer whose message this thread is handling has proved itself. */
void incoming_proved(void);

#endif
