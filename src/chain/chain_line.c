/* A client's lines: which of them are in use, and their images. */
#include "chain/chain_internal.h"

static unsigned entries_of(const struct chain_call *call, unsigned line)
{
    unsigned entries = 0;
    for (unsigned i = 0; i < call->count; i++)
        entries += call->v[i].line == line;
    return entries;
}

/* The lowest free line of the node with room for so many entries; CHAIN_LINES: there is none. */
static unsigned free_line(const struct chain_ep *e, unsigned node, unsigned entries)
{
    unsigned first = entries > CHAIN_SHORT_ENTRIES ? CHAIN_SHORTS : 0;
    uint32_t free = ~e->used[node] >> first << first;
    ASSERT(entries <= CHAIN_LONG_ENTRIES);
    return free ? (unsigned)__builtin_ctz(free) : CHAIN_LINES;
}

bool chain_lines_take(struct chain_ep *e, struct chain_call *call)
{
    for (unsigned i = 0; i < call->lines; i++) {
        struct call_line *l = &call->line[i];
        unsigned line = free_line(e, l->node, entries_of(call, i));
        if (line == CHAIN_LINES) {
            for (; i > 0; i--)
                e->used[call->line[i - 1].node] &= ~(1u << call->line[i - 1].line);
            return false;
        }
        l->line = (uint8_t)line;
        e->used[l->node] |= 1u << line;
    }
    return true;
}

void chain_lines_give(struct chain_ep *e, struct chain_call *call)
{
    for (unsigned i = 0; i < call->lines; i++)
        e->used[call->line[i].node] &= ~(1u << call->line[i].line);
    call->lines = 0;
}

uint64_t chain_line_at(const struct chain_ep *e, const struct call_line *l)
{
    return chain_line_off(e->ep.fab->size[l->node], e->slot, l->line);
}

struct chain_line *chain_line_image(struct chain_ep *e, const struct call_line *l)
{
    return (struct chain_line *)(void *)(e->image[l->node] + chain_line_off(0, 0, l->line));
}
