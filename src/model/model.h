/* SPDX-License-Identifier: Apache-2.0
 * A model in memory: configuration, packed weights, tokenizer. Immutable after open and shared by
 * any number of engines. Dense tensors (embedding, head) are as in the file, in its mapping or read
 * from it; ternary matrices are held once, in the layout of the chosen kernels; norms are f32. */
#ifndef BN_MODEL_MODEL_H
#define BN_MODEL_MODEL_H

#include "base/buf.h"
#include "base/os/mem.h"
#include "base/machine/numa.h"
#include "base/threads/pool.h"
#include "dist/dist.h"
#include "kernels/kernels.h"
#include "model/config/config.h"
#include "model/head/head_rotate.h"
#include "text/tokenizer/tokenizer.h"

/* One that a layer does not have is dense and has no rows. */
struct bn_matrix {
    bool dense;
    bool rotated;               /* its input is (hadamard.h) */
    const struct bn_gemm *gemm; /* projections: layout and kernel; dense ones, too, cut their shares
                                 * by its groups */
    struct bn_packed packed;    /* ternary */
    struct bn_stored stored;    /* dense: in the mapping, or in the slab */
};

/* Block scales of a packed matrix, in memory. */
static inline size_t bn_matrix_scale_bytes(const struct bn_matrix *w)
{
    const struct bn_packed *p = &w->packed;
    if (w->dense || p->scale_kind != BN_SCALE_BLOCK) return 0;
    return bn_scale_count(w->gemm, p->cols / p->block, p->rows) * sizeof *p->block_scale;
}

/* As it lies in memory, scales apart. */
static inline size_t bn_matrix_bytes(const struct bn_matrix *w)
{
    if (w->dense) return w->stored.bytes;
    return bn_div_up(w->packed.rows, w->gemm->group_rows) * w->gemm->group_bytes(w->packed.cols);
}

/* A matrix once more, in a layout of which parts can be taken (kernels.h, "r2" and "c2"). */
struct bn_part_copy {
    struct bn_packed w; /* data NULL: none */
    size_t bytes;
};

struct bn_layer {
    const float *attn_norm, *ffn_norm;         /* [n_embd]                             */
    const float *attn_sub_norm, *ffn_sub_norm; /* [n_head * head_dim], [n_ff] or NULL  */
    const float *q_norm, *k_norm;              /* [head_dim] or NULL                   */
    const float *in_norm[BN_N_PROJ];           /* of each projection's input, or NULL  */
    struct bn_matrix proj[BN_N_PROJ];          /* index: part - BN_P_Q                 */
    bool is_delta;                             /* has a delta net in place of attention */
    uint32_t number;                           /* among all layers                     */
    uint32_t index;                            /* among states, or in the KV cache     */
    const float *conv;                         /* of a delta net: [taps][conv width]   */
    const float *delta_a, *delta_dt;           /* [n_v_heads]                          */
    const float *delta_norm;                   /* [v_dim]                              */
    const float *mtp_embed_norm, *mtp_hidden_norm, *mtp_out_norm; /* [n_embd] or NULL  */
    struct bn_part_copy up_rows, down_cols; /* ffn_copy.c                           */
    float up_scale_max;                     /* of up_rows: the largest scale        */
};

/* The copy of the head that screening reads, one block of memory: all rows, rotated, in a coarse code
 * of 2 bits a weight, and what this leaves in a fine one (head_codes.h). */
struct bn_screen {
    struct bn_screen2 coarse;                             /* data: the block; NULL: none */
    struct bn_packed fine;                                /* "r2", scale 1 */
    const float *scale, *noise, *fine_scale, *fine_noise; /* [rows] */
    struct bn_rotation rotation;
    const float *dither; /* [coarse.cols], of hidden states */
};

/* All that decoding reads of packed memory once more, in the memory of another node (replica.c). */
struct bn_replica {
    struct bn_layer *layers; /* [n_layer]; norms and dense matrices are the model's own */
    struct bn_screen screen;
    struct bn_dense8 head_int8;
    uint8_t *block;
    size_t bytes;
};

