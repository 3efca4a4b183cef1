/* SPDX-License-Identifier: Apache-2.0
 *
 * toml.c: lines, names and tables. What stands behind the equals sign is read by toml_value.c.
 */
#include "app/config/toml_impl.h"

bitnet_status toml_fail(const struct toml_reader *r, const char *what)
{
    return bn_fail(r->err, BITNET_E_FORMAT, "%s:%u: %s", r->name, r->line, what);
}

bitnet_status toml_node(struct toml **out, struct toml_reader *r, enum toml_kind kind)
{
    if (++r->nodes > TOML_MAX_NODES)
        return bn_fail(r->err, BITNET_E_LIMIT, "%s:%u: more than %d values", r->name, r->line,
                       TOML_MAX_NODES);
    *out = bn_arena_alloc(r->arena, sizeof **out);
    if (!*out) return bn_fail_nomem(r->err, sizeof **out, r->name);
    (*out)->kind = kind;
    (*out)->line = r->line;
    return BITNET_OK;
}

void toml_append(struct toml *to, struct toml *node)
{
    if (to->last) to->last->next = node;
    else to->first = node;
    to->last = node;
}

/* ------------------------------------------------------------------ space */

void toml_blanks(struct toml_reader *r)
{
    while (toml_peek(r) == ' ' || toml_peek(r) == '\t') r->at++;
}

bool toml_newline(struct toml_reader *r)
{
    size_t n = toml_peek(r) == '\r' ? 2 : 1;
    if (r->end - r->at < n || r->text[r->at + n - 1] != '\n') return false;
    r->at += n;
    r->line++;
    return true;
}

bitnet_status toml_comment(struct toml_reader *r)
{
    toml_blanks(r);
    if (toml_peek(r) != '#') return BITNET_OK;
    for (; r->at < r->end && toml_peek(r) != '\n'; r->at++) {
        unsigned char c = (unsigned char)toml_peek(r);
        bool line_end = c == '\r' && r->at + 1 < r->end && r->text[r->at + 1] == '\n';
        if (line_end) break;
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return toml_fail(r, "a control character in a comment");
    }
    return BITNET_OK;
}

bitnet_status toml_space(struct toml_reader *r)
{
    do BN_TRY(toml_comment(r));
    while (toml_newline(r));
    return BITNET_OK;
}

/* ------------------------------------------------------------------ names */

/* One part of a name, n bytes. */
struct name {
    const char *text;
    size_t n;
};

