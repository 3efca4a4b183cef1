/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_chat.c: `bitnet chat`: a conversation. Each turn renders what still fits with the chat template and
 * submits it; when the context is full, the model no longer sees the oldest exchanges, the system
 * message it always does. Ctrl-C stops an answer, Ctrl-D leaves. With standard input from a pipe, each line
 * is a message and only the answers are printed.
 */
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/mem.h"
#include "base/suggest.h"
#include "cli/chat/answer_text.h"
#include "cli/chat/line_editor.h"
#include "cli/chat/screen.h"
#include "cli/chat/talk.h"
#include "cli/core/command.h"
#include "cli/core/settings.h"
#include "cli/commands/generate.h"
#include "app/interrupt.h"
#include "cli/options/model_opts.h"
#include "app/config/folders.h"
#include "app/term.h"
#include "app/textio.h"
#include "app/tokens.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

enum { MESSAGE_MAX_BYTES = 4 << 20, NOTE_BYTES = 1024 };
static const char prompt_first[] = "> ", prompt_more[] = ". ", block_mark[] = "\"\"\"";

struct chat_config {
    struct model_opts model;
    struct engine_opts engine;
    struct adapter_opts adapters;
    struct generate_opts gen;
    const char *system, *chat_template, *thinking;
    bool quiet, no_history;
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
     .help = "no greeting, no speed after an answer, and from a pipe no notes",
     .offset = AT(quiet)},
    {.kind = OPT_FLAG,
     .name = "no-history",
     .help = "do not keep what is typed; otherwise it can be had again in later runs, from "
             "bitnet/history "
             "in $XDG_STATE_HOME or ~/.local/state",
     .offset = AT(no_history)},
    {.kind = OPT_END},
};
static const struct opt thinking_table[] = {
    {.kind = OPT_CHOICE,
     .name = "thinking",
     .help = "what a model thinks before it answers, on a terminal: dim, or folded to one line",
     .offset = AT(thinking),
     .initial = "dim",
     .choices = "dim|fold"},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Conversation", table, 0},
    {NULL, thinking_table, 0},
    GENERATE_PARTS(struct chat_config),
    {NULL, NULL, 0},
};
/* What /set can change: all that is looked at anew for each answer. */
static const struct opt_part set_parts[] = {
    {NULL, thinking_table, 0},
    {NULL, generate_opts_table, AT(gen)},
    {NULL, sampling_opts_table, AT(gen.sampling)},
    {NULL, constraint_opts_table, AT(gen.constraint)},
    {NULL, NULL, 0},
};
#undef AT

struct chat {
    struct chat_config *config, start; /* as it is, and as it was before any /set */
    struct model_opts opening;         /* as typed, before a model's tuned settings were taken in */
    bitnet_model *model;
    bitnet_engine *engine;
    struct adapters adapters;
    char *template_owned;
    const char *chat_template;
    uint32_t ctx_tokens;
    struct line_editor *editor;
    struct history history;
    struct talk talk;
    struct bn_arena typed; /* values of /set point into it */
    uint64_t turn;
    uint64_t n_answers, n_prompt, n_cached, n_generated, prefill_ns, decode_ns;
    uint32_t in_context; /* tokens, after the last answer */
};

/* ------------------------------------------------------------------ notes */

/* Lines on standard error, broken between words. */
static void print_dim(const char *text)
{
    int width = term_width(stderr), used = 0;
    fputs(term_style(stderr, TERM_DIM), stderr);
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        char word[NOTE_BYTES];
        n = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        int columns = screen_columns(word, strlen(word));
        if (used) fputc(used + 1 + columns > width ? '\n' : ' ', stderr);
        used = used && used + 1 + columns <= width ? used + 1 + columns : columns;
        term_print_clean(stderr, word);
    }
    fprintf(stderr, "%s\n", term_style(stderr, TERM_PLAIN));
}

