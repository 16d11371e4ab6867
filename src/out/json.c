#include "out/json.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

json_t *out_object(const struct out_member *members, size_t count)
{
    json_t *object = json_object();
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        if (members[i].name)
            bad |= json_object_set_new(object, members[i].name, members[i].value);
        else
            json_decref(members[i].value);
    }
    if (bad == 0)
        return object;
    json_decref(object);
    return NULL;
}

json_t *out_count(uint64_t count)
{
    return json_integer((json_int_t)count);
}

json_t *out_text(const char *text)
{
    char *copy = text ? malloc(4 * strlen(text) + 1) : NULL;
    if (!text)
        return json_null();
    if (!copy)
        return NULL;
    text_utf8(text, copy);
    json_t *string = json_string(copy);
    free(copy);
    return string;
}
