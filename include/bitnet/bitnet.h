/* SPDX-License-Identifier: Apache-2.0
 *
 * bitnet.h: the whole public interface of libbitnet.
 *
 * A program that generates text:
 *
 *     #include <bitnet/bitnet.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         bitnet_error err = {0};
 *         bitnet_model *model = NULL;
 *         bitnet_engine *engine = NULL;
 *         bitnet_request ask;
 *         bitnet_event ev = {.size = sizeof ev};
 *         int32_t ids[64];
 *         size_t n = 64;
 *         uint64_t id;
 *
 *         bitnet_request_init(&ask, sizeof ask);
 *         if (bitnet_model_open(&model, NULL, NULL, &err) == BITNET_OK &&
 *             bitnet_engine_open(&engine, model, NULL, &err) == BITNET_OK &&
 *             bitnet_encode(model, "Once upon a time", 16, BITNET_TOK_BOS, ids, &n, &err) ==
 *                 BITNET_OK) {
 *             ask.tokens = ids, ask.n_tokens = n, ask.max_new_tokens = 60;
 *             bitnet_submit(engine, &ask, &id, &err);
 *             while (n = 1, bitnet_step(engine, &ev, &n, &err) == BITNET_OK && n > 0)
 *                 fwrite(ev.text, 1, ev.text_bytes, stdout);
 *         }
 *         if (err.status != BITNET_OK) fprintf(stderr, "%s\n", err.text);
 *         bitnet_engine_close(engine);
 *         bitnet_model_close(model);
 *         return err.status != BITNET_OK;
 *     }
 *
 * A *model* is what a file holds: weights and tokenizer. It is immutable once open and may be shared
 * by any number of threads. An *engine* is a pool of threads, a KV cache and a scheduler over one
 * model. Its caller drives it: submits requests, then calls bitnet_step() until the events say that
 * they are done. Nothing happens behind the caller's back: no hidden control threads, no output, no
 * global state, no process exit. After fork() what was open belongs to the parent: in the child engines
 * refuse to work (BITNET_E_STATE) and can be closed, and a new one may be opened over the model.
 *
 * Conventions
 *  - Outputs come first, inputs next, options after them, the error last. `err` may be NULL.
 *  - Options may be NULL: all defaults. A number that is 0 and a string that is NULL mean "choose for
 *    me". What can be switched off is off with the string "off" or the number BITNET_OFF. Flags are 0
 *    (the default) or 1.
 *  - A buffer with its length as `size_t *n`: room on entry, need on return. If it is too small,
 *    the call returns BITNET_E_LIMIT, writes nothing beyond the room and sets *n to the need; so a
 *    first call with *n = 0 asks for the size.
 *  - Strings are UTF-8. Pointers returned are borrowed until the object they came from is closed,
 *    unless said otherwise.
 *  - The same request gives the same bits on every CPU, with every number of threads and in any
 *    company of other requests (docs/inside/numerics.md).
 *
 * Sizes. Structs that may grow start with `size`, which the caller sets before every call:
 *     bitnet_engine_options o = {.size = sizeof o};
 * Later versions add members at the end only, or in place of words called `reserved`. The library
 * neither reads nor writes beyond `size`, so a program built with this header runs with every later
 * library of the same soname:
 *  - Input: members behind `size` take their defaults.
 *  - Output: members behind `size` are not written.
 *  - A size smaller than that of the first version, 0 above all, or of 64 KiB and more: BITNET_E_ARG,
 *    or 0 from functions that return an int.
 *  - A size larger than the library knows (the program is newer): what the library does not know must
 *    be 0 on input, else BITNET_E_UNSUPPORTED, and is set to 0 on output.
 *  - `reserved` words must be 0 on input, and are 0 on output.
 *  - In an array of such structs the size of the first counts for all.
 * Six small structs have no size and never change: bitnet_error, bitnet_message, bitnet_logit_bias,
 * bitnet_logprob, bitnet_embed_input and bitnet_score_input.
 */
#ifndef BITNET_H
#define BITNET_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BITNET_API __attribute__((visibility("default")))
#else
#define BITNET_API
#endif

#define BITNET_VERSION_MAJOR 0
#define BITNET_VERSION_MINOR 1
#define BITNET_VERSION_PATCH 0
/* Of the library in use, "0.1.0"; a program may have been built with the header of another. */
BITNET_API const char *bitnet_version(void);

#define BITNET_OFF (-1) /* for numbers that say so */

/* ================================================================== generating text */

typedef enum bitnet_status {
    BITNET_OK = 0,
    BITNET_E_ARG = 1,         /* the caller's argument is wrong                            */
    BITNET_E_NOMEM = 2,       /* out of memory                                             */
    BITNET_E_IO = 3,          /* a file could not be read or written                       */
    BITNET_E_FORMAT = 4,      /* a file is damaged or contradicts itself                   */
    BITNET_E_UNSUPPORTED = 5, /* a file or option asks for something this library lacks    */
    BITNET_E_LIMIT = 6,       /* a stated maximum was exceeded, or a buffer is too small   */
    BITNET_E_STATE = 7,       /* not possible now                                          */
    BITNET_E_CANCELLED = 8,   /* stopped on request                                        */
    BITNET_E_INTERNAL = 9     /* a check inside the library failed: please report          */
} bitnet_status;
BITNET_API const char *bitnet_status_name(bitnet_status s);

/* The caller's memory; one sentence that names the thing and the number. */
typedef struct bitnet_error {
    bitnet_status status;
    char text[508];
} bitnet_error;

typedef struct bitnet_model bitnet_model;
typedef struct bitnet_engine bitnet_engine;
typedef struct bitnet_model_options bitnet_model_options;   /* below; NULL: the defaults */
typedef struct bitnet_engine_options bitnet_engine_options; /* below; NULL: the defaults */

/* path: a .gguf file, a .safetensors file or a Hugging Face folder. NULL or "": the embedded
 * model. */
BITNET_API bitnet_status bitnet_model_open(bitnet_model **out, const char *path,
                                           const bitnet_model_options *o, bitnet_error *err);
BITNET_API void bitnet_model_close(bitnet_model *m); /* NULL is fine */

enum {
    BITNET_TOK_BOS = 1u << 0,     /* encode: begin with the beginning-of-text token, if any     */
    BITNET_TOK_SPECIAL = 1u << 1, /* encode: recognise special tokens; decode: show them        */
    BITNET_TOK_BOS_AUTO = 1u << 2 /* encode: begin with it if the model asks for it             */
};
BITNET_API bitnet_status bitnet_encode(const bitnet_model *m, const char *utf8, size_t len,
                                       uint32_t flags, int32_t *tokens, size_t *n,
                                       bitnet_error *err);
/* Raw bytes, not 0-terminated; a token may hold part of a character. */
BITNET_API bitnet_status bitnet_decode(const bitnet_model *m, const int32_t *tokens,
                                       size_t n_tokens, uint32_t flags, char *out, size_t *n,
                                       bitnet_error *err);

/* Reserves all memory that the engine will use. The model must outlive the engine. */
BITNET_API bitnet_status bitnet_engine_open(bitnet_engine **out, const bitnet_model *m,
                                            const bitnet_engine_options *o, bitnet_error *err);
BITNET_API void bitnet_engine_close(bitnet_engine *e); /* NULL is fine */

typedef struct bitnet_logit_bias {
    int32_t token;
    float bias; /* added to its logit; -INFINITY forbids it */
} bitnet_logit_bias;

/* How a token is chosen. Each step works on what the ones before have left: bias; penalties
 * (repetition, presence and frequency, DRY); what a constraint allows; top-n-sigma; top-k; typical;
 * top-p; min-p; temperature and the draw. docs/use/sampling.md has the formulas. A step is off at
 * the value that changes nothing: 1 for top_p, typical_p and repetition_penalty, 0 for the others. */
typedef struct bitnet_sampling {
    size_t size;
    float temperature; /* 0: greedy                                   */
    float top_p;
    float min_p;
    uint32_t top_k;
    uint64_t seed; /* same seed, same text                        */
    float typical_p;
    float top_n_sigma; /* keeps logits within so many standard deviations of the best */
    uint32_t
        adaptive; /* 1: top-k and top-p both of the whole distribution, the smaller set counts */
    float repetition_penalty;                  /* of prompt and new tokens */
    float presence_penalty, frequency_penalty; /* of new tokens */
    uint32_t penalty_last_n;                   /* tokens they look back on; 0: all */
    float dry_multiplier;
    float dry_base;              /* 0: 1.75 */
    uint32_t dry_allowed_length; /* repetitions shorter than this are free; 0: 2 */
    uint32_t dry_last_n;         /* tokens it looks back on; 0: all */
    uint32_t reserved_word;
    /* strings no repetition goes across; copied. NULL: "\n", ":", "\"" and "*" */
    const char *const *dry_breakers;
    size_t n_dry_breakers;
    const bitnet_logit_bias *logit_bias; /* copied; several of one token add up */
    size_t n_logit_bias;
    uint64_t reserved[8];
} bitnet_sampling;
/* Sets the size, and temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 0, the rest off. */
BITNET_API void bitnet_sampling_init(bitnet_sampling *s, size_t size);

