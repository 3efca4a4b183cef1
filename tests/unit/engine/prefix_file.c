/* SPDX-License-Identifier: Apache-2.0
 * Texts that are saved from the prefix cache and loaded into another engine's: answers behind them are the
 * same, bit for bit, and less is computed; of a dense model and a hybrid, for all types of the cache. And
 * files that are damaged, of others, or made up. */
#include "adapter_files.h"
#include "base/checksum.h"
#include "engine_common.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { PROMPT = 75, NEW = 20, CTX = 256, SUM_AT = 16, ENGINE_AT = 24, TOKENS_AT = 96 };

static const char *const models[] = {TEST_MODEL, TEST_DATA "/hybrid/tiny.gguf"};
static char path[] = "/tmp/bitnet-prefix-XXXXXX";
static int32_t prompt[CTX];
static struct choice a, b;

static bitnet_engine *open_one(bitnet_kv_type type, const char *state_type)
{
    const bitnet_engine_options o = {.size = sizeof o,
                                     .threads = 2,
                                     .ctx_tokens = CTX,
                                     .max_seqs = 4,
                                     .draft = "off",
                                     .state_cache_bytes = 64 << 20,
                                     .kv_type = type,
                                     .state_type = state_type};
    return open_engine(&o);
}

static bitnet_request ask_for(size_t n_prompt)
{
    bitnet_request r;
    bitnet_request_init(&r, sizeof r);
    r.tokens = prompt;
    r.n_tokens = n_prompt;
    r.max_new_tokens = NEW;
    r.ignore_end = r.logprobs = 1;
    r.n_top_logprobs = 3;
    r.sampling.seed = 5;
    return r;
}

static uint64_t hits(const bitnet_engine *e) { return engine_info(e).prefix.hit_tokens; }

static void answer(bitnet_engine *e, const bitnet_request *r, struct choice *to)
{
    memset(to, 0, sizeof *to);
    struct ask ask = {submit(e, r), 1, to};
    finish_all(e, &ask, 1, 64);
    assert_int_equal(to->finish, BITNET_FINISH_LENGTH);
}

