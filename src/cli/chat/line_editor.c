/* SPDX-License-Identifier: Apache-2.0
 *
 * line_editor.c: owns the line being read and the state of the terminal. While a person types, the terminal gives
 * every key at once and shows nothing by itself; while an answer comes, it shows nothing either, so that
 * Ctrl-C leaves no trace and what is typed ahead waits for the next line. Keys are those of Emacs, as in
 * every shell.
 */
#include "cli/chat/line_editor.h"

#include "cli/chat/screen.h"
#include "base/utf8.h"
#include "app/interrupt.h"
#include "app/term.h"
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

enum {
    LINE_MAX_BYTES = 1 << 20,
    SEQUENCE_MAX_BYTES = 16,
    ESCAPE_WAIT_MS =
        50, /* after which an escape was the key and not the beginning of another one's code */
    CHOICES_MAX_BYTES = 1 << 16,
    CTRL = 0x1f /* 'a' & CTRL is Ctrl-A */
};

struct line_editor {
    struct history *history;
    line_complete_fn *complete;
    void *user;
    const char *prompt;
    bool interactive, edits;
    struct termios before, reading, answering;
    struct bn_buf line, other;     /* other: the new line while one is rebuilt */
    struct bn_buf killed, pending; /* cut text; what the next line begins with */
    struct bn_buf stash;           /* the line as it was, while an older one is shown */
    size_t at;                     /* the cursor, in bytes */
    size_t history_at;
    struct screen screen;
    unsigned char input[4096]; /* read, not yet taken: [input_at, input_bytes) */
    size_t input_at, input_bytes;
};

static const char more_prompt[] = ". ";

/* ------------------------------------------------------------------ bytes */

/* The next byte of standard input: 0..255, or one of these. Not through stdio: its reads would
 * sleep through an interrupt. */
enum { BYTE_END = -1, BYTE_INTERRUPTED = -2, BYTE_FAILED = -3, BYTE_NONE = -4 };
static int next_byte(struct line_editor *ed)
{
    while (ed->input_at == ed->input_bytes) {
        if (!interrupt_wait_readable(STDIN_FILENO)) return BYTE_INTERRUPTED;
        ssize_t got = read(STDIN_FILENO, ed->input, sizeof ed->input);
        if (got < 0 && errno != EINTR && errno != EAGAIN) return BYTE_FAILED;
        if (got == 0) return BYTE_END;
        ed->input_at = 0;
        ed->input_bytes = got > 0 ? (size_t)got : 0;
    }
    return ed->input[ed->input_at++];
}

/* One that is there already, or nearly. */
static int soon_byte(struct line_editor *ed)
{
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    if (ed->input_at == ed->input_bytes && poll(&p, 1, ESCAPE_WAIT_MS) != 1) return BYTE_NONE;
    return next_byte(ed);
}

/* ------------------------------------------------------------------ the text */

static void replace(struct line_editor *ed, size_t from, size_t to, const char *text, size_t n)
{
    bn_buf_clear(&ed->other);
    ed->other.failed = false;
    bn_buf_append(&ed->other, ed->line.data, from);
    bn_buf_append(&ed->other, text, n);
    bn_buf_append(&ed->other, ed->line.data + to, ed->line.len - to);
    if (ed->other.failed) { /* longer than a line may be: it stays as it was */
        fputc('\a', stderr);
        return;
    }
    bn_buf_putc(&ed->other, 0);
    ed->other.len--;
    struct bn_buf old = ed->line;
    ed->line = ed->other;
    ed->other = old;
    ed->at = from + n;
}

static void set_text(struct line_editor *ed, const char *text)
{
    replace(ed, 0, ed->line.len, text, strlen(text));
}

static void insert(struct line_editor *ed, const char *text, size_t n)
{
    replace(ed, ed->at, ed->at, text, n);
}

static size_t next_place(const struct line_editor *ed, size_t at)
{
    int columns;
    return at < ed->line.len ? at + screen_cluster(ed->line.data + at, ed->line.len - at, &columns)
                             : at;
}

static size_t line_start(const struct line_editor *ed, size_t at)
{
    while (at && ed->line.data[at - 1] != '\n') at--;
    return at;
}

static size_t line_end(const struct line_editor *ed, size_t at)
{
    while (at < ed->line.len && ed->line.data[at] != '\n') at++;
    return at;
}