/* Adapters (LoRA) beside a model's weights, which they leave alone: docs/use/adapters.md. */
typedef struct bitnet_adapter bitnet_adapter;

/* path: a PEFT folder (adapter_config.json, adapter_model.safetensors) or a GGUF adapter. It is copied
 * into memory; the model must outlive it. */
BITNET_API bitnet_status bitnet_adapter_open(bitnet_adapter **out, const bitnet_model *m,
                                             const char *path, bitnet_error *err);
/* At any time and from any thread: requests that were submitted with it keep it until they end. NULL is
 * fine. */
BITNET_API void bitnet_adapter_close(bitnet_adapter *a);

typedef struct bitnet_adapter_info {
    size_t size;
    const char *path;
    const char *format;  /* "PEFT", "GGUF" */
    uint32_t rank_max;   /* the largest rank of its pairs */
    uint32_t n_matrices; /* of the model, beside which it has a pair */
    uint64_t n_params;
    uint64_t bytes; /* in memory */
} bitnet_adapter_info;
BITNET_API bitnet_status bitnet_adapter_get_info(const bitnet_adapter *a,
                                                 bitnet_adapter_info *info);

enum { BITNET_MAX_ADAPTERS = 8 }; /* of one request */
typedef struct bitnet_adapter_use {
    const bitnet_adapter *adapter;
    float scale; /* on top of the adapter's own; 1 as it was trained, 0 leaves it out */
    uint32_t reserved_word;
} bitnet_adapter_use;

/* What requests use that name no adapters of their own, and everything else that is computed: evaluation,
 * embeddings, scores. Requests that are there already keep theirs; sequences of bitnet_eval are to be
 * reset. Copied; n 0: none. The first adapters take memory for their part of a batch. */
BITNET_API bitnet_status bitnet_engine_set_adapters(bitnet_engine *e,
                                                    const bitnet_adapter_use *uses, size_t n,
                                                    bitnet_error *err);

typedef struct bitnet_request {
    size_t size;
    const int32_t *tokens; /* the whole prompt; copied */
    size_t n_tokens;
    uint32_t max_new_tokens; /* 0: as many as fit the context and the KV cache */
    uint32_t
        n_choices; /* independent continuations of the prompt; 0: 1. Choice i draws with seed + i */
    bitnet_sampling sampling;
    const char *const *stop; /* stop strings; copied */
    size_t n_stop;
    /* a constraint that the text must match: GBNF text, or a JSON Schema, or any JSON object (at most
     * one of them). The text is brought to its end within max_new_tokens and the context; a
     * constraint whose shortest text may not fit is refused (BITNET_E_LIMIT). docs/use/constrained.md */
    const char *grammar, *json_schema;
    uint32_t json_object;
    uint32_t ignore_end;      /* 1: end-of-text tokens do not end a choice */
    uint32_t show_special;    /* 1: special tokens appear in the text        */
    uint32_t logprobs;        /* 1: events carry log-probabilities           */
    uint32_t n_top_logprobs;  /* with logprobs: so many of the likeliest, at most 20 */
    uint32_t timeout_ms;      /* from submit on; 0: none                     */
    const char *prefix_cache; /* "auto" (NULL); "off": neither read nor filled */
    /* 1: events carry log-probabilities of the prompt's own tokens (`scored`), and nothing of it is taken
     * from the prefix cache. The first such request takes memory for logits of up to 64 tokens. */
    uint32_t prompt_logprobs;
    uint32_t n_top_prompt_logprobs; /* with prompt_logprobs: so many of the likeliest, at most 20 */
    uint32_t prompt_only; /* 1: no token is generated; a choice ends (LENGTH) when it is read */
    /* Who comes first where not all fit. The smaller priority, whoever it belongs to; among equals users
     * share the engine by tokens, by weight, and of one user's requests the older comes first. When others
     * have had less, a choice gives way for a while and goes on later; its tokens are the same. */
    int32_t priority;
    /* adapters, added in this order; copied. NULL: those of bitnet_engine_set_adapters. n_adapters 0 with
     * a list: none */
    const bitnet_adapter_use *adapters;
    size_t n_adapters;
    const int32_t *stop_tokens; /* tokens that end a choice (STOP), at most 64; copied */
    size_t n_stop_tokens;
    /* so many tokens are drawn before one that ends the text, or a stop token, may be. A constraint that
     * can only end then ends the text all the same; stop strings do not wait */
    uint32_t min_new_tokens;
    uint32_t show_stop; /* 1: the stop string that ends a choice is part of its text */
    uint64_t user; /* any number that stands for whose request it is; 0: nobody's in particular */
    uint32_t user_weight; /* 0: 1; at most 1,000,000. That of the user's last request counts */
    /* with logprobs: 1: they are those of the distribution that a token was drawn from, after all sampling
     * options and the constraint, instead of the model's own; `top` has only tokens that were possible */
    uint32_t drawn_logprobs;
} bitnet_request;
/* Sets the size and default sampling; everything else is 0. */
BITNET_API void bitnet_request_init(bitnet_request *r, size_t size);

/* Compiles the request's constraint, if it has one, and keeps it, so that bitnet_submit finds it: of a
 * large schema it takes milliseconds. Any thread may call it at any time while the engine is open, also
 * during bitnet_step. An engine keeps the last 64 constraints, by what they say; requests share them. */
BITNET_API bitnet_status bitnet_prepare(bitnet_engine *e, const bitnet_request *r,
                                        bitnet_error *err);
/* Takes all memory that the request will need. Requests that the KV cache could not hold even alone
 * are refused. */
BITNET_API bitnet_status bitnet_submit(bitnet_engine *e, const bitnet_request *r, uint64_t *id,
                                       bitnet_error *err);
/* All its choices end with the next step that is computed. BITNET_E_ARG: there is no such request (any
 * more). */
BITNET_API bitnet_status bitnet_cancel(bitnet_engine *e, uint64_t id);

typedef enum bitnet_finish {
    BITNET_FINISH_NONE = 0,
    BITNET_FINISH_END = 1,    /* the model ended it, or its constraint */
    BITNET_FINISH_STOP = 2,   /* a stop string appeared           */
    BITNET_FINISH_LENGTH = 3, /* max_new_tokens or the context    */
    BITNET_FINISH_CANCELLED = 4,
    BITNET_FINISH_ERROR = 5,  /* see error                        */
    BITNET_FINISH_TIMEOUT = 6 /* timeout_ms has passed            */
} bitnet_finish;

typedef struct bitnet_logprob {
    int32_t token;
    float
        logprob; /* natural logarithm, of the plain distribution before any sampling option, if the request
                      * does not say otherwise (drawn_logprobs) */
} bitnet_logprob;

/* One event: a piece of a prompt was read (token -1, finish NONE), or there is a new token with the
 * text it completes, or a choice ended; then no more come about this choice, and after the last
 * choice none about the request. Pointers are borrowed until the next bitnet_step. */
typedef struct bitnet_event {
    size_t size;
    uint64_t id;
    uint32_t choice;  /* of n_choices */
    int32_t token;    /* -1: no new token */
    const char *text; /* complete UTF-8 characters only; may be empty; not 0-terminated */
    size_t text_bytes;
    const char *error;                      /* with FINISH_ERROR: the sentence */
    bitnet_finish finish;                   /* NONE while the choice goes on   */
    uint32_t n_prompt, n_read, n_generated; /* n_read: tokens of the prompt read so far */
    uint32_t n_cached;                      /* of the prompt: tokens found in the prefix cache */
    float logprob;                          /* of the token, if asked for */
    const bitnet_logprob *top;              /* likeliest tokens, best first, if asked for */
    size_t n_top;
    /* from bitnet_submit to the step that began to read the prompt; 0 before it. One for all choices */
    uint64_t queue_ns;
    uint64_t prefill_ns, decode_ns; /* so far */
    double repetition; /* share of the choice's 3-grams that stood in it before, so far */
    /* with prompt_logprobs, where a piece of the prompt was read, by choice 0 for all: its tokens from
     * the scored_from-th on (that is at least 1: nothing stands before token 0), as
     * [n_scored][1 + n_top_scored]: the token itself, then the likeliest in its place, best first */
    const bitnet_logprob *scored;
    size_t n_scored;
    uint32_t scored_from, n_top_scored;
    const char *stop; /* with FINISH_STOP: the stop string; NULL: a stop token */
} bitnet_event;
/* Computes one step of those requests that can run, and reports what happened. *n: room in `events`
 * on entry, at least 1; their count on return. What does not fit is reported by the following calls,
 * before the next step is computed. *n is 0 only when there is nothing to do. */
BITNET_API bitnet_status bitnet_step(bitnet_engine *e, bitnet_event *events, size_t *n,
                                     bitnet_error *err);

/* --- chat --- */

