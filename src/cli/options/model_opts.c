/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/model_opts.h"

#include "base/machine/cores.h"
#include "base/os/file.h"
#include "base/suggest.h"
#include "cli/core/command.h"
#include "cli/options/backend.h"
#include "cli/ranks/ranks.h"
#include "app/config/folders.h"
#include "app/term.h"
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

bool data_folder(char out[DATA_PATH_BYTES], const char *typed)
{
    char folder[DATA_PATH_BYTES];
    int n = -1;
    if (strcmp(typed, "auto") != 0) n = snprintf(out, DATA_PATH_BYTES, "%s", typed);
    else if (user_folder(folder, sizeof folder, "XDG_DATA_HOME", ".local/share"))
        n = snprintf(out, DATA_PATH_BYTES, "%s/eval", folder);
    return n > 0 && n < DATA_PATH_BYTES;
}

bool cache_folder(char out[CACHE_PATH_BYTES], const char *typed)
{
    if (strcmp(typed, "off") == 0) return false;
    if (strcmp(typed, "auto") == 0)
        return user_folder(out, CACHE_PATH_BYTES, "XDG_CACHE_HOME", ".cache");
    int n = snprintf(out, CACHE_PATH_BYTES, "%s", typed);
    return n > 0 && n < CACHE_PATH_BYTES;
}

#define MODEL_HELP                                                                                 \
    "GGUF file, safetensors file, Hugging Face folder, or the name of a published model ('bitnet " \
    "help pull'); 'embedded' for the model inside this program"

const struct opt model_path_table[] = {
    {.kind = OPT_STR,
     .letter = 'm',
     .name = "model",
     .metavar = "PATH",
     .help = MODEL_HELP,
     .offset = offsetof(struct model_path, model),
     .typed = offsetof(struct model_path, typed)},
    MODEL_SOURCE_OPTS(offsetof(struct model_path, from)){.kind = OPT_END},
};

