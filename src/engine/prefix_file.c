/* SPDX-License-Identifier: Apache-2.0
 *
 * What the prefix cache knows of a text, as a file, and back: keys and values page by page, and of hybrids
 * the state behind the last page. All numbers are little-endian, as everywhere (image.h):
 *
 *   struct head                  what it is, for which engine, how much of it
 *   int32 tokens[n_tokens]       then zeros up to a multiple of 8
 *   uint64 sums[n_pages + 1]     of every page, and of the state (0 without)
 *   pages [n_pages][page_bytes], state [state_bytes]
 *
 * Where a page is not full, rows behind the text are zeros: what others left there does not leave the
 * memory. Nothing a file says is believed before it was compared: sizes must be those of this engine, and
 * bytes go to pages that nobody knows until their sums are right. Any bytes may be keys and values; those
 * that are not finite end a request as other logits do that are not.
 */
#include "engine/engine_impl.h"

#include "base/checksum.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include <stdio.h>
#include <stdlib.h>

enum { VERSION = 1, LIBRARY_BYTES = 24 };
static const char magic[8] = "BITNETKV";

struct head {
    char magic[8];
    uint32_t version, page_tokens;
    uint64_t sum;      /* of all that stands before the pages, with 0 in this place */
    uint64_t engine;   /* the model, and how this engine computes and keeps what it has computed */
    uint64_t adapters; /* 0: none */
    uint64_t n_tokens, n_pages;
    uint64_t page_bytes, state_bytes;
    char library[LIBRARY_BYTES]; /* bits are those of one version */
};

/* A file while it is written or read. */
struct text_file {
    struct bitnet_engine *e;
    const char *path;
    struct head *head; /* and what follows it, up to the pages */
    size_t head_bytes;
    int32_t *tokens;
    uint64_t *sums;
    struct bn_kv_seq seq; /* holds the pages */
};

/* ------------------------------------------------------------------ whose it is */

static bitnet_status need_prefix(const struct bitnet_engine *e, bitnet_error *err)
{
    if (e->prefix && !e->random_kv) return BITNET_OK;
    return bn_fail(err, BITNET_E_STATE, "this engine has no prefix cache, which keeps texts");
}

static bitnet_status find_key(struct bitnet_engine *e, struct bn_mix *mix,
                              const bitnet_prefix_options *o, bitnet_error *err)
{
    const bitnet_request r = {.adapters = o->adapters, .n_adapters = o->n_adapters};
    BN_TRY(need_prefix(e, err));
    return bn_engine_choose_mix(e, mix, &r, err);
}

/* ------------------------------------------------------------------ the file's parts */

static size_t tokens_bytes(uint64_t n_tokens)
{
    return bn_align_up((size_t)n_tokens * sizeof(int32_t), sizeof(uint64_t));
}

static size_t head_bytes(const struct head *h)
{
    return sizeof *h + tokens_bytes(h->n_tokens) + ((size_t)h->n_pages + 1) * sizeof(uint64_t);
}

static uint64_t file_bytes(const struct head *h)
{
    return head_bytes(h) + h->n_pages * h->page_bytes + h->state_bytes;
}

static bitnet_status describe(struct head *h, const struct bitnet_engine *e,
                              const struct bn_mix *mix, uint32_t n_tokens, bitnet_error *err)
{
    *h = (struct head){.version = VERSION,
                       .page_tokens = BN_ATTN_BLOCK,
                       .adapters = bn_mix_identity(mix),
                       .n_tokens = n_tokens,
                       .n_pages = bn_kv_pages_for(n_tokens),
                       .page_bytes = e->kv.page_bytes,
                       .state_bytes = e->states.slot_bytes};
    memcpy(h->magic, magic, sizeof magic);
    snprintf(h->library, sizeof h->library, "%s", bitnet_version());
    return bn_cache_identity(&h->engine, e, err);
}

static bitnet_status open_file(struct text_file *f, const struct head *h, bitnet_error *err)
{
    f->head_bytes = head_bytes(h);
    f->head = bn_calloc(1, f->head_bytes);
    if (!f->head) return bn_fail_nomem(err, f->head_bytes, "a text and its sums");
    *f->head = *h;
    f->tokens = (int32_t *)(f->head + 1);
    f->sums = (uint64_t *)((uint8_t *)f->tokens + tokens_bytes(h->n_tokens));
    return BITNET_OK;
}

