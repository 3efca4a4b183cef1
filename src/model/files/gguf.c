/* SPDX-License-Identifier: Apache-2.0
 * Reading GGUF: header, metadata, tensor directory; the bytes of the tensors stay where they are
 * in the mapping. Nothing the file says is believed: every count has a maximum, every length and
 * offset is held against what is left of the file, and in the end every tensor lies inside it,
 * apart from the others.
 *
 * The path of the data: cursor over the header -> s->meta and an array of struct entry; of a split
 * model the same with the other files (gguf_split.c) -> extents (entries sorted by offset) -> type ids
 * resolved with the help of the extents -> s->tensors. */
#include "model/files/gguf_q2.h"
#include "model/files/gguf_split.h"
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

/* one file: its header, and the section of data behind it */
struct part {
    struct cursor c;
    uint32_t alignment;
    uint64_t data_at, data_bytes;
};

/* one line of the tensor directory, as the file has it */
struct entry {
    const char *name;
    uint32_t part; /* which file */
    uint32_t n_dims, id;
    uint64_t dims[4], rows; /* rows: product of all but the first */
    uint64_t offset;        /* in the data section */
    uint64_t room;          /* bytes up to the next tensor, or to the end of the file */
    enum bn_type type;
    uint64_t bytes;
};

/* all files of the model, and what they hold */
struct directory {
    struct part *parts;
    size_t n_parts, parts_room;
    struct entry *entries;
    size_t n, room;
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

/* sorts by file and offset; ties by the order of the directory, so that errors do not depend on
 * qsort */
static int by_offset(const void *a, const void *b)
{
    const struct entry *x = *(const struct entry *const *)a, *y = *(const struct entry *const *)b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
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
static bitnet_status resolve_type(const struct cursor *c, struct entry *e, enum bn_i2s_layout i2s,
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

static const uint8_t *data_of(const struct part *p, const struct entry *e)
{
    return p->c.data + p->data_at + e->offset;
}

/* Type 42 is three formats (gguf_q2.h), and a model has one of them, over all its files. */
static bitnet_status settle_q2_0(const struct bn_source *s, struct directory *d, bitnet_error *err)
{
    size_t m = 0;
    enum bn_type type = BN_Q2_0;
    struct bn_q2_tensor *q = bn_calloc(d->n, sizeof *q);
    if (!q) return bn_fail_nomem(err, d->n * sizeof *q, "the tensor directory");
    for (size_t k = 0; k < d->n; k++) {
        const struct entry *e = &d->entries[k];
        const struct part *p = &d->parts[e->part];
        if (e->type != BN_Q2_0) continue;
        q[m++] = (struct bn_q2_tensor){e->name,    data_of(p, e), e->rows,
                                       e->dims[0], e->room,       p->alignment};
    }
    bitnet_status status = BITNET_OK;
    if (m) status = bn_q2_settle(&type, q, m, names_tq2_0_g128(s), d->parts[0].c.path, err);
    for (size_t k = 0; k < d->n; k++)
        if (d->entries[k].type == BN_Q2_0) d->entries[k].type = type;
    free(q);
    return status;
}

/* next: the one behind it in its file, or NULL */
static bitnet_status check_extent(const struct part *p, struct entry *e, const struct entry *next)
{
    const struct cursor *c = &p->c;
    const char *type = bn_type_info(e->type)->name;
    if (!bn_type_bytes(&e->bytes, e->type, e->rows, e->dims[0]))
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' of %llu rows of %llu does not fit type %s", c->path,
                       e->name, (unsigned long long)e->rows, (unsigned long long)e->dims[0], type);
    if (e->bytes > p->data_bytes - e->offset)
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' (%s) needs %llu bytes at offset %llu, but the file ends "
                       "%llu bytes behind that offset",
                       c->path, e->name, type, (unsigned long long)e->bytes,
                       (unsigned long long)e->offset,
                       (unsigned long long)(p->data_bytes - e->offset));
    if (next && e->bytes > next->offset - e->offset)
        return bn_fail(
            c->err, BITNET_E_FORMAT,
            "'%s': tensor '%s' (%s, %llu bytes at offset %llu) overlaps '%s' at offset %llu",
            c->path, e->name, type, (unsigned long long)e->bytes, (unsigned long long)e->offset,
            next->name, (unsigned long long)next->offset);
    /* 143 means something larger elsewhere (G8_0 of mortar.cpp) */
    if (next && e->type == BN_PTQ1_0 && next->offset - e->offset - e->bytes >= p->alignment)
        return bn_fail(
            c->err, BITNET_E_FORMAT,
            "'%s': tensor '%s' of type %u has %llu bytes up to the next one, and %s needs "
            "%llu: this is another format of the same number",
            c->path, e->name, e->id, (unsigned long long)(next->offset - e->offset), type,
            (unsigned long long)e->bytes);
    return BITNET_OK;
}

static bitnet_status check_offset(const struct part *p, const struct entry *e)
{
    if (e->offset % p->alignment)
        return bn_fail(p->c.err, BITNET_E_FORMAT,
                       "'%s': the offset %llu of tensor '%s' is not a multiple of %u", p->c.path,
                       (unsigned long long)e->offset, e->name, p->alignment);
    if (e->offset > p->data_bytes)
        return bn_fail(p->c.err, BITNET_E_FORMAT,
                       "'%s': tensor '%s' begins at offset %llu, behind the file's %llu bytes of "
                       "data",
                       p->c.path, e->name, (unsigned long long)e->offset,
                       (unsigned long long)p->data_bytes);
    return BITNET_OK;
}

/* The one behind sorted[k] in the same file, or NULL. */
static const struct entry *next_of(struct entry *const *sorted, size_t k, size_t n)
{
    return k + 1 < n && sorted[k + 1]->part == sorted[k]->part ? sorted[k + 1] : NULL;
}

static bitnet_status place(struct bn_source *s, struct directory *d, struct entry **sorted,
                           enum bn_i2s_layout i2s, bitnet_error *err)
{
    const char *arch = "";
    size_t arch_len = 0;
    bool bitnet = bn_meta_str(s, "general.architecture", &arch, &arch_len) && arch_len >= 6 &&
                  memcmp(arch, "bitnet", 6) == 0;
    for (size_t k = 0; k < d->n; k++) {
        struct entry *e = sorted[k] = &d->entries[k];
        BN_TRY(check_offset(&d->parts[e->part], e));
        BN_TRY(resolve_type(&d->parts[e->part].c, e, i2s, bitnet));
    }
    qsort(sorted, d->n, sizeof *sorted, by_offset);
    for (size_t k = 0; k < d->n; k++) {
        const struct entry *next = next_of(sorted, k, d->n);
        uint64_t end = next ? next->offset : d->parts[sorted[k]->part].data_bytes;
        sorted[k]->room = end - sorted[k]->offset;
    }
    BN_TRY(settle_q2_0(s, d, err));
    for (size_t k = 0; k < d->n; k++)
        BN_TRY(check_extent(&d->parts[sorted[k]->part], sorted[k], next_of(sorted, k, d->n)));
    for (size_t k = 0; k < d->n; k++) {
        const struct entry *e = &d->entries[k];
        const struct part *p = &d->parts[e->part];
        struct bn_tensor t = {.name = e->name,
                              .type = e->type,
                              .n_dims = e->n_dims,
                              .data = data_of(p, e),
                              .bytes = e->bytes,
                              .offset = p->data_at + e->offset};
        memcpy(t.dims, e->dims, sizeof t.dims);
        BN_TRY(bn_source_add_tensor(s, &t, err));
    }
    return BITNET_OK;
}

static bitnet_status add_tensors(struct bn_source *s, struct directory *d, enum bn_i2s_layout i2s,
                                 bitnet_error *err)
{
    struct entry **sorted = bn_calloc(d->n, sizeof *sorted);
    if (!sorted) return bn_fail_nomem(err, d->n * sizeof *sorted, "the tensor directory");
    bitnet_status status = place(s, d, sorted, i2s, err);
    free(sorted);
    return status;
}

/* ------------------------------------------------------------------ files */

static bitnet_status check_version(struct cursor *c, uint32_t version)
{
    if (version == 2 || version == 3) return BITNET_OK;
    if (version && __builtin_bswap32(version) <= 16)
        return bn_fail(c->err, BITNET_E_UNSUPPORTED, "'%s' is a big-endian GGUF, which is not read",
                       c->path);
    return bn_fail(c->err, BITNET_E_UNSUPPORTED,
                   "'%s' is GGUF version %u; versions 2 and 3 are read", c->path, version);
}

/* Header, metadata and directory of one file. to: where its metadata go. */
static bitnet_status read_part(struct bn_source *s, struct bn_source *to, struct directory *d,
                               const struct cursor *at)
{
    struct cursor c = *at;
    uint32_t version, alignment;
    uint64_t n_tensors, n_meta;
    BN_TRY(take_u32(&c, &version, "the version"));
    BN_TRY(check_version(&c, version));
    BN_TRY(take_u64(&c, &n_tensors, "the tensor count"));
    BN_TRY(take_u64(&c, &n_meta, "the metadata count"));
    if (n_tensors > BN_MAX_TENSORS - d->n)
        return bn_fail(c.err, BITNET_E_LIMIT, "'%s' claims %llu tensors; at most %d are read",
                       c.path, (unsigned long long)n_tensors, BN_MAX_TENSORS);
    if (n_meta > BN_MAX_META)
        return bn_fail(c.err, BITNET_E_LIMIT,
                       "'%s' claims %llu metadata entries; at most %d are read", c.path,
                       (unsigned long long)n_meta, BN_MAX_META);
    s->format = version == 2 ? "GGUF v2" : "GGUF v3";
    s->file_bytes += c.bytes;
    BN_TRY(read_meta(to, &c, n_meta));
    BN_TRY(read_alignment(to, &c, &alignment));
    size_t n = d->n + (size_t)n_tensors;
    if (!bn_grow((void **)&d->entries, &d->room, n, sizeof *d->entries) ||
        !bn_grow((void **)&d->parts, &d->parts_room, d->n_parts + 1, sizeof *d->parts))
        return bn_fail_nomem(c.err, n * sizeof *d->entries, "the tensor directory");
    for (uint64_t k = 0; k < n_tensors; k++) {
        struct entry *e = &d->entries[d->n++];
        *e = (struct entry){.part = (uint32_t)d->n_parts};
        BN_TRY(take_entry(s, &c, e, k));
    }
    uint64_t data_at = bn_align_up(c.at, alignment);
    d->parts[d->n_parts++] = (struct part){.c = c,
                                           .alignment = alignment,
                                           .data_at = data_at,
                                           .data_bytes = data_at < c.bytes ? c.bytes - data_at : 0};
    return BITNET_OK;
}

/* One of the other files of a split model, k from 1. Its metadata say which it is, and no more. */
static bitnet_status read_other(struct bn_source *s, struct directory *d,
                                const struct bn_gguf_split *split, uint32_t k, bitnet_error *err)
{
    struct bn_source meta = {0};
    const struct bn_mapping *file = &s->maps[k];
    const char *path = split->paths[k];
    if (file->bytes < 4 || memcmp(file->data, "GGUF", 4) != 0)
        return bn_fail(err, BITNET_E_FORMAT, "'%s' is no GGUF file", path);
    if (!bn_map_init(&meta.meta_by_key, 8)) return bn_fail_nomem(err, 1024, path);
    const struct cursor c = {file->data, file->bytes, 4, path, err};
    bitnet_status status = read_part(s, &meta, d, &c);
    if (status == BITNET_OK) status = bn_gguf_split_check(split, k, &meta, err);
    bn_source_close(&meta);
    return status;
}

static bitnet_status read_parts(struct bn_source *s, struct directory *d, const struct cursor *c)
{
    struct bn_gguf_split split;
    BN_TRY(read_part(s, s, d, c));
    BN_TRY(bn_gguf_split_read(&split, s, c->path, c->err));
    if (split.count <= 1) return BITNET_OK;
    BN_TRY(bn_gguf_split_map(s, &split, c->err));
    for (uint32_t k = 1; k < split.count; k++) BN_TRY(read_other(s, d, &split, k, c->err));
    if (split.n_tensors && split.n_tensors != d->n)
        return bn_fail(c->err, BITNET_E_FORMAT,
                       "'%s' and the other %u parts have %zu tensors in all; %u were expected",
                       c->path, split.count - 1, d->n, split.n_tensors);
    return BITNET_OK;
}

bitnet_status bn_gguf_read(struct bn_source *s, const struct bn_mapping *file, const char *path,
                           enum bn_i2s_layout i2s, bitnet_error *err)
{
    const struct cursor c = {file->data, file->bytes, 4, path, err}; /* behind the magic */
    struct directory d = {0};
    s->is_gguf = true;
    bitnet_status status = read_parts(s, &d, &c);
    if (status == BITNET_OK) status = add_tensors(s, &d, i2s, err);
    free(d.entries);
    free(d.parts);
    return status == BITNET_OK ? bn_gguf_read_packed(s, err) : status;
}
