#include "cli/cli.h"
#include "base/err.h"
#include "base/status.h"
#include "base/text.h"
#include "index/index.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ID     256u /* of options, for getopt_long() */
#define OPTION_WIDTH 20   /* of an option in the help */

int cli_misused(const char *command, const char *format, ...)
{
    va_list args;
    fprintf(stderr, "farside %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\nTry 'farside %s --help'.\n", command);
    return CLI_MISUSED;
}

int cli_no_pool(const char *command)
{
    return cli_misused(command, "missing option --pool URI, and FARSIDE_POOL is not set");
}

/* The exit status that tells scripts what a status means. */
static int exit_status(int status)
{
    switch (status) {
    case FAR_NOT_FOUND:
    case FAR_NO_TABLE:
        return CLI_MISSING;
    case FAR_EXISTS:
    case FAR_TABLE_EXISTS:
        return CLI_EXISTS;
    default:
        return status_means(status, STATUS_MISUSE) ? CLI_MISUSED : CLI_FAILED;
    }
}

int cli_failed(const char *command, int status, const char *format, ...)
{
    va_list args;
    const char *detail = far_error_detail();
    fprintf(stderr, "farside %s: ", command);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, ": %s%s%s%s\n", far_strerror(status), *detail ? " (" : "", detail,
            *detail ? ")" : "");
    return exit_status(status);
}

