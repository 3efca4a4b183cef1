/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_serve.c: `bitnet serve`: options to a model, an engine and a server's configuration. What the
 * server does is in src/server.
 */
#include "base/machine/cgroup.h"
#include "base/threads/bandwidth.h"
#include "cli/options/backend.h"
#include "cli/options/hub_places.h"
#include "cli/options/pull_model.h"
#include "cli/options/serve_models.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "cli/options/model_opts.h"
#include "cli/core/settings.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/units.h"
#include "server/server.h"
#include <stdlib.h>
#include <unistd.h>

enum {
    SLICE_MS = 20, /* of embeddings, where there is no target */
    NAME_BYTES = 256
};

struct serve_config {
    struct net_place *place; /* the address, from run() on */
    struct model_opts model;
    struct engine_opts engine;
    struct adapter_opts adapters;
    bool lora_updates, require_key;
    const char *slot_save_path;
    float temperature, top_p, min_p;
    uint32_t top_k;
    uint64_t seed;
    bool temperature_given, top_p_given, min_p_given, top_k_given, seed_given;
    struct seqs_opts seqs;
    uint32_t itl_target_ms;
    const char *host, *name, *chat_template, *pooling;
    uint32_t port, max_tokens, max_queue, timeout_s, drain_s;
    uint32_t max_connections, max_body_mib, max_header_kib;
    uint32_t request_s, idle_s, write_s, linger_s;
    struct opt_list keys, cors, hosts, metrics_compat;
    const char *models_dir, *idle_unload;
    bool stored, allow_pull;
    struct opt_list model_options;
    uint64_t max_resident_bytes;
    uint32_t max_models;
    bool strict, context_shift;
    const char *reasoning;
    const char *compat;
    const char *date;
    const char *keys_file, *tls_cert, *tls_key, *access_log;
    bool public_metrics, no_pages, no_warm_up, print_config;
    uint32_t scrub_mib_s;
};