/* Ends a text or a turn? */
BITNET_API int bitnet_token_is_end(const bitnet_model *m, int32_t token);
/* Begins a text; ends one, or a turn where none does; fills up shorter ones. -1 if there is none. */
BITNET_API int32_t bitnet_token_bos(const bitnet_model *m);
BITNET_API int32_t bitnet_token_eos(const bitnet_model *m);
BITNET_API int32_t bitnet_token_pad(const bitnet_model *m);
/* The token as written in the vocabulary; NULL if there is no such token. */
BITNET_API const char *bitnet_token_text(const bitnet_model *m, int32_t token);

typedef struct bitnet_message {
    const char *role; /* "system", "user", "assistant", ... */
    const char *content;
} bitnet_message;

/* chat_template: NULL for the model's own; a built-in name (bitnet_chat_template_name); or Jinja
 * text. */
BITNET_API bitnet_status bitnet_chat_render(const bitnet_model *m, const bitnet_message *msgs,
                                            size_t n_msgs, const char *chat_template,
                                            int add_generation_prompt, char *out, size_t *n,
                                            bitnet_error *err);
/* The same, as tokens. Not always encode(render()): some families join separately encoded
 * pieces. */
BITNET_API bitnet_status bitnet_chat_encode(const bitnet_model *m, const bitnet_message *msgs,
                                            size_t n_msgs, const char *chat_template,
                                            int add_generation_prompt, int32_t *tokens, size_t *n,
                                            bitnet_error *err);
/* Both, for conversations that hold more than roles and texts. json: an object with "messages", and
 * whatever else the template may look at ("tools", ...). A content in parts of text is joined. Built-ins
 * show roles and texts: tools, and messages with other members, are refused. Two members are for the
 * rendering itself: "now_s", seconds since 1970, defines strftime_now; "add_generation_prompt": false
 * counts as the argument 0. */
BITNET_API bitnet_status bitnet_chat_render_json(const bitnet_model *m, const char *json,
                                                 size_t len, const char *chat_template,
                                                 int add_generation_prompt, char *out, size_t *n,
                                                 bitnet_error *err);
BITNET_API bitnet_status bitnet_chat_encode_json(const bitnet_model *m, const char *json,
                                                 size_t len, const char *chat_template,
                                                 int add_generation_prompt, int32_t *tokens,
                                                 size_t *n, bitnet_error *err);
/* The Jinja text behind a choice of template, borrowed from the model or chat_template; "" for a
 * built-in. An error says why there is none that could be used. */
BITNET_API bitnet_status bitnet_chat_template_text(const bitnet_model *m, const char *chat_template,
                                                   const char **text, bitnet_error *err);
BITNET_API const char *bitnet_chat_template_name(size_t i); /* i-th built-in, NULL past the end */

/* ================================================================== model */

/* Called now and then during long work with done <= total. Return non-zero to stop the work; the
 * call then returns BITNET_E_CANCELLED and leaves no partial file. */
typedef int (*bitnet_progress_fn)(void *user, const char *what, uint64_t done, uint64_t total);

struct bitnet_model_options {
    size_t size;
    /* threads for packing the weights, and for the choice of a layout; 0: all usable cores */
    uint32_t threads;
    uint32_t vocab_only; /* 1: tokenizer and chat template only; weights are not touched */
    bitnet_progress_fn progress;
    void *progress_user;

    /* how to compute */
    const char *backend; /* "auto", "scalar", "avx2", ...: the best kernels allowed */
    const char
        *activations;       /* "auto", "int16", "int8", "f32": how linear layers take their input */
    const char *i2s_layout; /* "auto", "128", "64", "rows4": layout of I2_S tensors in the file   */
    /* "auto", "t2", "t3", "t5", "b1", "g2", "g3", "g5": how ternary matrices lie in memory. The
     * results are the same; what a layout cannot hold is in t2. auto: g2, g3 or g5 for models trained
     * with floats, whose activations are int16 or int8 in groups. Others: b1 for binary matrices; with
     * int8 activations and more weights than the caches hold t5, or t3 with two threads or more; else
     * t2; b1, t5 and t3 only where they have kernels for this CPU */
    const char *layout;
    /* "auto", "exact", "screened": whether to make a copy of the output head of twice 2 bits a
     * weight, which lets greedy requests read a sixth of a 16-bit one, with the same tokens. auto:
     * for heads of at least 16384 rows and 4 bits a weight; exact: never, which saves the memory.
     * "int8": a copy rounded to 8 bits, for engines that ask for it; "plan": what the plan says, else
     * exact. auto follows a plan, too */
    const char *head;
    /* "auto", "dense", "skip": whether to make copies of the feed-forward matrices of which decoding
     * can read parts, leaving out what is multiplied by zero; the results are the same. Only for
     * ReLU^2 and int8 activations. auto: if the layers have at least 64 MiB; dense: never, which
     * saves about half of their memory; skip: if possible */
    const char *ffn;

    /* memory, for weights and for the caches of the model's engines */
    /* "auto", "thp": transparent huge pages are asked for; "off": small ones; "2m", "1g": pages that
     * the administrator has reserved; where there are not enough, thp, and a note says so */
    const char *hugepages;
    /* several nodes: "off" (NULL); "distribute": threads and weights are spread over all nodes, each
     * thread's rows in its own; "isolate": all on the caller's node; "replicate": a copy of the
     * weights in every node */
    const char *numa;
    const char
        *mmap; /* "auto"; "off": the file is read into memory: nothing is left to page faults */
    uint32_t mlock; /* 1: never swapped out; BITNET_E_LIMIT if that is not allowed */
    /* how far ahead kernels ask for weights, up to 65536, in whole cache lines; 0: 4096; BITNET_OFF */
    int32_t prefetch_bytes;

    /* packed weights */
    /* a folder in which they are kept for the next time, in the background; what is there for this
     * file as it is now is used instead of packing, and checked meanwhile: if it is found damaged, the
     * next call of an engine is BITNET_E_FORMAT. NULL: none. One folder may serve any number of
     * processes. Not used where mmap is off. */
    const char *cache;
    uint64_t cache_min_bytes; /* packed weights of fewer bytes are not kept; 0: 256 MiB */
    uint64_t cache_max_bytes; /* of all that is kept; what was used longest ago goes. 0: 20 GiB */
    uint32_t cache_read_only; /* 1: nothing is added to the folder */
    uint32_t verify;          /* 1: packed weights are checked before this call returns */

    /* the plan of the model's engines (docs/tune/plan.md): JSON text, which begins with '{', or the path
     * of a file; NULL: the one that the model's file holds, if any; "off": none. Options that are given
     * count more than a plan */
    const char *plan;
};

typedef struct bitnet_model_shape {
    uint32_t n_vocab, n_embd, n_ff, n_head, n_head_kv, head_dim, n_ctx_train;
    uint32_t n_layer;
    uint32_t
        n_layer_attention; /* of n_layer: with keys and values in the cache; others have a state */
    uint32_t n_layer_mtp;  /* beside n_layer: that draft tokens */
    uint32_t tied_head;    /* 1: the head is the embedding             */
    uint32_t reserved_word;
    uint64_t n_params;         /* all parameters                           */
    uint64_t n_params_ternary; /* those in ternary or binary matrices      */
    uint64_t state_bytes;      /* of a sequence, in f32; 0: no layer has a state */
    uint64_t reserved[8];
} bitnet_model_shape;

typedef struct bitnet_model_memory {
    uint64_t file_bytes;      /* of all files of the model                */
    uint64_t packed_bytes;    /* memory taken by packed matrices          */
    uint64_t head_copy_bytes; /* of packed_bytes: the copy of the head, 0 if there is none */
    uint64_t ffn_copy_bytes;  /* of packed_bytes: copies of feed-forward matrices, or 0 */
    uint64_t locked_bytes;    /* of weights, as packed and in the file: that mlock holds */
    /* what decoding one token reads, as it lies in memory */
    uint64_t layer_bytes; /* matrices of all layers  */
    uint64_t head_bytes;  /* the output head         */
    uint64_t mtp_bytes;   /* matrices of layers that draft */
    /* of head_copy_bytes: what screening reads for every token; of the rest it reads the part that
     * belongs to refined rows (bitnet_head_info), about an eighth. 0: no such copy */
    uint64_t head_screen_bytes;
    /* of layer_bytes: in the node of the thread that reads them, if an engine has as many threads as
     * packed them; 0 without several nodes, or where the system does not say */
    uint64_t numa_near_bytes;
    uint32_t numa_nodes;     /* that the weights lie in, as far as `numa` says; 1 without */
    uint32_t prefetch_bytes; /* in use; 0: off */
    const char *hugepages;   /* what weights lie in: "off", "thp", "2m", "1g" */
    uint64_t reserved[8];
} bitnet_model_memory;

