/* SPDX-License-Identifier: Apache-2.0
 * Added tokens in the text: <|eot_id|> and the like. All their texts are one trie; a scan over the
 * text takes at each place the longest that fits, so the time is that of the text, not text times
 * tokens. */
#include "text/tokenizer/tokenizer_impl.h"

#include "base/utf8.h"
#include <stdlib.h>
#include <utf8proc.h>

static bool is_special(uint8_t type, bool *control)
{
    *control = type == BN_TOKEN_CONTROL || type == BN_TOKEN_UNKNOWN;
    return *control || type == BN_TOKEN_USER;
}

static uint32_t child_of(const struct bn_special *s, uint32_t first, uint8_t byte)
{
    while (first && s->nodes[first].byte != byte) first = s->nodes[first].sibling;
    return first;
}

static bool add(struct bn_special *s, const struct bn_str *text, int32_t id, bool control)
{
    uint32_t parent = 0;
    for (size_t i = 0; i < text->n; i++) {
        uint8_t byte = (uint8_t)text->s[i];
        uint32_t first = parent ? s->nodes[parent].child : s->root[byte];
        uint32_t node = child_of(s, first, byte);
        if (!node) {
            if (!bn_grow((void **)&s->nodes, &s->room, s->n + 1, sizeof *s->nodes)) return false;
            node = (uint32_t)s->n++;
            s->nodes[node] = (struct bn_special_node){.sibling = first, .id = -1, .byte = byte};
            if (parent) s->nodes[parent].child = node;
            else s->root[byte] = node;
        }
        parent = node;
    }
    struct bn_special_node *end = &s->nodes[parent];
    if (end->id < 0 ||
        (end->control &&
         !control)) { /* the first of equal texts, the freely matched one before all */
        end->id = id;
        end->control = control;
    }
    uint8_t first = (uint8_t)text->s[0];
    s->starts[1][first] = 1;
    s->any[1] = true;
    if (!control) {
        s->starts[0][first] = 1;
        s->any[0] = true;
    }
    return true;
}

bitnet_status bn_special_build(struct bn_special *s, const struct bn_vocab *v, bitnet_error *err)
{
    s->n = 1; /* node 0 means none */
    if (!bn_grow((void **)&s->nodes, &s->room, 64, sizeof *s->nodes))
        return bn_fail_nomem(err, 64, "special tokens");
    for (uint32_t i = 0; i < v->n_tokens; i++) {
        bool control;
        if (v->tokens[i].n == 0 || !is_special(v->types[i], &control)) continue;
        if (s->n > UINT32_MAX / 2 || !add(s, &v->tokens[i], (int32_t)i, control))
            return bn_fail_nomem(err, s->n * sizeof *s->nodes, "special tokens");
    }
    return BITNET_OK;
}

void bn_special_free(struct bn_special *s)
{
    free(s->nodes);
    *s = (struct bn_special){0};
}

static size_t space_at(const char *p, size_t n)
{
    uint32_t c;
    size_t len = bn_utf8_decode(p, n, &c);
    if (len == 0) return 0;
    bool space = (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
                 (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
                 c == 0x205f || c == 0x3000;
    return space ? len : 0;
}

/* where the last character of p[0..n) begins */
static size_t last_char(const char *p, size_t n)
{
    size_t i = n - 1;
    while (i > 0 && n - i < 4 && ((unsigned char)p[i] & 0xc0) == 0x80) i--;
    return i;
}

static bool word_char(const char *p, size_t n)
{
    uint32_t cp;
    if (n == 0 || bn_utf8_decode(p, n, &cp) == 0) return false;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NO) || c == UTF8PROC_CATEGORY_PC;
}

static bool touches_word(const char *p, size_t n, size_t start, size_t end)
{
    if (start > 0) {
        size_t i = last_char(p, start);
        if (word_char(p + i, start - i)) return true;
    }
    return word_char(p + end, n - end);
}

bool bn_special_find(const struct bn_special *s, const struct bn_vocab *v, bool control,
                     const char *p, size_t n, size_t from, struct bn_special_match *m)
{
    if (!s->any[control]) return false;
    const uint8_t *starts = s->starts[control];
    for (size_t i = from; i < n; i++) {
        if (!starts[(uint8_t)p[i]]) continue;
        size_t end = 0;
        int32_t id = -1;
        uint32_t node = s->root[(uint8_t)p[i]];
        for (size_t k = i; node;) {
            const struct bn_special_node *at = &s->nodes[node];
            k++;
            if (at->id >= 0 && (control || !at->control)) {
                id = at->id;
                end = k;
            }
            node = k < n ? child_of(s, at->child, (uint8_t)p[k]) : 0;
        }
        if (id < 0) continue;
        uint8_t strip = v->strip ? v->strip[id] : 0;
        if ((strip & BN_STRIP_SINGLE_WORD) && touches_word(p, n, i, end)) continue;
        *m = (struct bn_special_match){i, end, id};
        if (strip & BN_STRIP_LEFT)
            while (m->start > from) {
                size_t at = last_char(p, m->start);
                if (at < from || space_at(p + at, m->start - at) != m->start - at) break;
                m->start = at;
            }
        if (strip & BN_STRIP_RIGHT)
            for (size_t len; m->end < n && (len = space_at(p + m->end, n - m->end)) > 0;)
                m->end += len;
        return true;
    }
    return false;
}
