/* SPDX-License-Identifier: Apache-2.0
 * The tensors of a GGUF whose weights are packed (image.h): they are not in its directory, since they
 * have no bytes of their own, but in its metadata, so that the model's shape can be told as ever. */
#include "model/files/gguf_write.h"

static const char names_key[] = "bitnet.packed.names", types_key[] = "bitnet.packed.types",
                  dims_key[] = "bitnet.packed.dims";
enum { DIMS = 4 };

void bn_gguf_put_packed(struct bn_gguf_writer *w, const struct bn_source *s, const uint8_t *kept)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->n_tensors; i++) n += !kept[i];
    bn_gguf_put_array(w, names_key, BN_META_STR, n, NULL);
    for (size_t i = 0; i < s->n_tensors; i++)
        if (!kept[i]) bn_gguf_put_elem(w, s->tensors[i].name, strlen(s->tensors[i].name));
    bn_gguf_put_array(w, types_key, BN_META_STR, n, NULL);
    for (size_t i = 0; i < s->n_tensors; i++) {
        const char *type = bn_type_info(s->tensors[i].type)->name;
        if (!kept[i]) bn_gguf_put_elem(w, type, strlen(type));
    }
    bn_gguf_put_array(w, dims_key, BN_META_U64, n * DIMS, NULL);
    for (size_t i = 0; i < s->n_tensors; i++)
        for (size_t d = 0; !kept[i] && d < DIMS; d++)
            bn_gguf_put_item(w, &s->tensors[i].dims[d], sizeof(uint64_t));
}

static bitnet_status fail(const struct bn_source *s, const char *what, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_FORMAT, "'%s': the list of packed tensors is damaged: %s", s->path,
                   what);
}

static bitnet_status add(struct bn_source *s, const char *name, size_t name_len, const char *type,
                         size_t type_len, const struct bn_meta *dims, uint64_t i, bitnet_error *err)
{
    struct bn_tensor t = {.packed = true};
    char text[32] = {0};
    if (type_len >= sizeof text || name_len >= BN_MAX_NAME_BYTES) return fail(s, "a name", err);
    memcpy(text, type, type_len);
    if (!bn_type_by_name(&t.type, text)) return fail(s, text, err);
    uint64_t rows = 1;
    for (uint32_t d = 0; d < DIMS; d++) {
        int64_t v;
        if (!bn_meta_int_at(dims, i * DIMS + d, &v) || v < 1) return fail(s, "a shape", err);
        t.dims[d] = (uint64_t)v;
        if (v > 1) t.n_dims = d + 1;
        if (d && !bn_mul_u64(&rows, rows, t.dims[d])) return fail(s, "a shape", err);
    }
    if (t.n_dims == 0) t.n_dims = 1;
    if (!bn_type_bytes(&t.bytes, t.type, rows, t.dims[0])) return fail(s, "a shape", err);
    t.name = bn_arena_strn(&s->arena, name, name_len);
    if (!t.name) return bn_fail_nomem(err, name_len, "the tensor directory");
    return bn_source_add_tensor(s, &t, err);
}

bitnet_status bn_gguf_read_packed(struct bn_source *s, bitnet_error *err)
{
    const struct bn_meta *names = bn_meta_find(s, names_key), *types = bn_meta_find(s, types_key);
    const struct bn_meta *dims = bn_meta_find(s, dims_key);
    if (!names) return BITNET_OK;
    bool arrays = names->type == BN_META_ARRAY && names->elem == BN_META_STR && types && dims &&
                  types->type == BN_META_ARRAY && types->elem == BN_META_STR &&
                  types->count == names->count && dims->type == BN_META_ARRAY &&
                  dims->count / DIMS == names->count;
    if (!arrays) return fail(s, "its parts do not fit each other", err);
    uint64_t at_name = 0, at_type = 0;
    for (uint64_t i = 0; i < names->count; i++) {
        const char *name, *type;
        size_t name_len, type_len;
        if (!bn_meta_next_str(names, &at_name, &name, &name_len) ||
            !bn_meta_next_str(types, &at_type, &type, &type_len))
            return fail(s, "it is cut off", err);
        BN_TRY(add(s, name, name_len, type, type_len, dims, i, err));
    }
    return BITNET_OK;
}

bitnet_status bn_tensor_fail_packed(const struct bn_source *s, const struct bn_tensor *t,
                                    bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED,
                   "'%s' has tensor '%s' in packed form only, from which it is not read; take the "
                   "file that it was made of",
                   s->path, t->name);
}
