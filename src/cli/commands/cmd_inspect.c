/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_inspect.c: `bitnet inspect`: what a model file says about itself, and what is really in it.
 * The summary does not believe the storage type: every projection matrix is read and its values
 * counted, unless --no-stats or --meta asks for the directory alone.
 */
#include "base/os/file.h"
#include "json/json.h"
#include "base/os/mem.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include <stdlib.h>

struct inspect_config {
    struct model_path path;
    const char *require;
    bool weights, meta, no_stats, json;
};

#define AT(field) offsetof(struct inspect_config, field)
static const struct opt table[] = {
    {.kind = OPT_FLAG,
     .letter = 'w',
     .name = "weights",
     .help = "one line per tensor: storage type, values found, share of zeros, scale, dead rows",
     .offset = AT(weights)},
    {.kind = OPT_FLAG,
     .name = "meta",
     .help = "show the metadata; on its own, weights are not read",
     .offset = AT(meta)},
    {.kind = OPT_CHOICE,
     .name = "require",
     .help = "exit with code 1 unless every matrix holds only such values",
     .offset = AT(require),
     .choices = "binary|ternary"},
    {.kind = OPT_FLAG,
     .name = "no-stats",
     .help = "do not read the weights",
     .offset = AT(no_stats)},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print everything as one JSON object",
     .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Report", table, 0},
    {"Model", model_path_table, AT(path)},
    {NULL, NULL, 0},
};
#undef AT

struct row {
    bitnet_tensor_info info;
    bitnet_tensor_stats stats;
    bool counted; /* stats are there */
};

struct contents {
    const char *path; /* NULL: the embedded model */
    bitnet_file *file;
    struct row *rows;
    size_t n_rows;
    bool counted; /* the matrices were read */
    bool packed;  /* some weights are in packed form only */
    bitnet_file_model model;
    bitnet_error why_not; /* status other than BITNET_OK: the model cannot be read */
    /* over the projection matrices */
    uint64_t n_matrices, weights, bytes, zeros, dead_rows, nonfinite;
    uint64_t n_float_gates, float_gate_weights; /* that are not among them */
    /* "binary", "ternary", "quaternary", "float", "mixed", "none", "unread" */
    const char *weight_dtype;
    double bit_width; /* information in a weight of that kind: 1, 1.58, 2, or the storage's bits */
    bool has_zero_point;     /* the values do not lie symmetrically about 0 */
    const struct row *worst; /* a matrix of the widest kind, to be named in a sentence */
};

/* ------------------------------------------------------------------ reading */

static uint64_t weights_of(const bitnet_tensor_info *t)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims && d < BN_ARRAY_LEN(t->dims); d++) n *= t->dims[d];
    return n;
}

/* binary < ternary < quaternary < float */
static int rank_of(const char *dtype)
{
    static const char *const order[] = {"binary", "ternary", "quaternary"};
    for (size_t i = 0; i < BN_ARRAY_LEN(order); i++)
        if (strcmp(dtype, order[i]) == 0) return (int)i;
    return (int)BN_ARRAY_LEN(order);
}

static bitnet_status read_rows(struct contents *c, bool count, bitnet_error *err)
{
    struct term_progress bar = {0};
    uint64_t done = 0, total = 0;
    c->n_rows = bitnet_file_n_tensors(c->file);
    c->rows = bn_calloc(bn_max_size(c->n_rows, 1), sizeof *c->rows);
    if (!c->rows) return bn_fail_nomem(err, c->n_rows * sizeof *c->rows, "the list of tensors");
    for (size_t i = 0; i < c->n_rows; i++) {
        struct row *r = &c->rows[i];
        r->info.size = sizeof r->info;
        r->stats.size = sizeof r->stats;
        if (bitnet_file_tensor(c->file, i, &r->info) != BITNET_OK)
            return bn_fail(err, BITNET_E_INTERNAL, "tensor %zu of the file could not be listed", i);
        r->counted = count && !r->info.is_packed && (r->info.is_matrix || r->info.is_ternary_type);
        c->packed |= r->info.is_packed != 0;
        if (r->counted) total += r->info.bytes;
    }
    bitnet_status s = BITNET_OK;
    for (size_t i = 0; i < c->n_rows && s == BITNET_OK; i++) {
        struct row *r = &c->rows[i];
        if (!r->counted) continue;
        s = bitnet_file_tensor_stats(c->file, i, &r->stats, err);
        done += r->info.bytes;
        if (s == BITNET_OK && term_progress_show(&bar, "reading weights", done, total))
            s = bn_fail(err, BITNET_E_CANCELLED, "interrupted");
    }
    term_progress_end(&bar);
    return s;
}

