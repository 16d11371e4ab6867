#include "report/lookup.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const json_t *lookup(const json_t *root, const char *path)
{
    const json_t *at = root;
    while (at && *path) {
        char part[LOOKUP_PATH_BYTES];
        size_t len = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)len, path);
        if (json_is_array(at))
            at = isdigit((unsigned char)*part) ? json_array_get(at, strtoul(part, NULL, 10)) : NULL;
        else
            at = json_object_get(at, part);
        path += len + (path[len] == '/');
    }
    return at;
}

double lookup_number(const json_t *root, const char *path)
{
    const json_t *value = lookup(root, path);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

const char *lookup_text(const json_t *root, const char *path)
{
    const char *text = json_string_value(lookup(root, path));
    return text ? text : "";
}