const struct opt model_opts_table[] = {
    {.kind = OPT_STR,
     .letter = 'm',
     .name = "model",
     .metavar = "PATH",
     .help = MODEL_HELP,
     .offset = offsetof(struct model_opts, model),
     .typed = offsetof(struct model_opts, model_typed)},
    MODEL_SOURCE_OPTS(offsetof(struct model_opts, from)){
        .kind = OPT_STR,
        .name = "backend",
        .metavar = "NAME",
        .help = "best kernels to use: auto, scalar, avx2, ...",
        .offset = offsetof(struct model_opts, backend),
        .initial = "auto"},
    {.kind = OPT_U32,
     .letter = 't',
     .name = "threads",
     .metavar = "N",
     .help = "threads; 0 is one per usable fast core, within the CPU quota",
     .offset = offsetof(struct model_opts, threads),
     .initial = "0",
     .min = 0,
     .max = 1024,
     .given = offsetof(struct model_opts, threads_given)},
    {.kind = OPT_CHOICE,
     .name = "pin",
     .help =
         "bind each thread except the first to a CPU of its own, if there are enough; auto is off",
     .offset = offsetof(struct model_opts, pin),
     .initial = "auto",
     .choices = "auto|on|off",
     .given = offsetof(struct model_opts, pin_given)},
    {.kind = OPT_STR,
     .name = "cpus",
     .metavar = "LIST",
     .help = "run on these CPUs only, as 0,2-3",
     .offset = offsetof(struct model_opts, cpus)},
    {.kind = OPT_CHOICE,
     .name = "numa",
     .help = "several memory nodes: distribute spreads threads and weights over all, isolate stays "
             "on one, replicate keeps a copy of the weights on each",
     .offset = offsetof(struct model_opts, numa),
     .initial = "off",
     .choices = "off|distribute|isolate|replicate"},
    {.kind = OPT_STR,
     .name = "split",
     .metavar = "SHARES",
     .help =
         "started by mpirun: how much of the model each process reads, as 2,1,1, or auto: by how "
         "fast each reads memory; without it, equal parts",
     .offset = offsetof(struct model_opts, split)},
    {.kind = OPT_CHOICE,
     .name = "split-outputs",
     .help =
         "started by mpirun: whole: each process reads the output matrices of a layer whole, and "
         "waits for the others twice in it; split: four times; auto: what is likely to be faster",
     .offset = offsetof(struct model_opts, outputs),
     .initial = "auto",
     .choices = "auto|split|whole"},
    {.kind = OPT_CHOICE,
     .name = "activations",
     .help = "input of linear layers; auto: as the model was trained, int16 if trained with floats",
     .offset = offsetof(struct model_opts, activations),
     .initial = "auto",
     .choices = "auto|int16|int8|f32"},
    {.kind = OPT_STR,
     .name = "plan",
     .metavar = "FILE",
     .help = "compute by this plan of 'bitnet calibrate'; auto: the one in the model's file, if "
             "any; off: none; other options count more than a plan",
     .offset = offsetof(struct model_opts, plan),
     .initial = "auto"},
    {.kind = OPT_CHOICE,
     .name = "i2s-layout",
     .help = "layout of I2_S tensors in the file, if it is known to differ",
     .offset = offsetof(struct model_opts, i2s_layout),
     .initial = "auto",
     .choices = "auto|128|64|rows4"},
    {.kind = OPT_CHOICE,
     .name = "layout",
     .help = "layout of weights in memory; auto: b1 for binary weights; for large models t5 with "
             "AVX-512, t3 with AVX2 and 2 threads or more, otherwise t2; g2, g3 and g5 for models "
             "trained with float activations",
     .offset = offsetof(struct model_opts, layout),
     .initial = "auto",
     .choices = "auto|t2|t3|t5|b1|g2|g3|g5",
     .given = offsetof(struct model_opts, layout_given)},
    {.kind = OPT_CHOICE,
     .name = "hugepages",
     .help = "page size of weights and caches: transparent huge pages (auto), small pages only, or "
             "reserved pages of 2 MiB or 1 GiB, with thp if these run out",
     .offset = offsetof(struct model_opts, hugepages),
     .initial = "auto",
     .choices = "auto|off|thp|2m|1g"},
    {.kind = OPT_FLAG,
     .name = "mlock",
     .help = "lock weights and caches in memory; an error if that is not allowed",
     .offset = offsetof(struct model_opts, mlock)},
    {.kind = OPT_FLAG,
     .name = "no-mmap",
     .help = "read the model's file into memory instead of mapping it",
     .offset = offsetof(struct model_opts, no_mmap)},
    {.kind = OPT_STR,
     .name = "cache",
     .metavar = "DIR",
     .help = "folder for packed copies of large models, which make the next start fast; 'off': "
             "none; auto: bitnet in $XDG_CACHE_HOME or ~/.cache",
     .offset = offsetof(struct model_opts, cache),
     .initial = "auto"},
    {.kind = OPT_FLAG,
     .name = "no-cache",
     .help = "the same as --cache off",
     .offset = offsetof(struct model_opts, no_cache)},
    {.kind = OPT_SIZE,
     .name = "cache-size",
     .metavar = "BYTES",
     .help = "size limit of all copies; the least recently used go first; auto is 20G",
     .offset = offsetof(struct model_opts, cache_max_bytes),
     .initial = "auto"},
    {.kind = OPT_SIZE,
     .name = "cache-from",
     .metavar = "BYTES",
     .help = "do not keep copies with fewer bytes; auto is 256M",
     .offset = offsetof(struct model_opts, cache_min_bytes),
     .initial = "auto"},
    {.kind = OPT_FLAG,
     .name = "verify",
     .help = "verify packed weights before the first token, not in the background",
     .offset = offsetof(struct model_opts, verify)},
    {.kind = OPT_U32,
     .name = "prefetch-distance",
     .metavar = "BYTES",
     .help = "how far ahead to prefetch weights; 0 is 4096, 1 is no prefetching",
     .offset = offsetof(struct model_opts, prefetch_bytes),
     .initial = "0",
     .min = 0,
     .max = 64 << 10,
     .given = offsetof(struct model_opts, prefetch_given)},
    {.kind = OPT_STR,
     .name = "tuning",
     .metavar = "FILE",
     .help = "tuning file: 'bench --autotune' writes it, and options that are not given are looked "
             "up there; 'off': none; auto: bitnet/tuning.json in $XDG_CONFIG_HOME or ~/.config",
     .offset = offsetof(struct model_opts, tuning),
     .initial = "auto"},
    {.kind = OPT_END},
};

