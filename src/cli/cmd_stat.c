/* farside stat: shows what a pool and its tables hold. */
#include "cli/cli.h"
#include "cli/tables.h"
#include "out/json.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* ---- collecting ------------------------------------------------------------------------------ */

/* Of a pool with nodes that are away it is not known how the memory is used. */
static json_t *json_of_pool(const char *uri, const struct far_pool_info *p,
                            const struct far_pool_usage *u, const struct far_members *m)
{
    bool whole = p->nodes_away == 0, votes = m->voters > 0;
    return OUT_OBJECT({"uri", out_text(uri)}, {"nodes", out_count(p->nodes)},
                      {whole ? NULL : "nodes_away", out_count(p->nodes_away)},
                      {"layout_version", out_count(p->layout_version)},
                      {"clients", out_count(p->clients)},
                      {"clients_max", out_count(p->clients_max)}, {"tables", out_count(p->tables)},
                      {votes ? "voters" : NULL, out_count(m->voters)},
                      {votes ? "voters_answering" : NULL, out_count(m->answering)},
                      {votes ? "view" : NULL, out_count(m->view)},
                      {whole ? "bytes_total" : NULL, out_count(u->total)},
                      {whole ? "bytes_metadata" : NULL, out_count(u->metadata)},
                      {whole ? "bytes_live" : NULL, out_count(u->live)},
                      {whole ? "bytes_retired" : NULL, out_count(u->retired)},
                      {whole ? "bytes_free" : NULL, out_count(u->free)},
                      {whole ? "bytes_unknown" : NULL, out_count(u->unknown)},
                      {whole ? "bytes_allocated" : NULL, out_count(p->bytes_allocated)});
}

static json_t *json_of_table(far_table *table, const struct far_table_info *t)
{
    json_t *all = cli_json_table(far_table_name(table));
    json_t *rest = OUT_OBJECT(
        {"index", out_text(far_table_index(table))}, {"tuning", out_text(t->tuning)},
        {"keys", out_count(t->keys)}, {"slots", out_count(t->slots)},
        {"load_factor", json_real(t->load_factor)}, {"index_bytes", out_count(t->index_bytes)},
        {"block_bytes", out_count(t->block_bytes)},
        {t->damaged != 0 ? "damaged" : NULL, out_count(t->damaged)});
    for (unsigned i = 0; i < FAR_TABLE_FIGURES_MAX && t->figure[i].name; i++)
        json_object_set_new(rest, t->figure[i].name, out_count(t->figure[i].value));
    json_object_update(all, rest);
    json_decref(rest);
    return all;
}

static json_t *json_of_node(const struct far_node_info *n)
{
    json_t *node = json_pack("{s:o}", "address", out_text(n->address));
#define COUNT(name) json_object_set_new(node, #name, json_integer((json_int_t)n->name))
    COUNT(bytes), COUNT(uptime_ms), COUNT(clients), COUNT(connects), COUNT(refused);
    COUNT(batches), COUNT(requests), COUNT(verbs), COUNT(bytes_read), COUNT(bytes_written);
    COUNT(rejected), COUNT(fences), COUNT(fenced), COUNT(old_views);
#undef COUNT
    return node;
}

/* ---- showing --------------------------------------------------------------------------------- */

static void print_bytes(const char *what, uint64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double scaled = (double)bytes;
    unsigned unit = 0;
    while (scaled >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        scaled /= 1024;
        unit++;
    }
    printf("  %-12s %15" PRIu64 " bytes", what, bytes);
    if (unit > 0)
        printf("  (%.1f %s)", scaled, units[unit]);
    printf("\n");
}

static void print_pool(const char *uri, const struct far_pool_info *p,
                       const struct far_pool_usage *u, const struct far_members *m)
{
    printf("pool '%s': %u node%s, layout version %u\n", uri, p->nodes, text_plural(p->nodes),
           p->layout_version);
    if (p->nodes_away == 0) {
        print_bytes("memory", u->total);
        print_bytes("metadata", u->metadata);
        print_bytes("live", u->live);
        print_bytes("retired", u->retired);
        print_bytes("free", u->free);
        print_bytes("unknown", u->unknown);
        print_bytes("allocated", p->bytes_allocated);
    } else {
        printf("  %-12s %15d of %u: it is not known how the memory is used\n", "nodes away",
               __builtin_popcountll(p->nodes_away), p->nodes);
    }
    printf("  %-12s %15u of %u\n", "clients", p->clients, p->clients_max);
    printf("  %-12s %15u\n", "tables", p->tables);
    if (m->voters > 0)
        printf("  %-12s %15u  (%u answer, %u needed; view %u)\n", "voters", m->voters, m->answering,
               m->majority, m->view);
}

static void print_table(far_table *table, const struct far_table_info *t)
{
    printf("\ntable %s: index %s\n", far_table_name(table), far_table_index(table));
    printf("  %-12s %15s\n", "tuning", t->tuning);
    printf("  %-12s %15" PRIu64 "\n", "keys", t->keys);
    printf("  %-12s %15" PRIu64 "  (load factor %.3f)\n", "slots", t->slots, t->load_factor);
    if (t->damaged > 0)
        printf("  %-12s %15" PRIu64 "  (slots; try 'farside pool check --repair')\n", "damaged",
               t->damaged);
    print_bytes("index", t->index_bytes);
    print_bytes("blocks", t->block_bytes);
    for (unsigned i = 0; i < FAR_TABLE_FIGURES_MAX && t->figure[i].name; i++)
        printf("  %-19s %8" PRIu64 "\n", t->figure[i].name, t->figure[i].value);
}

