/* Tables of sites and faults. */
#include "cli/check_sites.h"
#include "base/text.h"
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL_FAULTS ((1u << SITE_FAULT_COUNT) - 1)

static bool take_fault(const char *name, enum site_fault *fault)
{
    for (unsigned i = 0; i < SITE_FAULT_COUNT; i++)
        if (strcmp(name, site_fault_name((enum site_fault)i)) == 0) {
            *fault = (enum site_fault)i;
            return true;
        }
    return false;
}

/* ---- aims ------------------------------------------------------------------------------------ */

bool check_sites_take_aim(const struct sites *s, const char *given, struct site_aim *aim)
{
    char text[160], *rest = text;
    uint64_t skip = 0;
    snprintf(text, sizeof text, "%s", given);
    const char *name = strsep(&rest, ","), *fault = strsep(&rest, ",");
    aim->site = sites_find(s, name);
    if (aim->site == SITE_NONE) {
        cli_misused("check", "unknown place '%s' in --at (--coverage lists all of them)", name);
        return false;
    }
    if (!fault || !take_fault(fault, &aim->fault) || !site_fault_aimable(aim->fault) ||
        (rest && !text_number(rest, 0, 1000000, &skip))) {
        cli_misused("check",
                    "invalid --at '%s': expected PLACE,FAULT,N with the fault before, between, "
                    "behind, stopped, torn or unknown",
                    given);
        return false;
    }
    aim->skip = (unsigned)skip;
    return true;
}

void check_sites_aim_text(const struct sites *s, const struct site_aim *aim, char *text,
                          size_t room)
{
    snprintf(text, room, "%s,%s,%u", s->site[aim->site].name, site_fault_name(aim->fault),
             aim->skip);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Faults that apply and were not met; all of them if the site was never reached. */
static unsigned unmet(const struct site *site)
{
    unsigned faults = site->posts ? 0 : ALL_FAULTS;
    for (unsigned i = 0; i < SITE_FAULT_COUNT && site->posts; i++)
        if (site_applies(site, (enum site_fault)i) && site->met[i] == 0)
            faults |= 1u << i;
    return faults;
}

static void faults_text(unsigned faults, char *text, size_t room)
{
    size_t used = 0;
    if (faults == ALL_FAULTS) {
        snprintf(text, room, "all");
        return;
    }
    for (unsigned i = 0; i < SITE_FAULT_COUNT && used < room; i++)
        if (faults >> i & 1)
            used += (size_t)snprintf(text + used, room - used, "%s%s", used ? "," : "",
                                     site_fault_name((enum site_fault)i));
}

static void print_site(struct columns *c, const struct site *site)
{
    columns_text(c, site->name);
    columns_number(c, site->line, 0);
    columns_number(c, (double)site->posts, 0);
    for (unsigned i = 0; i < SITE_FAULT_COUNT; i++)
        if (site_applies(site, (enum site_fault)i))
            columns_number(c, (double)site->met[i], 0);
        else
            columns_text(c, "-");
    columns_end(c);
}

/* How many of the sites that a fault applies to have met it? */
static unsigned count_met(const struct sites *s, enum site_fault fault, unsigned *applies)
{
    unsigned met = 0;
    *applies = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        *applies += site_applies(&s->site[i], fault);
        met += s->site[i].met[fault] > 0;
    }
    return met;
}

void check_sites_print(const struct sites *s)
{
    struct column column[3 + SITE_FAULT_COUNT] = {{"place", -56}, {"line", 5}, {"posts", 9}};
    struct columns c = {.out = stdout, .column = column, .indent = 2};
    unsigned reached = 0;
    for (unsigned i = 0; i < SITE_FAULT_COUNT; i++)
        column[3 + i] = (struct column){site_fault_name((enum site_fault)i), 8};
    puts("places that post verbs, and how often faults struck there (-: does not apply)");
    columns_heads(&c, 3 + SITE_FAULT_COUNT);
    for (uint32_t i = 0; i < s->count; i++) {
        print_site(&c, &s->site[i]);
        reached += s->site[i].posts > 0;
    }
    printf("  reached: %u of %u places\n", reached, s->count);
    for (unsigned i = 0; i < SITE_FAULT_COUNT; i++) {
        unsigned applies = 0, met = count_met(s, (enum site_fault)i, &applies);
        printf("  %s: met at %u of %u places\n", site_fault_name((enum site_fault)i), met, applies);
    }
    for (uint32_t i = 0; i < s->count; i++) {
        char faults[96];
        if (!unmet(&s->site[i]))
            continue;
        faults_text(unmet(&s->site[i]), faults, sizeof faults);
        printf("  unmet: %s %s\n", s->site[i].name, faults);
    }
}

json_t *check_sites_json(const struct sites *s)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < s->count; i++) {
        const struct site *site = &s->site[i];
        json_t *met = json_object();
        for (unsigned j = 0; j < SITE_FAULT_COUNT; j++)
            if (site_applies(site, (enum site_fault)j))
                json_object_set_new(met, site_fault_name((enum site_fault)j),
                                    json_integer((json_int_t)site->met[j]));
        json_array_append_new(all, json_pack("{s:s, s:i, s:I, s:o}", "place", site->name, "line",
                                             (int)site->line, "posts", (json_int_t)site->posts,
                                             "met", met));
    }
    return all;
}

/* ---- what may stay unmet --------------------------------------------------------------------- */

/* Reads "NAME FAULT,FAULT... reason". */
static bool take_line(const struct sites *s, const char *path, unsigned number, char *line,
                      unsigned *may)
{
    char *rest = line;
    const char *name = strsep(&rest, " \t\n");
    if (name[0] == '\0' || name[0] == '#')
        return true;
    while (rest && (*rest == ' ' || *rest == '\t'))
        rest++;
    char *faults = strsep(&rest, " \t\n");
    uint32_t at = sites_find(s, name);
    if (at == SITE_NONE || !faults) {
        fprintf(stderr, "farside check: %s:%u: no place is called '%s'\n", path, number, name);
        return false;
    }
    for (const char *one = NULL; (one = strsep(&faults, ",")) != NULL;) {
        enum site_fault fault = SITE_FAULT_COUNT;
        if (strcmp(one, "all") != 0 && !take_fault(one, &fault)) {
            fprintf(stderr, "farside check: %s:%u: no fault is called '%s'\n", path, number, one);
            return false;
        }
        may[at] |= fault == SITE_FAULT_COUNT ? ALL_FAULTS : 1u << fault;
    }
    return true;
}

static bool read_file(const struct sites *s, const char *path, unsigned *may)
{
    char line[512];
    bool good = true;
    FILE *in = fopen(path, "r");
    if (!in) {
        fprintf(stderr, "farside check: cannot read %s: %m\n", path);
        return false;
    }
    for (unsigned number = 1; fgets(line, sizeof line, in); number++)
        good = take_line(s, path, number, line, may) && good;
    fclose(in);
    return good;
}

bool check_sites_compare(const struct sites *s, const char *path)
{
    unsigned *may = calloc(s->count, sizeof *may);
    bool good = may && read_file(s, path, may);
    for (uint32_t i = 0; may && i < s->count; i++) {
        unsigned missing = unmet(&s->site[i]), wrong = missing & ~may[i];
        char faults[96];
        faults_text(wrong, faults, sizeof faults);
        if (wrong) {
            fprintf(stderr, "farside check: unmet, and not listed in %s: %s %s\n", path,
                    s->site[i].name, faults);
            good = false;
        }
    }
    free(may);
    return good;
}
