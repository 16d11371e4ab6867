#include "cli/dump_write.h"
#include "cli/dump_json.h"

#include <unistd.h>

/* Records are long, and need no buffer. If a signal ends the wait for a pipe, this ends, too. */
static bool put(FILE *file, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fileno(file), (const char *)bytes + done, len - done);
        if (n < 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

bool dump_begin(struct dump_writer *w, FILE *file, bool json)
{
    *w = (struct dump_writer){.file = file, .json = json, .sum = dump_first_sum()};
    return json ? dump_json_begin(file) : put(file, DUMP_MAGIC, DUMP_MAGIC_BYTES);
}

static bool write_record(struct dump_writer *w, enum dump_kind kind, unsigned count,
                         const void *payload, size_t len)
{
    struct dump_head head = {.kind = kind,
                             .count = count,
                             .number = w->number++,
                             .len = (uint32_t)len,
                             .payload = dump_payload_sum(payload, len)};
    head.head_sum = dump_head_sum(&head, w->sum);
    w->sum = head.head_sum;
    return put(w->file, &head, sizeof head) && put(w->file, payload, len);
}

static bool flush_block(struct dump_writer *w)
{
    if (w->block.count == 0)
        return true;
    bool good = write_record(w, DUMP_PAIRS, w->block.count, w->block.bytes, w->block.len);
    dump_block_clear(&w->block);
    return good;
}

bool dump_add_table(struct dump_writer *w, const struct dump_table *t)
{
    unsigned char payload[sizeof(struct dump_table_head) + sizeof *t];
    struct dump_table_head head = {.name_len = (uint8_t)strlen(t->name),
                                   .index_len = (uint8_t)strlen(t->index),
                                   .tuning_len = (uint16_t)strlen(t->tuning)};
    unsigned char *name = payload + sizeof head, *index = name + head.name_len;
    unsigned char *tuning = index + head.index_len;
    w->totals.tables++;
    if (w->json)
        return dump_json_table(w->file, t);
    memcpy(payload, &head, sizeof head);
    memcpy(name, t->name, head.name_len);
    memcpy(index, t->index, head.index_len);
    memcpy(tuning, t->tuning, head.tuning_len);
    return flush_block(w) &&
           write_record(w, DUMP_TABLE, 0, payload, (size_t)(tuning + head.tuning_len - payload));
}

bool dump_add_pair(struct dump_writer *w, const struct dump_pair *p)
{
    w->totals.pairs++;
    w->totals.bytes += p->key_len + p->value_len;
    if (w->json)
        return dump_json_pair(w->file, p);
    return dump_block_add(&w->block, p) && (w->block.len < DUMP_BLOCK_BYTES || flush_block(w));
}

bool dump_finish(struct dump_writer *w)
{
    bool good = w->json
                    ? dump_json_end(w->file, &w->totals)
                    : flush_block(w) && write_record(w, DUMP_END, 0, &w->totals, sizeof w->totals);
    return good && fflush(w->file) == 0;
}

void dump_writer_free(struct dump_writer *w)
{
    dump_block_free(&w->block);
}