/* To a person it is part of the talk; in a script it is the program that speaks. */
static void note(const struct chat *c, const char *fmt, ...) BN_PRINTF(2, 3);
static void note(const struct chat *c, const char *fmt, ...)
{
    char text[NOTE_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fflush(stdout);
    if (line_editor_is_interactive(c->editor)) print_dim(text);
    else if (!c->config->quiet) term_note(text);
}

/* ------------------------------------------------------------------ model and engine */

static void close_engine(struct chat *c)
{
    bitnet_engine_close(c->engine);
    adapters_close(&c->adapters);
    bitnet_model_close(c->model);
    c->engine = NULL;
    c->model = NULL;
}

/* In place of what c has, which stays if this fails. */
static int open_model(struct chat *c, const char *word)
{
    bitnet_error err = {0};
    const struct engine_opts *e = &c->config->engine;
    struct model_opts typed = c->opening;
    struct adapters adapters = {.n = 0};
    bitnet_engine *engine = NULL;
    bitnet_model *model = NULL;
    int code = model_open(&model, word, &typed, e->head, e->ffn, "chat");
    if (code != EXIT_DONE) return code;
    bitnet_engine_options eo;
    model_engine_options(&eo, &typed, e);
    if (model_adapted_open(&engine, &adapters, model, &eo, &c->config->adapters, e->warmup, &err) !=
        BITNET_OK) {
        adapters_close(&adapters);
        bitnet_model_close(model);
        return term_fail(&err);
    }
    close_engine(c);
    bitnet_engine_info ei = {.size = sizeof ei};
    bitnet_engine_get_info(engine, &ei);
    c->model = model;
    c->engine = engine;
    c->adapters = adapters;
    c->ctx_tokens = ei.ctx_tokens;
    c->talk.forgotten = 0;
    c->in_context = 0;
    return EXIT_DONE;
}

static void print_model(const struct chat *c, const char *end)
{
    bitnet_model_info mi = {.size = sizeof mi};
    bitnet_model_get_info(c->model, &mi);
    note(c, "%s, context %u tokens%s", mi.name, c->ctx_tokens, end);
}

/* ------------------------------------------------------------------ a turn */

/* The tokens of the conversation, from where an answer has room as well. */
static bitnet_status fit(int32_t **ids, size_t *n, struct chat *c, bitnet_error *err)
{
    /* room for the whole answer when that is modest, else for a quarter of the context */
    uint32_t want = c->config->gen.max_new_tokens, quarter = c->ctx_tokens / 4;
    uint32_t reserve = want && want < quarter ? want : quarter;
    size_t before = c->talk.forgotten;
    for (;;) {
        size_t n_seen;
        const bitnet_message *seen = talk_seen(&c->talk, &n_seen);
        if (!seen) return bn_fail_nomem(err, c->talk.n, "the conversation");
        BN_TRY(tokens_chat(ids, n, c->model, seen, n_seen, c->chat_template, err));
        if (*n + reserve <= c->ctx_tokens || !talk_forget(&c->talk)) break;
        free(*ids);
        *ids = NULL;
    }
    if (*n >= c->ctx_tokens) { /* only the new message is left */
        size_t need = *n;
        free(*ids);
        *ids = NULL;
        return bn_fail(
            err, BITNET_E_LIMIT,
            "the message needs %zu tokens, but the context holds %u; shorten it or start "
            "with a larger --ctx-size",
            need, c->ctx_tokens);
    }
    size_t forgotten = (c->talk.forgotten - before) / 2;
    if (forgotten)
        note(c, "the context of %u tokens is full: the oldest %zu exchange%s forgotten",
             c->ctx_tokens, forgotten, forgotten == 1 ? " was" : "s were");
    return BITNET_OK;
}

static bool show_text(void *user, const char *text, size_t n)
{
    return answer_text_put(user, text, n);
}

static void print_end(struct chat *c, const struct generation *g)
{
    bool line_open_still = !g->text.len || g->text.data[g->text.len - 1] != '\n';
    if (line_open_still) fputc('\n', stdout);
    fflush(stdout);
    c->in_context = g->n_prompt + g->n_generated;
    if (g->finish == BITNET_FINISH_CANCELLED) note(c, "stopped; /regen answers anew");
    if (g->finish == BITNET_FINISH_LENGTH) {
        bool full = c->in_context >= c->ctx_tokens;
        note(c, "%s",
             full ? "the answer was cut: the context is full; a larger --ctx-size or /reset helps"
                  : "the answer was cut at its longest; -n, or /set max-new-tokens, allows more");
    }
    if (!c->config->quiet && line_editor_is_interactive(c->editor))
        note(c, "%u tokens, %.1f tok/s, context %u of %u", g->n_generated,
             generation_decode_rate(g), c->in_context, c->ctx_tokens);
    c->n_answers++;
    c->n_prompt += g->n_prompt;
    c->n_cached += g->n_cached;
    c->n_generated += g->n_generated;
    c->prefill_ns += g->prefill_ns;
    c->decode_ns += g->decode_ns;
}

/* What the template opened belongs to the answer as well. */
static bitnet_status keep_answer(struct chat *c, const char *text, bool thinks, bitnet_error *err)
{
    if (!thinks || !strstr(text, "</think>")) return talk_add(&c->talk, "assistant", text, err);
    struct bn_buf whole;
    bn_buf_init(&whole, SIZE_MAX / 2);
    bn_buf_puts(&whole, "<think>\n");
    bn_buf_puts(&whole, text);
    bitnet_status s = whole.failed ? bn_fail_nomem(err, strlen(text), "an answer")
                                   : talk_add(&c->talk, "assistant", whole.data, err);
    bn_buf_free(&whole);
    return s;
}

/* Answers the last message. */
static bitnet_status answer_last(struct chat *c, bitnet_error *err)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bool thinks = false;
    struct answer_text shown;
    bitnet_status s = fit(&ids, &n, c, err);
    if (s == BITNET_OK) s = tokens_open_thinking(&thinks, c->model, ids, n, err);
    answer_text_open(&shown, strcmp(c->config->thinking, "fold") == 0, thinks);
    /* every turn has a seed of its own, so that a repeated question may be answered otherwise */
    struct generation g = {.engine = c->engine,
                           .model = c->model,
                           .opts = &c->config->gen,
                           .tokens = ids,
                           .n_tokens = n,
                           .seed = c->config->gen.seed + c->turn,
                           .on_text = show_text,
                           .user = &shown};
    if (s == BITNET_OK) s = generation_run(&g, err);
    answer_text_end(&shown);
    if (s == BITNET_OK) {
        c->turn++;
        print_end(c, &g);
        s = keep_answer(c, g.text.data ? g.text.data : "", thinks, err);
    }
    answer_text_close(&shown);
    generation_free(&g);
    free(ids);
    return s;
}

