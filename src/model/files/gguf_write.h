/* SPDX-License-Identifier: Apache-2.0
 * Writing GGUF v3. First all metadata, then all tensors declared, then their bytes in the order
 * declared; the file appears whole at commit or not at all. Memory: metadata and the directory
 * only. */
#ifndef BN_MODEL_FILES_GGUF_WRITE_H
#define BN_MODEL_FILES_GGUF_WRITE_H

#include "base/buf.h"
#include "base/os/file.h"
#include "model/files/source.h"
#include "text/tokenizer/vocab.h"

struct bn_gguf_writer {
    struct bn_out out;
    struct bn_buf meta, directory;
    uint64_t n_meta, n_tensors,
        data_offset; /* data_offset: of the next declared tensor, in the data section */
    uint64_t *sizes; /* [n_tensors] bytes of each */
    size_t sizes_room;
    uint64_t next, written; /* tensor being written, and its bytes so far */
    bool header_written;
    uint32_t alignment; /* of tensors */
};

bitnet_status bn_gguf_create(struct bn_gguf_writer *w, const char *path, bool overwrite,
                             bitnet_error *err);
void bn_gguf_discard(
    struct bn_gguf_writer *w); /* also after commit: frees; removes what was not committed */

/* Metadata; a failed append is remembered and reported by the first write of data. */
void bn_gguf_put_u32(struct bn_gguf_writer *w, const char *key, uint32_t v);
void bn_gguf_put_i32(struct bn_gguf_writer *w, const char *key, int32_t v);
void bn_gguf_put_f32(struct bn_gguf_writer *w, const char *key, float v);
void bn_gguf_put_bool(struct bn_gguf_writer *w, const char *key, bool v);
void bn_gguf_put_str(struct bn_gguf_writer *w, const char *key, const char *s, size_t n);
/* An array of numbers as they lie in memory; or, with items NULL, of what then follows one by one:
 * strings, or the bytes of a number. */
void bn_gguf_put_array(struct bn_gguf_writer *w, const char *key, enum bn_meta_type elem,
                       uint64_t count, const void *items);
void bn_gguf_put_elem(struct bn_gguf_writer *w, const char *s, size_t n);
void bn_gguf_put_item(struct bn_gguf_writer *w, const void *number, size_t bytes);
void bn_gguf_put_raw(struct bn_gguf_writer *w,
                     const struct bn_meta *m); /* copies an entry as it is */
void bn_gguf_put_vocab(struct bn_gguf_writer *w,
                       const struct bn_vocab *v); /* all tokenizer.* keys */

/* Tensors of s that are not kept: the file has them in packed form only. (gguf_packed.c) */
void bn_gguf_put_packed(struct bn_gguf_writer *w, const struct bn_source *s, const uint8_t *kept);
/* Other than the format's default; before any tensor is declared. */
void bn_gguf_put_alignment(struct bn_gguf_writer *w, uint32_t alignment);

bitnet_status bn_gguf_declare(struct bn_gguf_writer *w, const char *name, enum bn_type type,
                              uint32_t n_dims, const uint64_t dims[4], bitnet_error *err);
/* Bytes of the tensors in declared order; pieces of any size. */
bitnet_status bn_gguf_data(struct bn_gguf_writer *w, const void *p, size_t n, bitnet_error *err);
bitnet_status bn_gguf_commit(struct bn_gguf_writer *w,
                             bitnet_error *err); /* all declared bytes must be there */

/* The tokenizer.* keys of a GGUF as a vocabulary (model/files/gguf_vocab.c). Repairs what is known to be
 * wrong in published files and says so in `note` (appended sentences). */
bitnet_status bn_gguf_read_vocab(struct bn_vocab *v, const struct bn_source *s, struct bn_buf *note,
                                 bitnet_error *err);

#endif