static void summarise(struct contents *c, bool count)
{
    int lowest = 9, highest = -1;
    c->counted = count;
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct row *r = &c->rows[i];
        if (r->info.is_gate && !r->info.is_matrix) {
            c->n_float_gates++;
            c->float_gate_weights += weights_of(&r->info);
        }
        if (!r->info.is_matrix) continue;
        c->n_matrices++;
        c->weights += weights_of(&r->info);
        c->bytes += r->info.bytes;
        if (!r->counted) continue;
        c->zeros += r->stats.count[1];
        c->dead_rows += r->stats.dead_rows;
        c->nonfinite += r->stats.n_nonfinite;
        int rank = rank_of(r->stats.dtype);
        if (rank < lowest) lowest = rank;
        if (rank > highest) {
            highest = rank;
            c->worst = r;
        }
    }
    static const char *const names[] = {"binary", "ternary", "quaternary", "float"};
    static const double widths[] = {1, 1.58, 2};
    if (c->n_matrices == 0) {
        c->weight_dtype = "none";
    } else if (!count) {
        c->weight_dtype = "unread";
    } else {
        bool floats = highest == 3;
        c->weight_dtype = floats && lowest < 3 ? "mixed" : names[highest];
        c->bit_width = floats ? (double)c->bytes * 8 / (double)c->weights : widths[highest];
        c->has_zero_point = highest == 2;
    }
}

/* The i-th metadata entry with its value as text; false if it is not there. Owned: *value. */
static bitnet_status read_meta(const bitnet_file *f, size_t i, const char **key, const char **type,
                               char **value)
{
    size_t room = 512;
    for (;;) {
        size_t n = room;
        *value = bn_calloc(room + 1, 1);
        if (!*value) return BITNET_E_NOMEM;
        bitnet_status s = bitnet_file_meta(f, i, key, type, *value, &n);
        if (s == BITNET_OK) return s;
        free(*value);
        *value = NULL;
        if (s != BITNET_E_LIMIT || n <= room) return s;
        room = n;
    }
}

/* ------------------------------------------------------------------ as text */

static bitnet_status print_meta(const bitnet_file *f)
{
    size_t n = bitnet_file_n_meta(f);
    printf("\n%smetadata (%zu)%s\n", term_style(stdout, TERM_BOLD), n,
           term_style(stdout, TERM_PLAIN));
    for (size_t i = 0; i < n; i++) {
        const char *key, *type;
        char *value;
        bitnet_status s = read_meta(f, i, &key, &type, &value);
        if (s == BITNET_E_NOMEM) return s;
        if (s != BITNET_OK) continue;
        fputs("  ", stdout);
        term_print_clean(stdout, key);
        printf("%*s %-10s ", (int)(strlen(key) < 42 ? 42 - strlen(key) : 0), "", type);
        term_print_clean(stdout, value);
        fputc('\n', stdout);
        free(value);
    }
    return BITNET_OK;
}

static void format_shape(char out[64], const bitnet_tensor_info *t)
{
    int n = 0;
    out[0] = 0;
    for (uint32_t d = 0; d < t->n_dims && d < BN_ARRAY_LEN(t->dims) && n < 64; d++)
        n += snprintf(out + n, 64 - (size_t)n, "%s%llu", d ? " x " : "",
                      (unsigned long long)t->dims[d]);
}

static void format_scale(char out[40], const bitnet_tensor_stats *s)
{
    if (s->n_scales == 0) snprintf(out, 40, "-");
    else if (s->scale_min == s->scale_max) snprintf(out, 40, "%.5g", s->scale_min);
    else snprintf(out, 40, "%.4g..%.4g", s->scale_min, s->scale_max);
}