static bitnet_status open_seq(struct text_file *f, size_t n_tokens, bitnet_error *err)
{
    if (bn_kv_seq_open(&f->seq, &f->e->kv, (uint32_t)n_tokens)) return BITNET_OK;
    return bn_fail_nomem(err, bn_kv_pages_for((uint32_t)n_tokens) * sizeof *f->seq.pages,
                         "the pages of a text");
}

static void close_file(struct text_file *f)
{
    bn_kv_release(&f->e->kv, &f->seq);
    bn_kv_seq_close(&f->seq);
    free(f->head);
}

static uint64_t head_sum(const struct text_file *f)
{
    uint64_t sum = f->head->sum;
    f->head->sum = 0;
    uint64_t is = bn_checksum(f->head, f->head_bytes);
    f->head->sum = sum;
    return is;
}

static uint8_t *page_at(const struct text_file *f, uint64_t i)
{
    return f->e->kv.data + f->seq.pages[i] * f->e->kv.page_bytes;
}

static uint8_t *snapshot_at(const struct bitnet_engine *e, uint32_t slot)
{
    return bn_state_slot(&e->states, e->max_seqs + slot);
}

/* ------------------------------------------------------------------ saving */

static void clear_rest(const struct bn_kv *kv, uint8_t *page, uint32_t n_tokens)
{
    for (uint32_t il = 0; il < kv->n_layer; il++)
        for (uint32_t h = 0; h < 2 * kv->n_head_kv; h++) {
            bool values = h >= kv->n_head_kv;
            size_t at = (size_t)(bn_kv_head(kv, il, 0, h % kv->n_head_kv, values) - kv->data);
            bn_kv_clear_rows(bn_kv_side(kv, il, values), page + at, n_tokens);
        }
}

/* last: a copy of the page that is not full, or NULL; state: or NULL */
static bitnet_status write_file(struct text_file *f, const uint8_t *last, const uint8_t *state,
                                bitnet_error *err)
{
    struct head *h = f->head;
    struct bn_out out;
    for (uint64_t i = 0; i < h->n_pages; i++)
        f->sums[i] = bn_checksum(last && i + 1 == h->n_pages ? last : page_at(f, i), h->page_bytes);
    if (state) f->sums[h->n_pages] = bn_checksum(state, h->state_bytes);
    h->sum = head_sum(f);
    BN_TRY(bn_out_open(&out, f->path, true, err));
    bitnet_status s = bn_out_write(&out, h, f->head_bytes, err);
    for (uint64_t i = 0; s == BITNET_OK && i < h->n_pages; i++)
        s = bn_out_write(&out, last && i + 1 == h->n_pages ? last : page_at(f, i), h->page_bytes,
                         err);
    if (s == BITNET_OK && state) s = bn_out_write(&out, state, h->state_bytes, err);
    if (s == BITNET_OK) s = bn_out_commit(&out, err);
    bn_out_close(&out);
    return s;
}

static bitnet_status save_shared(struct text_file *f, bitnet_error *err)
{
    struct bitnet_engine *e = f->e;
    const struct head *h = f->head;
    uint32_t rest = h->n_tokens % BN_ATTN_BLOCK;
    uint8_t *last = NULL;
    const uint8_t *state = NULL;
    if (h->state_bytes) state = snapshot_at(e, bn_prefix_matched_slot(e->prefix, &f->seq));
    if (rest) {
        last = bn_calloc(1, h->page_bytes);
        if (!last) return bn_fail_nomem(err, h->page_bytes, "a page");
        memcpy(last, page_at(f, h->n_pages - 1), h->page_bytes);
        clear_rest(&e->kv, last, rest);
    }
    bitnet_status s = write_file(f, last, state, err);
    free(last);
    return s;
}

static void tell(bitnet_prefix_file *info, const struct head *h, uint64_t began_ns)
{
    *info = (bitnet_prefix_file){.size = sizeof *info,
                                 .n_tokens = h->n_tokens,
                                 .bytes = file_bytes(h),
                                 .ns = bn_now_ns() - began_ns};
}

