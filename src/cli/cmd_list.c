/* farside list, keys, scan: print a whole table, or a range of its keys. They share most
 * options. */
#include "cli/cli.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUF_BYTES (1u << 20) /* at first; grows to the longest entry */
#define LIMIT_MAX 1000000000000ull

struct list_call {
    const char *command;
    struct cli_target target;
    bool hex, null, keys_only;
    uint64_t limit; /* UINT64_MAX: none */
    const char *from_text, *to_text, *prefix_text;
    unsigned char from[FAR_KEY_MAX], to[FAR_KEY_MAX], prefix[FAR_KEY_MAX];
    size_t prefix_len;
    struct far_range range; /* scan */
};

struct listing {
    const struct list_call *call;
    struct cli_table t;
    char *buf;
    size_t cap, len;
    uint64_t printed;
    uint64_t damaged; /* entries that were left out, at most */
};

/* What the commands differ in. */
struct list_command {
    const char *name, *about, *notes;
    bool values, scans;
};

#define ESCAPED                                                                                    \
    "What is not printable is escaped: \\\\, \\t, "                                                \
    "\\n, \\r, and \\xHH for any other byte."
#define WITH_VALUES "Each line has a key, a tab and the value. " ESCAPED

static const struct list_command list_command = {
    .name = "list",
    .about =
        "Prints all keys of a table with their values, in no particular order. A key that exists "
        "all the time is printed at least once; if the table grows meanwhile, perhaps twice.",
    .notes = WITH_VALUES,
    .values = true,
};
static const struct list_command keys_command = {
    .name = "keys",
    .about = "Prints all keys of a table, in no particular order. A key that exists all the time "
             "is printed at least once; if the table grows meanwhile, perhaps twice.",
    .notes = "Each line has a key. " ESCAPED,
};
static const struct list_command scan_command = {
    .name = "scan",
    .about = "Prints the keys of a range with their values, in ascending order of their bytes. The "
             "table's index must keep keys in order; 'farside list' works with any table.",
    .notes = WITH_VALUES,
    .values = true,
    .scans = true,
};

/* ---- reading the call ------------------------------------------------------------------------ */

/* The keys that begin with the prefix are a range: up to the prefix without its last bytes of 0xff,
 * and with the byte before them one higher. */
static void take_prefix_range(struct list_call *c)
{
    size_t len = c->prefix_len;
    while (len > 0 && c->prefix[len - 1] == 0xff)
        len--;
    c->range.from = c->prefix;
    c->range.from_len = c->prefix_len;
    if (len == 0) /* up to the table's last key */
        return;
    memcpy(c->to, c->prefix, len);
    c->to[len - 1]++;
    c->range.to = c->to;
    c->range.to_len = len;
}

static int take_keys(struct list_call *c)
{
    struct far_range *r = &c->range;
    int code = CLI_OK;
    if (c->hex && c->null)
        return cli_misused(c->command, "--hex and --null exclude each other");
    if (c->prefix_text && (c->from_text || c->to_text))
        return cli_misused(c->command, "--prefix excludes --from and --to");
    if (c->keys_only)
        r->flags = FAR_KEYS_ONLY;
    if (c->prefix_text)
        code = cli_take_key(c->command, c->prefix_text, c->hex, c->prefix, &c->prefix_len);
    if (code == CLI_OK && c->prefix_text)
        take_prefix_range(c);
    if (c->from_text) {
        code = cli_take_key(c->command, c->from_text, c->hex, c->from, &r->from_len);
        r->from = c->from;
    }
    if (code == CLI_OK && c->to_text) {
        code = cli_take_key(c->command, c->to_text, c->hex, c->to, &r->to_len);
        r->to = c->to;
    }
    return code;
}