typedef struct bitnet_model_info {
    size_t size;
    const char *name; /* general.name, or the file's name         */
    const char *note; /* what was repaired or assumed at open, "" if nothing: show it to the user */
    const char *architecture; /* "bitnet", "bitnet-b1.58", "llama", "qwen3", ... */
    const char *activation;   /* "relu2" or "silu"                        */
    const char *act_quant;    /* "int8", "int16" or "f32": input of linear layers */
    const char *weight_type;  /* type of the projections, "mixed" if not one */
    const char *head_type;    /* type of the output head                  */
    const char *backend;      /* kernels in use                           */
    const char *layout;       /* of ternary matrices: "t2", "t3", "t5", "b1", "mixed"; "" if none */
    const char
        *packed_path; /* the file that packed weights were taken from; "" if they were packed */
    uint64_t packed_mapped; /* 1: they are used where it is mapped, shared with other processes */
    uint64_t load_ns;       /* time bitnet_model_open took              */
    bitnet_model_shape shape;
    bitnet_model_memory memory;
    const char *plan;  /* of its engines: "off", "given" or "file" */
    uint64_t checksum; /* of shape, norms and parts of the embedding: what a plan is tied to */
} bitnet_model_info;
BITNET_API bitnet_status bitnet_model_get_info(const bitnet_model *m, bitnet_model_info *info);

/* What a model's file recommends is written over these members of s; what it is silent about stays.
 * Returns bits of enum bitnet_sampling_given. s may be NULL. The library itself follows a request only. */
enum bitnet_sampling_given {
    BITNET_SAMPLING_TEMPERATURE = 1u << 0,
    BITNET_SAMPLING_TOP_K = 1u << 1,
    BITNET_SAMPLING_TOP_P = 1u << 2,
    BITNET_SAMPLING_MIN_P = 1u << 3,
    BITNET_SAMPLING_REPETITION_PENALTY = 1u << 4,
    BITNET_SAMPLING_PENALTY_LAST_N = 1u << 5
};
BITNET_API uint32_t bitnet_model_sampling(const bitnet_model *m, bitnet_sampling *s);

/* ================================================================== engine */

typedef enum bitnet_kv_type {
    BITNET_KV_AUTO = 0,
    BITNET_KV_F16 = 1,
    BITNET_KV_F32 = 2,
    BITNET_KV_BF16 = 3,
    BITNET_KV_FP8_E4M3 = 4,
    BITNET_KV_FP8_E5M2 = 5,
    BITNET_KV_INT8 = 6,
    BITNET_KV_INT4 = 7,
    BITNET_KV_INT2 = 8
} bitnet_kv_type;
/* "f16", "fp8_e4m3", ...; NULL for AUTO and past the end */
BITNET_API const char *bitnet_kv_type_name(bitnet_kv_type type);

enum { BITNET_MAX_DRAFT_TOKENS = 8 };

struct bitnet_engine_options {
    size_t size;
    uint32_t threads;          /* 0: usable cores; 1 means exactly one */
    uint32_t ctx_tokens;       /* of one sequence, prompt included; 0: the model's, at most 4096 */
    uint32_t max_seqs;         /* sequences at a time; 0: 1 */
    uint32_t max_batch_tokens; /* in one step; 0: 512 */
    /* time between two tokens of a choice that reading other prompts should not exceed, in
     * milliseconds: prompts are read in smaller pieces then. 0: no such aim */
    uint32_t itl_target_ms;

    /* tokens that the KV cache holds, all sequences together; 0: max_seqs * ctx_tokens. With fewer,
     * requests are admitted as they fit, and the youngest give way when it is full; they are computed
     * again later, with the same result. */
    uint32_t kv_tokens;
    bitnet_kv_type kv_type;   /* of the keys; AUTO: f16 (docs/tune/kv-cache.md compares them) */
    bitnet_kv_type kv_type_v; /* of the values; AUTO: as kv_type */
    /* "auto", "on", "off": whether beginnings of texts that are in the KV cache are used again */
    const char *prefix_cache;
    /* of models with recurrent states (hybrids): "f32" (NULL); "bf16": half the memory, states rounded
     * behind every token */
    const char *state_type;
    /* of hybrids: memory for states of texts that are put aside; without them prefix_cache is off. 0:
     * an eighth of the memory that is available, at most one state for each page of the KV cache and
     * 4096; BITNET_OFF: none, as if it is less than one state takes */
    int64_t state_cache_bytes;

    /* "auto", "exact": the full head for every token; "screened": only the logits that a request's
     * sampling can use, if the model has the copy for it. auto: screened where the model has the
     * copy and at least 16384 rows. The tokens are the same. "int8": all logits from a copy of the
     * head rounded to 8 bits, if the model has it; they are close to the exact ones, not the same.
     * Taken by auto only where a plan says so. "plan": what the plan says, else exact. */
    const char *head;
    /* "auto": a token decoded alone takes parts of feed-forward matrices where the model has the
     * copies and few enough of their inputs are not zero; "dense": never; "skip": wherever there are
     * copies. The results are the same. */
    const char *ffn;
    /* "auto": draft the next tokens from the text itself and check them in one step, where that pays;
     * "on": always; "off". The tokens are the same. */
    const char *draft;
    /* "on": every thread but the caller's own is bound to a CPU of its own, beside the one on which
     * the caller runs at open, where there are enough of them; "off"; "auto": off. */
    const char *pin;
    /* "off" (NULL), "on": notes where the time goes (bitnet_profile_get); "trace": and when. Off costs
     * a branch for each operation. */
    const char *profile;
    uint32_t draft_tokens; /* of one step, at most BITNET_MAX_DRAFT_TOKENS; 0: 4 */
    /* 1, for measurements, not of hybrids: the KV cache is full of random keys and values from the
     * beginning, and prompts count as read but for their last tokens, up to a page of them. */
    uint32_t random_kv;
    const char *plan; /* as in bitnet_model_options; NULL: the model's */
    /* of keys and values that neither kv_type nor the plan speaks of; AUTO: f16 */
    bitnet_kv_type kv_type_otherwise;
    uint32_t reserved_word;
};

/* Everything that the first tokens would otherwise wait for: threads run, pages of weights, caches and
 * scratch memory are there, and pages of the model's file stay in memory from now on, as far as the
 * system lets them. After it steps cause no page faults, except for constraints. The engine must have
 * no requests and no sequences of bitnet_eval; nothing is kept of it, and a profile begins anew. */
BITNET_API bitnet_status bitnet_engine_warmup(bitnet_engine *e, bitnet_error *err);

/* What has been done so far. */
typedef struct bitnet_work_info {
    uint64_t steps;
    uint64_t prompt_tokens; /* computed, not those found in the prefix cache */
    uint64_t generated_tokens;
    uint64_t preemptions;       /* choices that gave way to others */
    uint64_t recomputed_tokens; /* computed once more after that */
    uint64_t step_ns;           /* time in steps of requests */
    uint64_t forward_ns;        /* of it in forward passes */
    /* of matrices that these forward passes have read: layers, less what was left out of feed-forward
     * matrices; the head, or the copy that screens or replaces it and rows computed after screening */
    uint64_t weight_bytes;
    uint64_t yields; /* choices that gave way to another user's */
    uint64_t reserved[7];
} bitnet_work_info;

/* The KV cache: pages of so many tokens. */
typedef struct bitnet_kv_info {
    const char *type, *type_v; /* of keys, of values; "mixed" where a plan has several */
    uint64_t bytes;            /* reserved at open */
    uint64_t token_bytes;
    uint32_t page_tokens, pages, pages_free;
    uint32_t pages_cached; /* kept for texts to come, but given up when needed */
    uint64_t seqs_full;    /* how many sequences of ctx_tokens fit */
    uint64_t reserved[8];
} bitnet_kv_info;

/* Beginnings of texts found in the KV cache. */
typedef struct bitnet_prefix_info {
    uint64_t queries, hits, queried_tokens, hit_tokens;
    uint64_t reserved[8];
} bitnet_prefix_info;

/* Recurrent states of hybrids, else 0. Those put aside for texts to come are snapshots. */
typedef struct bitnet_state_info {
    uint64_t seq_bytes; /* of one state */
    uint64_t bytes;     /* reserved: max_seqs of them, drafts beside them, snapshots */
    uint32_t snapshots, snapshots_used; /* room for; are there */
    uint64_t saves, restores;           /* snapshots made; texts that began with one */
    uint64_t evictions;                 /* given up for others, not with their pages */
    uint64_t reserved[8];
} bitnet_state_info;

typedef struct bitnet_draft_info {
    uint64_t tokens, accepted; /* checked, and right */
    uint64_t reserved[8];
} bitnet_draft_info;

typedef struct bitnet_head_info {
    const char *type; /* "exact", "screened" or "int8" */
    /* logits so far, by token: all of them computed; only survivors of the screening; of the former
     * those where too many survived */
    uint64_t full, screened, fallbacks;
    uint64_t survivors, survivors_max; /* rows computed for screened tokens */
    uint64_t refined;       /* rows of which screening read the second half of the copy, too */
    uint64_t histogram[20]; /* i: tokens with more than 2^(i-1), up to 2^i survivors */
    uint64_t reserved[8];
} bitnet_head_info;

typedef struct bitnet_ffn_info {
    const char *type; /* "auto" or "skip"; "dense" also where there are no copies */
    /* tokens decoded alone, where there are copies; their bytes of the feed-forward matrices `up` and
     * `down`, if all were read and really read; how many of these matrices were taken in part */
    uint64_t tokens, dense_bytes, read_bytes, up_skipped, down_skipped;
    uint64_t reserved[8];
} bitnet_ffn_info;