/* One message and its answer. A message that could not be answered is taken back. */
static bitnet_status answer(struct chat *c, const char *text, bitnet_error *err)
{
    BN_TRY(talk_add(&c->talk, "user", text, err));
    bitnet_status s = answer_last(c, err);
    if (s != BITNET_OK) talk_drop_last(&c->talk);
    return s;
}

/* ------------------------------------------------------------------ commands */

/* What a command came to: go on, leave, or nothing could be done. */
enum obeyed { OBEYED, LEAVE, REFUSED };

static enum obeyed refuse(const bitnet_error *err)
{
    term_fail(err);
    return REFUSED;
}

static enum obeyed do_reset(struct chat *c, const char *rest)
{
    (void)rest;
    talk_reset(&c->talk);
    c->in_context = 0;
    note(c, "the conversation starts anew");
    return OBEYED;
}

static enum obeyed do_system(struct chat *c, const char *rest)
{
    bitnet_error err = {0};
    if (talk_set_system(&c->talk, rest, &err) != BITNET_OK) return refuse(&err);
    note(c, "%s",
         *rest ? "system message set; the conversation starts anew" : "no system message any more");
    return OBEYED;
}

/* Takes the last exchange back; its message is *text (owned). false: there is none. */
static bool take_back(struct chat *c, char **text)
{
    struct talk *t = &c->talk;
    if (talk_last(t, "assistant")) talk_drop_last(t);
    const char *user = talk_last(t, "user");
    *text = user ? strdup(user) : NULL;
    if (user) talk_drop_last(t);
    if (!user) note(c, "there is no message yet");
    return *text != NULL;
}

