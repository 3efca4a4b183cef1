/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_plan.c: `bitnet plan`: what several machines would bring, before they are bought. One model
 * split over all of them, or a copy on each? Nothing is measured but, where nobody says it, this
 * machine's memory: the rest are sums over the matrices of the file, and their formula is printed
 * with them.
 */
#include "base/threads/bandwidth.h"
#include "cli/core/command.h"
#include "cli/options/model_opts.h"
#include "app/term.h"
#include "app/units.h"
#include "json/json.h"
#include <math.h>

struct plan_config {
    struct model_path path;
    uint32_t nodes, ctx_tokens, seqs;
    float bandwidth, latency_us, link, bits;
    bool json;
};

#define AT(field) offsetof(struct plan_config, field)
static const struct opt table[] = {
    {.kind = OPT_U32,
     .letter = 'N',
     .name = "nodes",
     .metavar = "N",
     .help = "how many machines, or sockets",
     .offset = AT(nodes),
     .initial = "2",
     .min = 1,
     .max = 1024},
    {.kind = OPT_F32,
     .name = "bandwidth",
     .metavar = "GB/s",
     .help = "memory bandwidth of one of them, as `bitnet bench` shows it; 0: measured here",
     .offset = AT(bandwidth),
     .initial = "0",
     .min = 0,
     .max = 1e5},
    {.kind = OPT_F32,
     .name = "latency",
     .metavar = "US",
     .help = "microseconds of one exchange among all: 2 to 5 in shared memory, 30 to 150 over "
             "Ethernet",
     .offset = AT(latency_us),
     .initial = "100",
     .min = 0,
     .max = 1e7},
    {.kind = OPT_F32,
     .name = "link",
     .metavar = "Gbit/s",
     .help = "network bandwidth of one of them",
     .offset = AT(link),
     .initial = "10",
     .min = 0.001,
     .max = 1e5},
    {.kind = OPT_U32,
     .letter = 'c',
     .name = "ctx-size",
     .metavar = "N",
     .help = "tokens that each sequence may hold",
     .offset = AT(ctx_tokens),
     .initial = "4096",
     .aliases = "ctx",
     .min = 1,
     .max = 1 << 20},
    {.kind = OPT_U32,
     .name = "max-num-seqs",
     .metavar = "N",
     .help = "sequences held at a time",
     .offset = AT(seqs),
     .initial = "1",
     .min = 1,
     .max = 1024},
    {.kind = OPT_F32,
     .name = "bits",
     .metavar = "B",
     .help =
         "bits a weight takes in memory, scales included; 0: by its storage type, at most 2.125",
     .offset = AT(bits),
     .initial = "0",
     .min = 0,
     .max = 32},
    {.kind = OPT_FLAG,
     .name = "json",
     .help = "print everything as one JSON object",
     .offset = AT(json)},
    {.kind = OPT_END},
};
static const struct opt_part parts[] = {
    {"Machines", table, 0},
    {"Model", model_path_table, AT(path)},
    {NULL, NULL, 0},
};
#undef AT

/* ------------------------------------------------------------------ the model */

/* What a token reads, and what a machine holds, in bytes. */
struct model_cost {
    bitnet_file_model shape;
    uint64_t n_weights; /* of the layers' matrices */
    double bits;        /* of one of them in memory */
    double layers;      /* all matrices of the layers */
    double outputs;     /* of them the two that make what a block adds: `o` and `down` */
    double heads;       /* of them what is cut by heads: q, k and v */
    double head;        /* what a token reads of the output head */
    double head_held;   /* what it takes in memory */
    double embedding;   /* its table, which every machine maps */
    double sent;        /* per token: floats that each exchange brings together, all layers */
};

enum { SCREENED_ROWS = 16384 }; /* heads of so many rows are read through a copy of 2.5 bits */
static const double screened_bits = 2.5, copy_bits = 4.6, packed_bits_max = 2.125;

static bool is_table(const char *name)
{
    return strstr(name, "token_embd") || strstr(name, "embed_tokens");
}

static bool is_head(const char *name)
{
    return strcmp(name, "output.weight") == 0 || strcmp(name, "lm_head.weight") == 0;
}

