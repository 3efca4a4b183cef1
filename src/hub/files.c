/* SPDX-License-Identifier: Apache-2.0 */
#include "hub/files.h"

#include "base/buf.h"
#include "base/parts.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { LIST_BYTES = 300 };

bitnet_status hub_files_add(struct hub_files *f, const char *path, uint64_t bytes,
                            const char *digest, bitnet_error *err)
{
    if (f->n >= HUB_MAX_FILES)
        return bn_fail(err, BITNET_E_LIMIT, "the repository has more than %d files", HUB_MAX_FILES);
    const char *p = bn_arena_strn(&f->texts, path, strlen(path));
    const char *d = bn_arena_strn(&f->texts, digest, strlen(digest));
    if (!p || !d || !bn_grow((void **)&f->items, &f->room, f->n + 1, sizeof *f->items))
        return bn_fail_nomem(err, strlen(path), "a list of files");
    f->items[f->n++] = (struct hub_file){.path = p, .bytes = bytes, .digest = d};
    return BITNET_OK;
}

void hub_files_free(struct hub_files *f)
{
    free(f->items);
    bn_arena_free(&f->texts);
    *f = (struct hub_files){0};
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* strcasestr, where what follows is one of `ends` */
static const char *find_word(const char *s, const char *word, const char *ends)
{
    size_t n = strlen(word);
    for (; *s; s++)
        if (strncasecmp(s, word, n) == 0 && s[n] && strchr(ends, s[n])) return s;
    return NULL;
}

/* A GGUF that is a model, not a part that goes with one. */
static bool is_gguf(const char *path)
{
    static const char *const others[] = {"mmproj", "imatrix", "mtp", "vocab"};
    const char *name = last_part(path);
    if (!bn_ends_with(name, ".gguf")) return false;
    for (size_t i = 0; i < BN_ARRAY_LEN(others); i++)
        if (strncasecmp(name, others[i], strlen(others[i])) == 0 ||
            find_word(name, others[i], ".-"))
            return false;
    return true;
}

static const char *ending_of(const char *path)
{
    const char *dot = strrchr(last_part(path), '.');
    return dot ? dot : "";
}

/* Are they the same file, or parts of one? */
static bool same_model(const char *a, const char *b)
{
    unsigned part, of, part_b, of_b;
    const char *ending = ending_of(a);
    if (strcmp(a, b) == 0) return true;
    if (!bn_part_read(&part, &of, a, ending) || !bn_part_read(&part_b, &of_b, b, ending))
        return false;
    size_t n = strlen(a) - BN_PART_BYTES - strlen(ending);
    return of == of_b && strlen(a) == strlen(b) && strncmp(a, b, n) == 0;
}

static void pick(struct hub_choice *c, struct hub_file *f)
{
    if (f->picked) return;
    f->picked = true;
    c->n++;
    c->bytes += f->bytes;
}

static bitnet_status pick_model(struct hub_choice *c, struct hub_files *f, const char *path)
{
    c->main = path;
    for (size_t i = 0; i < f->n; i++) {
        if (!same_model(path, f->items[i].path)) continue;
        pick(c, &f->items[i]);
        if (strcmp(f->items[i].path, c->main) < 0) c->main = f->items[i].path; /* the first part */
    }
    return BITNET_OK;
}

/* "a, b, c, ...": those with such an ending, once for all parts; "" any */
static const char *list_files(char out[LIST_BYTES], const struct hub_files *f, bool models)
{
    size_t n = 0;
    unsigned part, of;
    *out = 0;
    for (size_t i = 0; i < f->n; i++) {
        const char *path = f->items[i].path;
        if (models && !is_gguf(path)) continue;
        if (bn_part_read(&part, &of, path, ending_of(path)) && part > 1) continue;
        if (n + strlen(path) + 8 > LIST_BYTES) {
            snprintf(out + n, LIST_BYTES - n, ", ...");
            break;
        }
        n += (size_t)snprintf(out + n, LIST_BYTES - n, "%s%s", n ? ", " : "", path);
    }
    if (!*out) snprintf(out, LIST_BYTES, "nothing");
    return out;
}

static bitnet_status choose_file(struct hub_choice *out, struct hub_files *f,
                                 const struct hub_name *name, bitnet_error *err)
{
    char list[LIST_BYTES];
    size_t n = strlen(name->file);
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->items[i].path, name->file) == 0) return pick_model(out, f, f->items[i].path);
    for (size_t i = 0; i < f->n; i++) { /* a folder with one model in it */
        const char *path = f->items[i].path;
        if (strncmp(path, name->file, n) == 0 && path[n] == '/' && is_gguf(path))
            return pick_model(out, f, path);
    }
    return bn_fail(err, BITNET_E_ARG, "%s has no file '%.150s'; it has %s", name->repo, name->file,
                   list_files(list, f, false));
}

