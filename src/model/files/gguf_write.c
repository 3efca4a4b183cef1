/* SPDX-License-Identifier: Apache-2.0
 * Writing GGUF v3. Metadata and the directory are collected in two buffers; the first byte of
 * data (or commit) writes them out behind the header, and from then on bytes go straight to the
 * file, each tensor padded to the alignment. */
#include "model/files/gguf_write.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 32, /* the default of the format, so it need not be written down */
    MAX_META_BYTES = 1 << 30,
    MAX_DIRECTORY_BYTES = 1 << 26
};

bitnet_status bn_gguf_create(struct bn_gguf_writer *w, const char *path, bool overwrite,
                             bitnet_error *err)
{
    *w = (struct bn_gguf_writer){.alignment = ALIGNMENT};
    bn_buf_init(&w->meta, MAX_META_BYTES);
    bn_buf_init(&w->directory, MAX_DIRECTORY_BYTES);
    return bn_out_open(&w->out, path, overwrite, err);
}

void bn_gguf_discard(struct bn_gguf_writer *w)
{
    bn_out_close(&w->out);
    bn_buf_free(&w->meta);
    bn_buf_free(&w->directory);
    free(w->sizes);
    *w = (struct bn_gguf_writer){.out = {.fd = -1}};
}

/* ------------------------------------------------------------------ metadata */

static void put_u32(struct bn_buf *b, uint32_t v) { bn_buf_append(b, &v, sizeof v); }
static void put_u64(struct bn_buf *b, uint64_t v) { bn_buf_append(b, &v, sizeof v); }

static void put_string(struct bn_buf *b, const char *s, size_t n)
{
    put_u64(b, n);
    bn_buf_append(b, s, n);
}

static void put_key(struct bn_gguf_writer *w, const char *key, enum bn_meta_type type)
{
    if (w->header_written) w->meta.failed = true; /* too late: commit reports it */
    put_string(&w->meta, key, strlen(key));
    put_u32(&w->meta, (uint32_t)type);
    w->n_meta++;
}

void bn_gguf_put_u32(struct bn_gguf_writer *w, const char *key, uint32_t v)
{
    put_key(w, key, BN_META_U32);
    put_u32(&w->meta, v);
}

void bn_gguf_put_i32(struct bn_gguf_writer *w, const char *key, int32_t v)
{
    put_key(w, key, BN_META_I32);
    put_u32(&w->meta, (uint32_t)v);
}

void bn_gguf_put_f32(struct bn_gguf_writer *w, const char *key, float v)
{
    put_key(w, key, BN_META_F32);
    bn_buf_append(&w->meta, &v, sizeof v);
}

void bn_gguf_put_bool(struct bn_gguf_writer *w, const char *key, bool v)
{
    put_key(w, key, BN_META_BOOL);
    bn_buf_putc(&w->meta, v ? 1 : 0);
}

void bn_gguf_put_str(struct bn_gguf_writer *w, const char *key, const char *s, size_t n)
{
    put_key(w, key, BN_META_STR);
    put_string(&w->meta, s, n);
}

static size_t elem_bytes(enum bn_meta_type t)
{
    switch (t) {
    case BN_META_U8:
    case BN_META_I8:
    case BN_META_BOOL: return 1;
    case BN_META_U16:
    case BN_META_I16: return 2;
    case BN_META_U32:
    case BN_META_I32:
    case BN_META_F32: return 4;
    case BN_META_U64:
    case BN_META_I64:
    case BN_META_F64: return 8;
    case BN_META_STR:
    case BN_META_ARRAY: break;
    }
    return 0;
}

void bn_gguf_put_array(struct bn_gguf_writer *w, const char *key, enum bn_meta_type elem,
                       uint64_t count, const void *items)
{
    put_key(w, key, BN_META_ARRAY);
    put_u32(&w->meta, (uint32_t)elem);
    put_u64(&w->meta, count);
    if (items) bn_buf_append(&w->meta, items, (size_t)count * elem_bytes(elem));
}

void bn_gguf_put_elem(struct bn_gguf_writer *w, const char *s, size_t n)
{
    put_string(&w->meta, s, n);
}

void bn_gguf_put_item(struct bn_gguf_writer *w, const void *number, size_t bytes)
{
    bn_buf_append(&w->meta, number, bytes);
}

void bn_gguf_put_raw(struct bn_gguf_writer *w, const struct bn_meta *m)
{
    put_key(w, m->key, m->type);
    if (m->type == BN_META_ARRAY) put_u32(&w->meta, (uint32_t)m->elem);
    if (m->type == BN_META_ARRAY || m->type == BN_META_STR) put_u64(&w->meta, m->count);
    bn_buf_append(&w->meta, m->raw, (size_t)m->raw_bytes);
}

/* ------------------------------------------------------------------ tensors */

void bn_gguf_put_alignment(struct bn_gguf_writer *w, uint32_t alignment)
{
    w->alignment = alignment;
    bn_gguf_put_u32(w, "general.alignment", alignment);
}

