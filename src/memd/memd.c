/* The memory node, for all transports: its clients, and what their messages ask for. */
#include "memd/memd.h"

#include "base/clock.h"
#include "fabric/superblock_layout.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* Each counter has one writer; any thread may read it. */
static void count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}

static void add_counts(struct wire_count_set *sum, const struct wire_count_set *more)
{
#define WIRE_X(name) sum->name += __atomic_load_n(&more->name, __ATOMIC_RELAXED);
    WIRE_COUNTS_X(WIRE_X)
#undef WIRE_X
}

/* ---- the node -------------------------------------------------------------------------------- */

int memd_init(struct memd *m)
{
    m->direct.fab = (struct fab){.nodes = 1, .order = ORDER_ALL, .size = {m->region.size}};
    m->direct.base[0] = m->region.base;
    m->listeners = 0;
    m->started = clock_ns();
    m->clients = m->formatter = NULL;
    m->count = (struct wire_count_set){0};
    return pthread_mutex_init(&m->lock, NULL) == 0 ? FAR_OK
                                                   : err_fail(FAR_SYSTEM, "cannot make a lock");
}

void memd_listening(struct memd_listener *listener, const char *host, unsigned port)
{
    bool brackets = strchr(host, ':') != NULL;

    snprintf(listener->address, sizeof listener->address, "%s://%s%s%s:%u", listener->ops->scheme,
             brackets ? "[" : "", host, brackets ? "]" : "", port);
}

void memd_stop(struct memd *m)
{
    while (m->listeners > 0) {
        struct memd_listener *listener = m->listener[--m->listeners];

        listener->ops->close(listener);
    }
    pthread_mutex_destroy(&m->lock);
}

void memd_counts(struct memd *m, struct wire_count_set *sum)
{
    pthread_mutex_lock(&m->lock);
    *sum = m->count;
    for (const struct memd_client *c = m->clients; c; c = c->next)
        add_counts(sum, &c->count);
    sum->fences = m->region.keep->fences;
    sum->refused += atomic_load(&m->turned_away);
    pthread_mutex_unlock(&m->lock);
}

/* ---- clients --------------------------------------------------------------------------------- */

int memd_client_init(struct memd *m, struct memd_listener *listener, uint32_t slot,
                     struct memd_client *c)
{
    int rc = FAR_OK;

    *c = (struct memd_client){.memd = m, .listener = listener, .slot = slot};
    pthread_mutex_lock(&m->lock);
    if (m->count.clients >= MEMD_CLIENTS_MAX) {
        rc = err_fail(FAR_NO_CLIENT_SLOT, "there are already %u clients", MEMD_CLIENTS_MAX);
    } else {
        m->count.clients++;
        m->count.connects++;
        c->next = m->clients;
        if (c->next)
            c->next->prev = c;
        m->clients = c;
    }
    pthread_mutex_unlock(&m->lock);
    return rc;
}

void memd_client_end(struct memd_client *c)
{
    struct memd *m = c->memd;

    ASSERT(c->state != MEMD_OVER);
    pthread_mutex_lock(&m->lock);
    ASSERT(m->count.clients > 0);
    if (c->prev)
        c->prev->next = c->next;
    else
        m->clients = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (m->formatter == c)
        m->formatter = NULL;
    m->count.clients--;
    add_counts(&m->count, &c->count);
    pthread_mutex_unlock(&m->lock);
    c->state = MEMD_OVER;
}

/* With the lock: once this returns, nothing of the connection is executed. */
static void shut(struct memd_client *c, _Atomic bool *how)
{
    atomic_store(how, true);
    /* A thread that has entered leaves after one batch, and none enters any more. */
    while (atomic_load(&c->busy))
        sched_yield();
    if (c->listener->ops->shut)
        c->listener->ops->shut(c);
}

/* Is it among the identities that were fenced since there had been `since` fences? */
static bool on_record(const struct memd_keep *keep, uint64_t identity, uint64_t since)
{
    if (since > keep->fences || keep->fences - since > MEMD_FENCED_MAX)
        since = keep->fences < MEMD_FENCED_MAX ? 0 : keep->fences - MEMD_FENCED_MAX;
    for (; since < keep->fences; since++) {
        if (keep->fenced[since % MEMD_FENCED_MAX] == identity)
            return true;
    }
    return false;
}

