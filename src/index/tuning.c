#include "index/tuning.h"

#include "base/text.h"
#include "index/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define SHOWN        40 /* bytes of the caller's text that a message repeats */
#define NUMBER_BYTES 32

unsigned tuning_count(const struct tuning_param *params)
{
    unsigned count = 0;
    while (params && params[count].name)
        count++;
    return count;
}

static int shown(size_t len)
{
    return len < SHOWN ? (int)len : SHOWN;
}

static int unknown(const char *index, const struct tuning_param *params, const char *name,
                   size_t len)
{
    char known[160] = "none";
    size_t used = 0;
    for (unsigned i = 0; i < tuning_count(params) && used < sizeof known; i++) {
        char least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s=%s..%s", i ? ", " : "",
                                 params[i].name, text_of_size(params[i].least, least),
                                 text_of_size(params[i].most, most));
    }
    return err_fail(FAR_INVALID, "index %s: unknown tuning '%.*s' (known: %s)", index, shown(len),
                    name, known);
}

static int take_number(const char *index, const struct tuning_param *param, const char *text,
                       size_t len, uint64_t *value)
{
    char number[NUMBER_BYTES] = "", least[TEXT_SIZE_BYTES], most[TEXT_SIZE_BYTES];
    uint64_t v = 0;
    if (len < sizeof number)
        memcpy(number, text, len);
    if (!text_size(number, &v) || v < param->least || v > param->most)
        return err_fail(FAR_INVALID,
                        "index %s: tuning '%s' takes a number from %s to %s, not '%.*s'", index,
                        param->name, text_of_size(param->least, least),
                        text_of_size(param->most, most), shown(len), text);
    *value = v;
    return FAR_OK;
}

/* One part: name=number. */
static int take_part(const char *index, const struct tuning_param *params, const char *part,
                     size_t len, uint64_t *value, bool *given)
{
    unsigned count = tuning_count(params), i = 0;
    const char *equals = memchr(part, '=', len);
    if (!equals)
        return err_fail(FAR_INVALID, "index %s: tuning '%.*s' has no '='", index, shown(len), part);
    size_t name_len = (size_t)(equals - part);
    while (i < count &&
           (strlen(params[i].name) != name_len || memcmp(params[i].name, part, name_len) != 0))
        i++;
    if (i == count)
        return unknown(index, params, part, name_len);
    if (given[i])
        return err_fail(FAR_INVALID, "index %s: tuning '%s' is given twice", index, params[i].name);
    given[i] = true;
    return take_number(index, &params[i], equals + 1, len - name_len - 1, &value[i]);
}

int tuning_parse(const char *index, const struct tuning_param *params, const char *text,
                 uint64_t value[TUNING_MAX])
{
    unsigned count = tuning_count(params);
    uint64_t parsed[TUNING_MAX];
    bool given[TUNING_MAX] = {false};

    ASSERT(count <= TUNING_MAX);
    for (unsigned i = 0; i < count; i++)
        parsed[i] = params[i].usual;
    for (bool more = text && *text; more;) {
        size_t len = strcspn(text, "&");
        int rc = take_part(index, params, text, len, parsed, given);
        if (rc != FAR_OK)
            return rc;
        more = text[len] == '&';
        text += len + 1;
    }
    memcpy(value, parsed, count * sizeof *value);
    return FAR_OK;
}

void tuning_text(const struct tuning_param *params, const uint64_t *value,
                 char text[FAR_TUNING_MAX + 1])
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned i = 0; i < tuning_count(params); i++) {
        used += (size_t)snprintf(text + used, FAR_TUNING_MAX + 1 - used, "%s%s=%" PRIu64,
                                 i ? "&" : "", params[i].name, value[i]);
        ASSERT(used <= FAR_TUNING_MAX);
    }
}

const char *tuning_smallest(const char *index)
{
    const struct index_ops *ops = index_find(index);
    return ops ? ops->smallest : NULL;
}

const char *tuning_varied(const char *index, unsigned n)
{
    const struct index_ops *ops = index_find(index);
    unsigned count = 0;
    while (ops && ops->varied && ops->varied[count])
        count++;
    n %= count + 1;
    return n > 0 ? ops->varied[n - 1] : tuning_smallest(index);
}
