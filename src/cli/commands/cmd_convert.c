/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_convert.c: `bitnet convert`: safetensors or GGUF in, GGUF out. The work is the library's;
 * here are the options, the bar, and a summary read back from what was written.
 */
#include "base/clock.h"
#include "cli/core/command.h"
#include "cli/options/backend.h"
#include "cli/options/model_opts.h"
#include "app/adapters.h"
#include "app/term.h"
#include "cli/commands/output_model.h"
#include <stdlib.h>

struct convert_config {
    const char *type, *head_type, *name, *i2s_layout, *layout, *backend, *plan;
    uint32_t threads;
    bool allow_scale_rounding, force, json, packed;
    struct opt_list merge_lora;
    struct model_source from;
};

#define AT(field) offsetof(struct convert_config, field)
static const struct opt table[] = {
    {.kind = OPT_CHOICE,
     .name = "type",
     .help = "storage of the ternary matrices",
     .offset = AT(type),
     .shown = "i2_s; where shapes or scales ask for it iq2_bn, q1_0, tq2_0, pq2_0 or q2_0",
     .choices = "keep|i2_s|tq2_0|tq1_0|iq2_bn|iq1_bn|q1_0|q2_0|pq2_0|ptq1_0",
     .own = true},
    {.kind = OPT_CHOICE,
     .name = "head-type",
     .help = "storage of embedding and output head",
     .offset = AT(head_type),
     .shown = "keep",
     .choices = "keep|f32|f16|bf16|q8_0|q6_k|q4_0|q4_k",
     .own = true},
    {.kind = OPT_STR,
     .name = "name",
     .metavar = "TEXT",
     .help = "the model's name in the new file",
     .offset = AT(name),
     .shown = "as in the input"},
    {.kind = OPT_CHOICE,
     .name = "i2s-layout",
     .help = "layout of I2_S tensors in the input",
     .offset = AT(i2s_layout),
     .initial = "auto",
     .choices = "auto|128|64|rows4",
     .own = true},
    {.kind = OPT_FLAG,
     .name = "allow-scale-rounding",
     .help = "allow scales to be rounded to 16 bits if the type has no more; weights never change",
     .offset = AT(allow_scale_rounding)},
    {.kind = OPT_FLAG,
     .name = "packed",
     .help = "store weights as the kernels of this machine want them: the file starts at once and "
             "processes share it; machines that want another layout repack it",
     .offset = AT(packed)},
    {.kind = OPT_CHOICE,
     .name = "layout",
     .help = "--packed: layout of the weights, as in 'bitnet run'",
     .offset = AT(layout),
     .initial = "auto",
     .choices = "auto|t2|t3|t5|b1|g2|g3|g5",
     .own = true},
    {.kind = OPT_STR,
     .name = "backend",
     .metavar = "NAME",
     .help = "--packed: kernels to pack for, as in 'bitnet run'",
     .offset = AT(backend),
     .initial = "auto",
     .own = true},
    {.kind = OPT_U32,
     .letter = 't',
     .name = "threads",
     .metavar = "N",
     .help = "--packed: threads that will run it; 0 takes all usable cores",
     .offset = AT(threads),
     .initial = "0",
     .min = 0,
     .max = 512,
     .own = true},
    {.kind = OPT_STR,
     .name = "plan",
     .metavar = "FILE",
     .help = "put this plan of 'bitnet calibrate' into OUT, which is then run by it; auto: the one "
             "in IN, if any; off: none",
     .offset = AT(plan),
     .initial = "auto",
     .own = true},
    {.kind = OPT_LIST,
     .name = "merge-lora",
     .metavar = "PATH[:SCALE]",
     .help = "put an adapter (PEFT folder or GGUF) into the weights; only into matrices of floats, "
             "which become f32: what stands beside a ternary one is refused, use it with --lora; "
             "may be repeated",
     .offset = AT(merge_lora)},
    {.kind = OPT_FLAG, .name = "force", .help = "replace OUT if it exists", .offset = AT(force)},
    MODEL_SOURCE_OPTS(AT(from)){
        .kind = OPT_FLAG, .name = "json", .help = "print the summary as JSON", .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {{"Conversion", table, 0}, {NULL, NULL, 0}};
#undef AT

/* Paths and scales of --merge-lora. The paths are the caller's to free. */
static bitnet_status read_merges(char **paths, float *scales, const struct opt_list *typed,
                                 bitnet_error *err)
{
    if (typed->n > BITNET_MAX_ADAPTERS)
        return bn_fail(err, BITNET_E_LIMIT, "%zu adapters to merge; at most %d are possible",
                       (size_t)typed->n, BITNET_MAX_ADAPTERS);
    for (size_t i = 0; i < typed->n; i++) {
        struct adapter_spec spec;
        bitnet_status s = adapter_spec_parse(&spec, typed->items[i], err);
        if (s != BITNET_OK) return s;
        paths[i] = spec.path;
        scales[i] = spec.scale;
    }
    return BITNET_OK;
}

static int run(void *config, const struct arg_words *words)
{
    struct convert_config *c = config;
    if (words->n != 2) return term_usage("convert", "two paths are needed: bitnet convert IN OUT");
    const char *in = words->items[0], *out = words->items[1];
    int code = backend_check(c->backend, "convert");
    if (code == EXIT_DONE) code = output_model_check(out, c->force);
    if (code == EXIT_DONE) code = model_find(&in, &c->from, "convert");
    if (code != EXIT_DONE) return code;
    backend_probe(&c->backend);
    struct term_progress bar = {0};
    bitnet_error err = {0};
    bitnet_convert_options o = {.size = sizeof o};
    if (c->type) o.type = c->type;
    if (c->head_type) o.head_type = c->head_type;
    o.name = c->name;
    o.i2s_layout = c->i2s_layout;
    o.overwrite = c->force;
    o.allow_scale_rounding = c->allow_scale_rounding;
    o.packed = c->packed;
    o.layout = c->layout;
    o.backend = c->backend;
    o.threads = c->threads;
    o.plan = strcmp(c->plan, "auto") == 0 ? NULL : c->plan;
    o.progress = term_progress_show;
    o.progress_user = &bar;
    char *merged[BITNET_MAX_ADAPTERS] = {0};
    float scales[BITNET_MAX_ADAPTERS];
    uint64_t start_ns = bn_now_ns();
    bitnet_status s = read_merges(merged, scales, &c->merge_lora, &err);
    o.adapters = (const char *const *)merged;
    o.adapter_scales = scales;
    o.n_adapters = c->merge_lora.n;
    if (s == BITNET_OK) s = bitnet_convert(model_path_resolve(in), out, &o, &err);
    for (size_t i = 0; i < BITNET_MAX_ADAPTERS; i++) free(merged[i]);
    term_progress_end(&bar);
    if (s != BITNET_OK) return term_fail(&err);
    return output_model_report(out, bn_now_ns() - start_ns, c->json);
}

const struct command cmd_convert = {
    .name = "convert",
    .usage = "IN OUT [options]",
    .about = "\n"
             "IN is a GGUF file, a safetensors file or a Hugging Face folder; OUT is the GGUF file "
             "to write. It\n"
             "appears whole or not at all. Conversions between ternary types are lossless; if a "
             "type cannot hold\n"
             "the input exactly, that is an error.\n"
             "\n"
             "  bitnet convert ./bitnet-b1.58-2B-4T model.gguf\n"
             "  bitnet convert model.gguf small.gguf --type tq1_0 --head-type q6_k\n"
             "  bitnet convert model.gguf packed.gguf --packed\n"
             "  bitnet convert ./model tuned.gguf --merge-lora ./adapter\n",
    .parts = parts,
    .config_bytes = sizeof(struct convert_config),
    .max_words = 2,
    .run = run,
};
