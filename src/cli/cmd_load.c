/* farside load: reads tables from a dump. docs/dump.md describes the formats. */
#include "base/hash.h"
#include "cli/cli.h"
#include "cli/dump_read.h"
#include "cli/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND    "load"
#define CHOSEN_MAX 256u
#define LOOK_BYTES 65536u /* to see whether a table has keys */
#define KEYS_BITS  65536u /* of `under_way`                  */
#define FROM_MAX   (UINT64_C(1) << 62)

struct chosen {
    char name[FAR_NAME_MAX + 1];
    const char *as; /* the name in the pool */
};

struct load_call {
    struct cli_target target; /* index: of tables that are created */
    const char *tuning, *name;
    struct chosen chosen[CHOSEN_MAX]; /* --table; none: all */
    unsigned count;
    bool merge, check;
    uint64_t from;
};

/* How much went into each table. */
struct loaded {
    char name[FAR_NAME_MAX + 1]; /* in the pool */
    uint64_t pairs;
};

struct loading {
    const struct load_call *call;
    struct cli_table t;
    struct dump_reader reader;
    struct progress progress;
    uint64_t next;        /* the first record that is not loaded completely */
    struct loaded *table; /* tables so far; the last is the current one     */
    unsigned tables;
    bool wanted;      /* the current table is to be loaded */
    unsigned pending; /* puts under way                    */
    int code;         /* of the first put that failed      */
    /* Puts under way may take effect in any order. A key of which one may be under way is not put
     * again before they are done, so the last pair of a key stays. A bit for each hash. */
    uint64_t under_way[KEYS_BITS / 64];
};

/* ---- putting pairs --------------------------------------------------------------------------- */

/* Waits for at least `min` puts, unless fewer are under way. */
static void reap(struct loading *l, unsigned min)
{
    struct far_result results[32];
    struct loaded *table = &l->table[l->tables - 1];
    unsigned got = far_reap(l->t.session, results, 32, min);
    l->pending -= got;
    for (unsigned i = 0; i < got; i++) {
        if (results[i].status == FAR_OK)
            table->pairs++;
        else if (l->code == CLI_OK)
            l->code = cli_failed(COMMAND, results[i].status,
                                 "cannot put a pair of record %" PRIu64 " into the table '%s'",
                                 l->next, table->name);
    }
}

/* Waits for all puts. */
static void settle(struct loading *l)
{
    while (l->pending > 0)
        reap(l, 32);
    memset(l->under_way, 0, sizeof l->under_way);
}

/* Notes that the key is put. False if it, or one with the same bit, may be under way. */
static bool note_key(struct loading *l, const struct dump_pair *p)
{
    uint64_t bit = hash_sum(p->key, p->key_len, 0) % KEYS_BITS;
    uint64_t *word = &l->under_way[bit / 64], mask = UINT64_C(1) << bit % 64;
    bool free_bit = (*word & mask) == 0;
    *word |= mask;
    return free_bit;
}

static void put_pair(struct loading *l, const struct dump_pair *p)
{
    const struct far_op op = {.kind = FAR_OP_PUT,
                              .table = l->t.table,
                              .key = p->key,
                              .key_len = p->key_len,
                              .value = p->value,
                              .value_len = p->value_len};
    int rc = FAR_OK;
    if (!note_key(l, p)) {
        settle(l);
        note_key(l, p);
    }
    while ((rc = far_submit(l->t.session, &op)) == FAR_RING_FULL)
        reap(l, 1);
    if (rc == FAR_OK)
        l->pending++;
    else
        l->code = cli_failed(COMMAND, rc, "cannot put a pair of record %" PRIu64, l->next);
}