/* Weights that were packed before and lie in a file (image.h). */
struct bn_image {
    char *path;                 /* of the file; NULL: no image */
    struct bn_mapping map;      /* of an entry of the cache; a GGUF is mapped by the source */
    struct bn_image_view *view; /* in that mapping */
    uint64_t file_at;           /* where the image begins in its file */
    const uint8_t *data;        /* the view's, or a copy of it in the slab */
    bool entry;                 /* of the cache: it goes if it is found damaged */
    bool mapped;                /* data are used where the file is mapped */
    bool head_copy;             /* the head's copy lies in it */
    bool left_aside;            /* it holds copies that were not asked for */
    bool lacked;                /* copies were asked for that it does not hold */
    struct bn_image_check *check;
};

struct bn_savings;

/* What ranks have of a model that several of them compute: heads of keys, of attention and of delta
 * nets, channels of feed-forward layers, rows of what a block adds, rows of the head. (parts.c) */
struct bn_parts {
    struct bn_cut heads, delta_heads, channels, outputs, logits;
    bool whole; /* all rows of what a block adds are on every rank */
};

struct bn_model {
    struct bn_source source;   /* mappings stay open: dense tensors live there */
    struct bn_backing backing; /* of the slab and the head's copy; how engines have theirs */
    uint32_t prefetch_bytes;   /* how far ahead kernels ask for weights */
    struct bn_config config;
    enum bn_act_quant activations; /* as linear layers take them here; the config says how the model
                                    * was trained */
    bool activations_given;        /* by the caller: a plan has no say in them */
    struct bn_kernels kernels;
    const struct bn_gemm *gemm;        /* the layout wanted; what it cannot hold is in gemm_t2 */
    const struct bn_gemm *gemm_binary; /* the same for matrices of -1 and +1 only */
    struct bn_tokenizer *tokenizer;    /* NULL: the file has none */
    struct bn_layer *layers;           /* [n_layer + n_mtp] */
    const float *out_norm;             /* [n_embd] */
    const float *rope_factors;         /* [rope_dim / 2] */
    struct bn_matrix embed, head; /* embed: dense. head: packed if it is ternary, with `stored` as
                                        * in the file all the same; the embedding when tied */
    const float *signs[BN_MAX_HADAMARD_WIDTHS]; /* [width] of rotated inputs, as in the config */
    bool embed_rotated;                         /* rows are to be turned back */
    bool delta_out_tiled;       /* the delta nets' output is wanted in the file's order */
    struct bn_screen screen;    /* copy of the head for screening (head_copy.c), or none */
    struct bn_dense8 head_int8; /* its copy with one byte a weight; data NULL: none */
    struct bn_image image;
    struct bn_cache *cache; /* where the packed weights are kept for the next time; NULL: nowhere */
    struct bn_slab slab;    /* norms, scales, packed matrices, in the order of their use, and ffn
                                  * copies; dense tensors, if the file is not mapped */
    struct bn_numa *numa;   /* NULL: off, or there is one node only */
    struct bn_replica *replicas;        /* [n_replicas], of the nodes from 1 on */
    uint32_t n_replicas, n_nodes;       /* n_nodes: that weights lie in */
    uint64_t replica_bytes, near_bytes; /* near_bytes: of all layers, see bn_place_near */
    size_t head_copy_bytes;             /* of the one copy there is */
    size_t head_packed_bytes;           /* of a ternary head, scales included */
    uint64_t mtp_bytes;                 /* of layers that draft, scales included */
    uint64_t ffn_bytes;                 /* copies of feed-forward matrices */
    struct bn_buf note;                 /* repairs and assumptions, sentences for the user */
    const char *weight_type;            /* of the projections, "mixed" if not one */
    const char *layout;                 /* of the packed matrices, "mixed" if not one, "" if none */
    uint64_t n_params, n_params_ternary, packed_bytes, load_ns;
    struct bn_dist *dist;         /* NULL: this process computes it alone */
    struct bn_parts parts;        /* with dist */
    struct bn_savings *savings;   /* the plan of its engines where they have none; NULL: none */
    uint64_t checksum;            /* of what a plan is for (savings.h) */
    _Atomic uint64_t *n_adapters; /* opened so far (adapter.h) */
};

/* Bytes, whole cache lines. 4096 is worth a third of the speed from DRAM. */
enum { BN_PREFETCH_DEFAULT = 4096, BN_PREFETCH_MAX = 64 << 10 };

