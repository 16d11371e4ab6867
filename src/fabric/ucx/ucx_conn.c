/*
 * The UCX fabric: connections to nodes, how they are made, proved, lost and made again.
 *
 * A link connects when something waits for it. When a connection breaks, or a reply does not come
 * in time, all that was under way on it ends with an error, and the connection is given up: the
 * next one voids it at the node (WIRE-W4), so nothing that was sent before is executed after. A node
 * that was found down is left alone for a while, the longer the more often; what is posted
 * meanwhile fails.
 */
#include "fabric/ucx/ucx_internal.h"

#include "base/clock.h"

#include <string.h>

#define CONNECT_TRIES  20u
#define CONNECT_REST   1000000u /* nanoseconds before the second try, twice before the third, ... */
#define BACKOFF_MIN_NS 10000000ull
#define BACKOFF_MAX_NS 1000000000ull

static void send_control(struct ucx_link *l, const void *message, size_t bytes, unsigned flags);

/* ---- up and down ----------------------------------------------------------------------------- */

static void forget_request(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    (void)arg;
    ucp_request_free(request);
}

static void broken(void *arg, ucp_ep_h ucp, ucs_status_t status)
{
    struct ucx_link *l = arg;

    if (l->ucp == ucp) /* not one that was given up before */
        l->broken = status;
}

/* Everything that was sent has been answered, or is given up: there is nothing to flush. */
static void close_ucp(struct ucx_link *l)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = forget_request};
    ucp_ep_h ucp = l->ucp;

    l->ucp = NULL;
    if (ucp)
        (void)ucp_ep_close_nbx(ucp, &param);
}

static void fail_waiting(struct ucx_link *l, int status)
{
    if (l->question.state == QUESTION_WAITING || l->question.state == QUESTION_SENT) {
        l->question.state = QUESTION_DONE;
        l->question.status = status;
        ucx_hub_wake_all(l->hub);
    }
    ucx_link_fail_all(l, status);
}

void ucx_link_down(struct ucx_link *l, int status)
{
    bool was_up = l->state == LINK_UP;

    l->state = LINK_DOWN;
    l->broken = UCS_OK;
    l->refused_last = l->refused;
    l->refused = FAR_OK;
    l->token = 0;
    l->tries = 0;
    close_ucp(l);
    l->backoff = was_up || l->backoff == 0 ? BACKOFF_MIN_NS : l->backoff * 2;
    if (l->backoff > BACKOFF_MAX_NS)
        l->backoff = BACKOFF_MAX_NS;
    l->retry_at = was_up ? 0 : clock_ns() + l->backoff;
    fail_waiting(l, status);
}

static int begin(struct ucx_link *l)
{
    const struct ucx_node *node = &l->hub->fab->node[l->node];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = broken, .arg = l},
        .sockaddr = {.addr = (const struct sockaddr *)&node->at, .addrlen = node->at_bytes}};
    ucs_status_t status;
    int rc = wire_random(l->nonce, sizeof l->nonce);

    if (rc)
        return rc;
    status = ucp_ep_create(l->hub->worker, &params, &l->ucp);
    if (status != UCS_OK) {
        l->ucp = NULL;
        return ucx_failed(
            err_fail(FAR_UNREACHABLE, "%s: %s", link_name(l), ucs_status_string(status)));
    }
    return FAR_OK;
}

/* Says HELLO on a new connection. */
static void greet(struct ucx_link *l)
{
    struct wire_hello hello = {.link = l->id};
    int rc = begin(l);

    if (rc) {
        ucx_link_down(l, rc);
        return;
    }
    l->state = LINK_HELLO;
    l->hello_seq = next_seq(l);
    hello.head = wire_head_of(WIRE_HELLO, 0, 0, l->hello_seq);
    memcpy(hello.nonce, l->nonce, sizeof hello.nonce);
    send_control(l, &hello, sizeof hello, UCP_AM_SEND_FLAG_REPLY);
}