const struct opt prompt_batch_table[] = {
    {.kind = OPT_U32,
     .letter = 'b',
     .name = "batch-size",
     .metavar = "N",
     .help = "tokens of a prompt computed together; 0 is the tuned number, otherwise 512",
     .offset = offsetof(struct engine_opts, batch_tokens),
     .initial = "0",
     .min = 0,
     .max = 1 << 16},
    {.kind = OPT_END},
};

const struct opt engine_opts_table[] = {
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx-size",
     .metavar = "N",
     .help = "context size in tokens, prompt and answer together; 0 is the model's, at most 4096",
     .offset = offsetof(struct engine_opts, ctx_tokens),
     .initial = "0",
     .aliases = "ctx",
     .min = 0,
     .max = 1 << 24},
    MODEL_KV_OPTS(offsetof(struct engine_opts, kv), "f16"),
    {.kind = OPT_CHOICE,
     .name = "head",
     .help = "output head: exact computes every logit; screened only those that can win, with the "
             "same tokens; int8 every logit from a copy rounded to 8 bits, which changes them "
             "slightly; auto screens large heads",
     .offset = offsetof(struct engine_opts, head),
     .initial = "auto",
     .choices = "auto|exact|screened|int8"},
    {.kind = OPT_CHOICE,
     .name = "ffn",
     .help = "feed-forward layers of a single token: dense computes everything; skip leaves out "
             "what is multiplied by zero, with the same results (ReLU^2 models; takes memory for a "
             "second copy); auto skips in large models where it pays",
     .offset = offsetof(struct engine_opts, ffn),
     .initial = "auto",
     .choices = "auto|dense|skip"},
    {.kind = OPT_END},
};

const struct opt draft_table[] = {
    {.kind = OPT_CHOICE,
     .name = "speculation",
     .help = "draft tokens from the text so far and verify them in one step; auto: where it pays",
     .offset = offsetof(struct engine_opts, speculation),
     .initial = "auto",
     .choices = "auto|on|off"},
    {.kind = OPT_U32,
     .name = "draft-tokens",
     .metavar = "N",
     .help = "draft tokens per step; 0 is 4",
     .offset = offsetof(struct engine_opts, draft_tokens),
     .initial = "0",
     .min = 0,
     .max = 8},
    {.kind = OPT_END},
};

const struct opt state_table[] = {
    {.kind = OPT_SIZE,
     .name = "state-cache",
     .metavar = "BYTES",
     .help = "memory for saved recurrent states (qwen35), from which texts can be resumed; 512M, "
             "4G; auto is an eighth of the available memory, off reads such texts again",
     .offset = offsetof(struct engine_opts, state_cache_bytes),
     .initial = "auto"},
    {.kind = OPT_END},
};

const struct opt warmup_table[] = {
    {.kind = OPT_FLAG,
     .name = "warm-up",
     .help = "touch all memory before the first token, and keep the model's file in memory",
     .offset = offsetof(struct engine_opts, warmup)},
    {.kind = OPT_END},
};

const struct opt adapter_opts_table[] = {
    {.kind = OPT_LIST,
     .name = "lora",
     .metavar = "[NAME=]PATH[:SCALE]",
     .help = "adapter to add, a PEFT folder or a GGUF; may be repeated, and the parts add up",
     .offset = offsetof(struct adapter_opts, lora)},
    {.kind = OPT_END},
};

const struct opt named_adapters_table[] = {
    {.kind = OPT_LIST,
     .name = "lora",
     .metavar = "[NAME=]PATH[:SCALE]",
     .help =
         "adapter, a PEFT folder or a GGUF: with a NAME for requests whose model it is, without "
         "one for all requests, with a SCALE for both; may be repeated",
     .offset = offsetof(struct adapter_opts, lora)},
    {.kind = OPT_END},
};

