/* What a peer may send to UCX before it has proved that it knows the secret. */
#ifndef CLI_STRANGER_H
#define CLI_STRANGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define STRANGER_FIRST_MAX 2064u

/* How many bytes the first message of a connection has, by the first `count` of them; more than
 * `count` if it is not all there. 0: no client begins like that. */
size_t stranger_first(const uint8_t *bytes, size_t count);
/* Is that message for UCX's listener? Otherwise it connects to an endpoint. */
bool stranger_asks(const uint8_t *first);
/* Has a request to the listener the knock in it (wire_knock())? */
bool stranger_knocks(const uint8_t *first, size_t bytes, uint64_t knock);
/* Is a request to the listener one that UCX's TCP transport sends, with one device in it?
 * STRANGER-6 */
bool stranger_is_sound(const uint8_t *first, size_t bytes);

/* An endpoint of UCX's, as a request to the listener or the answer names it: it is the last one in
 * there. */
struct stranger_endpoint {
    uint16_t port; /* big-endian, of the socket that it may be connected to */
    uint64_t number;
};
bool stranger_endpoint(const uint8_t *message, size_t bytes, struct stranger_endpoint *endpoint);
/* Does the first message of a connection to our address `here` connect the peer's endpoint to ours?
 * UCX ends the process unless the peer's address is the lower one, since the other side connects
 * then. */
bool stranger_connects(const uint8_t *first, const struct stranger_endpoint *peer,
                       const struct stranger_endpoint *ours, const struct sockaddr *here);

/* What has come in by a connection. Zeroed: a peer has connected, and nothing has come in. */
struct stranger {
    enum {
        STRANGER_NEW, /* its first bytes say which of the next two it is                         */
        STRANGER_SETUP, /* a request to UCX's listener                                             */
        STRANGER_DATA, /* messages                                                                */
        STRANGER_ENDED /* it has sent what no client sends                                        */
    } stage;
    unsigned got; /* bytes of the current head */
    uint8_t head[16];
    uint32_t length, left; /* of the current message's body, and what of it is still to come */
    uint8_t begin[24];     /* of the body                   */
    uint64_t end[2];       /* its last word but one, and its last */
    unsigned bytes;        /* so far                        */
    bool connected;        /* it has sent its endpoint's number */
};

/* The node connects to the peer, which sends messages only. */
void stranger_called(struct stranger *s);
/* Takes the next bytes. False: UCX must not see them, nor any after them. */
bool stranger_says(struct stranger *s, const void *bytes, size_t count);
/* Has it sent something, and all of it? */
bool stranger_is_idle(const struct stranger *s);

#endif
