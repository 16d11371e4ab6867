/*
 * The life of a verb:
 *
 *   post      The client's CPU writes it, and rings the doorbell. Threads that share a doorbell
 *             wait for each other.
 *   send      It is in the queue of its connection. The NIC sends it when a fence and the limit of
 *             READs and atomics in flight allow. The NIC takes longer if more verbs are outstanding
 *             than its cache holds.
 *   arrive    It is at the memory node's NIC, which moves its bytes over PCIe. Atomics wait for
 *             others on the same word.
 *   execute   It takes effect. A connection's verbs do so in the order they were posted.
 *   complete  The client sees it.
 *
 * Each NIC has a queue for messages, one for bytes that it sends, and one for bytes that it
 * receives; a memory node has one for PCIe, too. Each serves in order. So all there is to it is the
 * time when it is free.
 */
#include "model/model_internal.h"

#include "base/hash.h"

#include <stdlib.h>

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Waits in the line from `from` on, and is served. Returns when that is over. */
static uint64_t serve(struct line *line, uint64_t from, uint64_t time)
{
    line->busy += time;
    return line->free = later(line->free, from) + time;
}

static struct model_verb *verb_take(struct model *m)
{
    struct model_verb *f = m->idle;
    if (!f)
        return malloc(sizeof *f);
    m->idle = f->next;
    return f;
}

static void verb_release(struct model *m, struct model_verb *f)
{
    f->next = m->idle;
    m->idle = f;
}

/* ---- post ------------------------------------------------------------------------------------ */

/* The more threads a machine has at work, the more they hold each other up. */
static unsigned crowd(const struct model *m)
{
    return m->shape.threads > m->nic->crowd_from ? m->shape.threads - m->nic->crowd_from : 0;
}

/* Writes a verb. The first one behind a doorbell needs the doorbell, too. */
static void write_verb(struct model_client *c, bool rings)
{
    const struct nic *nic = c->model->nic;
    uint64_t time = nic->post;
    if (!rings || !c->doorbell) {
        model_work(c, time);
        return;
    }
    if (c->doorbell->threads > 1)
        time += nic->doorbell_shared + nic->doorbell_others * (c->doorbell->threads - 1);
    c->doorbell->free = later(c->doorbell->free, c->clock) + time;
    model_work(c, c->doorbell->free - c->clock); /* it waits by looking again and again */
}

int model_verb_post(struct model_client *c, struct fab_req *req)
{
    struct model *m = c->model;
    struct model_verb *first = NULL, **last = &first;
    unsigned of_node[MODEL_NODES_MAX] = {0};

    for (unsigned i = 0; i < req->count; i++) {
        struct model_verb *f = verb_take(m);
        if (!f) {
            while (first) {
                f = first->next;
                verb_release(m, first);
                first = f;
            }
            return err_fail(FAR_NO_MEMORY, "no memory for a modelled verb");
        }
        const struct fab_verb *v = &req->verbs[i];
        *f = (struct model_verb){.verb = v, .req = req, .pair = &c->pair[v->node], .life = c->life};
        *last = f;
        last = &f->next;
        f->rings = of_node[v->node]++ == 0;
        write_verb(c, f->rings);
    }
    while (first) {
        struct model_verb *f = first;
        first = f->next;
        /* A single verb goes to an idle NIC together with the doorbell. */
        f->fetched = f->pair->posted > 0 || of_node[f->verb->node] > 1;
        model_push(m, EVENT_SEND, c->clock, f);
    }
    for (unsigned i = 0; i < req->count; i++)
        c->pair[req->verbs[i].node].posted++;
    req->parts = req->count;
    c->in_flight++;
    m->counts.verbs += req->count;
    return FAR_OK;
}

/* ---- send ------------------------------------------------------------------------------------ */

/* Bytes of the request, of the answer, and between the node's NIC and its memory. */
static uint64_t request_bytes(const struct nic *nic, const struct fab_verb *v)
{
    return nic->header + (v->kind == FAB_READ ? 0 : v->kind == FAB_WRITE ? v->len : 28);
}

static uint64_t answer_bytes(const struct nic *nic, const struct fab_verb *v)
{
    return nic->header + (v->kind == FAB_WRITE ? 0 : v->len);
}

static uint64_t pcie_bytes(const struct nic *nic, const struct fab_verb *v)
{
    uint64_t packets = (v->len + nic->pcie_payload - 1) / nic->pcie_payload;
    uint64_t bytes = v->len + packets * nic->pcie_header;
    return v->kind > FAB_WRITE ? 2 * bytes : bytes;
}

static uint64_t half_latency(const struct model *m, enum fab_class class)
{
    return (m->nic->latency[class] + m->nic->crowd_latency[class] * crowd(m)) / 2;
}

