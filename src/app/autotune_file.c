/* SPDX-License-Identifier: Apache-2.0 */
#include "app/autotune_file.h"

#include "app/config/folders.h"
#include "app/machine_report.h"

#include "base/threads/bandwidth.h"
#include "base/machine/cores.h"
#include "base/os/file.h"
#include "base/map.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { SHAPES_MAX_BYTES = 64 << 20, VALUE_BYTES = 128 };

/* ------------------------------------------------------------------ where it is */

bool autotune_file_path(char out[AUTOTUNE_FILE_PATH_BYTES], const char *typed)
{
    char folder[AUTOTUNE_FILE_PATH_BYTES];
    if (strcmp(typed, "off") == 0) return false;
    bool automatic = strcmp(typed, "auto") == 0;
    if (automatic && !user_config_folder(folder, sizeof folder)) return false;
    int len = automatic ? snprintf(out, AUTOTUNE_FILE_PATH_BYTES, "%s/tuning.json", folder)
                        : snprintf(out, AUTOTUNE_FILE_PATH_BYTES, "%s", typed);
    return len > 0 && len < AUTOTUNE_FILE_PATH_BYTES;
}

/* Makes the folders of the file, where they are missing; writing will say what is wrong with them. */
static void make_folders(const char *path)
{
    char part[AUTOTUNE_FILE_PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0777);
        *slash = '/';
    }
}

/* ------------------------------------------------------------------ whose it is */

static struct bn_json *machine_json(void)
{
    char cpu[256];
    machine_cpu_name(cpu, sizeof cpu);
    struct bn_json *name = bn_json_string(cpu);
    return bn_json_pack("{s:o, s:I, s:I}", "cpu", name ? name : bn_json_string("unknown"), "cores",
                        (int64_t)bn_usable_cores(), "cache_bytes", (int64_t)bn_last_cache_bytes());
}

/* What the file calls its architecture; null if it does not say. */
static struct bn_json *architecture(const bitnet_file *f)
{
    for (size_t i = 0; i < bitnet_file_n_meta(f); i++) {
        struct bn_json *found;
        const char *key, *type;
        char value[VALUE_BYTES];
        size_t n = sizeof value;
        if (bitnet_file_meta(f, i, &key, &type, value, &n) != BITNET_OK) continue;
        if (strcmp(key, "general.architecture") == 0 || strcmp(key, "config.model_type") == 0)
            return bn_json_try(&found, value, strlen(value), BN_JSON_ANY) ? found : NULL;
    }
    return bn_json_null();
}

static bitnet_status model_json(struct bn_json **out, const char *path, bitnet_error *err)
{
    bitnet_file *f;
    BN_TRY(bitnet_file_open(&f, path, err));
    struct bn_buf shapes;
    bn_buf_init(&shapes, SHAPES_MAX_BYTES);
    uint64_t bytes = 0;
    size_t n = bitnet_file_n_tensors(f);
    for (size_t i = 0; i < n; i++) {
        bitnet_tensor_info t = {.size = sizeof t};
        if (bitnet_file_tensor(f, i, &t) != BITNET_OK) continue;
        bytes += t.bytes;
        bn_buf_printf(&shapes, "%s %s", t.name, t.type);
        for (uint32_t d = 0; d < t.n_dims && d < BN_ARRAY_LEN(t.dims); d++)
            bn_buf_printf(&shapes, " %llu", (unsigned long long)t.dims[d]);
        bn_buf_putc(&shapes, '\n');
    }
    char hash[24];
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)bn_hash(shapes.data ? shapes.data : "", shapes.len));
    *out = bn_json_pack("{s:o, s:I, s:I, s:s}", "architecture", architecture(f), "tensors",
                        (int64_t)n, "tensor_bytes", (int64_t)bytes, "shapes", hash);
    bool ok = *out && !shapes.failed;
    bn_buf_free(&shapes);
    bitnet_file_close(f);
    return ok ? BITNET_OK : bn_fail_nomem(err, bytes, "the shapes of the model");
}

bitnet_status autotune_file_key(struct bn_json **out, const char *model_path, const char *backend,
                                const char *activations, bitnet_error *err)
{
    struct bn_json *model;
    *out = NULL;
    BN_TRY(model_json(&model, model_path, err));
    *out = bn_json_pack("{s:o, s:o, s:{s:s, s:s}}", "machine", machine_json(), "model", model,
                        "options", "backend", backend, "activations", activations);
    return *out ? BITNET_OK : bn_fail_nomem(err, 0, "the key of the tuning file");
}

/* ------------------------------------------------------------------ reading */