bitnet_status bn_engine_save_prefix(struct bitnet_engine *e, const char *path,
                                    const int32_t *tokens, size_t n, const bitnet_prefix_options *o,
                                    bitnet_prefix_file *info, bitnet_error *err)
{
    struct bn_mix mix;
    struct head h;
    struct text_file f = {.e = e, .path = path};
    uint64_t began_ns = bn_now_ns();
    BN_TRY(bn_engine_alone(e, "texts are saved", err));
    BN_TRY(find_key(e, &mix, o, err));
    n = bn_min_size(n, e->ctx);
    uint32_t known = 0;
    bitnet_status s = open_seq(&f, bn_max_size(n, 1), err);
    if (s == BITNET_OK) known = bn_prefix_share(e->prefix, mix.key, tokens, (uint32_t)n, &f.seq);
    if (s == BITNET_OK && !known)
        s = bn_fail(err, BITNET_E_STATE, "nothing of this text is in the prefix cache");
    if (s == BITNET_OK) s = describe(&h, e, &mix, known, err);
    if (s == BITNET_OK) s = open_file(&f, &h, err);
    if (s == BITNET_OK) {
        memcpy(f.tokens, tokens, known * sizeof *tokens);
        s = save_shared(&f, err);
        tell(info, &h, began_ns);
    }
    close_file(&f);
    return s;
}

/* ------------------------------------------------------------------ loading */

static bitnet_status fail_other(const struct text_file *f, const char *why, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_FORMAT, "'%s' %s", f->path, why);
}

/* What stands in the file's first bytes, against what this engine would write. */
static bitnet_status check_head(const struct text_file *f, const struct head *h,
                                const struct bn_mix *mix, uint64_t bytes, bitnet_error *err)
{
    struct head mine;
    const struct bitnet_engine *e = f->e;
    bool whole_pages = e->states.n_layer || bn_kv_has_blocks(&e->kv);
    if (memcmp(h->magic, magic, sizeof magic) != 0)
        return fail_other(f, "is no file of a saved text", err);
    if (h->version != VERSION || h->page_tokens != BN_ATTN_BLOCK)
        return fail_other(f, "has a form that this version does not know", err);
    if (h->n_tokens == 0 || h->n_tokens > e->ctx)
        return bn_fail(err, BITNET_E_LIMIT,
                       "'%s' holds %llu tokens; the context of this engine has %u", f->path,
                       (unsigned long long)h->n_tokens, e->ctx);
    BN_TRY(describe(&mine, e, mix, (uint32_t)h->n_tokens, err));
    if (memcmp(h->library, mine.library, sizeof mine.library) != 0)
        return fail_other(f, "was saved by another version", err);
    if (h->engine != mine.engine || h->page_bytes != mine.page_bytes ||
        h->state_bytes != mine.state_bytes)
        return fail_other(f, "was saved from another model, or with other types of its cache", err);
    if (h->adapters != mine.adapters) return fail_other(f, "was computed with other adapters", err);
    if (h->n_pages != mine.n_pages || (whole_pages && h->n_tokens % BN_ATTN_BLOCK) ||
        bytes != file_bytes(&mine))
        return fail_other(f, "is damaged: its size is not that of its contents", err);
    return BITNET_OK;
}

static bitnet_status fail_damaged(const struct text_file *f, const char *what, uint64_t i,
                                  bitnet_error *err)
{
    return bn_fail(err, BITNET_E_FORMAT, "'%s' is damaged: %s %llu is not as it was written",
                   f->path, what, (unsigned long long)i);
}

static bitnet_status read_head(struct text_file *f, const struct bn_mapping *map,
                               const struct bn_mix *mix, bitnet_error *err)
{
    struct head h;
    if (map->bytes < sizeof h) return fail_other(f, "is no file of a saved text", err);
    BN_TRY(bn_map_read(map, &h, 0, sizeof h, err));
    BN_TRY(check_head(f, &h, mix, map->bytes, err));
    BN_TRY(open_file(f, &h, err));
    BN_TRY(open_seq(f, (size_t)h.n_tokens, err));
    BN_TRY(bn_map_read(map, f->tokens, sizeof h, f->head_bytes - sizeof h, err));
    if (head_sum(f) != h.sum) return fail_damaged(f, "its head, of bytes,", f->head_bytes, err);
    return bn_engine_check_tokens(f->e, f->tokens, (size_t)h.n_tokens, err);
}

