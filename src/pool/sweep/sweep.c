/*
 * Sweeping: finding the memory that dead clients held.
 *
 * An object is reachable from a table, or on a shared free list, or held by a client (free,
 * retired, or about to be published), or lost. What a client holds locally is invisible to others,
 * so a sweep first makes every client drop it. What is unreachable then is free, no matter which
 * client held it.
 *
 *   SWEEP-P1  The sweeper notes how far each node's chunks have been handed out (the mark), and
 *       announces the sweep. A client that sees this (its announcements read the word) drops
 *       everything it holds in chunks below the mark, allocates only above it, and leaves the
 *       shared lists alone: it has met the sweep. What it frees below the mark it forgets, because
 *       the sweep may have found it already.
 *   SWEEP-P2  When every client has certified an epoch later than that of the announcement, every
 *       operation in flight began after its client had met the sweep (EPOCH-E2). From then on an
 *       unreachable object below the mark becomes reachable only by the recovery of a client that
 *       died before it met the sweep. So the sweeper waits until no client is fenced. (A client
 *       that dies later had met the sweep.) And a client that has lines to recover itself,
 *       because they were left or came with its slot, does so before it meets the sweep. It
 *       begins operations meanwhile, and certifies nothing newer before these have ended. Then
 *       the lists are emptied, and what the tables reach is marked. An object that moves
 *       meanwhile moves from a subtable to its child, and a walk that meets the subtable goes on
 *       to the child.
 *   SWEEP-P3  After the marking, the version of every table's caches is changed. Another two epochs
 *       later nobody is still reading what was not marked, nor knows it from a cache (as EPOCH-E3),
 *       nor will anybody free it. Only now does the sweeper put what it found on the shared lists;
 *       then the sweep is over. A sweeper whose lease lapsed gives up, before it sets the marks,
 *       empties the lists or frees anything. It knows by its registration. Once that is another
 *       than its word names, anybody may take over, even a sibling operation.
 *   SWEEP-P4  Every unit of an object that is reached is marked, and only what has no such unit is
 *       free. So a damaged chunk table, which says that a chunk is cut otherwise than it is, costs
 *       memory at most.
 *   SWEEP-P5  A chunk in which nothing is reached is free as a whole, whatever the chunk table says
 *       of it: nobody holds a part of it, because all have dropped it (SWEEP-P1), and nothing below
 *       the mark was handed out since. A run in use has something reached in each of its chunks. So
 *       free chunks in a row are joined to runs, whose entries are written before they are handed
 *       on. A run can be cut for any class (ALLOC-A5).
 *
 * A sweeper that dies leaves its announcement. Clients go on as in SWEEP-P1 until one finds the
 * sweeper dead, which ends the sweep (client_recover()), or until the next sweeper takes over, with
 * a mark of its own that every client meets again. A sweeper that dies before it announces its
 * sweep leaves its word. That only keeps others from sweeping, and a client that needs memory waits
 * until the sweeper is found dead. Memory that was marked as reachable and freed during the sweep,
 * and what a dead sweeper had found, waits for the next sweep. So do objects above the mark that
 * were on the lists when these were emptied; then the count of deaths says that there is something
 * to find.
 */
#include "pool/sweep/marks.h"
#include "pool/pool_internal.h"

#include <stdlib.h>
#include <string.h>

struct sweep {
    struct marks marks;
    struct op *op;
    uint64_t word;        /* announces this sweep, and names the sweeper */
    uint64_t incarnation; /* the sweeper's: if it registers again, the sweep is no longer its own */
    uint64_t deaths;      /* counted before the sweep: what those clients held is below the mark */
    bool unsure;          /* the CAS of the word failed: it may take effect later */
    bool listed, above;   /* the lists had objects; chunks above the marks were in use */
    struct sweep_result result;
};

/* SWEEP-P3: a sweeper whose lease has lapsed is registered again, and others may have taken over
 * its sweep: what it has noted is worth nothing. (While it is being registered, its slot may have
 * the new name already.) */
static int still_mine(const struct sweep *s)
{
    const struct client *c = s->op->client;
    return c->incarnation == s->incarnation && !c->attention.joining
               ? FAR_OK
               : err_fail(FAR_FENCED, "this client's lease lapsed during its sweep");
}