static size_t previous_place(const struct line_editor *ed, size_t at)
{
    size_t start = line_start(ed, at), place = start;
    if (start == at) return at ? at - 1 : 0;
    for (size_t next; (next = next_place(ed, place)) < at; place = next) {
    }
    return place;
}

/* Letters, digits, and everything that is not ASCII. */
static bool in_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c & 0x80;
}

static size_t word_left(const struct line_editor *ed, size_t at)
{
    while (at && !in_word(ed->line.data[at - 1])) at--;
    while (at && in_word(ed->line.data[at - 1])) at--;
    return at;
}

static size_t word_right(const struct line_editor *ed, size_t at)
{
    while (at < ed->line.len && !in_word(ed->line.data[at])) at++;
    while (at < ed->line.len && in_word(ed->line.data[at])) at++;
    return at;
}

static void cut(struct line_editor *ed, size_t from, size_t to)
{
    if (from == to) return;
    bn_buf_clear(&ed->killed);
    bn_buf_append(&ed->killed, ed->line.data + from, to - from);
    replace(ed, from, to, "", 0);
}

static void delete (struct line_editor *ed, size_t from, size_t to)
{
    replace(ed, from, to, "", 0);
}

/* To the space before the last word, as Ctrl-W does everywhere. */
static size_t blank_left(const struct line_editor *ed, size_t at)
{
    while (at && strchr(" \t\n", ed->line.data[at - 1])) at--;
    while (at && !strchr(" \t\n", ed->line.data[at - 1])) at--;
    return at;
}

/* ------------------------------------------------------------------ lines above and below, history */

static void show_entry(struct line_editor *ed, size_t entry)
{
    struct history *h = ed->history;
    if (ed->history_at == h->n) {
        bn_buf_clear(&ed->stash);
        bn_buf_append(&ed->stash, ed->line.data, ed->line.len);
        bn_buf_puts(&ed->stash, "");
    }
    ed->history_at = entry;
    set_text(ed, entry < h->n ? h->entries[entry] : ed->stash.data ? ed->stash.data : "");
}

static void move_up(struct line_editor *ed)
{
    size_t start = line_start(ed, ed->at);
    if (start) {
        size_t above = line_start(ed, start - 1), target = above;
        int column = screen_columns(ed->line.data + start, ed->at - start);
        while (target < start - 1 && screen_columns(ed->line.data + above, target - above) < column)
            target = next_place(ed, target);
        ed->at = target;
    } else if (ed->history && ed->history_at > 0) {
        show_entry(ed, ed->history_at - 1);
    }
}

static void move_down(struct line_editor *ed)
{
    size_t end = line_end(ed, ed->at), start = line_start(ed, ed->at);
    if (end < ed->line.len) {
        int column = screen_columns(ed->line.data + start, ed->at - start);
        size_t below = end + 1, target = below, stop = line_end(ed, below);
        while (target < stop && screen_columns(ed->line.data + below, target - below) < column)
            target = next_place(ed, target);
        ed->at = target;
    } else if (ed->history && ed->history_at < ed->history->n) {
        show_entry(ed, ed->history_at + 1);
    }
}

/* ------------------------------------------------------------------ completion */

void line_choices_offer(struct line_choices *c, const char *word)
{
    if (bn_buf_append(&c->all, word, strlen(word) + 1)) c->n++;
}

void line_choices_files(struct line_choices *c, const char *typed)
{
    const char *slash = strrchr(typed, '/');
    size_t folder_bytes = slash ? (size_t)(slash + 1 - typed) : 0, n = strlen(typed);
    struct bn_buf path;
    bn_buf_init(&path, 8192);
    const char *home = getenv("HOME");
    if (strncmp(typed, "~/", 2) == 0 && home) {
        bn_buf_puts(&path, home);
        bn_buf_append(&path, typed + 1, folder_bytes - 1);
    } else {
        bn_buf_append(&path, folder_bytes ? typed : "./", folder_bytes ? folder_bytes : 2);
    }
    size_t base = path.len;
    DIR *d = path.failed ? NULL : opendir(path.data);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (strncmp(e->d_name, typed + folder_bytes, n - folder_bytes) != 0) continue;
        if (e->d_name[0] == '.' && n == folder_bytes) continue;
        struct stat st;
        path.len = base;
        bn_buf_puts(&path, e->d_name);
        bool folder = !path.failed && stat(path.data, &st) == 0 && S_ISDIR(st.st_mode);
        struct bn_buf word;
        bn_buf_init(&word, 8192);
        bn_buf_append(&word, typed, folder_bytes);
        bn_buf_puts(&word, e->d_name);
        if (folder) bn_buf_putc(&word, '/');
        if (!word.failed) line_choices_offer(c, word.data);
        bn_buf_free(&word);
    }
    if (d) closedir(d);
    bn_buf_free(&path);
}