const struct opt seqs_opts_table[] = {
    {.kind = OPT_U32,
     .letter = 'j',
     .name = "max-num-seqs",
     .metavar = "N",
     .help = "sequences computed together: answers at a time",
     .offset = offsetof(struct seqs_opts, max_seqs),
     .initial = "8",
     .aliases = "parallel max-batch-size",
     .min = 1,
     .max = 1024},
    {.kind = OPT_U32,
     .letter = 'b',
     .name = "batch-size",
     .metavar = "N",
     .help = "tokens computed together in one step; 0 is the tuned number, otherwise 512",
     .offset = offsetof(struct seqs_opts, batch_tokens),
     .initial = "0",
     .aliases = "max-num-batched-tokens",
     .min = 0,
     .max = 8192},
    {.kind = OPT_U32,
     .name = "kv-tokens",
     .metavar = "N",
     .help = "capacity of the KV cache in tokens, all sequences together; 0 is enough for all at "
             "full length",
     .offset = offsetof(struct seqs_opts, kv_tokens),
     .initial = "0",
     .min = 0,
     .max = 1 << 30},
    {.kind = OPT_CHOICE,
     .name = "prefix-cache",
     .help = "reuse common prefixes that are in the KV cache",
     .offset = offsetof(struct seqs_opts, prefix_cache),
     .initial = "auto",
     .choices = "auto|on|off"},
    {.kind = OPT_END},
};

int model_word(const char **typed, const char *from_option, bool option_typed,
               const struct arg_words *words, const char *command)
{
    *typed = words->n ? words->items[0] : from_option;
    if (option_typed && words->n)
        return term_usage(command, "give the model once, as a word or with --model");
    return EXIT_DONE;
}

int model_shape_check(const char *typed, const char *command)
{
    struct bn_suggest s;
    bn_suggest_start(&s, typed);
    const char *name;
    for (size_t i = 0; (name = bitnet_synth_shape(i, NULL)); i++) {
        if (strcmp(name, typed) == 0) return EXIT_DONE;
        bn_suggest_offer(&s, name);
    }
    if (s.best)
        return term_usage(command, "there is no shape '%s'; did you mean '%s'?", typed, s.best);
    return term_usage(command, "there is no shape '%s'; 'bitnet synth --list' shows them", typed);
}

const char *model_path_resolve(const char *typed)
{
    if (!typed || !*typed || strcmp(typed, "-") == 0 || strcmp(typed, "embedded") == 0) return NULL;
    return typed;
}

const char *model_path_name(const char *path) { return path ? path : "the embedded model"; }

bool model_path_looks_like(const char *word)
{
    if (!*word) return false;
    /* a slash alone is no proof: "now and/or later" is a prompt */
    bool path = strchr(word, '/') && !strpbrk(word, " \t\n");
    return !model_path_resolve(word) || path || bn_ends_with(word, ".gguf") ||
           bn_ends_with(word, ".safetensors") || bn_exists(word) || model_source_is_name(word);
}

bool model_name_looks_like(const char *word)
{
    static const char *const families[] = {"bitcpm",  "bitnet",  "bonsai",  "deepseek",  "falcon",
                                           "gemma",   "gpt-",    "hf:",     "llama",     "maple",
                                           "minicpm", "mistral", "mixtral", "olmo",      "phi",
                                           "qwen",    "smollm",  "ternary", "tinyllama", "trilm"};
    if (strpbrk(word, " \t\n") || !word[strcspn(word, "0123456789:-")]) return false;
    for (size_t i = 0; i < BN_ARRAY_LEN(families); i++)
        if (strncasecmp(word, families[i], strlen(families[i])) == 0) return true;
    return false;
}

int model_cpus_apply(const char *list, const char *command)
{
    cpu_set_t set;
    if (!list) return EXIT_DONE;
    if (!bn_cpus_parse(&set, list))
        return term_usage(command, "--cpus expects a list such as 0,2-3, not '%s'", list);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        return term_fail_text("cannot run on the CPUs %s: %s", list,
                              errno == EINVAL ? "none of them is there and may be used; "
                                                "'bitnet doctor' lists those that may"
                                              : strerror(errno));
    return EXIT_DONE;
}