static void print_weights(const struct contents *c)
{
    printf("\n%stensors (%zu)%s\n  %-32s %-9s %-16s %6s  %-13s %7s  %-18s %s\n",
           term_style(stdout, TERM_BOLD), c->n_rows, term_style(stdout, TERM_PLAIN), "name", "type",
           "shape", "bits", "values", "zeros", "scale", "dead rows");
    for (size_t i = 0; i < c->n_rows; i++) {
        const struct row *r = &c->rows[i];
        char shape[64], scale[40];
        size_t len = strlen(r->info.name);
        format_shape(shape, &r->info);
        fputs("  ", stdout);
        term_print_clean(stdout, r->info.name);
        printf("%*s %-9s %-16s %6.3f", (int)(len < 32 ? 32 - len : 0), "", r->info.type, shape,
               r->info.bits_per_weight);
        if (r->counted) {
            format_scale(scale, &r->stats);
            printf("  %-13s %5.1f %%  %-18s %llu", r->stats.values, r->stats.zero_share * 100,
                   scale, (unsigned long long)r->stats.dead_rows);
            if (r->stats.n_nonfinite)
                printf("  %llu not finite", (unsigned long long)r->stats.n_nonfinite);
        }
        if (r->info.is_packed) fputs("  packed", stdout);
        fputc('\n', stdout);
    }
}

/* What the file recommends for sampling. */
struct advice {
    const char *option, *member;
    double value;
};
enum { MAX_ADVICE = 6 };

static size_t read_advice(struct advice out[MAX_ADVICE], const bitnet_file *f)
{
    bitnet_sampling s;
    bitnet_sampling_init(&s, sizeof s);
    uint32_t given = bitnet_file_sampling(f, &s);
    const struct {
        uint32_t bit;
        struct advice advice;
    } all[MAX_ADVICE] = {
        {BITNET_SAMPLING_TEMPERATURE, {"temp", "temperature", (double)s.temperature}},
        {BITNET_SAMPLING_TOP_K, {"top-k", "top_k", s.top_k}},
        {BITNET_SAMPLING_TOP_P, {"top-p", "top_p", (double)s.top_p}},
        {BITNET_SAMPLING_MIN_P, {"min-p", "min_p", (double)s.min_p}},
        {BITNET_SAMPLING_REPETITION_PENALTY,
         {"repeat-penalty", "repetition_penalty", (double)s.repetition_penalty}},
        {BITNET_SAMPLING_PENALTY_LAST_N, {"repeat-last-n", "penalty_last_n", s.penalty_last_n}},
    };
    size_t n = 0;
    for (size_t i = 0; i < MAX_ADVICE; i++)
        if (given & all[i].bit) out[n++] = all[i].advice;
    return n;
}

static void print_advice(const bitnet_file *f)
{
    struct advice a[MAX_ADVICE];
    size_t n = read_advice(a, f);
    if (n == 0) return;
    fputs("  recommended    ", stdout);
    for (size_t i = 0; i < n; i++) printf(" --%s %g", a[i].option, a[i].value);
    fputc('\n', stdout);
}

static void print_layers(const bitnet_file_model *m)
{
    printf("  layers          %u", m->n_layer);
    if (m->n_delta) {
        printf(": %u delta net, %u attention", m->n_delta, m->n_attention);
        uint32_t n = m->attention_every;
        if (n) printf(" (every %u%s)", n, n == 2 ? "nd" : n == 3 ? "rd" : "th");
    }
    if (m->n_mtp) printf(", and %u to draft tokens (MTP)", m->n_mtp);
    printf("; %u wide, feed-forward %u\n", m->n_embd, m->n_ff);
}

static void print_model(const struct contents *c)
{
    char size[TERM_SIZE_BYTES];
    const bitnet_file_model *m = &c->model;
    printf("\n%smodel%s\n", term_style(stdout, TERM_BOLD), term_style(stdout, TERM_PLAIN));
    if (c->why_not.status != BITNET_OK) {
        fputs("  cannot be run   ", stdout);
        term_print_clean(stdout, c->why_not.text);
        fputc('\n', stdout);
        return;
    }
    printf("  architecture    %s, %u tokens in the vocabulary, context %u\n", m->architecture,
           m->n_vocab, m->n_ctx_train);
    print_layers(m);
    printf("  attention       %u heads of %u, %u of keys and values; %s a token in f16\n",
           m->n_head, m->head_dim, m->n_head_kv, term_size(size, m->kv_token_bytes));
    if (m->n_delta)
        printf(
            "  delta net       %u key heads of %u, %u value heads of %u, convolution of %u; state "
            "%s a sequence\n",
            m->delta_k_heads, m->delta_k_dim, m->delta_v_heads, m->delta_v_dim, m->delta_taps,
            term_size(size, m->state_bytes));
    if (!m->rotation_block) return;
    printf("  rotation        Hadamard, blocks of %u, before %llu matrices%s; ", m->rotation_block,
           (unsigned long long)m->n_rotated,
           m->rotated_embedding ? " and behind the embedding" : "");
    if (m->rotation_signs) printf("%u signs\n", m->rotation_signs);
    else puts("no signs");
}