/* Bytes that all choices begin with, whole characters only. */
static size_t common_bytes(const struct line_choices *c)
{
    const char *first = c->all.data;
    size_t same = strlen(first);
    const char *word = first;
    for (size_t i = 0; i < c->n; i++, word += strlen(word) + 1) {
        size_t k = 0;
        while (k < same && word[k] == first[k]) k++;
        same = k;
    }
    return same - bn_utf8_tail(first, same);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_choices(struct line_editor *ed, const struct line_choices *c)
{
    const char **words = malloc(c->n * sizeof *words);
    if (!words) return;
    const char *word = c->all.data;
    for (size_t i = 0; i < c->n; i++, word += strlen(word) + 1) words[i] = word;
    qsort(words, c->n, sizeof *words, by_name);
    size_t at = ed->at;
    ed->at = ed->line.len;
    screen_leave(&ed->screen);
    int width = term_width(stderr), used = 0;
    for (size_t i = 0; i < c->n; i++) {
        int columns = screen_columns(words[i], strlen(words[i]));
        if (used && used + 2 + columns > width) {
            fputc('\n', stderr);
            used = 0;
        }
        fputs(used ? "  " : "", stderr);
        term_print_clean(stderr, words[i]);
        used += columns + (used ? 2 : 0);
    }
    fputc('\n', stderr);
    ed->at = at;
    free(words);
}

static void complete_word(struct line_editor *ed)
{
    struct line_choices c = {.start = ed->at};
    bn_buf_init(&c.all, CHOICES_MAX_BYTES);
    struct bn_buf head;
    bn_buf_init(&head, LINE_MAX_BYTES + 1);
    bn_buf_append(&head, ed->line.data, ed->at);
    bn_buf_puts(&head, "");
    if (ed->complete && head.data) ed->complete(ed->user, head.data, &c);
    size_t typed = ed->at - c.start;
    if (c.n) {
        size_t same = common_bytes(&c);
        bool got_on = same > typed;
        if (got_on || c.n == 1) {
            replace(ed, c.start, ed->at, c.all.data, same);
            if (c.n == 1 && same && c.all.data[same - 1] != '/') insert(ed, " ", 1);
        }
        if (!got_on && c.n > 1) list_choices(ed, &c);
    }
    bn_buf_free(&head);
    bn_buf_free(&c.all);
}

/* ------------------------------------------------------------------ keys */

enum key_result { KEY_TAKEN, KEY_ENTER, KEY_END, KEY_INTERRUPTED, KEY_FAILED };

/* What is pasted is text, line ends and all. */
static void paste(struct line_editor *ed)
{
    static const char end[] = "\033[201~";
    struct bn_buf text;
    bn_buf_init(&text, LINE_MAX_BYTES);
    for (int byte, last = 0; (byte = next_byte(ed)) >= 0; last = byte) {
        if (byte == '\n' && last == '\r') continue;
        bn_buf_putc(&text, byte == '\r' ? '\n' : (char)byte);
        const size_t n = sizeof end - 1;
        if (byte == '~' && text.len >= n && memcmp(text.data + text.len - n, end, n) == 0) {
            text.len -= n;
            break;
        }
    }
    while (text.len && text.data[text.len - 1] == '\n') text.len--;
    size_t kept = 0; /* control characters would not be seen */
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c >= 0x20 || c == '\n' || c == '\t') text.data[kept++] = (char)c;
    }
    if (text.failed) fputc('\a', stderr);
    else if (kept) insert(ed, text.data, kept);
    bn_buf_free(&text);
}

