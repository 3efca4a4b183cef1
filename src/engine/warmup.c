/* SPDX-License-Identifier: Apache-2.0
 * Everything that the first tokens would wait for, before they come. What can be reached is touched:
 * weights, the cache, scratch memory, code, stacks; then two small passes, a prompt and a token, run what
 * cannot be touched from here. They use a sequence and pages that are free, and count nowhere. */
#include "engine/engine_impl.h"

#include <link.h>
#include <math.h>

enum { STACK_PIECE = 8 << 10, STACK_PIECES = 8 }; /* more than any path of a worker takes */

static __attribute__((noinline)) void touch_stack(unsigned pieces)
{
    uint8_t piece[STACK_PIECE];
    bn_touch(piece, sizeof piece);
    if (pieces > 1) touch_stack(pieces - 1);
    bn_touch(piece, 1); /* it is needed until here */
}

static void touch_stacks(void *arg, uint32_t worker)
{
    (void)arg;
    (void)worker;
    touch_stack(STACK_PIECES);
}

/* Code comes from files, too: that of the program, or of one of its libraries. */
static int touch_code(struct dl_phdr_info *object, size_t size, void *user)
{
    (void)size;
    (void)user;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &object->dlpi_phdr[i];
        if (h->p_type == PT_LOAD && (h->p_flags & PF_X) && (h->p_flags & PF_R))
            bn_touch_read((const void *)(object->dlpi_addr + h->p_vaddr), h->p_memsz);
    }
    return 0;
}

/* n tokens of a sequence from `pos` on; the last one's logits are wanted. */
static void try_pass(struct bitnet_engine *e, struct bn_kv_seq *s, uint32_t pos, size_t n,
                     struct bn_want want)
{
    for (size_t i = 0; i < n; i++)
        e->batch[i] = (struct bn_batch_token){.pos = pos + (uint32_t)i, .seq = s};
    e->batch[n - 1].want = want;
    bn_forward_try(e->forward, e->batch, n, e->logits);
}

/* Where the prefix cache has all pages there is no room, and no need: passes have run before. */
static void try_passes(struct bitnet_engine *e)
{
    struct bn_kv_seq *s = &e->seqs[0];
    uint32_t n = (uint32_t)bn_min_size(bn_min_size(e->max_batch, e->ctx), BN_ATTN_BLOCK);
    if (!bn_kv_reserve(&e->kv, s, n)) return;
    try_pass(e, s, 0, n, (struct bn_want){.kind = BN_WANT_ALL});
    try_pass(e, s, n - 1, 1, (struct bn_want){.kind = BN_WANT_BEST, .k = 1, .below = INFINITY});
    bn_kv_release(&e->kv, s);
}

bitnet_status bn_engine_warmup(struct bitnet_engine *e, bitnet_error *err)
{
    uint32_t pages = bn_engine_eval_pages(e);
    if (e->n_choices)
        return bn_fail(err, BITNET_E_STATE, "a warm-up with %u choices to come; there must be none",
                       e->n_choices);
    if (pages)
        return bn_fail(err, BITNET_E_STATE,
                       "a warm-up while sequences of bitnet_eval hold %u pages of the KV cache; "
                       "bitnet_eval_reset frees them",
                       pages);
    dl_iterate_phdr(touch_code, NULL);
    bn_model_touch(e->m);
    bn_touch(e->kv.data, e->kv.bytes);
    bn_touch(e->logits, e->logits_bytes);
    for (uint32_t i = 0; bn_kv_has_blocks(&e->kv) && i < e->max_seqs; i++)
        bn_touch(e->seqs[i].tail->data, e->kv.tail_bytes);
    bn_touch(e->states.data, e->states.bytes);
    for (uint32_t i = 0; e->seq_states && e->states.max_drafts && i < e->max_seqs; i++)
        bn_touch(e->seq_states[i].drafts,
                 bn_state_draft_bytes(&e->m->config, e->states.max_drafts));
    bn_forward_warm(e->forward);
    e->warm = true;
    /* jobs want a period; what it has noted is not kept */
    bn_prof_begin(e->prof, BN_PHASE_DECODE, BN_OP_PLAN, 0);
    bn_pool_run(e->pool, touch_stacks, NULL);
    try_passes(e);
    bn_prof_end(e->prof, 0);
    bn_engine_profile_reset(e);
    return BITNET_OK;
}