/* Sums over the tensors of a file. */
static void add_tensors(struct model_cost *c, const bitnet_file *f, double *stored_bits)
{
    double matrix_bytes = 0;
    for (size_t i = 0; i < bitnet_file_n_tensors(f); i++) {
        bitnet_tensor_info t = {.size = sizeof t};
        uint64_t n = 1;
        if (bitnet_file_tensor(f, i, &t) != BITNET_OK) continue;
        for (uint32_t d = 0; d < t.n_dims && d < BN_ARRAY_LEN(t.dims); d++) n *= t.dims[d];
        if (is_table(t.name)) c->embedding = (double)t.bytes;
        if (is_head(t.name) || (is_table(t.name) && c->head == 0)) c->head = (double)t.bytes;
        if (!t.is_matrix) continue;
        c->n_weights += n;
        matrix_bytes += (double)t.bytes;
    }
    *stored_bits = c->n_weights ? matrix_bytes * 8 / (double)c->n_weights : 0;
}

static void sum_up(struct model_cost *c, const bitnet_file *f, double bits)
{
    const bitnet_file_model *m = &c->shape;
    double stored_bits, head_weights = (double)m->n_vocab * m->n_embd;
    double q = (double)m->n_head * m->head_dim, kv = (double)m->n_head_kv * m->head_dim;
    double delta = (double)m->delta_v_heads * m->delta_v_dim;
    double delta_in = 2.0 * m->delta_k_heads * m->delta_k_dim + 2 * delta;
    add_tensors(c, f, &stored_bits);
    c->bits = bits > 0 ? bits : fmin(stored_bits, packed_bits_max);
    double of_weight = c->bits / 8;
    c->layers = (double)c->n_weights * of_weight;
    c->outputs = of_weight * m->n_embd *
                 (m->n_attention * q + m->n_delta * delta + (double)m->n_layer * m->n_ff);
    c->heads = of_weight * m->n_embd * (m->n_attention * (q + 2 * kv) + m->n_delta * delta_in);
    c->head_held = c->head;
    if (m->n_vocab >= SCREENED_ROWS && c->head * 8 >= 4 * head_weights) {
        c->head = head_weights * screened_bits / 8;
        c->head_held = head_weights * copy_bits / 8;
    }
    c->sent =
        m->n_attention * q + m->n_delta * delta + (double)m->n_layer * (m->n_ff + 2.0 * m->n_embd);
}

/* ------------------------------------------------------------------ the machines */

struct way {
    const char *name;
    double token_s;     /* of one user */
    double read_s;      /* of that: memory of the machine that reads most */
    double exchange_s;  /* of that: waiting for each other */
    double all_users;   /* tokens a second, one user a copy of the model */
    double node_bytes;  /* memory of a machine */
    uint32_t exchanges; /* a token */
};

enum { ALONE, SPLIT, SPLIT_LESS, REPLICATED, N_WAYS };

/* The largest share of heads, which are not cut. */
static double largest_share(uint32_t heads, uint32_t nodes)
{
    return heads ? (double)((heads + nodes - 1) / nodes) / heads : 1.0 / nodes;
}

static double kept_bytes(const struct plan_config *o, const struct model_cost *c)
{
    double seq = (double)c->shape.kv_token_bytes * o->ctx_tokens + (double)c->shape.state_bytes;
    return seq * o->seqs;
}

/* Split over all nodes; with `whole`, the two output matrices of a layer lie on every one of them,
 * which saves two exchanges. */
static struct way split(const struct plan_config *o, const struct model_cost *c, bool whole)
{
    const bitnet_file_model *m = &c->shape;
    double n = o->nodes, outputs = c->outputs * (whole ? 1 : 1 / n);
    double by_heads = largest_share(m->n_head_kv, o->nodes);
    double rest = c->layers - c->outputs - c->heads;
    double read = outputs + c->heads * by_heads + rest / n + c->head / n;
    double sent = c->sent - (whole ? 2.0 * m->n_layer * m->n_embd : 0);
    struct way w = {.name = whole ? "split, output matrices whole" : "split"};
    w.exchanges = o->nodes > 1 ? m->n_layer * (whole ? 2 : 4) + 2 : 0;
    w.read_s = read / ((double)o->bandwidth * 1e9);
    w.exchange_s = w.exchanges * (double)o->latency_us * 1e-6;
    if (o->nodes > 1)
        w.exchange_s += sent * sizeof(float) * (n - 1) / n / ((double)o->link * 1e9 / 8);
    w.token_s = w.read_s + w.exchange_s;
    w.all_users = 1 / w.token_s;
    w.node_bytes = outputs + c->heads * by_heads + rest / n + c->head_held / n + c->embedding +
                   kept_bytes(o, c) * by_heads;
    return w;
}