#define AT(field) offsetof(struct serve_config, field)
static const struct opt server_table[] = {
    {.kind = OPT_STR,
     .name = "host",
     .metavar = "ADDRESS",
     .help = "address to listen on; 0.0.0.0 or :: is all, unix:PATH a local socket",
     .offset = AT(host),
     .initial = "127.0.0.1"},
    {.kind = OPT_U32,
     .letter = 'p',
     .name = "port",
     .metavar = "N",
     .help = "0 takes any free port",
     .offset = AT(port),
     .initial = "8080",
     .min = 0,
     .max = 65535},
    {.kind = OPT_STR,
     .letter = 'a',
     .name = "alias",
     .metavar = "NAME",
     .help = "the model's name for clients; others of its names after commas",
     .offset = AT(name),
     .shown = "as in its file",
     .aliases = "served-model-name"},
    MODEL_TEMPLATE_OPT(AT(chat_template)),
    MAX_TOKENS_OPT(AT(max_tokens), "0"),
    {.kind = OPT_CHOICE,
     .name = "pooling",
     .help =
         "of embeddings, where a request does not say it; none: each token's vector, at /embedding",
     .offset = AT(pooling),
     .initial = "mean",
     .choices = "mean|last|none"},
    {.kind = OPT_STR,
     .name = "date",
     .metavar = "today|none|YYYY-MM-DD",
     .help = "date for chat templates that show one; none: they show a fixed one or none",
     .offset = AT(date),
     .initial = "today"},
    {.kind = OPT_STR,
     .name = "reasoning",
     .metavar = "template|auto|on|off",
     .help =
         "let models think before they answer, where the chat template knows \"enable_thinking\" "
         "and the request says nothing; auto: where they can, as on; template: as the template "
         "does "
         "by itself",
     .offset = AT(reasoning),
     .initial = "template"},
    {.kind = OPT_CHOICE,
     .name = "compat",
     .help = "whose replies to give at OpenAI's paths where two servers differ: openai's, or "
             "llama-server's: its errors, and null as the first text of a stream",
     .offset = AT(compat),
     .initial = "openai",
     .choices = "openai|llamacpp"},
    {.kind = OPT_FLAG,
     .name = "context-shift",
     .help =
         "conversations that do not fit the context lose their oldest exchanges; requests may say "
         "otherwise (\"truncation\")",
     .offset = AT(context_shift)},
    {.kind = OPT_FLAG,
     .name = "strict",
     .help = "refuse requests with members that nothing here knows, instead of ignoring and naming "
             "these",
     .offset = AT(strict)},
    SETTINGS_PRINT_OPT(AT(print_config)),
    {.kind = OPT_END},
};
static const struct opt several_table[] = {
    {.kind = OPT_STR,
     .name = "models-dir",
     .metavar = "DIR",
     .help = "serve each GGUF and each checkpoint folder in it, under its name; loaded when asked "
             "for",
     .offset = AT(models_dir)},
    {.kind = OPT_FLAG,
     .name = "stored",
     .help = "serve each model that 'bitnet list' shows, by its name, beside the others; loaded "
             "when asked "
             "for",
     .offset = AT(stored)},
    {.kind = OPT_FLAG,
     .name = "allow-pull",
     .help = "with --stored: clients may download further ones (/api/pull); where keys are needed "
             "those "
             "with admin=1",
     .offset = AT(allow_pull)},
    {.kind = OPT_SIZE,
     .name = "max-resident",
     .metavar = "BYTES",
     .help = "memory of all loaded models together, as 12G; those used longest ago make room",
     .offset = AT(max_resident_bytes),
     .initial = "auto",
     .shown = "three quarters of what is free at the start"},
    {.kind = OPT_U32,
     .name = "models-max",
     .metavar = "N",
     .help = "models loaded at a time; 0: as many as fit",
     .offset = AT(max_models),
     .initial = "0",
     .aliases = "max-models",
     .min = 0,
     .max = SERVER_MAX_MODELS},
    {.kind = OPT_STR,
     .name = "idle-unload",
     .metavar = "TIME",
     .help = "unload a model that nobody has asked for so long: 10m, 1h, 90; 0: never",
     .offset = AT(idle_unload),
     .initial = "0"},
    {.kind = OPT_LIST,
     .name = "model-option",
     .metavar = "NAME:OPTION=VALUE",
     .help = "an option of one model of several, as small:ctx-size=4096; may be repeated",
     .offset = AT(model_options)},
    {.kind = OPT_END},
};
static const struct opt load_table[] = {
    {.kind = OPT_U32,
     .name = "max-queue",
     .metavar = "N",
     .help = "answers that may wait for a place in the batch; beyond that, requests get 429",
     .offset = AT(max_queue),
     .initial = "256",
     .min = 0,
     .max = 4096},
    {.kind = OPT_U32,
     .name = "itl-target-ms",
     .metavar = "MS",
     .help = "limit on the gap between two tokens while prompts are read; 0: none, embeddings 50",
     .offset = AT(itl_target_ms),
     .initial = "0",
     .min = 0,
     .max = 60000},
    {.kind = OPT_U32,
     .name = "timeout",
     .metavar = "S",
     .help = "seconds for a request, from arrival to last byte; 0: no limit",
     .offset = AT(timeout_s),
     .initial = "600",
     .min = 0,
     .max = 86400},
    {.kind = OPT_U32,
     .name = "drain",
     .metavar = "S",
     .help = "seconds that requests have to finish after SIGTERM",
     .offset = AT(drain_s),
     .initial = "30",
     .aliases = "drain-timeout",
     .min = 0,
     .max = 86400},
    {.kind = OPT_U32,
     .name = "max-connections",
     .metavar = "N",
     .help = "open connections at most; further ones replace idle ones, or get 503",
     .offset = AT(max_connections),
     .initial = "1024",
     .min = 1,
     .max = 65536},
    {.kind = OPT_U32,
     .name = "max-body-mib",
     .metavar = "N",
     .help = "size limit of a request body, in MiB; all bodies in transit may have 16 times that",
     .offset = AT(max_body_mib),
     .initial = "4",
     .min = 1,
     .max = 1024},
    {.kind = OPT_U32,
     .name = "max-header-kib",
     .metavar = "N",
     .help = "size limit of a request's head, in KiB",
     .offset = AT(max_header_kib),
     .initial = "32",
     .min = 1,
     .max = 1024},
    {.kind = OPT_U32,
     .name = "request-time",
     .metavar = "S",
     .help = "seconds for a request to arrive, from first byte to last",
     .offset = AT(request_s),
     .initial = "30",
     .min = 1,
     .max = 86400},
    {.kind = OPT_U32,
     .name = "idle-time",
     .metavar = "S",
     .help = "seconds that a connection may be idle between requests",
     .offset = AT(idle_s),
     .initial = "75",
     .min = 1,
     .max = 86400},
    {.kind = OPT_U32,
     .name = "write-time",
     .metavar = "S",
     .help = "seconds within which a client must read some of what it is sent",
     .offset = AT(write_s),
     .initial = "30",
     .min = 1,
     .max = 86400},
    {.kind = OPT_U32,
     .name = "linger-time",
     .metavar = "S",
     .help = "seconds that a client has to read the rest of a complete reply",
     .offset = AT(linger_s),
     .initial = "30",
     .min = 1,
     .max = 86400},
    {.kind = OPT_END},
};
static const struct opt access_table[] = {
    {.kind = OPT_LIST,
     .name = "api-key",
     .metavar = "KEY",
     .help = "an API key; may be repeated. Visible in the process list: a file or the environment "
             "is safer",
     .offset = AT(keys),
     .secret = true},
    {.kind = OPT_STR,
     .name = "api-key-file",
     .metavar = "FILE",
     .help = "API keys, one per line, with their quotas; reloaded on SIGHUP",
     .offset = AT(keys_file)},
    {.kind = OPT_FLAG,
     .name = "require-key",
     .help = "do not serve without a key",
     .offset = AT(require_key)},
    {.kind = OPT_STR,
     .name = "tls-cert",
     .metavar = "FILE",
     .help = "certificate with its chain (PEM) for HTTPS; reloaded on SIGHUP",
     .offset = AT(tls_cert),
     .aliases = "ssl-cert-file ssl-certfile"},
    {.kind = OPT_STR,
     .name = "tls-key",
     .metavar = "FILE",
     .help = "its private key (PEM)",
     .offset = AT(tls_key),
     .aliases = "ssl-key-file ssl-keyfile"},
    {.kind = OPT_LIST,
     .name = "cors",
     .metavar = "ORIGIN",
     .help = "let web pages of this origin use the API; localhost: of this machine; '*': all; may "
             "be repeated",
     .offset = AT(cors)},
    {.kind = OPT_LIST,
     .name = "allowed-host",
     .metavar = "NAME",
     .help =
         "name by which the server may be asked, beside this machine's, when it listens to this "
         "machine only and needs no key; '*': any; may be repeated",
     .offset = AT(hosts)},
    {.kind = OPT_END},
};
static const struct opt watch_table[] = {
    {.kind = OPT_STR,
     .name = "access-log",
     .metavar = "FILE",
     .help = "write a JSON line per request; - is standard error",
     .offset = AT(access_log)},
    {.kind = OPT_FLAG,
     .name = "public-metrics",
     .help = "/metrics needs no key",
     .offset = AT(public_metrics)},
    {.kind = OPT_LIST,
     .name = "metrics-compat",
     .metavar = "vllm|llamacpp",
     .help = "also export metrics under the names that server uses; may be repeated",
     .offset = AT(metrics_compat)},
    {.kind = OPT_U32,
     .name = "scrub",
     .metavar = "MIB",
     .help = "MiB of weights per second verified against checksums while idle; 0: none",
     .offset = AT(scrub_mib_s),
     .initial = "64",
     .min = 0,
     .max = 65536},
    {.kind = OPT_FLAG,
     .name = "no-pages",
     .help = "do not serve the chat page and the dashboard",
     .offset = AT(no_pages)},
    {.kind = OPT_FLAG,
     .name = "no-warm-up",
     .help = "be ready at once: the first request pays for touching memory, and the bandwidth "
             "share is unknown",
     .offset = AT(no_warm_up),
     .aliases = "no-warmup"},
    {.kind = OPT_END},
};
static const struct opt lora_table[] = {
    {.kind = OPT_FLAG,
     .name = "lora-updates",
     .help =
         "adapters may be loaded and unloaded over HTTP, from any path that the server can read",
     .offset = AT(lora_updates)},
    {.kind = OPT_END},
};
static const struct opt sampling_table[] = {
    {.kind = OPT_F32,
     .name = "temp",
     .metavar = "T",
     .help = "temperature of requests that do not say it",
     .offset = AT(temperature),
     .initial = "1",
     .shown = "the model's, else the interface's",
     .given = AT(temperature_given),
     .aliases = "temperature",
     .min = 0,
     .max = 5},
    {.kind = OPT_U32,
     .name = "top-k",
     .metavar = "N",
     .help = "the same of top-k; 0 is off",
     .offset = AT(top_k),
     .initial = "0",
     .shown = "the model's, else the interface's",
     .given = AT(top_k_given),
     .min = 0,
     .max = 1 << 24},
    {.kind = OPT_F32,
     .name = "top-p",
     .metavar = "P",
     .help = "the same of top-p; 1 is off",
     .offset = AT(top_p),
     .initial = "1",
     .shown = "the model's, else the interface's",
     .given = AT(top_p_given),
     .min = 0,
     .max = 1},
    {.kind = OPT_F32,
     .name = "min-p",
     .metavar = "P",
     .help = "the same of min-p; 0 is off",
     .offset = AT(min_p),
     .initial = "0",
     .shown = "the model's, else the interface's",
     .given = AT(min_p_given),
     .min = 0,
     .max = 1},
    SEED_OPT("seed of requests that do not say it", AT(seed), .shown = "a new one each time",
             .initial = "0", .given = AT(seed_given)),
    {.kind = OPT_END},
};
static const struct opt slots_table[] = {
    {.kind = OPT_STR,
     .name = "slot-save-path",
     .metavar = "FOLDER",
     .help = "what is known of texts may be saved to files there and restored (/slots/ID), by all "
             "who may ask",
     .offset = AT(slot_save_path)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Server", server_table, 0},
    {"Several models", several_table, 0},
    {"Load", load_table, 0},
    {"Who may ask", access_table, 0},
    {"Watching", watch_table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Batch and context", seqs_opts_table, AT(seqs)},
    {NULL, engine_opts_table, AT(engine)},
    {NULL, draft_table, AT(engine)},
    {NULL, state_table, AT(engine)},
    {"Adapters", named_adapters_table, AT(adapters)},
    {NULL, lora_table, 0},
    {"Slots", slots_table, 0},
    {"Sampling", sampling_table, 0},
    {NULL, NULL, 0},
};
/* What one model of several may have for itself. */
static const struct opt own_table[] = {
    {.kind = OPT_STR, .name = "alias", .metavar = "NAME", .offset = AT(name)},
    MODEL_TEMPLATE_OPT(AT(chat_template)),
    {.kind = OPT_END},
};
static const struct opt_part own_parts[] = {
    {"Model", own_table, 0},
    {NULL, model_opts_table, AT(model)},
    {NULL, seqs_opts_table, AT(seqs)},
    {NULL, engine_opts_table, AT(engine)},
    {NULL, draft_table, AT(engine)},
    {NULL, state_table, AT(engine)},
    {NULL, named_adapters_table, AT(adapters)},
    {NULL, NULL, 0},
};
#undef AT

static void listening(void *user, const char *url)
{
    (void)user;
    fprintf(stderr, "bitnet: listening on %s\n", url);
}

static void note(void *user, const char *sentence)
{
    (void)user;
    term_note(sentence);
}

static bool stop_asked(void *user)
{
    (void)user;
    return interrupt_pending();
}

static struct net_config net_from(const struct serve_config *c)
{
    return (struct net_config){
        .host = c->host,
        .port = c->port,
        .place = c->place,
        .max_connections = c->max_connections,
        .limits = {.head_bytes = (size_t)c->max_header_kib << 10,
                   .body_bytes = (uint64_t)c->max_body_mib << 20},
        .bodies_bytes = (size_t)c->max_body_mib << 24,
        .request_ms = c->request_s * 1000,
        .idle_ms = c->idle_s * 1000,
        .write_ms = c->write_s * 1000,
        .linger_ms = c->linger_s * 1000,
        .stream_high_bytes = 64 << 10,
        .tls_cert = c->tls_cert,
        .tls_key = c->tls_key,
    };
}

static bitnet_pooling pooling(const struct serve_config *c)
{
    return strcmp(c->pooling, "none") == 0   ? BITNET_POOL_NONE
           : strcmp(c->pooling, "last") == 0 ? BITNET_POOL_LAST
                                             : BITNET_POOL_MEAN;
}

static bool compat(const struct serve_config *c, const char *name)
{
    for (size_t i = 0; i < c->metrics_compat.n; i++)
        if (strcmp(c->metrics_compat.items[i], name) == 0) return true;
    return false;
}

/* ------------------------------------------------------------------ models */

/* A short name for clients: what was asked for, or the model's own without its folder. The first of several
 * names; the others are aliases. */
static const char *client_name(char out[NAME_BYTES], const struct serve_config *c,
                               const bitnet_model_info *info)
{
    const char *slash = info ? strrchr(info->name, '/') : NULL;
    const char *name = c->name && *c->name ? c->name : slash && slash[1] ? slash + 1 : info->name;
    size_t n = c->name && *c->name ? strcspn(name, ",") : strlen(name);
    snprintf(out, NAME_BYTES, "%.*s", (int)n, name);
    return out;
}

static int stop_loading(void *user, const char *what, uint64_t done, uint64_t total)
{
    (void)what, (void)done, (void)total;
    return *(const _Atomic bool *)user;
}

/* On a thread of the server's. Each model has options of its own, which nobody else looks at. */
static bitnet_status open_one(const struct server_model *how, const _Atomic bool *stop,
                              bitnet_model **m, bitnet_engine **e, bitnet_error *err)
{
    struct serve_config *c = how->user;
    bitnet_engine_options eo;
    BN_TRY(model_open_quietly(m, c->model.model, &c->model, c->engine.head, c->engine.ffn,
                              stop_loading, (void *)(uintptr_t)stop, err));
    model_engine_options(&eo, &c->model, &c->engine);
    model_seqs_options(&eo, &c->seqs);
    eo.itl_target_ms = c->itl_target_ms;
    return bitnet_engine_open(e, *m, &eo, err);
}

static struct server_model describe(const struct serve_config *c, const char *name)
{
    const char *comma = c->name ? strchr(c->name, ',') : NULL, *path = c->model.model;
    return (struct server_model){.name = name,
                                 .aliases = comma ? comma + 1 : NULL,
                                 .path = path,
                                 .lora = c->adapters.lora.items,
                                 .n_lora = c->adapters.lora.n,
                                 .file_bytes = serve_models_bytes(model_path_resolve(path)),
                                 .open = open_one,
                                 .user = (void *)(uintptr_t)c};
}

static void tell_room(const bitnet_engine_info *e)
{
    char kv[TERM_SIZE_BYTES], one[TERM_SIZE_BYTES], all[TERM_SIZE_BYTES];
    fprintf(stderr, "bitnet: %u sequences at a time, %u tokens each at most; KV cache %s (%s)\n",
            e->max_seqs, e->ctx_tokens, term_size(kv, e->kv.bytes), e->kv.type);
    if (e->states.seq_bytes)
        fprintf(stderr, "bitnet: states of %s each, for %u sequences and %u snapshots: %s\n",
                term_size(one, e->states.seq_bytes), e->max_seqs, e->states.snapshots,
                term_size(all, e->states.bytes));
}

/* check_config has seen that it is a time. */
static uint32_t idle_seconds(const struct serve_config *c)
{
    int64_t s = 0;
    units_seconds(&s, c->idle_unload);
    return s < 0 ? 0 : (uint32_t)bn_min_size((uint64_t)s, UINT32_MAX);
}

/* Half the memory would be too little for one large model, all of it too much for everything else. */
static uint64_t resident_limit(const struct serve_config *c, size_t n_models)
{
    if (c->max_resident_bytes > 1) return c->max_resident_bytes;
    if (c->max_resident_bytes == 1 || n_models == 1) return 0;
    return bn_memory_available(&bn_sysfiles_here) / 4 * 3;
}

/* ------------------------------------------------------------------ models that come over HTTP */

/* Models that were brought, with their options; as long as the server runs. */
struct bringing {
    const struct serve_config *c; /* for models without options of their own */
    struct hub_places *places;
    struct brought {
        struct serve_config config;
        char name[HUB_TYPED_BYTES];
        struct hub_local local;
        struct brought *next;
    } * first;
};

static bool stop_asked_for(void *user)
{
    const struct server_progress *how = user;
    return *how->stop;
}

static void on_pull(void *user, const struct hub_pull_state *s)
{
    const struct server_progress *how = user;
    how->tell(how->user, s->digest, s->file_done, s->file_bytes, s->checking);
}

/* On a thread of the server's, one model at a time. */
static bitnet_status bring(void *user, const char *name, const struct server_progress *how,
                           struct server_model *out, bitnet_error *err)
{
    struct bringing *b = user;
    struct hub_name meant;
    const struct hub_pull_view view = {.user = (void *)(uintptr_t)how, .progress = on_pull};
    const struct hub_cancel cancel = {stop_asked_for, (void *)(uintptr_t)how};
    BN_TRY(serve_models_meant(&meant, name, err));
    struct brought *got = bn_calloc(1, sizeof *got);
    if (!got) return bn_fail_nomem(err, sizeof *got, "a model");
    bitnet_status s = pull_quietly(&got->local, b->places, &meant, &view, &cancel, err);
    if (s != BITNET_OK) {
        free(got);
        return s;
    }
    snprintf(got->name, sizeof got->name, "%s", name);
    got->config = *b->c;
    got->config.name = NULL;
    got->config.model.model = got->local.path;
    got->next = b->first;
    b->first = got;
    *out = describe(&got->config, got->name);
    out->chat_template = NULL;
    return BITNET_OK;
}

static void bringing_free(struct bringing *b)
{
    for (struct brought *next; b->first; b->first = next) {
        next = b->first->next;
        free(b->first);
    }
}

/* m, e: of the first model, if it is open. store: where others come from; NULL: nowhere */
static int serve(const struct serve_config *c, const struct server_model *models, size_t n_models,
                 bitnet_model *m, bitnet_engine *e, const struct server_store *store)
{
    uint32_t threads = c->model.threads ? c->model.threads : bitnet_default_threads();
    char *shown = NULL;
    bitnet_error err = {0};
    struct server_config s = {
        .net = net_from(c),
        .models = models,
        .n_models = n_models,
        .store = store,
        .on_demand = !m || store || idle_seconds(c),
        .max_models = c->max_models,
        .max_resident_bytes = resident_limit(c, n_models),
        .idle_unload_s = idle_seconds(c),
        .threads = threads,
        .max_queue = c->max_queue,
        .timeout_s = c->timeout_s,
        .drain_s = c->drain_s,
        .slice_ms = c->itl_target_ms ? c->itl_target_ms : SLICE_MS,
        .default_max_tokens = c->max_tokens,
        .pooling = pooling(c),
        .date = c->date,
        .reasoning = c->reasoning,
        .context_shift = c->context_shift,
        .as_llamacpp = strcmp(c->compat, "llamacpp") == 0,
        .strict = c->strict,
        .hosts = c->hosts.items,
        .n_hosts = c->hosts.n,
        .keys = c->keys.items,
        .n_keys = c->keys.n,
        .keys_file = c->keys_file,
        .access_log = c->access_log,
        .cors = c->cors.items,
        .n_cors = c->cors.n,
        .lora_updates = c->lora_updates,
        .slot_save_path = c->slot_save_path,
        .sampling_given = (c->temperature_given ? BITNET_SAMPLING_TEMPERATURE : 0u) |
                          (c->top_k_given ? BITNET_SAMPLING_TOP_K : 0u) |
                          (c->top_p_given ? BITNET_SAMPLING_TOP_P : 0u) |
                          (c->min_p_given ? BITNET_SAMPLING_MIN_P : 0u),
        .sampling = {.temperature = c->temperature,
                     .top_k = c->top_k,
                     .top_p = c->top_p,
                     .min_p = c->min_p},
        .seed = c->seed,
        .seeded = c->seed_given,
        .public_metrics = c->public_metrics,
        .metrics_vllm = compat(c, "vllm"),
        .metrics_llamacpp = compat(c, "llamacpp"),
        .pages = !c->no_pages,
        .warm_up = !c->no_warm_up,
        .scrub_mib_s = c->scrub_mib_s,
        .memory_bytes_s = c->no_warm_up ? 0 : bn_bandwidth_best(threads),
        .listening = listening,
        .note = note,
        .stop_asked = stop_asked,
    };
    struct bn_json *all = settings_json(c, parts);
    s.config_json = shown = all ? bn_json_dump(all, BN_JSON_COMPACT) : NULL;
    bn_json_free(all);
    bitnet_status status;
    if (shown) {
        status = server_run(&s, m, e, &err);
    } else {
        status = bn_fail_nomem(&err, 0, "the configuration");
        bitnet_engine_close(e);
        bitnet_model_close(m);
    }
    free(shown);
    return status == BITNET_OK ? EXIT_DONE : term_fail(&err);
}

static int check_config(const struct serve_config *c)
{
    for (size_t i = 0; i < c->metrics_compat.n; i++)
        if (strcmp(c->metrics_compat.items[i], "vllm") != 0 &&
            strcmp(c->metrics_compat.items[i], "llamacpp") != 0)
            return term_usage("serve", "--metrics-compat knows vllm and llamacpp, not '%s'",
                              c->metrics_compat.items[i]);
    if (c->allow_pull && !c->stored) return term_usage("serve", "--allow-pull belongs to --stored");
    if (!c->tls_cert != !c->tls_key)
        return term_usage("serve", "--tls-cert and --tls-key belong together");
    if (c->require_key && !c->keys.n && !c->keys_file)
        return term_usage("serve", "--require-key is set and there is no key; BITNET_API_KEY or "
                                   "--api-key-file gives one, --require-key=false does without");
    int64_t idle;
    if (!units_seconds(&idle, c->idle_unload))
        return term_usage("serve", "--idle-unload expects a time such as 10m or 90, not '%s'",
                          c->idle_unload);
    return EXIT_DONE;
}

/* One model, opened before anybody can ask, with a bar that shows how far it is. */
static int serve_one(struct serve_config *c)
{
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    bitnet_error err = {0};
    bitnet_engine_options eo;
    int code = model_find(&c->model.model, &c->model.from, "serve");
    if (code == EXIT_DONE)
        code = model_open(&m, c->model.model, &c->model, c->engine.head, c->engine.ffn, "serve");
    if (code != EXIT_DONE) return code;
    model_engine_options(&eo, &c->model, &c->engine);
    model_seqs_options(&eo, &c->seqs);
    eo.itl_target_ms = c->itl_target_ms;
    char *owned = NULL, name[NAME_BYTES];
    bitnet_model_info info = {.size = sizeof info};
    bitnet_engine_info engine = {.size = sizeof engine};
    bitnet_model_get_info(m, &info);
    struct server_model one = describe(c, client_name(name, c, &info));
    bitnet_status s = textio_chat_template(&owned, &one.chat_template, c->chat_template, &err);
    if (s == BITNET_OK) s = bitnet_engine_open(&e, m, &eo, &err);
    if (s == BITNET_OK) {
        bitnet_engine_get_info(e, &engine);
        tell_room(&engine);
        code = serve(c, &one, 1, m, e, NULL);
    } else {
        bitnet_model_close(m);
        code = term_fail(&err);
    }
    free(owned);
    return code;
}

/* What is to be downloaded is so now, and not while somebody waits. */
static int find_all(struct serve_models *l)
{
    int code = EXIT_DONE;
    for (size_t i = 0; code == EXIT_DONE && i < l->n; i++) {
        struct serve_config *c = l->items[i].config;
        c->model.model = l->items[i].path;
        code = model_find(&c->model.model, &c->model.from, "serve");
    }
    return code;
}

static bitnet_status describe_all(struct server_model *out, char **owned, struct serve_models *l,
                                  bitnet_error *err)
{
    for (size_t i = 0; i < l->n; i++) {
        struct serve_config *c = l->items[i].config;
        out[i] = describe(c, l->items[i].name);
        out[i].aliases =
            c->name ? c->name : l->items[i].alias; /* beside the name that it has by its word */
        BN_TRY(textio_chat_template(&owned[i], &out[i].chat_template, c->chat_template, err));
    }
    return BITNET_OK;
}

/* Several: none is opened before somebody asks for it. */
static int serve_several(struct serve_config *c, struct serve_models *l, struct hub_places *places)
{
    struct server_model *models = bn_calloc(l->n, sizeof *models);
    char **owned = bn_calloc(l->n, sizeof *owned);
    bitnet_error err = {0};
    int code = backend_check(c->model.backend, "serve");
    if (code == EXIT_DONE) code = model_cpus_apply(c->model.cpus, "serve");
    if (code == EXIT_DONE) backend_probe(&c->model.backend);
    bitnet_status s = models && owned ? BITNET_OK : bn_fail_nomem(&err, 0, "the list of models");
    if (s == BITNET_OK)
        s = serve_models_configure(l, c, sizeof *c, own_parts, &c->model_options, &err);
    if (code == EXIT_DONE && s != BITNET_OK) code = term_fail(&err);
    if (code == EXIT_DONE) code = find_all(l);
    if (code == EXIT_DONE) s = describe_all(models, owned, l, &err);
    if (code == EXIT_DONE && s != BITNET_OK) code = term_fail(&err);
    else if (code == EXIT_DONE) {
        fprintf(stderr, "bitnet: %zu models, loaded when they are asked for\n", l->n);
        struct bringing b = {.c = c, .places = places};
        const struct server_store store = {&b, bring};
        code = serve(c, models, l->n, NULL, NULL, c->allow_pull ? &store : NULL);
        bringing_free(&b);
    }
    for (size_t i = 0; owned && i < l->n; i++) free(owned[i]);
    free(owned);
    free(models);
    return code;
}

/* The words count more than --model, which may come from a file or the environment. */
static bitnet_status gather(struct serve_models *l, const struct serve_config *c,
                            const struct arg_words *words, const struct hub_places *places,
                            bitnet_error *err)
{
    for (size_t i = 0; i < words->n; i++) BN_TRY(serve_models_add(l, words->items[i], err));
    if (!words->n && c->model.model) BN_TRY(serve_models_add(l, c->model.model, err));
    if (c->models_dir) BN_TRY(serve_models_scan(l, c->models_dir, err));
    if (places) BN_TRY(serve_models_stored(l, places, err));
    return l->n ? BITNET_OK : serve_models_add(l, "embedded", err);
}

static int serve_words(struct serve_config *c, const struct arg_words *words)
{
    struct serve_models l = {.n = 0};
    struct hub_places *places = NULL;
    bitnet_error err = {0};
    int code = c->stored ? hub_places_new(&places) : EXIT_DONE;
    if (code == EXIT_DONE && gather(&l, c, words, places, &err) != BITNET_OK)
        code = term_fail(&err);
    if (code == EXIT_DONE) code = serve_several(c, &l, places);
    serve_models_free(&l);
    free(places);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct serve_config *c = config;
    bitnet_error err = {0};
    int code = check_config(c);
    if (code != EXIT_DONE) return code;
    bool named = words->n == 1 && strchr(words->items[0], '=') && access(words->items[0], F_OK);
    bool one = words->n <= 1 && !c->models_dir && !named && !c->stored;
    if (one && words->n) c->model.model = words->items[0];
    if (c->print_config) return term_print_json(settings_json(c, parts));
    if (one && c->model_options.n)
        return term_usage("serve", "--model-option is for several models; give the option itself");
    /* first of all: that it is taken is not to be learned after minutes of loading */
    if (net_place_take(&c->place, c->host, c->port, &err) != BITNET_OK) return term_fail(&err);
    code = one ? serve_one(c) : serve_words(c, words);
    net_place_leave(c->place);
    return code;
}

const struct command cmd_serve = {
    .name = "serve",
    .ranks = true,
    .usage = "[MODEL | NAME=MODEL...] [options]",
    .about =
        "\n"
        "OpenAI-compatible: /v1/chat/completions, /v1/completions, /v1/responses,\n"
        "/v1/embeddings, /v1/models; Ollama's /api/chat, /api/generate, /api/embed, /api/tags;\n"
        "Anthropic's /v1/messages; llama-server's /completion, /infill, /embedding, /rerank;\n"
        "adapters by /v1/load_lora_adapter and /lora-adapters; also /tokenize, /detokenize,\n"
        "/apply-template, /props, /health, /ready, /metrics. A chat page is at /, a dashboard at\n"
        "/dashboard. Requests are computed together; an answer does not depend on the others.\n"
        "SIGTERM: finishes accepted requests, then exits. SIGHUP: reloads keys and certificate,\n"
        "reopens the log.\n"
        "\n"
        "  bitnet serve                                 the small model, for this machine only\n"
        "  bitnet serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
        "  bitnet serve model.gguf --max-num-seqs 32 --kv-type int8 --access-log access.jsonl\n"
        "  bitnet serve small=a.gguf large=b.gguf --max-resident 12G\n"
        "  bitnet serve --models-dir models --idle-unload 10m\n"
        "  bitnet serve --config serve.json --print-config\n",
    .first = "host port model alias api-key-file threads ctx-size max-num-seqs kv-type",
    .parts = parts,
    .config_bytes = sizeof(struct serve_config),
    .max_words = SERVER_MAX_MODELS,
    .run = run,
};
