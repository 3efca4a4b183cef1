/* SPDX-License-Identifier: Apache-2.0
 * For LD_PRELOAD: the first ILLEGAL_FORKS processes that this one forks run an instruction that no CPU knows, as kernels do
 * where a virtual machine promises too much. */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((visibility("default"))) pid_t fork(void)
{
    static long n_forks;
    const char *text = getenv("ILLEGAL_FORKS");
    pid_t (*real)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    pid_t child = real();
    if (child == 0 && text && n_forks < strtol(text, NULL, 10)) {
#if defined(__x86_64__)
        __asm__ volatile("ud2");
#elif defined(__aarch64__) || defined(__riscv)
        __asm__ volatile(".word 0");
#endif
    }
    n_forks++;
    return child;
}
