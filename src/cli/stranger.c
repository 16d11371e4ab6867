/*
 * What a peer may send to UCX before it has proved that it knows the secret.
 *
 * UCX trusts its peers. It allocates as much as the first piece of a message says the message has,
 * writes the data of a put wherever the peer says, ends any connection that a peer names, and takes
 * the even numbers of endpoints for addresses; and it ends the process by an assertion if addresses
 * are malformed. So the first message of a connection is looked at as a whole before UCX receives
 * any of it:
 *
 *   STRANGER-4  If the node has a secret, a request to UCX's listener has the knock in it, which is
 *       made of the secret.
 *   STRANGER-5  A connection for data connects an endpoint that asked the listener to the one that
 *       it got as an answer, once, and not if the node itself connects the two.
 *   STRANGER-6  If the node has no secret, a request is one of UCX's TCP transport, as far as that
 *       can be seen, unless UCX may use others.
 *
 * Until a peer has proved itself, it may send only what a client sends until then:
 *
 *   STRANGER-1  Of UCX's own messages: its request, that it has got the answer, and that it
 *       connects. Of ours: messages in one piece, of WIRE_CONTROL_MAX bytes at most.
 *   STRANGER-2  BYTES_MAX bytes altogether.
 *   STRANGER-3  The numbers of endpoints in them are odd, so that UCX looks for them in its table.
 *
 * The formats are those of UCX 1.13. A connection to its listener begins with the length of the
 * request that follows. One for data begins with a magic number, if the peer made it. Then come
 * messages: a kind, the length of a body, and the body.
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

_Static_assert(SETUP_HEAD + SETUP_MAX <= STRANGER_FIRST_MAX, "a request to the listener fits");

enum kind {
    KIND_SINGLE = 23,       /* a message of ours                                                */
    KIND_FIRST = 24,        /* the first piece of one, or all of it, and its whole length behind */
    KIND_SINGLE_REPLY = 26, /* a message of ours, and an endpoint for the answer behind it      */
    KIND_CONNECT = 32
};
#define ENDPOINT_BYTES 12u /* of a request or its answer: a length, the port, the number, flags */
/* A request: an endpoint, what UCX does when its peer fails, how its addresses are meant, and one
 * device: its kind and costs, the port at which it listens, and the endpoint. */
#define REQUEST_HEAD 12u
#define KNOCK_BYTES  8u
#define DEVICE_BYTES 35u
#define PEERS_FAIL   1u
#define BY_DEVICE    2u
#define WITH_KNOCK   0x40u
#define LAST         0x80u
#define PORT_BYTES   0xc2u
#define LAST_LANE    0x81u
#define COST_MAX     1e15f

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
    bool fine =
        setup ? length <= (s->bytes == 0 ? SETUP_MAX : 0) : may_have(s->head[0], (uint32_t)length);

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

/* ---- the first message ----------------------------------------------------------------------- */

size_t stranger_first(const uint8_t *bytes, size_t count)
{
    bool asks = count >= MAGIC_BYTES && stranger_asks(bytes);
    size_t head = asks ? SETUP_HEAD : MAGIC_BYTES + DATA_HEAD;

    if (count < head)
        return head;
    uint64_t length = number(asks ? bytes : bytes + MAGIC_BYTES + 1, asks ? 8 : 4);
    bool fine =
        asks ? length <= SETUP_MAX
             : bytes[MAGIC_BYTES] == KIND_CONNECT && may_have(KIND_CONNECT, (uint32_t)length);
    return fine ? head + length : 0;
}

bool stranger_asks(const uint8_t *first)
{
    return number(first, MAGIC_BYTES) != MAGIC;
}

bool stranger_knocks(const uint8_t *first, size_t bytes, uint64_t knock)
{
    bool found = false; /* all of it is compared, so that time tells nothing */

    for (size_t i = 0; i + sizeof knock <= bytes; i++) {
        uint64_t word;

        memcpy(&word, first + i, sizeof word);
        found |= word == knock;
    }
    return found;
}

/* Costs by which UCX compares ways: if one is not a number, or negative, no way is the best. */
static bool are_costs(const uint8_t *bytes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        float cost;

        memcpy(&cost, bytes + i * sizeof cost, sizeof cost);
        if (!(cost >= 0 && cost <= COST_MAX))
            return false;
    }
    return true;
}

bool stranger_is_sound(const uint8_t *first, size_t bytes)
{
    const uint8_t *head = first + SETUP_HEAD, *device = head + REQUEST_HEAD;
    struct stranger_endpoint e;

    if (bytes < SETUP_HEAD + REQUEST_HEAD)
        return false;
    if (head[11] == WITH_KNOCK)
        device += KNOCK_BYTES;
    return (size_t)(first + bytes - device) == DEVICE_BYTES && number(head, 8) != 0 &&
           is_endpoint(number(head, 8)) && head[8] == PEERS_FAIL && head[9] == BY_DEVICE &&
           head[10] == 0 && (head[11] == 0 || head[11] == WITH_KNOCK) && device[0] >> 5 == 1 &&
           device[1] == LAST && are_costs(device + 4, 3) && device[20] == PORT_BYTES &&
           stranger_endpoint(first, bytes, &e) && is_endpoint(e.number) &&
           memcmp(&e.port, device + 21, sizeof e.port) == 0 && first[bytes - 1] == LAST_LANE;
}

bool stranger_endpoint(const uint8_t *message, size_t bytes, struct stranger_endpoint *endpoint)
{
    const uint8_t *last = message + bytes - ENDPOINT_BYTES;

    if (bytes < SETUP_HEAD + ENDPOINT_BYTES || last[0] != sizeof endpoint->port + 8)
        return false;
    memcpy(&endpoint->port, last + 1, sizeof endpoint->port);
    endpoint->number = number(last + 3, 8);
    return true;
}

/* As UCX compares them: by address, then by port. */
static bool is_lower(const struct sockaddr *a, const struct sockaddr *b)
{
    bool six = a->sa_family == AF_INET6;
    const struct sockaddr_in *a4 = (const void *)a, *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a, *b6 = (const void *)b;
    int order = six ? memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr)
                    : memcmp(&a4->sin_addr, &b4->sin_addr, sizeof a4->sin_addr);

    if (a->sa_family != b->sa_family)
        return false;
    return order != 0 ? order < 0 : ntohs(a4->sin_port) < ntohs(b4->sin_port);
}

bool stranger_connects(const uint8_t *first, const struct stranger_endpoint *peer,
                       const struct stranger_endpoint *ours, const struct sockaddr *here)
{
    const uint8_t *body = first + MAGIC_BYTES + DATA_HEAD;
    uint32_t bytes = (uint32_t)number(first + MAGIC_BYTES + 1, 4) - CONNECT_HEAD;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } named = {.any.sa_family = AF_UNSPEC};

    memcpy(&named, body + CONNECT_HEAD, bytes < sizeof named ? bytes : sizeof named);
    return named.in.sin_port == peer->port && number(body + 5, 8) == ours->number &&
           ((const struct sockaddr_in *)(const void *)here)->sin_port == ours->port &&
           is_lower(&named.any, here);
}

/* ---- what follows ---------------------------------------------------------------------------- */

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
