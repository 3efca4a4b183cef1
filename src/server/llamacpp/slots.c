/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.c: the engine's sequences, told as llama-server tells its slots. Which choice has which sequence is the
 * engine's own affair, so the first ones are busy. And what is known of a slot's text, saved to a file of the
 * folder that was allowed for it, restored from there, or erased (server/slots.h).
 */
#include "server/llamacpp/llamacpp.h"

#include "base/os/mem.h"
#include <stdio.h>
#include <stdlib.h>

static struct bn_json *slot_json(const struct served_model *s, uint32_t i)
{
    bool busy = i < s->n_running;
    return bn_json_pack("{s:I, s:I, s:b, s:b}", "id", (int64_t)i, "n_ctx",
                        (int64_t)s->engine.ctx_tokens, "speculative", 0, "is_processing", busy);
}

void serve_llamacpp_slots(struct exchange *x)
{
    const struct served_model *s = x->model;
    struct bn_json *list = bn_json_array();
    if (strstr(net_http(x->request)->query, "fail_on_no_slot=1") &&
        s->n_running >= s->engine.max_seqs) {
        bn_json_free(list);
        exchange_refuse(x, 503, NULL, "all %u slots are busy", s->engine.max_seqs);
        return;
    }
    for (uint32_t i = 0; i < s->engine.max_seqs; i++) bn_json_append(list, slot_json(s, i));
    exchange_reply_json(x, 200, list);
}

/* ------------------------------------------------------------------ save, restore, erase */

enum { FILENAME_MAX_BYTES = 200 };

enum action { SAVE, RESTORE, ERASE, N_ACTIONS };
static const char *const action_names[N_ACTIONS] = {"save", "restore", "erase"};

struct slot_job {
    struct exchange x; /* first */
    struct worker_task task;
    enum action action;
    uint32_t slot;
    char *path, *filename;
    struct adapter_choice adapters;
    int32_t *tokens; /* [n]: a copy of the slot's, or room for what is restored */
    size_t n;
    size_t n_forgotten;
    bitnet_prefix_file file;
};

static struct slot_job *of_task(struct worker_task *t)
{
    return (struct slot_job *)((char *)t - offsetof(struct slot_job, task));
}

static void free_job(struct slot_job *j)
{
    exchange_close(&j->x);
    adapter_release(&j->adapters);
    free(j->path);
    free(j->filename);
    free(j->tokens);
    free(j);
}

/* On the engine's thread, between two steps. */
static bitnet_status run(struct worker_task *t, bitnet_engine *e, bitnet_error *err)
{
    struct slot_job *j = of_task(t);
    const bitnet_prefix_options o = {
        .size = sizeof o, .adapters = j->adapters.uses, .n_adapters = j->adapters.n};
    j->file.size = sizeof j->file;
    switch (j->action) {
    case SAVE: return bitnet_prefix_save(e, j->path, j->tokens, j->n, &o, &j->file, err);
    case RESTORE: return bitnet_prefix_load(e, j->path, j->tokens, &j->n, &o, &j->file, err);
    default: return bitnet_prefix_forget(e, j->tokens, j->n, &o, &j->n_forgotten, err);
    }
}

static struct bn_json *done_json(const struct slot_job *j)
{
    const bitnet_prefix_file *f = &j->file;
    int64_t slot = j->slot, n = (int64_t)f->n_tokens, bytes = (int64_t)f->bytes;
    double ms = (double)f->ns / 1e6;
    if (j->action == ERASE)
        return bn_json_pack("{s:I, s:I}", "id_slot", slot, "n_erased", (int64_t)j->n);
    bool save = j->action == SAVE;
    return bn_json_pack("{s:I, s:s, s:I, s:I, s:{s:f}}", "id_slot", slot, "filename", j->filename,
                        save ? "n_saved" : "n_restored", n, save ? "n_written" : "n_read", bytes,
                        "timings", save ? "save_ms" : "restore_ms", ms);
}