static void open_path(const char *file)
{
    bitnet_error err = {0};
    if (bitnet_model_open(&model, file, NULL, &err)) fail_msg("%s", err.text);
    info.size = sizeof info;
    bitnet_model_get_info(model, &info);
    for (int i = 0; i < CTX; i++)
        prompt[i] = 3 + (i * 31 + i / 9) % ((int32_t)info.shape.n_vocab - 3);
    strcpy(path, "/tmp/bitnet-prefix-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static void close_path(void)
{
    remove(path);
    bitnet_model_close(model);
}

static bitnet_status save(bitnet_engine *e, size_t n, bitnet_prefix_file *file, bitnet_error *err)
{
    *file = (bitnet_prefix_file){.size = sizeof *file};
    return bitnet_prefix_save(e, path, prompt, n, NULL, file, err);
}

static bitnet_status load(bitnet_engine *e, size_t *n, bitnet_error *err)
{
    int32_t tokens[CTX];
    *n = CTX;
    bitnet_status s = bitnet_prefix_load(e, path, tokens, n, NULL, NULL, err);
    if (s == BITNET_OK) assert_memory_equal(tokens, prompt, *n * sizeof *tokens);
    return s;
}

/* ---- round trips */

static void check_round(bitnet_kv_type type, const char *state_type, bool whole_pages)
{
    bitnet_request r = ask_for(PROMPT);
    bitnet_prefix_file file;
    bitnet_error err = {0};
    size_t n;
    bitnet_engine *e = open_one(type, state_type);
    assert_int_equal(save(e, PROMPT, &file, &err), BITNET_E_STATE); /* nothing is known */
    answer(e, &r, &a);
    if (save(e, PROMPT, &file, &err)) fail_msg("type %d: %s", type, err.text);
    assert_int_equal(file.n_tokens, whole_pages ? PROMPT / 32 * 32 : PROMPT);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, file.bytes);
    bitnet_engine_close(e);

    e = open_one(type, state_type);
    if (load(e, &n, &err)) fail_msg("type %d: %s", type, err.text);
    assert_int_equal(n, file.n_tokens);
    if (load(e, &n, &err)) fail_msg("a second time: %s", err.text);
    answer(e, &r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(hits(e), whole_pages ? PROMPT / 32 * 32 : PROMPT - 1);
    bitnet_engine_close(e);
}

static void what_was_saved_gives_the_same_bits(void **state)
{
    (void)state;
    open_path(models[0]);
    for (bitnet_kv_type t = BITNET_KV_F16; t <= BITNET_KV_INT2; t++)
        check_round(t, NULL, t == BITNET_KV_INT4 || t == BITNET_KV_INT2);
    close_path();
    open_path(models[1]);
    check_round(BITNET_KV_F16, NULL, true);
    check_round(BITNET_KV_INT8, "bf16", true);
    close_path();
}

/* The text of an answer goes on: a second turn finds all of it, and other texts nothing. */
static void answers_are_kept_and_forgotten(void **state)
{
    (void)state;
    open_path(models[0]);
    bitnet_prefix_file file;
    bitnet_error err = {0};
    size_t n;
    bitnet_engine *e = open_one(0, NULL);
    bitnet_request r = ask_for(40);
    answer(e, &r, &a);
    memcpy(prompt + 40, a.tokens, NEW * sizeof *prompt);
    assert_int_equal(save(e, 40 + NEW, &file, &err), BITNET_OK);
    assert_int_equal(file.n_tokens, 40 + NEW - 1); /* the last one was drawn, not read */
    r = ask_for(40 + NEW);
    answer(e, &r, &a);
    bitnet_engine_close(e);
    e = open_one(0, NULL);
    assert_int_equal(load(e, &n, &err), BITNET_OK);
    answer(e, &r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(hits(e), 40 + NEW - 1);

    uint64_t before = hits(e);
    prompt[0]++; /* another text */
    assert_int_equal(bitnet_prefix_forget(e, prompt, 40 + NEW, NULL, &n, &err), BITNET_OK);
    assert_int_equal(n, 0);
    prompt[0]--;
    assert_int_equal(bitnet_prefix_forget(e, prompt, CTX, NULL, &n, &err), BITNET_OK);
    assert_int_equal(n, 0); /* it goes on in another way than what is known: that keeps its pages */
    memcpy(prompt + 40 + NEW, a.tokens, NEW * sizeof *prompt);
    assert_int_equal(bitnet_prefix_forget(e, prompt, 40 + 2 * NEW, NULL, &n, &err), BITNET_OK);
    assert_int_equal(n, 40 + 2 * NEW - 1);
    answer(e, &r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(hits(e), before);
    bitnet_engine_close(e);
    close_path();
}

/* ---- files that are no good */

struct bytes {
    uint8_t *p;
    size_t n;
};

static struct bytes read_all(void)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_true(f && fstat(fileno(f), &st) == 0);
    struct bytes all = {malloc((size_t)st.st_size), (size_t)st.st_size};
    assert_int_equal(fread(all.p, 1, all.n, f), all.n);
    fclose(f);
    return all;
}

static void write_all(struct bytes all, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_true(f != NULL);
    assert_int_equal(fwrite(all.p, 1, n, f), n);
    fclose(f);
}

static void must_refuse(bitnet_engine *e, bitnet_status why, const char *what, size_t at)
{
    bitnet_error err = {0};
    size_t n;
    uint64_t free_before = engine_info(e).kv.pages_free;
    bitnet_status s = load(e, &n, &err);
    if (s != why) fail_msg("%s %zu: status %d, %s", what, at, (int)s, err.text);
    assert_int_equal(engine_info(e).kv.pages_free, free_before);
}

/* As whoever made it up would: the sums are right. */
static void seal(struct bytes all, size_t n_head)
{
    memset(all.p + SUM_AT, 0, 8);
    uint64_t sum = bn_checksum(all.p, n_head);
    memcpy(all.p + SUM_AT, &sum, 8);
}

static void check_hostile(const char *file, bitnet_kv_type type)
{
    bitnet_prefix_file kept;
    bitnet_error err = {0};
    struct bn_rng rng = {11};
    open_path(file);
    bitnet_engine *e = open_one(type, NULL);
    bitnet_request r = ask_for(PROMPT);
    answer(e, &r, &a);
    assert_int_equal(save(e, PROMPT, &kept, &err), BITNET_OK);
    bitnet_engine_close(e);
    e = open_one(type, NULL);
    struct bytes whole = read_all();
    size_t pages = (kept.n_tokens + 31) / 32, head = TOKENS_AT + kept.n_tokens * 4;
    head = (head + 7) / 8 * 8 + (pages + 1) * 8;

    for (size_t i = 0; i < 600; i++) { /* a byte of it: all of the head, then anywhere */
        size_t at = i < head ? i : bn_rng_below(&rng, (uint32_t)whole.n);
        whole.p[at] ^= 0x5a;
        write_all(whole, whole.n);
        bitnet_error why = {0};
        size_t n;
        if (load(e, &n, &why) == BITNET_OK) fail_msg("byte %zu was not noticed", at);
        whole.p[at] ^= 0x5a;
    }
    for (size_t i = 0; i < 200; i++) {
        size_t n = i < 120 ? i : bn_rng_below(&rng, (uint32_t)whole.n);
        write_all(whole, n);
        must_refuse(e, BITNET_E_FORMAT, "cut at", n);
    }
    /* sizes that would be too much, with sums that are right */
    const uint64_t absurd[] = {0,          1,       2,          31,         33,
                               PROMPT + 5, CTX + 1, UINT32_MAX, UINT64_MAX, UINT64_MAX / 4};
    for (size_t at = ENGINE_AT + 16; at < ENGINE_AT + 48; at += 8)
        for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
            uint64_t was;
            memcpy(&was, whole.p + at, 8);
            if (was == absurd[i]) continue;
            memcpy(whole.p + at, &absurd[i], 8);
            seal(whole, head);
            write_all(whole, whole.n);
            size_t n;
            assert_int_not_equal(load(e, &n, &err), BITNET_OK);
            memcpy(whole.p + at, &was, 8);
        }
    /* tokens that the vocabulary lacks */
    int32_t token, none = (int32_t)info.shape.n_vocab;
    memcpy(&token, whole.p + TOKENS_AT, 4);
    memcpy(whole.p + TOKENS_AT, &none, 4);
    seal(whole, head);
    write_all(whole, whole.n);
    must_refuse(e, BITNET_E_ARG, "token", 0);
    memcpy(whole.p + TOKENS_AT, &token, 4);
    /* the model or the types are others */
    whole.p[ENGINE_AT] ^= 1;
    seal(whole, head);
    write_all(whole, whole.n);
    must_refuse(e, BITNET_E_FORMAT, "engine", 0);
    whole.p[ENGINE_AT] ^= 1;

    /* nothing was taken over meanwhile, and the file itself is good */
    seal(whole, head);
    write_all(whole, whole.n);
    size_t n;
    assert_int_equal(hits(e), 0);
    assert_int_equal(load(e, &n, &err), BITNET_OK);
    answer(e, &r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    bitnet_engine_close(e);

    /* any bytes as keys, values and states: answers, or an error; no harm to others */
    for (int round = 0; round < 6; round++) {
        e = open_one(type, NULL);
        size_t at = head;
        for (size_t i = at; i < whole.n; i++)
            whole.p[i] = round == 0 ? 0xff : (uint8_t)(bn_rng_u64(&rng) >> 13);
        uint64_t page_bytes;
        memcpy(&page_bytes, whole.p + ENGINE_AT + 32, 8);
        for (size_t i = 0; i <= pages; i++) {
            size_t bytes = i < pages ? page_bytes : whole.n - head - pages * page_bytes;
            uint64_t sum = bytes ? bn_checksum(whole.p + head + i * page_bytes, bytes) : 0;
            memcpy(whole.p + head - (pages + 1 - i) * 8, &sum, 8);
        }
        seal(whole, head);
        write_all(whole, whole.n);
        if (load(e, &n, &err)) fail_msg("made up: %s", err.text);
        memset(&b, 0, sizeof b);
        struct ask ask = {submit(e, &r), 1, &b};
        finish_all(e, &ask, 1, 64);
        assert_int_equal(b.n_finished, 1);
        bitnet_request other = ask_for(PROMPT);
        other.prefix_cache = "off";
        answer(e, &other, &b);
        assert_memory_equal(&a, &b, sizeof a);
        bitnet_engine_close(e);
    }
    free(whole.p);
    close_path();
}

static void hostile_files_are_refused(void **state)
{
    (void)state;
    check_hostile(models[0], BITNET_KV_F16);
    check_hostile(models[0], BITNET_KV_INT8);
    check_hostile(models[0], BITNET_KV_INT4);
    check_hostile(models[1], BITNET_KV_F16);
}

/* Of rows behind the text nothing gets into a file. */
static void others_rows_are_not_saved(void **state)
{
    (void)state;
    for (bitnet_kv_type t = BITNET_KV_F16; t <= BITNET_KV_INT8; t++) {
        bitnet_prefix_file kept;
        bitnet_error err = {0};
        open_path(models[0]);
        bitnet_engine *e = open_one(t, NULL);
        bitnet_request r = ask_for(PROMPT), longer = ask_for(200);
        prompt[0]++;
        answer(e, &longer, &a);
        prompt[0]--;
        for (int k = 0; k < 4; k++) { /* every page has been used by somebody */
            size_t n;
            bitnet_prefix_forget(e, prompt, CTX, NULL, &n, &err);
            answer(e, &r, &a);
        }
        assert_int_equal(save(e, 33, &kept, &err), BITNET_OK);
        struct bytes used = read_all();
        bitnet_engine_close(e);
        e = open_one(t, NULL);
        r.n_tokens = 34;
        r.max_new_tokens = 1;
        memset(&a, 0, sizeof a);
        struct ask ask = {submit(e, &r), 1, &a};
        finish_all(e, &ask, 1, 64);
        assert_int_equal(save(e, 33, &kept, &err), BITNET_OK);
        struct bytes fresh = read_all();
        assert_int_equal(used.n, fresh.n);
        assert_memory_equal(used.p, fresh.p, used.n);
        free(used.p);
        free(fresh.p);
        bitnet_engine_close(e);
        close_path();
    }
}

static void other_engines_are_told_apart(void **state)
{
    (void)state;
    bitnet_prefix_file kept;
    bitnet_error err = {0};
    int32_t tokens[CTX];
    size_t n;
    open_path(models[0]);
    bitnet_engine *e = open_one(BITNET_KV_F16, NULL);
    bitnet_request r = ask_for(PROMPT);
    answer(e, &r, &a);
    assert_int_equal(save(e, PROMPT, &kept, &err), BITNET_OK);
    n = 10;
    assert_int_equal(bitnet_prefix_load(e, path, tokens, &n, NULL, NULL, &err), BITNET_E_LIMIT);
    assert_int_equal(n, PROMPT);
    /* adapters: those of the file, with the same scale */
    const struct adapter_kind kind = {
        .seed = 3, .rank = 4, .every = 1, .type = BN_F32, .strength = 0.1f};
    char file[ADAPTER_PATH_BYTES];
    bitnet_adapter *adapter;
    make_adapter(file, models[0], info.architecture, &kind);
    assert_int_equal(bitnet_adapter_open(&adapter, model, file, &err), BITNET_OK);
    bitnet_adapter_use use = {adapter, 1, 0};
    const bitnet_prefix_options with = {.size = sizeof with, .adapters = &use, .n_adapters = 1};
    n = CTX;
    assert_int_equal(bitnet_prefix_load(e, path, tokens, &n, &with, NULL, &err), BITNET_E_FORMAT);
    r.adapters = &use;
    r.n_adapters = 1;
    answer(e, &r, &a);
    assert_int_equal(bitnet_prefix_save(e, path, prompt, PROMPT, &with, NULL, &err), BITNET_OK);
    assert_int_equal(load(e, &n, &err), BITNET_E_FORMAT);
    use.scale = 0.5f;
    n = CTX;
    assert_int_equal(bitnet_prefix_load(e, path, tokens, &n, &with, NULL, &err), BITNET_E_FORMAT);
    bitnet_engine_close(e);
    /* the same file opened again is the same adapter */
    bitnet_adapter_close(adapter);
    assert_int_equal(bitnet_adapter_open(&adapter, model, file, &err), BITNET_OK);
    remove(file);
    use = (bitnet_adapter_use){adapter, 1, 0};
    e = open_one(BITNET_KV_F16, NULL);
    if (bitnet_prefix_load(e, path, tokens, &n, &with, NULL, &err)) fail_msg("%s", err.text);
    answer(e, &r, &b);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(hits(e), PROMPT - 1);
    bitnet_engine_close(e);
    bitnet_adapter_close(adapter);
    /* another type, another model */
    e = open_one(BITNET_KV_F16, NULL);
    r = ask_for(PROMPT);
    answer(e, &r, &a);
    assert_int_equal(save(e, PROMPT, &kept, &err), BITNET_OK);
    bitnet_engine_close(e);
    e = open_one(BITNET_KV_BF16, NULL);
    assert_int_equal(load(e, &n, &err), BITNET_E_FORMAT);
    bitnet_engine_close(e);
    bitnet_model_close(model);
    assert_int_equal(bitnet_model_open(&model, models[1], NULL, &err), BITNET_OK);
    e = open_one(BITNET_KV_F16, NULL);
    assert_int_equal(load(e, &n, &err), BITNET_E_FORMAT);
    bitnet_engine_close(e);
    remove(path);
    bitnet_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_saved_gives_the_same_bits),
        cmocka_unit_test(answers_are_kept_and_forgotten),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(others_rows_are_not_saved),
        cmocka_unit_test(other_engines_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
