#include "index/index.h"
#include "index/chime/chime.h"
#include "index/race/race.h"
#include "index/rcuckoo/rcuckoo.h"
#include "index/sephash/sephash.h"
#include "index/shard/shard.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct index_ops *const indexes[] = {&race_index, &shard_index, &sephash_index,
                                                  &rcuckoo_index, &chime_index};

/* Those that are being built: found by their name, and not listed. NULL ends them. */
static const struct index_ops *const unfinished[] = {NULL};

const struct index_ops *index_at(unsigned i)
{
    return i < sizeof indexes / sizeof *indexes ? indexes[i] : NULL;
}

static const struct index_ops *unlisted;

void index_add_unlisted(const struct index_ops *ops)
{
    unlisted = ops;
}

const struct index_ops *index_find(const char *name)
{
    const struct index_ops *ops = NULL;
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++)
        if (strcmp(ops->name, name) == 0)
            break;
    for (unsigned i = 0; !ops && unfinished[i]; i++)
        if (strcmp(unfinished[i]->name, name) == 0)
            ops = unfinished[i];
    if (!ops && unlisted && strcmp(unlisted->name, name) == 0)
        ops = unlisted;
    ASSERT(!ops || ops->ordered == (ops->scan != NULL));
    return ops;
}

const char *index_ordered_names(char names[INDEX_NAMES_BYTES])
{
    const struct index_ops *ops = NULL;
    size_t used = 0;
    for (unsigned i = 0; (ops = index_at(i)) != NULL && used < INDEX_NAMES_BYTES; i++)
        if (ops->ordered)
            used += (size_t)snprintf(names + used, INDEX_NAMES_BYTES - used, "%s%s",
                                     used ? ", " : "", ops->name);
    return used ? names : "none";
}

int index_key_compare(struct slice a, struct slice b)
{
    size_t least = a.len < b.len ? a.len : b.len;
    int order = least > 0 ? memcmp(a.data, b.data, least) : 0;
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

enum scan_place index_scan_place(const struct scan_range *range, struct slice key)
{
    if (index_key_compare(key, range->from) < (range->after ? 1 : 0))
        return SCAN_BELOW;
    return range->to.data && index_key_compare(key, range->to) >= 0 ? SCAN_ABOVE : SCAN_WITHIN;
}

/* An entry: both lengths, the key, the value, up to a multiple of eight bytes. */
struct entry_head {
    uint32_t key_len, value_len;
};
#define ENTRY_KEY_ONLY (1u << 31) /* in key_len: the value is not there */

static size_t entry_bytes(size_t key_len, size_t stored)
{
    return (sizeof(struct entry_head) + key_len + stored + 7) & ~(size_t)7;
}

bool index_entries_add(struct entries_out *out, struct slice key, struct slice value)
{
    ASSERT(out->len <= out->cap);
    struct entry_head head = {(uint32_t)key.len | (out->keys_only ? ENTRY_KEY_ONLY : 0),
                              (uint32_t)value.len};
    char *to = (char *)out->buf + out->len;

    out->needed = entry_bytes(key.len, out->keys_only ? 0 : value.len);
    if (out->needed > out->cap - out->len)
        return false;
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, key.data, key.len);
    if (!out->keys_only && value.len > 0)
        memcpy(to + sizeof head + key.len, value.data, value.len);
    out->len += out->needed;
    out->count++;
    return true;
}

bool far_entry_next(const void *buf, size_t len, size_t *pos, struct far_entry *entry)
{
    struct entry_head head;
    if (!buf || !pos || !entry || *pos > len || len - *pos < sizeof head)
        return false;
    const char *at = (const char *)buf + *pos;
    memcpy(&head, at, sizeof head);
    bool key_only = head.key_len & ENTRY_KEY_ONLY;
    size_t key_len = head.key_len & ~ENTRY_KEY_ONLY, stored = key_only ? 0 : head.value_len;
    if (entry_bytes(key_len, stored) > len - *pos)
        return false;
    entry->key = at + sizeof head;
    entry->key_len = key_len;
    entry->value = key_only ? NULL : at + sizeof head + key_len;
    entry->value_len = head.value_len;
    *pos += entry_bytes(key_len, stored);
    return true;
}

int index_value_damaged(const struct index_view *view, size_t len)
{
    return err_fail(FAR_CORRUPT, "a value of table '%s' is said to have %zu bytes",
                    view->table->desc.name, len);
}

int index_inline_value(const struct index_view *view, const void *at, size_t room, size_t len,
                       struct slice *value)
{
    if (len > room)
        return err_fail(FAR_CORRUPT,
                        "a value of table '%s' is said to have %zu bytes, in a place of %zu",
                        view->table->desc.name, len, room);
    *value = (struct slice){at, len};
    return FAR_OK;
}

int index_decide(const struct index_view *view, struct change *change, struct slice old,
                 enum change_action *action)
{
    ASSERT(change->decide);
    int rc = index_judge_value(view, old);
    if (rc != FAR_OK)
        return rc;
    *action = change->decide(change, old);
    ASSERT(*action != CHANGE_ASK);
    return FAR_OK;
}

int index_add_entry(const struct index_view *view, struct entries_out *out, struct slice key,
                    struct slice value, bool *full)
{
    int rc = index_judge_value(view, value);
    if (rc != FAR_OK)
        return rc;
    if (key.len == 0 || key.len > index_key_max(view->table->ops))
        return err_fail(FAR_CORRUPT, "a key of table '%s' is said to have %zu bytes",
                        view->table->desc.name, key.len);
    *full = !index_entries_add(out, key, value);
    return FAR_OK;
}

