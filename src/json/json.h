/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON: values, reading, writing. Every step may run out of memory, and no step forgets it: a function
 * that makes a value returns NULL, and an array or object that something could not be put into is
 * *broken* from then on. A broken value, or one with a broken value inside, is never written
 * (bn_json_write) and never whole (bn_json_whole). So a run of calls may be written down without a look
 * at each result, as with struct bn_buf, if the end is looked at.
 *
 * Values count their references. A function that *takes* a value owns the caller's reference from then
 * on, also when it fails. All functions accept NULL for a value: readers find nothing in it. */
#ifndef BN_JSON_JSON_H
#define BN_JSON_JSON_H

#include "base/buf.h"
#include "base/status.h"

struct bn_json;

enum bn_json_type {
    BN_JSON_NONE, /* of NULL */
    BN_JSON_NULL,
    BN_JSON_FALSE,
    BN_JSON_TRUE,
    BN_JSON_INT,
    BN_JSON_REAL,
    BN_JSON_STRING,
    BN_JSON_ARRAY,
    BN_JSON_OBJECT
};

/* ---- what a value is ---- */

enum bn_json_type bn_json_typeof(const struct bn_json *v);

static inline bool bn_json_is_null(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_NULL;
}
static inline bool bn_json_is_true(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_TRUE;
}
static inline bool bn_json_is_false(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_FALSE;
}
static inline bool bn_json_is_bool(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_TRUE || bn_json_typeof(v) == BN_JSON_FALSE;
}
static inline bool bn_json_is_int(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_INT;
}
static inline bool bn_json_is_real(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_REAL;
}
static inline bool bn_json_is_number(const struct bn_json *v)
{
    return bn_json_is_int(v) || bn_json_is_real(v);
}
static inline bool bn_json_is_string(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_STRING;
}
static inline bool bn_json_is_array(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_ARRAY;
}
static inline bool bn_json_is_object(const struct bn_json *v)
{
    return bn_json_typeof(v) == BN_JSON_OBJECT;
}

/* ---- what is in it ---- */

int64_t bn_json_integer(const struct bn_json *v); /* 0 for what is no whole number */
double bn_json_number(const struct bn_json *v);   /* of both kinds of numbers; otherwise 0 */
/* A string's UTF-8, followed by a 0, and its bytes; there may be a 0 within. NULL and 0 for others. */
const char *bn_json_text(const struct bn_json *v);
size_t bn_json_bytes(const struct bn_json *v);

size_t bn_json_size(const struct bn_json *v); /* of an array or object; otherwise 0 */
struct bn_json *bn_json_at(const struct bn_json *array, size_t i);
struct bn_json *bn_json_get(const struct bn_json *object, const char *key);
/* Members in the order in which they were put in: key i and value i, NULL beyond the last. */
const char *bn_json_key_at(const struct bn_json *object, size_t i);
struct bn_json *bn_json_value_at(const struct bn_json *object, size_t i);

/* v, i and k are variables of the caller. The array or object must not change on the way. */
#define bn_json_each(array, i, v)         for ((i) = 0; ((v) = bn_json_at((array), (i))) != NULL; (i)++)
#define bn_json_each_member(object, k, v) bn_json_members_(object, k, v, BN_JSON_NAME_(__LINE__))
#define BN_JSON_NAME_(line)               BN_JSON_JOIN_(bn_json_at_, line)
#define BN_JSON_JOIN_(a, b)               a##b
#define bn_json_members_(object, k, v, at)                              \
    for (size_t at = 0; ((k) = bn_json_key_at((object), at)) != NULL && \
                        ((v) = bn_json_value_at((object), at)) != NULL; \
         at++)

bool bn_json_equal(const struct bn_json *a, const struct bn_json *b); /* 1 and 1.0 differ */
/* Nothing is missing in v, however deep; false for NULL. */
bool bn_json_whole(const struct bn_json *v);

/* ---- making values ---- */

struct bn_json *bn_json_ref(const struct bn_json *v); /* one more reference to it */
void bn_json_free(struct bn_json *v);                 /* one less */

