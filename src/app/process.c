/* SPDX-License-Identifier: Apache-2.0 */
#include "app/process.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) == 0 ? (double)t.tv_sec + (double)t.tv_nsec / 1e9 : NAN;
}

double process_cpu_seconds(void) { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }

double process_resident_bytes(uint32_t pid)
{
    char path[40] = "/proc/self/statm";
    if (pid) snprintf(path, sizeof path, "/proc/%u/statm", pid);
    FILE *f = fopen(path, "re");
    if (!f) return NAN;
    double pages;
    int n = fscanf(f, "%*s %lf", &pages);
    fclose(f);
    return n == 1 ? pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

double process_start_seconds(void)
{
    FILE *f = fopen("/proc/self/stat", "re");
    if (!f) return NAN;
    char line[1024] = "";
    size_t n = fread(line, 1, sizeof line - 1, f);
    fclose(f);
    line[n] = 0;
    /* The name, in brackets, may hold anything. 20 members later stand ticks since the machine began. */
    const char *p = strrchr(line, ')');
    for (int i = 0; p && i < 20; i++) p = strchr(p + 1, ' ');
    double ticks;
    if (!p || sscanf(p, "%lf", &ticks) != 1) return NAN;
    double age = seconds_of(CLOCK_BOOTTIME) - ticks / (double)sysconf(_SC_CLK_TCK);
    return seconds_of(CLOCK_REALTIME) - age;
}

double process_open_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    if (!d) return NAN;
    double n = -1; /* the folder itself */
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

uint64_t process_allow_fds(void)
{
    struct rlimit l, most;
    if (getrlimit(RLIMIT_NOFILE, &l) != 0) return 0;
    most = l;
    most.rlim_cur = l.rlim_max;
    if (l.rlim_cur != l.rlim_max && setrlimit(RLIMIT_NOFILE, &most) == 0) l = most;
    return l.rlim_cur == RLIM_INFINITY ? 0 : l.rlim_cur;
}
