#include "cli/cli.h"
#include "base/status.h"
#include "base/text.h"
#include "index/index.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    return status_means(status, STATUS_MISUSE) ? CLI_MISUSED : CLI_FAILED;
}

int cli_bad_option(const char *command, int got, char **argv)
{
    const char *option = argv[optind - 1];
    if (got == ':')
        return cli_misused(command, "option '%s' needs a value", option);
    if (strncmp(option, "--", 2) == 0 && strchr(option, '=') != NULL && optopt != 0)
        return cli_misused(command, "option '%s' takes no value", option);
    if (strncmp(option, "--", 2) != 0 && optopt != 0)
        return cli_misused(command, "unknown option '-%c'", optopt);
    return cli_misused(command, "unknown option '%s'", option);
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

bool cli_count(const char *command, const char *option, uint64_t min, uint64_t max, uint64_t *value)
{
    uint64_t n;
    if (text_count(optarg, &n) && n >= min && n <= max) {
        *value = n;
        return true;
    }
    cli_misused(command,
                "%s is '%s', but has to be a number from %" PRIu64 " to %" PRIu64
                " (k, m and g stand for thousands, millions and billions)",
                option, optarg, min, max);
    return false;
}

bool cli_size(const char *command, const char *option, uint64_t min, uint64_t max, uint64_t *value)
{
    uint64_t n;
    if (text_size(optarg, &n) && n >= min && n <= max) {
        *value = n;
        return true;
    }
    char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
    cli_misused(command,
                "%s is '%s', but has to be a size in bytes from %s to %s (k, m, g and t stand for "
                "powers of 1024)",
                option, optarg, text_of_size(min, least), text_of_size(max, most));
    return false;
}

void cli_print_tuning(void)
{
    const struct index_ops *ops = NULL;
    fputs("\n"
          "A tuning is name=number, joined by &; numbers take k, m, g and t (1024s). The names:\n",
          stdout);
    for (unsigned i = 0; (ops = index_at(i)) != NULL; i++) {
        for (unsigned k = 0; k < tuning_count(ops->tuning); k++) {
            const struct tuning_param *p = &ops->tuning[k];
            char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES], usual[TEXT_SIZE_BYTES];
            printf("  %-8s%-10s%s, %s to %s (%s)\n", ops->name, p->name, p->meaning,
                   text_of_size(p->least, least), text_of_size(p->most, most),
                   text_of_size(p->usual, usual));
        }
    }
}

static bool hex_digit(char c, unsigned *digit)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;
    if (at == NULL)
        return false;
    *digit = (unsigned)(at - digits);
    return true;
}

static int take_hex(const char *command, const char *text, unsigned char *key, size_t *key_len)
{
    size_t len = strlen(text);
    if (len % 2 != 0 || len / 2 > FAR_KEY_MAX)
        return cli_misused(command,
                           "a key in hexadecimal has two digits for each byte, %u "
                           "bytes at most",
                           FAR_KEY_MAX);
    for (size_t i = 0; i < len; i += 2) {
        unsigned high, low;
        if (!hex_digit(text[i], &high) || !hex_digit(text[i + 1], &low))
            return cli_misused(command, "'%s' is not in hexadecimal digits", text);
        key[i / 2] = (unsigned char)(high << 4 | low);
    }
    *key_len = len / 2;
    return CLI_OK;
}

int cli_take_key(const char *command, const char *text, bool hex, unsigned char key[FAR_KEY_MAX],
                 size_t *key_len)
{
    if (hex)
        return take_hex(command, text, key, key_len);
    size_t len = strlen(text);
    if (len == 0 || len > FAR_KEY_MAX)
        return cli_misused(command, "a key has from 1 to %u bytes", FAR_KEY_MAX);
    memcpy(key, text, len);
    *key_len = len;
    return CLI_OK;
}

json_t *cli_json_text(const char *text)
{
    char *copy = malloc(4 * strlen(text) + 1);
    if (copy == NULL)
        return NULL;
    text_utf8(text, copy);
    json_t *string = json_string(copy);
    free(copy);
    return string;
}

void cli_catch_signals(void (*handler)(int))
{
    static const int once[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = handler, .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (unsigned i = 0; i < sizeof once / sizeof *once; i++)
        sigaction(once[i], &action, NULL);
    action.sa_flags = SA_RESTART;
    sigaction(SIGPIPE, &action, NULL);
}

static atomic_bool stopped;

static void hold(int number)
{
    if (number != SIGPIPE) /* that is told by the write */
        atomic_store(&stopped, true);
}

void cli_hold_signals(void)
{
    cli_catch_signals(hold);
}

bool cli_stopped(void)
{
    return atomic_load(&stopped);
}

int cli_open(const char *command, const struct cli_target *target, far_pool **pool,
             far_session **session)
{
    if (target->pool == NULL)
        return cli_misused(command, "--pool URI is needed");

    cli_hold_signals();
    far_pool *opened = NULL;
    int status = far_pool_open(target->pool, &opened);
    if (status != FAR_OK)
        return cli_failed(command, status, "cannot open the pool '%s'", target->pool);
    status = far_session_open(opened, NULL, session);
    if (status != FAR_OK) {
        far_pool_close(opened);
        return cli_failed(command, status, "cannot work on the pool '%s'", target->pool);
    }
    if (strncmp(target->pool, "mem:", 4) == 0)
        fprintf(stderr, "farside %s: note: a mem: pool begins empty and ends with this process\n",
                command);
    *pool = opened;
    return CLI_OK;
}
