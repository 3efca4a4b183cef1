/* SPDX-License-Identifier: Apache-2.0
 * Reading GGUF: header, metadata, tensor directory; the bytes of the tensors stay where they are
 * in the mapping. Nothing the file says is believed: every count has a maximum, every length and
 * offset is held against what is left of the file, and in the end every tensor lies inside it,
 * apart from the others.
 *
 * The path of the data: cursor over the header -> s->meta and an array of struct entry ->
 * extents (entries sorted by offset) -> type ids resolved with the help of the extents ->
 * s->tensors. */
#include "model/files/gguf_q2.h"
#include "model/files/source.h"

#include <ctype.h>
#include <stdlib.h>

enum { MIN_ALIGNMENT = 8, MAX_ALIGNMENT = BN_HUGE_PAGE, DEFAULT_ALIGNMENT = 32 };

struct cursor {
    const uint8_t *data;
    uint64_t bytes, at;
    const char *path;
    bitnet_error *err;
};

/* one line of the tensor directory, as the file has it */
struct entry {
    const char *name;
    uint32_t n_dims, id;
    uint64_t dims[4], rows; /* rows: product of all but the first */
    uint64_t offset;        /* in the data section */
    uint64_t room;          /* bytes up to the next tensor, or to the end of the file */
    enum bn_type type;
    uint64_t bytes;
};

/* n bytes at the cursor, which moves on; NULL, with the error told, where the file ends before. */
static const uint8_t *take(struct cursor *c, uint64_t n, const char *what)
{
    if (n > c->bytes - c->at) {
        bn_error_set(c->err, BITNET_E_FORMAT,
                     "'%s' is cut short: %s at byte %llu needs %llu bytes and the file has %llu",
                     c->path, what, (unsigned long long)c->at, (unsigned long long)n,
                     (unsigned long long)c->bytes);
        return NULL;
    }
    c->at += n;
    return c->data + c->at - n;
}

static bitnet_status take_u32(struct cursor *c, uint32_t *v, const char *what)
{
    const uint8_t *p = take(c, 4, what);
    *v = p ? bn_load_u32(p) : 0;
    return p ? BITNET_OK : BITNET_E_FORMAT;
}

static bitnet_status take_u64(struct cursor *c, uint64_t *v, const char *what)
{
    const uint8_t *p = take(c, 8, what);
    *v = p ? bn_load_u64(p) : 0;
    return p ? BITNET_OK : BITNET_E_FORMAT;
}

/* A key or tensor name: short, without a 0 inside, copied into the arena. */
static bitnet_status take_name(struct cursor *c, struct bn_source *s, const char **out,
                               const char *what, uint64_t index)
{
    uint64_t len;
    BN_TRY(take_u64(c, &len, what));
    if (len >= BN_MAX_NAME_BYTES)
        return bn_fail(c->err, BITNET_E_LIMIT,
                       "'%s': the name of %s %llu has %llu bytes; at most %d are read", c->path,
                       what, (unsigned long long)index, (unsigned long long)len,
                       BN_MAX_NAME_BYTES - 1);
    if (len == 0)
        return bn_fail(c->err, BITNET_E_FORMAT, "'%s': %s %llu has an empty name", c->path, what,
                       (unsigned long long)index);
    const uint8_t *p = take(c, len, what);
    if (!p) return BITNET_E_FORMAT;
    if (memchr(p, 0, (size_t)len))
        return bn_fail(c->err, BITNET_E_FORMAT, "'%s': the name of %s %llu contains a zero byte",
                       c->path, what, (unsigned long long)index);
    *out = bn_arena_strn(&s->arena, (const char *)p, (size_t)len);
    return *out ? BITNET_OK : bn_fail_nomem(c->err, (size_t)len, what);
}

/* ------------------------------------------------------------------ metadata */

/* bytes of a scalar; 0 for strings, arrays and what is no type */
static uint32_t scalar_bytes(uint32_t type)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof sizes ? sizes[type] : 0;
}