/* The same, for a connection. Endpoints that share one use it in turn with different identities, so
 * it remembers which ones it has checked. */
static bool is_fenced(struct memd_client *c, uint64_t identity)
{
    const struct memd_keep *keep = c->memd->region.keep;
    unsigned at = (unsigned)((identity * 0x9e3779b97f4a7c15ull) >> 32) % MEMD_CHECKED;
    bool known = c->checked[at].identity == identity && identity != 0;

    if (on_record(keep, identity, known ? c->checked[at].fences : 0))
        return true;
    c->checked[at].identity = identity;
    c->checked[at].fences = keep->fences;
    return false;
}

/* Shuts an identity out (NODE-N1). */
static void fence(struct memd *m, uint64_t identity)
{
    struct memd_keep *keep = m->region.keep;

    pthread_mutex_lock(&m->lock);
    if (identity != 0 && !on_record(keep, identity, 0)) {
        keep->fenced[keep->fences % MEMD_FENCED_MAX] = identity;
        keep->fences++;
    }
    for (struct memd_client *c = m->clients; c && identity != 0; c = c->next) {
        if (atomic_load(&c->identity) == identity && !atomic_load(&c->shut))
            shut(c, &c->shut);
    }
    pthread_mutex_unlock(&m->lock);
}

/* The view of the batch that the connection is busy with; 0: none that has one. */
static uint32_t executes(struct memd_client *c)
{
    uint64_t busy = atomic_load(&c->busy);

    return busy != 0 ? (uint32_t)(busy - 1) : 0;
}

/* Refuses what is of older views (NODE-N3). The card has executed what the asker sent before, and
 * the asker sends nothing more of its old view (VERBS-V3): its connection is of no view then. */
static void fence_view(struct memd_client *asker, uint32_t view)
{
    struct memd *m = asker->memd;

    pthread_mutex_lock(&m->lock);
    direct_raise_view(&m->direct, 0, view);
    if (fab_view_is_old(asker->view, view))
        asker->view = 0;
    for (struct memd_client *c = m->clients; c; c = c->next) {
        /* A batch that has entered ends, and no older one enters any more. */
        while (fab_view_is_old(executes(c), view))
            sched_yield();
        if (fab_view_is_old(c->view, view) && !atomic_load(&c->shut))
            shut(c, &c->shut);
    }
    pthread_mutex_unlock(&m->lock);
}

/* Sets *node_view if the view is too old. FAR_FENCED. */
static int check_view(const struct memd *m, uint32_t view, uint32_t *node_view)
{
    uint32_t newest = view != 0 ? direct_view(&m->direct, 0) : 0;

    if (!fab_view_is_old(view, newest))
        return FAR_OK;
    *node_view = newest;
    return FAR_FENCED;
}

/* With the lock: gives a connection another identity. A one-sided one stays shut: its client has to
 * reconnect. */
static int identify(struct memd_client *c, uint64_t identity)
{
    if (is_fenced(c, identity) || (atomic_load(&c->shut) && c->listener->ops->shut))
        return FAR_FENCED;
    atomic_store(&c->identity, identity);
    atomic_store(&c->shut, false);
    return FAR_OK;
}

static void leave(struct memd_client *c)
{
    ASSERT(atomic_load_explicit(&c->busy, memory_order_relaxed));
    atomic_store_explicit(&c->busy, 0, memory_order_release);
}

/* FAR_OK: the caller may execute a batch of that identity and view until leave() (NODE-N1). The
 * store of busy and the loads behind it are sequentially consistent, as are those of shut() and
 * fence_view(), so one of the two sees the other's store. Sets *node_view if the view is too
 * old. */
static int enter(struct memd_client *c, uint64_t identity, uint32_t view, uint32_t *node_view)
{
    if (identity != atomic_load(&c->identity)) {
        pthread_mutex_lock(&c->memd->lock);
        int rc = identify(c, identity);
        pthread_mutex_unlock(&c->memd->lock);
        if (rc != FAR_OK)
            return rc;
    }
    atomic_store(&c->busy, 1 + (uint64_t)view);
    int rc = atomic_load(&c->shut) || atomic_load(&c->void_) ? FAR_FENCED : FAR_OK;
    if (rc == FAR_OK)
        rc = check_view(c->memd, view, node_view);
    if (rc != FAR_OK)
        leave(c);
    return rc;
}