bitnet_status autotune_file_read(struct bn_json **out, const char *path, bitnet_error *err)
{
    struct bn_json *file;
    *out = NULL;
    BN_TRY(bn_json_read_file(&file, path, AUTOTUNE_FILE_MAX_BYTES, err));
    const struct bn_json *entries = bn_json_get(file, "entries");
    const char *format = bn_json_text(bn_json_get(file, "format"));
    bool ok = format && strcmp(format, AUTOTUNE_FILE_FORMAT) == 0 && bn_json_is_array(entries);
    for (size_t i = 0; ok && i < bn_json_size(entries); i++)
        ok = bn_json_is_object(bn_json_at(entries, i));
    if (ok) {
        *out = file;
        return BITNET_OK;
    }
    bn_json_free(file);
    return bn_fail(err, BITNET_E_FORMAT, "'%s' is no tuning file of bitnet bench --autotune (%s)",
                   path, AUTOTUNE_FILE_FORMAT);
}

static bool belongs_to(const struct bn_json *entry, const struct bn_json *key)
{
    static const char *const members[] = {"machine", "model", "options"};
    for (size_t i = 0; i < BN_ARRAY_LEN(members); i++)
        if (!bn_json_equal(bn_json_get(entry, members[i]), bn_json_get(key, members[i])))
            return false;
    return true;
}

const struct bn_json *autotune_file_find(const struct bn_json *file, const struct bn_json *key)
{
    const struct bn_json *entries = bn_json_get(file, "entries");
    for (size_t i = 0; i < bn_json_size(entries); i++)
        if (belongs_to(bn_json_at(entries, i), key)) return bn_json_at(entries, i);
    return NULL;
}

static bitnet_status get_number(uint32_t *out, const struct bn_json *use, const char *name,
                                uint32_t max, const char *path, bitnet_error *err)
{
    BN_TRY(bn_json_read_u32(out, use, name, path, err));
    if (*out > max)
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is %u; at most %u is possible", path, name,
                       *out, max);
    return BITNET_OK;
}

static bitnet_status get_word(char out[8], const struct bn_json *use, const char *name,
                              const char *const *words, const char *path, bitnet_error *err)
{
    const char *value = "";
    BN_TRY(bn_json_read_str(&value, use, name, path, err));
    for (; *value && *words; words++)
        if (strcmp(value, *words) == 0) break;
    if (*value && !*words)
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is '%.40s', which is not one of its values",
                       path, name, value);
    snprintf(out, 8, "%s", value);
    return BITNET_OK;
}

bitnet_status autotune_file_values(struct autotune_values *out, const struct bn_json *entry,
                                   const char *path, bitnet_error *err)
{
    static const char *const layouts[] = {"t2", "t3", "t5", "b1", "g2", "g3", "g5", NULL},
                             *const pins[] = {"on", NULL};
    const struct bn_json *use = bn_json_get(entry, "use");
    struct autotune_values t = {0};
    if (!bn_json_is_object(use))
        return bn_fail(err, BITNET_E_FORMAT, "%s: an entry has no object 'use'", path);
    BN_TRY(get_number(&t.threads, use, "threads", AUTOTUNE_FILE_MAX_THREADS, path, err));
    BN_TRY(get_word(t.layout, use, "layout", layouts, path, err));
    BN_TRY(get_word(t.pin, use, "pin", pins, path, err));
    BN_TRY(get_number(&t.prefetch_bytes, use, "prefetch", AUTOTUNE_FILE_MAX_PREFETCH, path, err));
    BN_TRY(get_number(&t.batch_tokens, use, "batch", AUTOTUNE_FILE_MAX_BATCH, path, err));
    const char *date = "undated";
    BN_TRY(bn_json_read_str(&date, entry, "date", path, err));
    snprintf(t.date, sizeof t.date, "%.10s", date); /* the day */
    *out = t;
    return BITNET_OK;
}

bitnet_status autotune_file_look(struct autotune_values *out, const char *typed,
                                 const char *model_path, const char *backend,
                                 const char *activations, bitnet_error *err)
{
    char path[AUTOTUNE_FILE_PATH_BYTES];
    *out = (struct autotune_values){0};
    if (!autotune_file_path(path, typed) || (strcmp(typed, "auto") == 0 && !bn_exists(path)))
        return BITNET_OK;
    struct bn_json *file, *key = NULL;
    BN_TRY(autotune_file_read(&file, path, err));
    bitnet_error unused; /* opening the model will say what is wrong with it */
    const struct bn_json *entry = NULL;
    if (autotune_file_key(&key, model_path, backend, activations, &unused) == BITNET_OK)
        entry = autotune_file_find(file, key);
    bitnet_status s = entry ? autotune_file_values(out, entry, path, err) : BITNET_OK;
    bn_json_free(key);
    bn_json_free(file);
    return s;
}

