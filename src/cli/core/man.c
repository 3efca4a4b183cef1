/* SPDX-License-Identifier: Apache-2.0
 *
 * man.c: man pages, made from what the commands say of themselves: usage, description with its
 * examples, option tables.
 */
#include "cli/core/man.h"
#include <ctype.h>

enum { MAX_HELP_BYTES = 4096 };

/* Text of n bytes as roff: what it would take for requests or hyphens that may be broken. */
static void put_text(FILE *to, const char *s, size_t n, bool upper)
{
    bool line_start = true;
    for (size_t i = 0; i < n; i++) {
        if (line_start && (s[i] == '.' || s[i] == '\'')) fputs("\\&", to);
        line_start = s[i] == '\n';
        if (s[i] == '\\') fputs("\\e", to);
        else if (s[i] == '-') fputs("\\-", to);
        else if (s[i] == '\'') fputs("\\(aq", to);
        else fputc(upper ? toupper((unsigned char)s[i]) : s[i], to);
    }
}

static void put(FILE *to, const char *s) { put_text(to, s, strlen(s), false); }

static void put_head(FILE *to, const char *page, const char *summary)
{
    fputs(".TH \"", to);
    put_text(to, page, strlen(page), true);
    fprintf(to, "\" \"1\" \"\" \"bitnet %s\" \"User Commands\"\n.nh\n.ad l\n.SH NAME\n",
            bitnet_version());
    put(to, page);
    fputs(" \\- ", to);
    put(to, summary);
    fputc('\n', to);
}

/* Paragraphs; lines that begin with two spaces are examples, and stay as they are. */
static void put_about(FILE *to, const char *text)
{
    bool example = false, gap = true;
    while (*text) {
        size_t n = strcspn(text, "\n");
        bool indented = n > 2 && text[0] == ' ' && text[1] == ' ';
        if (example && !indented) fputs(".fi\n.RE\n", to);
        if (n == 0) gap = true;
        else if (gap && !indented) fputs(".PP\n", to);
        if (!example && indented) fputs(".PP\n.RS 4\n.nf\n", to);
        example = indented;
        if (n) {
            gap = false;
            put_text(to, text + (indented ? 2 : 0), n - (indented ? 2 : 0), false);
            fputc('\n', to);
        }
        text += n + (text[n] == '\n');
    }
    if (example) fputs(".fi\n.RE\n", to);
}

/* false: out of memory. The same of all that prints options. */
static bool put_option(FILE *to, const struct opt *o)
{
    fputs(".TP\n", to);
    if (o->letter) fprintf(to, "\\fB\\-%c\\fR, ", o->letter);
    fputs("\\fB\\-\\-", to);
    put(to, o->name);
    fputs("\\fR", to);
    if (o->kind != OPT_FLAG) {
        fputs(" \\fI", to);
        put(to, args_form(o));
        fputs("\\fR", to);
    }
    fputc('\n', to);
    struct bn_buf text;
    bn_buf_init(&text, MAX_HELP_BYTES);
    args_option_help(&text, o);
    bool whole = !text.failed;
    if (whole) put(to, text.data);
    bn_buf_free(&text);
    fputc('\n', to);
    return whole;
}

static bool put_table(FILE *to, const struct opt *o)
{
    bool whole = true;
    for (; whole && o->kind != OPT_END; o++) whole = put_option(to, o);
    return whole;
}

static bool put_options(FILE *to, const struct opt_part *parts)
{
    bool whole = true;
    fputs(".SH OPTIONS\n", to);
    for (; whole && parts->table; parts++) {
        if (parts->title) {
            fputs(".SS \"", to);
            put(to, parts->title);
            fputs("\"\n", to);
        }
        whole = put_table(to, parts->table);
    }
    fputs(".SS \"Settings\"\n", to);
    return whole && put_table(to, args_common);
}

static void put_end(FILE *to, const char *see)
{
    fputs(".SH EXIT STATUS\n", to);
    put(to, registry_exit_codes);
    fprintf(to, "\n.SH SEE ALSO\n%s\n", see);
}

static bool print_command(FILE *to, const struct entry *e)
{
    const struct command *c = e->command;
    char page[64];
    snprintf(page, sizeof page, "bitnet-%s", c->name);
    put_head(to, page, e->summary);
    fprintf(to, ".SH SYNOPSIS\n\\fBbitnet %s\\fR ", c->name);
    put(to, c->usage);
    fputs("\n.SH DESCRIPTION\n", to);
    fputc(toupper(e->summary[0]), to);
    put(to, e->summary + 1);
    fputs(".\n", to);
    put_about(to, c->about);
    bool whole = put_options(to, c->parts);
    put_end(to, "\\fBbitnet\\fR(1)");
    return whole;
}

static void print_program(FILE *to)
{
    put_head(to, "bitnet", "run 1\\-bit and ternary language models on CPUs");
    fputs(
        ".SH SYNOPSIS\n\\fBbitnet\\fR \\fICOMMAND\\fR [\\fIMODEL\\fR] [\\fIoptions\\fR]\n"
        ".SH DESCRIPTION\nRuns 1\\-bit and 1.58\\-bit language models on CPUs. \\fIMODEL\\fR is a "
        "GGUF file, a safetensors file or a Hugging Face folder; without one, the small model "
        "inside this program is used:\n"
        ".PP\n.RS 4\n.nf\nbitnet run \"Once upon a time\"\n.fi\n.RE\n.SH COMMANDS\n",
        to);
    const struct entry *e;
    for (size_t i = 0; (e = registry_at(i)); i++) {
        if (!e->command) continue;
        fprintf(to, ".TP\n\\fBbitnet\\-%s\\fR(1)\n", e->name);
        put(to, e->summary);
        fputc('\n', to);
    }
    fputs(".SH ENVIRONMENT\n.nf\n", to);
    put(to, registry_environment);
    fputs(".fi\n", to);
    fputs(".SH FILES\n.TP\n\\fI~/.config/bitnet/config.toml\\fR\nOptions of commands; see "
          "\\fBbitnet\\-config\\fR(1).\n",
          to);
    put_end(to, "\\fBbitnet\\-run\\fR(1), \\fBbitnet\\-chat\\fR(1), \\fBbitnet\\-serve\\fR(1)");
}

bool man_print(FILE *to, const struct entry *e)
{
    if (e) return print_command(to, e);
    print_program(to);
    return true;
}
