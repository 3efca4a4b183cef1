/* SPDX-License-Identifier: Apache-2.0
 * adapter_config.json, as PEFT writes it. What would change the result and is not done here is refused
 * by its name. */
#include "model/adapter/adapter.h"

#include "base/os/mem.h"
#include "json/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_CONFIG_BYTES = 4 << 20 };

struct bn_peft {
    struct bn_json *json;
    char *path;
    uint32_t r;
    float alpha;
    bool rs; /* alpha / sqrt(r) */
};

static bitnet_status refuse(const struct bn_peft *p, const char *what, bitnet_error *err)
{
    return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: %s", p->path, what);
}

/* Given, and neither null, false, 0 nor empty. */
static bool is_set(const struct bn_peft *p, const char *key)
{
    const struct bn_json *v = bn_json_get(p->json, key);
    if (bn_json_is_string(v)) return bn_json_bytes(v) > 0;
    if (bn_json_is_number(v)) return bn_json_number(v) != 0;
    return bn_json_is_true(v) || bn_json_size(v) > 0;
}

static bitnet_status check_kinds(const struct bn_peft *p, bitnet_error *err)
{
    static const struct {
        const char *key, *why;
    } not_done[] = {
        {"use_dora", "DoRA (use_dora) is not supported; LoRA is"},
        {"use_qalora", "QALoRA (use_qalora) is not supported; LoRA is"},
        {"alora_invocation_tokens", "activated LoRA (alora_invocation_tokens) is not supported"},
        {"modules_to_save", "modules_to_save is not supported: whole matrices are not replaced"},
        {"trainable_token_indices", "trainable_token_indices is not supported"},
        {"target_parameters", "target_parameters is not supported; target_modules is"},
        {"layer_replication", "layer_replication is not supported"},
        {"lora_bias", "biases (lora_bias) are not supported"},
        {"fan_in_fan_out", "fan_in_fan_out is not supported: no model here has such layers"},
        {"ensure_weight_tying", "ensure_weight_tying is not supported"},
        {"arrow_config", "arrow_config is not supported"},
        {"monteclora_config", "monteclora_config is not supported"}};
    const char *type = "", *bias = "none";
    BN_TRY(bn_json_read_str(&type, p->json, "peft_type", p->path, err));
    if (strcmp(type, "LORA") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED, "%s: peft_type '%s' is not supported; LORA is",
                       p->path, type);
    BN_TRY(bn_json_read_str(&bias, p->json, "bias", p->path, err));
    if (strcmp(bias, "none") != 0)
        return bn_fail(err, BITNET_E_UNSUPPORTED,
                       "%s: bias '%s' is not supported; 'none' is: no model here has biases",
                       p->path, bias);
    for (size_t i = 0; i < BN_ARRAY_LEN(not_done); i++)
        if (is_set(p, not_done[i].key)) return refuse(p, not_done[i].why, err);
    return BITNET_OK;
}

/* Some ways to begin training move part of the base model's weights into the adapter: it fits only a
 * base model from which they were taken away. */
static bitnet_status check_init(const struct bn_peft *p, bitnet_error *err)
{
    static const char *const harmless[] = {"gaussian", "eva", "orthogonal"};
    const char *init = bn_json_text(bn_json_get(p->json, "init_lora_weights"));
    for (size_t i = 0; init && i < BN_ARRAY_LEN(harmless); i++)
        if (strcmp(init, harmless[i]) == 0) return BITNET_OK;
    if (!init) return BITNET_OK;
    return bn_fail(
        err, BITNET_E_UNSUPPORTED,
        "%s: init_lora_weights '%s' changes the weights of the base model; convert the "
        "adapter to an ordinary one with PEFT (path_initial_model_for_weight_conversion)",
        p->path, init);
}

