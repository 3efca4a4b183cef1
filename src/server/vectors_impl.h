/* SPDX-License-Identifier: Apache-2.0
 *
 * vectors_impl.h: requests for vectors, in whatever words they come: texts are read and encoded, the worker
 * computes their vectors between the steps of completions, and a form of words tells what came of it.
 */
#ifndef BN_SERVER_VECTORS_IMPL_H
#define BN_SERVER_VECTORS_IMPL_H

#include "server/openai/ignored.h"
#include "server/server_impl.h"

enum {
    VECTORS_MAX_INPUTS = 2048,
    VECTORS_MAX_BYTES = 256 << 20 /* of all vectors of a request */
};

struct vectors;

/* The words of one kind of request. */
struct vectors_form {
    /* On any thread. Reads the body, and the inputs with vectors_read_inputs or vectors_add_input. */
    bitnet_status (*read)(struct vectors *v, const struct bn_json *body, bitnet_error *err);
    /* On any thread. The reply; failed where memory is out. */
    void (*write)(const struct vectors *v, struct bn_buf *out);
    bool keeps_body; /* `write` looks at it */
    bool one_each;   /* a text has one vector, whatever the server's usual pooling is */
};

struct vectors {
    struct exchange x; /* first */
    const struct vectors_form *form;
    struct errand errand; /* it is read, perhaps on another thread */
    bitnet_status status;
    bitnet_error err;
    struct openai_ignored ignored;
    struct worker_task task;
    bitnet_embed_options options;
    bitnet_embed_input *inputs; /* [n], room for n_room */
    size_t n, n_room;
    uint64_t n_bytes, n_tokens; /* of all inputs */
    float *vectors; /* [n_rows][n_embd]: a row an input, with BITNET_POOL_NONE a token */
    size_t n_rows, n_embd;
    uint32_t n_told; /* of n_embd: numbers of a vector that are told */
    char *model;     /* as the body names it */
    struct bn_json *body;
    struct bn_buf out; /* the reply */
    uint64_t began_ns;
    bool base64;
    bool cut;              /* inputs that are too long are cut off */
    size_t n_first, n_top; /* of those who compare vectors: see compat/rank.c */
};

void serve_vectors(struct exchange *x, const struct vectors_form *form);

/* Texts, lists of token ids or both mixed, or a list of these. key: what they are called. */
bitnet_status vectors_read_inputs(struct vectors *v, const struct bn_json *input, const char *key,
                                  bitnet_error *err);
bitnet_status vectors_add_input(struct vectors *v, const struct bn_json *one, const char *key,
                                bitnet_error *err);
/* "model", if the body has one. */
bitnet_status vectors_read_model(struct vectors *v, const struct bn_json *body, bitnet_error *err);
/* "pooling": "mean" and "last"; "none" only where it is `allowed`. */
bitnet_status vectors_read_pooling(struct vectors *v, const struct bn_json *body, bool allow_none,
                                   bitnet_error *err);

/* "dimensions", if the body says it: n_told. */
bitnet_status vectors_read_dimensions(struct vectors *v, const struct bn_json *body,
                                      bitnet_error *err);

/* The first n of its numbers, brought to length 1, as those of the whole vector are. */
void vectors_shorten(float *x, size_t n, size_t n_embd);
/* [0.5,...], so that the very floats come back. */
void vectors_put(struct bn_buf *out, const float *x, size_t n);

#endif