static bitnet_status take_array(struct cursor *c, struct bn_meta *m)
{
    uint32_t elem;
    BN_TRY(take_u32(c, &elem, m->key));
    BN_TRY(take_u64(c, &m->count, m->key));
    if (elem == BN_META_ARRAY)
        return bn_fail(c->err, BITNET_E_UNSUPPORTED, "'%s': key '%s' is an array of arrays",
                       c->path, m->key);
    if (elem > BN_META_F64)
        return bn_fail(c->err, BITNET_E_FORMAT, "'%s': key '%s' is an array of unknown type %u",
                       c->path, m->key, elem);
    if (m->count > BN_MAX_META_ARRAY)
        return bn_fail(c->err, BITNET_E_LIMIT,
                       "'%s': key '%s' is an array of %llu elements; at most %d are read", c->path,
                       m->key, (unsigned long long)m->count, BN_MAX_META_ARRAY);
    m->elem = (enum bn_meta_type)elem;
    m->raw = c->data + c->at;
    if (elem != BN_META_STR) {
        m->raw_bytes = m->count * scalar_bytes(elem);
        m->raw = take(c, m->raw_bytes, m->key);
        return m->raw ? BITNET_OK : BITNET_E_FORMAT;
    }
    uint64_t from = c->at;
    for (uint64_t k = 0; k < m->count; k++) {
        uint64_t len;
        BN_TRY(take_u64(c, &len, m->key));
        if (!take(c, len, m->key)) return BITNET_E_FORMAT;
    }
    m->raw_bytes = c->at - from;
    return BITNET_OK;
}

static bitnet_status take_value(struct cursor *c, struct bn_meta *m)
{
    uint32_t type;
    BN_TRY(take_u32(c, &type, m->key));
    if (type > BN_META_F64)
        return bn_fail(c->err, BITNET_E_FORMAT, "'%s': key '%s' has unknown type %u", c->path,
                       m->key, type);
    m->type = (enum bn_meta_type)type;
    if (type == BN_META_ARRAY) return take_array(c, m);
    if (type == BN_META_STR) {
        BN_TRY(take_u64(c, &m->count, m->key));
        m->raw_bytes = m->count;
    } else {
        m->count = 1;
        m->raw_bytes = scalar_bytes(type);
    }
    m->raw = take(c, m->raw_bytes, m->key);
    return m->raw ? BITNET_OK : BITNET_E_FORMAT;
}

static bitnet_status read_meta(struct bn_source *s, struct cursor *c, uint64_t n)
{
    s->meta = bn_calloc((size_t)n, sizeof *s->meta);
    if (!s->meta) return bn_fail_nomem(c->err, (size_t)n * sizeof *s->meta, "metadata");
    for (uint64_t k = 0; k < n; k++) {
        struct bn_meta *m = &s->meta[k];
        BN_TRY(take_name(c, s, &m->key, "key", k));
        BN_TRY(take_value(c, m));
        uint32_t index = (uint32_t)k;
        bool existing;
        if (!bn_map_add(&s->meta_by_key, m->key, strlen(m->key), &index, &existing))
            return bn_fail_nomem(c->err, strlen(m->key), "metadata");
        if (existing)
            return bn_fail(c->err, BITNET_E_FORMAT, "'%s': key '%s' appears twice", c->path,
                           m->key);
        s->n_meta++;
    }
    return BITNET_OK;
}

static bitnet_status read_alignment(const struct bn_source *s, struct cursor *c,
                                    uint32_t *alignment)
{
    *alignment = DEFAULT_ALIGNMENT;
    if (!bn_meta_find(s, "general.alignment")) return BITNET_OK;
    if (!bn_meta_u32(s, "general.alignment", alignment) || *alignment < MIN_ALIGNMENT ||
        *alignment > MAX_ALIGNMENT || (*alignment & (*alignment - 1)))
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': general.alignment (%u) is not a power of two from %d to %d", c->path,
                       *alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    return BITNET_OK;
}

