/* SPDX-License-Identifier: Apache-2.0
 * Pre-tokenizers by the names that GGUF files use: one table of names, patterns and
 * `ignore_merges`. The patterns are those of the models' own tokenizer.json, so that a vocabulary
 * read from there finds its GGUF name by comparing text. Owns no data; text/tokenizer/split.c runs the
 * patterns. */
#include "text/tokenizer/vocab.h"

/* pieces that many families share */
#define ENGLISH   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS     " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define SIGNS_SL  " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
#define SPACES    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER     "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASE_HEAD "[^\\r\\n\\p{L}\\p{N}]?"

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 ENGLISH "|" WORD "|\\p{N}{1,3}|" SIGNS "|" SPACES
#define QWEN2  ENGLISH "|" WORD "|\\p{N}|" SIGNS "|" SPACES
#define QWEN35                                                \
    ENGLISH "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| " \
            "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES
#define TEKKEN \
    CASE_HEAD UPPER "*" LOWER "+|" CASE_HEAD UPPER "+" LOWER "*|\\p{N}|" SIGNS_SL "|" SPACES
#define GPT4O                                                                        \
    CASE_HEAD UPPER "*" LOWER "+" ENGLISH "?|" CASE_HEAD UPPER "+" LOWER "*" ENGLISH \
                    "?|\\p{N}{1,3}|" SIGNS_SL "|" SPACES
#define DEEPSEEK3                                                                    \
    "[!\"#$%&'()*+,\\-./"                                                            \
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+" \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES

static const char *const p_default[] = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+",
                                        "[0-9][0-9][0-9]", NULL};
static const char *const p_gpt2[] = {GPT2, NULL};
static const char *const p_llama3[] = {LLAMA3, NULL};
static const char *const p_qwen2[] = {QWEN2, NULL};
static const char *const p_qwen35[] = {QWEN35, NULL};
static const char *const p_falcon[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]", NULL};
/* tokenizer.json of Falcon has one step more; its merges never join what that step parts */
static const char *const p_falcon_hf[] = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9]+",
                                          "[0-9][0-9][0-9]", NULL};
static const char *const p_smollm[] = {"\\p{N}", GPT2, NULL};
static const char *const p_bloom[] = {" ?[^(\\s|.,!?…。，、।۔،)]+", NULL};
static const char *const p_viking[] = {" ?[^(\\s|.,!?…。，、।۔،)]+", "\\p{N}", NULL};
static const char *const p_tekken[] = {TEKKEN, NULL};
static const char *const p_gpt4o[] = {GPT4O, NULL};
static const char *const p_deepseek_coder[] = {
    "[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}", NULL};
static const char *const p_deepseek3[] = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3,
                                          NULL};
static const char *const p_seed_coder[] = {
    ENGLISH "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES, NULL};
static const char *const p_minicpm5[] = {"\\p{N}{1,3}",
                                         ENGLISH "|" WORD "|\\p{N}+|" SIGNS "|" SPACES, NULL};

/* The first line of a set of patterns gives the name that bn_pre_name finds. */
static const struct {
    const char *name;
    const char *const *patterns;
    bool ignore_merges;
} table[] = {
    {"default", p_default, false},
    {"llama-bpe", p_llama3, true},
    {"llama3", p_llama3, true},
    {"llama-v3", p_llama3, true},
    {"falcon3", p_llama3, true},
    {"falcon-h1", p_llama3, true},
    {"falcon_e", p_llama3, true}, /* as the BitNet converters spell it */
    {"falcon-e", p_llama3, true},
    {"pixtral", p_llama3, true},
    {"midm-2.0", p_llama3, true},
    {"lfm2", p_llama3, true},
    {"smaug-bpe", p_llama3, false},
    {"dbrx", p_llama3, false},
    {"glm4", p_llama3, false},
    {"chatglm-bpe", p_llama3, false},
    {"gpt-2", p_gpt2, false},
    {"gpt2", p_gpt2, false},
    {"gpt-neox", p_gpt2, false},
    {"olmo", p_gpt2, false},
    {"mpt", p_gpt2, false},
    {"phi-2", p_gpt2, false},
    {"jais", p_gpt2, false},
    {"trillion", p_gpt2, false},
    {"gigachat", p_gpt2, false},
    {"exaone4", p_gpt2, false},
    {"a.x-4.0", p_gpt2, false},
    {"mellum", p_gpt2, false},
    {"modern-bert", p_gpt2, false},
    {"granite-docling", p_gpt2, false},
    {"falcon", p_falcon, false},
    {"falcon", p_falcon_hf, false},
    {"qwen2", p_qwen2, false},
    {"deepseek-r1-qwen", p_qwen2, false},
    {"stablelm2", p_qwen2, false},
    {"hunyuan", p_qwen2, false},
    {"solar-open", p_qwen2, false},
    {"megrez", p_qwen2, false},
    {"grok-2", p_qwen2, false},
    {"kormo", p_qwen2, false},
    {"f2llmv2", p_qwen2, false},
    {"qwen35", p_qwen35, false},
    {"smollm", p_smollm, false},
    {"starcoder", p_smollm, false},
    {"refact", p_smollm, false},
    {"command-r", p_smollm, false},
    {"codeshell", p_smollm, false},
    {"exaone", p_smollm, false},
    {"minerva-7b", p_smollm, false},
    {"mellum2", p_smollm, false},
    {"tekken", p_tekken, true},
    {"gpt-4o", p_gpt4o, false},
    {"llama4", p_gpt4o, false},
    {"kanana2", p_gpt4o, false},
    {"minimax-m2", p_gpt4o, false},
    {"bloom", p_bloom, false},
    {"poro-chat", p_bloom, false},
    {"gpt3-finnish", p_bloom, false},
    {"viking", p_viking, false},
    {"deepseek-coder", p_deepseek_coder, false},
    {"deepseek-v3", p_deepseek3, false},
    {"hunyuan-dense", p_deepseek3, false},
    {"joyai-llm", p_deepseek3, false},
    {"seed-coder", p_seed_coder, false},
    {"minicpm5", p_minicpm5, true},
};

const char *const *bn_pre_patterns(const char *name, bool *ignore_merges)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(table); i++)
        if (strcmp(table[i].name, name) == 0) {
            if (ignore_merges) *ignore_merges = table[i].ignore_merges;
            return table[i].patterns;
        }
    return NULL;
}

const char *bn_pre_name(const char *const *patterns, size_t n, bool ignore_merges)
{
    for (size_t i = 0; i < BN_ARRAY_LEN(table); i++) {
        const char *const *p = table[i].patterns;
        size_t k = 0;
        while (k < n && p[k] && strcmp(p[k], patterns[k]) == 0) k++;
        if (k == n && !p[k] && table[i].ignore_merges == ignore_merges) return table[i].name;
    }
    return NULL;
}

const char *bn_pre_guess(const struct bn_vocab *v)
{
    if (v->model == BN_VOCAB_BPE && v->n_tokens == 128256 && v->n_merges == 280147)
        return "llama-bpe";
    return NULL;
}