typedef struct bitnet_plan_info {
    const char *from; /* "off", "given" or "file" */
    const char *text; /* what it saves, "codes in 8 layers, values in 10 layers, head int8" */
    uint64_t reserved[6];
} bitnet_plan_info;

/* Of a model that several processes compute (ranks.h); all 0 with one. */
typedef struct bitnet_ranks_info {
    uint32_t n, reserved_word;
    uint64_t exchanges, bytes,
        ns; /* so far: their number, what came in, and time until it was there */
    uint64_t reserved[4];
} bitnet_ranks_info;

typedef struct bitnet_engine_info {
    size_t size;
    uint32_t threads, pinned; /* pinned: bound to a CPU */
    uint32_t ctx_tokens, max_seqs, max_batch_tokens;
    uint32_t n_running, n_waiting; /* choices */
    uint32_t reserved_word;
    const char *hugepages; /* what caches and scratch memory lie in, as in bitnet_model_memory */
    uint64_t
        scratch_bytes; /* reserved at open, or for the first prompt that is scored; beside caches */
    uint64_t locked_bytes; /* of caches and scratch memory */
    bitnet_work_info work;
    bitnet_kv_info kv;
    bitnet_prefix_info prefix;
    bitnet_state_info states;
    bitnet_draft_info draft;
    bitnet_head_info head;
    bitnet_ffn_info ffn;
    bitnet_plan_info plan;
    bitnet_ranks_info ranks;
} bitnet_engine_info;
BITNET_API bitnet_status bitnet_engine_get_info(const bitnet_engine *e, bitnet_engine_info *info);

/* What an engine's answers depend on, beside the request and bitnet_version(): samples of all weights, how
 * activations are rounded, the plan, types of caches, states and head, and these adapters (NULL: those of
 * bitnet_engine_set_adapters). The same for the same weights in any file, on any CPU. For who keeps answers
 * and goes on later; against mistakes, not against malice. */
BITNET_API bitnet_status bitnet_engine_identity(bitnet_engine *e,
                                                const bitnet_adapter_use *adapters,
                                                size_t n_adapters, uint64_t *identity,
                                                bitnet_error *err);

/* --- logits, for scoring and research ---
 * Appends n tokens to sequence `seq` (0 .. max_seqs-1) and writes their logits, [n][n_vocab]
 * floats, or those of the last token only, [n_vocab], when `last_only`. logits may be NULL. A
 * sequence keeps its place and its pages of the KV cache until it is reset, and requests have what is
 * left: not to be mixed with requests on the same engine while these are running. */
BITNET_API bitnet_status bitnet_eval(bitnet_engine *e, uint32_t seq, const int32_t *tokens,
                                     size_t n, int last_only, float *logits, bitnet_error *err);
BITNET_API bitnet_status bitnet_eval_reset(bitnet_engine *e, uint32_t seq, bitnet_error *err);

/* --- embeddings ---
 * A text as a vector: its hidden states after the final norm, pooled. */
typedef enum bitnet_pooling {
    BITNET_POOL_MEAN = 0, /* the mean of all tokens */
    BITNET_POOL_LAST = 1, /* the last token         */
    BITNET_POOL_NONE = 2  /* every token for itself: a text has as many vectors as tokens */
} bitnet_pooling;

typedef struct bitnet_embed_options {
    size_t size;
    const char *normalize; /* "auto": divided by its length, so that this is 1; "off": as it is */
    bitnet_pooling pooling;
    uint32_t reserved_word;
} bitnet_embed_options;

typedef struct bitnet_embed_input {
    const int32_t *tokens;
    size_t n_tokens; /* at least 1, and not more than ctx_tokens */
} bitnet_embed_input;

/* The vectors of n texts, out[n][n_embd] (with BITNET_POOL_NONE: one for each token), several texts in a step where sequences are free; the call
 * brings one of its own and never needs a request's. BITNET_E_STATE: there are not enough free pages
 * of the KV cache now. Same bits whatever the company. Sequences and pages are given back before it
 * returns; neither requests nor sequences in use are touched. If it fails, `out` may be written in
 * part. */
BITNET_API bitnet_status bitnet_embed(bitnet_engine *e, const bitnet_embed_input *inputs, size_t n,
                                      const bitnet_embed_options *o, float *out, bitnet_error *err);

/* --- texts in files ---
 * What the prefix cache knows of a text, its keys and values and the states of hybrids, goes to a file and
 * comes back, also in another process: a long prompt that was read once need not be read again. Answers
 * behind it have the same bits as without. A file belongs to one model, types of the cache, adapters and
 * version of the library; for others, and where it is damaged, it is refused (BITNET_E_FORMAT) and nothing
 * has changed. Between steps, by the thread that drives the engine; they take as long as the file does. */
typedef struct bitnet_prefix_options {
    size_t size;
    const bitnet_adapter_use *adapters; /* as those of a request */
    size_t n_adapters;
    uint64_t reserved[4];
} bitnet_prefix_options;

typedef struct bitnet_prefix_file {
    size_t size;
    uint64_t n_tokens; /* that the file holds */
    uint64_t bytes;    /* of the file */
    uint64_t ns;
} bitnet_prefix_file;

/* The longest known beginning of the text; whole or not at all, over a file of that name. BITNET_E_STATE:
 * nothing of it is known. Hybrids, and types int4 and int2, know whole pages of 32 tokens. info may be NULL. */
BITNET_API bitnet_status bitnet_prefix_save(bitnet_engine *e, const char *path,
                                            const int32_t *tokens, size_t n_tokens,
                                            const bitnet_prefix_options *o,
                                            bitnet_prefix_file *info, bitnet_error *err);
/* tokens: those of the text; as many as the engine's context has are enough room. BITNET_E_STATE: there are
 * not enough free pages now. info may be NULL. */
BITNET_API bitnet_status bitnet_prefix_load(bitnet_engine *e, const char *path, int32_t *tokens,
                                            size_t *n_tokens, const bitnet_prefix_options *o,
                                            bitnet_prefix_file *info, bitnet_error *err);
/* Drops the text from its end on, as far as nobody uses it and no other text begins with it; *n_forgotten:
 * tokens that are not known any more. */
BITNET_API bitnet_status bitnet_prefix_forget(bitnet_engine *e, const int32_t *tokens,
                                              size_t n_tokens, const bitnet_prefix_options *o,
                                              size_t *n_forgotten, bitnet_error *err);

/* --- scores ---
 * How likely the model finds given texts: the sum of the log-probabilities of their tokens behind a
 * context. What texts have in common at their beginning is computed once, so that the choices of a
 * question, or questions behind the same examples, cost little more than their distinct tokens. */
typedef struct bitnet_score_input {
    const int32_t *tokens; /* the context, then what is scored */
    size_t n_tokens;       /* not more than ctx_tokens */
    size_t n_context;      /* at least 1, less than n_tokens */
} bitnet_score_input;

typedef struct bitnet_score_result {
    double logprob;  /* natural logarithm */
    uint32_t greedy; /* 1: each token is the likeliest where it stands */
    uint32_t reserved_word;
    uint64_t reserved[2];
} bitnet_score_result;

typedef struct bitnet_score_options {
    size_t size;
    /* may be NULL: called for every token that is scored, with the logits it is judged by, [n_vocab] */
    void (*on_row)(void *user, size_t input, size_t token, const float *logits);
    bitnet_progress_fn progress; /* may be NULL; counts tokens that are scored */
    void *user;                  /* of both */
    uint64_t
        *n_computed; /* may be NULL: becomes the number of tokens that went through the model */
} bitnet_score_options;

/* Scores of n texts; the same bits as text by text, in any order. Needs an engine with at least 8
 * sequences, and touches neither requests nor sequences in use. BITNET_E_STATE: there are not enough
 * free pages of the KV cache. */
BITNET_API bitnet_status bitnet_score(bitnet_engine *e, const bitnet_score_input *inputs, size_t n,
                                      const bitnet_score_options *o, bitnet_score_result *results,
                                      bitnet_error *err);

/* ================================================================== files */

/* --- looking into files --- */

typedef struct bitnet_file bitnet_file; /* a model file or folder opened for looking */

BITNET_API bitnet_status bitnet_file_open(bitnet_file **out, const char *path, bitnet_error *err);
BITNET_API void bitnet_file_close(bitnet_file *f);
BITNET_API const char *bitnet_file_format(const bitnet_file *f); /* "GGUF v3" or "safetensors" */
BITNET_API uint64_t bitnet_file_bytes(const bitnet_file *f);
BITNET_API size_t bitnet_file_n_meta(const bitnet_file *f);
/* i-th metadata entry; key and type are borrowed. type: "u32", "f32", "str", "bool", "str[128256]",
 * ...; value: as JSON text, long arrays cut. */
BITNET_API bitnet_status bitnet_file_meta(const bitnet_file *f, size_t i, const char **key,
                                          const char **type, char *value, size_t *n);
BITNET_API size_t bitnet_file_n_tensors(const bitnet_file *f);
/* As bitnet_model_sampling. */
BITNET_API uint32_t bitnet_file_sampling(const bitnet_file *f, bitnet_sampling *s);