void ucx_link_connect(struct ucx_link *l)
{
    uint64_t now = clock_ns();

    if (now < l->retry_at) {
        int rc = l->refused_last ? err_fail(l->refused_last, "%s: %s", link_name(l), l->why)
                                 : err_fail(FAR_UNREACHABLE, "%s could not be reached a moment ago",
                                            link_name(l));
        fail_waiting(l, rc);
        return;
    }
    l->deadline = now + l->hub->fab->timeout_ns; /* of all tries together */
    greet(l);
}

/* UCX loses a connection now and then just when it is made, if the machine is busy. */
static bool lost_in_making(const struct ucx_link *l, uint64_t now)
{
    return l->state != LINK_UP && l->broken == UCS_ERR_NOT_CONNECTED && l->tries < CONNECT_TRIES &&
           now < l->deadline;
}

/* Another try, a moment later: whatever it was, it should be gone by then. Nobody sleeps meanwhile,
 * since other nodes have their requests. */
static void connect_again(struct ucx_link *l, uint64_t now)
{
    l->tries++;
    l->state = LINK_AGAIN;
    l->broken = UCS_OK;
    l->token = 0;
    close_ucp(l);
    l->again_at = now + l->tries * CONNECT_REST;
}

void ucx_link_look(struct ucx_link *l, uint64_t now)
{
    if (l->state == LINK_DOWN)
        return;
    if (lost_in_making(l, now)) {
        connect_again(l, now != 0 ? now : clock_ns());
    } else if (l->refused) {
        ucx_link_down(l, err_fail(l->refused, "%s: %s", link_name(l), l->why));
    } else if (l->broken != UCS_OK) {
        ucx_link_down(
            l, err_fail(FAR_UNREACHABLE, "%s: %s", link_name(l), ucs_status_string(l->broken)));
    } else if (l->state == LINK_AGAIN && now >= l->again_at && now <= l->deadline) {
        greet(l);
    } else if (now > ucx_link_deadline(l)) {
        ucx_link_down(l, err_fail(FAR_TIMEOUT, "%s has not answered for %llu ms", link_name(l),
                                  (unsigned long long)l->hub->fab->timeout_ns / 1000000));
    }
}

bool ucx_link_is_away(const struct ucx_link *l)
{
    return l->state != LINK_UP && l->retry_at != 0;
}

uint64_t ucx_link_deadline(const struct ucx_link *l)
{
    uint64_t first = UINT64_MAX;

    if (l->state == LINK_DOWN)
        return first;
    if (l->state == LINK_AGAIN && l->again_at < l->deadline)
        return l->again_at;
    if (l->state != LINK_UP)
        return l->deadline;
    if (l->question.state == QUESTION_SENT && l->question.deadline < first)
        first = l->question.deadline;
    for (unsigned i = 0; l->under_way > 0 && i < LINK_MESSAGES; i++) {
        const struct message *m = l->message[i];

        if (m && m->waiting && m->deadline < first)
            first = m->deadline;
    }
    return first;
}

/* ---- talking --------------------------------------------------------------------------------- */

static void send_from(struct ucx_link *l, char *place, const void *message, size_t bytes,
                      unsigned flags)
{
    ucs_status_ptr_t sent;

    memcpy(place, message, bytes);
    sent = ucx_send(l->ucp, place, bytes, flags, forget_request, NULL);
    if (UCS_PTR_IS_ERR(sent))
        l->broken = UCS_PTR_STATUS(sent);
}

static void send_control(struct ucx_link *l, const void *message, size_t bytes, unsigned flags)
{
    send_from(l, l->out, message, bytes, flags);
}

/* The connection cannot be used: why is told when the link is looked at next, outside of UCX's
 * callback. */
static void give_up(struct ucx_link *l, int status, const char *why)
{
    l->refused = status;
    memcpy(l->why, why, strnlen(why, sizeof l->why - 1) + 1);
    l->why[sizeof l->why - 1] = '\0';
}