static struct way alone(const struct plan_config *o, const struct model_cost *c, uint32_t copies)
{
    double read_s = (c->layers + c->head) / ((double)o->bandwidth * 1e9);
    struct way w = {.name = copies > 1 ? "replicated" : "alone",
                    .token_s = read_s,
                    .read_s = read_s,
                    .all_users = copies / read_s};
    w.node_bytes = c->layers + c->head_held + c->embedding + kept_bytes(o, c);
    return w;
}

/* The exchange, in microseconds, from which on neither split is a gain for one user; 0: there is none. */
static double break_even_us(const struct way w[N_WAYS], double latency_us)
{
    double most = 0;
    for (int i = SPLIT; i <= SPLIT_LESS; i++) {
        double others = w[i].token_s - w[i].exchanges * latency_us * 1e-6;
        if (w[i].exchanges) most = fmax(most, (w[ALONE].token_s - others) / w[i].exchanges * 1e6);
    }
    return most;
}

/* ------------------------------------------------------------------ the report */

static void print_way(const struct way *w)
{
    char read[UNITS_BYTES], wait[UNITS_BYTES], bytes[UNITS_BYTES];
    printf("  %-30s %9.1f %9.1f %10s %10s %6u %11s\n", w->name, 1 / w->token_s, w->all_users,
           units_time(read, w->read_s * 1e9), units_time(wait, w->exchange_s * 1e9), w->exchanges,
           units_size(bytes, w->node_bytes));
}

static void print_formula(const struct plan_config *o, const struct model_cost *c)
{
    char a[UNITS_BYTES], b[UNITS_BYTES], d[UNITS_BYTES];
    printf("\nA token alone takes (layers %s + head %s) / %.4g GB/s.\n", units_size(a, c->layers),
           units_size(b, c->head), (double)o->bandwidth);
    printf(
        "Split over %u it takes the largest part of them / %.4g GB/s, and exchanges x %.4g us, and "
        "%s / %.4g Gbit/s:\n",
        o->nodes, (double)o->bandwidth, (double)o->latency_us,
        units_size(d, c->sent * sizeof(float) * (o->nodes - 1) / o->nodes), (double)o->link);
    puts("4 exchanges a layer and 2 a token; or 2 a layer where every machine reads `o` and `down` "
         "whole.");
}

static void print_advice(const struct plan_config *o, const struct way w[N_WAYS])
{
    const struct way *best = w[SPLIT].token_s <= w[SPLIT_LESS].token_s ? &w[SPLIT] : &w[SPLIT_LESS];
    double even_us = break_even_us(w, (double)o->latency_us);
    if (o->nodes == 1) return;
    putchar('\n');
    if (best->token_s < w[ALONE].token_s)
        printf("One user: split, %.2f times as fast as alone. It pays up to %.0f us an exchange.\n",
               w[ALONE].token_s / best->token_s, even_us);
    else if (even_us > 0)
        printf("One user: alone. Splitting pays below %.0f us an exchange.\n", even_us);
    else puts("One user: alone. Splitting does not pay at any latency.");
    printf("Many users: replicate, %.1f tok/s in all, as long as %u users have something to ask; "
           "split "
           "if one machine\ncannot hold the model.\n",
           w[REPLICATED].all_users, o->nodes);
}

static int print_text(const struct plan_config *o, const struct model_cost *c,
                      const struct way w[N_WAYS], const char *path)
{
    char weights[UNITS_BYTES];
    term_print_clean(stdout, model_path_name(path));
    printf(": %s weights in the matrices of %u layers, %.3g bits each in memory\n\n",
           units_count(weights, (double)c->n_weights), c->shape.n_layer, c->bits);
    printf("  %-30s %9s %9s %10s %10s %6s %11s\n", "", "one user", "all", "memory", "exchanges",
           "of them", "a machine");
    printf("  %-30s %9s %9s %10s %10s %6s %11s\n", "", "tok/s", "tok/s", "a token", "a token", "",
           "holds");
    for (int i = 0; i < N_WAYS; i++)
        if (i == ALONE || o->nodes > 1) print_way(&w[i]);
    print_formula(o, c);
    print_advice(o, w);
    return EXIT_DONE;
}