/* Lost races for the marks, against late verbs of an earlier sweeper. */
#define MARK_TRIES 8

/* Not by a WRITE: one that failed may land in the middle of the next sweep (FABRIC-F5), and a
 * client that meets that sweep would keep what lies between the two marks. Marks only grow, so a
 * CAS that lands late finds another mark and fails. */
static int set_marks(struct sweep *s)
{
    struct op *op = s->op;
    unsigned nodes = op->pool->nodes;
    uint64_t *seen = op_buffer(op, BUF_POOL, 2 * nodes * 8), *old = seen + nodes;
    if (!seen)
        return FAR_NO_MEMORY;
    for (unsigned attempt = 0; attempt < MARK_TRIES; attempt++) {
        for (unsigned i = 0; i < nodes; i++)
            batch_read(&op->batch, gaddr_make(i, 0), NODE_SWEEP_OFF, &seen[i], 8);
        int rc = batch_flush(&op->batch);
        if (rc == FAR_OK)
            rc = still_mine(s); /* else these may be the marks of a sweeper that took over */
        if (rc != FAR_OK)
            return rc;
        for (unsigned i = 0; i < nodes; i++)
            batch_cas(&op->batch, MARK_PUBLISH, gaddr_make(i, 0), NODE_SWEEP_OFF, seen[i],
                      s->marks.chunks[i], &old[i]);
        rc = batch_flush(&op->batch);
        if (rc != FAR_OK || memcmp(seen, old, nodes * 8) == 0)
            return rc;
    }
    return FAR_CONTENTION;
}

/* SWEEP-P1 */
static int announce(struct sweep *s)
{
    struct op *op = s->op;
    uint64_t *word = op->pool_word;
    uint64_t mine = client_owner_word(op->client) | (op->client->sweep.count++ & 127) * SWEEP_COUNT;
    bool alive = false;

    s->incarnation = op->client->incarnation; /* the one in `mine`: a sibling may change it soon */
    batch_read(&op->batch, NODE0, SWEEP_DELTA, word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t other = word[0];
    if (rc == FAR_OK && other != 0)
        rc = client_owner_alive(op, other, &alive);
    if (rc != FAR_OK || alive)
        return rc != FAR_OK ? rc : FAR_CONTENTION;
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, SWEEP_DELTA, other, mine, word);
    batch_fence(&op->batch);
    batch_read(&op->batch, NODE0, DEATHS_DELTA, &word[1], 8);
    rc = batch_flush(&op->batch);
    s->unsure = rc != FAR_OK;
    if (rc == FAR_OK && word[0] != other)
        return FAR_CONTENTION;
    s->word = mine;
    if (rc != FAR_OK)
        return rc;
    s->deaths = word[1];
    rc = pool_read_marks(op, NODE_NEXT_CHUNK_OFF, s->marks.chunks);
    if (rc != FAR_OK)
        return rc;
    rc = set_marks(s);
    if (rc != FAR_OK)
        return rc;
    s->word = mine | SWEEP_ANNOUNCED;
    /* The count follows the word: a client that reads the new count and then the word finds the
     * sweep announced. */
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, SWEEP_DELTA, mine, s->word, word);
    batch_fence(&op->batch);
    batch_faa(&op->batch, MARK_PUBLISH, NODE0, SWEEPS_DELTA, 1, &word[1]);
    rc = batch_flush(&op->batch);
    op->client->attention.sweep_unmet |= rc == FAR_OK;
    return rc != FAR_OK || word[0] == mine ? rc : FAR_CONTENTION;
}

/* A sweep that failed must not keep others from sweeping, nor from their memory. What was on the
 * lists may be lost now: the next sweep finds it. */
static void give_up(struct sweep *s)
{
    struct op *op = s->op;
    batch_faa(&op->batch, MARK_PUBLISH, NODE0, DEATHS_DELTA, 1, &op->pool_word[1]);
    batch_fence(&op->batch);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, SWEEP_DELTA, s->word & ~SWEEP_ANNOUNCED, 0,
              &op->pool_word[0]);
    batch_fence(&op->batch); /* the announcement may land between the two (FABRIC-F5) */
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, SWEEP_DELTA, s->word | SWEEP_ANNOUNCED, 0,
              &op->pool_word[2]);
    /* If the word may still announce this sweep, this client registers again under another name.
     * Then the word names no living client, and the next sweeper takes over. */
    if (batch_flush(&op->batch) != FAR_OK || s->unsure)
        op->client->attention.lease_lost = true;
}

