/* SPDX-License-Identifier: Apache-2.0
 *
 * adapters.h: the adapters (LoRA) that a server has, by name and number, and which of them a request
 * uses. Used by the thread of the event loop alone. One that is removed stays in memory until the requests
 * that use it have ended.
 */
#ifndef BN_SERVER_ADAPTERS_H
#define BN_SERVER_ADAPTERS_H

#include "app/adapters.h"
#include "server/openai/request.h"

struct served_adapter {
    uint32_t id; /* never given out twice */
    char name[ADAPTER_NAME_BYTES];
    char *path;
    bitnet_adapter *adapter;
    float scale; /* of requests that name neither an adapter nor a list; 0: they do without */
    float named; /* of requests whose model is this adapter's name */
    uint32_t n_users, n_running; /* requests; those that the engine has begun */
    bool listed;
};

struct adapter_list {
    struct served_adapter *items[ADAPTERS_MAX]; /* in order of their numbers */
    size_t n;
    uint32_t next_id;
};

/* Of the option --lora. An adapter without a name is for all requests, as llama-server has it; one with a
 * name for those that name it, as vLLM has it; with a scale, both. */
bitnet_status adapter_list_open(struct adapter_list *l, const bitnet_model *m,
                                const char *const *typed, size_t n, bitnet_error *err);
void adapter_list_close(struct adapter_list *l);

struct served_adapter *adapter_list_find(const struct adapter_list *l, const char *name);
struct served_adapter *adapter_list_at(const struct adapter_list *l, uint32_t id);
/* Takes the adapter. BITNET_E_LIMIT: there are too many; then it is the caller's still. */
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