/* Does the message belong to this connection (WIRE-W1)? Until CHALLENGE its client knows neither
 * number nor token, and sends zeros. */
static bool owns(const struct memd_client *c, const struct wire_head *head)
{
    if (c->state == MEMD_NEW)
        return head->slot == 0 && head->token == 0;
    return head->slot == c->slot && head->token == c->token;
}

/* ---- messages -------------------------------------------------------------------------------- */

union control {
    struct wire_head head;
    struct wire_hello hello;
    struct wire_challenge challenge;
    struct wire_proof proof;
    struct wire_welcome welcome;
    struct wire_refused refused;
    struct wire_client client;
    struct wire_answer answer;
    struct wire_counts counts;
    char bytes[WIRE_CONTROL_MAX];
};

static bool answer_is(struct memd_client *c, union control *out, size_t bytes, enum wire_type type,
                      uint64_t seq, size_t *answer_bytes)
{
    out->head = wire_head_of(type, c->slot, c->token, seq);
    *answer_bytes = bytes;
    return type != WIRE_REFUSED;
}

static bool refuse(struct memd_client *c, union control *out, uint64_t seq, int status,
                   const char *text, size_t *answer_bytes)
{
    out->refused.status = status;
    snprintf(out->refused.text, sizeof out->refused.text, "%s", text);
    return answer_is(c, out, sizeof out->refused, WIRE_REFUSED, seq, answer_bytes);
}

static bool on_hello(struct memd_client *c, const struct wire_hello *in, union control *out,
                     size_t *answer_bytes)
{
    struct wire_challenge *challenge = &out->challenge;

    memcpy(c->client_nonce, in->nonce, sizeof c->client_nonce);
    pthread_mutex_lock(&c->memd->lock); /* void_others() looks at it */
    c->link = in->link;
    pthread_mutex_unlock(&c->memd->lock);
    if (wire_random(c->node_nonce, sizeof c->node_nonce) != FAR_OK ||
        wire_random(&c->token, sizeof c->token) != FAR_OK)
        return refuse(c, out, in->head.seq, FAR_SYSTEM, far_error_detail(), answer_bytes);
    c->token |= 1; /* 0 is none */
    c->state = MEMD_CHALLENGED;
    memcpy(challenge->nonce, c->node_nonce, sizeof challenge->nonce);
    challenge->secret_needed = c->memd->secret.bytes > 0;
    return answer_is(c, out, sizeof *challenge, WIRE_CHALLENGE, in->head.seq, answer_bytes);
}

/* With the lock: is there a pool? Its maker may have died before it sent FORMATTED. */
static bool is_formatted(const struct memd *m)
{
    return m->region.keep->formatted ||
           __atomic_load_n((uint64_t *)(void *)m->region.base, __ATOMIC_ACQUIRE) == POOL_MAGIC;
}

/* WIRE-W4. */
static void void_others(struct memd_client *c)
{
    for (struct memd_client *o = c->memd->clients; o; o = o->next) {
        if (o != c && o->link == c->link && !atomic_load(&o->void_))
            shut(o, &o->void_);
    }
}

static bool on_proof(struct memd_client *c, const struct wire_proof *in, union control *out,
                     size_t *answer_bytes)
{
    struct memd *m = c->memd;
    struct wire_welcome *welcome = &out->welcome;
    uint8_t proof[WIRE_PROOF];

    wire_prove(&m->secret, WIRE_CLIENT, c->client_nonce, c->node_nonce, c->link, proof);
    if (!wire_proof_equal(proof, in->proof)) {
        count(&c->count.refused, 1);
        return refuse(c, out, in->head.seq, FAR_REFUSED,
                      "the client does not know the node's secret", answer_bytes);
    }
    c->state = MEMD_WELCOMED;
    if (m->proved)
        m->proved();
    wire_prove(&m->secret, WIRE_NODE, c->client_nonce, c->node_nonce, c->link, welcome->proof);
    welcome->size = m->region.size;
    welcome->instance = m->region.keep->instance;
    welcome->address = c->address;
    welcome->clock = clock_boot_ns();
    welcome->rkey = c->rkey;
    welcome->flags = c->one_sided ? WIRE_FLAG_ONE_SIDED : 0;
    pthread_mutex_lock(&m->lock);
    void_others(c);
    /* The superblock is not enough here: the pool's maker may have died before it wrote that of
     * node 0, and then another client must be able to make the pool. */
    welcome->flags |= m->region.keep->formatted ? WIRE_FLAG_FORMATTED : 0;
    pthread_mutex_unlock(&m->lock);
    return answer_is(c, out, sizeof *welcome, WIRE_WELCOME, in->head.seq, answer_bytes);
}