struct bn_json *bn_json_null(void);
struct bn_json *bn_json_bool(bool v);
struct bn_json *bn_json_int(int64_t v);
struct bn_json *bn_json_real(double v); /* null for what JSON has no number for */
/* Strings must be UTF-8; others are NULL. */
struct bn_json *bn_json_string(const char *s);
struct bn_json *bn_json_stringn(const char *s, size_t n);
/* Any bytes, as tokens have them; where they are written, what is not UTF-8 becomes U+FFFD. */
struct bn_json *bn_json_raw(const char *s, size_t n);
struct bn_json *bn_json_printf(const char *fmt, ...) BN_PRINTF(1, 2);
struct bn_json *bn_json_array(void);
struct bn_json *bn_json_object(void);
struct bn_json *bn_json_copy(const struct bn_json *v);      /* its members are shared */
struct bn_json *bn_json_deep_copy(const struct bn_json *v); /* nothing is */

/* Take `v`. false, and the array or object is broken: v was NULL, or memory is out. */
bool bn_json_append(struct bn_json *array, struct bn_json *v);
bool bn_json_insert(struct bn_json *array, size_t at, struct bn_json *v);
bool bn_json_set(struct bn_json *object, const char *key, struct bn_json *v);

void bn_json_remove(struct bn_json *array, size_t at);
void bn_json_del(struct bn_json *object, const char *key);
bool bn_json_extend(struct bn_json *array, const struct bn_json *more);
/* All members of `from`, those that `object` has already only if `replace`. */
bool bn_json_update(struct bn_json *object, const struct bn_json *from, bool replace);

/* A value after a pattern: { } with pairs of a key and a value, [ ] with values; between them spaces,
 * commas and colons as one likes. Keys are `s`. Values:
 *   s   const char *     s%  const char *, size_t     i  int     I  int64_t     f  double     b  int
 *   n   nothing: null    o   struct bn_json *, taken  O  struct bn_json *, another reference
 * s?, o? and O? make null of a NULL pointer; otherwise NULL fails. */
struct bn_json *bn_json_pack(const char *pattern, ...);

/* ---- reading (parse.c) ---- */

enum {
    BN_JSON_UNIQUE = 1,     /* the same key twice is an error; otherwise the last one counts */
    BN_JSON_ANY = 2,        /* what is neither array nor object may stand alone */
    BN_JSON_REALS = 4,      /* whole numbers become reals too */
    BN_JSON_DEPTH_MAX = 512 /* arrays and objects within each other */
};

/* Strict JSON in strict UTF-8; whole numbers beyond 64 bits become reals. `what` names the text in
 * errors, usually a path; NULL: a text of one line, which needs no name. BITNET_E_FORMAT,
 * BITNET_E_NOMEM, or BITNET_E_LIMIT where it is too deep. */
bitnet_status bn_json_parse(struct bn_json **out, const char *text, size_t n, unsigned flags,
                            const char *what, bitnet_error *err);
/* The same for a text that may go on behind the value: *used are the bytes before. */
bitnet_status bn_json_parse_prefix(struct bn_json **out, const char *text, size_t n, unsigned flags,
                                   size_t *used, const char *what, bitnet_error *err);
/* For a text that may be anything: *out is NULL where it is no JSON. false: memory is out. */
bool bn_json_try(struct bn_json **out, const char *text, size_t n, unsigned flags);
bitnet_status bn_json_read_file(struct bn_json **out, const char *path, size_t max_bytes,
                                bitnet_error *err);

/* Optional members: absent or null leaves *out as it was; a wrong kind is an error. */
bitnet_status bn_json_read_u32(uint32_t *out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err);
bitnet_status bn_json_read_f32(float *out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err);
bitnet_status bn_json_read_bool(bool *out, const struct bn_json *object, const char *key,
                                const char *what, bitnet_error *err);
bitnet_status bn_json_read_str(const char **out, const struct bn_json *object, const char *key,
                               const char *what, bitnet_error *err);

/* ---- writing (write.c) ---- */

enum { BN_JSON_COMPACT = 1 << 8, BN_JSON_SORT = 1 << 9 /* keys */ };
#define BN_JSON_INDENT(n) (n)        /* spaces a level, up to 15; 0: one line */
#define BN_JSON_DIGITS(n) ((n) << 4) /* of reals, up to 15; 0: as many as they need */

/* Appends v. false: memory is out, b is at its maximum, or v is not whole. b is failed then. */
bool bn_json_write(struct bn_buf *b, const struct bn_json *v, unsigned how);
/* The same as a string of its own (free); NULL: out of memory, or v is not whole. */
char *bn_json_dump(const struct bn_json *v, unsigned how);
/* Appends text as a JSON string, with its quotes; bytes that are not UTF-8 become U+FFFD. */
bool bn_json_quote(struct bn_buf *b, const char *s, size_t n);

#endif