static bitnet_status refuse_split(const struct bn_source *s, struct cursor *c)
{
    uint32_t count;
    if (bn_meta_u32(s, "split.count", &count) && count > 1)
        return bn_fail(c->err, BITNET_E_UNSUPPORTED,
                       "'%s' is one of %u parts of a split model; join them first with "
                       "'llama-gguf-split --merge'",
                       c->path, count);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ tensor directory */

static bitnet_status take_entry(struct bn_source *s, struct cursor *c, struct entry *e,
                                uint64_t index)
{
    BN_TRY(take_name(c, s, &e->name, "tensor", index));
    BN_TRY(take_u32(c, &e->n_dims, e->name));
    if (e->n_dims < 1 || e->n_dims > 4)
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' has %u dimensions; 1 to 4 are possible", c->path, e->name,
                       e->n_dims);
    uint64_t n = 1;
    e->rows = 1;
    for (uint32_t d = 0; d < 4; d++) {
        e->dims[d] = 1;
        if (d >= e->n_dims) continue;
        BN_TRY(take_u64(c, &e->dims[d], e->name));
        if (e->dims[d] == 0)
            return bn_fail(c->err, BITNET_E_FORMAT, "'%s': dimension %u of tensor '%s' is 0",
                           c->path, d, e->name);
        if (!bn_mul_u64(&n, n, e->dims[d]) || n > INT64_MAX)
            return bn_fail(c->err, BITNET_E_FORMAT,
                           "'%s': the dimensions of tensor '%s' multiply to more than 2^63",
                           c->path, e->name);
        if (d) e->rows *= e->dims[d];
    }
    BN_TRY(take_u32(c, &e->id, e->name));
    return take_u64(c, &e->offset, e->name);
}