/* What the metadata says the model is; no weight is looked at. */
typedef struct bitnet_file_model {
    size_t size;
    const char *architecture; /* borrowed from the file */
    uint32_t n_vocab, n_embd, n_ff, n_head, n_head_kv, head_dim, n_ctx_train;
    uint32_t n_layer, n_attention, n_delta; /* n_layer: the two together */
    uint32_t attention_every;               /* the n-th layers are those; 0: not regularly */
    uint32_t n_mtp;                         /* layers behind the last, to draft tokens */
    uint32_t delta_k_heads, delta_v_heads, delta_k_dim, delta_v_dim, delta_taps; /* of delta nets */
    uint32_t rotation_block;    /* 0: no input of a matrix is rotated */
    uint32_t rotation_signs;    /* +-1 that are stored; 0: all are +1 */
    uint32_t rotated_embedding; /* 1: its rows are turned back */
    uint64_t n_rotated;         /* matrices with a rotated input, the head among them */
    uint64_t state_bytes;       /* of a sequence, whatever its length: delta nets, in f32 */
    uint64_t kv_token_bytes;    /* of a token, in f16: attention */
} bitnet_file_model;
/* An error: the model cannot be read here, and why. */
BITNET_API bitnet_status bitnet_file_get_model(const bitnet_file *f, bitnet_file_model *model,
                                               bitnet_error *err);

typedef struct bitnet_tensor_info {
    size_t size;
    const char *name;
    const char *type; /* storage type: "I2_S", "TQ2_0", "BF16", "U8 packed", ... */
    uint64_t n_dims;
    uint64_t dims[4]; /* innermost (input) dimension first */
    uint64_t bytes, offset;
    double bits_per_weight;
    uint32_t is_ternary_type; /* 1: a storage type made for ternary or binary weights */
    uint32_t is_matrix;       /* 1: a linear projection of a layer                    */
    /* 1: gives a delta net its decays or strengths. Published files have some of them in floats;
     * then they are a few in a thousand weights, and is_matrix is 0 */
    uint32_t is_gate;
    /* 1: in packed form only: its bytes are what it took before, and not in the file */
    uint32_t is_packed;
} bitnet_tensor_info;
BITNET_API bitnet_status bitnet_file_tensor(const bitnet_file *f, size_t i,
                                            bitnet_tensor_info *info);

/* What is really in a tensor: read and counted, not believed. Integer codes for ternary types,
 * values for float types that turn out to be (codes times one scale), otherwise values is "other". */
typedef struct bitnet_tensor_stats {
    size_t size;
    uint64_t count[4];  /* how many weights are -1, 0, +1, +2 times the scale   */
    const char *values; /* "{-1,+1}", "{-1,0,+1}", "{-1,0,+1,+2}", "other"     */
    const char *dtype;  /* "binary", "ternary", "quaternary", "float"          */
    double zero_share;
    double scale_min, scale_max; /* equal if there is one scale; 0 for float tensors */
    uint64_t n_scales;           /* distinct places that hold a scale                     */
    uint64_t dead_rows;          /* rows of zeros only                                    */
    double value_min, value_max, mean_abs;
    uint64_t n_nonfinite;
} bitnet_tensor_stats;
BITNET_API bitnet_status bitnet_file_tensor_stats(const bitnet_file *f, size_t i,
                                                  bitnet_tensor_stats *stats, bitnet_error *err);

/* --- making models --- */

typedef struct bitnet_convert_options {
    size_t size;
    /* ternary matrices: "keep", "i2_s", "tq2_0", "tq1_0", "iq2_bn", "iq1_bn", "q1_0", "q2_0", "pq2_0",
     * "ptq1_0"; NULL: i2_s where shapes and scales allow, else the nearest that holds them */
    const char *type;
    /* embedding and head: "keep", "f32", "f16", "bf16", "q8_0", "q6_k", "q4_0", "q4_k" */
    const char *head_type;
    const char *i2s_layout; /* of the input, as in bitnet_model_options */
    const char *name;       /* general.name; NULL: keep, or the folder's name */
    bitnet_progress_fn progress;
    void *progress_user;
    uint32_t overwrite; /* 1: an existing output file may be replaced     */
    /* 1: scales may be rounded to the 16 bits of tq1_0, tq2_0, iq1_bn, q1_0, q2_0, pq2_0, ptq1_0; 0: such a
     * conversion is refused. Weights never change. */
    uint32_t allow_scale_rounding;
    /* 1: weights as the kernels of this CPU want them, with what is made at open beside them, so that a
     * model is mapped and runs (docs/tune/packed.md). Types and scales stay as they are */
    uint32_t packed;
    uint32_t threads;    /* packed: that will run it, for the choice of a layout; 0: all cores */
    const char *layout;  /* packed: as in bitnet_model_options */
    const char *backend; /* packed: as in bitnet_model_options */
    /* a plan, as in bitnet_model_options, that goes into the metadata; engines then compute by it. NULL:
     * that of the input, if it has one; "off": none */
    const char *plan;
    /* adapters, as bitnet_adapter_open takes them, that go into the weights; scales: of each, NULL: 1.
     * Only where the result is what base model and adapter compute, but for the rounding of float32:
     * matrices of floats, which become F32. What stands beside a ternary matrix is refused. */
    const char *const *adapters; /* [n_adapters] */
    const float *adapter_scales; /* [n_adapters] */
    uint64_t n_adapters;         /* at most BITNET_MAX_ADAPTERS */
} bitnet_convert_options;
/* Safetensors or GGUF in, GGUF out. The output appears whole or not at all. */
BITNET_API bitnet_status bitnet_convert(const char *in_path, const char *out_path,
                                        const bitnet_convert_options *o, bitnet_error *err);

typedef struct bitnet_synth_options {
    size_t size;
    /* as in bitnet_convert_options; defaults i2_s and f16, or what the published model has */
    const char *type, *head_type;
    /* a GGUF or tokenizer.json to take the tokenizer from; NULL: a byte vocabulary */
    const char *vocab_path;
    /* "0.3:0.1" or "0.3:0.1,0.4:0.2,...": about these shares of gates above zero and of nonzero inputs
     * of `down`, the list stretched over the layers; made by rows of zeros in `gate` and zeros in the
     * norm before `down`. "trained": those of the embedded model. NULL: as chance has it, about
     * 0.5:0.33. For shapes with ReLU^2 */
    const char *ffn_density;
    bitnet_progress_fn progress;
    void *progress_user;
    uint64_t seed;
    uint32_t n_layer; /* 0: the shape's own; fewer for quick tests */
    uint32_t overwrite;
    uint64_t mtp; /* 1: with a layer that drafts tokens; only models with delta nets have one */
} bitnet_synth_options;
/* Writes a random-weight ternary model with the dimensions of a real one: "2b-4t", "falcon-e-1b",
 * "llama3-8b", ... */
BITNET_API bitnet_status bitnet_synth(const char *shape, const char *out_path,
                                      const bitnet_synth_options *o, bitnet_error *err);
/* i-th shape; NULL past the end */
BITNET_API const char *bitnet_synth_shape(size_t i, const char **description);

typedef struct bitnet_prune_output {
    size_t size;
    const uint32_t *layers; /* that go, by their numbers in the input; [n_layers], in any order */
    size_t n_layers;
    /* What the metadata of the output say about it; NULL and 0: nothing. calibration: of the text. */
    const char *criterion, *calibration;
    double ppl_before, ppl_after, kl;
    const char *name; /* general.name; NULL: keep */
    bitnet_progress_fn progress;
    void *progress_user;
    uint32_t overwrite; /* 1: an existing output file may be replaced */
    /* 1: feed-forward channels whose row in `gate` or `up` is all zero go, too: as many as go in every
     * layer. They are always zero, so the logits stay the same, bit for bit; the output says what the
     * norm behind them is taken over. */
    uint32_t ffn_dead;
    /* 1: norms are scaled to the new width instead, for engines that do not know that; the same only
     * in exact arithmetic */
    uint32_t portable;
    uint32_t reserved_word;
    /* feed-forward channels that stay, by their numbers in the input: [layers left][ffn_width], in the
     * order of the output, as bitnet_prune_search lists them; NULL: all. Not with ffn_dead */
    const uint32_t *ffn_channels;
    uint32_t ffn_width;
    uint32_t reserved_tail;
} bitnet_prune_output;
/* A model without some of its layers and channels; bitnet_prune_search finds out which. Weights are copied,
 * not rounded again. The output is a GGUF; or, where its name ends in ".safetensors", a checkpoint with
 * config.json and tokenizer beside it. It appears whole or not at all. */
BITNET_API bitnet_status bitnet_prune(const char *in_path, const char *out_path,
                                      const bitnet_prune_output *o, bitnet_error *err);

/* --- packed weights (`cache` in bitnet_model_options) --- */