static enum obeyed do_undo(struct chat *c, const char *rest)
{
    (void)rest;
    char *text;
    if (!take_back(c, &text)) return REFUSED;
    size_t left = (c->talk.n - c->talk.has_system) / 2;
    note(c, "taken back; %zu exchange%s left", left, left == 1 ? " is" : "s are");
    free(text);
    return OBEYED;
}

static enum obeyed do_regen(struct chat *c, const char *rest)
{
    (void)rest;
    bitnet_error err = {0};
    const char *old = talk_last(&c->talk, "assistant");
    char *kept = old ? strdup(old) : NULL;
    if (kept) talk_drop_last(&c->talk);
    enum obeyed done = OBEYED;
    if (!talk_last(&c->talk, "user")) {
        note(c, "there is no message to answer yet");
        done = REFUSED;
    } else if (answer_last(c, &err) != BITNET_OK) {
        done = refuse(&err);
    }
    if (done == REFUSED && kept) talk_add(&c->talk, "assistant", kept, &err);
    free(kept);
    return done;
}

static enum obeyed do_edit(struct chat *c, const char *rest)
{
    bitnet_error err = {0};
    char *text;
    if (!*rest && !line_editor_can_edit(c->editor)) {
        note(c, "here /edit needs the new text behind it");
        return REFUSED;
    }
    if (!take_back(c, &text)) return REFUSED;
    if (!*rest) line_editor_prefill(c->editor, text);
    free(text);
    if (*rest && answer(c, rest, &err) != BITNET_OK) return refuse(&err);
    return OBEYED;
}

static bool says_yes(struct chat *c, const char *path)
{
    struct bn_buf question;
    bn_buf_init(&question, MESSAGE_MAX_BYTES);
    term_clean(&question, path, strlen(path), false);
    bn_buf_puts(&question, " exists. Replace it? [y/N] ");
    bool yes = line_editor_ask(c->editor, question.failed ? "Replace it? [y/N] " : question.data);
    bn_buf_free(&question);
    return yes;
}

static enum obeyed do_save(struct chat *c, const char *rest)
{
    bitnet_error err = {0};
    struct talk *t = &c->talk;
    const char *path = *rest ? rest : t->path;
    bool replaced, force = false;
    if (!path) {
        note(c, "/save needs a file name");
        return REFUSED;
    }
    bool ours = t->path && strcmp(t->path, path) == 0;
    if (!ours && line_editor_is_interactive(c->editor) && access(path, F_OK) == 0) {
        force = says_yes(c, path);
        if (!force) {
            note(c, "not saved");
            return REFUSED;
        }
    }
    if (talk_save(t, path, force, &replaced, &err) != BITNET_OK) return refuse(&err);
    note(c, "%zu message%s saved to %s%s", t->n, t->n == 1 ? "" : "s", t->path ? t->path : rest,
         replaced ? ", in place of what was there" : "");
    return OBEYED;
}

static enum obeyed do_load(struct chat *c, const char *rest)
{
    bitnet_error err = {0};
    if (!*rest) {
        note(c, "/load needs a file name");
        return REFUSED;
    }
    if (talk_load(&c->talk, rest, &err) != BITNET_OK) return refuse(&err);
    c->in_context = 0;
    note(c, "%zu message%s from %s%s", c->talk.n, c->talk.n == 1 ? "" : "s", rest,
         talk_last(&c->talk, "user") ? "; /regen answers the last one" : "");
    return OBEYED;
}