/* sorts by offset; ties by the order of the directory, so that errors do not depend on qsort */
static int by_offset(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* what a type is that this library does not read, NULL if nobody knows */
static const char *foreign_type(uint32_t id, bool bitnet)
{
    switch (id) {
    case 3: return "Q4_1";
    case 6: return "Q5_0";
    case 7: return "Q5_1";
    case 9: return "Q8_1";
    case 10: return "Q2_K";
    case 11: return "Q3_K";
    case 13: return "Q5_K";
    case 15: return "Q8_K";
    case 16: return "IQ2_XXS";
    case 17: return "IQ2_XS";
    case 18: return "IQ3_XXS";
    case 19: return "IQ1_S";
    case 20: return "IQ4_NL";
    case 21: return "IQ3_S";
    case 22: return "IQ2_S";
    case 23: return "IQ4_XS";
    case 29: return "IQ1_M";
    case 38: return "TL1 of bitnet.cpp, whose tiling is not in the file";
    case 39:
        return bitnet ? "TL2 of bitnet.cpp, whose tiling is not in the file"
                      : "MXFP4 (or TL2 of bitnet.cpp, whose tiling is not in the file)";
    case 40: return "NVFP4";
    default: return NULL;
    }
}

/* The id alone decides, except for I2_S, whose layout is the caller's word, and Q2_0
 * (settle_q2_0). */
static bitnet_status resolve_type(struct cursor *c, struct entry *e, enum bn_i2s_layout i2s,
                                  bool bitnet)
{
    for (int t = 0; t < BN_TYPE_COUNT; t++) {
        int32_t id = bn_type_info((enum bn_type)t)->gguf_id;
        if (id < 0 || (uint32_t)id != e->id) continue;
        e->type = (enum bn_type)t;
        if (e->type == BN_I2_S && i2s == BN_I2S_64) e->type = BN_I2_S_64;
        if (e->type == BN_I2_S && i2s == BN_I2S_ROWS4) e->type = BN_I2_S_ROWS4;
        return BITNET_OK;
    }
    const char *name = foreign_type(e->id, bitnet);
    if (name)
        return bn_fail(c->err, BITNET_E_UNSUPPORTED,
                       "'%s': tensor '%s' is of type %u, %s: not supported", c->path, e->name,
                       e->id, name);
    return bn_fail(c->err, BITNET_E_UNSUPPORTED, "'%s': tensor '%s' is of unknown type %u", c->path,
                   e->name, e->id);
}

/* general.quantization_version is a number, except where it is the name of a format. */
static bool names_tq2_0_g128(const struct bn_source *s)
{
    const char *text;
    size_t n;
    static const char name[] = "tq2_0_g128";
    if (!bn_meta_str(s, "general.quantization_version", &text, &n) || n != sizeof name - 1)
        return false;
    for (size_t i = 0; i < n; i++)
        if (tolower((unsigned char)text[i]) != name[i]) return false;
    return true;
}

/* Type 42 is three formats (gguf_q2.h). */
static bitnet_status settle_q2_0(const struct bn_source *s, struct cursor *c, struct entry *entries,
                                 size_t n, uint64_t data_at, uint32_t alignment)
{
    size_t m = 0;
    enum bn_type type = BN_Q2_0;
    struct bn_q2_tensor *q = bn_calloc(n, sizeof *q);
    if (!q) return bn_fail_nomem(c->err, n * sizeof *q, "the tensor directory");
    for (size_t k = 0; k < n; k++) {
        const struct entry *e = &entries[k];
        if (e->type != BN_Q2_0) continue;
        q[m++] = (struct bn_q2_tensor){e->name, c->data + data_at + e->offset, e->rows, e->dims[0],
                                       e->room};
    }
    bitnet_status status = BITNET_OK;
    if (m) status = bn_q2_settle(&type, q, m, alignment, names_tq2_0_g128(s), c->path, c->err);
    for (size_t k = 0; k < n; k++)
        if (entries[k].type == BN_Q2_0) entries[k].type = type;
    free(q);
    return status;
}

static bitnet_status check_extent(struct cursor *c, struct entry *e, const struct entry *next,
                                  uint64_t data_bytes, uint32_t alignment)
{
    const char *type = bn_type_info(e->type)->name;
    if (!bn_type_bytes(&e->bytes, e->type, e->rows, e->dims[0]))
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' of %llu rows of %llu does not fit type %s", c->path,
                       e->name, (unsigned long long)e->rows, (unsigned long long)e->dims[0], type);
    if (e->bytes > data_bytes - e->offset)
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' (%s) needs %llu bytes at offset %llu, but the file ends "
                       "%llu bytes behind that offset",
                       c->path, e->name, type, (unsigned long long)e->bytes,
                       (unsigned long long)e->offset, (unsigned long long)(data_bytes - e->offset));
    if (next && e->bytes > next->offset - e->offset)
        return bn_fail(
            c->err, BITNET_E_FORMAT,
            "'%s': tensor '%s' (%s, %llu bytes at offset %llu) overlaps '%s' at offset %llu",
            c->path, e->name, type, (unsigned long long)e->bytes, (unsigned long long)e->offset,
            next->name, (unsigned long long)next->offset);
    /* 143 means something larger elsewhere (G8_0 of mortar.cpp) */
    if (next && e->type == BN_PTQ1_0 && next->offset - e->offset - e->bytes >= alignment)
        return bn_fail(
            c->err, BITNET_E_FORMAT,
            "'%s': tensor '%s' of type %u has %llu bytes up to the next one, and %s needs "
            "%llu: this is another format of the same number",
            c->path, e->name, e->id, (unsigned long long)(next->offset - e->offset), type,
            (unsigned long long)e->bytes);
    return BITNET_OK;
}

