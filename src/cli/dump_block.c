#include "cli/dump_block.h"

#include <inttypes.h>
#include <stdlib.h>

bool dump_block_reserve(struct dump_block *b, size_t cap)
{
    if (cap <= b->cap)
        return true;
    if (cap < 2 * b->cap)
        cap = 2 * b->cap;
    unsigned char *grown = realloc(b->bytes, cap);
    if (!grown)
        return false;
    b->bytes = grown;
    b->cap = cap;
    return true;
}

static void append(struct dump_block *b, const void *bytes, size_t len)
{
    if (len > 0)
        memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
}

bool dump_block_add(struct dump_block *b, const struct dump_pair *p)
{
    struct dump_pair_head head = {.key_len = (uint16_t)p->key_len,
                                  .value_len = (uint32_t)p->value_len};
    if (!dump_block_reserve(b, b->len + sizeof head + p->key_len + p->value_len))
        return false;
    append(b, &head, sizeof head);
    append(b, p->key, p->key_len);
    append(b, p->value, p->value_len);
    b->count++;
    return true;
}

void dump_block_clear(struct dump_block *b)
{
    b->len = 0;
    b->count = 0;
}

void dump_block_free(struct dump_block *b)
{
    free(b->bytes);
    *b = (struct dump_block){.bytes = NULL};
}

void dump_print_totals(FILE *out, const struct dump_totals *t)
{
    fprintf(out, "%" PRIu64 " table%s, %" PRIu64 " pair%s, %" PRIu64 " byte%s in keys and values\n",
            t->tables, t->tables == 1 ? "" : "s", t->pairs, t->pairs == 1 ? "" : "s", t->bytes,
            t->bytes == 1 ? "" : "s");
}

bool dump_pair_next(const unsigned char *bytes, size_t len, size_t *pos, struct dump_pair *pair)
{
    struct dump_pair_head head;
    if (len - *pos < sizeof head)
        return false;
    memcpy(&head, bytes + *pos, sizeof head);
    if (head.key_len == 0 || head.key_len > FAR_KEY_MAX || head.zero != 0 ||
        head.value_len > FAR_VALUE_MAX ||
        len - *pos - sizeof head < (size_t)head.key_len + head.value_len)
        return false;
    const unsigned char *key = bytes + *pos + sizeof head;
    *pair = (struct dump_pair){.key = key,
                               .key_len = head.key_len,
                               .value = key + head.key_len,
                               .value_len = head.value_len};
    *pos += sizeof head + head.key_len + head.value_len;
    return true;
}