static void to_start(struct line_editor *ed) { ed->at = line_start(ed, ed->at); }
static void to_end(struct line_editor *ed) { ed->at = line_end(ed, ed->at); }
static void to_left(struct line_editor *ed) { ed->at = previous_place(ed, ed->at); }
static void to_right(struct line_editor *ed) { ed->at = next_place(ed, ed->at); }
static void to_word_left(struct line_editor *ed) { ed->at = word_left(ed, ed->at); }
static void to_word_right(struct line_editor *ed) { ed->at = word_right(ed, ed->at); }
static void rub_out(struct line_editor *ed) { delete (ed, previous_place(ed, ed->at), ed->at); }
static void rub_out_right(struct line_editor *ed)
{
    size_t at = ed->at;
    delete (ed, at, next_place(ed, at));
    ed->at = at;
}
static void cut_right(struct line_editor *ed)
{
    size_t at = ed->at, end = line_end(ed, at);
    cut(ed, at, end == at ? next_place(ed, at) : end);
}
static void cut_left(struct line_editor *ed) { cut(ed, line_start(ed, ed->at), ed->at); }
static void cut_blank(struct line_editor *ed) { cut(ed, blank_left(ed, ed->at), ed->at); }
static void cut_word_left(struct line_editor *ed) { cut(ed, word_left(ed, ed->at), ed->at); }
static void cut_word_right(struct line_editor *ed) { cut(ed, ed->at, word_right(ed, ed->at)); }
static void yank(struct line_editor *ed)
{
    if (ed->killed.len) insert(ed, ed->killed.data, ed->killed.len);
}
static void new_line(struct line_editor *ed) { insert(ed, "\n", 1); }
static void clear_screen(struct line_editor *ed)
{
    fputs("\033[H\033[2J", stderr);
    ed->screen = (struct screen){0};
}

static void set_modes(const struct line_editor *ed, const struct termios *modes, bool pasting)
{
    tcsetattr(STDIN_FILENO, TCSADRAIN, modes);
    fputs(pasting ? "\033[?2004h" : "\033[?2004l", stderr);
    fflush(stderr);
    interrupt_keep_terminal(modes == &ed->before ? NULL : &ed->before);
}

static void suspend(struct line_editor *ed)
{
    screen_leave(&ed->screen);
    set_modes(ed, &ed->before, false);
    kill(0, SIGTSTP);
    set_modes(ed, &ed->reading, true);
}

typedef void action_fn(struct line_editor *ed);

static const struct key_action {
    const char *code;
    action_fn *act;
} controls[] = {
    {"\x01", to_start},  {"\x02", to_left},      {"\x04", rub_out_right}, {"\x05", to_end},
    {"\x06", to_right},  {"\x08", rub_out},      {"\x09", complete_word}, {"\x0a", new_line},
    {"\x0b", cut_right}, {"\x0c", clear_screen}, {"\x0e", move_down},     {"\x10", move_up},
    {"\x15", cut_left},  {"\x17", cut_blank},    {"\x19", yank},          {"\x1a", suspend},
    {"\x7f", rub_out},
};
/* What follows the escape. */
static const struct key_action sequences[] = {
    {"[A", move_up},         {"[B", move_down},        {"[C", to_right},
    {"[D", to_left},         {"[H", to_start},         {"[F", to_end},
    {"OA", move_up},         {"OB", move_down},        {"OC", to_right},
    {"OD", to_left},         {"OH", to_start},         {"OF", to_end},
    {"[1~", to_start},       {"[4~", to_end},          {"[7~", to_start},
    {"[8~", to_end},         {"[3~", rub_out_right},   {"[1;5C", to_word_right},
    {"[1;5D", to_word_left}, {"[1;3C", to_word_right}, {"[1;3D", to_word_left},
    {"[200~", paste},        {"b", to_word_left},      {"f", to_word_right},
    {"d", cut_word_right},   {"\x7f", cut_word_left},  {"\r", new_line},
    {"\n", new_line},
};

static void act_on(struct line_editor *ed, const struct key_action *list, size_t n,
                   const char *code)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].code, code) == 0) {
            list[i].act(ed);
            return;
        }
}

static void escape_key(struct line_editor *ed)
{
    char code[SEQUENCE_MAX_BYTES] = {0};
    size_t n = 0;
    for (int byte; n + 1 < sizeof code && (byte = soon_byte(ed)) >= 0;) {
        code[n++] = (char)byte;
        bool introduces = n == 1 && (byte == '[' || byte == 'O');
        bool goes_on = n > 1 && code[0] == '[' && byte >= 0x20 && byte < 0x40;
        if (!introduces && !goes_on) break;
    }
    act_on(ed, sequences, BN_ARRAY_LEN(sequences), code);
}