typedef struct bitnet_cache_entry {
    size_t size;        /* set by the library */
    const char *path;   /* of the entry */
    const char *source; /* the model that it was made of; "" if it cannot be read */
    uint64_t bytes;
    uint64_t used_s;  /* when it was last opened, in seconds since 1970 */
    uint32_t good;    /* 1: of this version, and whole as far as its head tells */
    uint32_t current; /* 1: the model is there, unchanged */
} bitnet_cache_entry;
/* Called for each; strings are borrowed until it returns. Not 0: enough. */
typedef int (*bitnet_cache_fn)(void *user, const bitnet_cache_entry *e);
BITNET_API bitnet_status bitnet_cache_list(const char *folder, bitnet_cache_fn fn, void *user,
                                           bitnet_error *err);
/* Removes all entries; models that use one go on. n, bytes: what was removed; may be NULL. */
BITNET_API bitnet_status bitnet_cache_clear(const char *folder, uint64_t *n, uint64_t *bytes,
                                            bitnet_error *err);
/* Every checksum of an entry, or of a GGUF with packed weights. BITNET_E_FORMAT: it is damaged. */
BITNET_API bitnet_status bitnet_cache_verify(const char *path, bitnet_progress_fn progress,
                                             void *progress_user, bitnet_error *err);

/* ================================================================== measuring */

/* --- perplexity --- */

typedef enum bitnet_ppl_protocol {
    BITNET_PPL_WINDOWS = 0,  /* consecutive windows, every position but the first scored     */
    BITNET_PPL_LLAMA_CPP = 1 /* BOS at the start of each window, second half scored          */
} bitnet_ppl_protocol;

typedef struct bitnet_ppl_options {
    size_t size;
    uint32_t ctx_tokens; /* 0: 512, or the engine's context if smaller */
    bitnet_ppl_protocol protocol;
    bitnet_progress_fn progress;
    void *progress_user;
} bitnet_ppl_options;

typedef struct bitnet_ppl_result {
    size_t size;
    uint64_t n_tokens; /* scored */
    uint64_t n_windows;
    double nll_per_token, perplexity, std_error; /* of the perplexity */
    uint64_t ns;
} bitnet_ppl_result;
BITNET_API bitnet_status bitnet_perplexity(bitnet_engine *e, const int32_t *tokens, size_t n_tokens,
                                           const bitnet_ppl_options *o, bitnet_ppl_result *result,
                                           bitnet_error *err);

/* --- pruning: which layers a model can do without --- */

typedef enum bitnet_prune_criterion {
    BITNET_PRUNE_PERPLEXITY =
        0, /* greedy: the layer without which the text is most likely, again and again */
    BITNET_PRUNE_KL = 1,        /* greedy: the layer without which predictions change least */
    BITNET_PRUNE_INFLUENCE = 2, /* 1 - cosine of a layer's input and output, mean over tokens */
    BITNET_PRUNE_VARIANCE =
        3 /* of what a layer adds to the hidden states over tokens, mean over channels */
} bitnet_prune_criterion;

typedef struct bitnet_prune_options {
    size_t size;
    bitnet_prune_criterion criterion;
    uint32_t drop;       /* layers that are to go */
    uint32_t unit;       /* consecutive ones that go together: a period of a hybrid; 0: 1 */
    uint32_t ctx_tokens; /* of a window of the text; 0: 256, or the engine's context if smaller */
    const uint32_t *layers;  /* these go, in this order, and no other: [n_layers]; NULL: chosen */
    size_t n_layers;         /* of each period the first one only */
    const uint32_t *protect; /* these stay, [n_protect] */
    size_t n_protect;
    double
        max_ppl_increase; /* in percent: the step that would exceed it is not taken; 0: no limit */
    bitnet_progress_fn progress;
    void *progress_user;
    /* feed-forward channels that are to be left in every layer, once `drop` layers, which then may be 0,
     * are gone: those go that add least to what enters `down`. 0: all stay. Rounded up to what the type
     * of the weights and the order of sums allow; 1: as few as max_ppl_increase allows */
    uint32_t ffn_width;
    uint32_t reserved_word;
} bitnet_prune_options;

/* On the way to a width of feed-forward layers, as many measurements at most. */
#define BITNET_PRUNE_WIDTHS 16

/* The model after a removal; the first step is the whole model. Layers go first, then channels. */
typedef struct bitnet_prune_step {
    uint32_t first_layer, n_layers;  /* that were removed in this step; n_layers 0: channels were */
    uint32_t layers_left, ffn_width; /* channels of a feed-forward layer */
    double nll_per_token, perplexity, std_error; /* std_error: of the perplexity */
    double kl; /* mean divergence from the whole model, in nats a token */
    uint64_t reserved[2];
} bitnet_prune_step;

typedef struct bitnet_prune_result {
    size_t size;
    bitnet_prune_step *steps; /* the caller's, [drop / unit + 1], and with a width
                               * BITNET_PRUNE_WIDTHS more */
    double *scores; /* the caller's, or NULL: [n_layer] by the criterion, of the whole model; the
                               * lowest goes first. NaN: protected, or not the first of its period */
    size_t n_steps;
    double over_budget; /* perplexity of a step that was not taken; 0: there was none */
    uint64_t n_tokens;  /* scored in each measurement */
    uint64_t layer_tokens, head_tokens; /* computed: layers times tokens, tokens through the head */
    uint64_t scratch_bytes;             /* taken beside the engine's memory */
    uint64_t ns;
    /* the caller's, or NULL: [n_layer][n_ff], of which [layers left][ffn_width] are filled in: the
     * channels that are left. Read where the caller's size has it */
    uint32_t *ffn_channels;
    uint32_t ffn_width; /* of the last step; the model's own where no channels went */
    uint32_t reserved_word;
    double
        ffn_active; /* share of tokens at which a channel that went was not zero, mean over them */
} bitnet_prune_result;
/* Leaves out layers, one after the other, then channels, and measures on a text what that does. Windows and sums are those
 * of BITNET_PPL_WINDOWS: the perplexity is that of the file which bitnet_prune writes. Needs an engine with
 * batches of a whole window and a free sequence. */
BITNET_API bitnet_status bitnet_prune_search(bitnet_engine *e, const int32_t *tokens,
                                             size_t n_tokens, const bitnet_prune_options *o,
                                             bitnet_prune_result *result, bitnet_error *err);

/* --- divergence ---
 * The harm that a setting or another model does: how far its distributions of the next token are from
 * those of a base. Errors are standard errors. */
typedef struct bitnet_divergence {
    size_t size;
    uint64_t n_positions;
    double kl_mean, kl_mean_error, kl_median, kl_p99, kl_max; /* KL(base || other), in nats */
    double same_top, same_top_error; /* share of positions where both prefer the same token */
    double ppl_base, ppl, ppl_ratio, ppl_ratio_error; /* the last: of the paired difference */
    uint64_t ns;
} bitnet_divergence;

/* Log-probabilities of the base at a position that counts, out[n_vocab]; row: counted from 0. */
typedef void (*bitnet_base_fn)(void *user, size_t row, double *out);

typedef struct bitnet_compare_options {
    size_t size;
    uint32_t ctx_tokens; /* of a window; 0: 512, or the engine's context if smaller */
    uint32_t reserved_word;
    /* in place of the first engine: its rows come from elsewhere */
    bitnet_base_fn base;
    void *base_user;
    double
        base_least; /* below 0: log-probabilities of the base that are not above it are left out */
    bitnet_progress_fn progress;
    void *progress_user;
} bitnet_compare_options;
/* Whole windows of the text, which begin as with BITNET_PPL_LLAMA_CPP; the positions from the middle on
 * count. Sequence 0 of bitnet_eval is used. base: NULL with the option of that name. */
BITNET_API bitnet_status bitnet_compare(bitnet_engine *base, bitnet_engine *other,
                                        const int32_t *tokens, size_t n_tokens,
                                        const bitnet_compare_options *o, bitnet_divergence *result,
                                        bitnet_error *err);

/* --- calibration ---
 * A plan (docs/tune/plan.md) for a model, made from a text: docs/tune/calibrate.md. */
typedef struct bitnet_calibrate_options {
    size_t size;
    const int32_t *tokens; /* samples of sample_tokens each; every second one is held out */
    size_t n_tokens;
    double kl_budget; /* mean KL divergence that the plan may cause, in nats; 0: it saves nothing */
    double entropy_bits; /* above 0, instead: inputs whose codes have less entropy get a saving */
    const char
        *savings; /* "codes,gates,keys,values,state,activations,head" or some of these; NULL: all */
    uint64_t memory_bytes;  /* for logits of the untouched model; 0: 256 MiB */
    uint32_t sample_tokens; /* 0: 128, or the model's context if smaller */
    uint32_t threads;       /* 0: usable cores */
    uint32_t
        context_tokens; /* behind a token whose cost is reckoned; 0: half the model's, at most 2048 */
    uint32_t reserved_word;
    const double
        *curve; /* budgets whose plans are judged as well, beside even steps in all layers */
    size_t n_curve;
    bitnet_progress_fn progress; /* in tokens */
    void *progress_user;
} bitnet_calibrate_options;
typedef struct bitnet_calibration bitnet_calibration;
/* The model may have a plan; it counts for nothing here. An int8 head is among the choices if the model
 * was opened with that copy. */
BITNET_API bitnet_status bitnet_calibrate(bitnet_calibration **out, const bitnet_model *m,
                                          const bitnet_calibrate_options *o, bitnet_error *err);
