/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/load/load.h"

const char *const load_goal_names[LOAD_GOALS] = {"ttft", "itl", "tpot", "e2e"};

const char *const load_outcome_names[LOAD_OUTCOMES] = {
    [LOAD_OK] = "ok",
    [LOAD_BUSY] = "busy_429",
    [LOAD_CLIENT_ERROR] = "status_4xx",
    [LOAD_SERVER_ERROR] = "status_5xx",
    [LOAD_NO_CONNECTION] = "connection",
    [LOAD_TIMEOUT] = "timeout",
    [LOAD_BAD_STREAM] = "bad_stream",
    [LOAD_UNFINISHED] = "unfinished",
};

double load_record_ms(const struct load_record *r, enum load_goal what)
{
    switch (what) {
    case LOAD_TTFT: return r->first_ns ? (double)(r->first_ns - r->due_ns) / 1e6 : -1;
    case LOAD_ITL: return r->n_chunks > 1 ? (double)r->worst_gap_ns / 1e6 : -1;
    case LOAD_TPOT:
        if (r->n_output < 2 || r->n_chunks < 2) return -1;
        return (double)(r->last_ns - r->first_ns) / 1e6 / (double)(r->n_output - 1);
    case LOAD_E2E: return (double)(r->end_ns - r->due_ns) / 1e6;
    case LOAD_GOALS: break;
    }
    return -1;
}

bool load_record_good(const struct load_record *r, const struct load_settings *s)
{
    if (r->outcome != LOAD_OK) return false;
    for (int g = 0; g < LOAD_GOALS; g++)
        if (s->goals_ms[g] > 0 && load_record_ms(r, (enum load_goal)g) > s->goals_ms[g])
            return false;
    return true;
}
