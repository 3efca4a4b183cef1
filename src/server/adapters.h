/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.h: the adapters (LoRA) that a model is served with, by name and number, and which of them a request
 * uses. Used by the thread of the event loop alone. One that is removed stays in memory until the requests
 * that use it have ended.
 *
 * The list is the model's also while that is not in memory. Then its adapters are not there either; they come
 * and go with the model, with the numbers and scales that they had.
 */
#ifndef BN_SERVER_ADAPTERS_H
#define BN_SERVER_ADAPTERS_H

#include "app/adapters.h"
#include "server/openai/request.h"

struct served_adapter {
    uint32_t id; /* never given out twice */
    char name[ADAPTER_NAME_BYTES];
    char *path;
    bitnet_adapter *adapter; /* NULL: its model is not in memory */
    float scale; /* of requests that name neither an adapter nor a list; 0: they do without */
    float named; /* of requests whose model is this adapter's name */
    uint32_t n_users, n_running; /* requests; those that the engine has begun */
    bool listed;
    bool by_request; /* a client has loaded it, and not the server's options */
};

struct adapter_list {
    struct served_adapter *items[ADAPTERS_MAX]; /* in order of their numbers */
    size_t n;
    uint32_t next_id;
};

/* Of the option --lora; none is in memory. An adapter without a name is for all requests, as llama-server has it;
 * one with a name for those that name it, as vLLM has it; with a scale, both. */
bitnet_status adapter_list_open(struct adapter_list *l, const char *const *typed, size_t n,
                                bitnet_error *err);
void adapter_list_close(struct adapter_list *l);

/* The adapters of a list while they come and go, one for each of its items. */
struct adapter_set {
    bitnet_adapter *items[ADAPTERS_MAX]; /* NULL: it cannot be read any more */
};
/* Opens all of them, while the list stays as it is: on any thread. One that a client has loaded and that only
 * requests use which name it may be missing, which standard error is told; any other one that cannot be read is
 * an error. */
bitnet_status adapter_set_open(struct adapter_set *out, const struct adapter_list *l,
                               const bitnet_model *m, bitnet_error *err);
void adapter_set_close(struct adapter_set *set);
/* They become the list's. What is missing leaves it. */
void adapter_list_take(struct adapter_list *l, struct adapter_set *set);
/* The opposite; nobody uses any. */
void adapter_list_give(struct adapter_list *l, struct adapter_set *set);

struct served_adapter *adapter_list_find(const struct adapter_list *l, const char *name);
struct served_adapter *adapter_list_at(const struct adapter_list *l, uint32_t id);
/* Takes the adapter; NULL: it is to come with its model. BITNET_E_LIMIT: there are too many; then it is the
 * caller's still. */
bitnet_status adapter_list_add(struct adapter_list *l, const char *name, const char *path,
                               bitnet_adapter *adapter, float scale, bitnet_error *err);
void adapter_list_remove(struct adapter_list *l, struct served_adapter *a);

/* What a request uses: its `lora` list, the adapter that is its model, or what all use. */
struct adapter_choice {
    struct served_adapter *items[BITNET_MAX_ADAPTERS];
    bitnet_adapter_use uses[BITNET_MAX_ADAPTERS];
    size_t n;
    bool running;
};
bitnet_status adapter_choose(struct adapter_choice *out, const struct adapter_list *l,
                             const struct openai_request *q, bitnet_error *err);
/* The engine has begun the request; may be said again. */
void adapter_begin(struct adapter_choice *c);
/* The request has ended. */
void adapter_release(struct adapter_choice *c);
/* Names of adapters that requests use which run, or else wait, separated by commas. */
void adapter_list_names(const struct adapter_list *l, bool running, struct bn_buf *out);

#endif
