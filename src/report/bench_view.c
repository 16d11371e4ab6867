#include "report/bench_view.h"

#include "report/html.h"
#include "report/part.h"

#include <math.h>

const char *view_style(const char *index, unsigned n)
{
    const char *style = html_index_style(index);
    return style ? style : html_other_style(n);
}

const struct runs_run *view_run(const struct bench_view *v, unsigned label, unsigned index)
{
    return runs_find(v->runs, label, v->runs->index[index], v->clients);
}

double view_cost(const struct runs_run *run, const char *op, const char *member)
{
    char path[LOOKUP_PATH_BYTES];
    snprintf(path, sizeof path, "per_op/%s/%s", op, member);
    return run ? lookup_number(run->json, path) : NAN;
}

bool view_has(const struct bench_view *v, unsigned label, const char *op, const char *member)
{
    for (unsigned i = 0; i < v->indexes; i++)
        if (view_cost(view_run(v, label, i), op, member) > 0)
            return true;
    return false;
}

double view_rate(const struct runs_run *run)
{
    return run ? lookup_number(run->json, "ops_per_s") : NAN;
}

void view_panels(const struct bench_view *v, view_draw *draw)
{
    part_panels(v->out);
    for (unsigned l = 0; l < v->runs->labels; l++) {
        const char *op[RUNS_OPS_MAX];
        unsigned count = runs_ops(v->runs, l, op);
        for (unsigned k = 0; k < count; k++)
            draw(v, l, op[k]);
    }
    part_panels_end(v->out);
}

void view_panel(const struct bench_view *v, unsigned label, const char *op)
{
    part_panel(v->out, v->runs->label[label].text, op);
}

/* A row: the operations of one kind of one run. */
static void put_op_row(const struct bench_view *v, const struct runs_run *run, const char *op,
                       unsigned count, const char *const *members)
{
    html_table_row(v->out);
    html_table_text(v->out, v->runs->label[run->label].text);
    html_table_text(v->out, op);
    html_table_text(v->out, html_index_title(run->index));
    for (unsigned m = 0; m < count; m++)
        html_table_number(v->out, v->runs->root, "%s/per_op/%s/%s", run->path, op, members[m]);
}

void view_table(const struct bench_view *v, const char *what, unsigned count,
                const char *const *heads, const char *const *members)
{
    html_table_begin(v->out, what, false);
    html_table_head(v->out, "workload");
    html_table_head(v->out, "operation");
    html_table_head(v->out, "index");
    for (unsigned m = 0; m < count; m++)
        html_table_head(v->out, heads[m]);
    for (unsigned l = 0; l < v->runs->labels; l++) {
        const char *op[RUNS_OPS_MAX];
        unsigned ops = runs_ops(v->runs, l, op);
        for (unsigned k = 0; k < ops; k++)
            for (unsigned i = 0; i < v->indexes; i++) {
                const struct runs_run *run = view_run(v, l, i);
                if (run && view_cost(run, op[k], "count") > 0)
                    put_op_row(v, run, op[k], count, members);
            }
    }
    html_table_end(v->out);
}
