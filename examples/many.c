/* SPDX-License-Identifier: Apache-2.0
 * Several prompts at once: each step advances all of them, each event belongs to one.
 *     cc many.c $(pkg-config --cflags --libs bitnet) && ./a.out "The cat" "A big red ball" */
#include <bitnet/bitnet.h>
#include <stdio.h>
#include <string.h>

enum { SEQS = 4, PROMPT_TOKENS = 256 };

static bitnet_status ask(bitnet_engine *engine, const bitnet_model *model, const char *prompt,
                         bitnet_error *err)
{
    int32_t ids[PROMPT_TOKENS];
    size_t n = PROMPT_TOKENS;
    bitnet_request r;
    uint64_t id;
    bitnet_status s =
        bitnet_encode(model, prompt, strlen(prompt), BITNET_TOK_BOS_AUTO, ids, &n, err);
    if (s != BITNET_OK) return s;
    bitnet_request_init(&r, sizeof r);
    r.tokens = ids; /* copied by submit */
    r.n_tokens = n;
    r.max_new_tokens = 20;
    r.sampling.seed = 7; /* the same seed gives the same text, whatever the company */
    s = bitnet_submit(engine, &r, &id, err);
    if (s == BITNET_OK) printf("%llu asks: %s\n", (unsigned long long)id, prompt);
    return s;
}

int main(int argc, char **argv)
{
    const char *stories[] = {"Once upon a time", "The dog saw a cat.", "Lily likes", "One day",
                             "Tom"};
    const char **prompts = argc > 1 ? (const char **)argv + 1 : stories;
    int n_prompts = argc > 1 ? argc - 1 : (int)(sizeof stories / sizeof stories[0]);
    bitnet_error err = {0};
    bitnet_model *model = NULL;
    bitnet_engine *engine = NULL;
    bitnet_engine_options o = {.size = sizeof o};
    o.max_seqs = SEQS; /* more may be submitted; they wait for a place */
    bitnet_status s = bitnet_model_open(&model, NULL, NULL, &err); /* NULL: the embedded model */
    if (s == BITNET_OK) s = bitnet_engine_open(&engine, model, &o, &err);
    for (int i = 0; s == BITNET_OK && i < n_prompts; i++) s = ask(engine, model, prompts[i], &err);
    bitnet_event events[2 * SEQS] = {{.size = sizeof *events}}; /* always enough */
    for (size_t n = 1; s == BITNET_OK && n > 0;) {
        n = 2 * SEQS;
        s = bitnet_step(engine, events, &n, &err);
        for (size_t i = 0; s == BITNET_OK && i < n; i++) {
            const bitnet_event *e = &events[i];
            unsigned long long id = e->id;
            if (e->text_bytes) printf("%llu says: %.*s\n", id, (int)e->text_bytes, e->text);
            if (e->finish) printf("%llu ends: %u tokens\n", id, e->n_generated);
        }
    }
    if (s != BITNET_OK) fprintf(stderr, "%s\n", err.text);
    bitnet_engine_close(engine);
    bitnet_model_close(model);
    return s != BITNET_OK;
}
