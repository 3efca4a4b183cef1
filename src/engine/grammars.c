/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/grammars.h"

#include "base/map.h"
#include <stdlib.h>

struct bn_kept_grammar {
    struct bn_kept_grammar *next;
    uint64_t hash;
    char kind;   /* of the text: below */
    bool failed; /* with `why`: so that nobody tries again */
    uint32_t users;
    size_t n, bytes; /* of the text; of the grammar */
    struct bn_grammar *grammar;
    bitnet_error why;
    char text[];
};

enum { GBNF = 'g', SCHEMA = 's', ANY_OBJECT = 'o' };

void bn_grammars_open(struct bn_grammars *g, const struct bn_tokenizer *t, uint32_t n_vocab)
{
    *g = (struct bn_grammars){.tokenizer = t, .n_vocab = n_vocab, .open = true};
    pthread_mutex_init(&g->lock, NULL);
}

static void free_kept(struct bn_kept_grammar *k)
{
    bn_grammar_close(k->grammar);
    free(k);
}

void bn_grammars_close(struct bn_grammars *g)
{
    if (!g->open) return;
    for (struct bn_kept_grammar *k = g->kept, *next; k; k = next) {
        next = k->next;
        free_kept(k);
    }
    bn_token_tree_close(g->tree);
    pthread_mutex_destroy(&g->lock);
    g->open = false;
}

const struct bn_grammar *bn_kept_grammar(const struct bn_kept_grammar *k) { return k->grammar; }

/* Lets go of those that nobody uses and that were asked for longest ago. */
static void trim(struct bn_grammars *g)
{
    size_t n = 0, text = 0, bytes = 0;
    for (struct bn_kept_grammar **at = &g->kept; *at;) {
        struct bn_kept_grammar *k = *at;
        bool room = n < BN_GRAMMARS_KEPT && text + k->n <= BN_GRAMMARS_TEXT_BYTES &&
                    bytes + k->bytes <= BN_GRAMMARS_BYTES;
        if (k->users == 0 && !room) {
            *at = k->next;
            free_kept(k);
            continue;
        }
        n++;
        text += k->n;
        bytes += k->bytes;
        at = &k->next;
    }
}

/* With the lock held: the one that says the same, first in the list now. */
static struct bn_kept_grammar *find(struct bn_grammars *g, const struct bn_kept_grammar *like)
{
    for (struct bn_kept_grammar **at = &g->kept; *at; at = &(*at)->next) {
        struct bn_kept_grammar *k = *at;
        if (k->hash != like->hash || k->kind != like->kind || k->n != like->n ||
            memcmp(k->text, like->text, k->n) != 0)
            continue;
        *at = k->next;
        k->next = g->kept;
        return g->kept = k;
    }
    return NULL;
}

static bitnet_status make_tree(struct bn_grammars *g, bitnet_error *err)
{
    pthread_mutex_lock(&g->lock);
    bitnet_status s =
        g->tree ? BITNET_OK : bn_token_tree_open(&g->tree, g->tokenizer, g->n_vocab, err);
    pthread_mutex_unlock(&g->lock);
    return s;
}

static bitnet_status compile(struct bn_grammars *g, struct bn_kept_grammar *k, bitnet_error *err)
{
    BN_TRY(make_tree(g, err));
    bitnet_status s = k->kind == GBNF
                          ? bn_grammar_from_gbnf(&k->grammar, g->tree, k->text, k->n, err)
                          : bn_grammar_from_schema(&k->grammar, g->tree,
                                                   k->kind == SCHEMA ? k->text : NULL, k->n, err);
    if (s == BITNET_OK) k->bytes = bn_grammar_bytes(k->grammar);
    k->failed = s != BITNET_OK;
    if (k->failed) bn_error_set(&k->why, s, "%s", err ? err->text : "");
    return s;
}

static struct bn_kept_grammar *new_kept(const bitnet_request *r)
{
    const char *text = r->grammar ? r->grammar : r->json_schema ? r->json_schema : "";
    size_t n = strlen(text);
    struct bn_kept_grammar *k = bn_calloc(1, sizeof *k + n + 1);
    if (!k) return NULL;
    k->kind = r->grammar ? GBNF : r->json_schema ? SCHEMA : ANY_OBJECT;
    k->n = n;
    memcpy(k->text, text, n);
    k->hash = bn_hash(text, n);
    return k;
}

/* Puts it into the list, unless another thread was faster: then that one's. */
static struct bn_kept_grammar *keep(struct bn_grammars *g, struct bn_kept_grammar *k)
{
    pthread_mutex_lock(&g->lock);
    struct bn_kept_grammar *known = find(g, k);
    if (!known) {
        k->next = g->kept;
        g->kept = k;
    } else {
        free_kept(k);
        k = known;
    }
    k->users++;
    trim(g);
    pthread_mutex_unlock(&g->lock);
    return k;
}

/* A failure is kept, too, unless memory was the reason; then nobody has the entry. */
bitnet_status bn_grammars_take(struct bn_grammars *g, const bitnet_request *r,
                               struct bn_kept_grammar **out, bitnet_error *err)
{
    bitnet_error own = {0};
    *out = NULL;
    if (!r->grammar && !r->json_schema && !r->json_object) return BITNET_OK;
    struct bn_kept_grammar *fresh = new_kept(r);
    if (!fresh) return bn_fail_nomem(err, sizeof *fresh, "a grammar");
    pthread_mutex_lock(&g->lock);
    struct bn_kept_grammar *k = find(g, fresh);
    if (k) k->users++;
    pthread_mutex_unlock(&g->lock);
    if (k) {
        free(fresh);
    } else {
        bitnet_status s = compile(g, fresh, &own);
        if (s == BITNET_E_NOMEM) {
            free_kept(fresh);
            return bn_fail(err, s, "%s", own.text);
        }
        k = keep(g, fresh);
    }
    if (!k->failed) {
        *out = k;
        return BITNET_OK;
    }
    own = k->why;
    bn_grammars_give(g, k);
    return bn_fail(err, own.status, "%s", own.text);
}

void bn_grammars_give(struct bn_grammars *g, struct bn_kept_grammar *k)
{
    if (!k) return;
    pthread_mutex_lock(&g->lock);
    k->users--;
    trim(g);
    pthread_mutex_unlock(&g->lock);
}