static void print_node(const struct far_node_info *n)
{
    printf("\nnode %s: up for %" PRIu64 ".%03" PRIu64 " s\n", n->address, n->uptime_ms / 1000,
           n->uptime_ms % 1000);
    print_bytes("memory", n->bytes);
    printf("  %-12s %15" PRIu64 "  (%" PRIu64 " so far, %" PRIu64 " refused)\n", "connections",
           n->clients, n->connects, n->refused);
    printf("  %-12s %15" PRIu64 "  (%" PRIu64 " requests, %" PRIu64 " verbs)\n", "batches",
           n->batches, n->requests, n->verbs);
    print_bytes("read", n->bytes_read);
    print_bytes("written", n->bytes_written);
    printf("  %-12s %15" PRIu64 "\n", "rejected", n->rejected);
    printf("  %-12s %15" PRIu64 "  (%" PRIu64 " of their batches dropped)\n", "fenced", n->fences,
           n->fenced);
    printf("  %-12s %15" PRIu64 "  (batches dropped)\n", "old views", n->old_views);
}

/* ---- the command ----------------------------------------------------------------------------- */

static int stat_table(far_session *session, const char *name, json_t *tables)
{
    far_table *table = NULL;
    struct far_table_info info;
    int rc = far_table_open(session, name, NULL, &table);
    if (rc == FAR_OK)
        rc = far_table_info(session, table, &info);
    if (rc != FAR_OK)
        return cli_failed("stat", rc, "cannot read the table '%s'", name);
    if (tables)
        json_array_append_new(tables, json_of_table(table, &info));
    else
        print_table(table, &info);
    return CLI_OK;
}

/* Shows the memory nodes, if the fabric has any with counters. */
static int stat_nodes(far_session *session, unsigned count, json_t *nodes)
{
    int code = CLI_OK;
    for (unsigned i = 0; i < count; i++) {
        struct far_node_info info;
        int rc = far_node_info(session, i, &info);
        if (rc == FAR_UNSUPPORTED)
            return CLI_OK;
        if (rc != FAR_OK) {
            code = cli_failed("stat", rc, "cannot get the counters of node %u", i);
            continue;
        }
        if (nodes)
            json_array_append_new(nodes, json_of_node(&info));
        else
            print_node(&info);
    }
    return code;
}

/* Shows all tables, or the one of the target. */
static int stat_tables(const struct cli_target *target, far_session *session,
                       const struct table_list *list, json_t *tables)
{
    int code = CLI_OK;
    for (unsigned i = 0; i < list->count; i++) {
        const char *name = list->item[i].name;
        if (target->table && strcmp(target->table, name) != 0)
            continue;
        int shown = stat_table(session, name, tables);
        if (code == CLI_OK)
            code = shown;
    }
    return code;
}

static int stat_pool(const struct cli_target *target, far_session *session, bool json)
{
    struct far_pool_info info;
    struct far_pool_usage used = {0};
    struct far_members members;
    struct table_list list = {.count = 0};
    int rc = far_pool_info(session, &info);
    if (rc == FAR_OK)
        rc = far_pool_members(session, &members, NULL);
    if (rc == FAR_OK && info.nodes_away == 0)
        rc = far_pool_usage(session, &used);
    if (rc == FAR_OK)
        rc = table_list_read(session, &list);
    if (rc == FAR_OK && target->table && !table_list_find(&list, target->table))
        rc = FAR_NO_TABLE;
    if (rc != FAR_OK) {
        table_list_free(&list);
        return cli_failed("stat", rc, "cannot read the %s '%s'", target->table ? "table" : "pool",
                          target->table ? target->table : target->pool);
    }

    json_t *tables = json ? json_array() : NULL, *nodes = json ? json_array() : NULL;
    if (!json)
        print_pool(target->pool, &info, &used, &members);
    int code = target->table ? CLI_OK : stat_nodes(session, members.nodes, nodes);
    int shown = stat_tables(target, session, &list, tables);
    if (json) {
        json_t *all = json_pack("{s:s, s:o, s:o, s:o}", "farside", far_version(), "pool",
                                json_of_pool(target->pool, &info, &used, &members), "memory_nodes",
                                nodes, "tables", tables);
        cli_json_print(all);
    }
    table_list_free(&list);
    return code == CLI_OK ? shown : code;
}

int cmd_stat(int argc, char **argv)
{
    struct cli_target target = {.pool = NULL};
    bool json = false;
    const struct cli_option options[] = {
        CLI_POOL(&target.pool),
        {"table", "NAME", "show only this table", .text = &target.table},
        {"json", NULL, "print JSON", .flag = &json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = "stat",
        .usage = "[[--pool] URI] [OPTION...]",
        .about = "Shows how the memory of a pool is used, and what its tables hold. Reads every "
                 "table from end to end.",
        .options = options,
        .pool_arg = true,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    struct cli_table t = {.pool = NULL};
    code = cli_open("stat", &target, &t.pool, &t.session);
    if (code != CLI_OK)
        return code;
    cli_interrupt_io(true);
    code = stat_pool(&target, t.session, json);
    cli_close_table(&t);
    return code;
}
