/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/tuning.h"

#include "base/bandwidth.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/map.h"
#include "cli/bench.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { SHAPES_MAX_BYTES = 64 << 20, VALUE_BYTES = 128 };

/* ------------------------------------------------------------------ where it is */

/* The user's folder for settings; false: there is none. */
static bool config_folder(char *out, size_t n)
{
    const char *xdg = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int len = xdg && *xdg == '/' ? snprintf(out, n, "%s", xdg)
              : home && *home    ? snprintf(out, n, "%s/.config", home)
                                 : -1;
    return len > 0 && (size_t)len < n;
}

bool tuning_path(char out[TUNING_PATH_BYTES], const char *typed)
{
    char folder[TUNING_PATH_BYTES];
    if (strcmp(typed, "off") == 0) return false;
    bool automatic = strcmp(typed, "auto") == 0;
    if (automatic && !config_folder(folder, sizeof folder)) return false;
    int len = automatic ? snprintf(out, TUNING_PATH_BYTES, "%s/bitnet/tuning.json", folder)
                        : snprintf(out, TUNING_PATH_BYTES, "%s", typed);
    return len > 0 && len < TUNING_PATH_BYTES;
}

/* Makes the folders of the file, where they are missing; writing will say what is wrong with them. */
static void make_folders(const char *path)
{
    char part[TUNING_PATH_BYTES];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(part, 0777);
        *slash = '/';
    }
}

/* ------------------------------------------------------------------ whose it is */

static json_t *machine_json(void)
{
    char cpu[256];
    bench_cpu_name(cpu, sizeof cpu);
    json_t *name = json_string(cpu);
    return json_pack("{s:o, s:I, s:I}", "cpu", name ? name : json_string("unknown"), "cores",
                     (json_int_t)bn_usable_cores(), "cache_bytes",
                     (json_int_t)bn_last_cache_bytes());
}

/* What the file calls its architecture; null if it does not say. */
static json_t *architecture(const bitnet_file *f)
{
    for (size_t i = 0; i < bitnet_file_n_meta(f); i++) {
        const char *key, *type;
        char value[VALUE_BYTES];
        size_t n = sizeof value;
        if (bitnet_file_meta(f, i, &key, &type, value, &n) != BITNET_OK) continue;
        if (strcmp(key, "general.architecture") == 0 || strcmp(key, "config.model_type") == 0)
            return json_loads(value, JSON_DECODE_ANY, NULL);
    }
    return json_null();
}

static bitnet_status model_json(json_t **out, const char *path, bitnet_error *err)
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
    *out = json_pack("{s:o, s:I, s:I, s:s}", "architecture", architecture(f), "tensors",
                     (json_int_t)n, "tensor_bytes", (json_int_t)bytes, "shapes", hash);
    bool ok = *out && !shapes.failed;
    bn_buf_free(&shapes);
    bitnet_file_close(f);
    return ok ? BITNET_OK : bn_fail_nomem(err, bytes, "the shapes of the model");
}

bitnet_status tuning_key(json_t **out, const char *model_path, const char *backend,
                         const char *activations, bitnet_error *err)
{
    json_t *model;
    *out = NULL;
    BN_TRY(model_json(&model, model_path, err));
    *out = json_pack("{s:o, s:o, s:{s:s, s:s}}", "machine", machine_json(), "model", model,
                     "options", "backend", backend, "activations", activations);
    return *out ? BITNET_OK : bn_fail_nomem(err, sizeof **out, "the key of the tuning file");
}

/* ------------------------------------------------------------------ reading */

bitnet_status tuning_read(json_t **out, const char *path, bitnet_error *err)
{
    json_t *file;
    *out = NULL;
    BN_TRY(bn_json_read(&file, path, TUNING_MAX_BYTES, err));
    const json_t *entries = json_object_get(file, "entries");
    const char *format = json_string_value(json_object_get(file, "format"));
    bool ok = format && strcmp(format, TUNING_FORMAT) == 0 && json_is_array(entries);
    for (size_t i = 0; ok && i < json_array_size(entries); i++)
        ok = json_is_object(json_array_get(entries, i));
    if (ok) {
        *out = file;
        return BITNET_OK;
    }
    json_decref(file);
    return bn_fail(err, BITNET_E_FORMAT, "'%s' is no tuning file of bitnet bench --autotune (%s)",
                   path, TUNING_FORMAT);
}

static bool belongs_to(const json_t *entry, const json_t *key)
{
    static const char *const members[] = {"machine", "model", "options"};
    for (size_t i = 0; i < BN_ARRAY_LEN(members); i++)
        if (!json_equal(json_object_get(entry, members[i]), json_object_get(key, members[i])))
            return false;
    return true;
}

const json_t *tuning_find(const json_t *file, const json_t *key)
{
    const json_t *entries = json_object_get(file, "entries");
    for (size_t i = 0; i < json_array_size(entries); i++)
        if (belongs_to(json_array_get(entries, i), key)) return json_array_get(entries, i);
    return NULL;
}

