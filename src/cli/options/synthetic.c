/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/synthetic.h"

#include "cli/core/command.h"
#include "app/term.h"
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define AT(field) offsetof(struct synth_opts, field)
const struct opt synth_opts_table[] = {
    {.kind = OPT_CHOICE,
     .name = "type",
     .help = "storage of the ternary matrices",
     .offset = AT(type),
     .shown = "i2_s, or as published",
     .choices = "i2_s|tq2_0|tq1_0|iq2_bn|iq1_bn|q1_0|q2_0|pq2_0|ptq1_0"},
    {.kind = OPT_CHOICE,
     .name = "head-type",
     .help = "storage of embedding and output head",
     .offset = AT(head_type),
     .shown = "f16, or as published",
     .choices = "f32|f16|bf16|q8_0|q6_k|q4_0|q4_k"},
    {.kind = OPT_U32,
     .name = "layers",
     .metavar = "N",
     .help = "number of layers, for a smaller model; 0 is the shape's own",
     .offset = AT(layers),
     .initial = "0",
     .min = 0,
     .max = 10000},
    {.kind = OPT_STR,
     .name = "ffn-density",
     .metavar = "LIST",
     .help = "shares of open gates and of nonzero inputs of 'down', as 0.3:0.1,0.4:0.2, stretched "
             "over the layers, or 'trained': those of the embedded model",
     .offset = AT(ffn_density),
     .shown = "chance: 0.5:0.33"},
    {.kind = OPT_FLAG,
     .name = "mtp",
     .help = "add a layer that drafts tokens (models with delta nets)",
     .offset = AT(mtp)},
    {.kind = OPT_END},
};
#undef AT

void synth_opts_apply(bitnet_synth_options *o, const struct synth_opts *c)
{
    o->type = c->type;
    o->head_type = c->head_type;
    o->n_layer = c->layers;
    o->ffn_density = c->ffn_density;
    o->mtp = c->mtp;
}

#define AT(field) offsetof(struct synthetic_opts, field)
const struct opt synthetic_table[] = {
    {.kind = OPT_STR,
     .name = "synthetic",
     .metavar = "SHAPE",
     .help = "use a random-weight model with these dimensions, made in memory; 'bitnet synth "
             "--list' shows them",
     .offset = AT(shape)},
    SEED_OPT("seed of prompts and of the weights of a synthetic model", AT(seed), .initial = "0"),
    {.kind = OPT_END},
};
#undef AT

static int make(struct synthetic_source *s, const struct synthetic_opts *c, const char *command)
{
    int code = model_shape_check(c->shape, command);
    if (code != EXIT_DONE) return code;
    s->fd = memfd_create("bitnet-synthetic", MFD_CLOEXEC);
    if (s->fd < 0) return term_fail_text("cannot make a file in memory: %s", strerror(errno));
    snprintf(s->path, sizeof s->path, "/proc/self/fd/%d", s->fd);
    s->typed = s->path;
    struct term_progress bar = {0};
    bitnet_error err = {0};
    bitnet_synth_options o = {.size = sizeof o};
    synth_opts_apply(&o, &c->model);
    o.seed = c->seed;
    o.overwrite = 1;
    o.progress = term_progress_show;
    o.progress_user = &bar;
    bitnet_status status = bitnet_synth(c->shape, s->path, &o, &err);
    term_progress_end(&bar);
    return status == BITNET_OK ? EXIT_DONE : term_fail(&err);
}

int synthetic_find(struct synthetic_source *out, const struct synthetic_opts *made,
                   const struct model_opts *o, const struct arg_words *words, const char *command)
{
    *out = (struct synthetic_source){.fd = -1};
    int code = model_word(&out->typed, o->model, o->model_typed, words, command);
    if (code != EXIT_DONE) return code;
    const struct synth_opts *m = &made->model;
    bool shaped = m->layers || m->type || m->head_type || m->ffn_density || m->mtp;
    if (!made->shape && shaped)
        return term_usage(
            command, "--layers, --type, --head-type, --ffn-density and --mtp need --synthetic");
    if (!made->shape) return EXIT_DONE;
    if (words->n || o->model_typed)
        return term_usage(command, "give a model or --synthetic, not both");
    return make(out, made, command);
}

void synthetic_end(struct synthetic_source *s)
{
    if (s->fd >= 0) close(s->fd);
}

int synthetic_or_word(bitnet_model **out, const struct synthetic_opts *made, struct model_opts *o,
                      const struct arg_words *words, const char *head, const char *ffn,
                      const char *command)
{
    struct synthetic_source from;
    int code = synthetic_find(&from, made, o, words, command);
    o->cache_read_only = true;
    if (code == EXIT_DONE) code = model_open(out, from.typed, o, head, ffn, command);
    synthetic_end(&from); /* the model holds what it needs of it */
    return code;
}