static void print_settings(const struct chat *c)
{
    struct bn_json *all = settings_json(c->config, set_parts), *v;
    const char *name;
    if (!all) return;
    bn_json_each_member(all, name, v)
    {
        char *text = bn_json_dump(v, 0);
        fprintf(stderr, "  %-22s ", name);
        if (text) term_print_clean(stderr, text);
        fputc('\n', stderr);
        free(text);
    }
    bn_json_free(all);
}

static enum obeyed do_set(struct chat *c, const char *rest)
{
    char name[64];
    size_t n = strcspn(rest, " =");
    const char *value = rest + n + strspn(rest + n, " =");
    if (!n) {
        fputs("/set NAME VALUE; the value 'default' is the one from the start. Names:\n", stderr);
        print_settings(c);
        return OBEYED;
    }
    snprintf(name, sizeof name, "%.*s", (int)bn_min_size(n, sizeof name - 1), rest);
    bitnet_error err = {0};
    bitnet_status s = BITNET_OK;
    struct bn_suggest near;
    bn_suggest_start(&near, name);
    for (const struct opt_part *p = set_parts; p->table; p++)
        for (const struct opt *o = p->table; o->kind != OPT_END; o++)
            bn_suggest_offer(&near, o->name);
    char *kept = bn_arena_strn(&c->typed, value, strlen(value));
    bool known = strcmp(value, "default") == 0 ? args_reset(c->config, &c->start, set_parts, name)
                                               : kept && args_set(c->config, set_parts, name, name,
                                                                  *kept ? kept : "true", &s, &err);
    if (!known) {
        note(c, "/set knows no '%s'%s%s%s; /set alone lists the names", name,
             near.best ? "; did you mean '" : "", near.best ? near.best : "",
             near.best ? "'?" : "");
        return REFUSED;
    }
    if (s != BITNET_OK) return refuse(&err);
    note(c, "%s is %s", name, *value ? value : "on");
    return OBEYED;
}

static void print_talk(const struct chat *c)
{
    for (size_t i = 0; i < c->talk.n; i++) {
        bool unseen = i >= c->talk.has_system && i < c->talk.has_system + c->talk.forgotten;
        fprintf(stderr, "%s%s%s%s\n", term_style(stderr, TERM_BOLD), c->talk.msgs[i].role,
                term_style(stderr, TERM_PLAIN), unseen ? " (forgotten)" : "");
        struct bn_buf text;
        bn_buf_init(&text, SIZE_MAX / 2);
        term_clean(&text, c->talk.msgs[i].content, strlen(c->talk.msgs[i].content), true);
        fprintf(stderr, "%s\n", text.data ? text.data : "");
        bn_buf_free(&text);
    }
    if (!c->talk.n) note(c, "nothing was said yet");
}

static enum obeyed show_thinking(const struct chat *c)
{
    const char *last = talk_last(&c->talk, "assistant");
    size_t n = last ? answer_text_thought(last) : 0;
    if (!n) {
        note(c, "the last answer has no thinking");
        return REFUSED;
    }
    struct answer_text shown;
    answer_text_open(&shown, false, false);
    answer_text_put(&shown, last, n);
    answer_text_end(&shown);
    answer_text_close(&shown);
    return OBEYED;
}

static const char show_topics[] = "talk|settings|system|thinking|template";

static enum obeyed do_show(struct chat *c, const char *rest)
{
    if (!*rest || strcmp(rest, "talk") == 0) {
        print_talk(c);
    } else if (strcmp(rest, "settings") == 0) {
        print_settings(c);
    } else if (strcmp(rest, "system") == 0) {
        note(c, "%s", c->talk.has_system ? c->talk.msgs[0].content : "there is no system message");
    } else if (strcmp(rest, "template") == 0) {
        const char *text;
        bitnet_error err = {0};
        if (bitnet_chat_template_text(c->model, c->chat_template, &text, &err) != BITNET_OK)
            text = err.text;
        note(c, "%s", *text ? text : "a template built in");
    } else if (strcmp(rest, "thinking") == 0) {
        return show_thinking(c);
    } else {
        note(c, "/show takes one of %s, not '%s'", show_topics, rest);
        return REFUSED;
    }
    return OBEYED;
}