static int print_json(const struct plan_config *o, const struct model_cost *c,
                      const struct way w[N_WAYS], const char *path)
{
    static const char *const keys[N_WAYS] = {"alone", "split", "split_less", "replicated"};
    const char *name = model_path_name(path);
    struct bn_json *j = bn_json_pack(
        "{s:o, s:I, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "path",
        term_json_string(name, strlen(name)), "nodes", (int64_t)o->nodes, "bandwidth_gb_s",
        bn_json_real((double)o->bandwidth), "latency_us", bn_json_real((double)o->latency_us),
        "link_gbit_s", bn_json_real((double)o->link), "weights", (int64_t)c->n_weights, "bits",
        bn_json_real(c->bits), "layer_bytes", bn_json_real(c->layers), "head_bytes",
        bn_json_real(c->head), "break_even_us",
        bn_json_real(break_even_us(w, (double)o->latency_us)));
    for (int i = 0; i < N_WAYS; i++)
        bn_json_set(j, keys[i],
                    bn_json_pack("{s:o, s:o, s:o, s:o, s:I, s:o}", "tokens_per_second",
                                 bn_json_real(1 / w[i].token_s), "all_tokens_per_second",
                                 bn_json_real(w[i].all_users), "read_s", bn_json_real(w[i].read_s),
                                 "exchange_s", bn_json_real(w[i].exchange_s), "exchanges",
                                 (int64_t)w[i].exchanges, "node_bytes",
                                 bn_json_real(w[i].node_bytes)));
    return term_print_json(j);
}

/* ------------------------------------------------------------------ the command */

static int run(void *config, const struct arg_words *words)
{
    struct plan_config *o = config;
    const char *model;
    int code = model_word(&model, o->path.model, o->path.typed, words, "plan");
    if (code == EXIT_DONE) code = model_find(&model, &o->path.from, "plan");
    if (code != EXIT_DONE) return code;
    bitnet_error err = {0};
    bitnet_file *f = NULL;
    struct model_cost c = {.shape.size = sizeof c.shape};
    const char *path = model_path_resolve(model);
    bitnet_status s = bitnet_file_open(&f, path, &err);
    if (s == BITNET_OK) s = bitnet_file_get_model(f, &c.shape, &err);
    if (s == BITNET_OK) sum_up(&c, f, (double)o->bits);
    if (s == BITNET_OK && !c.n_weights)
        s = bn_fail(&err, BITNET_E_FORMAT, "%s holds no weight matrices", model_path_name(path));
    if (s == BITNET_OK && !(o->bandwidth > 0)) o->bandwidth = (float)(bn_bandwidth_best(0) / 1e9);
    if (s == BITNET_OK && !(o->bandwidth > 0))
        s = bn_fail(&err, BITNET_E_NOMEM,
                    "this machine's memory cannot be measured; say --bandwidth");
    if (s == BITNET_OK) {
        struct way w[N_WAYS] = {alone(o, &c, 1), split(o, &c, false), split(o, &c, true),
                                alone(o, &c, o->nodes)};
        w[REPLICATED].name = "replicated";
        code = o->json ? print_json(o, &c, w, path) : print_text(o, &c, w, path);
    } else {
        code = term_fail(&err);
    }
    bitnet_file_close(f);
    return code;
}

const struct command cmd_plan = {
    .name = "plan",
    .usage = "[MODEL] [options]",
    .about = "\n"
             "Says what several machines would bring before they are bought: tokens a second for "
             "one user\n"
             "and for all, alone, with the model split over them, or with a copy on each behind a "
             "proxy; and\n"
             "the memory of each machine. No weight is read.\n"
             "\n"
             "  bitnet plan model.gguf --nodes 4 --bandwidth 37 --latency 150\n"
             "  bitnet plan model.gguf --nodes 2 --bandwidth 80 --latency 3 --link 400\n",
    .parts = parts,
    .config_bytes = sizeof(struct plan_config),
    .max_words = 1,
    .run = run,
};