/* All pairs of the record have been put when it returns: the reader uses their memory again. */
static void put_pairs(struct loading *l, const struct dump_record *record)
{
    struct dump_pair p;
    for (size_t pos = 0; l->code == CLI_OK && dump_pair_next(record->pairs, record->len, &pos, &p);)
        put_pair(l, &p);
    settle(l);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The name that a table of the dump gets in the pool; NULL if it is not to be loaded. */
static const char *name_in_pool(const struct load_call *c, const char *name)
{
    for (unsigned i = 0; i < c->count; i++)
        if (strcmp(c->chosen[i].name, name) == 0)
            return c->chosen[i].as;
    return c->count == 0 ? name : NULL;
}

static int has_keys(struct loading *l, bool *any)
{
    static char buf[LOOK_BYTES];
    uint64_t cursor = 0;
    size_t len = 0;
    int rc = FAR_OK;
    do {
        rc = far_iterate(l->t.session, l->t.table, &cursor, FAR_KEYS_ONLY, buf, sizeof buf, &len);
    } while (rc == FAR_OK && len == 0 && cursor != 0);
    *any = rc == FAR_TOO_SMALL || len > 0;
    return rc == FAR_TOO_SMALL ? FAR_OK : rc;
}

static int create_table(struct loading *l, const char *name, const struct dump_table *dumped)
{
    const struct load_call *c = l->call;
    const char *index = c->target.index ? c->target.index : dumped->index;
    bool same = strcmp(index, dumped->index) == 0;
    struct far_table_options made = {.tuning = c->tuning ? c->tuning
                                               : same    ? dumped->tuning
                                                         : NULL};
    int rc = far_table_create(l->t.session, name, *index ? index : CLI_DEFAULT_INDEX, &made,
                              &l->t.table);
    return rc == FAR_OK ? CLI_OK : cli_failed(COMMAND, rc, "cannot create the table '%s'", name);
}

/* Opens a table, or creates it. One that others have filled is left alone without --merge. */
static int open_table(struct loading *l, const char *name, const struct dump_table *dumped)
{
    bool any = false;
    int rc = far_table_open(l->t.session, name, l->call->target.index, &l->t.table);
    if (rc == FAR_NO_TABLE)
        return create_table(l, name, dumped);
    if (rc == FAR_OK && !l->call->merge)
        rc = has_keys(l, &any);
    if (rc != FAR_OK)
        return cli_failed(COMMAND, rc, "cannot open the table '%s'", name);
    if (!any)
        return CLI_OK;
    fprintf(stderr,
            "farside " COMMAND ": the table '%s' has keys already: with --merge pairs are added, "
            "and with --table NAME=NEW they go into another table\n",
            name);
    return CLI_EXISTS;
}

/* Was the table begun by this load? A dump may have a table in several parts. */
static bool is_ours(struct loading *l, const char *name)
{
    for (unsigned i = 0; i < l->tables; i++) {
        if (strcmp(l->table[i].name, name) != 0)
            continue;
        struct loaded last = l->table[l->tables - 1];
        l->table[l->tables - 1] = l->table[i];
        l->table[i] = last;
        return true;
    }
    return false;
}

static int begin_table(struct loading *l, const struct dump_table *dumped)
{
    const char *name = name_in_pool(l->call, dumped->name);
    l->wanted = name != NULL;
    if (!name || l->call->check)
        return CLI_OK;
    if (is_ours(l, name)) {
        int rc = far_table_open(l->t.session, name, NULL, &l->t.table);
        return rc == FAR_OK ? CLI_OK : cli_failed(COMMAND, rc, "cannot open the table '%s'", name);
    }
    struct loaded *grown = realloc(l->table, (l->tables + 1) * sizeof *grown);
    if (!grown)
        return cli_no_memory(COMMAND);
    l->table = grown;
    int code = open_table(l, name, dumped);
    if (code != CLI_OK)
        return code;
    struct loaded *begun = &l->table[l->tables++];
    *begun = (struct loaded){.pairs = 0};
    snprintf(begun->name, sizeof begun->name, "%s", name);
    return CLI_OK;
}

/* ---- the dump -------------------------------------------------------------------------------- */

static void load_record(struct loading *l, const struct dump_record *record)
{
    l->next = record->number;
    if (record->kind == DUMP_TABLE)
        l->code = begin_table(l, record->table);
    else if (record->kind == DUMP_PAIRS && l->wanted && !l->call->check &&
             record->last >= l->call->from)
        put_pairs(l, record);
    if (l->code == CLI_OK)
        l->next = record->last + 1;
    progress_count(&l->progress, record->table->name, l->reader.totals.pairs, l->reader.offset);
}

static int load_records(struct loading *l)
{
    struct dump_record record = {.kind = DUMP_TABLE};
    while (l->code == CLI_OK && record.kind != DUMP_END && !cli_stopped()) {
        if (dump_read(&l->reader, &record)) {
            load_record(l, &record);
        } else if (!cli_stopped()) {
            progress_clear(&l->progress);
            fprintf(stderr, "farside " COMMAND ": %s: %s\n", l->call->name, l->reader.error);
            l->code = CLI_FAILED;
        }
    }
    progress_clear(&l->progress);
    return l->code == CLI_OK && record.kind != DUMP_END ? CLI_FAILED : l->code;
}

/* Every table that was chosen must be in the dump. */
static int check_chosen(struct loading *l, int code)
{
    for (unsigned i = 0; i < l->call->count && code == CLI_OK && !l->call->check; i++) {
        if (is_ours(l, l->call->chosen[i].as))
            continue;
        fprintf(stderr, "farside " COMMAND ": there is no table '%s' in the dump\n",
                l->call->chosen[i].name);
        code = CLI_MISSING;
    }
    return code;
}

/* What was loaded: the result of a load that is complete, or a part of the message of one that is
 * not. */
static void print_loaded(const struct loading *l, int code)
{
    FILE *out = code == CLI_OK || code == CLI_MISSING ? stdout : stderr;
    if (l->call->check) {
        if (code == CLI_OK)
            dump_print_totals(stdout, &l->reader.totals);
        return;
    }
    if (cli_interrupted())
        fputs("farside " COMMAND ": interrupted\n", stderr);
    for (unsigned i = 0; i < l->tables; i++) {
        fputs(out == stderr ? "loaded before: " : "", out);
        cli_print_escaped(out, l->table[i].name, strlen(l->table[i].name));
        fprintf(out, ": %" PRIu64 " pair%s\n", l->table[i].pairs, text_plural(l->table[i].pairs));
    }
    if (out == stderr && l->next > 0)
        fprintf(stderr, "With --from %" PRIu64 " a load goes on there.\n", l->next);
}

static int load(struct loading *l)
{
    int code = CLI_OK;
    progress_init(&l->progress);
    if (l->call->check)
        cli_stop_on_signals();
    else
        code = cli_open(COMMAND, &l->call->target, &l->t.pool, &l->t.session);
    if (code != CLI_OK)
        return code;
    cli_interrupt_io(true);
    code = check_chosen(l, load_records(l));
    print_loaded(l, code);
    cli_close_table(&l->t);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* The dump is opened first: a file that is none changes nothing. */
static int load_file(const struct load_call *c)
{
    struct loading *l = calloc(1, sizeof *l);
    if (!l)
        return cli_no_memory(COMMAND);
    FILE *file = cli_is_dash(c->name) ? stdin : fopen(c->name, "r");
    int code = CLI_FAILED;
    l->call = c;
    if (!file)
        fprintf(stderr, "farside " COMMAND ": cannot read '%s': %s\n", c->name, strerror(errno));
    else if (!dump_open(&l->reader, file))
        fprintf(stderr, "farside " COMMAND ": %s: %s\n", c->name, l->reader.error);
    else
        code = load(l);
    dump_reader_free(&l->reader);
    if (file && file != stdin)
        fclose(file);
    free(l->table);
    free(l);
    return code;
}

/* NAME or NAME=NEW */
static bool take_chosen(const char *command, const char *text, void *arg)
{
    struct load_call *c = arg;
    size_t len = strcspn(text, "=");
    if (c->count == CHOSEN_MAX) {
        cli_misused(command, "too many --table options: at most %u are allowed", CHOSEN_MAX);
        return false;
    }
    if (len == 0 || len > FAR_NAME_MAX || (text[len] == '=' && text[len + 1] == '\0')) {
        cli_misused(command, "invalid --table '%s': expected NAME or NAME=NEW", text);
        return false;
    }
    struct chosen *chosen = &c->chosen[c->count++];
    memcpy(chosen->name, text, len);
    chosen->as = text[len] == '=' ? text + len + 1 : text;
    return true;
}

int cmd_load(int argc, char **argv)
{
    struct load_call c = {.target = {.pool = ""}, .from = 0};
    const struct cli_option options[] = {
        CLI_POOL(&c.target.pool),
        {"table", "NAME[=NEW]", "only this table, as NEW; may be repeated (all tables)",
         .take = take_chosen, .arg = &c},
        {"merge", NULL, "also into tables that have keys; of a key in both, the dump's pair stays",
         .flag = &c.merge},
        {"index", "NAME", "the index of tables that are created (the dump's)",
         .text = &c.target.index},
        {"tuning", "TEXT",
         "parameters of tables that are created: name=number, joined by & (the dump's, if the "
         "index is)",
         .text = &c.tuning},
        {"from", "RECORD", "go on with an interrupted load at this record; implies --merge",
         .large = &c.from, .max = FROM_MAX},
        {"check", NULL, "only check the dump; needs no pool", .flag = &c.check},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND,
        .usage = "[OPTION...] FILE|-",
        .about = "Loads what 'farside dump' has written, from FILE or with - from the standard "
                 "input: records or JSON lines. Tables that do not exist are created with the "
                 "index and the tuning of the dump. Stops at the first record that is damaged.",
        .lists = cli_print_tuning,
        .options = options,
        .arg = "FILE",
        .args_max = 1,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    c.name = argv[optind];
    if (!c.check && c.target.pool[0] == '\0')
        return cli_no_pool(COMMAND);
    c.merge |= c.from > 0;
    return load_file(&c);
}
