/* farside pool members: who is a member of a pool, and who votes. */
#include "cli/cli.h"
#include "out/json.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define COMMAND "pool members"

struct request {
    const char *uri;
    uint64_t in, out; /* nodes; NONE: none */
    bool accept, json;
};
#define NONE UINT64_MAX

static const char *state_of(const struct far_member *m)
{
    if (m->status == FAR_OK)
        return "answers";
    return m->status == FAR_NODE_LOST && m->votes ? "has to be taken in again" : "does not answer";
}

static void print_text(const char *uri, const struct far_members *all,
                       const struct far_member *list)
{
    printf("pool '%s': %u node%s", uri, all->nodes, text_plural(all->nodes));
    if (all->voters > 0)
        printf(", %u voter%s, %u answer%s, %u needed; view %u\n", all->voters,
               text_plural(all->voters), all->answering, all->answering == 1 ? "s" : "",
               all->majority, all->view);
    else
        puts(", no voters");
    printf("  %-5s %-28s %-8s %-6s %s\n", "NODE", "ADDRESS", "ROLE", "VOTES", "STATE");
    for (unsigned i = 0; i < all->nodes; i++) {
        const struct far_member *m = &list[i];
        printf("  %-5u %-28s %-8s %-6s %s", m->node, m->address[0] ? m->address : "-",
               m->data ? "data" : "witness", m->votes ? "yes" : "no", state_of(m));
        printf(m->detail[0] ? ": %s\n" : "\n", m->detail);
    }
    if (all->answering < all->majority)
        puts("No majority of the voters answers: sessions cannot register, and members cannot "
             "change.");
}

static void print_json(const char *uri, const struct far_members *all,
                       const struct far_member *list)
{
    json_t *nodes = json_array();
    for (unsigned i = 0; i < all->nodes; i++) {
        const struct far_member *m = &list[i];
        json_array_append_new(nodes,
                              json_pack("{s:i, s:o, s:s, s:b, s:s, s:o}", "node", (int)m->node,
                                        "address", out_text(m->address), "role",
                                        m->data ? "data" : "witness", "votes", m->votes, "status",
                                        far_errname(m->status), "detail", out_text(m->detail)));
    }
    cli_json_print(json_pack("{s:s, s:o, s:i, s:i, s:i, s:i, s:i, s:o}", "farside", far_version(),
                             "uri", out_text(uri), "voters", (int)all->voters, "majority",
                             (int)all->majority, "answering", (int)all->answering, "view",
                             (int)all->view, "changes_left", (int)all->changes_left, "nodes",
                             nodes));
}

static int show(far_session *session, const struct request *r)
{
    struct far_member list[FAR_NODES_MAX];
    struct far_members all;
    int rc = far_pool_members(session, &all, list);
    if (rc != FAR_OK)
        return cli_failed(COMMAND, rc, "cannot read the members of the pool '%s'", r->uri);
    if (r->json)
        print_json(r->uri, &all, list);
    else
        print_text(r->uri, &all, list);
    return all.answering < all.majority ? CLI_FAILED : CLI_OK;
}

static int change(far_session *session, const struct request *r)
{
    bool in = r->in != NONE;
    unsigned node = (unsigned)(in ? r->in : r->out);
    int rc = far_pool_change_members(session, node, in);
    if (rc == FAR_EXISTS) {
        fprintf(stderr, "farside " COMMAND ": %s\n", far_error_detail());
        return CLI_OK;
    }
    return rc == FAR_OK
               ? CLI_OK
               : cli_failed(COMMAND, rc, in ? "cannot take in node %u" : "cannot put out node %u",
                            node);
}

static int run(const struct request *r)
{
    far_pool *pool = NULL;
    far_session *session = NULL;
    int rc = far_pool_open(r->uri, &pool);
    cli_stop_on_signals();
    if (rc == FAR_OK && r->accept) {
        rc = far_pool_accept_members(pool);
        if (rc != FAR_OK && rc != FAR_EXISTS) {
            far_pool_close(pool);
            return cli_failed(COMMAND, rc, "cannot accept the voters of the pool '%s'", r->uri);
        }
        rc = FAR_OK;
    }
    if (rc == FAR_OK)
        rc = far_session_open(pool, NULL, &session);
    int code = rc == FAR_OK ? CLI_OK : cli_failed(COMMAND, rc, "cannot open the pool '%s'", r->uri);
    if (code == CLI_OK && (r->in != NONE || r->out != NONE))
        code = change(session, r);
    if (code == CLI_OK)
        code = show(session, r);
    far_session_close(session);
    far_pool_close(pool);
    return code;
}

int cmd_pool_members(int argc, char **argv)
{
    struct request r = {.in = NONE, .out = NONE};
    const struct cli_option options[] = {
        CLI_POOL(&r.uri),
        {"in", "NODE", "let this node vote; also one that was killed and is back", .large = &r.in,
         .max = FAR_NODES_MAX - 1},
        {"out", "NODE", "let it vote no more", .large = &r.out, .max = FAR_NODES_MAX - 1},
        {"accept", NULL,
         "if no majority counts: let voters that answer count as they are; only while nobody else "
         "works with the pool",
         .flag = &r.accept},
        {"json", NULL, "print JSON", .flag = &r.json},
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND,
        .usage = "[[--pool] URI] [OPTION...]",
        .about = "Shows the nodes of a pool, which of them vote about who is a member, and which "
                 "answer. Voters are those of a pool that was made with voters=1, 3 or 5.",
        .notes = "The exit status is 0 if a majority of the voters answers, and 1 if not, or if a "
                 "change failed.",
        .options = options,
        .pool_arg = true,
    };
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (r.in != NONE && r.out != NONE)
        return cli_misused(COMMAND, "give --in or --out, one change at a time");
    return run(&r);
}