BITNET_API void bitnet_calibration_close(bitnet_calibration *c);             /* NULL is fine */
BITNET_API const char *bitnet_calibration_plan(const bitnet_calibration *c); /* as JSON */
/* What was measured, as JSON: layers, savings with their harm, promised and held-out divergence. */
BITNET_API const char *bitnet_calibration_report(const bitnet_calibration *c);

/* --- health ---
 * Signs that something is wrong with a model, a machine or a way of sampling. Which values are good and
 * which are not depends on the model: docs/serve/health.md. */
typedef struct bitnet_health {
    size_t size;
    uint64_t choices;  /* that ended with at least three tokens */
    double repetition; /* running mean of what their last events said, over about 16 of them */
    uint64_t logit_rows, nonfinite_rows; /* rows of logits; those with a value that is not finite */
    uint64_t ffn_samples;                /* as `sampled` in bitnet_ffn_layer */
    double gates_open, inputs_zero;      /* means over its layers */
    double kv_used, kv_cached;           /* shares of the pages: in use; kept for texts to come */
    uint64_t scrub_passes, scrub_mismatches; /* as in bitnet_scrub */
} bitnet_health;
BITNET_API bitnet_status bitnet_engine_health(const bitnet_engine *e, bitnet_health *health);

/* Keys, or values. Every row of a head (one token) is scaled to its largest value and rounded to 8 bits,
 * whatever the cache's type. */
typedef struct bitnet_kv_side_health {
    double entropy_bits; /* of the distribution of these codes, 0 to 8 */
    double peaks;        /* share of codes +-127; at least one a row is */
    double saturated;    /* share of stored values at the largest that the cache's type can hold */
    double max_abs;      /* of all values */
    uint64_t reserved[4];
} bitnet_kv_side_health;

typedef struct bitnet_kv_health {
    size_t size;
    uint64_t rows; /* looked at; 0: the cache is empty, or the layer has a state instead */
    bitnet_kv_side_health keys, values;
} bitnet_kv_health;
/* A sample of what the cache holds of one layer, about 32 pages, in about a millisecond. */
BITNET_API bitnet_status bitnet_engine_kv_health(const bitnet_engine *e, uint32_t layer,
                                                 bitnet_kv_health *health, bitnet_error *err);

/* Of one layer: tokens that were looked at, those for which rows of `up` or columns of `down` were
 * left out, and the mean share of gates above zero and of inputs of `down` that are not zero. */
typedef struct bitnet_ffn_layer {
    size_t size;
    uint64_t up_seen, up_skipped, down_seen, down_skipped;
    double gates, inputs;
    /* with or without copies, of one token in about sixteen steps: tokens, mean shares of gates above
     * zero and of inputs of `down` that are zero */
    uint64_t sampled;
    double sampled_gates, sampled_zeros;
} bitnet_ffn_layer;
/* 0 past the end */
BITNET_API int bitnet_engine_ffn_layer(const bitnet_engine *e, uint32_t layer,
                                       bitnet_ffn_layer *info);

/* Checksums of the weights as they lie in memory. The first pass takes them, later ones compare. They
 * belong to the engine, which takes the memory for them with the first call: 8 bytes a block. */
typedef struct bitnet_scrub {
    size_t size;
    uint64_t total_bytes, pass_bytes; /* of all weights; done in this pass                     */
    uint64_t passes;                  /* completed                                             */
    uint64_t mismatches;              /* blocks found changed so far, each change counted once */
    const char *tensor;               /* where the last one was found; "" if none              */
    uint64_t offset;                  /* of that block, in its bytes in memory                 */
} bitnet_scrub;
/* Goes on by at most max_bytes (by blocks of 64 KiB; at least one, at most to the end of the pass). By
 * the calling thread, at some gigabytes a second; to be called when there is nothing else to do. */
BITNET_API bitnet_status bitnet_engine_scrub(bitnet_engine *e, uint64_t max_bytes,
                                             bitnet_scrub *state, bitnet_error *err);

/* --- profile ---
 * Of an engine with the option `profile`: where the time of its steps went. At every moment of a step a
 * worker is at one operation, so that the entries of one worker add up to the time of the steps;
 * worker 0 is the caller. */
typedef enum bitnet_phase {
    BITNET_PHASE_PREFILL = 0, /* steps that read prompts, perhaps beside new tokens */
    BITNET_PHASE_DECODE = 1   /* steps with one token of every choice               */
} bitnet_phase;

typedef struct bitnet_profile_entry {
    size_t size;
    bitnet_phase phase;
    uint32_t worker;
    const char *op; /* "q", "attention", "quantise", "wait", ... */
    const char
        *kind;     /* "matrix", "norm", "quantise", "attention", "head", "sampling", "wait", ... */
    int64_t layer; /* -1: of none */
    uint64_t ns, calls;
    uint64_t bytes; /* of weights and keys and values read; activations are not counted */
    uint64_t macs;  /* products of matrices and attention */
} bitnet_profile_entry;
/* The i-th entry, in the order of phase, worker, layer and operation; many are empty. 0 past the end. */
BITNET_API int bitnet_profile_get(const bitnet_engine *e, size_t i, bitnet_profile_entry *entry);

typedef struct bitnet_profile_phase {
    uint64_t steps, tokens, ns; /* tokens: computed, drafts as well */
    uint64_t reserved[4];
} bitnet_profile_phase;

typedef struct bitnet_profile_info {
    size_t size;
    bitnet_profile_phase phases[2]; /* by bitnet_phase */
    uint64_t workers;
    double mark_ns;      /* what noting costs, each time */
    uint64_t marks;      /* of the worker that has most of them */
    uint64_t spans_room; /* trace: of a worker; 0 without */
    uint64_t spans_lost; /* trace: that found no room */
} bitnet_profile_info;
/* BITNET_E_STATE: the engine has no profile. */
BITNET_API bitnet_status bitnet_profile_get_info(const bitnet_engine *e, bitnet_profile_info *info,
                                                 bitnet_error *err);
BITNET_API void bitnet_profile_reset(bitnet_engine *e); /* all of it is empty again */

/* Trace: what a worker did from begin_ns (monotonic clock) up to the next span of the same worker. */
typedef struct bitnet_profile_span {
    size_t size;
    uint64_t begin_ns;
    uint32_t step; /* counted from 0 */
    int32_t layer;
    const char *op, *kind;
} bitnet_profile_span;
/* 0 past the end */
BITNET_API int bitnet_profile_get_span(const bitnet_engine *e, uint32_t worker, size_t i,
                                       bitnet_profile_span *span);

/* --- this machine --- */

typedef struct bitnet_kernel_info {
    size_t size;
    const char *op, *isa;
    uint64_t supported; /* 1: by this CPU */
} bitnet_kernel_info;
BITNET_API int bitnet_kernel_get(size_t i, bitnet_kernel_info *info); /* 0 past the end */
/* i-th set of kernels in this library, the best last; NULL past the end */
BITNET_API const char *bitnet_backend_name(size_t i, int *supported);
/* Compares the kernels that this backend (NULL: auto) means on this CPU with the C version, as every
 * opening of a model does. BITNET_E_INTERNAL names one that differs. */
BITNET_API bitnet_status bitnet_kernel_selftest(const char *backend, bitnet_error *err);

/* How fast the kernels are here: every operation in every variant that this CPU can run, on the
 * sizes that a model needs, by the calling thread. The model must outlive the timer. */
typedef struct bitnet_kernel_timer bitnet_kernel_timer;
/* op: NULL for all operations */
BITNET_API bitnet_status bitnet_kernel_timer_open(bitnet_kernel_timer **out, const bitnet_model *m,
                                                  const char *op, bitnet_error *err);
BITNET_API void bitnet_kernel_timer_close(bitnet_kernel_timer *t);

typedef struct bitnet_kernel_case {
    size_t size;
    const char *op, *isa;
    const char *work;   /* what one call does: "6912x2560, 8 tokens, memory"; "memory": the weights
                         * come from there, "cache": they were used just before */
    uint32_t chosen;    /* 1: the variant that this model's engines take        */
    uint32_t reference; /* 1: the C version, which the others are compared with */
    double macs, bytes; /* of one call: products (0: not counted); bytes of weights or input */
} bitnet_kernel_case;
/* The i-th case; 0 past the end. Cases that differ in their variant only have the same op and
 * work. */
BITNET_API int bitnet_kernel_timer_case(const bitnet_kernel_timer *t, size_t i,
                                        bitnet_kernel_case *c);
/* Runs case i for some milliseconds: nanoseconds of a call, the best of a few samples. 0: no such
 * case. */
BITNET_API double bitnet_kernel_timer_run(bitnet_kernel_timer *t, size_t i);

/* Threads that 0 stands for in the options: one a core, without the slow cores of a hybrid CPU;
 * never more than the affinity mask has CPUs, nor than the cgroup's CPU quota, rounded to the
 * nearest. In a virtual machine that shows a single core with siblings, all of these. */
BITNET_API uint32_t bitnet_default_threads(void);

#ifdef __cplusplus
}
#endif
#endif
