/* Objects of JSON, for programs. All functions return a new reference, or NULL when out of
 * memory. */
#ifndef OUT_JSON_H
#define OUT_JSON_H

#include <jansson.h>
#include <stdint.h>

struct out_member {
    const char *name; /* NULL: it is left out */
    json_t *value;    /* NULL: memory ran out */
};

/* An object with these members, whose references it takes over. */
#define OUT_OBJECT(...)                                                                            \
    out_object((const struct out_member[]){__VA_ARGS__},                                           \
               sizeof((const struct out_member[]){__VA_ARGS__}) / sizeof(struct out_member))
json_t *out_object(const struct out_member *members, size_t count);

json_t *out_count(uint64_t count);
/* JSON must be UTF-8: other bytes become "\xHH". NULL becomes null. */
json_t *out_text(const char *text);

#endif
