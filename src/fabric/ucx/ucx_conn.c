/*
 * The UCX fabric: connections to nodes. How they are made, proved, lost and made again.
 *
 * A connection is made when something waits for it. When it breaks, or a reply does not come in
 * time, everything that was under way on it ends with an error and the connection is given up. The
 * next one voids it at the node (WIRE-W4), so the node executes nothing that was sent by the old
 * one afterwards. Attempts to reconnect back off exponentially; requests posted meanwhile fail at
 * once.
 */
#include "fabric/ucx/ucx_internal.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

#define CONNECT_TRIES  20u
#define CONNECT_REST   1000000u /* nanoseconds before the second try, doubled each time */
#define BACKOFF_MIN_NS 10000000ull
#define BACKOFF_MAX_NS 1000000000ull

_Static_assert(WIRE_NOT_LET_IN == (int)UCS_ERR_SOME_CONNECTS_FAILED, "UCX knows the status");

static void send_control(struct ucx_conn *c, const void *message, size_t bytes, unsigned flags);
static void give_up(struct ucx_conn *c, int status, const char *why);

/* ---- up and down ----------------------------------------------------------------------------- */

static void forget_request(void *request, ucs_status_t status, void *arg)
{
    (void)status;
    (void)arg;
    ucp_request_free(request);
}

static void broken(void *arg, ucp_ep_h ucp, ucs_status_t status)
{
    struct ucx_conn *c = arg;

    if (c->ucp != ucp) /* it is one that was given up before */
        return;
    c->broken = status;
    if (status == UCS_ERR_SOME_CONNECTS_FAILED && /* WIRE_NOT_LET_IN */
        c->state != CONN_UP)
        give_up(c, FAR_REFUSED,
                c->hub->fab->wire.secret.bytes > 0 ? "the client does not know the node's secret"
                                                   : "the node needs a secret, and none was given");
}

/* There is nothing to flush: everything that was sent has been answered or given up. */
static void close_ucp(struct ucx_conn *c)
{
    ucp_request_param_t param = {.op_attr_mask =
                                     UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags = UCP_EP_CLOSE_FLAG_FORCE,
                                 .cb.send = forget_request};
    ucp_ep_h ucp = c->ucp;

    c->ucp = NULL;
    if (!ucp)
        return;
    (void)ucp_ep_close_nbx(ucp, &param);
    if (ucx_forget_events(c->hub->worker))
        c->hub->stirred = true;
}

static void fail_waiting(struct ucx_conn *c, int status)
{
    if (c->question.state == QUESTION_WAITING || c->question.state == QUESTION_SENT) {
        c->question.state = QUESTION_DONE;
        c->question.status = status;
        ucx_hub_wake_all(c->hub);
    }
    ucx_conn_fail_all(c, status);
}

void ucx_conn_break(struct ucx_conn *c, int status)
{
    bool was_up = c->state == CONN_UP;

    c->state = CONN_DOWN;
    c->broken = UCS_OK;
    c->refused_last = c->refused;
    c->refused = FAR_OK;
    c->token = 0;
    c->tries = 0;
    close_ucp(c);
    c->backoff = was_up || c->backoff == 0 ? BACKOFF_MIN_NS : c->backoff * 2;
    if (c->backoff > BACKOFF_MAX_NS)
        c->backoff = BACKOFF_MAX_NS;
    c->retry_at = was_up ? 0 : clock_ns() + c->backoff;
    fail_waiting(c, status);
}

static int begin(struct ucx_conn *c)
{
    const struct ucx_fab *u = c->hub->fab;
    const struct ucx_node *node = &u->node[c->node];
    ucp_ep_params_t params = {
        .field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
        .flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER |
                 (u->wire.secret.bytes > 0 ? UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID : 0),
        .err_mode = UCP_ERR_HANDLING_MODE_PEER,
        .err_handler = {.cb = broken, .arg = c},
        .sockaddr = {.addr = (const struct sockaddr *)&node->at, .addrlen = node->at_bytes}};
    int rc = wire_random(c->nonce, sizeof c->nonce);

    if (rc != FAR_OK)
        return rc;
    ucs_status_t status = ucp_ep_create(c->hub->worker, &params, &c->ucp);
    if (status != UCS_OK) {
        c->ucp = NULL;
        return ucx_failed(
            err_fail(FAR_UNREACHABLE, "%s: %s", conn_name(c), ucs_status_string(status)));
    }
    return FAR_OK;
}