const char *far_index_name(unsigned i)
{
    const struct index_ops *ops = index_at(i);
    return ops ? ops->name : NULL;
}

static void say(struct index_report *report, const char *format, va_list args)
{
    char text[256];
    vsnprintf(text, sizeof text, format, args);
    if (report->line)
        report->line(report->arg, text);
}

void index_violation(struct index_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report->violations++;
    say(report, format, args);
    va_end(args);
}

void index_stranded(struct index_report *report, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report->stranded++;
    say(report, format, args);
    va_end(args);
}

void index_repaired(struct index_report *report, unsigned *count, const char *how)
{
    ASSERT(*count > 0);
    (*count)--;
    report->repaired++;
    if (report->line)
        report->line(report->arg, how);
}

void index_salvaged(struct index_report *report, unsigned salvaged, unsigned lost)
{
    char how[96];
    snprintf(how, sizeof how, "  repaired: %u entr%s salvaged, %u lost", salvaged,
             salvaged == 1 ? "y" : "ies", lost);
    report->salvaged += salvaged;
    report->lost += lost;
    index_repaired(report, &report->violations, how);
}

int index_read_root(struct op *op, gaddr at, void *root, uint32_t bytes)
{
    ASSERT(op->batch.count == 0);
    void *image = op_buffer(op, BUF_BULK, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    batch_read(&op->batch, at, 0, image, bytes);
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        memcpy(root, image, bytes);
    return rc;
}

int index_write_root(struct op *op, gaddr at, const void *root, uint32_t bytes)
{
    ASSERT(op->batch.count == 0);
    void *image = op_buffer(op, BUF_BULK, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    memcpy(image, root, bytes);
    batch_write(&op->batch, MARK_EARLY, at, 0, image, bytes);
    return batch_flush(&op->batch);
}

int index_attach(struct op *op, const struct index_table *table, struct index_view **out)
{
    ASSERT(table->ops->view_bytes >= sizeof(struct index_view));
    struct index_view *view = calloc(1, table->ops->view_bytes);
    if (!view)
        return err_fail(FAR_NO_MEMORY, "no memory for a view");
    view->table = table;
    catalog_cached(table->pool, &table->desc, &view->cached);
    int rc = INDEX_CALL(table->ops, attach, op, view);
    if (rc == FAR_OK)
        *out = view;
    else
        index_detach(view);
    return rc;
}

void index_detach(struct index_view *view)
{
    view->table->ops->detach(view);
    free(view);
}

void index_grew(struct index_view *view, gaddr from, const gaddr *to, unsigned count, double load)
{
    ASSERT(count > 0 && load >= 0);
    const struct growth_watch *watch = view->table->pool->knobs.growth_watch;
    view->grown++;
    view->load_sum += load;
    if (load > view->load_max)
        view->load_max = load;
    if (watch)
        watch->grew(watch, from, to, count);
}

void index_lags(const struct index_view *view, unsigned versions, bool pending)
{
    const struct growth_watch *watch = view->table->pool->knobs.growth_watch;
    if (watch)
        watch->lags(watch, versions, pending);
}

int index_damaged(const struct index_table *table, const char *what)
{
    return err_fail(FAR_CORRUPT, "%s of table '%s' is damaged", what, table->desc.name);
}

int index_held(struct op *op, int rc)
{
    return rc == FAR_OK && client_lapsed(op->client)
               ? err_fail(FAR_FENCED, "the lease has lapsed while a table was discarded")
               : rc;
}

void index_confirm(struct op *op, const struct index_view *view)
{
    catalog_confirm(op, &view->table->desc);
}

int index_confirmed(struct op *op, const struct index_view *view, uint64_t *version)
{
    return catalog_confirmed(op, &view->table->desc, view->table->dropped_too, version);
}

int index_read_confirmed(struct op *op, const struct index_view *view, void *root, uint32_t bytes,
                         uint64_t *version)
{
    ASSERT(op->batch.count == 0);
    void *image = op_buffer(op, BUF_BULK, bytes);
    if (!image)
        return FAR_NO_MEMORY;
    index_confirm(op, view);
    batch_read(&op->batch, view->table->desc.root, 0, image, bytes);
    batch_may_be_freed(&op->batch); /* it may have been dropped */
    int rc = batch_flush(&op->batch);
    if (rc == FAR_OK)
        rc = index_confirmed(op, view, version);
    if (rc == FAR_OK)
        memcpy(root, image, bytes);
    return rc == FAR_BOUNDS ? err_fail(FAR_CORRUPT, "the table's root is outside the pool") : rc;
}

void index_rest(struct op *op)
{
    ASSERT(op->batch.count == 0);
    op_end(op);
}

int index_resume(struct op *op, struct index_view *view)
{
    ASSERT(op->batch.count == 0);
    int rc = op_begin(op, &view->cached);
    return rc == FAR_OK && view->cached.stale ? INDEX_CALL(view->table->ops, refresh, op, view)
                                              : rc;
}

void index_intend(struct op *op, const struct index_view *view, struct journal *journal,
                  uint32_t what, const void *data, size_t len)
{
    const struct table_desc *desc = &view->table->desc;
    struct journal_subject subject = {.place = desc->id, .tag = desc->serial, .what = what};
    journal_intend(op, journal, &subject, data, len);
}
