/* The list of sites. */
#include "sim/sites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The linker names the ends of the section that batch_flush() fills. */
extern const struct fab_site __start_fab_sites[] __attribute__((visibility("hidden")));
extern const struct fab_site __stop_fab_sites[] __attribute__((visibility("hidden")));

/* In a program that flushes no batch, there would be no such section. */
static const struct fab_site none
    __attribute__((section("fab_sites"), aligned(8), used)) = {.file = "", .function = ""};

const char *site_fault_name(enum site_fault fault)
{
    static const char *const name[SITE_FAULT_COUNT] = {
#define SITE_X(name, text) text,
        SITE_FAULTS(SITE_X)
#undef SITE_X
    };
    return name[fault];
}

/* What is behind the last such folder of a path, or NULL. */
static const char *behind(const char *path, const char *folder)
{
    const char *found = NULL;
    for (const char *at = path; (at = strstr(at, folder)) != NULL; at++)
        found = at + strlen(folder);
    return found;
}

/* The path below src of a file of the library, or below examples; NULL if it is of a program or a
 * test. */
static const char *library_path(const char *file)
{
    static const char *const folder[] = {"index/", "pool/", "store/"};
    const char *path = behind(file, "src/"), *example = behind(file, "examples/");
    if (example && (!path || example > path))
        return example;
    for (unsigned i = 0; path && i < sizeof folder / sizeof *folder; i++)
        if (strncmp(path, folder[i], strlen(folder[i])) == 0)
            return path;
    return NULL;
}

static int compare(const void *a, const void *b)
{
    const struct site *x = a, *y = b;
    int order = strcmp(x->file, y->file);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Function by function: the second site of one is NAME.2. */
static void name_sites(struct sites *s)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct site *site = &s->site[i];
        unsigned nth = 1;
        for (uint32_t j = 0; j < i; j++)
            nth += strcmp(s->site[j].file, site->file) == 0 &&
                   strcmp(s->site[j].function, site->function) == 0;
        int used = snprintf(site->name, sizeof site->name, "%s:%s", site->file, site->function);
        ASSERT(used > 0 && (size_t)used + 4 < sizeof site->name);
        if (nth > 1)
            snprintf(site->name + used, sizeof site->name - (size_t)used, ".%u", nth);
    }
}

/* A function of a header has a description in each file that includes it: they are one site. */
static void fill(struct sites *s)
{
    for (uint32_t i = 0; i < s->numbers; i++) {
        const struct fab_site *from = &__start_fab_sites[i];
        const char *file = library_path(from->file);
        if (file)
            s->site[s->count++] =
                (struct site){.file = file, .function = from->function, .line = from->line};
    }
    qsort(s->site, s->count, sizeof *s->site, compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->count; i++)
        if (kept == 0 || compare(&s->site[kept - 1], &s->site[i]) != 0)
            s->site[kept++] = s->site[i];
    s->count = kept;
    name_sites(s);
    for (uint32_t i = 0; i < s->numbers; i++) {
        const char *file = library_path(__start_fab_sites[i].file);
        struct site key = {.file = file, .line = __start_fab_sites[i].line};
        const struct site *found =
            file ? bsearch(&key, s->site, s->count, sizeof key, compare) : NULL;
        s->number[i] = found ? (uint32_t)(found - s->site) : SITE_NONE;
    }
}

struct sites *sites_new(void)
{
    struct sites *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->numbers = (uint32_t)(__stop_fab_sites - __start_fab_sites);
    s->aim.site = SITE_NONE;
    s->site = calloc(s->numbers, sizeof *s->site);
    s->number = calloc(s->numbers, sizeof *s->number);
    s->posts_before = calloc(s->numbers, sizeof *s->posts_before);
    if (s->site && s->number && s->posts_before) {
        fill(s);
        return s;
    }
    sites_free(s);
    return NULL;
}

void sites_free(struct sites *s)
{
    if (!s)
        return;
    free(s->site);
    free(s->number);
    free(s->posts_before);
    free(s);
}

uint32_t sites_number(const struct sites *s, const struct fab_site *site)
{
    bool listed = site >= __start_fab_sites && site < __stop_fab_sites;
    return listed ? s->number[site - __start_fab_sites] : SITE_NONE;
}

uint32_t sites_find(const struct sites *s, const char *name)
{
    for (uint32_t i = 0; i < s->count; i++)
        if (strcmp(s->site[i].name, name) == 0)
            return i;
    return SITE_NONE;
}

void sites_begin(struct sites *s, const struct site_aim *aim)
{
    s->aim = aim ? *aim : (struct site_aim){.site = SITE_NONE};
    s->aimed = s->again = false;
    s->then.site = SITE_NONE;
    memset(s->others, 0xff, sizeof s->others);
    for (uint32_t i = 0; i < s->count; i++)
        s->posts_before[i] = s->site[i].posts;
}

uint64_t sites_posted(const struct sites *s, uint32_t site)
{
    return s->site[site].posts - s->posts_before[site];
}

void sites_end(struct sites *s, const char *index, uint64_t seed)
{
    for (uint32_t i = 0; i < s->count; i++) {
        struct site *site = &s->site[i];
        if (sites_posted(s, i) > 0 && site->witnesses < SITE_WITNESSES)
            site->witness[site->witnesses++] = (struct site_witness){.index = index, .seed = seed};
    }
}
