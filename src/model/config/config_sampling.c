/* SPDX-License-Identifier: Apache-2.0
 * What a file recommends for sampling: general.sampling.* of a GGUF. (config_hf_sampling.c reads it
 * from a checkpoint.) A recommendation that makes no sense is passed over, and the note says so. */
#include "model/config/config_sampling.h"

#include "model/files/gguf_write.h"
#include <stdio.h>

#define AT(member) offsetof(bitnet_sampling, member)
const struct bn_sampling_member bn_sampling_members[BN_N_SAMPLING_MEMBERS] = {
    {BITNET_SAMPLING_TEMPERATURE, AT(temperature), false, "temp", "temperature", 0, 100},
    {BITNET_SAMPLING_TOP_K, AT(top_k), true, "top_k", "top_k", 0, 1 << 24},
    {BITNET_SAMPLING_TOP_P, AT(top_p), false, "top_p", "top_p", 0, 1},
    {BITNET_SAMPLING_MIN_P, AT(min_p), false, "min_p", "min_p", 0, 1},
    {BITNET_SAMPLING_REPETITION_PENALTY, AT(repetition_penalty), false, "penalty_repeat",
     "repetition_penalty", 0, 100},
    {BITNET_SAMPLING_PENALTY_LAST_N, AT(penalty_last_n), true, "penalty_last_n", NULL, 0, 1 << 24},
};
#undef AT

void bn_config_recommend(struct bn_config *c, const struct bn_sampling_member *m, double v,
                         struct bn_buf *note)
{
    if (m->whole && v == -1) v = 0; /* "off", "all" in llama.cpp */
    if (!(v >= m->min && v <= m->max) || (m->whole && v != (double)(uint32_t)v)) {
        if (note)
            bn_buf_printf(note, "The %s of %g that the file recommends is not used. ",
                          m->hf ? m->hf : m->gguf, v);
        return;
    }
    char *to = (char *)&c->sampling + m->offset;
    float f = (float)v;
    uint32_t u = m->whole ? (uint32_t)v : 0;
    memcpy(to, m->whole ? (const void *)&u : (const void *)&f, 4);
    c->sampling_given |= m->bit;
}

/* Numbers of any kind: other writers put whole ones as i32. */
static bool number(const struct bn_source *s, const char *key, double *out)
{
    float f;
    int64_t i;
    if (bn_meta_f32(s, key, &f)) *out = (double)f;
    else if (bn_meta_i64(s, key, &i)) *out = (double)i;
    else return false;
    return true;
}

void bn_config_sampling_from_gguf(struct bn_config *c, const struct bn_source *s,
                                  struct bn_buf *note)
{
    for (size_t i = 0; i < BN_N_SAMPLING_MEMBERS; i++) {
        char key[64];
        double v;
        snprintf(key, sizeof key, "general.sampling.%s", bn_sampling_members[i].gguf);
        if (number(s, key, &v)) bn_config_recommend(c, &bn_sampling_members[i], v, note);
    }
}

void bn_config_sampling_put(const struct bn_config *c, struct bn_gguf_writer *w)
{
    for (size_t i = 0; i < BN_N_SAMPLING_MEMBERS; i++) {
        const struct bn_sampling_member *m = &bn_sampling_members[i];
        const char *from = (const char *)&c->sampling + m->offset;
        char key[64];
        float f;
        int32_t whole;
        if (!(c->sampling_given & m->bit)) continue;
        snprintf(key, sizeof key, "general.sampling.%s", m->gguf);
        memcpy(m->whole ? (void *)&whole : (void *)&f, from, 4);
        if (m->whole) bn_gguf_put_i32(w, key, whole);
        else bn_gguf_put_f32(w, key, f);
    }
}

uint32_t bn_config_sampling(const struct bn_config *c, bitnet_sampling *s)
{
    for (size_t i = 0; s && i < BN_N_SAMPLING_MEMBERS; i++) {
        const struct bn_sampling_member *m = &bn_sampling_members[i];
        if (c->sampling_given & m->bit)
            memcpy((char *)s + m->offset, (const char *)&c->sampling + m->offset, 4);
    }
    return c->sampling_given;
}