static enum obeyed do_model(struct chat *c, const char *rest)
{
    if (*rest && open_model(c, rest) != EXIT_DONE) return REFUSED;
    print_model(c, *rest && c->talk.n > c->talk.has_system ? "; the conversation goes on" : "");
    return OBEYED;
}

static double rate(uint64_t n, uint64_t ns) { return ns ? (double)n * 1e9 / (double)ns : 0; }

static enum obeyed do_stats(struct chat *c, const char *rest)
{
    (void)rest;
    char rss[TERM_SIZE_BYTES];
    uint64_t decoded = c->n_generated > c->n_answers ? c->n_generated - c->n_answers : 0;
    fprintf(stderr,
            "  answers   %llu, %llu tokens, %.1f tok/s\n"
            "  prompts   %llu tokens, %llu of them read before, the others at %.1f tok/s\n"
            "  context   %u of %u tokens, %zu messages, %zu of them forgotten\n"
            "  memory    %s at most\n",
            (unsigned long long)c->n_answers, (unsigned long long)c->n_generated,
            rate(decoded, c->decode_ns), (unsigned long long)c->n_prompt,
            (unsigned long long)c->n_cached, rate(c->n_prompt - c->n_cached, c->prefill_ns),
            c->in_context, c->ctx_tokens, c->talk.n, c->talk.forgotten,
            term_size(rss, term_peak_rss_bytes()));
    return OBEYED;
}

static enum obeyed do_quit(struct chat *c, const char *rest)
{
    (void)c;
    (void)rest;
    return LEAVE;
}

static enum obeyed do_help(struct chat *c, const char *rest);

/* What follows a command: for completion. */
enum follows { NOTHING, A_FILE, A_NAME, A_TOPIC };

static const struct chat_command {
    const char *name, *form, *help;
    enum follows follows;
    enum obeyed (*obey)(struct chat *c, const char *rest);
} commands[] = {
    {"/help", "", "this text", NOTHING, do_help},
    {"/regen", "", "answer the last message anew", NOTHING, do_regen},
    {"/edit", "[TEXT]", "change the last message and send it anew", NOTHING, do_edit},
    {"/undo", "", "take the last exchange back", NOTHING, do_undo},
    {"/reset", "", "forget the conversation, keep the system message", NOTHING, do_reset},
    {"/system", "[TEXT]", "set the system message and start anew; without TEXT, none", NOTHING,
     do_system},
    {"/set", "[NAME VALUE]", "change an option of generation, as /set temp 0.2", A_NAME, do_set},
    {"/show", "[WHAT]", "the conversation; or settings, system, thinking, template", A_TOPIC,
     do_show},
    {"/model", "[MODEL]", "the model; or go on with another one", A_FILE, do_model},
    {"/save", "[FILE]", "write the conversation as JSON", A_FILE, do_save},
    {"/load", "FILE", "read one back, in place of this one", A_FILE, do_load},
    {"/stats", "", "tokens, speed, context, memory", NOTHING, do_stats},
    {"/quit", "", "leave; so does Ctrl-D", NOTHING, do_quit},
    {"/exit", NULL, NULL, NOTHING, do_quit},
};