static void print_summary(const struct contents *c)
{
    char size[TERM_SIZE_BYTES];
    printf("\n%ssummary%s\n  weight_dtype    %s\n", term_style(stdout, TERM_BOLD),
           term_style(stdout, TERM_PLAIN), c->weight_dtype);
    if (c->counted && c->n_matrices)
        printf("  bit_width       %.3g\n  has_zero_point  %s\n", c->bit_width,
               c->has_zero_point ? "true" : "false");
    printf("  matrices        %llu, %llu weights, %s", (unsigned long long)c->n_matrices,
           (unsigned long long)c->weights, term_size(size, c->bytes));
    if (c->weights) printf(", %.3f bits a weight", (double)c->bytes * 8 / (double)c->weights);
    fputc('\n', stdout);
    if (c->n_float_gates)
        printf("  gates in floats %llu, %llu weights\n", (unsigned long long)c->n_float_gates,
               (unsigned long long)c->float_gate_weights);
    if (!c->counted || !c->n_matrices) return;
    printf("  zeros           %.2f %%\n  dead rows       %llu\n",
           100.0 * (double)c->zeros / (double)c->weights, (unsigned long long)c->dead_rows);
    if (c->nonfinite) printf("  not finite      %llu\n", (unsigned long long)c->nonfinite);
}

static int print_text(const struct inspect_config *o, const struct contents *c)
{
    char size[TERM_SIZE_BYTES];
    term_print_clean(stdout, model_path_name(c->path));
    printf(": %s, %s, %zu tensors\n", bitnet_file_format(c->file),
           term_size(size, bitnet_file_bytes(c->file)), c->n_rows);
    if ((o->meta || !o->weights) && print_meta(c->file) != BITNET_OK)
        return term_fail_text("out of memory for the metadata");
    if (o->weights) print_weights(c);
    if (o->weights || !o->meta) {
        print_model(c);
        print_summary(c);
        print_advice(c->file);
    }
    return EXIT_DONE;
}

/* ------------------------------------------------------------------ as JSON */

static struct bn_json *json_tensor(const struct row *r)
{
    const bitnet_tensor_info *t = &r->info;
    struct bn_json *dims = bn_json_array();
    for (uint32_t d = 0; d < t->n_dims && d < BN_ARRAY_LEN(t->dims); d++)
        bn_json_append(dims, bn_json_int((int64_t)t->dims[d]));
    struct bn_json *j =
        bn_json_pack("{s:o, s:s, s:o, s:I, s:I, s:o, s:b, s:b, s:b, s:b}", "name",
                     term_json_string(t->name, strlen(t->name)), "type", t->type, "dims", dims,
                     "bytes", (int64_t)t->bytes, "offset", (int64_t)t->offset, "bits_per_weight",
                     bn_json_real(t->bits_per_weight), "is_matrix", t->is_matrix, "is_ternary_type",
                     t->is_ternary_type, "is_gate", t->is_gate, "is_packed", t->is_packed);
    if (!j || !r->counted) return j;
    const bitnet_tensor_stats *s = &r->stats;
    struct bn_json *found = bn_json_pack(
        "{s:s, s:s, s:[I, I, I, I], s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:I}", "values",
        s->values, "dtype", s->dtype, "counts", (int64_t)s->count[0], (int64_t)s->count[1],
        (int64_t)s->count[2], (int64_t)s->count[3], "zero_share", bn_json_real(s->zero_share),
        "scale_min", bn_json_real(s->scale_min), "scale_max", bn_json_real(s->scale_max),
        "n_scales", (int64_t)s->n_scales, "dead_rows", (int64_t)s->dead_rows, "value_min",
        bn_json_real(s->value_min), "value_max", bn_json_real(s->value_max), "mean_abs",
        bn_json_real(s->mean_abs), "nonfinite", (int64_t)s->n_nonfinite);
    bn_json_update(j, found, true);
    bn_json_free(found);
    return j;
}

