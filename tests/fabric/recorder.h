/*
 * A fabric that writes down what is posted to it: for testing what batches make of their verbs.
 * Its order and capabilities are whatever the test says. Verbs are executed in posting order.
 *
 * Batches and what came of them are written as text: R, W, C (CAS), M (masked CAS) and F (FAA),
 * each with its node; '|' a fence that was asked for, '!' before a verb with FAB_FENCE, '/'
 * between two posts. On InfiniBand "C0|R0W0" becomes "C0R0!W0".
 */
#ifndef TESTS_FABRIC_RECORDER_H
#define TESTS_FABRIC_RECORDER_H

#include "fabric/rig.h"

#define RECORDER_NODES 4
#define RECORDER_WORDS 1024
#define RECORDER_VERBS 2048

struct recorder {
    struct fab fab;
    struct fab_ep ep;
    struct batch b;
    struct cost cost;
    uint64_t word[RECORDER_NODES][RECORDER_WORDS];
    uint64_t buf[BATCH_MAX];

    unsigned posts, verbs; /* seen so far */
    struct fab_verb verb[RECORDER_VERBS];
    unsigned post_of[RECORDER_VERBS];

    int refuse;    /* what post() returns from the fail_at-th post on, counted from 1 */
    int status;    /* or what such a post completes with                              */
    uint64_t away; /* nodes that it says nothing was sent to                      */
    unsigned fail_at;
    void (*interfere)(struct recorder *rec); /* other clients, before each post */
};

static inline void recorder_execute(struct recorder *rec, const struct fab_verb *v)
{
    uint64_t *word = &rec->word[v->node][v->off / 8], *buf = v->buf, old = *word;

    assert_true(v->kind != FAB_MCAS || (rec->fab.caps & FAB_CAP_MCAS));
    if (v->kind == FAB_READ)
        memcpy(buf, word, v->len);
    else if (v->kind == FAB_WRITE)
        memcpy(word, buf, v->len);
    else if (v->kind == FAB_CAS && old == v->compare)
        *word = v->swap;
    else if (v->kind == FAB_MCAS && ((old ^ v->compare) & v->compare_mask) == 0)
        *word = (old & ~v->swap_mask) | (v->swap & v->swap_mask);
    else if (v->kind == FAB_FAA)
        *word += v->swap;
    if (v->kind > FAB_WRITE)
        *buf = old;
}

static inline int recorder_post(struct fab_ep *ep, struct fab_req *req)
{
    struct recorder *rec = (struct recorder *)ep->fab;
    bool failing = rec->fail_at && rec->posts + 1 >= rec->fail_at;

    if (failing && rec->refuse)
        return rec->refuse;
    if (rec->interfere)
        rec->interfere(rec);
    for (unsigned i = 0; i < req->count; i++) {
        assert_true(rec->verbs < RECORDER_VERBS);
        assert_int_equal(fab_check(&rec->fab, &req->verbs[i]), FAR_OK);
        rec->post_of[rec->verbs] = rec->posts;
        rec->verb[rec->verbs++] = req->verbs[i];
        recorder_execute(rec, &req->verbs[i]);
    }
    rec->posts++;
    req->status = failing ? rec->status : FAR_OK;
    req->away = failing ? rec->away : 0;
    req->away_status = FAR_REFUSED;
    req->done = true;
    return FAR_OK;
}

static inline void recorder_poll(struct fab_ep *ep, bool wait)
{
    (void)ep;
    (void)wait;
}

static const struct fab_ops recorder_ops = {.post = recorder_post, .poll = recorder_poll};

/* Makes it new: nothing recorded, memory zeroed, the batch empty. */
static inline void recorder_reset(struct recorder *rec, unsigned order, unsigned caps)
{
    memset(rec, 0, sizeof *rec);
    rec->fab = (struct fab){.ops = &recorder_ops, .caps = caps, .order = order};
    rec->fab.nodes = RECORDER_NODES;
    for (unsigned n = 0; n < RECORDER_NODES; n++)
        rec->fab.size[n] = sizeof rec->word[n];
    rec->ep = (struct fab_ep){.fab = &rec->fab, .ops = &recorder_ops};
    batch_init(&rec->b, &rec->ep, &rec->cost);
}

/* Fills the batch from its text; the i-th verb works on the i-th word of its node and buffer. */
static inline void recorder_fill(struct recorder *rec, const char *text)
{
    unsigned i = 0;

    while (*text) {
        gaddr at = gaddr_make((unsigned)(text[1] - '0'), 0);

        switch (*text) {
        case '|':
            batch_fence(&rec->b);
            text++;
            continue;
        case 'R':
            batch_read(&rec->b, at, 8 * i, &rec->buf[i], 8);
            break;
        case 'W':
            batch_write(&rec->b, MARK_EARLY, at, 8 * i, &rec->buf[i], 8);
            break;
        case 'C':
            batch_cas(&rec->b, MARK_PUBLISH, at, 8 * i, 0, 1, &rec->buf[i]);
            break;
        case 'M':
            batch_mcas(&rec->b, MARK_PUBLISH, at, 8 * i, 0, 1, 1, 1, &rec->buf[i]);
            break;
        default:
            assert_int_equal(*text, 'F');
            batch_faa(&rec->b, MARK_PUBLISH, at, 8 * i, 1, &rec->buf[i]);
        }
        text += 2;
        i++;
    }
}

#define RECORDER_TEXT (4 * RECORDER_VERBS + 1)

/* What was posted, as text. */
static inline void recorder_text(const struct recorder *rec, char text[RECORDER_TEXT])
{
    for (unsigned i = 0; i < rec->verbs; i++) {
        if (i > 0 && rec->post_of[i] != rec->post_of[i - 1])
            *text++ = '/';
        if (rec->verb[i].flags & FAB_FENCE)
            *text++ = '!';
        *text++ = "RWCMF"[rec->verb[i].kind];
        *text++ = (char)('0' + rec->verb[i].node);
    }
    *text = 0;
}

struct recorder_case {
    unsigned order;
    const char *batch, *posted;
};

/* Flushes the batch and compares what was posted, and that the round trips were counted. */
static inline void recorder_expect(struct recorder *rec, const struct recorder_case *c,
                                   unsigned caps)
{
    char text[RECORDER_TEXT];
    unsigned rtts = 1;

    recorder_reset(rec, c->order, caps);
    recorder_fill(rec, c->batch);
    assert_int_equal(batch_flush(&rec->b), FAR_OK);
    recorder_text(rec, text);
    if (strcmp(text, c->posted) != 0)
        print_error("order 0x%x: %s\n", c->order, c->batch);
    assert_string_equal(text, c->posted);
    for (const char *p = text; *p; p++)
        rtts += *p == '/' || *p == '!';
    assert_int_equal(rec->cost.rtts, rtts);
    assert_int_equal(rec->cost.verbs, rec->verbs);
}

#endif