static void on_done(struct worker_task *t)
{
    struct slot_job *j = of_task(t);
    struct slots *l = &j->x.model->slots;
    static const struct adapter_choice none;
    bool kept = true;
    if (j->action == RESTORE)
        kept = slots_put(l, &l->items[j->slot], j->tokens, j->n, &j->adapters);
    else if (j->action == ERASE) slots_put(l, &l->items[j->slot], NULL, 0, &none);
    if (j->x.request && !kept) exchange_refuse(&j->x, 500, NULL, "out of memory for the slot");
    else if (j->x.request) exchange_reply_json(&j->x, 200, done_json(j));
    free_job(j);
}

/* Where the folder is does not concern clients. */
static void hide_folder(char *text, const struct slot_job *j)
{
    char *at = j->path ? strstr(text, j->path) : NULL,
         *name = j->path ? strrchr(j->path, '/') : NULL;
    if (at) memmove(at, at + (name + 1 - j->path), strlen(at + (name + 1 - j->path)) + 1);
}

static void on_failed(struct worker_task *t, const bitnet_error *err)
{
    struct slot_job *j = of_task(t);
    bitnet_error shown = *err;
    hide_folder(shown.text, j);
    if (shown.status == BITNET_E_IO && j->action == RESTORE) shown.status = BITNET_E_ARG;
    if (shown.status == BITNET_E_FORMAT) shown.status = BITNET_E_ARG;
    if (j->x.request) exchange_fail(&j->x, &shown, NULL, NULL);
    free_job(j);
}

/* A name in the folder, not a way out of it; and none that is hidden. */
static bool is_plain(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n > FILENAME_MAX_BYTES || *name == '.') return false;
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127 || strchr("/\\:*?\"<>|", *name))
            return false;
    return true;
}

static bitnet_status read_file_name(struct slot_job *j, const struct bn_json *body,
                                    bitnet_error *err)
{
    const char *name = NULL, *folder = j->x.s->c->slot_save_path;
    BN_TRY(bn_json_read_str(&name, body, "filename", "body", err));
    if (!name) return bn_fail(err, BITNET_E_ARG, "'filename' is missing");
    if (!is_plain(name))
        return bn_fail(err, BITNET_E_ARG,
                       "'filename' has to be the name of a file: 1 to %d bytes without signs like "
                       "'/', not beginning with '.'",
                       FILENAME_MAX_BYTES);
    size_t room = strlen(folder) + strlen(name) + 2;
    j->path = bn_calloc(room, 1);
    j->filename = strdup(name);
    if (!j->path || !j->filename) return bn_fail_nomem(err, room, "a path");
    snprintf(j->path, room, "%s/%s", folder, name);
    return BITNET_OK;
}

/* A file to be restored is for those adapters that the body lists, or else for those of all requests. */
static bitnet_status choose_adapters(struct slot_job *j, const struct bn_json *body,
                                     bitnet_error *err)
{
    const struct slot *s = &j->x.model->slots.items[j->slot];
    struct openai_request q = {.lora = s->adapters, .n_lora = s->n_adapters};
    struct openai_lora listed[BITNET_MAX_ADAPTERS];
    const struct bn_json *list = bn_json_get(body, "lora");
    if (j->action != RESTORE) return adapter_choose(&j->adapters, &j->x.model->adapters, &q, err);
    q = (struct openai_request){.model = ""};
    BN_TRY(bn_json_read_str(&q.model, body, "model", "body", err));
    if (list && !bn_json_is_array(list)) return bn_fail(err, BITNET_E_ARG, "'lora' is not a list");
    if (bn_json_size(list) > BITNET_MAX_ADAPTERS)
        return bn_fail(err, BITNET_E_LIMIT, "'lora' names more than %d adapters",
                       BITNET_MAX_ADAPTERS);
    for (size_t i = 0; i < bn_json_size(list); i++)
        BN_TRY(openai_lora_read(&listed[i], bn_json_at(list, i), "lora", err));
    if (list) q.lora = listed, q.n_lora = bn_json_size(list);
    return adapter_choose(&j->adapters, &j->x.model->adapters, &q, err);
}

