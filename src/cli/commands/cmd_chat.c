/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_chat.c: `bitnet chat`: a conversation. Each turn renders the whole conversation with the chat
 * template and submits it; when the context is full, the oldest exchanges are forgotten, the system
 * message never. Ctrl-C stops an answer, Ctrl-D leaves. With standard input from a pipe, each line
 * is a message and only the answers are printed.
 */
#include "base/os/file.h"
#include "base/os/mem.h"
#include "cli/core/command.h"
#include "cli/commands/generate.h"
#include "app/interrupt.h"
#include "cli/core/line_editor.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <stdlib.h>

struct chat_config {
    struct model_opts model;
    struct engine_opts engine;
    struct generate_opts gen;
    const char *system, *chat_template;
    bool quiet;
};

#define AT(field) offsetof(struct chat_config, field)
static const struct opt table[] = {
    {.kind = OPT_STR,
     .name = "system",
     .metavar = "TEXT",
     .help = "system message",
     .offset = AT(system)},
    MODEL_TEMPLATE_OPT(AT(chat_template)),
    {.kind = OPT_FLAG,
     .letter = 'q',
     .name = "quiet",
     .help = "no greeting and no speed after an answer",
     .offset = AT(quiet)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Conversation", table, 0},
    {"Model", model_opts_table, AT(model)},
    {"Context", prompt_batch_table, AT(engine)},
    {NULL, engine_opts_table, AT(engine)},
    {NULL, draft_table, AT(engine)},
    {NULL, state_table, AT(engine)},
    {NULL, warmup_table, AT(engine)},
    {"Generation", generate_opts_table, AT(gen)},
    {"Sampling", sampling_opts_table, AT(gen.sampling)},
    {"Constrained output", constraint_opts_table, AT(gen.constraint)},
    {NULL, NULL, 0},
};
#undef AT

/* The conversation. msgs[0] is the system message if has_system; then user and assistant in
 * turn. All strings are owned; roles are literals. */
struct chat {
    const struct chat_config *config;
    const bitnet_model *model;
    bitnet_engine *engine;
    const char *chat_template;
    uint32_t ctx_tokens;
    struct line_editor *editor;
    bitnet_message *msgs;
    size_t n, room;
    bool has_system;
    uint64_t turn;
    char *saved_path; /* the last file /save wrote: that one may be replaced */
};

static const char help_text[] =
    "/help          this text\n"
    "/reset         forget the conversation, keep the system message\n"
    "/system TEXT   set the system message and start anew; without TEXT, none\n"
    "/save FILE     write the conversation as JSON\n"
    "/quit          leave; so does Ctrl-D\n"
    "Ctrl-C stops an answer. A line that ends in \\ goes on in the next one.\n";

/* ------------------------------------------------------------------ messages */

static void drop(struct chat *c, size_t at, size_t count)
{
    if (count == 0) return;
    for (size_t i = at; i < at + count; i++) free((char *)c->msgs[i].content);
    memmove(c->msgs + at, c->msgs + at + count, (c->n - at - count) * sizeof *c->msgs);
    c->n -= count;
}

static bitnet_status add(struct chat *c, const char *role, const char *text, bitnet_error *err)
{
    char *copy = strdup(text);
    if (!copy || !bn_grow((void **)&c->msgs, &c->room, c->n + 1, sizeof *c->msgs)) {
        free(copy);
        return bn_fail_nomem(err, strlen(text), "a message");
    }
    c->msgs[c->n++] = (bitnet_message){role, copy};
    return BITNET_OK;
}

static void reset(struct chat *c) { drop(c, c->has_system, c->n - c->has_system); }

static bitnet_status set_system(struct chat *c, const char *text, bitnet_error *err)
{
    drop(c, 0, c->n);
    c->has_system = false;
    if (!text || !*text) return BITNET_OK;
    BN_TRY(add(c, "system", text, err));
    c->has_system = true;
    return BITNET_OK;
}

static bitnet_status save(struct chat *c, const char *path, bitnet_error *err)
{
    struct bn_json *list = bn_json_array();
    for (size_t i = 0; i < c->n; i++)
        bn_json_append(
            list, bn_json_pack("{s:s, s:o}", "role", c->msgs[i].role, "content",
                               term_json_string(c->msgs[i].content, strlen(c->msgs[i].content))));
    struct bn_json *all = bn_json_pack("{s:o}", "messages", list);
    char *text = all ? bn_json_dump(all, BN_JSON_INDENT(2)) : NULL;
    bn_json_free(all);
    if (!text) return bn_fail(err, BITNET_E_NOMEM, "out of memory while writing the conversation");
    struct bn_out out;
    bool again = c->saved_path && strcmp(c->saved_path, path) == 0;
    bitnet_status s = bn_out_open(&out, path, again, err);
    if (s == BITNET_OK) s = bn_out_write(&out, text, strlen(text), err);
    if (s == BITNET_OK) s = bn_out_write(&out, "\n", 1, err);
    if (s == BITNET_OK) s = bn_out_commit(&out, err);
    bn_out_close(&out);
    free(text);
    if (s == BITNET_OK && !again) {
        free(c->saved_path);
        c->saved_path = strdup(path);
    }
    return s;
}

/* ------------------------------------------------------------------ a turn */

/* The tokens of the conversation, shortened from its oldest end until an answer has room as
 * well. */
static bitnet_status fit(int32_t **ids, size_t *n, struct chat *c, bitnet_error *err)
{
    /* room for the whole answer when that is modest, else for a quarter of the context */
    uint32_t want = c->config->gen.max_new_tokens, quarter = c->ctx_tokens / 4;
    uint32_t reserve = want && want < quarter ? want : quarter;
    size_t forgotten = 0;
    for (;;) {
        BN_TRY(tokens_chat(ids, n, c->model, c->msgs, c->n, c->chat_template, err));
        if (*n + reserve <= c->ctx_tokens) break;
        if (c->n - c->has_system < 3)
            break; /* only the new message is left: the engine judges it */
        free(*ids);
        *ids = NULL;
        drop(c, c->has_system, 2);
        forgotten++;
    }
    if (*n >= c->ctx_tokens) {
        size_t need = *n;
        free(*ids);
        *ids = NULL;
        return bn_fail(
            err, BITNET_E_LIMIT,
            "the message needs %zu tokens, but the context holds %u; shorten it or start "
            "with a larger --ctx-size",
            need, c->ctx_tokens);
    }
    if (forgotten) {
        char text[128];
        snprintf(text, sizeof text,
                 "the context of %u tokens is full: the oldest %zu exchange%s forgotten",
                 c->ctx_tokens, forgotten, forgotten == 1 ? " was" : "s were");
        term_note(text);
    }
    return BITNET_OK;
}

static bool show_text(void *user, const char *text, size_t n)
{
    (void)user;
    return term_print_text(text, n);
}

static void print_end(const struct chat *c, const struct generation *g)
{
    bool line_open_still = !g->text.len || g->text.data[g->text.len - 1] != '\n';
    if (line_open_still) fputc('\n', stdout);
    fflush(stdout);
    if (g->finish == BITNET_FINISH_CANCELLED) term_note("stopped");
    if (g->finish == BITNET_FINISH_LENGTH) {
        bool full = g->n_prompt + g->n_generated >= c->ctx_tokens;
        term_note(
            full ? "the answer was cut: the context is full; a larger --ctx-size or /reset helps"
                 : "the answer was cut at its longest; -n allows more");
    }
    if (!c->config->quiet && line_editor_is_interactive(c->editor))
        fprintf(stderr, "%s%u tokens, %.1f tok/s, context %u of %u%s\n",
                term_style(stderr, TERM_DIM), g->n_generated, generation_decode_rate(g),
                g->n_prompt + g->n_generated, c->ctx_tokens, term_style(stderr, TERM_PLAIN));
}

/* One message and its answer. A message that could not be answered is taken back. */
static bitnet_status answer(struct chat *c, const char *text, bitnet_error *err)
{
    BN_TRY(add(c, "user", text, err));
    int32_t *ids = NULL;
    size_t n = 0;
    bitnet_status s = fit(&ids, &n, c, err);
    /* every turn has a seed of its own, so that a repeated question may be answered otherwise */
    struct generation g = {.engine = c->engine,
                           .model = c->model,
                           .opts = &c->config->gen,
                           .tokens = ids,
                           .n_tokens = n,
                           .seed = c->config->gen.seed + c->turn,
                           .on_text = show_text};
    if (s == BITNET_OK) s = generation_run(&g, err);
    if (s == BITNET_OK) {
        c->turn++;
        print_end(c, &g);
        s = add(c, "assistant", g.text.data ? g.text.data : "", err);
    }
    if (s != BITNET_OK) drop(c, c->n - 1, 1);
    generation_free(&g);
    free(ids);
    return s;
}

/* ------------------------------------------------------------------ lines */

/* A line that begins with '/'. false: leave. */
static bool obey(struct chat *c, const char *line)
{
    bitnet_error err = {0};
    size_t n = strcspn(line, " ");
    const char *rest = line + n + strspn(line + n, " ");
    if (n == 5 && memcmp(line, "/quit", n) == 0) return false;
    if (n == 5 && memcmp(line, "/exit", n) == 0) return false;
    if (n == 5 && memcmp(line, "/help", n) == 0) {
        fputs(help_text, stderr);
    } else if (n == 6 && memcmp(line, "/reset", n) == 0) {
        reset(c);
        term_note("the conversation starts anew");
    } else if (n == 7 && memcmp(line, "/system", n) == 0) {
        if (set_system(c, rest, &err) != BITNET_OK) term_fail(&err);
        else
            term_note(*rest ? "system message set; the conversation starts anew"
                            : "no system message any more");
    } else if (n == 5 && memcmp(line, "/save", n) == 0) {
        if (!*rest) term_note("/save needs a file name");
        else if (save(c, rest, &err) != BITNET_OK) term_fail(&err);
        else term_note("saved");
    } else {
        term_note("there is no such command; /help lists them");
    }
    return true;
}

/* One message, over several lines where they end in a backslash. */
static enum line_result read_message(struct chat *c, struct bn_buf *message)
{
    bn_buf_clear(message);
    bn_buf_puts(message, "");
    for (;;) {
        const char *line = NULL;
        enum line_result got = line_editor_read(c->editor, &line);
        if (got == LINE_END && message->len)
            return LINE_GOT; /* the input ended inside the message */
        if (got != LINE_GOT) return got;
        size_t n = strlen(line);
        bool goes_on = n && line[n - 1] == '\\';
        bn_buf_append(message, line, goes_on ? n - 1 : n);
        if (goes_on) bn_buf_putc(message, '\n');
        if (message->failed) return LINE_TOO_LONG;
        if (!goes_on) return LINE_GOT;
    }
}

static int converse(struct chat *c)
{
    struct bn_buf message;
    bn_buf_init(&message, (size_t)4 << 20);
    bool interactive = line_editor_is_interactive(c->editor), go_on = true;
    int code = EXIT_DONE;
    while (go_on) {
        enum line_result got = read_message(c, &message);
        bitnet_error err = {0};
        if (got == LINE_GOT && message.len && message.data[0] == '/') {
            go_on = obey(c, message.data);
        } else if (got == LINE_GOT && message.data[strspn(message.data, " \t")]) {
            if (answer(c, message.data, &err) != BITNET_OK) {
                code = term_fail(&err);
                go_on = interactive; /* a script should learn of it, a person can try again */
            }
        } else if (got == LINE_INTERRUPTED && interactive && interrupt_by_user()) {
            term_note("Ctrl-D or /quit leaves");
        } else if (got == LINE_TOO_LONG) {
            code = term_fail_text("a message may have at most 1 MiB a line and 4 MiB in all");
            go_on = interactive;
        } else if (got == LINE_FAILED) {
            code = term_fail_text("standard input could not be read");
            go_on = false;
        } else if (got == LINE_END) {
            go_on = false;
            if (interactive) code = EXIT_DONE;
        }
        if (interrupt_pending()) {
            /* in a script Ctrl-C means the script, and a request to end always means the end */
            if (!interactive || !interrupt_by_user()) {
                code = interrupt_exit_code();
                go_on = false;
            } else {
                interrupt_clear();
            }
        }
    }
    bn_buf_free(&message);
    return code;
}

static int open_and_converse(struct chat *c, const bitnet_model *m)
{
    bitnet_error err = {0};
    bitnet_engine_options eo;
    char *owned = NULL;
    model_engine_options(&eo, &c->config->model, &c->config->engine);
    bitnet_status s =
        textio_chat_template(&owned, &c->chat_template, c->config->chat_template, &err);
    if (s == BITNET_OK) s = model_engine_open(&c->engine, m, &eo, c->config->engine.warmup, &err);
    if (s == BITNET_OK) s = set_system(c, c->config->system, &err);
    if (s == BITNET_OK && !(c->editor = line_editor_open("> ")))
        s = bn_fail_nomem(&err, 64, "line input");
    int code;
    if (s == BITNET_OK) {
        bitnet_engine_info ei = {.size = sizeof ei};
        bitnet_model_info mi = {.size = sizeof mi};
        bitnet_engine_get_info(c->engine, &ei);
        bitnet_model_get_info(m, &mi);
        c->ctx_tokens = ei.ctx_tokens;
        if (line_editor_is_interactive(c->editor) && !c->config->quiet) {
            term_print_clean(stderr, mi.name);
            fprintf(stderr, ", context %u tokens. /help lists what can be done.\n", ei.ctx_tokens);
        }
        code = converse(c);
    } else {
        code = term_fail(&err);
    }
    drop(c, 0, c->n);
    free(c->msgs);
    free(c->saved_path);
    line_editor_close(c->editor);
    bitnet_engine_close(c->engine);
    free(owned);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct chat_config *o = config;
    const char *model;
    int code = model_word(&model, o->model.model, words, "chat");
    if (code != EXIT_DONE) return code;
    generate_choose_seed(&o->gen);
    bitnet_model *m = NULL;
    code = model_open(&m, model, &o->model, o->engine.head, o->engine.ffn, "chat");
    if (code == EXIT_DONE) {
        struct chat c = {.config = o, .model = m};
        code = open_and_converse(&c, m);
    }
    bitnet_model_close(m);
    return code;
}

const struct command cmd_chat = {
    .name = "chat",
    .usage = "[MODEL] [options]",
    .about = "\n"
             "Every line is a message; a line that ends in \\ continues on the next one. Ctrl-C "
             "stops an answer,\n"
             "Ctrl-D leaves, /help lists the commands. From a pipe, only the answers are printed.\n"
             "\n"
             "  bitnet chat model.gguf --system \"You answer in one sentence.\"\n",
    .parts = parts,
    .config_bytes = sizeof(struct chat_config),
    .max_words = 1,
    .run = run,
};