/* Waits until every client has certified `epochs` more than the epoch is now. */
static int wait_epochs(const struct sweep *s, unsigned epochs)
{
    struct op *op = s->op;
    batch_read(&op->batch, NODE0, CONTROL_OFF, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    uint64_t now = op->pool_word[0];
    uint64_t until = now + epochs + 1; /* the epoch gets there when all have certified one less */
    for (uint64_t epoch = now + 1; epoch <= until && rc == FAR_OK; epoch++) {
        rc = client_progress(op->client, "waiting for other sessions to take part in a sweep",
                             epoch - now, epochs + 2);
        if (rc == FAR_OK)
            rc = client_await_epoch(op, epoch, 8);
    }
    if (rc == FAR_TIMEOUT)
        return err_fail(FAR_TIMEOUT,
                        "the epoch does not advance: another client is alive but does not go on");
    return rc == FAR_OK ? still_mine(s) : rc;
}

/* SWEEP-P2: what the journals of dead clients make reachable must be reachable before the
 * marking. */
static int await_recoveries(const struct sweep *s)
{
    struct op *op = s->op;
    struct client *c = op->client;
    struct backoff patience = {0};
    for (;;) {
        struct client_slot *slots = NULL;
        uint64_t fenced = 0, asked = client_now(c);
        int rc = client_registry(op, &slots);
        if (rc != FAR_OK)
            return rc;
        for (unsigned i = 0; i < op->pool->clients; i++)
            fenced |= slots[i].incarnation & CLIENT_FENCED;
        if (!fenced)
            return still_mine(s);
        client_watch(c, slots, op->pool->clients, NO_EPOCH, asked);
        rc = client_drive_epoch(op); /* recovers the suspect */
        if (rc != FAR_OK)
            return rc;
        if (!client_backoff(op, &patience, 8))
            return err_fail(FAR_TIMEOUT, "timed out waiting for the recovery of a dead client");
    }
}

static int empty_lists_of(struct sweep *s, unsigned node)
{
    struct op *op = s->op;
    gaddr at = gaddr_make(node, 0);
    uint64_t *heads = op_buffer(op, BUF_POOL, 2 * CLASS_COUNT * 8);
    if (!heads)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, at, NODE_FREE_OFF, heads, CLASS_COUNT * 8);
    batch_read(&op->batch, at, NODE_NEXT_CHUNK_OFF, op->pool_word, 8);
    int rc = batch_flush(&op->batch);
    if (rc != FAR_OK)
        return rc;
    uint64_t listed = 0, most = pool_head(op->pool, node)->chunks;
    uint64_t *old = heads + CLASS_COUNT;
    for (unsigned i = 0; i < CLASS_COUNT; i++) { /* SWEEP-P2: nobody else touches them */
        listed |= heads[i] & ((1ull << GADDR_BITS) - 1);
        /* Not by a WRITE: after an error it may land when the lists are in use again
         * (FABRIC-F5). */
        batch_cas(&op->batch, MARK_PUBLISH, at, NODE_FREE_OFF + i * 8ull, heads[i],
                  freelist_head(heads[i], 0), &old[i]);
    }
    s->listed |= listed != 0;
    s->above |= s->marks.chunks[node] < most && op->pool_word[0] > s->marks.chunks[node];
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && memcmp(heads, old, CLASS_COUNT * 8) != 0)
        return FAR_CONTENTION; /* another client did: what is on them is not ours to find */
    return rc;
}

/* Within an operation: otherwise another one of this session could find the lease lapsed between
 * the READ and the CAS, and register the client again. The CAS would then be allowed, though the
 * sweep is over and the lists are in use. */
