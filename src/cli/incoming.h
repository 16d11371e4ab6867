/* Connections that come in at a memory node: what the network's library does not care for. */
#ifndef CLI_INCOMING_H
#define CLI_INCOMING_H

/* From now on accept() keeps a descriptor in reserve, and connections that stay silent are ended.
 * FAR_SYSTEM. */
int incoming_guard(void);

#endif