static enum obeyed do_help(struct chat *c, const char *rest)
{
    (void)rest;
    int width = term_width(stderr), column = width < 60 ? 4 : 23;
    for (size_t i = 0; i < BN_ARRAY_LEN(commands); i++) {
        if (!commands[i].form) continue;
        int at = fprintf(stderr, "%s %s", commands[i].name, commands[i].form);
        term_wrap(stderr, commands[i].help, at, column, width);
    }
    term_wrap(
        stderr,
        line_editor_can_edit(c->editor)
            ? "Ctrl-C stops an answer. A message over several lines: end them with \\, or begin "
              "and "
              "end with \"\"\", or Alt-Enter, or paste it. Tab completes, Ctrl-R searches what was "
              "typed before."
            : "Ctrl-C stops an answer. A message over several lines: end them with \\, or begin "
              "and "
              "end with \"\"\".",
        0, 0, width);
    return OBEYED;
}

/* A line that begins with '/'. */
static enum obeyed obey(struct chat *c, char *line)
{
    size_t n = strcspn(line, " \n"), len = strlen(line);
    while (len > n && isspace((unsigned char)line[len - 1])) line[--len] = 0;
    const char *rest = line + n + strspn(line + n, " \n");
    struct bn_suggest near;
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)bn_min_size(n, sizeof name - 1), line);
    bn_suggest_start(&near, name);
    for (size_t i = 0; i < BN_ARRAY_LEN(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) return commands[i].obey(c, rest);
        bn_suggest_offer(&near, commands[i].name);
    }
    note(c, "there is no such command as %s%s%s%s; /help lists them", name,
         near.best ? "; did you mean " : "", near.best ? near.best : "", near.best ? "?" : "");
    return REFUSED;
}

static void offer_if(struct line_choices *out, const char *word, const char *typed)
{
    if (strncmp(word, typed, strlen(typed)) == 0) line_choices_offer(out, word);
}

/* Commands, and what may follow them. */
static void complete(void *user, const char *text, struct line_choices *out)
{
    (void)user;
    if (text[0] != '/') return;
    size_t n = strcspn(text, " ");
    out->start = 0;
    if (!text[n]) {
        for (size_t i = 0; i < BN_ARRAY_LEN(commands); i++)
            if (commands[i].form) offer_if(out, commands[i].name, text);
        return;
    }
    out->start = n + strspn(text + n, " ");
    const char *typed = text + out->start;
    for (size_t i = 0; i < BN_ARRAY_LEN(commands); i++) {
        if (strlen(commands[i].name) != n || strncmp(commands[i].name, text, n) != 0) continue;
        if (commands[i].follows == A_FILE) line_choices_files(out, typed);
        if (commands[i].follows == A_NAME)
            for (const struct opt_part *p = set_parts; p->table; p++)
                for (const struct opt *o = p->table; o->kind != OPT_END; o++)
                    offer_if(out, o->name, typed);
        if (commands[i].follows == A_TOPIC) {
            char topics[sizeof show_topics], *save = NULL;
            memcpy(topics, show_topics, sizeof topics);
            for (char *w = strtok_r(topics, "|", &save); w; w = strtok_r(NULL, "|", &save))
                offer_if(out, w, typed);
        }
    }
}

/* ------------------------------------------------------------------ lines */

/* One message, over several lines where they end in a backslash or stand between two """. */
static enum line_result read_message(struct chat *c, struct bn_buf *message)
{
    const size_t mark = sizeof block_mark - 1;
    bn_buf_clear(message);
    bn_buf_puts(message, "");
    bool block = false, goes_on = false;
    for (;;) {
        const char *line = NULL;
        enum line_result got =
            line_editor_read(c->editor, block || goes_on ? prompt_more : prompt_first, &line);
        if (got == LINE_END && message->len)
            return LINE_GOT; /* the input ended inside the message */
        if (got != LINE_GOT) return got;
        size_t n = strlen(line);
        if (!block && !goes_on && strncmp(line, block_mark, mark) == 0) {
            block = true;
            line += mark;
            n -= mark;
            if (!n) continue;
        }
        const char *end = block ? strstr(line, block_mark) : NULL;
        if (end) n = (size_t)(end - line);
        goes_on = !block && n && line[n - 1] == '\\';
        bn_buf_append(message, line, goes_on ? n - 1 : n);
        if (goes_on || (block && !end)) bn_buf_putc(message, '\n');
        if (message->failed) return LINE_TOO_LONG;
        if (end || (!goes_on && !block)) break;
    }
    while (block && message->len && message->data[message->len - 1] == '\n')
        message->data[--message->len] = 0;
    return LINE_GOT;
}