static bool read_call(struct list_call *c, const struct list_command *command, int argc,
                      char **argv, int *code)
{
    *c = (struct list_call){.command = command->name,
                            .target = {.table = CLI_DEFAULT_TABLE},
                            .keys_only = !command->values,
                            .limit = UINT64_MAX};
    const struct cli_option options[] = {
        CLI_POOL(&c->target.pool),
        CLI_TABLE(&c->target.table),
        CLI_INDEX(&c->target.index),
        {"prefix", "KEY", "only keys that begin with these bytes", .text = &c->prefix_text},
        {"limit", "N", "print at most N keys", .large = &c->limit, .min = 1, .max = LIMIT_MAX},
        {"hex", NULL, "bytes are in hexadecimal, two digits for each", .flag = &c->hex},
        {.name = "null",
         .letter = '0',
         .help = "print bytes unchanged, each key and value with a NUL behind it",
         .flag = &c->null},
        {command->values ? "keys-only" : NULL, NULL, "print no values", .flag = &c->keys_only},
        {command->scans ? "from" : NULL, "KEY",
         "the first key, which need not exist (the table's first)", .text = &c->from_text},
        {"to", "KEY", "stop before this key (after the table's last)", .text = &c->to_text},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {.command = command->name,
                                      .usage = "[OPTION...]",
                                      .about = command->about,
                                      .notes = command->notes,
                                      .options = options};
    if (!cli_read(&syntax, argc, argv, code))
        return false;
    *code = take_keys(c);
    return *code == CLI_OK;
}

/* ---- printing -------------------------------------------------------------------------------- */

static void print_bytes(const struct list_call *c, const void *bytes, size_t len)
{
    if (c->null)
        fwrite(bytes, 1, len, stdout);
    else if (c->hex)
        for (size_t i = 0; i < len; i++)
            printf("%02x", ((const unsigned char *)bytes)[i]);
    else
        cli_print_escaped(stdout, bytes, len);
}

/* Is there more to print, and does anyone want it? */
static bool goes_on(const struct listing *l)
{
    return l->printed < l->call->limit && !cli_stopped() && cli_output_good();
}

/* Prints the entries in the buffer. A scan goes on after the last of them. */
static void print_entries(struct listing *l, struct far_range *rest)
{
    const struct list_call *c = l->call;
    struct far_entry e;
    for (size_t pos = 0; goes_on(l) && far_entry_next(l->buf, l->len, &pos, &e);) {
        if (e.key_len < c->prefix_len || memcmp(e.key, c->prefix, c->prefix_len) != 0)
            continue;
        l->printed++;
        print_bytes(c, e.key, e.key_len);
        if (!c->keys_only) {
            fputc(c->null ? '\0' : '\t', stdout);
            print_bytes(c, e.value, e.value_len);
        }
        fputc(c->null ? '\0' : '\n', stdout);
        rest->from = e.key;
        rest->from_len = e.key_len;
        rest->flags |= FAR_AFTER;
    }
}

/* Makes room for an entry that did not fit. Everything in the buffer has been printed, but a scan
 * still needs the last key, after which it continues. */
static bool grow(struct listing *l, size_t cap)
{
    char *bigger = realloc(l->buf, cap);
    if (!bigger)
        return false;
    l->buf = bigger;
    l->cap = cap;
    return true;
}

/* Fills the buffer, and counts the entries that are left out. */
static int read_entries(struct listing *l, struct far_op *op, bool *more)
{
    struct far_result result;
    op->buf = l->buf;
    op->cap = l->cap;
    int rc = far_execute(l->t.session, op, &result);
    l->len = result.len;
    l->damaged += result.damaged;
    if (rc != FAR_OK && rc != FAR_PARTIAL)
        return rc;
    op->cursor = result.cursor;
    *more = result.more;
    return FAR_OK;
}

static int print_all(struct listing *l)
{
    struct far_range none = {.from = NULL};
    unsigned flags = l->call->keys_only ? FAR_KEYS_ONLY : 0;
    struct far_op op = {.kind = FAR_OP_ITERATE, .table = l->t.table, .flags = flags};
    bool more = true;
    while (more && goes_on(l)) {
        int rc = read_entries(l, &op, &more);
        if (rc == FAR_TOO_SMALL && grow(l, l->len))
            continue;
        if (rc == FAR_TOO_SMALL)
            return cli_no_memory(l->call->command);
        if (rc != FAR_OK)
            return cli_failed(l->call->command, rc, "cannot list the table '%s'",
                              l->call->target.table);
        print_entries(l, &none);
        more = op.cursor != 0;
    }
    return CLI_OK;
}

static int print_range(struct listing *l)
{
    struct far_range rest = l->call->range;
    bool more = true;
    while (more && goes_on(l)) {
        uint64_t left = l->call->limit - l->printed;
        bool goes_on_after = rest.flags & FAR_AFTER; /* a key in the buffer, which may move */
        size_t from = goes_on_after ? (size_t)((const char *)rest.from - l->buf) : 0;
        rest.limit = left < UINT32_MAX ? (unsigned)left : 0;
        struct far_op op = {.kind = FAR_OP_SCAN,
                            .table = l->t.table,
                            .key = rest.from,
                            .key_len = rest.from_len,
                            .to = rest.to,
                            .to_len = rest.to_len,
                            .limit = rest.limit,
                            .flags = rest.flags};
        int rc = read_entries(l, &op, &more);
        if (rc == FAR_TOO_SMALL && grow(l, l->len)) {
            rest.from = goes_on_after ? l->buf + from : rest.from;
            continue;
        }
        if (rc == FAR_TOO_SMALL)
            return cli_no_memory(l->call->command);
        if (rc != FAR_OK)
            return cli_failed(l->call->command, rc, "cannot scan the table '%s'",
                              l->call->target.table);
        print_entries(l, &rest);
    }
    return CLI_OK;
}

static int print_table(const struct list_call *c, int (*print)(struct listing *l))
{
    struct listing l = {.call = c, .cap = BUF_BYTES};
    int code = cli_open_table(c->command, &c->target, &l.t);
    if (code != CLI_OK)
        return code;
    cli_interrupt_io(true);
    l.buf = malloc(l.cap);
    code = l.buf ? print(&l) : cli_no_memory(c->command);
    if (code == CLI_OK && l.damaged > 0)
        code = cli_partial(c->command, c->target.table, l.damaged);
    if (cli_interrupted())
        fprintf(stderr, "farside %s: interrupted after %" PRIu64 " keys\n", c->command, l.printed);
    free(l.buf);
    cli_close_table(&l.t);
    return code;
}

int cmd_list(int argc, char **argv)
{
    struct list_call c;
    int code = CLI_OK;
    return read_call(&c, &list_command, argc, argv, &code) ? print_table(&c, print_all) : code;
}

int cmd_keys(int argc, char **argv)
{
    struct list_call c;
    int code = CLI_OK;
    return read_call(&c, &keys_command, argc, argv, &code) ? print_table(&c, print_all) : code;
}

int cmd_scan(int argc, char **argv)
{
    struct list_call c;
    int code = CLI_OK;
    return read_call(&c, &scan_command, argc, argv, &code) ? print_table(&c, print_range) : code;
}
