/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: what the server counts, and how it is told: as Prometheus text, and as JSON for the
 * dashboard. Used by the thread of the event loop alone. Every metric stands once in metrics.def.
 * Times are measured where users feel them: from the moment a request was complete to the moment its
 * bytes are handed to the connection.
 */
#ifndef BN_SERVER_METRICS_METRICS_H
#define BN_SERVER_METRICS_METRICS_H

#include "base/buf.h"
#include "json/json.h"
#include "server/http/net.h"
#include "server/engine/worker.h"

struct metrics;

struct metrics_config {
    const bitnet_model *model;
    const char
        *served_name;      /* by which clients know it, and which is told where there are several */
    double memory_bytes_s; /* what the memory can do, measured; 0: not known */
    bool vllm, llamacpp;   /* also under the names that these servers use */
};

bitnet_status metrics_open(struct metrics **out, const struct metrics_config *c, bitnet_error *err);
void metrics_close(struct metrics *m);
/* Of metrics that were opened without a model: this one is loaded. May be said again. */
bitnet_status metrics_set_model(struct metrics *m, const bitnet_model *model, bitnet_error *err);
/* The engine goes, and what it has counted starts from 0 in the next one; the sums go on. */
void metrics_retire(struct metrics *m, const struct worker_state *w);

/* A request was answered with this code. endpoint: the path of a route, or "other". */
void metrics_request(struct metrics *m, const char *endpoint, int code, uint64_t ns);
/* Requests that were not taken: "queue_full", "draining", "key", ... */
void metrics_ignored(struct metrics *m, uint32_t n); /* members of a body */
void metrics_rejected(struct metrics *m, const char *reason);

/* What the holder of a key, by the name of its account, has used or was refused. */
void metrics_key_request(struct metrics *m, const char *key);
void metrics_key_tokens(struct metrics *m, const char *key, uint64_t n_prompt,
                        uint64_t n_generated);
void metrics_key_rejected(struct metrics *m, const char *key, const char *reason);
void metrics_key_running(struct metrics *m, const char *key, int more);

/* One choice that has ended. */
struct metrics_choice {
    bitnet_finish finish;
    uint32_t n_prompt, n_cached, n_generated;
    uint64_t first_ns,
        total_ns; /* from the request to its first and last bytes; 0: none were sent */
    uint64_t queue_ns, prefill_ns, decode_ns;
    double repetition;
};
void metrics_choice(struct metrics *m, const struct metrics_choice *c);
/* Time between two tokens of a choice. */
void metrics_token(struct metrics *m, uint64_t ns);
void metrics_step(struct metrics *m, const struct worker_step *s);

/* What is only known when somebody asks. */
struct metrics_now {
    const struct worker_state *worker;
    const struct net_stats *net;
    uint32_t n_waiting,
        n_running; /* requests taken and not ended: without, with a first token or a piece of prompt read */
    uint32_t max_queue;
    bool draining;
    bool resident; /* the model is in memory, where it takes so many bytes */
    uint64_t resident_bytes, n_loads, n_load_failures, n_unloads;
    /* names of adapters, separated by commas, that requests use which run, and which wait; NULL: none */
    const char *lora_running, *lora_waiting;
};
void metrics_text(struct metrics *m, const struct metrics_now *now, struct bn_buf *out);
/* The same of several models: what concerns one of them has its name as a label. m[0] and now[0] are the
 * server's, who has no model; the others have theirs. */
void metrics_text_several(struct metrics *const *m, const struct metrics_now *now, size_t n,
                          struct bn_buf *out);
/* NULL: out of memory. */
struct bn_json *metrics_json(struct metrics *m, const struct metrics_now *now);
/* The same of one model of several; what concerns the server is counted in `all`. */
struct bn_json *metrics_json_beside(struct metrics *m, struct metrics *all,
                                    const struct metrics_now *now);

/* Takes a sample of the history; to be called every METRICS_SAMPLE_S while the model is in memory. */
enum { METRICS_SAMPLE_S = 5, METRICS_HISTORY_S = 3600 };
void metrics_sample(struct metrics *m, const struct metrics_now *now);
/* The samples of the last METRICS_HISTORY_S as JSON, oldest first. */
void metrics_history(const struct metrics *m, const char *model, struct bn_buf *out);

#endif
