/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_version.c: `bitnet version`: the version, and the kernels in this program with those that
 * this CPU can run.
 */
#include "cli/core/command.h"
#include "app/term.h"

struct version_config {
    bool json;
};

static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print as JSON",
     .offset = offsetof(struct version_config, json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Output", table, 0}, {NULL, NULL, 0}};

static int run(void *config, const struct arg_words *words)
{
    const struct version_config *c = config;
    (void)words;
    struct bn_json *backends = bn_json_array();
    const char *name;
    int supported;
    if (!c->json) printf("bitnet %s\nkernels:", bitnet_version());
    for (size_t i = 0; (name = bitnet_backend_name(i, &supported)); i++) {
        bn_json_append(backends, bn_json_pack("{s:s, s:b}", "name", name, "supported", supported));
        if (!c->json) printf(" %s%s", name, supported ? "" : " (not on this CPU)");
    }
    if (c->json)
        return term_print_json(bn_json_pack("{s:s, s:o, s:I}", "version", bitnet_version(),
                                            "backends", backends, "default_threads",
                                            (int64_t)bitnet_default_threads()));
    bn_json_free(backends);
    printf("\nthreads: %u\n", bitnet_default_threads());
    return EXIT_DONE;
}

const struct command cmd_version = {
    .name = "version",
    .usage = "[--json]",
    .about = "",
    .parts = parts,
    .config_bytes = sizeof(struct version_config),
    .max_words = 0,
    .no_settings = true,
    .run = run,
};