static int empty_lists(struct sweep *s)
{
    int rc = op_begin(s->op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = still_mine(s);
    for (unsigned node = 0; node < s->op->pool->nodes && rc == FAR_OK; node++)
        rc = empty_lists_of(s, node);
    /* Objects above a mark may have been on the lists, and are lost then. (A page may be on another
     * node than its list, so this is asked of all nodes together.) */
    s->result.spilled = s->listed && s->above;
    op_end(s->op);
    return rc;
}

/* Puts an object that nothing reaches into this client's stock, and from there on the lists. */
static int found(struct sweep *s, unsigned node, uint64_t offset_in_chunks, unsigned size_class)
{
    struct op *op = s->op;
    s->result.objects++;
    s->result.bytes += size_class_bytes(size_class);
    pool_free_unpublished(op->client,
                          gaddr_make(node, pool_chunks_start(op->pool, node) + offset_in_chunks),
                          size_class);
    return op->client->stock.of[node][size_class].kept < freelist_bundle(size_class)
               ? FAR_OK
               : client_give(op, node, size_class);
}

/* Writes `count` entries of a chunk table, as they are in the op's words. */
static int write_entries(struct op *op, unsigned node, uint64_t chunk, uint64_t count)
{
    batch_write(&op->batch, MARK_EARLY, gaddr_make(node, 0),
                pool_head(op->pool, node)->table_off + chunk * 8, op->pool_word,
                (uint32_t)count * 8);
    return batch_flush(&op->batch);
}

/* SWEEP-P5: chunks in a row in which nothing is reached become runs. They get the length that an
 * allocation asked for in vain, as long as they last, else they are as long as possible. */
static int found_extent(struct sweep *s, unsigned node, uint64_t chunk, uint64_t count)
{
    struct op *op = s->op;
    unsigned wanted = op->client->stock.wanted;
    bool by_wanted = wanted >= RUN_CLASS && size_class_chunks(wanted) > 1;
    int rc = FAR_OK;

    while (count > 0 && rc == FAR_OK) {
        unsigned size_class =
            by_wanted && size_class_chunks(wanted) <= count ? wanted : size_class_for_chunks(count);
        uint64_t run = size_class_chunks(size_class);
        pool_describe_run(op->pool_word, size_class, op->client->slot);
        rc = write_entries(op, node, chunk, run);
        if (rc == FAR_OK)
            rc = found(s, node, chunk << CHUNK_SHIFT, size_class);
        chunk += run;
        count -= run;
    }
    return rc;
}

/* Finds the free objects of a chunk in which something is reached, and which is no run. */
static int found_parts(struct sweep *s, unsigned node, uint64_t chunk, uint64_t entry)
{
    struct op *op = s->op;
    unsigned size_class = chunk_class(entry);
    int rc = FAR_OK;

    if (chunk_kind(entry) != CHUNK_SLAB || !chunk_fits(entry, s->marks.chunks[node] - chunk)) {
        size_class = 0; /* the owner died before it wrote the entry, or the entry is damaged */
        op->pool_word[0] = chunk_entry(CHUNK_SLAB, size_class, op->client->slot, 1);
        rc = write_entries(op, node, chunk, 1);
    }
    uint32_t bytes = size_class_bytes(size_class);
    for (uint64_t i = 0; i < CHUNK_BYTES / bytes && rc == FAR_OK; i++) {
        uint64_t at = (chunk << CHUNK_SHIFT) + i * bytes;
        if (!marks_reached(&s->marks, node, at, bytes))
            rc = found(s, node, at, size_class);
    }
    return rc;
}

/* SWEEP-P3: finds the whole chunks that are free, or the free parts of the others. */
static int collect_node(struct sweep *s, unsigned node, bool whole)
{
    uint64_t count = s->marks.chunks[node], *table = NULL, extent = 0;
    int rc = pool_chunk_table(s->op, node, s->marks.chunks[node], &table);

    for (uint64_t chunk = 0, run = 1; chunk < count && rc == FAR_OK; chunk += run) {
        uint64_t entry = table[chunk];
        run = 1;
        if (!marks_reached(&s->marks, node, chunk << CHUNK_SHIFT, CHUNK_BYTES)) {
            extent++;
            continue;
        }
        if (whole)
            rc = found_extent(s, node, chunk - extent, extent);
        extent = 0;
        if (chunk_kind(entry) == CHUNK_LARGE && chunk_fits(entry, count - chunk))
            run = size_class_chunks(chunk_class(entry));
        else if (!whole && rc == FAR_OK)
            rc = found_parts(s, node, chunk, entry);
    }
    if (whole && rc == FAR_OK)
        rc = found_extent(s, node, count - extent, extent);
    free(table);
    return rc;
}

/* Gives all free objects to the lists: others wait for memory, too. */
static int give_all(struct op *op)
{
    int rc = FAR_OK;
    for (unsigned node = 0; node < op->pool->nodes && rc == FAR_OK; node++)
        rc = client_give_all(op, node);
    return rc;
}

/* Within an operation, so that no other sweep gets past SWEEP-P2 while this one holds what it
 * found. */
static int collect(struct sweep *s)
{
    struct client *c = s->op->client;
    int rc = op_begin(s->op, NULL);
    if (rc != FAR_OK)
        return rc;
    rc = still_mine(s); /* from here on the client does not register again: an op is in flight */
    if (rc == FAR_OK) {
        c->sweep.mine = s->word;
        c->sweep.met = 0;
    }
    for (unsigned node = 0; node < s->op->pool->nodes && rc == FAR_OK; node++)
        rc = collect_node(s, node, true); /* first, because lists of small objects need pages */
    if (rc == FAR_OK)
        pool_restore_spares(s->op); /* before pages are made of them */
    for (unsigned node = 0; node < s->op->pool->nodes && rc == FAR_OK; node++)
        rc = collect_node(s, node, false);
    if (rc == FAR_OK)
        rc = give_all(s->op);
    op_end(s->op);
    return rc;
}

static int finish(struct sweep *s)
{
    struct op *op = s->op;
    int rc = still_mine(s);
    if (rc != FAR_OK)
        return rc;
    /* The count goes down before the next sweep can begin; that one would subtract the same
     * deaths. */
    batch_faa(&op->batch, MARK_PUBLISH, NODE0, DEATHS_DELTA, s->result.spilled - s->deaths,
              &op->pool_word[1]);
    batch_fence(&op->batch);
    batch_cas(&op->batch, MARK_PUBLISH, NODE0, SWEEP_DELTA, s->word, 0, &op->pool_word[0]);
    rc = batch_flush(&op->batch);
    if (rc == FAR_OK && op->pool_word[0] != s->word)
        return err_fail(FAR_FENCED, "another client took over this client's sweep");
    return rc;
}

static int run(struct sweep *s)
{
    struct op *op = s->op;
    int rc = announce(s);
    if (rc == FAR_OK)
        rc = client_meet_sweep(op);
    if (rc == FAR_OK)
        rc = wait_epochs(s, 1);
    if (rc == FAR_OK)
        rc = await_recoveries(s);
    if (rc == FAR_OK)
        rc = empty_lists(s);
    if (rc == FAR_OK)
        rc = marks_all(&s->marks);
    if (rc == FAR_OK)
        rc = wait_epochs(s, 2);
    if (rc == FAR_OK)
        rc = collect(s);
    if (rc == FAR_OK)
        rc = finish(s);
    if (rc != FAR_OK && s->word != 0)
        give_up(s);
    if (op->client->sweep.mine == s->word) /* else it is the sweep of a sibling operation */
        op->client->sweep.mine = 0;
    return rc;
}

int pool_sweep(struct op *op, struct sweep_result *result)
{
    struct sweep s = {.op = op};
    ASSERT(!op_in_flight(op) && op->batch.count == 0);
    /* Not while parked: if the client died then, nobody would look for it, and its sweep would
     * stay. */
    int rc = client_attend(op);
    if (rc != FAR_OK)
        return rc;
    if (client_has_undone(op->client)) /* SWEEP-P2 */
        return err_fail(FAR_CONTENTION,
                        "this client has unfinished work that is not recovered yet");
    uint64_t away = pool_away(op->pool); /* AWAY-4 */
    if (away)
        return fab_away_failed(op->pool->fab, away);
    rc = marks_init(&s.marks, op, true);
    if (rc == FAR_OK)
        rc = run(&s);
    marks_free(&s.marks);
    if (rc == FAR_OK)
        *result = s.result;
    return rc;
}