static int converse(struct chat *c)
{
    struct bn_buf message;
    bn_buf_init(&message, MESSAGE_MAX_BYTES);
    bool interactive = line_editor_is_interactive(c->editor), go_on = true;
    int code = EXIT_DONE;
    while (go_on) {
        enum line_result got = read_message(c, &message);
        bitnet_error err = {0};
        if (got == LINE_GOT && message.len && message.data[0] == '/') {
            go_on = obey(c, message.data) != LEAVE;
        } else if (got == LINE_GOT && message.data[strspn(message.data, " \t\n")]) {
            if (answer(c, message.data, &err) != BITNET_OK) {
                code = term_fail(&err);
                go_on = interactive; /* a script should learn of it, a person can try again */
            }
        } else if (got == LINE_INTERRUPTED && interactive && interrupt_by_user()) {
            note(c, "Ctrl-D or /quit leaves");
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

static bitnet_status open_lines(struct chat *c, bitnet_error *err)
{
    char folder[CACHE_PATH_BYTES], path[CACHE_PATH_BYTES + 16];
    bool kept = !c->config->no_history && term_is_tty(stdin) &&
                user_folder(folder, sizeof folder, "XDG_STATE_HOME", ".local/state");
    if (kept) snprintf(path, sizeof path, "%s/history", folder);
    history_open(&c->history, kept ? path : NULL);
    c->editor = line_editor_open(&c->history, complete, c);
    return c->editor ? BITNET_OK : bn_fail_nomem(err, 64, "line input");
}

static int open_and_converse(struct chat *c)
{
    bitnet_error err = {0};
    bitnet_status s =
        textio_chat_template(&c->template_owned, &c->chat_template, c->config->chat_template, &err);
    if (s == BITNET_OK) s = talk_set_system(&c->talk, c->config->system, &err);
    if (s == BITNET_OK) s = open_lines(c, &err);
    int code = EXIT_DONE;
    if (s == BITNET_OK) {
        if (line_editor_is_interactive(c->editor) && !c->config->quiet)
            print_model(c, ". /help lists what can be done.");
        code = converse(c);
    } else {
        code = term_fail(&err);
    }
    line_editor_close(c->editor);
    history_close(&c->history);
    talk_close(&c->talk);
    free(c->template_owned);
    bn_arena_free(&c->typed);
    return code;
}

static int run(void *config, const struct arg_words *words)
{
    struct chat_config *o = config;
    const char *model;
    int code = model_word(&model, o->model.model, o->model.model_typed, words, "chat");
    if (code != EXIT_DONE) return code;
    generate_choose_seed(&o->gen);
    struct chat *c = calloc(1, sizeof *c);
    if (!c) return term_fail_text("out of memory");
    c->config = o;
    c->start = *o;
    c->opening = o->model;
    code = open_model(c, model);
    if (code == EXIT_DONE) code = open_and_converse(c);
    close_engine(c);
    free(c);
    return code;
}

const struct command cmd_chat = {
    .name = "chat",
    .ranks = true,
    .usage = "[MODEL] [options]",
    .about =
        "\n"
        "Every line is a message; one that ends in \\ goes on in the next line, as does what\n"
        "stands between two \"\"\". A text that is pasted is one message. Ctrl-C stops an answer,\n"
        "Ctrl-D leaves, /help lists the commands. From a pipe, only the answers are printed.\n"
        "\n"
        "  bitnet chat model.gguf --system \"You answer in one sentence.\"\n",
    .first = "model system chat-template threads ctx-size max-new-tokens temp top-p seed quiet",
    .parts = parts,
    .config_bytes = sizeof(struct chat_config),
    .max_words = 1,
    .run = run,
};