static bitnet_status get_number(uint32_t *out, const json_t *use, const char *name, uint32_t max,
                                const char *path, bitnet_error *err)
{
    BN_TRY(bn_json_u32(out, use, name, path, err));
    if (*out > max)
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is %u; at most %u is possible", path, name,
                       *out, max);
    return BITNET_OK;
}

static bitnet_status get_word(char out[8], const json_t *use, const char *name,
                              const char *const *words, const char *path, bitnet_error *err)
{
    const char *value = "";
    BN_TRY(bn_json_str(&value, use, name, path, err));
    for (; *value && *words; words++)
        if (strcmp(value, *words) == 0) break;
    if (*value && !*words)
        return bn_fail(err, BITNET_E_FORMAT, "%s: '%s' is '%.40s', which is not one of its values",
                       path, name, value);
    snprintf(out, 8, "%s", value);
    return BITNET_OK;
}

bitnet_status tuning_values(struct tuning *out, const json_t *entry, const char *path,
                            bitnet_error *err)
{
    static const char *const layouts[] = {"t2", "t3", "t5", "b1", "g2", "g3", "g5", NULL},
                             *const pins[] = {"on", NULL};
    const json_t *use = json_object_get(entry, "use");
    struct tuning t = {0};
    if (!json_is_object(use))
        return bn_fail(err, BITNET_E_FORMAT, "%s: an entry has no object 'use'", path);
    BN_TRY(get_number(&t.threads, use, "threads", TUNING_MAX_THREADS, path, err));
    BN_TRY(get_word(t.layout, use, "layout", layouts, path, err));
    BN_TRY(get_word(t.pin, use, "pin", pins, path, err));
    BN_TRY(get_number(&t.prefetch_bytes, use, "prefetch", TUNING_MAX_PREFETCH, path, err));
    BN_TRY(get_number(&t.batch_tokens, use, "batch", TUNING_MAX_BATCH, path, err));
    const char *date = "undated";
    BN_TRY(bn_json_str(&date, entry, "date", path, err));
    snprintf(t.date, sizeof t.date, "%.10s", date); /* the day */
    *out = t;
    return BITNET_OK;
}

bitnet_status tuning_look(struct tuning *out, const char *typed, const char *model_path,
                          const char *backend, const char *activations, bitnet_error *err)
{
    char path[TUNING_PATH_BYTES];
    *out = (struct tuning){0};
    if (!tuning_path(path, typed) || (strcmp(typed, "auto") == 0 && !bn_exists(path)))
        return BITNET_OK;
    json_t *file, *key = NULL;
    BN_TRY(tuning_read(&file, path, err));
    bitnet_error unused; /* opening the model will say what is wrong with it */
    const json_t *entry = NULL;
    if (tuning_key(&key, model_path, backend, activations, &unused) == BITNET_OK)
        entry = tuning_find(file, key);
    bitnet_status s = entry ? tuning_values(out, entry, path, err) : BITNET_OK;
    json_decref(key);
    json_decref(file);
    return s;
}

/* ------------------------------------------------------------------ writing */

json_t *tuning_use_json(const struct tuning *t)
{
    json_t *use = json_object();
    if (t->threads) json_object_set_new(use, "threads", json_integer(t->threads));
    if (*t->layout) json_object_set_new(use, "layout", json_string(t->layout));
    if (*t->pin) json_object_set_new(use, "pin", json_string(t->pin));
    if (t->prefetch_bytes) json_object_set_new(use, "prefetch", json_integer(t->prefetch_bytes));
    if (t->batch_tokens) json_object_set_new(use, "batch", json_integer(t->batch_tokens));
    return use;
}

/* The file's entries, less the key's own and the oldest beyond the maximum, and the new one. */
static void replace_entry(json_t *file, const json_t *key, const json_t *entry)
{
    json_t *entries = json_object_get(file, "entries"), *whole = json_deep_copy(key);
    for (size_t i = json_array_size(entries); i-- > 0;)
        if (belongs_to(json_array_get(entries, i), key)) json_array_remove(entries, i);
    while (json_array_size(entries) >= TUNING_MAX_ENTRIES) json_array_remove(entries, 0);
    json_object_update(whole, (json_t *)entry);
    json_array_append_new(entries, whole);
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

bitnet_status tuning_write(const char *path, const json_t *key, const json_t *entry,
                           bitnet_error *err)
{
    json_t *file = NULL;
    if (bn_exists(path)) BN_TRY(tuning_read(&file, path, err));
    else file = json_pack("{s:s, s:[]}", "format", TUNING_FORMAT, "entries");
    replace_entry(file, key, entry);
    char *text = json_dumps(file, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    bitnet_status s = text ? write_text(path, text, err) : bn_fail_nomem(err, 0, "the tuning file");
    free(text);
    json_decref(file);
    return s;
}

void tuning_describe(char *out, size_t n, const struct tuning *t)
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