/* PLAN: as the plan says, else EXACT; never left when a model or engine is open */
enum bn_head_mode { BN_HEAD_AUTO, BN_HEAD_EXACT, BN_HEAD_SCREENED, BN_HEAD_INT8, BN_HEAD_PLAN };
enum bn_ffn_mode { BN_FFN_AUTO, BN_FFN_DENSE, BN_FFN_SKIP };

/* path: NULL for the embedded model. The options are whole, and every member counts but size. */
bitnet_status bn_model_open(struct bn_model **out, const char *path, const bitnet_model_options *o,
                            bitnet_error *err);
/* On a machine that a test makes up; NULL: this one. */
bitnet_status bn_model_open_on(struct bn_model **out, const char *path,
                               const bitnet_model_options *o, const struct bn_numa_pretend *pretend,
                               bitnet_error *err);
/* As bitnet_model_open_ranked, without what ranks tell each other. */
bitnet_status bn_model_open_ranked(struct bn_model **out, const char *path,
                                   const bitnet_model_options *o, const bitnet_ranks *ranks,
                                   bitnet_error *err);
void bn_model_close(struct bn_model *m);
/* Whether all of its pages are meant to stay in memory: then none is given back to the file. */
static inline bool bn_model_keeps_pages(const struct bn_model *m)
{
    return m->backing.lock || m->source.to_read;
}
/* Reads from every page of the weights. (memory.c) */
void bn_model_touch(const struct bn_model *m);
/* BITNET_E_FORMAT: packed weights were found damaged meanwhile. (image_check.c) */
bitnet_status bn_model_check(const struct bn_model *m, bitnet_error *err);
/* All matrices of the layers, without those that draft, as they lie in memory. */
uint64_t bn_model_layer_bytes(const struct bn_model *m);

/* The kernels that a backend's name (NULL: auto) means on this CPU, once they have been compared with
 * the reference. */
bitnet_status bn_choose_kernels(struct bn_kernels *out, const char *backend, bitnet_error *err);
/* What the workers of a node read. */
static inline const struct bn_layer *bn_model_layers(const struct bn_model *m, uint32_t node)
{
    return node && node <= m->n_replicas ? m->replicas[node - 1].layers : m->layers;
}
static inline const struct bn_screen *bn_model_screen(const struct bn_model *m, uint32_t node)
{
    return node && node <= m->n_replicas ? &m->replicas[node - 1].screen : &m->screen;
}
static inline const struct bn_dense8 *bn_model_head_int8(const struct bn_model *m, uint32_t node)
{
    return node && node <= m->n_replicas ? &m->replicas[node - 1].head_int8 : &m->head_int8;
}

/* ---- parts.c: of a model that several ranks compute ---- */

/* Cuts it, or says why that cannot be. After the configuration is read. */
bitnet_status bn_parts_choose(struct bn_model *m, bitnet_error *err);
/* Rows of a projection that are here, one piece after the other: all of them without ranks. */
struct bn_here {
    size_t n_rows;
    uint32_t n_pieces;
    struct bn_range piece[3]; /* of all rows */
};
struct bn_here bn_part_here(const struct bn_model *m, enum bn_part p);
/* Which one of all rows is row r of those here. */
static inline size_t bn_here_row(const struct bn_here *h, size_t r)
{
    uint32_t i = 0;
    while (r >= h->piece[i].end - h->piece[i].begin) {
        r -= h->piece[i].end - h->piece[i].begin;
        i++;
    }
    return h->piece[i].begin + r;
}
/* The heads of keys that are here, those of delta nets, a delta net of these alone, and the rows of
 * the head. */
struct bn_range bn_parts_heads(const struct bn_model *m);
struct bn_range bn_parts_delta_heads(const struct bn_model *m);
struct bn_delta_shape bn_parts_delta(const struct bn_model *m);
struct bn_range bn_parts_logits(const struct bn_model *m);
/* Rows of a dense matrix by themselves. */
void bn_stored_cut(struct bn_stored *t, struct bn_range rows);