static bool is_bare(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static bitnet_status read_name(struct name *out, struct toml_reader *r)
{
    toml_blanks(r);
    char c = toml_peek(r);
    if (c == '"' || c == '\'') return toml_string(&out->text, &out->n, r, false);
    out->text = r->text + r->at;
    while (is_bare(toml_peek(r))) r->at++;
    out->n = (size_t)(r->text + r->at - out->text);
    if (!out->n) return toml_fail(r, "a name was expected");
    return BITNET_OK;
}

static struct toml *look(const struct toml *table, const struct name *k)
{
    for (struct toml *t = table->first; t; t = t->next)
        if (t->key_bytes == k->n && memcmp(t->key, k->text, k->n) == 0) return t;
    return NULL;
}

const struct toml *toml_get(const struct toml *table, const char *key)
{
    return look(table, &(struct name){key, strlen(key)});
}

static bitnet_status twice(const struct toml_reader *r, const struct name *k,
                           const struct toml *other)
{
    return bn_fail(r->err, BITNET_E_FORMAT, "%s:%u: '%.*s' stands in line %u already", r->name,
                   r->line, (int)bn_min_size(k->n, 60), k->text, other->line);
}

static bitnet_status add(struct toml **out, struct toml_reader *r, struct toml *table,
                         const struct name *k, enum toml_kind kind)
{
    BN_TRY(toml_node(out, r, kind));
    (*out)->key = bn_arena_strn(r->arena, k->text, k->n);
    if (!(*out)->key) return bn_fail_nomem(r->err, k->n, r->name);
    (*out)->key_bytes = k->n;
    toml_append(table, *out);
    return BITNET_OK;
}

/* ------------------------------------------------------------------ a line */

bitnet_status toml_pair(struct toml_reader *r, struct toml *table, unsigned depth)
{
    struct name k;
    struct toml *t;
    BN_TRY(read_name(&k, r));
    for (unsigned dots = 0;; dots++) {
        toml_blanks(r);
        if (toml_peek(r) != '.') break;
        r->at++;
        if (dots == TOML_MAX_DEPTH) return toml_fail(r, "a name with too many dots");
        if (!(t = look(table, &k))) {
            BN_TRY(add(&t, r, table, &k, TOML_TABLE));
        } else if (t->kind != TOML_TABLE || t->header || t->complete) {
            return twice(r, &k, t);
        }
        t->dotted = true;
        table = t;
        BN_TRY(read_name(&k, r));
    }
    if (toml_peek(r) != '=') return toml_fail(r, "'=' was expected behind the name");
    r->at++;
    if ((t = look(table, &k))) return twice(r, &k, t);
    toml_blanks(r);
    BN_TRY(add(&t, r, table, &k, TOML_STRING));
    return toml_value(t, r, depth);
}

/* What a header's name leads through: a table, or the last one of an array of tables. */
static bitnet_status step_into(struct toml **table, struct toml_reader *r, const struct name *k)
{
    struct toml *t = look(*table, k);
    if (!t) return add(table, r, *table, k, TOML_TABLE);
    if (t->complete || (t->kind != TOML_TABLE && t->kind != TOML_ARRAY)) return twice(r, k, t);
    *table = t->kind == TOML_ARRAY ? t->last : t;
    return BITNET_OK;
}

static bitnet_status open_table(struct toml **table, struct toml_reader *r, const struct name *k)
{
    struct toml *t = look(*table, k);
    if (!t) BN_TRY(add(&t, r, *table, k, TOML_TABLE));
    else if (t->kind != TOML_TABLE || t->header || t->dotted || t->complete) return twice(r, k, t);
    t->header = true;
    t->line = r->line;
    *table = t;
    return BITNET_OK;
}

static bitnet_status open_item(struct toml **table, struct toml_reader *r, const struct name *k)
{
    struct toml *t = look(*table, k), *item;
    if (!t) BN_TRY(add(&t, r, *table, k, TOML_ARRAY));
    else if (t->kind != TOML_ARRAY || t->complete) return twice(r, k, t);
    BN_TRY(toml_node(&item, r, TOML_TABLE));
    item->header = true;
    toml_append(t, item);
    *table = item;
    return BITNET_OK;
}

/* [name] or [[name]] */
static bitnet_status read_header(struct toml **table, struct toml_reader *r, struct toml *root)
{
    struct name k;
    r->at++;
    bool item = toml_peek(r) == '[';
    r->at += item;
    *table = root;
    BN_TRY(read_name(&k, r));
    for (unsigned dots = 0;; dots++) {
        toml_blanks(r);
        if (toml_peek(r) != '.') break;
        r->at++;
        if (dots == TOML_MAX_DEPTH) return toml_fail(r, "a name with too many dots");
        BN_TRY(step_into(table, r, &k));
        BN_TRY(read_name(&k, r));
    }
    for (int i = 0; i <= item; i++, r->at++)
        if (toml_peek(r) != ']')
            return toml_fail(r, item ? "']]' was expected" : "']' was expected");
    return item ? open_item(table, r, &k) : open_table(table, r, &k);
}

static bitnet_status read_line(struct toml **table, struct toml_reader *r, struct toml *root)
{
    toml_blanks(r);
    char c = toml_peek(r);
    if (c == '[') BN_TRY(read_header(table, r, root));
    else if (c && c != '\n' && c != '\r' && c != '#') BN_TRY(toml_pair(r, *table, 0));
    BN_TRY(toml_comment(r));
    if (r->at < r->end && !toml_newline(r))
        return toml_fail(r, "the line goes on where it should end");
    return BITNET_OK;
}

bitnet_status toml_read(struct toml **out, struct bn_arena *arena, const char *text, size_t n,
                        const char *name, bitnet_error *err)
{
    struct toml_reader r = {.arena = arena, .text = text, .end = n, .name = name, .err = err};
    size_t bad;
    r.line = 1;
    if (n > TOML_MAX_BYTES)
        return bn_fail(err, BITNET_E_LIMIT, "%s has %zu bytes; %d are read at most", name, n,
                       TOML_MAX_BYTES);
    if (!bn_utf8_valid(text, n, &bad)) {
        for (size_t i = 0; i < bad; i++) r.line += text[i] == '\n';
        return toml_fail(&r, "the text is not UTF-8");
    }
    struct toml *table;
    BN_TRY(toml_node(out, &r, TOML_TABLE));
    table = *out;
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) r.at = 3;
    while (r.at < r.end) BN_TRY(read_line(&table, &r, *out));
    return BITNET_OK;
}
