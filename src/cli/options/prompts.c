/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options/prompts.h"

#include "base/rng.h"
#include "app/tokens.h"
#include <stdlib.h>

/* Ordinary text, so that tokens and activations are those of ordinary use. */
static const char prompt_text[] =
    "The harbour town lies where the river meets the sea. Every morning, long before the sun is "
    "up, the first boats leave, and their lamps can be seen from the hill until they are small as "
    "stars. Those who stay mend nets, bake bread and open the shutters of their shops. When the "
    "tide turns, the bell in the old tower rings seven times; nobody remembers who began this, and "
    "nobody would dream of stopping it. In summer, travellers come to look at the painted houses "
    "and ask why each has a different colour. The answer is simple: paint was once sold by the "
    "barrel, and a family bought what the last ship had brought. ";

void prompts_open(struct prompts *p, const bitnet_model *m, uint64_t seed)
{
    bitnet_error unused;
    bitnet_model_info info = {.size = sizeof info};
    bitnet_model_get_info(m, &info);
    *p = (struct prompts){.n_vocab = info.shape.n_vocab, .seed = seed};
    if (tokens_encode(&p->text, &p->n_text, m, prompt_text, sizeof prompt_text - 1, 0, &unused) !=
        BITNET_OK)
        p->n_text = 0; /* no tokenizer: random tokens do as well */
    for (size_t i = 0; i < p->n_text; i++)
        if (p->text[i] < 0 || (uint32_t)p->text[i] >= p->n_vocab) p->n_text = 0;
}

void prompts_make(struct prompts *p, int32_t *tokens, size_t n)
{
    struct bn_rng r = {p->seed ^ (p->n_made++ << 32)};
    uint64_t start = bn_rng_u64(&r);
    for (size_t i = 0; i < n; i++)
        tokens[i] = i == 0 || p->n_text == 0 ? (int32_t)bn_rng_below(&r, p->n_vocab)
                                             : p->text[(start + i) % p->n_text];
}

void prompts_close(struct prompts *p)
{
    free(p->text);
    *p = (struct prompts){0};
}