static bool text_count(const char *text, uint64_t *value)
{
    static const struct {
        char suffix;
        double factor;
    } suffixes[] = {{'k', 1e3}, {'m', 1e6}, {'g', 1e9}};
    double factor = 1;
    char *end;

    if (!isdigit((unsigned char)text[0]) || text[strspn(text, "0123456789.kKmMgG")] != '\0')
        return false;
    double number = strtod(text, &end);
    if (*end != '\0') {
        for (unsigned i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
            if (tolower((unsigned char)*end) == suffixes[i].suffix)
                factor = suffixes[i].factor;
        if (factor == 1 || end[1] != '\0')
            return false;
    }
    number *= factor;
    if (number > 1e15 || fabs(number - round(number)) > 1e-6)
        return false;
    *value = (uint64_t)round(number);
    return true;
}

static bool take_number(const char *command, const struct cli_option *o, const char *text)
{
    ASSERT(o->min <= o->max && (o->large || o->max <= UINT_MAX));
    char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
    uint64_t n = 0;
    if ((o->bytes ? text_size(text, &n) : text_count(text, &n)) && n >= o->min && n <= o->max) {
        if (o->large)
            *o->large = n;
        else
            *o->number = (unsigned)n;
        return true;
    }
    if (o->bytes)
        cli_misused(command,
                    "invalid --%s '%s': expected a size from %s to %s bytes (k, m, g and t stand "
                    "for powers "
                    "of 1024)",
                    o->name, text, text_of_size(o->min, least), text_of_size(o->max, most));
    else
        cli_misused(command,
                    "invalid --%s '%s': expected a number from %" PRIu64 " to %" PRIu64
                    " (k, m and g stand for thousands, millions and billions)",
                    o->name, text, o->min, o->max);
    return false;
}

static bool take_option(const char *command, const struct cli_option *o, const char *text)
{
    ASSERT(!!o->flag + !!o->text + !!o->take + !!o->number + !!o->large == 1);
    if (o->flag)
        *o->flag = true;
    else if (o->text)
        *o->text = text;
    else if (o->take)
        return o->take(command, text, o->arg);
    else
        return take_number(command, o, text);
    return true;
}

static int bad_option(const char *command, int got, char **argv)
{
    const char *option = argv[optind - 1];
    if (got == ':')
        return cli_misused(command, "option '%s' needs a value", option);
    if (strncmp(option, "--", 2) == 0 && strchr(option, '=') && optopt != 0)
        return cli_misused(command, "option '%s' takes no value", option);
    if (strncmp(option, "--", 2) != 0 && optopt != 0)
        return cli_misused(command, "unknown option '-%c'", optopt);
    return cli_misused(command, "unknown option '%s'", option);
}

/* The pool: the value of --pool, else the first argument if the command takes the pool there, else
 * the environment's, else the command's default. */
static int find_pool(const struct cli_syntax *s, const struct cli_option *o, bool given, int argc,
                     char **argv)
{
    const char *usual = getenv("FARSIDE_POOL");
    if (given)
        return CLI_OK;
    if (s->pool_arg && optind < argc)
        *o->text = argv[optind++];
    else if (usual && *usual)
        *o->text = usual;
    if (*o->text)
        return CLI_OK;
    return cli_no_pool(s->command);
}

/* Is everything given that must be, and no more? */
static int check_call(const struct cli_syntax *s, const bool *given, int argc, char **argv)
{
    int code = CLI_OK;
    for (unsigned i = 0; s->options[i].name && code == CLI_OK; i++)
        if (s->options[i].pool)
            code = find_pool(s, &s->options[i], given[i], argc, argv);
    if (code != CLI_OK)
        return code;
    if (s->arg && optind == argc)
        return cli_misused(s->command, "missing argument %s", s->arg);
    if (argc - optind > s->args_max)
        return cli_misused(s->command, "unexpected argument '%s'", argv[optind + s->args_max]);
    for (unsigned i = 0; s->options[i].name; i++)
        if (s->options[i].needed && !given[i])
            return cli_misused(s->command, "missing option --%s %s", s->options[i].name,
                               s->options[i].takes);
    return CLI_OK;
}

/* What getopt_long() needs to know: the options, and the letters of those that have one. */
static void list_options(const struct cli_syntax *s, struct option *known, char *letters)
{
    unsigned count = 0;
    for (; s->options[count].name; count++) {
        const struct cli_option *o = &s->options[count];
        ASSERT(count < CLI_OPTIONS_MAX && (o->letter == '\0' || o->flag));
        ASSERT(!o->help || !o->takes == !!o->flag);
        known[count] = (struct option){
            .name = o->name,
            .has_arg = o->flag ? no_argument : required_argument,
            .val = (int)(FIRST_ID + count),
        };
        if (o->letter != '\0')
            *letters++ = o->letter;
    }
    known[count] = (struct option){"help", no_argument, NULL, 'h'};
}

/* The number of the option that getopt_long() has found. */
static unsigned option_number(const struct cli_syntax *s, int id)
{
    unsigned i = 0;
    if (id >= (int)FIRST_ID)
        return (unsigned)id - FIRST_ID;
    while (s->options[i].letter != id)
        i++;
    return i;
}

static void print_option(const struct cli_option *o)
{
    char named[64], head[80];
    snprintf(named, sizeof named, "--%s%s%s", o->name, o->takes ? " " : "",
             o->takes ? o->takes : "");
    ASSERT(strlen(named) + 2 <= OPTION_WIDTH);
    if (o->letter != '\0')
        snprintf(head, sizeof head, "  -%c, %-*s", o->letter, OPTION_WIDTH - 4, named);
    else
        snprintf(head, sizeof head, "  %-*s", OPTION_WIDTH, named);
    text_wrap(stdout, head, o->help);
}

static void print_help(const struct cli_syntax *s)
{
    static const struct cli_option help = {.name = "help", .letter = 'h', .help = "show this help"};
    printf("usage: farside %s %s\n\n", s->command, s->usage);
    text_wrap(stdout, "", s->about);
    fputs("\n", stdout);
    for (const struct cli_option *o = s->options; o->name; o++)
        if (o->help)
            print_option(o);
    print_option(&help);
    if (s->notes) {
        fputs("\n", stdout);
        text_wrap(stdout, "", s->notes);
    }
    if (s->lists)
        s->lists();
}

bool cli_read(const struct cli_syntax *s, int argc, char **argv, int *code)
{
    struct option known[CLI_OPTIONS_MAX + 2] = {{.name = NULL}};
    char letters[CLI_OPTIONS_MAX + 3] = ":h";
    bool given[CLI_OPTIONS_MAX] = {false};
    int id = 0;
    list_options(s, known, letters + 2);
    opterr = optind = 0;
    while ((id = getopt_long(argc, argv, letters, known, NULL)) != -1) {
        *code = CLI_OK;
        if (id == 'h')
            print_help(s);
        else if (id == '?' || id == ':')
            *code = bad_option(s->command, id, argv);
        else if (!take_option(s->command, &s->options[option_number(s, id)], optarg))
            *code = CLI_MISUSED;
        if (id == 'h' || *code != CLI_OK)
            return false;
        given[option_number(s, id)] = true;
    }
    *code = check_call(s, given, argc, argv);
    return *code == CLI_OK;
}

/* The index of that name. NULL: there is none, and the message is printed. */
static const char *find_index(const char *command, const char *text, size_t len)
{
    char known[128] = "all", wanted[64] = "";
    const char *name = NULL;
    snprintf(wanted, sizeof wanted, "%.*s", (int)len, text);
    for (unsigned i = 0; (name = far_index_name(i)) != NULL; i++) {
        strncat(known, ", ", sizeof known - strlen(known) - 1);
        strncat(known, name, sizeof known - strlen(known) - 1);
        if (strcmp(wanted, name) == 0)
            return name;
    }
    const struct index_ops *unlisted = index_find(wanted);
    if (unlisted)
        return unlisted->name;
    cli_misused(command, "unknown index '%s' (available: %s)", wanted, known);
    return NULL;
}

static bool add_index(const char *command, struct cli_indexes *list, const char *name)
{
    for (unsigned i = 0; i < list->count; i++) {
        if (strcmp(list->name[i], name) == 0) {
            cli_misused(command, "index '%s' is given twice", name);
            return false;
        }
    }
    ASSERT(list->count < CLI_INDEXES_MAX); /* there are fewer */
    list->name[list->count++] = name;
    return true;
}

bool cli_take_indexes(const char *command, const char *text, void *arg)
{
    struct cli_indexes *list = arg;
    list->count = 0;
    list->text = text;
    if (strcmp(text, "all") == 0)
        return true;
    for (;; text++) {
        size_t len = strcspn(text, ",");
        const char *name = find_index(command, text, len);
        if (!name || !add_index(command, list, name))
            return false;
        text += len;
        if (*text == '\0')
            return true;
    }
}

void cli_print_indexes(void)
{
    const char *name = NULL;
    fputs("\nThe indexes:", stdout);
    for (unsigned i = 0; (name = far_index_name(i)) != NULL; i++)
        printf(" %s", name);
    fputs("\n", stdout);
}

void cli_print_tuning(void)
{
    const struct index_ops *ops = NULL;
    fputs("\n"
          "A tuning is a list of name=number joined by &. Numbers take k, m, g and t (powers of\n"
          "1024). The names, with their ranges and defaults:\n",
          stdout);
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        for (unsigned k = 0; k < tuning_count(ops->tuning); k++) {
            const struct tuning_param *p = &ops->tuning[k];
            char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES], usual[TEXT_SIZE_BYTES];
            printf("  %-8s%-14s%s, %s to %s (%s)\n", ops->name, p->name, p->meaning,
                   text_of_size(p->least, least), text_of_size(p->most, most),
                   text_of_size(p->usual, usual));
        }
    }
}