/* IDENTIFY: the identity and the view of a one-sided connection's verbs. If the view is too old,
 * the connection keeps the one that it has. */
static int on_identify(struct memd_client *c, const struct wire_client *in, uint32_t *node_view)
{
    pthread_mutex_lock(&c->memd->lock);
    int rc = identify(c, in->identity);
    if (rc == FAR_OK)
        rc = check_view(c->memd, in->head.view, node_view);
    if (rc == FAR_OK && c->one_sided)
        c->view = in->head.view;
    pthread_mutex_unlock(&c->memd->lock);
    count(&c->count.old_views, *node_view != 0);
    return rc;
}

static uint32_t claim(struct memd_client *c)
{
    struct memd *m = c->memd;
    uint32_t value;

    pthread_mutex_lock(&m->lock);
    if (is_formatted(m)) {
        value = WIRE_CLAIM_THERE;
    } else if (m->formatter && m->formatter != c) {
        value = WIRE_CLAIM_WAIT;
    } else {
        m->formatter = c;
        value = WIRE_CLAIM_YOURS;
    }
    pthread_mutex_unlock(&m->lock);
    return value;
}

static void formatted(struct memd *m)
{
    pthread_mutex_lock(&m->lock);
    m->region.keep->formatted = 1;
    m->formatter = NULL;
    pthread_mutex_unlock(&m->lock);
}

/* The requests of a welcomed client. */
static bool on_request(struct memd_client *c, const union control *in, union control *out,
                       size_t *answer_bytes)
{
    struct memd *m = c->memd;
    uint32_t view = 0;

    out->answer.status = FAR_OK;
    out->answer.clock = clock_boot_ns();
    switch (in->head.type) {
    case WIRE_IDENTIFY:
        out->answer.status = on_identify(c, &in->client, &view);
        break;
    case WIRE_FENCE:
        fence(m, in->client.identity);
        break;
    case WIRE_FENCE_VIEW:
        fence_view(c, in->head.view);
        break;
    case WIRE_CLAIM:
        out->answer.value = claim(c);
        break;
    case WIRE_FORMATTED:
        formatted(m);
        break;
    case WIRE_STAT:
        out->counts.size = m->region.size;
        out->counts.uptime_ms = (clock_ns() - m->started) / 1000000;
        memd_counts(m, &out->counts.count);
        return answer_is(c, out, sizeof out->counts, WIRE_COUNTS, in->head.seq, answer_bytes);
    default:
        count(&c->count.rejected, 1);
        return refuse(c, out, in->head.seq, FAR_INVALID, "this message is not for a node",
                      answer_bytes);
    }
    answer_is(c, out, sizeof out->answer, WIRE_ANSWER, in->head.seq, answer_bytes);
    out->head.view = view;
    return true;
}