static int open_with(bitnet_model **out, const char *typed, bitnet_model_options *mo)
{
    struct term_progress bar = {0};
    bitnet_error err = {0};
    mo->progress = term_progress_show;
    mo->progress_user = &bar;
    bitnet_status s =
        bitnet_model_open_ranked(out, model_path_resolve(typed), mo, ranks_here(), &err);
    term_progress_end(&bar);
    if (s != BITNET_OK) return term_fail(&err);
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(*out, &info);
    if (info.note && *info.note) term_note(info.note);
    return EXIT_DONE;
}

/* The batch is the engine's: model_engine_options takes it where none was given. */
static void take_tuning(struct model_opts *o, const char *path, bool tell)
{
    char text[128], note[sizeof(bitnet_error) + 64];
    struct autotune_values *t = &o->tuned;
    bitnet_error err;
    if (autotune_file_look(t, o->tuning, path, o->backend, o->activations, &err) != BITNET_OK) {
        snprintf(note, sizeof note, "%s; nothing is taken from it", err.text);
        if (tell) term_note(note);
        return;
    }
    /* found together: one without the other may be worse than the default */
    if (o->threads_given || o->layout_given) t->threads = *t->layout = 0;
    if (o->pin_given) *t->pin = 0;
    if (o->prefetch_given) t->prefetch_bytes = 0;
    if (t->threads) o->threads = t->threads;
    if (*t->layout) o->layout = t->layout;
    if (*t->pin) o->pin = t->pin;
    if (t->prefetch_bytes) o->prefetch_bytes = t->prefetch_bytes;
    if (!t->threads && !*t->layout && !*t->pin && !t->prefetch_bytes && !t->batch_tokens) return;
    autotune_file_describe(text, sizeof text, t);
    snprintf(note, sizeof note,
             "tuned for this machine: %s (bench --autotune, %s); options count more, --tuning off "
             "ignores it",
             text, t->date);
    if (tell) term_note(note);
}

void model_options(bitnet_model_options *out, const struct model_opts *o, const char *head,
                   const char *ffn)
{
    *out = (bitnet_model_options){.size = sizeof *out};
    out->threads = o->threads;
    out->backend = o->backend;
    out->activations = o->activations;
    out->i2s_layout = o->i2s_layout;
    out->layout = o->layout;
    out->hugepages = o->hugepages;
    out->mlock = o->mlock;
    out->mmap = o->no_mmap ? "off" : "auto";
    /* the option says 1 for off */
    out->prefetch_bytes = o->prefetch_bytes == 1 ? BITNET_OFF : (int32_t)o->prefetch_bytes;
    out->numa = o->numa;
    out->verify = o->verify;
    out->plan = strcmp(o->plan, "auto") == 0 ? NULL : o->plan;
    out->head = head;
    out->ffn = ffn;
}

static void options_with_cache(bitnet_model_options *mo, char folder[CACHE_PATH_BYTES],
                               const struct model_opts *o, const char *head, const char *ffn)
{
    model_options(mo, o, head, ffn);
    if (o->no_cache || !cache_folder(folder, o->cache)) return;
    mo->cache = folder;
    mo->cache_read_only = o->cache_read_only;
    mo->cache_min_bytes = o->cache_min_bytes;
    mo->cache_max_bytes = o->cache_max_bytes;
}

int model_open(bitnet_model **out, const char *typed, struct model_opts *o, const char *head,
               const char *ffn, const char *command)
{
    *out = NULL;
    int code = backend_check(o->backend, command);
    if (code == EXIT_DONE) code = model_cpus_apply(o->cpus, command);
    if (code == EXIT_DONE) code = model_find(&typed, &o->from, command);
    if (code != EXIT_DONE) return code;
    backend_probe(&o->backend);
    take_tuning(o, model_path_resolve(typed), true);
    bitnet_model_options mo;
    char folder[CACHE_PATH_BYTES];
    options_with_cache(&mo, folder, o, head, ffn);
    return open_with(out, typed, &mo);
}

