/* SPDX-License-Identifier: Apache-2.0
 * Many sequences over one model: takes requests, makes one ragged batch a step, samples, and
 * reports events. Owns the pool, the KV cache and all scratch memory; a step allocates nothing. One
 * thread drives it. */
#ifndef BN_ENGINE_ENGINE_H
#define BN_ENGINE_ENGINE_H

#include "model/model.h"

enum {
    BN_MAX_SEQS = 1024,
    BN_MAX_BATCH_TOKENS = 8192,
    BN_MAX_QUEUE = 4096, /* requests waiting for a place */
    BN_MAX_KV_TOKENS = 1 << 30,
    BN_MAX_DRAFT_ROWS = 32, /* drafts of all sequences in one step */
    BN_DEFAULT_CTX = 4096,
    BN_DEFAULT_DRAFT = 4,
    BN_DEFAULT_BATCH_TOKENS = 512,
    BN_STATE_CACHE_SHARE = 8 /* of available memory an eighth is for snapshots of states */
};

bitnet_status bn_engine_open(struct bitnet_engine **out, const struct bn_model *m,
                             const bitnet_engine_options *o, bitnet_error *err);
bitnet_status bn_engine_warmup(struct bitnet_engine *e, bitnet_error *err);
void bn_engine_close(struct bitnet_engine *e);
void bn_engine_info(const struct bitnet_engine *e, bitnet_engine_info *info);
bool bn_engine_ffn_layer(const struct bitnet_engine *e, uint32_t layer, bitnet_ffn_layer *info);
/* What bitnet_engine_options.state_cache_bytes stands for on this machine. */
int64_t bn_engine_state_cache(const bitnet_engine_options *o);
/* By ranks other than 0 of a model that several compute: a pass that rank 0 has announced. */
bitnet_status bn_engine_follow(struct bitnet_engine *e, const struct bn_buf *message,
                               bitnet_error *err);
uint32_t bn_engine_ctx(const struct bitnet_engine *e);
const struct bn_model *bn_engine_model(const struct bitnet_engine *e);

/* From now on the inputs of all matrices are counted (model/census.h). */
bitnet_status bn_engine_watch(struct bitnet_engine *e, bitnet_error *err);
struct bn_census;
const struct bn_census *bn_engine_census(const struct bitnet_engine *e); /* NULL: not watched */

/* As bitnet_eval and bitnet_eval_reset in bitnet.h. */
bitnet_status bn_engine_eval(struct bitnet_engine *e, uint32_t seq, const int32_t *tokens, size_t n,
                             bool last_only, float *logits, bitnet_error *err);
bitnet_status bn_engine_eval_reset(struct bitnet_engine *e, uint32_t seq, bitnet_error *err);

/* As bitnet_engine_set_adapters. (adapters.c) */
bitnet_status bn_engine_set_adapters(struct bitnet_engine *e, const bitnet_adapter_use *uses,
                                     size_t n, bitnet_error *err);

/* As bitnet_embed. (embed.c) */
bitnet_status bn_engine_embed(struct bitnet_engine *e, const bitnet_embed_input *inputs, size_t n,
                              const bitnet_embed_options *o, float *out, bitnet_error *err);

/* As bitnet_score. (score.c) */
bitnet_status bn_engine_score(struct bitnet_engine *e, const bitnet_score_input *inputs, size_t n,
                              const bitnet_score_options *o, bitnet_score_result *out,
                              bitnet_error *err);

/* Opened before fork(), in the parent: BITNET_E_STATE. What this process has of it can be closed. */
bitnet_status bn_engine_own(const struct bitnet_engine *e, bitnet_error *err);

/* As bitnet_engine_identity. (identity.c) */
bitnet_status bn_engine_identity(struct bitnet_engine *e, const bitnet_adapter_use *uses, size_t n,
                                 uint64_t *out, bitnet_error *err);

/* As bitnet_prefix_save, _load and _forget. (prefix_file.c) */
bitnet_status bn_engine_save_prefix(struct bitnet_engine *e, const char *path,
                                    const int32_t *tokens, size_t n, const bitnet_prefix_options *o,
                                    bitnet_prefix_file *info, bitnet_error *err);
bitnet_status bn_engine_load_prefix(struct bitnet_engine *e, const char *path, int32_t *tokens,
                                    size_t *n, const bitnet_prefix_options *o,
                                    bitnet_prefix_file *info, bitnet_error *err);
bitnet_status bn_engine_forget_prefix(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                                      const bitnet_prefix_options *o, size_t *n_forgotten,
                                      bitnet_error *err);

/* A text from its beginning through part of the stack (model/forward.h); n tokens are one batch. logits:
 * [n][n_vocab], or NULL. Needs a sequence that is free, and leaves it free. (walk.c) */
struct bn_walk;
bitnet_status bn_engine_walk(struct bitnet_engine *e, const int32_t *tokens, size_t n,
                             const struct bn_walk *part, float *logits, bitnet_error *err);
uint32_t bn_engine_batch_tokens(const struct bitnet_engine *e); /* the most of one batch */

/* As bitnet_profile_... (profile.c); false: without a profile, or past the end. */
bool bn_engine_profile_entry(const struct bitnet_engine *e, size_t i, bitnet_profile_entry *out);
bool bn_engine_profile_info(const struct bitnet_engine *e, bitnet_profile_info *info);
bool bn_engine_profile_span(const struct bitnet_engine *e, uint32_t worker, size_t i,
                            bitnet_profile_span *out);
void bn_engine_profile_reset(struct bitnet_engine *e);

/* As bitnet_prepare: by any thread. */
bitnet_status bn_engine_prepare(struct bitnet_engine *e, const bitnet_request *r,
                                bitnet_error *err);
bitnet_status bn_engine_submit(struct bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                               bitnet_error *err);
bitnet_status bn_engine_cancel(struct bitnet_engine *e, uint64_t id);
/* *n: the most that are wanted, then their count. Events are borrowed until the next call. */
bitnet_status bn_engine_step(struct bitnet_engine *e, const bitnet_event **events, size_t *n,
                             bitnet_error *err);

#endif