bool memd_message(struct memd_client *c, const void *message, size_t bytes,
                  char answer[WIRE_CONTROL_MAX], size_t *answer_bytes)
{
    union control in = {.bytes = ""}, out = {.bytes = ""};
    int rc = bytes > sizeof in ? FAR_INVALID : wire_check(message, bytes);
    bool goes_on = true;

    *answer_bytes = 0;
    memcpy(&in, message, bytes < sizeof in ? bytes : sizeof in);
    if (!owns(c, &in.head)) { /* from another sender, which must not end it; so this comes first */
        count(&c->count.rejected, 1);
    } else if (rc != FAR_OK) {
        count(&c->count.rejected, 1);
        goes_on =
            refuse(c, &out, in.head.seq, rc,
                   rc == FAR_LAYOUT ? far_error_detail() : "not a valid message", answer_bytes);
    } else if (in.head.type == WIRE_HELLO && c->state == MEMD_NEW) {
        goes_on = on_hello(c, &in.hello, &out, answer_bytes);
    } else if (in.head.type == WIRE_PROOF_IS && c->state == MEMD_CHALLENGED) {
        goes_on = on_proof(c, &in.proof, &out, answer_bytes);
    } else if (c->state == MEMD_WELCOMED) {
        goes_on = on_request(c, &in, &out, answer_bytes);
    } else {
        count(&c->count.rejected, 1);
        goes_on = refuse(c, &out, in.head.seq, FAR_INVALID, "unexpected message", answer_bytes);
    }
    memcpy(answer, &out, *answer_bytes);
    return goes_on;
}

/* ---- batches --------------------------------------------------------------------------------- */

static void execute(struct memd *m, const struct wire_head *head, struct wire_reader *reader,
                    uint64_t now, char *reply)
{
    struct fab_ep ep = {.fab = &m->direct.fab};
    struct fab_verb verb[WIRE_PART_VERBS];
    char *at = reply + sizeof(struct wire_reply);

    *(struct wire_reply *)(void *)reply =
        (struct wire_reply){.head = wire_head_of(WIRE_REPLY, head->slot, head->token, head->seq),
                            .parts = reader->parts,
                            .clock = now};
    while (reader->parts > 0) {
        struct wire_result *result = (struct wire_result *)(void *)at;
        struct fab_req req = {.verbs = verb};

        at += sizeof *result;
        req.count = wire_batch_next(reader, verb, &at);
        (void)direct_post(&ep, &req); /* completes at once */
        *result = (struct wire_result){.status = req.status};
    }
}

/* WIRE-W5. The difference is modulo 2^64, so a batch from the future is not valid either: then a
 * clock was set, and the client's knowledge of ours is wrong. */
static bool is_valid(const struct wire_batch *batch, uint64_t now)
{
    return now - batch->sent <= batch->valid_us * 1000ull;
}

bool memd_batch(struct memd_client *c, void *message, size_t bytes,
                void *(*room)(void *arg, size_t bytes), void *arg, size_t *reply_bytes)
{
    struct memd *m = c->memd;
    struct wire_batch *batch = message;
    struct wire_reader reader;
    int rc = wire_check(message, bytes);
    uint64_t now = clock_boot_ns();
    uint32_t node_view = 0;
    char *reply;

    ASSERT((uintptr_t)message % 8 == 0);
    *reply_bytes = 0;
    if (rc != FAR_OK || c->state != MEMD_WELCOMED || !owns(c, &batch->head)) {
        count(&c->count.rejected, 1);
        return true;
    }
    rc = wire_batch_check(message, bytes, m->region.size, &reader);
    count(&c->count.rejected, rc != FAR_OK);
    reply = room(arg, rc != FAR_OK ? sizeof(struct wire_answer) : reader.reply_bytes);
    if (!reply)
        return false;
    if (rc == FAR_OK) {
        unsigned parts = reader.parts;

        rc = is_valid(batch, now) ? enter(c, batch->identity, batch->head.view, &node_view)
                                  : FAR_TIMEOUT;
        if (rc == FAR_OK) {
            *reply_bytes = reader.reply_bytes;
            execute(m, &batch->head, &reader, now, reply);
            leave(c);
            count(&c->count.batches, 1);
            count(&c->count.requests, parts);
            count(&c->count.verbs, reader.verbs);
            count(&c->count.bytes_read, reader.bytes_read);
            count(&c->count.bytes_written, reader.bytes_written);
            return true;
        }
        count(node_view != 0     ? &c->count.old_views
              : rc == FAR_FENCED ? &c->count.fenced
                                 : &c->count.rejected,
              1);
    }
    struct wire_answer *answer = (struct wire_answer *)(void *)reply;
    *answer =
        (struct wire_answer){.head = wire_head_of(WIRE_ANSWER, c->slot, c->token, batch->head.seq),
                             .status = rc,
                             .clock = now};
    answer->head.view = node_view;
    *reply_bytes = sizeof(struct wire_answer);
    return true;
}
