#include "report/page.h"

#include "report/html.h"
#include "report/lookup.h"
#include "report/page_internal.h"

bool page_write(FILE *out, const json_t *results)
{
    bool good = true;
    html_begin(out, "Farside results");
    for (size_t i = 0; i < json_array_size(results) && good; i++) {
        char path[LOOKUP_PATH_BYTES];
        snprintf(path, sizeof path, "%zu", i);
        bool reproduced = json_object_get(json_array_get(results, i), "experiments") != NULL;
        good = (reproduced ? page_reproduce : page_bench)(out, results, path);
    }
    html_end(out);
    return good;
}