/* Q2_0 is rather x-Q2_0.gguf than x-PQ2_0.gguf, which comes first in the list. */
static const char *find_tag(const struct hub_files *f, const char *tag)
{
    const char *part = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const char *name = last_part(f->items[i].path), *at = find_word(name, tag, ".-");
        if (!at || !is_gguf(f->items[i].path)) continue;
        if (at == name || !isalnum((unsigned char)at[-1])) return f->items[i].path;
        if (!part) part = f->items[i].path;
    }
    return part;
}

static bitnet_status choose_gguf(struct hub_choice *out, struct hub_files *f,
                                 const struct hub_name *name, const char *first, bitnet_error *err)
{
    /* made for these weights; smaller ones of the same values first */
    static const char *const types[] = {"i2_s",  "ptq1_0", "tq2_0",  "pq2_0", "q2_0",
                                        "tq1_0", "q1_0",   "iq2_bn", "iq1_bn"};
    char list[LIST_BYTES];
    if (name->tag[0]) {
        const char *found = find_tag(f, name->tag);
        if (found) return pick_model(out, f, found);
        return bn_fail(err, BITNET_E_ARG, "%s has no GGUF file of type %.60s; it has %s",
                       name->repo, name->tag, list_files(list, f, true));
    }
    bool only = true;
    for (size_t i = 0; i < f->n; i++)
        only &= !is_gguf(f->items[i].path) || same_model(first, f->items[i].path);
    if (only) return pick_model(out, f, first);
    for (size_t i = 0; i < BN_ARRAY_LEN(types); i++) {
        const char *found = find_tag(f, types[i]);
        if (found) return pick_model(out, f, found);
    }
    return bn_fail(err, BITNET_E_ARG,
                   "%s has several GGUF files, none of a type for ternary weights; name one as "
                   "hf:%s/FILE: %s",
                   name->repo, name->repo, list_files(list, f, true));
}

/* What is read of a folder of safetensors, beside the weights. */
static bool goes_with_weights(const char *path)
{
    static const char *const names[] = {"config.json",        "generation_config.json",
                                        "tokenizer.json",     "tokenizer_config.json",
                                        "tokenizer.model",    "special_tokens_map.json",
                                        "vocab.json",         "merges.txt",
                                        "chat_template.json", "chat_template.jinja",
                                        "added_tokens.json"};
    for (size_t i = 0; i < BN_ARRAY_LEN(names); i++)
        if (strcmp(path, names[i]) == 0) return true;
    return false;
}

static bool is_weights(const char *path)
{
    return !strchr(path, '/') && bn_ends_with(path, ".safetensors");
}

static bitnet_status choose_folder(struct hub_choice *out, struct hub_files *f,
                                   const struct hub_name *name, bitnet_error *err)
{
    char list[LIST_BYTES];
    bool config = false, weights = false, standard = false;
    for (size_t i = 0; i < f->n; i++) {
        config |= strcmp(f->items[i].path, "config.json") == 0;
        weights |= is_weights(f->items[i].path);
        standard |= strncmp(f->items[i].path, "model", 5) == 0 && is_weights(f->items[i].path);
    }
    if (!config || !weights || name->tag[0])
        return bn_fail(err, BITNET_E_ARG, "%s holds no model in GGUF%s; it has %s", name->repo,
                       name->tag[0] ? "" : " or safetensors", list_files(list, f, false));
    for (size_t i = 0; i < f->n; i++) {
        const char *path = f->items[i].path;
        bool index = !strchr(path, '/') && bn_ends_with(path, ".safetensors.index.json");
        /* weights under other names are the same ones once more */
        if (goes_with_weights(path) ||
            ((is_weights(path) || index) && (!standard || strncmp(path, "model", 5) == 0)))
            pick(out, &f->items[i]);
    }
    out->main = "";
    return BITNET_OK;
}

bitnet_status hub_files_choose(struct hub_choice *out, struct hub_files *f,
                               const struct hub_name *name, bitnet_error *err)
{
    *out = (struct hub_choice){.main = NULL};
    for (size_t i = 0; i < f->n; i++) f->items[i].picked = false;
    if (name->file[0]) return choose_file(out, f, name, err);
    for (size_t i = 0; i < f->n; i++)
        if (is_gguf(f->items[i].path)) return choose_gguf(out, f, name, f->items[i].path, err);
    return choose_folder(out, f, name, err);
}

bool hub_files_whole(const struct hub_files *f, const struct hub_choice *c)
{
    unsigned part, of, parts = 0, expected = 0;
    bool weights = false;
    if (!c->main) return false;
    for (size_t i = 0; i < f->n; i++) {
        const char *path = f->items[i].path;
        if (!f->items[i].picked) continue;
        weights |= is_weights(path);
        if (!bn_part_read(&part, &of, path, ending_of(path))) continue;
        parts++;
        expected = of;
    }
    return parts == expected && (*c->main || weights);
}