static bitnet_status read_all(struct bn_peft *p, bitnet_error *err)
{
    BN_TRY(bn_json_read_file(&p->json, p->path, MAX_CONFIG_BYTES, err));
    if (!bn_json_is_object(p->json))
        return bn_fail(err, BITNET_E_FORMAT, "%s holds no object", p->path);
    p->r = 8; /* PEFT's defaults */
    p->alpha = 8;
    BN_TRY(bn_json_read_u32(&p->r, p->json, "r", p->path, err));
    BN_TRY(bn_json_read_f32(&p->alpha, p->json, "lora_alpha", p->path, err));
    BN_TRY(bn_json_read_bool(&p->rs, p->json, "use_rslora", p->path, err));
    BN_TRY(check_kinds(p, err));
    return check_init(p, err);
}

bitnet_status bn_peft_open(struct bn_peft **out, const char *folder, bitnet_error *err)
{
    static const char name[] = "adapter_config.json";
    *out = NULL;
    struct bn_peft *p = bn_calloc(1, sizeof *p);
    size_t n = strlen(folder) + sizeof name + 1;
    if (p) p->path = bn_calloc(n, 1);
    bitnet_status s = BITNET_OK;
    if (!p || !p->path) s = bn_fail_nomem(err, n, "an adapter's configuration");
    else {
        snprintf(p->path, n, "%s/%s", folder, name);
        s = read_all(p, err);
    }
    if (s != BITNET_OK) bn_peft_close(p);
    else *out = p;
    return s;
}

void bn_peft_close(struct bn_peft *p)
{
    if (!p) return;
    bn_json_free(p->json);
    free(p->path);
    free(p);
}

/* Does a key of a pattern mean this module? It is the end of its name, whole words of it. false and
 * *regex: it is more than a name. */
static bool means(const char *key, const char *module, bool *regex)
{
    char plain[BN_MAX_NAME_BYTES];
    size_t n = 0;
    bool whole = *key == '^';
    for (const char *c = key + whole; *c; c++) {
        if (*c == '$' && !c[1]) break;
        if (*c == '\\' && c[1] == '.') c++;
        else if (strchr("\\*+?[](){}|^$", *c)) *regex = true;
        if (n + 1 == sizeof plain) *regex = true;
        if (*regex) return false;
        plain[n++] = *c;
    }
    plain[n] = 0;
    size_t all = strlen(module);
    if (whole || n >= all) return strcmp(plain, module) == 0;
    return module[all - n - 1] == '.' && strcmp(module + all - n, plain) == 0;
}

/* The first entry of a pattern that means the module; NULL: none does. */
static bitnet_status find_pattern(const struct bn_json **out, const struct bn_peft *p,
                                  const char *pattern, const char *module, bitnet_error *err)
{
    const char *key;
    const struct bn_json *v;
    *out = NULL;
    bn_json_each_member(bn_json_get(p->json, pattern), key, v)
    {
        bool regex = false, found = means(key, module, &regex);
        if (regex)
            return bn_fail(err, BITNET_E_UNSUPPORTED,
                           "%s: the key '%s' of %s is a regular expression; names of modules are "
                           "supported",
                           p->path, key, pattern);
        if (found && !*out) *out = v;
    }
    return BITNET_OK;
}

bitnet_status bn_peft_module(const struct bn_peft *p, const char *module, uint32_t *rank,
                             float *scale, bitnet_error *err)
{
    const struct bn_json *r, *alpha;
    BN_TRY(find_pattern(&r, p, "rank_pattern", module, err));
    BN_TRY(find_pattern(&alpha, p, "alpha_pattern", module, err));
    int64_t n = r ? bn_json_integer(r) : p->r;
    double a = alpha ? bn_json_number(alpha) : (double)p->alpha;
    if (n < 1 || n > BN_ADAPTER_MAX_RANK)
        return bn_fail(err, BITNET_E_LIMIT, "%s: rank %lld of %s; 1 to %d are possible", p->path,
                       (long long)n, module, BN_ADAPTER_MAX_RANK);
    if (!isfinite(a) || !isfinite((float)a))
        return bn_fail(err, BITNET_E_FORMAT, "%s: lora_alpha %g of %s", p->path, a, module);
    *rank = (uint32_t)n;
    *scale = (float)(p->rs ? a / sqrt((double)n) : a / (double)n);
    return BITNET_OK;
}