/* A character whose first byte has come. */
static void type_character(struct line_editor *ed, int first)
{
    char bytes[4] = {(char)first};
    size_t n = 1;
    uint32_t cp;
    while (n < sizeof bytes && !bn_utf8_decode(bytes, n, &cp) && bn_utf8_tail(bytes, n) == n) {
        int byte = next_byte(ed);
        if (byte < 0) return;
        bytes[n++] = (char)byte;
    }
    if (bn_utf8_decode(bytes, n, &cp) == n) insert(ed, bytes, n);
    else insert(ed, "\xef\xbf\xbd", 3);
}

static void draw(struct line_editor *ed, const char *prompt)
{
    screen_draw(&ed->screen, prompt, more_prompt, ed->line.data, ed->line.len, ed->at);
}

/* Ctrl-R: each further letter narrows, Ctrl-R goes to an older one. Returns the byte that ended it, which is
 * then a key like any other; Ctrl-G gives the line back as it was. */
static int search(struct line_editor *ed)
{
    struct bn_buf wanted, prompt, before;
    bn_buf_init(&wanted, 256);
    bn_buf_init(&prompt, 512);
    bn_buf_init(&before, LINE_MAX_BYTES + 1);
    bn_buf_append(&before, ed->line.data, ed->line.len + 1);
    bn_buf_puts(&wanted, "");
    size_t found = ed->history->n;
    int byte;
    for (;;) {
        bn_buf_clear(&prompt);
        bn_buf_printf(&prompt, "(search '%s') ", wanted.data);
        draw(ed, prompt.failed ? "(search) " : prompt.data);
        byte = next_byte(ed);
        size_t from = found;
        if (byte == 0x7f || byte == 0x08) {
            while (wanted.len && (wanted.data[--wanted.len] & 0xc0) == 0x80) {
            }
            wanted.data[wanted.len] = 0;
            from = ed->history->n;
        } else if (byte >= 0x20) {
            bn_buf_putc(&wanted, (char)byte);
            from = found < ed->history->n ? found + 1 : found;
        } else if (byte != ('r' & CTRL)) {
            break;
        }
        size_t next = wanted.len ? history_find(ed->history, from, wanted.data) : SIZE_MAX;
        if (next != SIZE_MAX) {
            found = next;
            set_text(ed, ed->history->entries[found]);
            ed->history_at = found;
        }
    }
    if (byte == ('g' & CTRL)) {
        set_text(ed, before.data);
        ed->history_at = ed->history->n;
        byte = 0;
    }
    bn_buf_free(&before);
    bn_buf_free(&prompt);
    bn_buf_free(&wanted);
    return byte;
}

static enum key_result take_key(struct line_editor *ed)
{
    int byte = next_byte(ed);
    if (byte == ('r' & CTRL) && ed->history && ed->history->n) byte = search(ed);
    if (byte == BYTE_INTERRUPTED) return KEY_INTERRUPTED;
    if (byte == BYTE_FAILED) return KEY_FAILED;
    if (byte == BYTE_END || (byte == ('d' & CTRL) && ed->line.len == 0)) return KEY_END;
    if (byte == '\r') return KEY_ENTER;
    const char code[2] = {(char)byte, 0};
    if (byte == 0x1b) escape_key(ed);
    else if (byte >= 0x20 && byte != 0x7f) type_character(ed, byte);
    else act_on(ed, controls, BN_ARRAY_LEN(controls), code);
    return KEY_TAKEN;
}

static enum line_result edit_read(struct line_editor *ed, const char **text)
{
    set_modes(ed, &ed->reading, true);
    set_text(ed, ed->pending.data ? ed->pending.data : "");
    bn_buf_clear(&ed->pending);
    ed->history_at = ed->history ? ed->history->n : 0;
    ed->screen = (struct screen){0};
    enum key_result got = KEY_TAKEN;
    while (got == KEY_TAKEN) {
        if (ed->input_at == ed->input_bytes) draw(ed, ed->prompt);
        got = take_key(ed);
    }
    ed->at = ed->line.len;
    draw(ed, ed->prompt);
    screen_leave(&ed->screen);
    set_modes(ed, &ed->answering, false);
    if (got == KEY_INTERRUPTED) return LINE_INTERRUPTED;
    if (got != KEY_ENTER) return got == KEY_END ? LINE_END : LINE_FAILED;
    if (ed->history && ed->line.data[strspn(ed->line.data, " \t\n")])
        history_add(ed->history, ed->line.data);
    *text = ed->line.data;
    return LINE_GOT;
}

