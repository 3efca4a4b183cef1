/* SPDX-License-Identifier: Apache-2.0
 * Packed weights as a file (docs/tune/packed.md): what packing has made, byte for byte as the kernels read
 * it, with a record of what lies where. Who finds an image does not pack: it maps the file, or copies
 * it where that is faster or asked for.
 *
 *   head | record | ... | data | sums
 *
 * The data begin at a multiple of BN_HUGE_PAGE of the image, which itself begins at one of its file;
 * the sums are checksums of pieces of the data. All numbers are little-endian.
 *
 * Two kinds of files hold one: entries of the cache (cache.h), which are an image alone and belong to
 * the file that they were made of, where dense tensors stay; and GGUF files by `convert --packed`, in
 * which it is a tensor, with metadata and dense tensors beside it.
 *
 * image_record.c  what a model is made of, one walk for writing and reading
 * image_write.c   from a model to a file
 * image.c         from a file to a model
 * image_check.c   the sums, in the background
 * image_repack.c  layouts for which this CPU has no kernel */
#ifndef BN_MODEL_IMAGE_IMAGE_H
#define BN_MODEL_IMAGE_IMAGE_H

#include "base/buf.h"
#include "model/model.h"

/* Changes with everything that changes what lies in the data: record, layouts, codes of the head. */
enum { BN_IMAGE_VERSION = 1 };

enum {
    BN_IMAGE_PIECE = 1 << 20,             /* bytes of data under one sum */
    BN_IMAGE_MAX_RECORD_BYTES = 16 << 20, /* about 2 KiB a layer are taken */
    BN_IMAGE_MAX_TEXT = 8192              /* of a key or path */
};

#define BN_IMAGE_TENSOR "bitnet.packed" /* its name in a GGUF */

struct bn_image_head {
    char magic[8];
    uint32_t version, piece_bytes;
    uint64_t bytes; /* of the image */
    uint64_t record_at, record_bytes, record_sum;
    uint64_t data_at, data_bytes;
    uint64_t sums_at;  /* [pieces], and one of them */
    uint64_t head_sum; /* of what stands before */
};

/* An image in memory, looked at: head, record and sums are as they were written. Borrowed from the
 * mapping. */
struct bn_image_view {
    struct bn_image_head head;
    const uint8_t *base; /* of the image */
    const uint8_t *record;
    const uint8_t *data;
    const uint8_t *sums;                                  /* u64 [pieces], unaligned */
    char path[BN_IMAGE_MAX_TEXT], key[BN_IMAGE_MAX_TEXT]; /* what it was made of */
};

/* Maps a file that holds one, in huge pages if the system has such for files. */
bitnet_status bn_image_map(struct bn_mapping *map, const char *path, bitnet_error *err);
/* path: of the file, for errors. BITNET_E_UNSUPPORTED: another version; BITNET_E_FORMAT: damaged or no
 * image at all. */
bitnet_status bn_image_look(struct bn_image_view *v, const void *base, size_t bytes,
                            const char *path, bitnet_error *err);
/* Piece i is as it was written; there are bn_image_pieces. data: a copy of v->data, or that. */
size_t bn_image_pieces(const struct bn_image_view *v);
bool bn_image_piece_good(const struct bn_image_view *v, const uint8_t *data, size_t i);

/* Fills the model's weights from m->image, whose view is set: from its mapping where the system
 * has huge pages for the file, and no other memory was asked for; else from a copy of it. Copies of head and layers that were not asked for are
 * left aside. (image.c) */
bitnet_status bn_image_load(struct bn_model *m, struct bn_pool *pool, enum bn_head_mode head,
                            enum bn_ffn_mode ffn, bitnet_error *err);
void bn_image_close(struct bn_model *m);
size_t bn_image_bytes(const struct bn_model *m); /* of its data; 0: no image */

/* Matrices in layouts that have no kernel of this CPU, or not the one that was asked for, are packed
 * again, and a note says so. (image_repack.c) */
bitnet_status bn_image_repack(struct bn_model *m, struct bn_pool *pool, const char *layout,
                              bitnet_error *err);

/* ---- the record ---- */

struct bn_image_span {
    const uint8_t *from;
    size_t bytes;
    uint64_t at; /* in the data */
};

/* Writing: spans are all memory of the model that is packed; out takes the record; kept[i] is set for
 * tensors of the source that are used where they are. false: something lies nowhere. */
bool bn_image_record_write(const struct bn_model *m, const struct bn_image_span *spans, size_t n,
                           struct bn_buf *out, uint8_t *kept);
/* Reading: data need not be filled yet. */
bitnet_status bn_image_record_read(struct bn_model *m, const uint8_t *record, size_t bytes,
                                   const uint8_t *data, uint64_t data_bytes, bitnet_error *err);

/* ---- writing ---- */

/* All that is to be written, found before. The model must outlive it. */
struct bn_image_plan {
    struct bn_image_head head;
    struct bn_buf record;
    struct bn_image_span *spans;
    size_t n_spans, spans_room;
    uint8_t *kept; /* [source.n_tensors], as above */
};

bitnet_status bn_image_plan_make(struct bn_image_plan *p, const struct bn_model *m,
                                 const char *path, const char *key, bitnet_error *err);
void bn_image_plan_free(struct bn_image_plan *p);
/* Called for one piece after the other; what fails, ends it. */
typedef bitnet_status bn_image_put_fn(void *user, const void *p, size_t n, bitnet_error *err);
bitnet_status bn_image_write(const struct bn_image_plan *p, bn_image_put_fn *put, void *user,
                             bitnet_error *err);

/* ---- checking ---- */

/* All sums by the threads of the pool, before anything is computed. */
bitnet_status bn_image_verify(const struct bn_model *m, struct bn_pool *pool, bitnet_error *err);
/* The same by a thread of its own; without one, nothing is checked. */
void bn_image_check_start(struct bn_model *m);
void bn_image_check_wait(const struct bn_model *m); /* until it is through */
void bn_image_check_stop(struct bn_model *m);

#endif
