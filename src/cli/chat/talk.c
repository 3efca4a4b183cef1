/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chat/talk.h"

#include "app/term.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include <stdlib.h>
#include <unistd.h>

enum { FILE_MAX_BYTES = 64 << 20 };
static const char *const roles[] = {"system", "user", "assistant"};

bitnet_status talk_add(struct talk *t, const char *role, const char *text, bitnet_error *err)
{
    char *copy = strdup(text);
    if (!copy || !bn_grow((void **)&t->msgs, &t->room, t->n + 1, sizeof *t->msgs)) {
        free(copy);
        return bn_fail_nomem(err, strlen(text), "a message");
    }
    t->msgs[t->n++] = (bitnet_message){role, copy};
    return BITNET_OK;
}

static void cut(struct talk *t, size_t n)
{
    while (t->n > n) free((char *)t->msgs[--t->n].content);
    if (t->forgotten + t->has_system > t->n) t->forgotten = t->n - t->has_system;
}

void talk_drop_last(struct talk *t)
{
    if (t->n > t->has_system) cut(t, t->n - 1);
}

void talk_reset(struct talk *t)
{
    cut(t, t->has_system);
    t->forgotten = 0;
}

bitnet_status talk_set_system(struct talk *t, const char *text, bitnet_error *err)
{
    t->has_system = false;
    talk_reset(t);
    if (!text || !*text) return BITNET_OK;
    BN_TRY(talk_add(t, "system", text, err));
    t->has_system = true;
    return BITNET_OK;
}

const char *talk_last(const struct talk *t, const char *role)
{
    const bitnet_message *last = t->n ? &t->msgs[t->n - 1] : NULL;
    return last && strcmp(last->role, role) == 0 ? last->content : NULL;
}

const bitnet_message *talk_seen(struct talk *t, size_t *n)
{
    size_t first = t->has_system + t->forgotten, k = 0;
    if (!bn_grow((void **)&t->seen, &t->seen_room, t->n + 1, sizeof *t->seen)) return NULL;
    if (t->has_system) t->seen[k++] = t->msgs[0];
    for (size_t i = first; i < t->n; i++) t->seen[k++] = t->msgs[i];
    *n = k;
    return t->seen;
}

bool talk_forget(struct talk *t)
{
    if (t->n - t->has_system - t->forgotten < 3) return false;
    t->forgotten += 2;
    return true;
}

void talk_close(struct talk *t)
{
    t->has_system = false;
    talk_reset(t);
    free(t->msgs);
    free(t->seen);
    free(t->path);
    *t = (struct talk){.n = 0};
}

/* ------------------------------------------------------------------ files */

bitnet_status talk_save(struct talk *t, const char *path, bool force, bool *replaced,
                        bitnet_error *err)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < t->n; i++)
        bn_json_append(
            list, bn_json_pack("{s:s, s:o}", "role", t->msgs[i].role, "content",
                               term_json_string(t->msgs[i].content, strlen(t->msgs[i].content))));
    struct bn_json *all = bn_json_pack("{s:o}", "messages", list);
    char *text = all ? bn_json_dump(all, BN_JSON_INDENT(2)) : NULL;
    bn_json_free(all);
    if (!text) return bn_fail(err, BITNET_E_NOMEM, "out of memory while writing the conversation");
    struct bn_out out;
    bool again = force || (t->path && strcmp(t->path, path) == 0);
    *replaced = again && access(path, F_OK) == 0;
    bitnet_status s = bn_out_open(&out, path, again, err);
    if (s == BITNET_OK) s = bn_out_write(&out, text, strlen(text), err);
    if (s == BITNET_OK) s = bn_out_write(&out, "\n", 1, err);
    if (s == BITNET_OK) s = bn_out_commit(&out, err);
    bn_out_close(&out);
    free(text);
    if (s == BITNET_OK) {
        char *copy = strdup(path);
        free(t->path);
        t->path = copy;
    }
    return s;
}

static const char *known_role(const char *role)
{
    for (size_t i = 0; role && i < BN_ARRAY_LEN(roles); i++)
        if (strcmp(role, roles[i]) == 0) return roles[i];
    return NULL;
}

static bitnet_status take_messages(struct talk *t, const struct bn_json *list, const char *path,
                                   bitnet_error *err)
{
    for (size_t i = 0; i < bn_json_size(list); i++) {
        const struct bn_json *one = bn_json_at(list, i), *content = bn_json_get(one, "content");
        const struct bn_json *role = bn_json_get(one, "role");
        const char *name = bn_json_is_string(role) ? known_role(bn_json_text(role)) : NULL;
        if (!name || !bn_json_is_string(content) || (name == roles[0] && i))
            return bn_fail(err, BITNET_E_FORMAT,
                           "%s: message %zu is not {\"role\": \"user\" or \"assistant\", "
                           "\"content\": TEXT}; only the first may be of the role system",
                           path, i + 1);
        BN_TRY(talk_add(t, name, bn_json_text(content), err));
        if (name == roles[0]) t->has_system = true;
    }
    return BITNET_OK;
}

bitnet_status talk_load(struct talk *t, const char *path, bitnet_error *err)
{
    struct bn_json *file;
    BN_TRY(bn_json_read_file(&file, path, FILE_MAX_BYTES, err));
    const struct bn_json *list = bn_json_is_object(file) ? bn_json_get(file, "messages") : file;
    struct talk read = {.path = strdup(path)};
    bitnet_status s =
        bn_json_is_array(list)
            ? take_messages(&read, list, path, err)
            : bn_fail(err, BITNET_E_FORMAT, "%s has no list of messages, as /save writes it", path);
    bn_json_free(file);
    if (s != BITNET_OK) {
        talk_close(&read);
        return s;
    }
    talk_close(t);
    *t = read;
    return BITNET_OK;
}