/* The library writes values as JSON does, but cuts long ones; those, and what JSON cannot hold,
 * stay text. */
static struct bn_json *json_value(const char *type, const char *value)
{
    struct bn_json *j;
    if (!bn_json_try(&j, value, strlen(value), BN_JSON_ANY)) return NULL;
    if (j && bn_json_is_string(j) == (strcmp(type, "str") == 0)) return j;
    bn_json_free(j);
    return term_json_string(value, strlen(value));
}

static struct bn_json *json_meta(const bitnet_file *f)
{
    struct bn_json *all = bn_json_object();
    for (size_t i = 0; i < bitnet_file_n_meta(f); i++) {
        const char *key, *type;
        char *value;
        bitnet_status s = read_meta(f, i, &key, &type, &value);
        if (s == BITNET_E_NOMEM) bn_json_set(all, "", NULL); /* broken */
        if (s != BITNET_OK) continue;
        struct bn_buf name; /* a key that is not UTF-8 must not vanish from the report */
        bn_buf_init(&name, SIZE_MAX / 2);
        term_clean(&name, key, strlen(key), false);
        bn_json_set(all, name.failed ? NULL : name.data, json_value(type, value));
        bn_buf_free(&name);
        free(value);
    }
    return all;
}

/* As numbers with six digits: they were floats. */
static struct bn_json *json_advice(const bitnet_file *f)
{
    struct advice a[MAX_ADVICE];
    size_t n = read_advice(a, f);
    struct bn_json *j = bn_json_object();
    for (size_t i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "%g", a[i].value);
        struct bn_json *number;
        bn_json_try(&number, text, strlen(text), BN_JSON_ANY);
        bn_json_set(j, a[i].member, number);
    }
    return j;
}

static struct bn_json *json_delta(const bitnet_file_model *m)
{
    if (!m->n_delta) return bn_json_null();
    return bn_json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "key_heads", (int64_t)m->delta_k_heads,
                        "key_dim", (int64_t)m->delta_k_dim, "value_heads",
                        (int64_t)m->delta_v_heads, "value_dim", (int64_t)m->delta_v_dim, "taps",
                        (int64_t)m->delta_taps, "state_bytes", (int64_t)m->state_bytes);
}

static struct bn_json *json_rotation(const bitnet_file_model *m)
{
    if (!m->rotation_block) return bn_json_null();
    return bn_json_pack("{s:I, s:I, s:b, s:I}", "block", (int64_t)m->rotation_block, "matrices",
                        (int64_t)m->n_rotated, "embedding", m->rotated_embedding, "signs",
                        (int64_t)m->rotation_signs);
}

/* null: it cannot be read; model_error says why. */
static struct bn_json *json_model(const struct contents *c)
{
    const bitnet_file_model *m = &c->model;
    if (c->why_not.status != BITNET_OK) return bn_json_null();
    return bn_json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
        "architecture", m->architecture, "vocab", (int64_t)m->n_vocab, "embd", (int64_t)m->n_embd,
        "ff", (int64_t)m->n_ff, "heads", (int64_t)m->n_head, "kv_heads", (int64_t)m->n_head_kv,
        "head_dim", (int64_t)m->head_dim, "context", (int64_t)m->n_ctx_train, "layers",
        (int64_t)m->n_layer, "attention_layers", (int64_t)m->n_attention, "delta_layers",
        (int64_t)m->n_delta, "attention_every", (int64_t)m->attention_every, "mtp_layers",
        (int64_t)m->n_mtp, "kv_token_bytes", (int64_t)m->kv_token_bytes, "delta_net", json_delta(m),
        "rotation", json_rotation(m));
}

