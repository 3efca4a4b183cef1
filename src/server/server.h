/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h: the server as a whole. server_run serves until it is told to stop.
 *
 * Two threads: the event loop (connections, JSON, tokenizing, metrics) and the engine's driver
 * (worker.h), joined by its mailbox. A request passes: connection (net) -> route -> parsed and
 * encoded (openai_request) -> mailbox -> engine -> events -> reply or stream -> connection.
 */
#ifndef BN_SERVER_SERVER_H
#define BN_SERVER_SERVER_H

#include "server/http/net.h"

struct server_config {
    struct net_config net;
    const char *model_name;      /* as /v1/models calls it */
    const char *chat_template;   /* as in bitnet_chat_encode; NULL: the model's */
    uint32_t max_queue;          /* requests that wait for the engine; more are told 429 */
    uint32_t timeout_s;          /* of one request, from its arrival to its last byte; 0: none */
    uint32_t drain_s;            /* after SIGTERM: time for requests that were taken */
    uint32_t default_max_tokens; /* of requests that say nothing; 0: as many as fit */
    const char *const *keys;     /* [n_keys] */
    size_t n_keys;
    const char *keys_file;   /* NULL: none; no key at all: everybody may ask */
    const char *access_log;  /* NULL: none; "-": standard error */
    const char *const *cors; /* [n_cors] origins that may ask from a browser; "*": any */
    size_t n_cors;
    bool public_metrics; /* /metrics without a key */
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

/* The engine is used by the server alone while it runs. Ends with BITNET_OK after SIGTERM or SIGINT, when
 * the requests that were taken have been answered, or drain_s has passed. */
bitnet_status server_run(const struct server_config *c, const bitnet_model *m, bitnet_engine *e,
                         bitnet_error *err);

#endif