bitnet_status model_open_quietly(bitnet_model **out, const char *typed, struct model_opts *o,
                                 const char *head, const char *ffn, bitnet_progress_fn progress,
                                 void *user, bitnet_error *err)
{
    bitnet_model_options mo;
    char folder[CACHE_PATH_BYTES];
    take_tuning(o, model_path_resolve(typed), false);
    options_with_cache(&mo, folder, o, head, ffn);
    mo.progress = progress;
    mo.progress_user = user;
    return bitnet_model_open(out, model_path_resolve(typed), &mo, err);
}

int model_open_vocab(bitnet_model **out, struct model_path *path, const char *command)
{
    *out = NULL;
    int code = model_find(&path->model, &path->from, command);
    if (code != EXIT_DONE) return code;
    bitnet_model_options mo = {.size = sizeof mo};
    mo.vocab_only = 1;
    return open_with(out, path->model, &mo);
}

/* One of MODEL_KV_CHOICES; AUTO for "auto". */
static bitnet_kv_type kv_type(const char *choice)
{
    static const struct {
        const char *name;
        bitnet_kv_type type;
    } others[] = {{"fp8", BITNET_KV_FP8_E4M3}, {"q8_0", BITNET_KV_INT8}, {"q4_0", BITNET_KV_INT4}};
    const char *name;
    for (size_t i = 0; i < BN_ARRAY_LEN(others); i++)
        if (strcmp(choice, others[i].name) == 0) return others[i].type;
    for (int t = BITNET_KV_AUTO + 1; (name = bitnet_kv_type_name((bitnet_kv_type)t)); t++)
        if (strcmp(choice, name) == 0) return (bitnet_kv_type)t;
    return BITNET_KV_AUTO;
}

void model_kv_types(bitnet_engine_options *out, const struct kv_opts *kv)
{
    out->kv_type = kv->int2 ? BITNET_KV_INT2 : kv_type(kv->keys);
    out->kv_type_v = kv_type(kv->values);
    out->state_type = strcmp(kv->states, "auto") == 0 ? NULL : kv->states;
}

void model_engine_options(bitnet_engine_options *out, const struct model_opts *m,
                          const struct engine_opts *e)
{
    *out = (bitnet_engine_options){.size = sizeof *out};
    out->threads = m->threads;
    out->pin = m->pin;
    out->ctx_tokens = e->ctx_tokens;
    out->max_batch_tokens = e->batch_tokens ? e->batch_tokens : m->tuned.batch_tokens;
    model_kv_types(out, &e->kv);
    out->head = e->head;
    out->ffn = e->ffn;
    out->draft = e->speculation;
    out->draft_tokens = e->draft_tokens;
    out->state_cache_bytes = e->state_cache_bytes == 1
                                 ? BITNET_OFF
                                 : (int64_t)bn_min_size(e->state_cache_bytes, INT64_MAX);
    out->max_seqs = 1;
}

bitnet_status model_engine_open(bitnet_engine **out, const bitnet_model *m,
                                const bitnet_engine_options *o, bool warmup, bitnet_error *err)
{
    bitnet_status s = bitnet_engine_open(out, m, o, err);
    if (s == BITNET_OK && warmup) s = bitnet_engine_warmup(*out, err);
    if (s != BITNET_OK) {
        bitnet_engine_close(*out);
        *out = NULL;
    }
    return s;
}

bitnet_status model_adapted_open(bitnet_engine **out, struct adapters *adapters,
                                 const bitnet_model *m, const bitnet_engine_options *o,
                                 const struct adapter_opts *typed, bool warmup, bitnet_error *err)
{
    *out = NULL;
    BN_TRY(adapters_open(adapters, m, typed->lora.items, typed->lora.n, err));
    BN_TRY(model_engine_open(out, m, o, warmup, err));
    bitnet_status s = adapters_apply(adapters, *out, typed->by_name, err);
    if (s != BITNET_OK) {
        bitnet_engine_close(*out);
        *out = NULL;
    }
    return s;
}

void model_seqs_options(bitnet_engine_options *out, const struct seqs_opts *s)
{
    out->max_seqs = s->max_seqs;
    if (s->batch_tokens) out->max_batch_tokens = s->batch_tokens;
    out->kv_tokens = s->kv_tokens;
    out->prefix_cache = s->prefix_cache;
}
