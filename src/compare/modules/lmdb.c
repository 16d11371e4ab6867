/*
 * LMDB: one put in each transaction, or as many as the depth.
 *
 * A get copies the value out. Reads of one batch share a snapshot; if the batch has puts, its
 * reads are part of the write transaction. The database has no name: its files are removed once
 * they are open.
 */
#include "compare/rival.h"

#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define FLAGS        (MDB_NOSYNC | MDB_WRITEMAP | MDB_NOMEMINIT | MDB_NOTLS)
#define MAP_BYTES    (1ull << 30) /* at least; pages are taken from the file when they are written */
#define SPARE_BYTES  (16u << 20)
#define FOLDER_BYTES 64

struct lmdb {
    const struct rival_setup *setup;
    unsigned batch; /* operations in a transaction */
    MDB_env *env;
    MDB_dbi dbi;
    bool in_memory;
};

struct lmdb_client {
    const struct lmdb *db;
    MDB_txn *reader; /* reset while it is not used */
};

static int failed(const struct lmdb *db, const char *what, int error)
{
    return db->setup->fail(FAR_SYSTEM, "LMDB: %s: %s", what, mdb_strerror(error));
}

/* The bytes of all keys and values, with what LMDB has for each. */
static uint64_t data_bytes(const struct rival_setup *s)
{
    return s->keys * (s->key_max + s->value_max + 64ull);
}

/* With MDB_WRITEMAP, a full disk would end the process by a signal. Pages are mostly more than half
 * full, and a transaction replaces some. */
static bool make_folder_in(const struct lmdb *db, const char *place, char folder[FOLDER_BYTES])
{
    struct statvfs disk;
    snprintf(folder, FOLDER_BYTES, "%s/farside-lmdb-XXXXXX", place);
    return statvfs(place, &disk) == 0 &&
           disk.f_bavail * disk.f_frsize > 3 * data_bytes(db->setup) + SPARE_BYTES &&
           mkdtemp(folder);
}

/* Makes a folder in memory if the system has a place for that, else among temporary files. */
static int make_folder(struct lmdb *db, char folder[FOLDER_BYTES])
{
    db->in_memory = make_folder_in(db, "/dev/shm", folder);
    if (db->in_memory || make_folder_in(db, "/tmp", folder))
        return FAR_OK;
    return db->setup->fail(FAR_SYSTEM,
                           "no room for %llu MB of LMDB's in /dev/shm or /tmp: use "
                           "fewer keys, or make room",
                           (unsigned long long)(3 * data_bytes(db->setup) + SPARE_BYTES) >> 20);
}