/* Sends HELLO on a new connection. */
static void send_hello(struct ucx_conn *c)
{
    struct wire_hello hello = {.link = c->link};
    int rc = begin(c);

    if (rc != FAR_OK) {
        ucx_conn_break(c, rc);
        return;
    }
    c->state = CONN_HELLO;
    c->hello_seq = next_seq(c);
    hello.head = wire_head_of(WIRE_HELLO, 0, 0, c->hello_seq);
    memcpy(hello.nonce, c->nonce, sizeof hello.nonce);
    send_control(c, &hello, sizeof hello, UCP_AM_SEND_FLAG_REPLY);
}

void ucx_conn_connect(struct ucx_conn *c)
{
    uint64_t now = clock_ns();

    ASSERT(c->state == CONN_DOWN && !c->ucp);
    if (now < c->retry_at) {
        int rc = c->refused_last
                     ? err_fail(c->refused_last, "%s: %s", conn_name(c), c->why)
                     : err_fail(FAR_UNREACHABLE,
                                "%s could not be reached, and the next attempt is not due yet",
                                conn_name(c));
        fail_waiting(c, rc);
        return;
    }
    c->deadline = now + ucx_timeout_ns(c->hub->fab); /* for all tries together */
    send_hello(c);
}

/* On a busy machine UCX sometimes loses a connection while it is being made. */
static bool lost_in_making(const struct ucx_conn *c, uint64_t now)
{
    return c->state != CONN_UP && c->broken == UCS_ERR_NOT_CONNECTED && c->tries < CONNECT_TRIES &&
           now < c->deadline;
}

/* Tries again a moment later. The thread does not sleep meanwhile, since other nodes have
 * requests. */
static void connect_again(struct ucx_conn *c, uint64_t now)
{
    c->tries++;
    c->state = CONN_AGAIN;
    c->broken = UCS_OK;
    c->token = 0;
    close_ucp(c);
    c->again_at = now + c->tries * CONNECT_REST;
}

void ucx_conn_look(struct ucx_conn *c, uint64_t now)
{
    if (c->state == CONN_DOWN)
        return;
    if (lost_in_making(c, now)) {
        connect_again(c, now != 0 ? now : clock_ns());
    } else if (c->refused) {
        ucx_conn_break(c, err_fail(c->refused, "%s: %s", conn_name(c), c->why));
    } else if (c->broken != UCS_OK) {
        bool made = c->state == CONN_UP || c->broken != UCS_ERR_NOT_CONNECTED;
        ucx_conn_break(c,
                       err_fail(FAR_UNREACHABLE, "%s: %s", conn_name(c),
                                made ? ucs_status_string(c->broken)
                                     : "no connection; does a memory node listen at that port?"));
    } else if (c->state == CONN_AGAIN && now >= c->again_at && now <= c->deadline) {
        send_hello(c);
    } else if (now > ucx_conn_deadline(c)) {
        ucx_conn_break(c, err_fail(FAR_TIMEOUT, "%s has not answered for %llu ms", conn_name(c),
                                   (unsigned long long)c->hub->fab->wire.timeout_ms));
    }
}

bool ucx_conn_is_away(const struct ucx_conn *c)
{
    return c->state != CONN_UP && c->retry_at != 0;
}

uint64_t ucx_conn_deadline(const struct ucx_conn *c)
{
    uint64_t first = UINT64_MAX;

    if (c->state == CONN_DOWN)
        return first;
    if (c->state == CONN_AGAIN && c->again_at < c->deadline)
        return c->again_at;
    if (c->state != CONN_UP)
        return c->deadline;
    if (c->question.state == QUESTION_SENT && c->question.deadline < first)
        first = c->question.deadline;
    for (unsigned i = 0; c->under_way > 0 && i < CONN_MESSAGES; i++) {
        const struct message *m = c->message[i];

        if (m && m->waiting && m->deadline < first)
            first = m->deadline;
    }
    return first;
}

/* ---- talking --------------------------------------------------------------------------------- */

static void send_from(struct ucx_conn *c, char *place, const void *message, size_t bytes,
                      unsigned flags)
{
    ucs_status_ptr_t sent;

    ASSERT(bytes <= WIRE_CONTROL_MAX);
    memcpy(place, message, bytes);
    sent = ucx_send(c->ucp, place, bytes, flags, forget_request, NULL);
    if (UCS_PTR_IS_ERR(sent))
        c->broken = UCS_PTR_STATUS(sent);
}

static void send_control(struct ucx_conn *c, const void *message, size_t bytes, unsigned flags)
{
    send_from(c, c->out, message, bytes, flags);
}

/* The connection cannot be used. ucx_conn_look() reports the reason later, outside of UCX's
 * callback. */
