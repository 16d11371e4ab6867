/* farside doctor: looks at what commonly goes wrong, and says how to fix it. */
#include "base/text.h"
#include "cli/cli.h"
#include "cli/doctor.h"
#include "out/json.h"

#include <jansson.h>
#include <stdio.h>

#define COMMAND "doctor"

/* Runs the checks, until one of them is interrupted. */
static void examine(struct doctor *d, const char *uri)
{
    static void (*const checks[])(struct doctor * d) = {doctor_machine, doctor_rdma, doctor_ucx,
                                                        doctor_fabrics};
    for (unsigned i = 0; i < sizeof checks / sizeof *checks && !cli_stopped(); i++)
        checks[i](d);
    if (*uri && !cli_stopped())
        doctor_pool(d, uri);
}

static void conclude(const struct doctor *d, const char *uri)
{
    unsigned problems = d->count[DOCTOR_PROBLEM], warnings = d->count[DOCTOR_WARNING];
    if (d->checks)
        cli_json_print(json_pack("{s:s, s:o, s:i, s:i, s:O}", "farside", far_version(), "uri",
                                 out_text(*uri ? uri : NULL), "problems", (int)problems, "warnings",
                                 (int)warnings, "checks", d->checks));
    else
        printf("\n%u problem%s, %u warning%s\n", problems, text_plural(problems), warnings,
               text_plural(warnings));
}

int cmd_doctor(int argc, char **argv)
{
    const char *uri = "", *root = "";
    bool json = false;
    const struct cli_option options[] = {
        CLI_POOL(&uri),
        {"json", NULL, "print JSON", .flag = &json},
        {.name = "root", .text = &root}, /* for tests: where the files of the system are */
        {.name = NULL},
    };
    const struct cli_syntax syntax = {
        .command = COMMAND,
        .usage = "[[--pool] URI] [OPTION...]",
        .about = "Looks at what commonly goes wrong on this machine, and says how to fix it. With "
                 "the URI of a pool, also looks at what its fabric needs, whether its memory nodes "
                 "answer, and how long a round trip takes.",
        .notes = "The exit status is 1 if there is a problem. Warnings do not count.",
        .options = options,
        .pool_arg = true,
    };
    struct uri parsed = {.scheme = ""};
    int code = CLI_OK;
    if (!cli_read(&syntax, argc, argv, &code))
        return code;
    if (*uri && uri_parse(uri, &parsed) != FAR_OK)
        return cli_misused(COMMAND, "%s", far_error_detail());
    cli_stop_on_signals();
    struct doctor d = {.root = root, .scheme = parsed.scheme, .checks = json ? json_array() : NULL};
    examine(&d, uri);
    if (!cli_interrupted())
        conclude(&d, uri);
    json_decref(d.checks);
    return d.count[DOCTOR_PROBLEM] > 0 ? CLI_FAILED : CLI_OK;
}