static void remove_folder(const char *folder)
{
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", folder);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/lock.mdb", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

static int open_env(struct lmdb *db)
{
    const struct rival_setup *s = db->setup;
    uint64_t bytes = 8 * data_bytes(s);
    char folder[FOLDER_BYTES];
    int rc = mdb_env_create(&db->env);
    if (rc == 0)
        rc = mdb_env_set_mapsize(db->env, bytes > MAP_BYTES ? bytes : MAP_BYTES);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(db->env, s->threads + 16);
    if (rc != 0)
        return failed(db, "mdb_env_create()", rc);
    if (s->key_max > (unsigned)mdb_env_get_maxkeysize(db->env))
        return s->fail(FAR_UNSUPPORTED, "LMDB has keys of up to %d bytes",
                       mdb_env_get_maxkeysize(db->env));
    rc = make_folder(db, folder);
    if (rc != FAR_OK)
        return rc;
    rc = mdb_env_open(db->env, folder, FLAGS, 0600);
    remove_folder(folder);
    return rc == 0 ? FAR_OK : failed(db, "mdb_env_open()", rc);
}

static int open_table(struct lmdb *db)
{
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(db->env, NULL, 0, &txn);
    if (rc == 0)
        rc = mdb_dbi_open(txn, NULL, 0, &db->dbi);
    if (rc == 0)
        rc = mdb_txn_commit(txn);
    else if (txn)
        mdb_txn_abort(txn);
    return rc == 0 ? FAR_OK : failed(db, "mdb_dbi_open()", rc);
}

static void lmdb_close(void *store)
{
    struct lmdb *db = store;
    if (db->env)
        mdb_env_close(db->env);
    free(db);
}

static int lmdb_open(const struct rival_setup *setup, unsigned batch, void **store)
{
    struct lmdb *db = calloc(1, sizeof *db);
    if (!db)
        return setup->fail(FAR_NO_MEMORY, "no memory for LMDB");
    *db = (struct lmdb){.setup = setup, .batch = batch};
    int rc = open_env(db);
    if (rc == FAR_OK)
        rc = open_table(db);
    if (rc == FAR_OK)
        *store = db;
    else
        lmdb_close(db);
    return rc;
}

static int lmdb_open_single(const struct rival_setup *setup, void **store)
{
    return lmdb_open(setup, 1, store);
}

static int lmdb_open_batch(const struct rival_setup *setup, void **store)
{
    if (setup->depth == 1)
        return setup->fail(FAR_UNSUPPORTED, "with a depth of 1, it is the same as lmdb");
    return lmdb_open(setup, setup->depth, store);
}

static void lmdb_describe(void *store, char text[RIVAL_TEXT_BYTES])
{
    const struct lmdb *db = store;
    int major, minor, patch;
    mdb_version(&major, &minor, &patch);
    snprintf(text, RIVAL_TEXT_BYTES,
             "LMDB %d.%d.%d in this process, file in %s, MDB_NOSYNC, MDB_WRITEMAP, MDB_NOMEMINIT, "
             "MDB_NOTLS; %u operation%s in a transaction; a get copies the value",
             major, minor, patch, db->in_memory ? "/dev/shm" : "/tmp", db->batch,
             db->batch == 1 ? "" : "s");
}

static void lmdb_client_close(void *client)
{
    struct lmdb_client *c = client;
    mdb_txn_abort(c->reader);
    free(c);
}

static int lmdb_client_open(void *store, void **client)
{
    struct lmdb *db = store;
    struct lmdb_client *c = calloc(1, sizeof *c);
    if (!c)
        return db->setup->fail(FAR_NO_MEMORY, "no memory for a client of LMDB");
    c->db = db;
    int rc = mdb_txn_begin(db->env, NULL, MDB_RDONLY, &c->reader);
    if (rc != 0) {
        free(c);
        return failed(db, "mdb_txn_begin()", rc);
    }
    mdb_txn_reset(c->reader);
    *client = c;
    return FAR_OK;
}

static int do_get(const struct lmdb *db, MDB_txn *txn, struct rival_op *op)
{
    MDB_val key = {op->key_len, (void *)(uintptr_t)op->key}, value;
    int rc = mdb_get(txn, db->dbi, &key, &value);
    op->found = rc == 0 && value.mv_size <= db->setup->value_max;
    if (op->found) {
        memcpy(op->buf, value.mv_data, value.mv_size);
        op->got_len = (uint32_t)value.mv_size;
    }
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int do_put(const struct lmdb *db, MDB_txn *txn, const struct rival_op *op)
{
    MDB_val key = {op->key_len, (void *)(uintptr_t)op->key};
    MDB_val value = {op->value_len, (void *)(uintptr_t)op->value};
    return mdb_put(txn, db->dbi, &key, &value, 0);
}

static int read_batch(struct lmdb_client *c, struct rival_op *ops, unsigned count)
{
    int rc = mdb_txn_renew(c->reader);
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = do_get(c->db, c->reader, &ops[i]);
    mdb_txn_reset(c->reader);
    return rc == 0 ? FAR_OK : failed(c->db, "a read transaction", rc);
}

static int write_batch(struct lmdb_client *c, struct rival_op *ops, unsigned count)
{
    MDB_txn *txn = NULL;
    int rc = mdb_txn_begin(c->db->env, NULL, 0, &txn);
    if (rc != 0)
        return failed(c->db, "mdb_txn_begin()", rc);
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = ops[i].put ? do_put(c->db, txn, &ops[i]) : do_get(c->db, txn, &ops[i]);
    if (rc == 0)
        rc = mdb_txn_commit(txn);
    else
        mdb_txn_abort(txn);
    return rc == 0 ? FAR_OK : failed(c->db, "a write transaction", rc);
}

static int lmdb_run(void *client, struct rival_op *ops, unsigned count)
{
    struct lmdb_client *c = client;
    int rc = FAR_OK;
    for (unsigned at = 0; at < count && rc == FAR_OK; at += c->db->batch) {
        unsigned n = count - at < c->db->batch ? count - at : c->db->batch;
        bool writes = false;
        for (unsigned i = at; i < at + n; i++)
            writes |= ops[i].put;
        rc = writes ? write_batch(c, ops + at, n) : read_batch(c, ops + at, n);
    }
    return rc;
}

static const struct rival_ops single = {
    .open = lmdb_open_single,
    .close = lmdb_close,
    .describe = lmdb_describe,
    .client_open = lmdb_client_open,
    .client_close = lmdb_client_close,
    .run = lmdb_run,
};

static const struct rival_ops batched = {
    .open = lmdb_open_batch,
    .close = lmdb_close,
    .describe = lmdb_describe,
    .client_open = lmdb_client_open,
    .client_close = lmdb_client_close,
    .run = lmdb_run,
};

extern const struct rival_module farside_module __attribute__((visibility("default")));
const struct rival_module farside_module = {.build = MODULE_BUILD, .variant = {&single, &batched}};