bitnet_status bn_gguf_declare(struct bn_gguf_writer *w, const char *name, enum bn_type type,
                              uint32_t n_dims, const uint64_t dims[4], bitnet_error *err)
{
    const struct bn_type_info *i = bn_type_info(type);
    uint64_t rows = 1, bytes, end;
    if (w->header_written)
        return bn_fail(err, BITNET_E_STATE, "tensor '%s' is declared after the first data", name);
    if (strlen(name) == 0 || strlen(name) >= BN_MAX_NAME_BYTES || n_dims < 1 || n_dims > 4)
        return bn_fail(err, BITNET_E_ARG,
                       "tensor '%.64s' with %u dimensions cannot be written: names have 1 to %d "
                       "bytes, tensors 1 to 4 dimensions",
                       name, n_dims, BN_MAX_NAME_BYTES - 1);
    if (i->gguf_id < 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "tensor '%s': type %s cannot be stored in GGUF",
                       name, i->name);
    bool fits = true;
    for (uint32_t d = 1; d < n_dims; d++) fits = fits && bn_mul_u64(&rows, rows, dims[d]);
    if (!fits || rows == 0 || dims[0] == 0 || !bn_type_bytes(&bytes, type, rows, dims[0]) ||
        !bn_add_u64(&end, w->data_offset, bytes) || end > INT64_MAX)
        return bn_fail(err, BITNET_E_ARG, "tensor '%s' of %llu rows of %llu does not fit type %s",
                       name, (unsigned long long)rows, (unsigned long long)dims[0], i->name);
    if (w->n_tensors >= BN_MAX_TENSORS)
        return bn_fail(err, BITNET_E_LIMIT, "more than %d tensors", BN_MAX_TENSORS);
    if (!bn_grow((void **)&w->sizes, &w->sizes_room, (size_t)w->n_tensors + 1, sizeof *w->sizes))
        return bn_fail_nomem(err, sizeof *w->sizes, "the tensor directory");
    w->sizes[w->n_tensors++] = bytes;
    put_string(&w->directory, name, strlen(name));
    put_u32(&w->directory, n_dims);
    for (uint32_t d = 0; d < n_dims; d++) put_u64(&w->directory, dims[d]);
    put_u32(&w->directory, (uint32_t)i->gguf_id);
    put_u64(&w->directory, w->data_offset);
    w->data_offset = bn_align_up(end, w->alignment);
    return BITNET_OK;
}

static bitnet_status pad(struct bn_gguf_writer *w, bitnet_error *err)
{
    uint64_t at = w->out.offset;
    return bn_out_zeros(&w->out, (size_t)(bn_align_up(at, w->alignment) - at), err);
}

static bitnet_status write_header(struct bn_gguf_writer *w, bitnet_error *err)
{
    if (w->meta.failed || w->directory.failed)
        return bn_fail(
            err, BITNET_E_LIMIT,
            "the metadata (%zu bytes) or the directory (%zu bytes) of '%s' could not grow "
            "further",
            w->meta.len, w->directory.len, w->out.path);
    uint8_t head[24] = {'G', 'G', 'U', 'F', 3};
    memcpy(head + 8, &w->n_tensors, 8);
    memcpy(head + 16, &w->n_meta, 8);
    BN_TRY(bn_out_write(&w->out, head, sizeof head, err));
    BN_TRY(bn_out_write(&w->out, w->meta.data, w->meta.len, err));
    BN_TRY(bn_out_write(&w->out, w->directory.data, w->directory.len, err));
    w->header_written = true;
    return pad(w, err);
}

bitnet_status bn_gguf_data(struct bn_gguf_writer *w, const void *p, size_t n, bitnet_error *err)
{
    const uint8_t *from = p;
    if (!w->header_written) BN_TRY(write_header(w, err));
    while (n) {
        if (w->next == w->n_tensors)
            return bn_fail(err, BITNET_E_STATE,
                           "'%s': %zu bytes more than the %llu tensors declared", w->out.path, n,
                           (unsigned long long)w->n_tensors);
        size_t take = (size_t)(w->sizes[w->next] - w->written);
        if (take > n) take = n;
        BN_TRY(bn_out_write(&w->out, from, take, err));
        from += take;
        n -= take;
        w->written += take;
        if (w->written < w->sizes[w->next]) continue;
        BN_TRY(pad(w, err));
        w->next++;
        w->written = 0;
    }
    return BITNET_OK;
}

bitnet_status bn_gguf_commit(struct bn_gguf_writer *w, bitnet_error *err)
{
    if (!w->header_written) BN_TRY(write_header(w, err));
    if (w->meta.failed)
        return bn_fail(err, BITNET_E_STATE, "'%s': metadata was added after the first data",
                       w->out.path);
    if (w->next < w->n_tensors)
        return bn_fail(err, BITNET_E_STATE, "'%s': tensor %llu of %llu has %llu of its %llu bytes",
                       w->out.path, (unsigned long long)w->next, (unsigned long long)w->n_tensors,
                       (unsigned long long)w->written, (unsigned long long)w->sizes[w->next]);
    return bn_out_commit(&w->out, err);
}