/* ------------------------------------------------------------------ lines */

static enum line_result plain_read(struct line_editor *ed, const char **text)
{
    if (ed->interactive) {
        fputs(ed->prompt, stderr);
        fflush(stderr);
    }
    bn_buf_clear(&ed->line);
    bn_buf_puts(&ed->line, "");
    ed->line.failed = false;
    int byte;
    while ((byte = next_byte(ed)) >= 0 && byte != '\n')
        bn_buf_putc(&ed->line, (char)byte); /* what does not fit is read and remembered as failed */
    if (byte == BYTE_FAILED) return LINE_FAILED;
    if (byte == BYTE_INTERRUPTED) {
        if (ed->interactive) fputc('\n', stderr);
        return LINE_INTERRUPTED;
    }
    if (ed->line.failed) return LINE_TOO_LONG;
    if (byte == BYTE_END && ed->line.len == 0) {
        if (ed->interactive) fputc('\n', stderr);
        return LINE_END;
    }
    if (ed->line.len && ed->line.data[ed->line.len - 1] == '\r') ed->line.data[--ed->line.len] = 0;
    *text = ed->line.data;
    return LINE_GOT;
}

static void edit_open(struct line_editor *ed)
{
    const char *kind = getenv("TERM");
    if (!ed->interactive || !term_is_tty(stderr) || !kind || strcmp(kind, "dumb") == 0) return;
    if (tcgetattr(STDIN_FILENO, &ed->before) != 0) return;
    struct termios t = ed->before;
    t.c_iflag &= (tcflag_t) ~(IXON | ICRNL | INLCR | IGNCR);
    t.c_lflag &= (tcflag_t) ~(ICANON | ECHO | IEXTEN);
    t.c_cc[VMIN] = 1;
    t.c_cc[VTIME] = 0;
    ed->answering = ed->reading = t;
    ed->reading.c_cc[VSUSP] = _POSIX_VDISABLE; /* then it is a key, before which we tidy up */
    ed->edits = true;
    set_modes(ed, &ed->answering, false);
}

struct line_editor *line_editor_open(struct history *history, line_complete_fn *complete,
                                     void *user)
{
    struct line_editor *ed = calloc(1, sizeof *ed);
    if (!ed) return NULL;
    ed->history = history;
    ed->complete = complete;
    ed->user = user;
    ed->interactive = term_is_tty(stdin);
    bn_buf_init(&ed->line, LINE_MAX_BYTES);
    bn_buf_init(&ed->other, LINE_MAX_BYTES);
    bn_buf_init(&ed->killed, LINE_MAX_BYTES);
    bn_buf_init(&ed->pending, LINE_MAX_BYTES);
    bn_buf_init(&ed->stash, LINE_MAX_BYTES);
    bn_buf_puts(&ed->line, "");
    edit_open(ed);
    return ed;
}

void line_editor_close(struct line_editor *ed)
{
    if (!ed) return;
    if (ed->edits) set_modes(ed, &ed->before, false);
    bn_buf_free(&ed->line);
    bn_buf_free(&ed->other);
    bn_buf_free(&ed->killed);
    bn_buf_free(&ed->pending);
    bn_buf_free(&ed->stash);
    free(ed);
}

enum line_result line_editor_read(struct line_editor *ed, const char *prompt, const char **text)
{
    ed->prompt = prompt;
    return ed->edits ? edit_read(ed, text) : plain_read(ed, text);
}

bool line_editor_ask(struct line_editor *ed, const char *question)
{
    const char *line = NULL;
    struct history *history = ed->history;
    ed->history = NULL;
    enum line_result got = line_editor_read(ed, question, &line);
    ed->history = history;
    return got == LINE_GOT && (line[0] == 'y' || line[0] == 'Y');
}

void line_editor_prefill(struct line_editor *ed, const char *text)
{
    bn_buf_clear(&ed->pending);
    bn_buf_puts(&ed->pending, text);
}

bool line_editor_is_interactive(const struct line_editor *ed) { return ed->interactive; }
bool line_editor_can_edit(const struct line_editor *ed) { return ed->edits; }
