/* Connections that come in at a memory node: what the network's library does not care for. */
#ifndef CLI_INCOMING_H
#define CLI_INCOMING_H

/* From now on accept() keeps a descriptor in reserve, connections that stay silent are ended, and
 * peers that have not proved themselves cannot send much to UCX. FAR_SYSTEM. */
int incoming_guard(void);
/* The peer whose message this thread is handling has proved itself. */
void incoming_proved(void);

#endif