void cli_print_escaped(FILE *out, const void *bytes, size_t len)
{
    char text[TEXT_ESCAPE_BYTES];
    for (size_t pos = 0; pos < len;)
        fputs(text_escape(bytes, len, &pos, text), out);
}

static bool hex_digit(char c, unsigned *digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    if (!at)
        return false;
    *digit = (unsigned)(at - digits);
    return true;
}

static int take_hex(const char *command, const char *text, unsigned char *key, size_t *key_len)
{
    size_t len = strlen(text);
    unsigned high = 0, low = 0;
    bool good = len > 0 && len % 2 == 0 && len / 2 <= FAR_KEY_MAX;
    for (size_t i = 0; good && i < len; i += 2) {
        good = hex_digit(text[i], &high) && hex_digit(text[i + 1], &low);
        key[i / 2] = (unsigned char)(high << 4 | low);
    }
    *key_len = len / 2;
    return good ? CLI_OK
                : cli_misused(command,
                              "invalid key '%.64s': expected two hexadecimal digits for each of 1 "
                              "to %u bytes",
                              text, FAR_KEY_MAX);
}

int cli_take_key(const char *command, const char *text, bool hex, unsigned char key[FAR_KEY_MAX],
                 size_t *key_len)
{
    if (hex)
        return take_hex(command, text, key, key_len);
    size_t len = strlen(text);
    if (len == 0 || len > FAR_KEY_MAX)
        return cli_misused(command, "invalid key: expected 1 to %u bytes, not %zu", FAR_KEY_MAX,
                           len);
    memcpy(key, text, len);
    *key_len = len;
    return CLI_OK;
}

/* The help of all subcommands. */
static int print_subcommands(const struct cli_command *subcommands)
{
    for (unsigned i = 0; subcommands[i].name; i++) {
        char *argv[] = {(char *)subcommands[i].name, (char *)"--help", NULL};
        fputs(i > 0 ? "\n" : "", stdout);
        (void)subcommands[i].run(2, argv);
    }
    return CLI_OK;
}

int cli_subcommand(const char *command, const struct cli_command *subcommands, int argc,
                   char **argv)
{
    char known[128] = "";
    for (unsigned i = 0; subcommands[i].name; i++) {
        if (argc > 1 && strcmp(argv[1], subcommands[i].name) == 0)
            return subcommands[i].run(argc - 1, argv + 1);
        size_t len = strlen(known);
        snprintf(known + len, sizeof known - len, "%s%s", i > 0 ? ", " : "", subcommands[i].name);
    }
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return print_subcommands(subcommands);
    if (argc > 1)
        return cli_misused(command, "unknown subcommand '%s' (available: %s)", argv[1], known);
    return cli_misused(command, "missing subcommand (available: %s)", known);
}

json_t *cli_json_table(const char *name)
{
    char copy[4 * FAR_NAME_MAX + 1], hex[2 * FAR_NAME_MAX + 1];
    bool exact = text_utf8(name, copy);
    json_t *table = json_pack("{s:s}", "name", copy);
    for (size_t i = 0; name[i] != '\0'; i++)
        snprintf(hex + 2 * i, 3, "%02x", (unsigned char)name[i]);
    if (!exact)
        json_object_set_new(table, "name_hex", json_string(hex));
    return table;
}