static bitnet_status place(struct bn_source *s, struct cursor *c, struct entry *entries,
                           struct entry **sorted, size_t n, uint32_t alignment,
                           enum bn_i2s_layout i2s)
{
    uint64_t data_at = bn_align_up(c->at, alignment);
    uint64_t data_bytes = data_at < c->bytes ? c->bytes - data_at : 0;
    const char *arch = "";
    size_t arch_len = 0;
    bool bitnet = bn_meta_str(s, "general.architecture", &arch, &arch_len) && arch_len >= 6 &&
                  memcmp(arch, "bitnet", 6) == 0;
    for (size_t k = 0; k < n; k++) {
        struct entry *e = sorted[k] = &entries[k];
        if (e->offset % alignment)
            return bn_fail(c->err, BITNET_E_FORMAT,
                           "'%s': the offset %llu of tensor '%s' is not a multiple of %u", c->path,
                           (unsigned long long)e->offset, e->name, alignment);
        if (e->offset > data_bytes)
            return bn_fail(
                c->err, BITNET_E_FORMAT,
                "'%s': tensor '%s' begins at offset %llu, behind the file's %llu bytes of "
                "data",
                c->path, e->name, (unsigned long long)e->offset, (unsigned long long)data_bytes);
        BN_TRY(resolve_type(c, e, i2s, bitnet));
    }
    qsort(sorted, n, sizeof *sorted, by_offset);
    for (size_t k = 0; k < n; k++)
        sorted[k]->room = (k + 1 < n ? sorted[k + 1]->offset : data_bytes) - sorted[k]->offset;
    BN_TRY(settle_q2_0(s, c, entries, n, data_at, alignment));
    for (size_t k = 0; k < n; k++)
        BN_TRY(check_extent(c, sorted[k], k + 1 < n ? sorted[k + 1] : NULL, data_bytes, alignment));
    for (size_t k = 0; k < n; k++) {
        const struct entry *e = &entries[k];
        struct bn_tensor t = {.name = e->name,
                              .type = e->type,
                              .n_dims = e->n_dims,
                              .data = c->data + data_at + e->offset,
                              .bytes = e->bytes,
                              .offset = data_at + e->offset};
        memcpy(t.dims, e->dims, sizeof t.dims);
        BN_TRY(bn_source_add_tensor(s, &t, c->err));
    }
    return BITNET_OK;
}

static bitnet_status read_tensors(struct bn_source *s, struct cursor *c, uint64_t n,
                                  uint32_t alignment, enum bn_i2s_layout i2s)
{
    struct entry *entries = bn_calloc((size_t)n, sizeof *entries);
    struct entry **sorted = bn_calloc((size_t)n, sizeof *sorted);
    bitnet_status status = BITNET_OK;
    if (!entries || !sorted)
        status = bn_fail_nomem(c->err, (size_t)n * sizeof *entries, "the tensor directory");
    for (uint64_t k = 0; status == BITNET_OK && k < n; k++)
        status = take_entry(s, c, &entries[k], k);
    if (status == BITNET_OK) status = place(s, c, entries, sorted, (size_t)n, alignment, i2s);
    free(entries);
    free(sorted);
    return status;
}

static bitnet_status check_version(struct cursor *c, uint32_t version)
{
    if (version == 2 || version == 3) return BITNET_OK;
    if (version && __builtin_bswap32(version) <= 16)
        return bn_fail(c->err, BITNET_E_UNSUPPORTED, "'%s' is a big-endian GGUF, which is not read",
                       c->path);
    return bn_fail(c->err, BITNET_E_UNSUPPORTED,
                   "'%s' is GGUF version %u; versions 2 and 3 are read", c->path, version);
}

bitnet_status bn_gguf_read(struct bn_source *s, const struct bn_mapping *file, const char *path,
                           enum bn_i2s_layout i2s, bitnet_error *err)
{
    struct cursor c = {file->data, file->bytes, 4, path, err}; /* behind the magic */
    uint32_t version, alignment;
    uint64_t n_tensors, n_meta;
    BN_TRY(take_u32(&c, &version, "the version"));
    BN_TRY(check_version(&c, version));
    BN_TRY(take_u64(&c, &n_tensors, "the tensor count"));
    BN_TRY(take_u64(&c, &n_meta, "the metadata count"));
    if (n_tensors > BN_MAX_TENSORS)
        return bn_fail(err, BITNET_E_LIMIT, "'%s' claims %llu tensors; at most %d are read", path,
                       (unsigned long long)n_tensors, BN_MAX_TENSORS);
    if (n_meta > BN_MAX_META)
        return bn_fail(err, BITNET_E_LIMIT,
                       "'%s' claims %llu metadata entries; at most %d are read", path,
                       (unsigned long long)n_meta, BN_MAX_META);
    s->is_gguf = true;
    s->format = version == 2 ? "GGUF v2" : "GGUF v3";
    s->file_bytes = file->bytes;
    BN_TRY(read_meta(s, &c, n_meta));
    BN_TRY(refuse_split(s, &c));
    BN_TRY(read_alignment(s, &c, &alignment));
    BN_TRY(read_tensors(s, &c, n_tensors, alignment, i2s));
    return bn_gguf_read_packed(s, err);
}
