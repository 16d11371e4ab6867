/* Reading what people type: sizes, numbers and pool URIs. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "64", "64k", "1.5g" (powers of 1024; k, m, g, t in either case). False if it is not a size. */
bool text_size(const char *s, uint64_t *bytes);

/* The reverse, exactly: "64k", "1048577". */
#define TEXT_SIZE_BYTES 24
const char *text_of_size(uint64_t bytes, char text[TEXT_SIZE_BYTES]);

/* A whole decimal number within [min, max]. False if it is not one. */
bool text_number(const char *s, uint64_t min, uint64_t max, uint64_t *value);

/* Copies s; each byte that is not part of UTF-8 becomes four characters, "\xHH". False if there was
 * one. `copy` has room for four times the bytes of s, and the NUL. */
bool text_utf8(const char *s, char *copy);

/* The next character of arbitrary bytes, for people: as it is if it is printable UTF-8, else "\\",
 * "\t", "\n", "\r" or "\xHH". *pos moves behind it. */
#define TEXT_ESCAPE_BYTES 5
const char *text_escape(const void *bytes, size_t len, size_t *pos, char text[TEXT_ESCAPE_BYTES]);

#define URI_OPTIONS_MAX 16
#define URI_TEXT_MAX    1024

/*
 * scheme:rest?name=value&name=value
 * The strings point into `text`. Percent-escapes are not interpreted.
 */
struct uri {
    char text[URI_TEXT_MAX];
    const char *scheme; /* "mem"                             */
    const char *rest;   /* between the colon and the options */
    unsigned options;
    struct {
        const char *name, *value;
        bool used; /* by uri_option() */
    } option[URI_OPTIONS_MAX];
};

/* FAR_BAD_URI with the detail of what is wrong. */
int uri_parse(const char *text, struct uri *uri);

/* The option's value, or NULL. Marks it used. */
const char *uri_option(struct uri *uri, const char *name);

/* An option as a size or a number; `fallback` if it is not given. FAR_BAD_URI: it is not one, or
 * not within [min, max]. */
int uri_size(struct uri *uri, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
             uint64_t *value);
int uri_number(struct uri *uri, const char *name, uint64_t fallback, uint64_t min, uint64_t max,
               uint64_t *value);

/* FAR_BAD_URI if an option was not used; the detail names it. */
int uri_finish(const struct uri *uri);

#endif