static int print_json(const struct contents *c)
{
    const char *path = model_path_name(c->path);
    struct bn_json *tensors = bn_json_array();
    for (size_t i = 0; i < c->n_rows; i++) bn_json_append(tensors, json_tensor(&c->rows[i]));
    bool known = c->counted && c->n_matrices;
    return term_print_json(bn_json_pack(
        "{s:o, s:s, s:I, s:o, s:o, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, "
        "s:o}",
        "path", term_json_string(path, strlen(path)), "format", bitnet_file_format(c->file),
        "file_bytes", (int64_t)bitnet_file_bytes(c->file), "model", json_model(c), "model_error",
        c->why_not.status == BITNET_OK ? bn_json_null()
                                       : term_json_string(c->why_not.text, strlen(c->why_not.text)),
        "weight_dtype", c->weight_dtype, "bit_width",
        known ? bn_json_real(c->bit_width) : bn_json_null(), "has_zero_point",
        known ? bn_json_bool(c->has_zero_point) : bn_json_null(), "matrices",
        (int64_t)c->n_matrices, "matrix_weights", (int64_t)c->weights, "matrix_bytes",
        (int64_t)c->bytes, "float_gates", (int64_t)c->n_float_gates, "zero_share",
        known ? bn_json_real((double)c->zeros / (double)c->weights) : bn_json_null(), "dead_rows",
        known ? bn_json_int((int64_t)c->dead_rows) : bn_json_null(), "nonfinite",
        known ? bn_json_int((int64_t)c->nonfinite) : bn_json_null(), "tensors", tensors, "metadata",
        json_meta(c->file), "sampling", json_advice(c->file)));
}

/* ------------------------------------------------------------------ the command */

/* A binary matrix is also a ternary one that happens to hold no zeros. */
static int check_required(const struct contents *c, const char *require)
{
    const char *path = model_path_name(c->path);
    if (c->packed)
        return term_fail_text("the weights of %s are packed and are not counted; look at the file "
                              "that it was made of",
                              path);
    if (c->n_matrices == 0)
        return term_fail_text("%s holds no weight matrices, so it is not %s", path, require);
    if (c->nonfinite)
        return term_fail_text("%s is not %s: %llu weights or scales are not finite", path, require,
                              (unsigned long long)c->nonfinite);
    if (rank_of(c->worst->stats.dtype) <= rank_of(require)) return EXIT_DONE;
    return term_fail_text("%s is not %s: %s is %s, with values %s", path, require,
                          c->worst->info.name, c->worst->stats.dtype, c->worst->stats.values);
}

static int run(void *config, const struct arg_words *words)
{
    struct inspect_config *o = config;
    const char *model;
    int code = model_word(&model, o->path.model, o->path.typed, words, "inspect");
    if (code == EXIT_DONE) code = model_find(&model, &o->path.from, "inspect");
    if (code != EXIT_DONE) return code;
    bool meta_only = o->meta && !o->weights && !o->require;
    bool count = !o->no_stats && !meta_only;
    if (o->require && o->no_stats)
        return term_usage("inspect", "--require needs to read the weights; leave out --no-stats");

    bitnet_error err = {0};
    struct contents c = {.path = model_path_resolve(model)};
    bitnet_status s = bitnet_file_open(&c.file, c.path, &err);
    c.model.size = sizeof c.model;
    if (s == BITNET_OK) bitnet_file_get_model(c.file, &c.model, &c.why_not);
    if (s == BITNET_OK) s = read_rows(&c, count, &err);
    if (s == BITNET_OK) {
        summarise(&c, count && !c.packed);
        code = o->json ? print_json(&c) : print_text(o, &c);
        if (code == EXIT_DONE && o->require) code = check_required(&c, o->require);
    } else {
        code = term_fail(&err);
    }
    free(c.rows);
    bitnet_file_close(c.file);
    return code;
}

const struct command cmd_inspect = {
    .name = "inspect",
    .usage = "[MODEL] [options]",
    .about = "\n"
             "Shows the metadata, the model, and a summary of its weights, which are read and "
             "counted, not\n"
             "taken on trust.\n"
             "weight_dtype is what was found: binary {-1,+1}, ternary {-1,0,+1}, quaternary "
             "{-1,0,+1,+2} or\n"
             "float; bit_width is the information in such a weight; has_zero_point tells whether "
             "the values\n"
             "are asymmetric about zero.\n"
             "\n"
             "  bitnet inspect model.gguf --weights\n"
             "  bitnet inspect model.gguf --require ternary --json\n",
    .parts = parts,
    .config_bytes = sizeof(struct inspect_config),
    .max_words = 1,
    .run = run,
};