static void on_challenge(struct ucx_link *l, const struct wire_challenge *in)
{
    const struct ucx_fab *u = l->hub->fab;
    struct wire_proof proof = {
        .head = wire_head_of(WIRE_PROOF_IS, in->head.slot, in->head.token, next_seq(l))};

    if (in->secret_needed && u->secret.bytes == 0) {
        give_up(l, FAR_REFUSED, "the node needs a secret, and none was given");
        return;
    }
    if (!in->secret_needed && u->secret.bytes > 0) {
        give_up(l, FAR_REFUSED, "a secret was given, but the node has none");
        return;
    }
    l->slot = in->head.slot;
    l->token = in->head.token;
    wire_prove(&u->secret, WIRE_CLIENT, l->nonce, in->nonce, l->id, proof.proof);
    /* What the node will have to prove. */
    l->state = LINK_PROOF;
    wire_prove(&u->secret, WIRE_NODE, l->nonce, in->nonce, l->id, l->expected);
    send_control(l, &proof, sizeof proof, 0);
}

static void on_welcome(struct ucx_link *l, const struct wire_welcome *in)
{
    struct ucx_fab *u = l->hub->fab;
    struct ucx_node *node = &u->node[l->node];

    if (!wire_proof_equal(in->proof, l->expected)) {
        give_up(l, FAR_REFUSED, "the node does not know the secret");
        return;
    }
    if (!node->known) { /* while the fabric is being opened, by one thread */
        if (in->size == 0 || in->size % 64 != 0) {
            give_up(l, FAR_CORRUPT, "the node does not say how much memory it has");
            return;
        }
        node->known = true;
        node->instance = in->instance;
        node->formatted = in->flags & WIRE_FLAG_FORMATTED;
        u->fab.size[l->node] = in->size;
    } else if (node->instance != in->instance || u->fab.size[l->node] != in->size) {
        give_up(l, FAR_NODE_LOST, "the node was started anew, with other memory");
        return;
    }
    l->state = LINK_UP;
    l->clock_ahead = in->clock - clock_ns(); /* at least: the message was on its way */
    l->backoff = 0;
    l->tries = 0;
}

static void on_answer(struct ucx_link *l, const void *message)
{
    struct question *q = &l->question;
    struct wire_answer answer;

    memcpy(&answer, message, sizeof answer);
    if (q->state != QUESTION_SENT || q->seq != answer.head.seq) {
        ucx_link_replied(l, message, sizeof answer);
        return;
    }
    q->state = QUESTION_DONE;
    q->status = answer.status;
    q->value = answer.value;
    ucx_hub_wake_all(l->hub);
}

void ucx_link_heard(struct ucx_link *l, const void *message, size_t bytes)
{
    union {
        struct wire_head head;
        struct wire_challenge challenge;
        struct wire_welcome welcome;
        struct wire_refused refused;
        struct wire_counts counts;
    } in;

    memcpy(&in, message, bytes < sizeof in ? bytes : sizeof in);
    if (in.head.type == WIRE_CHALLENGE && l->state == LINK_HELLO && in.head.seq == l->hello_seq)
        on_challenge(l, &in.challenge);
    else if (in.head.type == WIRE_REFUSED && l->state != LINK_UP)
        give_up(l, in.refused.status < 0 ? in.refused.status : FAR_REFUSED, in.refused.text);
    else if (l->token == 0 || in.head.token != l->token || in.head.slot != l->slot)
        return; /* not by the node that we talk to */
    else if (in.head.type == WIRE_WELCOME && l->state == LINK_PROOF)
        on_welcome(l, &in.welcome);
    else if (in.head.type == WIRE_REPLY)
        ucx_link_replied(l, message, bytes);
    else if (in.head.type == WIRE_ANSWER)
        on_answer(l, message);
    else if (in.head.type == WIRE_COUNTS && l->question.state == QUESTION_SENT &&
             in.head.seq == l->question.seq) {
        l->question.counts = in.counts;
        l->question.status = FAR_OK;
        l->question.state = QUESTION_DONE;
        ucx_hub_wake_all(l->hub);
    }
}

void ucx_link_ask(struct ucx_link *l)
{
    struct question *q = &l->question;
    struct wire_client message = {.identity = q->identity};
    bool bare = q->type != WIRE_FENCE;

    q->seq = next_seq(l);
    q->deadline = clock_ns() + l->hub->fab->timeout_ns;
    q->state = QUESTION_SENT;
    message.head = wire_head_of(q->type, l->slot, l->token, q->seq);
    send_from(l, l->asked, &message, bare ? sizeof message.head : sizeof message, 0);
}
