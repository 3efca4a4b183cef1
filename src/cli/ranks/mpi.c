/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of bitnet.h over MPI. Every exchange is sends and receives between each two, begun together, so
 * that it takes one way through the network; there are few ranks. Waiting looks for a while, then gives
 * the core away, then sleeps: a rank that follows has nothing else to wait for.
 */
#include "cli/ranks/ranks_impl.h"

#include "app/term.h"
#include "base/clock.h"
#include "base/os/mem.h"
#include "base/threads/bandwidth.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS = 400, TAG = 1 };
static const uint64_t patient_ns = 20000000; /* of waiting, then it sleeps */
static const double like = 0.1;              /* speeds this near each other are taken as equal */

static struct {
    bitnet_ranks ranks;
    struct watch watch;
    double shares[BITNET_MAX_RANKS];
    char names[BITNET_MAX_RANKS][RANK_NAME_BYTES];
    const char *name_list[BITNET_MAX_RANKS];
    bool open;
} here;

const bitnet_ranks *ranks_here(void) { return here.open ? &here.ranks : NULL; }

/* ------------------------------------------------------------------ exchanges */

static int wait_all(MPI_Request *r, int n)
{
    uint64_t start_ns = 0;
    for (int looks = 0;; looks++) {
        int done;
        unsigned lost = atomic_load_explicit(&here.watch.lost, memory_order_relaxed);
        if (lost) return (int)lost;
        if (MPI_Testall(n, r, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return -1;
        if (done) return 0;
        if (looks < LOOKS) continue;
        if (looks == LOOKS) start_ns = bn_now_ns();
        if (bn_now_ns() - start_ns < patient_ns) sched_yield();
        else nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}

static void receive(void *data, size_t n, uint32_t from, MPI_Request *r, int *count)
{
    if (n) MPI_Irecv(data, (int)n, MPI_BYTE, (int)from, TAG, MPI_COMM_WORLD, &r[(*count)++]);
}

static void give(const void *data, size_t n, uint32_t to, MPI_Request *r, int *count)
{
    if (n) MPI_Isend(data, (int)n, MPI_BYTE, (int)to, TAG, MPI_COMM_WORLD, &r[(*count)++]);
}

static int broadcast(void *user, void *data, size_t bytes)
{
    MPI_Request r[BITNET_MAX_RANKS];
    int n = 0;
    (void)user;
    if (bytes > INT_MAX) return -1;
    if (here.ranks.rank) receive(data, bytes, 0, r, &n);
    else
        for (uint32_t i = 1; i < here.ranks.n_ranks; i++) give(data, bytes, i, r, &n);
    return wait_all(r, n);
}

static int gather(void *user, void *data, const size_t *at)
{
    MPI_Request r[2 * BITNET_MAX_RANKS];
    uint32_t me = here.ranks.rank;
    char *bytes = data;
    int n = 0;
    (void)user;
    if (at[here.ranks.n_ranks] > INT_MAX) return -1;
    for (uint32_t i = 0; i < here.ranks.n_ranks; i++)
        if (i != me) receive(bytes + at[i], at[i + 1] - at[i], i, r, &n);
    for (uint32_t i = 0; i < here.ranks.n_ranks; i++)
        if (i != me) give(bytes + at[me], at[me + 1] - at[me], i, r, &n);
    return wait_all(r, n);
}

static int collect(void *user, const void *mine, size_t bytes, void *out, const size_t *at)
{
    MPI_Request r[BITNET_MAX_RANKS];
    int n = 0;
    (void)user;
    if (bytes > INT_MAX) return -1;
    if (here.ranks.rank) {
        give(mine, bytes, 0, r, &n);
        return wait_all(r, n);
    }
    if (at[here.ranks.n_ranks] > INT_MAX) return -1;
    if (bytes) memcpy((char *)out + at[0], mine, bytes);
    for (uint32_t i = 1; i < here.ranks.n_ranks; i++)
        receive((char *)out + at[i], at[i + 1] - at[i], i, r, &n);
    return wait_all(r, n);
}

/* ------------------------------------------------------------------ opening */

/* Numbers with commas between them, one a rank. */
static bool read_shares(const char *split)
{
    const char *at = split;
    for (uint32_t i = 0; i < here.ranks.n_ranks; i++) {
        char *end;
        errno = 0;
        here.shares[i] = strtod(at, &end);
        bool last = i + 1 == here.ranks.n_ranks;
        if (end == at || errno || !(here.shares[i] > 0) || *end != (last ? 0 : ',')) return false;
        at = end + 1;
    }
    return true;
}

/* By how fast each reads memory while all do. */
static void measure_shares(void)
{
    double least = 0, most = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double mine = bn_bandwidth_best(0) / 1e9;
    MPI_Allgather(&mine, 1, MPI_DOUBLE, here.shares, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    for (uint32_t i = 0; i < here.ranks.n_ranks; i++) {
        double s = here.shares[i] > 0 ? here.shares[i] : 1;
        least = i && least < s ? least : s;
        most = most > s ? most : s;
        here.shares[i] = s;
    }
    for (uint32_t i = 0; i < here.ranks.n_ranks && most <= least * (1 + like); i++)
        here.shares[i] = 1;
}

static bool all_agree(bool mine)
{
    int ok = mine, all = 0;
    MPI_Allreduce(&ok, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

static bool on_one_machine(void)
{
    MPI_Comm near;
    int n = 0;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_size(near, &n);
    MPI_Comm_free(&near);
    return (uint32_t)n == here.ranks.n_ranks;
}

static void exchange_names(void)
{
    char host[64] = "", name[RANK_NAME_BYTES] = "";
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s, process %ld", host, (long)getpid());
    MPI_Allgather(name, RANK_NAME_BYTES, MPI_CHAR, here.names, RANK_NAME_BYTES, MPI_CHAR,
                  MPI_COMM_WORLD);
    for (int i = 0; i < BITNET_MAX_RANKS; i++) here.name_list[i] = here.names[i];
}

static bool open_watch(void)
{
    struct watch_place place = {0};
    bool near = on_one_machine();
    int listener = here.ranks.rank == 0 ? watch_listen(&place, near) : -1;
    here.watch.rank = here.ranks.rank;
    here.watch.n_ranks = here.ranks.n_ranks;
    here.watch.names = here.name_list;
    MPI_Bcast(&place, sizeof place, MPI_BYTE, 0, MPI_COMM_WORLD);
    return all_agree(watch_open(&here.watch, &place, listener));
}

/* Only rank 0 says what is wrong. */
static bool fail(const char *what)
{
    if (here.ranks.rank == 0) term_fail_text("%s", what);
    MPI_Finalize();
    return false;
}

bool ranks_open(const char *split, const char *outputs)
{
    int level, rank, n;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        term_fail_text("MPI cannot be started");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    here.ranks = (bitnet_ranks){.size = sizeof here.ranks,
                                .rank = (uint32_t)rank,
                                .n_ranks = (uint32_t)n,
                                .broadcast = broadcast,
                                .gather = gather,
                                .collect = collect,
                                .names = here.name_list,
                                .outputs = outputs};
    if (n > BITNET_MAX_RANKS) return fail("mpirun has started more ranks than are possible (64)");
    if (level < MPI_THREAD_SERIALIZED) return fail("this MPI does not allow several threads");
    bool measured = split && strcmp(split, "auto") == 0;
    if (split && !measured && !read_shares(split))
        return fail("--split expects auto, or as many shares as there are ranks, such as 2,1,1");
    if (measured) measure_shares();
    if (split) here.ranks.shares = here.shares;
    exchange_names();
    if (!open_watch()) return fail("ranks cannot watch each other: rank 0 is not reached over TCP");
    here.open = true;
    return true;
}

int ranks_follow(void)
{
    bitnet_error err = {0};
    bitnet_status s = bitnet_follow(&here.ranks, &err);
    /* rank 0 says what was wrong there; what happened to it mpirun says */
    return s == BITNET_OK ? EXIT_DONE : EXIT_FAILED;
}

int ranks_close(int code)
{
    bitnet_error err;
    if (!here.open) return code;
    bool fine = !atomic_load(&here.watch.lost) && (here.ranks.rank == 0 || code == EXIT_DONE);
    if (fine && here.ranks.rank == 0) fine = bitnet_dismiss(&here.ranks, &err) == BITNET_OK;
    here.open = false;
    if (fine) {
        atomic_store(&here.watch.ending, true);
        MPI_Barrier(MPI_COMM_WORLD); /* nobody hangs up while others still listen */
        watch_close(&here.watch);
        MPI_Finalize();
        return code;
    }
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILED); /* also those that were stopped */
    return EXIT_FAILED;
}
