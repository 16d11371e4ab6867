/*
 * What a peer may send to UCX before it has proved that it knows the secret.
 *
 * UCX trusts its peers. It allocates as much as the first piece of a message says the message has,
 * writes the data of a put wherever the peer says, ends any connection that a peer names, and takes the
 * even numbers of endpoints for addresses. So until a peer has proved itself, it may send only what a
 * client sends until then:
 *
 *   STRANGER-1  Of UCX's own messages: that it connects, and by which addresses it can be reached. Of
 *       ours: messages in one piece, of WIRE_CONTROL_MAX bytes at most.
 *   STRANGER-2  BYTES_MAX bytes altogether, and WIREUPS_MAX messages with addresses, since UCX makes an
 *       endpoint for each.
 *   STRANGER-3  The numbers of endpoints in them are odd, so that UCX looks for them in its table.
 *
 * The formats are those of UCX 1.13. A connection to its listener begins with the length of the request
 * that follows. One for data begins with a magic number, if the peer made it. Then come messages: a
 * kind, the length of a body, and the body.
 */
#include "cli/stranger.h"

#include "memd/memd.h"

#include <netinet/in.h>
#include <string.h>

#define MAGIC       0xcafebabe12345678ull
#define MAGIC_BYTES 8u
#define SETUP_HEAD  16u /* of a request to the listener: the length of its body, and a status */
#define SETUP_MAX   2048u
#define DATA_HEAD   5u /* of a message: its kind, and the length of its body */
#define BYTES_MAX   16384u
#define WIREUPS_MAX 4u

enum kind {
    KIND_WIREUP = 1,        /* the peer's addresses; its first byte is a wireup */
    KIND_SINGLE = 23,       /* a message of ours                                                */
    KIND_FIRST = 24,        /* the first piece of one, or all of it, and its whole length behind */
    KIND_SINGLE_REPLY = 26, /* a message of ours, and an endpoint for the answer behind it      */
    KIND_CONNECT = 32
};
enum wireup { WIREUP_REQUEST = 1, WIREUP_ACK = 3 };

#define CONNECT_HEAD 13u /* what it is, flags, the endpoint's number; an address follows */
#define REQUEST      1u
#define TO_ENDPOINT  1u
#define OURS_HEAD    8u /* before a message of ours: an id, flags, the length of a second part */
#define REPLY_FOOT   8u
#define FIRST_FOOT   24u /* two words, and the length of the whole message */

static const struct {
    enum kind kind;
    uint32_t least, most; /* bytes of its body */
} allowed[] = {
    {KIND_CONNECT, CONNECT_HEAD + sizeof(struct sockaddr_in),
     CONNECT_HEAD + sizeof(struct sockaddr_in6)},
    {KIND_WIREUP, 20, 4096},
    {KIND_SINGLE, OURS_HEAD, OURS_HEAD + WIRE_CONTROL_MAX},
    {KIND_SINGLE_REPLY, OURS_HEAD + REPLY_FOOT, OURS_HEAD + WIRE_CONTROL_MAX + REPLY_FOOT},
    {KIND_FIRST, OURS_HEAD + FIRST_FOOT, OURS_HEAD + WIRE_CONTROL_MAX + FIRST_FOOT},
};

static uint64_t number(const uint8_t *bytes, unsigned count)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static bool may_have(enum kind kind, uint32_t length)
{
    for (unsigned i = 0; i < sizeof allowed / sizeof *allowed; i++)
        if (allowed[i].kind == kind)
            return length >= allowed[i].least && length <= allowed[i].most;
    return false;
}

static unsigned head_bytes(const struct stranger *s)
{
    return s->stage == STRANGER_NEW     ? MAGIC_BYTES
           : s->stage == STRANGER_SETUP ? SETUP_HEAD
                                        : DATA_HEAD;
}

