/* What a peer may send to UCX before it has proved that it knows the secret. */
#ifndef CLI_STRANGER_H
#define CLI_STRANGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
    uint32_t length, left;   /* of the current message's body, and what of it is still to come */
    uint8_t begin[24];       /* of the body                   */
    uint64_t end[2];         /* its last word but one, and its last */
    unsigned bytes, wireups; /* so far                        */
    bool connected;          /* it has sent its endpoint's number */
};

/* The node connects to the peer, which sends messages only. */
void stranger_called(struct stranger *s);
/* Takes the next bytes. False: UCX must not see them, nor any after them. */
bool stranger_says(struct stranger *s, const void *bytes, size_t count);
/* Has it sent something, and all of it? */
bool stranger_is_idle(const struct stranger *s);

#endif
