/* SPDX-License-Identifier: Apache-2.0
 *
 * eval/result.c: figures with their errors, numbers in written answers, and McNemar's test.
 */
#include "cli/eval/eval.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ figures */

struct eval_figure eval_share(const bool *right, size_t n)
{
    double k = 0;
    for (size_t i = 0; i < n; i++) k += right[i];
    double p = n ? k / (double)n : 0;
    /* the spread of the sample (n - 1), over the root of its size */
    return (struct eval_figure){p, n > 1 ? sqrt(p * (1 - p) / (double)(n - 1)) : 0};
}

struct eval_figure eval_perplexity(const struct eval_score *scores, size_t n)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += scores[i].logprob;
    double mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        squares += (scores[i].logprob - mean) * (scores[i].logprob - mean);
    double error = n > 1 ? sqrt(squares / (double)(n - 1) / (double)n) : 0;
    return (struct eval_figure){exp(-mean), exp(-mean) * error};
}

/* ------------------------------------------------------------------ numbers */

/* Keeps what makes two ways to write a number alike: no commas, no currency, no point at the end. */
static void plain_number(char out[EVAL_NUMBER_BYTES], const char *from, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n && k < EVAL_NUMBER_BYTES - 1; i++)
        if (from[i] != ',' && from[i] != '$') out[k++] = from[i];
    if (k && out[k - 1] == '.') k--;
    out[k] = 0;
}

void eval_number_strict(char out[EVAL_NUMBER_BYTES], const char *text)
{
    static const char MARK[] = "#### ";
    out[0] = 0;
    for (const char *at = text; (at = strstr(at, MARK)); at++) {
        const char *from = at + sizeof MARK - 1;
        size_t sign = *from == '-', n = strspn(from + sign, "0123456789.,");
        if (!n) continue;
        plain_number(out, from, sign + n);
        return;
    }
}

void eval_number_flexible(char out[EVAL_NUMBER_BYTES], const char *text)
{
    out[0] = 0;
    for (const char *p = text; *p;) {
        size_t sign = *p == '-', n = strspn(p + sign, "$0123456789.,");
        /* two characters of these, or digits */
        if (n < 2) n = strspn(p + sign, "0123456789");
        if (n) plain_number(out, p, sign + n);
        p += n ? sign + n : 1;
    }
}

/* ------------------------------------------------------------------ comparing */

double eval_mcnemar(uint64_t only_a, uint64_t only_b)
{
    uint64_t n = only_a + only_b, least = only_a < only_b ? only_a : only_b;
    if (n == 0) return 1;
    /* twice the tail of a binomial distribution with p = 1/2, from its smallest terms up */
    double sum = 0, log_all = lgamma((double)n + 1), log_half = (double)n * log(0.5);
    for (uint64_t k = 0; k <= least; k++)
        sum += exp(log_all - lgamma((double)k + 1) - lgamma((double)(n - k) + 1) + log_half);
    return fmin(1, 2 * sum);
}