/* The head is complete. */
static bool begins(struct stranger *s)
{
    bool setup = s->stage == STRANGER_SETUP;
    uint64_t length = setup ? number(s->head, 8) : number(s->head + 1, 4);
    bool fine = setup ? length <= SETUP_MAX : may_have(s->head[0], (uint32_t)length);

    if (!fine)
        return false;
    s->length = s->left = (uint32_t)length;
    memset(s->begin, 0, sizeof s->begin);
    s->end[0] = s->end[1] = 0;
    s->bytes += head_bytes(s) + s->length;
    return s->bytes <= BYTES_MAX; /* STRANGER-2 */
}

static bool is_endpoint(uint64_t number)
{
    return number & 1; /* STRANGER-3 */
}

/* The first message of a connection that the peer has made. */
static bool connects(struct stranger *s)
{
    uint64_t family = number(s->begin + CONNECT_HEAD, 2);
    bool first = !s->connected;

    s->connected = true;
    return first && number(s->begin, 4) == REQUEST && s->begin[4] == TO_ENDPOINT &&
           is_endpoint(number(s->begin + 5, 8)) &&
           s->length == CONNECT_HEAD + (family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                           : sizeof(struct sockaddr_in)) &&
           (family == AF_INET6 || family == AF_INET);
}

static bool has_addresses(struct stranger *s)
{
    return (s->begin[0] == WIREUP_REQUEST || s->begin[0] == WIREUP_ACK) &&
           is_endpoint(number(s->begin + 4, 8)) && is_endpoint(number(s->begin + 12, 8)) &&
           ++s->wireups <= WIREUPS_MAX;
}

static bool is_ours(const struct stranger *s)
{
    return number(s->begin, 2) == 0 && number(s->begin + 4, 4) == 0;
}

/* The body is complete: STRANGER-1. */
static bool ends(struct stranger *s)
{
    if (s->stage == STRANGER_SETUP)
        return true;
    if (s->head[0] == KIND_CONNECT)
        return connects(s);
    if (!s->connected)
        return false;
    switch (s->head[0]) {
    case KIND_WIREUP:
        return has_addresses(s);
    case KIND_FIRST:
        return is_ours(s) && is_endpoint(s->end[0]) &&
               s->end[1] == s->length - OURS_HEAD - FIRST_FOOT;
    case KIND_SINGLE_REPLY:
        return is_ours(s) && is_endpoint(s->end[1]);
    default:
        return is_ours(s);
    }
}

static bool head_byte(struct stranger *s, uint8_t byte)
{
    s->head[s->got++] = byte;
    if (s->got < head_bytes(s))
        return true;
    if (s->stage == STRANGER_NEW) {
        bool magic = number(s->head, MAGIC_BYTES) == MAGIC;

        s->stage = magic ? STRANGER_DATA : STRANGER_SETUP;
        s->got = magic ? 0 : s->got; /* else it was half of the head */
        return true;
    }
    s->got = 0;
    return begins(s);
}

static bool body_byte(struct stranger *s, uint8_t byte)
{
    uint32_t at = s->length - s->left--;

    if (at < sizeof s->begin)
        s->begin[at] = byte;
    s->end[0] = s->end[0] >> 8 | s->end[1] << 56;
    s->end[1] = s->end[1] >> 8 | (uint64_t)byte << 56;
    return s->left > 0 || ends(s);
}

void stranger_called(struct stranger *s)
{
    *s = (struct stranger){.stage = STRANGER_DATA, .connected = true};
}

bool stranger_says(struct stranger *s, const void *bytes, size_t count)
{
    const uint8_t *byte = bytes;

    for (size_t i = 0; i < count && s->stage != STRANGER_ENDED; i++)
        if (!(s->left > 0 ? body_byte(s, byte[i]) : head_byte(s, byte[i])))
            s->stage = STRANGER_ENDED;
    return s->stage != STRANGER_ENDED;
}

bool stranger_is_idle(const struct stranger *s)
{
    return s->bytes > 0 && s->got == 0 && s->left == 0;
}