/* How long the client's NIC is busy with a verb. */
static uint64_t message_time(const struct model *m, const struct machine *machine,
                             enum fab_class class)
{
    const struct nic *nic = m->nic;
    uint64_t entries = machine->outstanding + nic->cache_pair * machine->pairs;
    uint64_t over = entries > nic->cache_room[class] ? entries - nic->cache_room[class] : 0;
    uint64_t missed = over * nic->cache_miss[class];
    return nic->message[class] +
           (missed < nic->cache_most[class] ? missed : nic->cache_most[class]);
}

static bool has_answer(const struct fab_verb *v)
{
    return v->kind != FAB_WRITE;
}

static bool may_send(const struct model *m, const struct pair *p)
{
    const struct fab_verb *v = p->first->verb;
    if ((v->flags & FAB_FENCE) && p->answers > 0)
        return false;
    return !has_answer(v) || p->answers < m->nic->in_flight;
}

static void send_one(struct model *m, struct pair *p)
{
    struct model_verb *f = p->first;
    struct machine *machine = p->client->machine;
    const struct fab_verb *v = f->verb;
    enum fab_class class = fab_class_of(v->kind);

    p->first = f->next;
    p->answers += has_answer(v);
    if (++machine->outstanding > m->counts.outstanding_max)
        m->counts.outstanding_max = machine->outstanding;
    uint64_t at = serve(&machine->message, m->now, message_time(m, machine, class));
    at = serve(&machine->send, at, request_bytes(m->nic, v) * m->nic->byte);
    at += half_latency(m, class) + (f->fetched ? m->nic->fetch[class] : 0);
    p->arrived = later(at, p->arrived);
    model_push(m, EVENT_ARRIVE, p->arrived, f);
}

static void send_all(struct model *m, struct pair *p)
{
    while (p->first && may_send(m, p))
        send_one(m, p);
}

void model_verb_send(struct model *m, struct model_verb *f)
{
    struct pair *p = f->pair;
    p->client->machine->pairs += !p->used;
    p->used = true;
    f->next = NULL;
    if (p->first)
        p->last->next = f;
    else
        p->first = f;
    p->last = f;
    send_all(m, p);
}

/* ---- at the memory node, and back ------------------------------------------------------------ */

void model_verb_arrive(struct model *m, struct model_verb *f)
{
    const struct nic *nic = m->nic;
    const struct fab_verb *v = f->verb;
    struct node *node = f->pair->node;
    enum fab_class class = fab_class_of(v->kind);

    uint64_t at = serve(&node->receive, m->now, request_bytes(nic, v) * nic->byte);
    bool in_nic = m->locks_in_nic && (v->flags & FAB_MARK) == MARK_LOCK;
    at = serve(&node->message, at, nic->served[class]);
    if (!in_nic)
        at = serve(&node->pcie, at, pcie_bytes(nic, v) * nic->pcie_byte);
    if (class == FAB_A)
        at = serve(&node->word[hash_sum(&v->off, sizeof v->off, 0) % BUSY_WORDS], at,
                   in_nic ? nic->nic_word : nic->same_word);
    f->pair->executed = later(at, f->pair->executed);
    model_push(m, EVENT_EXECUTE, f->pair->executed, f);
}

void model_verb_execute(struct model *m, struct model_verb *f)
{
    const struct fab_verb *v = f->verb;
    struct fab_verb copy = *v;
    struct fab_req req = {.verbs = &copy, .count = 1};
    int rc = m->memory->ops->post(m->memory_ep, &req);
    ASSERT(rc == FAR_OK && req.done && req.status == FAR_OK);

    uint64_t bytes = answer_bytes(m->nic, v) * m->nic->byte;
    uint64_t at = serve(&f->pair->node->send, m->now, bytes);
    at += half_latency(m, fab_class_of(v->kind));
    at = serve(&f->pair->client->machine->receive, at, bytes);
    model_push(m, EVENT_COMPLETE, at, f);
}

void model_verb_complete(struct model *m, struct model_verb *f)
{
    struct pair *p = f->pair;
    struct model_client *c = p->client;
    struct fab_req *req = f->req;

    unsigned life = f->life;
    bool lives = life == c->life;
    if (f->rings && lives)
        c->owed += m->nic->completion + m->nic->crowd_completion * crowd(m);
    c->machine->outstanding--;
    p->posted--;
    p->answers -= has_answer(f->verb);
    verb_release(m, f);
    send_all(m, p);
    if (--req->parts > 0)
        return;
    if (!lives) {
        model_client_drop(c, life);
        return;
    }
    fab_complete(req, FAR_OK);
    c->in_flight--;
    model_client_completed(c);
}