static bitnet_status take_tokens(struct slot_job *j, bitnet_error *err)
{
    const struct slot *s = &j->x.model->slots.items[j->slot];
    bool restore = j->action == RESTORE;
    j->n = restore ? j->x.model->engine.ctx_tokens : s->n;
    if (!restore && j->action == SAVE && j->n == 0)
        return bn_fail(err, BITNET_E_ARG, "slot %u has no text yet", j->slot);
    j->tokens = bn_calloc(j->n + 1, sizeof *j->tokens);
    if (!j->tokens) return bn_fail_nomem(err, j->n * sizeof *j->tokens, "the text of a slot");
    if (!restore && j->n) memcpy(j->tokens, s->tokens, j->n * sizeof *j->tokens);
    return BITNET_OK;
}

static bitnet_status read_job(struct slot_job *j, const struct bn_json *body, bitnet_error *err)
{
    if (j->action != ERASE) BN_TRY(read_file_name(j, body, err));
    BN_TRY(choose_adapters(j, body, err));
    return take_tokens(j, err);
}

/* "/slots/3" and "action=save". false: the client was told what is wrong. */
static bool read_target(struct exchange *x, uint32_t *slot, enum action *action)
{
    const struct http_reader *q = net_http(x->request);
    const char *id = strrchr(q->path, '/') + 1, *word = strstr(q->query, "action=");
    size_t digits = strspn(id, "0123456789");
    bool number = digits > 0 && digits < 7 && !id[digits];
    if (!x->model->slots.items) {
        exchange_refuse(x, 501, "not_supported",
                        "this server does not save slots; start it with --slot-save-path");
        return false;
    }
    if (!number || strtoul(id, NULL, 10) >= x->model->slots.n) {
        exchange_refuse(x, 400, NULL, "there is no slot '%.20s'; 0 to %u exist", id,
                        x->model->slots.n - 1);
        return false;
    }
    *slot = (uint32_t)strtoul(id, NULL, 10);
    word = word && (word == q->query || word[-1] == '&') ? word + strlen("action=") : "";
    size_t length = strcspn(word, "&");
    for (int i = 0; i < N_ACTIONS; i++)
        if (length == strlen(action_names[i]) && strncmp(word, action_names[i], length) == 0) {
            *action = (enum action)i;
            return true;
        }
    exchange_refuse(x, 400, NULL, "'action' is '%.*s'; 'save', 'restore' and 'erase' exist",
                    (int)bn_min_size(length, 20), word);
    return false;
}

static void submit(struct slot_job *j)
{
    static const char *const not_yet[N_ACTIONS] = {
        "the slot was not saved", "the slot was not restored", "the slot was not erased"};
    j->task.done = on_done;
    j->task.failed = on_failed;
    exchange_wait(&j->x, not_yet[j->action]);
    worker_call(j->x.model->worker, &j->task, run);
}

void serve_llamacpp_slot(struct exchange *x)
{
    uint32_t slot;
    enum action action;
    struct bn_json *body = NULL;
    bitnet_error err = {0};
    if (!read_target(x, &slot, &action)) return;
    if (action != ERASE && !exchange_body(x, &body)) return;
    struct slot_job *j = bn_calloc(1, sizeof *j);
    bitnet_status s = j ? BITNET_OK : bn_fail_nomem(&err, sizeof *j, "a slot");
    if (j) {
        j->x = *x;
        j->slot = slot;
        j->action = action;
        s = read_job(j, body, &err);
    }
    bn_json_free(body);
    if (s == BITNET_OK) {
        submit(j);
        return;
    }
    exchange_fail(x, &err, NULL, NULL);
    if (j) free_job(j);
}