/* The rotation of an input of n columns, as y = H(s x); or of a row back, y = s (H x). y may be x. */
void bn_model_rotate(const struct bn_model *m, float *y, const float *x, size_t n, bool back);
/* The embedding of a token, out[n_embd]. */
void bn_model_embed(const struct bn_model *m, float *out, int32_t token);
/* Row r of a dense tensor as floats, by the model's kernels. */
void bn_stored_row(const struct bn_kernels *k, float *out, const struct bn_stored *t, uint64_t r);
/* Rows [r, r + n_rows) of it times n_tok tokens, as dots in kernels.h. */
struct bn_stored_product {
    float *y; /* of token t and row r + i: y[t * y_stride + i] */
    size_t y_stride;
    uint64_t r;
    size_t n_rows;
    const float *x; /* [n_tok][x_stride], cols used */
    size_t x_stride, n_tok;
    float *wide; /* [n_rows][cols], the caller's: for rows as floats */
};
void bn_stored_dots(const struct bn_kernels *k, const struct bn_stored *t,
                    const struct bn_stored_product *p);

/* ---- inside the room ---- */

/* A copy of the head in memory that p lays out; the block begins with its data. (head_copy.c) */
void bn_screen_lay_out(struct bn_screen *s, struct bn_plan *p, size_t rows, size_t cols,
                       size_t ahead);
void bn_dense8_lay_out(struct bn_dense8 *w, struct bn_plan *p, size_t rows, size_t cols,
                       size_t ahead);
/* The block of the one there is; NULL: none. */
const void *bn_head_copy_data(const struct bn_screen *s, const struct bn_dense8 *int8);

/* The layout of ternary matrices that take `bytes` in "t2". "t3" and "t5" read fewer bytes and take
 * more instructions. One core alone gets its bytes fast enough for "t2" to be ahead of "t3"; several
 * share the memory, and "t3" wins from two threads on. "t5" has the fewest bytes and, with a kernel of
 * its own, fewer instructions than "t3"; it is not behind "t2" with one thread either. With float
 * activations instructions are the limit anyway, and so they are without a kernel made for these
 * layouts, or if the caches hold the weights (docs/inside/layouts.md has the rules). Activations in
 * planes have layouts of their own. (model.c) */
const struct bn_gemm *bn_layout_auto(const struct bn_kernels *k, enum bn_act_quant act,
                                     uint64_t bytes, uint32_t threads);

/* How memory is to be had, before any is taken; and when all is loaded: it is locked, and a note says
 * what was not there. (memory.c) */
bitnet_status bn_memory_choose(struct bn_model *m, const bitnet_model_options *o,
                               bitnet_error *err);
bitnet_status bn_memory_settle(struct bn_model *m, bitnet_error *err);

/* Binds and packs every tensor; refuses tensors that the architecture does not know. (weights.c) */
bitnet_status bn_weights_load(struct bn_model *m, struct bn_pool *pool, bitnet_progress_fn progress,
                              void *user, bitnet_error *err);
void bn_weights_free(struct bn_model *m);

/* Memory of weights goes to its nodes, before it is written. It lies in a block of huge pages: one that
 * two nodes have a part of goes to the one that has most of it. rows: cut by the pool's shares at
 * multiples of `grain`; 0: every worker reads all over it. (place.c) */
void bn_place_weights(const struct bn_model *m, const struct bn_pool *pool, void *data,
                      size_t bytes, size_t rows, size_t grain);
/* The same for what all workers read and write. */
void bn_place_shared(const struct bn_model *m, void *data, size_t bytes);
/* Bytes of the layers' packed matrices that lie in the node where they are read. */
uint64_t bn_place_near(const struct bn_model *m, const struct bn_pool *pool);

/* With "replicate": once all weights are packed. (replica.c) */
bitnet_status bn_replicas_make(struct bn_model *m, struct bn_pool *pool, bitnet_error *err);
void bn_replicas_free(struct bn_model *m);

/* The vocabulary that belongs to an opened file: from GGUF metadata, or from the files beside the
 * safetensors. *found: false if there is none. (source_vocab.c) */
bitnet_status bn_source_vocab(struct bn_vocab *v, bool *found, const struct bn_source *s,
                              struct bn_buf *note, bitnet_error *err);
/* A vocabulary by itself: of a model, or a tokenizer.json, a SentencePiece .model, or a folder with
 * one of them. */
bitnet_status bn_vocab_open(struct bn_vocab *v, const char *path, struct bn_buf *note,
                            bitnet_error *err);
bool bn_i2s_layout_parse(enum bn_i2s_layout *out,
                         const char *name); /* NULL, "auto", "128", "64", "rows4" */

#endif