static void give_up(struct ucx_conn *c, int status, const char *why)
{
    c->refused = status;
    snprintf(c->why, sizeof c->why, "%.*s", (int)sizeof c->why - 1, why);
}

static void on_challenge(struct ucx_conn *c, const struct wire_challenge *in)
{
    const struct ucx_fab *u = c->hub->fab;
    struct wire_proof proof = {
        .head = wire_head_of(WIRE_PROOF_IS, in->head.slot, in->head.token, next_seq(c))};

    const char *why;
    int rc = wire_nodes_challenged(&u->wire, in, &why);

    if (rc != FAR_OK) {
        give_up(c, rc, why);
        return;
    }
    c->slot = in->head.slot;
    c->token = in->head.token;
    wire_prove(&u->wire.secret, WIRE_CLIENT, c->nonce, in->nonce, c->link, proof.proof);
    c->state = CONN_PROOF;
    wire_prove(&u->wire.secret, WIRE_NODE, c->nonce, in->nonce, c->link, c->expected);
    send_control(c, &proof, sizeof proof, 0);
}

static void on_welcome(struct ucx_conn *c, const struct wire_welcome *in)
{
    struct ucx_fab *u = c->hub->fab;
    const char *why;

    if (!wire_proof_equal(in->proof, c->expected)) {
        give_up(c, FAR_REFUSED, "the node does not know the secret");
        return;
    }
    int rc = wire_nodes_welcomed(&u->wire, c->node, in, &u->fab, &why);
    if (rc != FAR_OK) {
        give_up(c, rc, why);
        return;
    }
    c->state = CONN_UP;
    c->clock = (struct wire_clock){in->clock, clock_boot_ns()};
    c->backoff = 0;
    c->tries = 0;
}

static void on_answer(struct ucx_conn *c, const void *message)
{
    struct question *q = &c->question;
    struct wire_answer answer;

    memcpy(&answer, message, sizeof answer);
    c->clock = (struct wire_clock){answer.clock, clock_boot_ns()};
    if (q->state != QUESTION_SENT || q->seq != answer.head.seq) {
        ucx_conn_replied(c, message, sizeof answer);
        return;
    }
    q->state = QUESTION_DONE;
    q->status = answer.status;
    q->value = answer.value;
    ucx_hub_wake_all(c->hub);
}

void ucx_conn_heard(struct ucx_conn *c, const void *message, size_t bytes)
{
    union {
        struct wire_head head;
        struct wire_challenge challenge;
        struct wire_welcome welcome;
        struct wire_refused refused;
        struct wire_counts counts;
    } in;

    memcpy(&in, message, bytes < sizeof in ? bytes : sizeof in);
    if (in.head.type == WIRE_CHALLENGE && c->state == CONN_HELLO && in.head.seq == c->hello_seq)
        on_challenge(c, &in.challenge);
    else if (in.head.type == WIRE_REFUSED && c->state != CONN_UP)
        give_up(c, in.refused.status < 0 ? in.refused.status : FAR_REFUSED, in.refused.text);
    else if (c->token == 0 || in.head.token != c->token || in.head.slot != c->slot)
        return; /* not from the node of this connection */
    else if (in.head.type == WIRE_WELCOME && c->state == CONN_PROOF)
        on_welcome(c, &in.welcome);
    else if (in.head.type == WIRE_REPLY)
        ucx_conn_replied(c, message, bytes);
    else if (in.head.type == WIRE_ANSWER)
        on_answer(c, message);
    else if (in.head.type == WIRE_COUNTS && c->question.state == QUESTION_SENT &&
             in.head.seq == c->question.seq) {
        c->question.counts = in.counts;
        c->question.status = FAR_OK;
        c->question.state = QUESTION_DONE;
        ucx_hub_wake_all(c->hub);
    }
}

void ucx_conn_ask(struct ucx_conn *c)
{
    struct question *q = &c->question;
    struct wire_client message = {.identity = q->identity};
    bool bare = q->type != WIRE_FENCE, of_view = q->type == WIRE_FENCE_VIEW;

    ASSERT(c->state == CONN_UP && q->state == QUESTION_WAITING);
    q->seq = next_seq(c);
    q->deadline = clock_ns() + ucx_timeout_ns(c->hub->fab);
    q->state = QUESTION_SENT;
    message.head = wire_head_of(q->type, c->slot, c->token, q->seq);
    message.head.view = of_view ? (uint32_t)q->identity : 0;
    send_from(c, c->asked, &message, bare ? sizeof message.head : sizeof message, 0);
}