static bitnet_status read_part(const struct text_file *f, const struct bn_mapping *map, uint64_t i,
                               uint8_t *to, bitnet_error *err)
{
    const struct head *h = f->head;
    bool state = i == h->n_pages;
    size_t bytes = state ? h->state_bytes : h->page_bytes;
    BN_TRY(bn_map_read(map, to, f->head_bytes + i * h->page_bytes, bytes, err));
    if (bn_checksum(to, bytes) != f->sums[i])
        return fail_damaged(f, state ? "the state behind page" : "page", i, err);
    return BITNET_OK;
}

/* The slot for the state, which is out until it is kept; BN_NO_SLOT: there is no state. */
static bitnet_status read_pages(struct text_file *f, const struct bn_mapping *map, uint32_t *slot,
                                bitnet_error *err)
{
    struct bitnet_engine *e = f->e;
    const struct head *h = f->head;
    *slot = BN_NO_SLOT;
    if (!bn_engine_reserve(e, &f->seq, (uint32_t)h->n_tokens))
        return bn_fail(err, BITNET_E_STATE,
                       "a text of %llu tokens needs %llu pages of the KV cache, which are not "
                       "free now",
                       (unsigned long long)h->n_tokens, (unsigned long long)h->n_pages);
    for (uint64_t i = 0; i < h->n_pages; i++) BN_TRY(read_part(f, map, i, page_at(f, i), err));
    f->seq.n_tokens = (uint32_t)h->n_tokens;
    if (!h->state_bytes) return BITNET_OK;
    *slot = bn_snapshots_take(bn_prefix_snapshots(e->prefix), false);
    if (*slot == BN_NO_SLOT)
        return bn_fail(err, BITNET_E_STATE, "there is no room for the state of a text now");
    return read_part(f, map, h->n_pages, snapshot_at(e, *slot), err);
}

/* It is whole: from now on it is known. */
static void make_known(struct text_file *f, uint64_t key, uint32_t slot)
{
    struct bn_prefix *p = f->e->prefix;
    uint32_t n = (uint32_t)f->head->n_tokens;
    bn_prefix_add(p, key, f->tokens, n, &f->seq, true);
    if (slot != BN_NO_SLOT) bn_prefix_keep(p, key, f->tokens, n, &f->seq, slot);
}

static bitnet_status load(struct text_file *f, const struct bn_mapping *map,
                          const struct bn_mix *mix, int32_t *tokens, size_t *n, bitnet_error *err)
{
    uint32_t slot = BN_NO_SLOT;
    BN_TRY(read_head(f, map, mix, err));
    size_t room = *n;
    *n = (size_t)f->head->n_tokens;
    if (room < *n)
        return bn_fail(err, BITNET_E_LIMIT, "room for %zu tokens; '%s' has %zu", room, f->path, *n);
    bitnet_status s = read_pages(f, map, &slot, err);
    if (s == BITNET_OK) make_known(f, mix->key, slot);
    else if (slot != BN_NO_SLOT) bn_snapshots_give_back(bn_prefix_snapshots(f->e->prefix), slot);
    if (s == BITNET_OK) memcpy(tokens, f->tokens, *n * sizeof *tokens);
    return s;
}

bitnet_status bn_engine_load_prefix(struct bitnet_engine *e, const char *path, int32_t *tokens,
                                    size_t *n, const bitnet_prefix_options *o,
                                    bitnet_prefix_file *info, bitnet_error *err)
{
    struct bn_mix mix;
    struct bn_mapping map;
    uint64_t began_ns = bn_now_ns();
    BN_TRY(bn_engine_alone(e, "texts are restored", err));
    BN_TRY(find_key(e, &mix, o, err));
    BN_TRY(bn_map_file_to_read(&map, path, err));
    struct text_file f = {.e = e, .path = path};
    bitnet_status s = load(&f, &map, &mix, tokens, n, err);
    if (s == BITNET_OK) tell(info, f.head, began_ns);
    close_file(&f);
    bn_unmap_file(&map);
    return s;
}

bitnet_status bn_engine_forget_prefix(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                                      const bitnet_prefix_options *o, size_t *n_forgotten,
                                      bitnet_error *err)
{
    struct bn_mix mix;
    BN_TRY(find_key(e, &mix, o, err));
    uint32_t some = (uint32_t)bn_min_size(n, e->ctx);
    *n_forgotten = bn_prefix_forget(e->prefix, mix.key, tokens, some);
    return BITNET_OK;
}
