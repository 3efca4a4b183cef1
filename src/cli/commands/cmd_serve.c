/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_serve.c: `bitnet serve`: options to a model, an engine and a server's configuration. What the
 * server does is in src/server.
 */
#include "base/threads/bandwidth.h"
#include "cli/core/command.h"
#include "app/interrupt.h"
#include "cli/options/model_opts.h"
#include "cli/core/settings.h"
#include "app/term.h"
#include "app/textio.h"
#include "server/server.h"
#include <stdlib.h>

struct serve_config {
    struct model_opts model;
    struct engine_opts engine;
    struct seqs_opts seqs;
    uint32_t itl_target_ms;
    const char *host, *name, *chat_template, *config_file;
    uint32_t port, max_tokens, max_queue, timeout_s, drain_s;
    uint32_t max_connections, max_body_mib, max_header_kib;
    uint32_t request_s, idle_s, write_s, linger_s;
    struct opt_list keys, cors, metrics_compat;
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
     .help = "the model's name for clients",
     .offset = AT(name),
     .shown = "as in its file",
     .aliases = "served-model-name"},
    MODEL_TEMPLATE_OPT(AT(chat_template)),
    MAX_TOKENS_OPT(AT(max_tokens), "0"),
    SETTINGS_FILE_OPT(AT(config_file)),
    SETTINGS_PRINT_OPT(AT(print_config)),
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
     .help = "limit on the gap between two tokens while other prompts are read; 0: none",
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
     .help = "API keys, one per line; reloaded on SIGHUP",
     .offset = AT(keys_file)},
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
     .help = "let web pages of this origin use the API; '*': all; may be repeated",
     .offset = AT(cors)},
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
static const struct opt_part parts[] = {
    {"Server", server_table, 0},
    {"Load", load_table, 0},
    {"Who may ask", access_table, 0},
    {"Watching", watch_table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Batch and context", seqs_opts_table, AT(seqs)},
    {NULL, engine_opts_table, AT(engine)},
    {NULL, draft_table, AT(engine)},
    {NULL, state_table, AT(engine)},
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

static bool compat(const struct serve_config *c, const char *name)
{
    for (size_t i = 0; i < c->metrics_compat.n; i++)
        if (strcmp(c->metrics_compat.items[i], name) == 0) return true;
    return false;
}

/* A short name for clients: what was asked for, or the model's own without its folder. */
static const char *client_name(const struct serve_config *c, const bitnet_model_info *info)
{
    if (c->name) return c->name;
    const char *slash = strrchr(info->name, '/');
    return slash && slash[1] ? slash + 1 : info->name;
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

static int serve(const struct serve_config *c, const bitnet_model *m, bitnet_engine *e)
{
    bitnet_model_info model = {.size = sizeof model};
    bitnet_engine_info engine = {.size = sizeof engine};
    bitnet_model_get_info(m, &model);
    bitnet_engine_get_info(e, &engine);
    tell_room(&engine);
    char *owned = NULL, *shown = NULL;
    bitnet_error err = {0};
    struct server_config s = {
        .net = net_from(c),
        .model_name = client_name(c, &model),
        .max_queue = c->max_queue,
        .timeout_s = c->timeout_s,
        .drain_s = c->drain_s,
        .default_max_tokens = c->max_tokens,
        .keys = c->keys.items,
        .n_keys = c->keys.n,
        .keys_file = c->keys_file,
        .access_log = c->access_log,
        .cors = c->cors.items,
        .n_cors = c->cors.n,
        .public_metrics = c->public_metrics,
        .metrics_vllm = compat(c, "vllm"),
        .metrics_llamacpp = compat(c, "llamacpp"),
        .pages = !c->no_pages,
        .warm_up = !c->no_warm_up,
        .scrub_mib_s = c->scrub_mib_s,
        .memory_bytes_s = c->no_warm_up ? 0 : bn_bandwidth_best(engine.threads),
        .listening = listening,
        .note = note,
        .stop_asked = stop_asked,
    };
    struct bn_json *all = settings_json(c, parts);
    s.config_json = shown = all ? bn_json_dump(all, BN_JSON_COMPACT) : NULL;
    bn_json_free(all);
    bitnet_status status =
        shown ? textio_chat_template(&owned, &s.chat_template, c->chat_template, &err)
              : bn_fail_nomem(&err, 0, "the configuration");
    if (status == BITNET_OK) status = server_run(&s, m, e, &err);
    free(owned);
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
    if (!c->tls_cert != !c->tls_key)
        return term_usage("serve", "--tls-cert and --tls-key belong together");
    return EXIT_DONE;
}

static int run(void *config, const struct arg_words *words)
{
    struct serve_config *c = config;
    int code = check_config(c);
    if (code != EXIT_DONE) return code;
    /* the word counts more: --model may come from a file or the environment */
    if (words->n) c->model.model = words->items[0];
    if (c->print_config) return term_print_json(settings_json(c, parts));
    bitnet_model *m = NULL;
    bitnet_engine *e = NULL;
    code = model_open(&m, c->model.model, &c->model, c->engine.head, c->engine.ffn, "serve");
    if (code == EXIT_DONE) {
        bitnet_error err = {0};
        bitnet_engine_options eo;
        model_engine_options(&eo, &c->model, &c->engine);
        model_seqs_options(&eo, &c->seqs);
        eo.itl_target_ms = c->itl_target_ms;
        code = bitnet_engine_open(&e, m, &eo, &err) == BITNET_OK ? serve(c, m, e) : term_fail(&err);
    }
    bitnet_engine_close(e);
    bitnet_model_close(m);
    return code;
}

const struct command cmd_serve = {
    .name = "serve",
    .usage = "[MODEL] [options]",
    .about =
        "\n"
        "OpenAI-compatible: /v1/chat/completions, /v1/completions, /v1/responses,\n"
        "/v1/embeddings, /v1/models; also /tokenize, /detokenize, /apply-template, /props,\n"
        "/health, /ready, /metrics. A chat page is at /, a dashboard at /dashboard. Requests are\n"
        "computed together; an answer does not depend on the others. SIGTERM: finishes accepted\n"
        "requests, then exits. SIGHUP: reloads keys and certificate, reopens the log.\n"
        "\n"
        "  bitnet serve                                 the small model, for this machine only\n"
        "  bitnet serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
        "  bitnet serve model.gguf --max-num-seqs 32 --kv-type int8 --access-log access.jsonl\n"
        "  bitnet serve --config serve.json --print-config\n",
    .parts = parts,
    .config_bytes = sizeof(struct serve_config),
    .max_words = 1,
    .settings = true,
    .run = run,
};
