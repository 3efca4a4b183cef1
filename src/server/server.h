/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: the server as a whole. server_run serves until it is told to stop.
 *
 * Threads: the event loop (connections, JSON, tokenizing, metrics), two for large bodies and, for each model in memory, its
 * engine's driver (worker.h), joined by its mailbox; a model is loaded and let go of on a thread for that. A
 * request passes: connection (net) -> route -> body -> model, which may have to be loaded -> parsed and
 * encoded (openai_request) -> mailbox -> engine -> events -> reply or stream -> connection.
 */
#ifndef BN_SERVER_SERVER_H
#define BN_SERVER_SERVER_H

#include "server/http/net.h"

/* A model that may be asked for. All of it is the caller's, and stays while the server runs. */
struct server_model {
    const char *name;          /* as /v1/models calls it */
    const char *aliases;       /* other names, separated by commas; NULL: none */
    const char *path;          /* NULL: the embedded one */
    const char *chat_template; /* as in bitnet_chat_encode; NULL: the model's */
    const char *const *lora;   /* [n_lora] adapters, as the option --lora has them */
    size_t n_lora;
    uint64_t file_bytes; /* about what it takes, before it was loaded once; 0: not known */
    /* Opens the model and an engine; on any thread, and again after they were closed. Gives up, if it can,
     * when *stop becomes true. */
    bitnet_status (*open)(const struct server_model *how, const _Atomic bool *stop,
                          bitnet_model **m, bitnet_engine **e, bitnet_error *err);
    void *user;
};

enum { SERVER_MAX_MODELS = 64, SERVER_DIGEST_BYTES = 65 };

/* How far a model is that is brought; for whoever brings it. */
struct server_progress {
    void *user;
    /* digest: of the file in work, "" if nobody says; bytes of it that are here, or that were compared with the
     * digest */
    void (*tell)(void *user, const char *digest, uint64_t done, uint64_t total, bool checking);
    const _Atomic bool *stop; /* it is to be given up */
};
/* Where models come from while it serves: the program's affair. */
struct server_store {
    void *user;
    /* Brings what a client calls `name`; on a thread of the server's, one at a time. What *out points to is the
     * store's, and stays while the server runs. */
    bitnet_status (*pull)(void *user, const char *name, const struct server_progress *how,
                          struct server_model *out, bitnet_error *err);
};

struct server_config {
    struct net_config net;
    const struct server_model *models; /* [n_models]; the first is for those who name none */
    size_t n_models;
    const struct server_store *store; /* NULL: no others come */
    bool
        on_demand; /* models are loaded when they are asked for, and let go of; else the first one stays */
    uint32_t max_models;         /* in memory at a time; 0: any number */
    uint64_t max_resident_bytes; /* of those in memory together; 0: no limit */
    uint32_t idle_unload_s;      /* without a request; 0: they stay until there is no room */
    uint32_t threads;            /* cores that all engines share */
    uint32_t max_queue;          /* requests that wait for the engine; more are told 429 */
    uint32_t timeout_s;          /* of one request, from its arrival to its last byte; 0: none */
    uint32_t drain_s;            /* after SIGTERM: time for requests that were taken */
    uint32_t slice_ms;           /* embeddings between two steps of answers take about so long */
    uint32_t default_max_tokens; /* of requests that say nothing; 0: as many as fit */
    uint32_t sampling_given; /* enum bitnet_sampling_given: what of this requests get that do not */
    bitnet_sampling sampling; /* say it themselves */
    uint64_t seed;            /* the same for them; with `seeded` */
    bool seeded;
    bitnet_pooling pooling; /* of vectors, where a request does not say it */
    const char *date;       /* for templates: "today", "none" or YYYY-MM-DD; NULL: none */
    const char *
        reasoning; /* "on", "auto", "off": for templates that know "enable_thinking"; "template" or NULL: as they are */
    bool context_shift; /* conversations that do not fit lose their oldest exchanges */
    bool as_llamacpp;   /* at OpenAI's paths replies are llama-server's where the two differ */
    bool strict;        /* unknown members of bodies are refused, not ignored */
    const char *const *hosts; /* [n_hosts] names beside its own by which it may be asked */
    size_t n_hosts;
    const char *const *keys; /* [n_keys] */
    size_t n_keys;
    const char *keys_file;   /* NULL: none; no key at all: everybody may ask */
    const char *access_log;  /* NULL: none; "-": standard error */
    const char *const *cors; /* [n_cors] origins that may ask from a browser; "*": any */
    size_t n_cors;
    bool lora_updates;          /* adapters may be loaded and unloaded by requests */
    const char *slot_save_path; /* folder for what is known of texts; NULL: nothing is saved */
    bool public_metrics;        /* /metrics without a key */
    bool metrics_vllm, metrics_llamacpp;
    bool pages; /* "/" and "/dashboard" */
    bool warm_up;
    uint32_t scrub_mib_s;
    double memory_bytes_s;   /* for the share of the bandwidth; 0: not known */
    const char *config_json; /* what /props tells about the configuration; no secrets */
    /* when connections are taken: the place for the line that says where */
    void *user;
    void (*listening)(void *user, const char *url);
    void (*note)(void *user, const char *sentence); /* what an operator should know */
    /* Was a signal to stop caught before the server listens to signals itself? NULL: none can be. */
    bool (*stop_asked)(void *user);
};

/* m, e: of the first model, if it is open already; they are the server's from here on. Ends with BITNET_OK
 * after SIGTERM or SIGINT, when the requests that were taken have been answered, or drain_s has passed. */
bitnet_status server_run(const struct server_config *c, bitnet_model *m, bitnet_engine *e,
                         bitnet_error *err);

#endif