bool cli_is_dash(const char *name)
{
    return strcmp(name, "-") == 0;
}

bool cli_json_open(const char *command, const char *name, FILE **file)
{
    *file = NULL;
    if (name)
        *file = cli_is_dash(name) ? stdout : fopen(name, "w");
    if (!name || *file)
        return true;
    fprintf(stderr, "farside %s: cannot write '%s': %s\n", command, name, strerror(errno));
    return false;
}

static bool dump(FILE *file, json_t *object)
{
    bool good = object && json_dumpf(object, file, JSON_INDENT(2) | JSON_REAL_PRECISION(9)) == 0;
    json_decref(object);
    return fputs("\n", file) != EOF && fflush(file) == 0 && good;
}

int cli_json_close(const char *command, const char *name, FILE *file, json_t *object)
{
    bool good = dump(file, object);
    if (!good)
        fprintf(stderr, "farside %s: cannot write the JSON to '%s': %s\n", command, name,
                strerror(errno));
    if (!cli_is_dash(name))
        fclose(file);
    return good ? CLI_OK : CLI_FAILED;
}

void cli_json_print(json_t *object)
{
    (void)dump(stdout, object); /* main() checks stdout for errors */
}

static int output_error; /* why the standard output could not be written */

bool cli_output_good(void)
{
    if (output_error == 0 && ferror(stdout))
        output_error = errno;
    return output_error == 0;
}

int cli_output_end(void)
{
    cli_interrupt_io(true);
    if (cli_output_good() && fflush(stdout) != 0)
        output_error = errno;
    if (output_error == 0)
        return CLI_OK;
    if (output_error != EPIPE && output_error != EINTR)
        fprintf(stderr, "farside: cannot write the output: %s\n", strerror(output_error));
    return CLI_FAILED;
}

int cli_partial(const char *command, const char *table, uint64_t damaged)
{
    fprintf(stderr,
            "farside %s: up to %llu entries of the table '%s' are damaged, and were left out. "
            "'farside pool check --repair' salvages what it can.\n",
            command, (unsigned long long)damaged, table);
    return CLI_PARTIAL;
}

int cli_no_memory(const char *command)
{
    fprintf(stderr, "farside %s: out of memory\n", command);
    return CLI_FAILED;
}

bool cli_go_on(void *arg, const char *what, uint64_t done, uint64_t total)
{
    (void)arg;
    (void)what;
    (void)done;
    (void)total;
    return !cli_stopped();
}

uint64_t cli_print_away(const char *command, far_session *session)
{
    struct far_pool_info pool;
    if (far_pool_info(session, &pool) != FAR_OK)
        return 0;
    for (unsigned i = 0; i < pool.nodes; i++) {
        struct far_node_info node = {.address = "no address"};
        if (!(pool.nodes_away >> i & 1) || far_node_info(session, i, &node) == FAR_OK)
            continue;
        fprintf(stderr, "farside %s: node %u (%s) is away: what it holds cannot be reached\n",
                command, i, node.address);
    }
    return pool.nodes_away;
}

int cli_open(const char *command, const struct cli_target *target, far_pool **pool,
             far_session **session)
{
    cli_stop_on_signals();
    far_pool *opened = NULL;
    int rc = far_pool_open(target->pool, &opened);
    if (rc != FAR_OK)
        return cli_failed(command, rc, "cannot open the pool '%s'", target->pool);
    rc = far_session_open(opened, NULL, session);
    if (rc != FAR_OK) {
        far_pool_close(opened);
        return cli_failed(command, rc, "cannot open a session on the pool '%s'", target->pool);
    }
    if (strncmp(target->pool, "mem:", 4) == 0)
        fprintf(stderr,
                "farside %s: note: a mem: pool starts empty and is gone when this process ends\n",
                command);
    if (strncmp(target->pool, "ucx:", 4) == 0 || strncmp(target->pool, "verbs:", 6) == 0)
        (void)cli_print_away(command, *session);
    far_session_watch(*session, cli_go_on, NULL);
    *pool = opened;
    return CLI_OK;
}

int cli_open_table(const char *command, const struct cli_target *target, struct cli_table *t)
{
    *t = (struct cli_table){.pool = NULL};
    int code = cli_open(command, target, &t->pool, &t->session);
    if (code != CLI_OK)
        return code;
    int rc = far_table_open(t->session, target->table, target->index, &t->table);
    if (rc == FAR_OK)
        return CLI_OK;
    code = cli_failed(command, rc, "cannot open the table '%s'", target->table);
    cli_close_table(t);
    return code;
}

void cli_close_table(struct cli_table *t)
{
    cli_interrupt_io(false);
    far_session_close(t->session);
    far_pool_close(t->pool);
}
