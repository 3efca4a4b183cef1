/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/request.h"

#include "base/mem.h"
#include <stdlib.h>

bitnet_status bn_request_make(struct bn_request **out, const bitnet_request *r, uint32_t n_vocab,
                              const struct bn_tokenizer *t, uint32_t limit, bitnet_error *err)
{
    *out = NULL;
    struct bn_request *q = bn_calloc(1, sizeof *q);
    int32_t *tokens = bn_calloc(limit, sizeof *tokens);
    bitnet_status s = BITNET_OK;
    if (!q || !tokens) {
        free(q);
        free(tokens);
        return bn_fail_nomem(err, limit * sizeof *tokens, "a request");
    }
    q->tokens = tokens;
    q->limit = limit;
    q->n_tokens = q->n_prompt = (uint32_t)r->n_tokens;
    memcpy(q->tokens, r->tokens, r->n_tokens * sizeof *r->tokens);
    q->logprobs = r->logprobs != 0;
    q->n_top = r->logprobs ? r->n_top_logprobs : 0;
    q->ignore_end = r->ignore_end != 0;
    s = bn_sampler_open(&q->sampler, &r->sampling, n_vocab, t, tokens, q->n_prompt, limit, err);
#if BN_HAVE_TEXT
    if (t && s == BITNET_OK)
        s = bn_detok_open(&q->detok, t, r->show_special != 0, r->stop, r->n_stop, err);
#endif
    if (s != BITNET_OK) {
        bn_request_free(q);
        return s;
    }
    *out = q;
    return BITNET_OK;
}

void bn_request_free(struct bn_request *r)
{
    if (!r) return;
#if BN_HAVE_TEXT
    bn_detok_close(r->detok);
#endif
    bn_sampler_close(r->sampler);
    free(r->tokens);
    free(r);
}
