/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fim.h"

#include "app/tokens.h"
#include <stdlib.h>

enum { FIM_MAX_BYTES = 2 << 20, FIM_MAX_EXTRA = 256 };

/* As the families write them; the first set that a vocabulary has counts. */
static const struct {
    const char *prefix, *suffix, *middle, *repo, *file;
} families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<reponame>", "<file_sep>"},
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", "<reponame>", NULL},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", NULL, NULL},
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", NULL, NULL},
    {"<PRE>", "<SUF>", "<MID>", NULL, NULL},
};

/* The one token that a text is; FIM_NONE: there is no such token. */
static int32_t find_token(const bitnet_model *m, const char *name)
{
    int32_t id[4];
    size_t n = BN_ARRAY_LEN(id);
    if (!name || bitnet_encode(m, name, strlen(name), BITNET_TOK_SPECIAL, id, &n, NULL) || n != 1)
        return FIM_NONE;
    const char *text = bitnet_token_text(m, id[0]);
    return text && strcmp(text, name) == 0 ? id[0] : FIM_NONE;
}

bool fim_find(struct fim *f, const bitnet_model *m)
{
    for (size_t i = 0; m && i < BN_ARRAY_LEN(families); i++) {
        *f = (struct fim){find_token(m, families[i].prefix), find_token(m, families[i].suffix),
                          find_token(m, families[i].middle), FIM_NONE, FIM_NONE};
        if (f->prefix == FIM_NONE || f->suffix == FIM_NONE || f->middle == FIM_NONE) continue;
        f->repo = find_token(m, families[i].repo);
        f->file = find_token(m, families[i].file);
        return true;
    }
    return false;
}

static bitnet_status put_text(struct bn_json *ids, const bitnet_model *m,
                              const struct bn_json *text, uint32_t flags, bitnet_error *err)
{
    const struct tokens_how how = {"text", FIM_MAX_BYTES, flags};
    int32_t *list;
    size_t n;
    if (!text || bn_json_is_null(text)) return BITNET_OK;
    if (!bn_json_is_string(text))
        return bn_fail(err, BITNET_E_ARG, "what is before or behind the gap is not a string");
    BN_TRY(tokens_from_mixed(&list, &n, m, text, &how, err));
    for (size_t i = 0; i < n; i++) bn_json_append(ids, bn_json_int(list[i]));
    free(list);
    return BITNET_OK;
}

static void put_token(struct bn_json *ids, int32_t id)
{
    if (id != FIM_NONE) bn_json_append(ids, bn_json_int(id));
}

static bitnet_status put_line(struct bn_json *ids, const bitnet_model *m, const char *line,
                              bitnet_error *err)
{
    struct bn_json *text = bn_json_printf("%s\n", line);
    bitnet_status s = text ? put_text(ids, m, text, 0, err) : bn_fail_nomem(err, 0, "a name");
    bn_json_free(text);
    return s;
}

/* Other files of the repository, each after its name where the model has a token for that. */
static bitnet_status put_extra(struct bn_json *ids, const bitnet_model *m, const struct fim *f,
                               const struct bn_json *extra, bitnet_error *err)
{
    size_t i;
    const struct bn_json *one;
    if (!extra || bn_json_is_null(extra)) return BITNET_OK;
    if (!bn_json_is_array(extra) || bn_json_size(extra) > FIM_MAX_EXTRA)
        return bn_fail(err, BITNET_E_ARG, "'input_extra' is not a list of at most %d files",
                       FIM_MAX_EXTRA);
    bool named = f->repo != FIM_NONE && f->file != FIM_NONE && bn_json_size(extra);
    if (named) {
        put_token(ids, f->repo);
        BN_TRY(put_line(ids, m, "project", err));
    }
    bn_json_each(extra, i, one)
    {
        const struct bn_json *name = bn_json_get(one, "filename"), *text = bn_json_get(one, "text");
        if (!bn_json_is_string(text) || (name && !bn_json_is_string(name)))
            return bn_fail(err, BITNET_E_ARG,
                           "item %zu of 'input_extra' is not {\"filename\": ..., \"text\": ...}",
                           i);
        if (named) {
            put_token(ids, f->file);
            BN_TRY(put_line(ids, m, name ? bn_json_text(name) : "file", err));
        }
        BN_TRY(put_text(ids, m, text, 0, err));
    }
    if (!named) return BITNET_OK;
    put_token(ids, f->file);
    return put_line(ids, m, "file", err);
}

static bitnet_status put_all(struct bn_json *ids, const bitnet_model *m, const struct fim *f,
                             const struct fim_text *t, bitnet_error *err)
{
    struct bn_json *nothing = bn_json_string("");
    bitnet_status s = put_text(ids, m, nothing, BITNET_TOK_BOS_AUTO, err);
    bn_json_free(nothing);
    if (s != BITNET_OK) return s;
    BN_TRY(put_extra(ids, m, f, t->extra, err));
    put_token(ids, f->prefix);
    BN_TRY(put_text(ids, m, t->prefix, 0, err));
    put_token(ids, f->suffix);
    BN_TRY(put_text(ids, m, t->suffix, 0, err));
    put_token(ids, f->middle);
    BN_TRY(put_text(ids, m, t->middle, 0, err));
    return bn_json_whole(ids) ? BITNET_OK : bn_fail_nomem(err, 0, "token ids");
}

bitnet_status fim_prompt(struct bn_json **ids, const bitnet_model *m, const struct fim_text *t,
                         bitnet_error *err)
{
    struct fim f;
    *ids = NULL;
    if (!fim_find(&f, m))
        return bn_fail(
            err, BITNET_E_UNSUPPORTED,
            "this model does not support insert: it has no tokens for a prefix, a suffix "
            "and what is between them");
    struct bn_json *list = bn_json_array();
    bitnet_status s = put_all(list, m, &f, t, err);
    if (s == BITNET_OK) *ids = list;
    else bn_json_free(list);
    return s;
}