double autotune_file_decode_rate(const char *model_path)
{
    char path[AUTOTUNE_FILE_PATH_BYTES];
    const char *typed = getenv("BITNET_TUNING");
    struct bn_json *file = NULL, *key = NULL;
    bitnet_error unused;
    double rate = 0;
    if (!autotune_file_path(path, typed && *typed ? typed : "auto") || !bn_exists(path) ||
        autotune_file_read(&file, path, &unused) != BITNET_OK)
        return 0;
    if (autotune_file_key(&key, model_path, "auto", "auto", &unused) == BITNET_OK) {
        const struct bn_json *entry = autotune_file_find(file, key),
                             *of = bn_json_get(bn_json_get(entry, "measured"), "decode"),
                             *tuned = bn_json_get(of, "tuned");
        rate = bn_json_number(tuned ? tuned : bn_json_get(of, "default"));
    }
    bn_json_free(key);
    bn_json_free(file);
    return rate;
}

/* ------------------------------------------------------------------ writing */

struct bn_json *autotune_file_use_json(const struct autotune_values *t)
{
    struct bn_json *use = bn_json_object();
    if (t->threads) bn_json_set(use, "threads", bn_json_int(t->threads));
    if (*t->layout) bn_json_set(use, "layout", bn_json_string(t->layout));
    if (*t->pin) bn_json_set(use, "pin", bn_json_string(t->pin));
    if (t->prefetch_bytes) bn_json_set(use, "prefetch", bn_json_int(t->prefetch_bytes));
    if (t->batch_tokens) bn_json_set(use, "batch", bn_json_int(t->batch_tokens));
    return use;
}

/* The file's entries, less the key's own and the oldest beyond the maximum, and the new one. */
static void replace_entry(struct bn_json *file, const struct bn_json *key,
                          const struct bn_json *entry)
{
    struct bn_json *entries = bn_json_get(file, "entries"), *whole = bn_json_deep_copy(key);
    for (size_t i = bn_json_size(entries); i-- > 0;)
        if (belongs_to(bn_json_at(entries, i), key)) bn_json_remove(entries, i);
    while (bn_json_size(entries) >= AUTOTUNE_FILE_MAX_ENTRIES) bn_json_remove(entries, 0);
    bn_json_update(whole, entry, true);
    bn_json_append(entries, whole);
}

static bitnet_status write_text(const char *path, const char *text, bitnet_error *err)
{
    struct bn_out o = {.fd = -1};
    make_folders(path);
    bitnet_status s = bn_out_open(&o, path, true, err);
    if (s == BITNET_OK) s = bn_out_write(&o, text, strlen(text), err);
    if (s == BITNET_OK) s = bn_out_write(&o, "\n", 1, err);
    if (s == BITNET_OK) s = bn_out_commit(&o, err);
    bn_out_close(&o);
    return s;
}

bitnet_status autotune_file_write(const char *path, const struct bn_json *key,
                                  const struct bn_json *entry, bitnet_error *err)
{
    struct bn_json *file = NULL;
    if (bn_exists(path)) BN_TRY(autotune_file_read(&file, path, err));
    else file = bn_json_pack("{s:s, s:[]}", "format", AUTOTUNE_FILE_FORMAT, "entries");
    replace_entry(file, key, entry);
    char *text = bn_json_dump(file, BN_JSON_INDENT(1) | BN_JSON_DIGITS(6));
    bitnet_status s = text ? write_text(path, text, err) : bn_fail_nomem(err, 0, "the tuning file");
    free(text);
    bn_json_free(file);
    return s;
}

void autotune_file_describe(char *out, size_t n, const struct autotune_values *t)
{
    struct bn_buf b;
    bn_buf_init(&b, n - 1);
    if (t->threads) bn_buf_printf(&b, ", %u thread%s", t->threads, t->threads == 1 ? "" : "s");
    if (*t->layout) bn_buf_printf(&b, ", %s", t->layout);
    if (*t->pin) bn_buf_puts(&b, ", pinned");
    if (t->prefetch_bytes == 1) bn_buf_puts(&b, ", no prefetch");
    else if (t->prefetch_bytes) bn_buf_printf(&b, ", prefetch %u", t->prefetch_bytes);
    if (t->batch_tokens) bn_buf_printf(&b, ", batch %u", t->batch_tokens);
    snprintf(out, n, "%s", b.len ? b.data + 2 : "the defaults");
    bn_buf_free(&b);
}
