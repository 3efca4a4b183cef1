/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_cache.c: `bitnet cache`: what is kept of packed models, whether it is as it was written, and how
 * to be rid of it.
 */
#include "cli/options/model_opts.h"
#include "cli/core/command.h"
#include "app/term.h"
#include <stdlib.h>
#include <time.h>

struct cache_config {
    const char *cache;
    bool json;
};

#define AT(field) offsetof(struct cache_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .name = "cache",
     .metavar = "DIR",
     .help = "the folder; auto: bitnet in $XDG_CACHE_HOME or ~/.cache",
     .offset = AT(cache),
     .initial = "auto"},
    {.kind = OPT_FLAG, .name = "json", .help = "print the report as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Cache", table, 0}, {NULL, NULL, 0}};
#undef AT

struct report {
    struct bn_json *entries;
    bool json, verify, failed; /* failed: one is damaged */
    bool stopped;
    uint64_t n, bytes;
};

static const char *state(const bitnet_cache_entry *e)
{
    if (!e->good) return "unusable";
    return e->current ? "current" : "stale";
}

static void day(char *out, size_t n, uint64_t seconds)
{
    time_t t = (time_t)seconds;
    struct tm tm;
    if (!localtime_r(&t, &tm) || !strftime(out, n, "%Y-%m-%d %H:%M", &tm)) *out = 0;
}

static void print_entry(const bitnet_cache_entry *e, const char *verdict)
{
    char size[TERM_SIZE_BYTES], used[32];
    day(used, sizeof used, e->used_s);
    printf("%9s  %s  %-8s  ", term_size(size, e->bytes), used, verdict);
    term_print_clean(stdout, *e->source ? e->source : e->path);
    fputc('\n', stdout);
}

static struct bn_json *json_entry(const bitnet_cache_entry *e, const char *verdict)
{
    return bn_json_pack("{s:o, s:o, s:I, s:I, s:s}", "path",
                        term_json_string(e->path, strlen(e->path)), "model",
                        term_json_string(e->source, strlen(e->source)), "bytes", (int64_t)e->bytes,
                        "used", (int64_t)e->used_s, "state", verdict);
}

static int show(void *user, const bitnet_cache_entry *e)
{
    struct report *r = user;
    const char *verdict = state(e);
    if (r->verify) {
        struct term_progress bar = {.note = e->source};
        bitnet_error err = {0};
        bitnet_status s = bitnet_cache_verify(e->path, term_progress_show, &bar, &err);
        term_progress_end(&bar);
        r->stopped = s == BITNET_E_CANCELLED;
        if (r->stopped) return 1;
        if (s != BITNET_OK) term_fail(&err);
        r->failed |= s != BITNET_OK;
        verdict = s == BITNET_OK ? "good" : "damaged";
    }
    r->n++;
    r->bytes += e->bytes;
    if (r->json) bn_json_append(r->entries, json_entry(e, verdict));
    else print_entry(e, verdict);
    return 0;
}

static int list(const struct cache_config *c, const char *folder, bool verify)
{
    char size[TERM_SIZE_BYTES];
    bitnet_error err = {0};
    struct report r = {.json = c->json, .verify = verify};
    if (c->json && !(r.entries = bn_json_array())) return term_fail_text("out of memory");
    if (bitnet_cache_list(folder, show, &r, &err) != BITNET_OK) return term_fail(&err);
    int code = r.stopped ? EXIT_INTERRUPTED : r.failed ? EXIT_FAILED : EXIT_DONE;
    if (c->json) {
        int printed = term_print_json(
            bn_json_pack("{s:o, s:I, s:o}", "folder", term_json_string(folder, strlen(folder)),
                         "bytes", (int64_t)r.bytes, "entries", r.entries));
        return printed == EXIT_DONE ? code : printed;
    }
    printf("%llu packed %s, %s, in ", (unsigned long long)r.n, r.n == 1 ? "copy" : "copies",
           term_size(size, r.bytes));
    term_print_clean(stdout, folder);
    fputc('\n', stdout);
    return code;
}

static int clear(const struct cache_config *c, const char *folder)
{
    char size[TERM_SIZE_BYTES];
    uint64_t n, bytes;
    bitnet_error err = {0};
    if (bitnet_cache_clear(folder, &n, &bytes, &err) != BITNET_OK) return term_fail(&err);
    if (c->json)
        return term_print_json(
            bn_json_pack("{s:I, s:I}", "removed", (int64_t)n, "bytes", (int64_t)bytes));
    printf("%llu packed %s removed, %s\n", (unsigned long long)n, n == 1 ? "copy" : "copies",
           term_size(size, bytes));
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    const struct cache_config *c = config;
    const char *what = words->n ? words->items[0] : "list";
    char folder[CACHE_PATH_BYTES];
    bool known =
        strcmp(what, "list") == 0 || strcmp(what, "clear") == 0 || strcmp(what, "verify") == 0;
    if (!known) return term_usage("cache", "'%s' is unknown; list, verify and clear exist", what);
    if (!cache_folder(folder, c->cache))
        return term_fail_text("there is no cache: neither XDG_CACHE_HOME nor HOME is set; name a "
                              "folder with --cache");
    return *what == 'c' ? clear(c, folder) : list(c, folder, *what == 'v');
}

const struct command cmd_cache = {
    .name = "cache",
    .usage = "[list|verify|clear] [options]",
    .about = "\n"
             "Large models are packed for the kernels of this machine when they are first opened, "
             "and the packed\n"
             "copy is kept for the next start. list shows the copies: current if the model is "
             "unchanged, stale\n"
             "if it has changed or is gone. verify reads every byte and compares checksums. clear "
             "removes all;\n"
             "programs that use a copy keep running.\n"
             "\n"
             "  bitnet cache\n"
             "  bitnet cache verify --json\n"
             "  bitnet cache clear\n",
    .first_word = "list|verify|clear",
    .parts = parts,
    .config_bytes = sizeof(struct cache_config),
    .max_words = 1,
    .run = run,
};
