#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the machines beside this file that nobody could record: what the kernels of such machines
show, put down by hand in the form of tools/record_machine.sh. `recorded-*.txt` are real recordings
and not touched.

    make.py [--check]     --check: only says whether the files are what this program writes
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
THP = "/sys/kernel/mm/transparent_hugepage"


def spread(cpus):
    """[0, 2, 3] as the kernel writes it: 0,2-3"""
    out, cpus = [], sorted(cpus)
    while cpus:
        end = 0
        while end + 1 < len(cpus) and cpus[end + 1] == cpus[0] + end + 1:
            end += 1
        out.append(f"{cpus[0]}-{cpus[end]}" if end else str(cpus[0]))
        cpus = cpus[end + 1:]
    return ",".join(out)


class Machine:
    def __init__(self, about, cores, flags="", name=""):
        """cores: lists of CPUs, one a core."""
        self.files, self.about, self.cores = {}, about, cores
        self.cpus = sorted(c for core in cores for c in core)
        self.put(f"{CPU}/online", spread(self.cpus))
        for i, core in enumerate(cores):
            for c in core:
                self.put(f"{CPU}/cpu{c}/topology/core_id", i)
                self.put(f"{CPU}/cpu{c}/topology/core_cpus_list", spread(core))
                self.put(f"{CPU}/cpu{c}/topology/thread_siblings_list", spread(core))
        self.put("/proc/cpuinfo", (f"processor\t: 0\nmodel name\t: {name}\n" if name else "processor\t: 0\n")
                 + (f"flags\t\t: fpu vme {flags} avx2 fma\n" if name else ""))
        self.process(self.cpus)
        self.put("/proc/loadavg", "0.08 0.05 0.01 1/210 4242")
        self.put("/proc/sys/kernel/perf_event_paranoid", 2)

    def put(self, path, text):
        self.files[path] = str(text)

    def process(self, allowed, groups="0::/", memlock=8388608):
        self.put("/proc/self/status", f"Cpus_allowed_list:\t{spread(allowed)}")
        self.put("/proc/self/cgroup", groups)
        self.put("/proc/self/limits", f"Max locked memory         {memlock}              {memlock}              bytes")

    def packages(self, groups):
        for i, cpus in enumerate(groups):
            for c in cpus:
                self.put(f"{CPU}/cpu{c}/topology/physical_package_id", i)
                self.put(f"{CPU}/cpu{c}/topology/package_cpus_list", spread(cpus))
                self.put(f"{CPU}/cpu{c}/topology/core_siblings_list", spread(cpus))

    def caches(self, *kinds):
        """(level, type, size, groups of CPUs that share one)"""
        for c in self.cpus:
            mine = [(level, kind, size, g) for level, kind, size, groups in kinds for g in groups if c in g]
            for i, (level, kind, size, g) in enumerate(mine):
                at = f"{CPU}/cpu{c}/cache/index{i}"
                self.put(f"{at}/level", level)
                self.put(f"{at}/type", kind)
                self.put(f"{at}/size", size)
                self.put(f"{at}/shared_cpu_list", spread(g))

    def nodes(self, groups, gb, distance=21):
        self.put(f"{NODE}/online", spread(range(len(groups))))
        for i, cpus in enumerate(groups):
            self.put(f"{NODE}/node{i}/cpulist", spread(cpus))
            self.put(f"{NODE}/node{i}/meminfo", f"Node {i} MemTotal:       {gb << 20} kB\nNode {i} MemFree:        {gb << 19} kB")
            self.put(f"{NODE}/node{i}/distance", " ".join("10" if k == i else str(distance) for k in range(len(groups))))

    def memory(self, gb, available_gb, swap_mb=0, swap_used_mb=0):
        self.put("/proc/meminfo", f"MemTotal:       {gb << 20} kB\nMemFree:        {available_gb << 19} kB\n"
                 f"MemAvailable:   {int(available_gb * (1 << 20))} kB\nSwapTotal:      {swap_mb << 10} kB\n"
                 f"SwapFree:       {(swap_mb - swap_used_mb) << 10} kB")

    def huge(self, enabled="madvise", defrag="madvise", reserved=(0, 0)):
        self.put(f"{THP}/enabled", " ".join(f"[{x}]" if x == enabled else x for x in ("always", "madvise", "never")))
        self.put(f"{THP}/defrag", " ".join(f"[{x}]" if x == defrag else x
                                           for x in ("always", "defer", "defer+madvise", "madvise", "never")))
        self.put(f"{THP}/khugepaged/defrag", 1)
        for kb, n in zip((2048, 1048576), reserved):
            self.put(f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/nr_hugepages", n)
            self.put(f"/sys/kernel/mm/hugepages/hugepages-{kb}kB/free_hugepages", n)

    def frequency(self, cpus, driver, governor, low, high, now, preference=None):
        for c in cpus:
            at = f"{CPU}/cpu{c}/cpufreq"
            self.put(f"{at}/scaling_driver", driver)
            self.put(f"{at}/scaling_governor", governor)
            self.put(f"{at}/cpuinfo_min_freq", low)
            self.put(f"{at}/cpuinfo_max_freq", high)
            self.put(f"{at}/scaling_cur_freq", now)
            if preference:
                self.put(f"{at}/energy_performance_preference", preference)

    def text(self):
        def line(path):
            text = self.files[path].rstrip("\n")
            return path + "\t" + text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n")
        return f"# {self.about}; written by make.py, not recorded\n" + "".join(line(p) + "\n" for p in sorted(self.files))


def singles(cpus):
    return [[c] for c in cpus]


def two_sockets():
    cores = [[c, c + 16] for c in range(16)]
    sockets = [sorted(c for core in cores[8 * s:8 * s + 8] for c in core) for s in range(2)]
    m = Machine("two sockets of eight cores with SMT, a node each", cores, name="Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz")
    m.packages(sockets)
    m.caches((1, "Data", "48K", cores), (1, "Instruction", "32K", cores), (2, "Unified", "1280K", cores),
             (3, "Unified", "18432K", sockets))
    m.nodes(sockets, 128)
    m.memory(256, 240)
    m.huge("always")
    m.frequency(m.cpus, "intel_pstate", "performance", 800000, 3700000, 3600000, "performance")
    m.put(f"{CPU}/intel_pstate/no_turbo", 0)
    m.put(f"{CPU}/smt/active", 1)
    for c in m.cpus:
        m.put(f"{CPU}/cpu{c}/thermal_throttle/core_throttle_count", 0)
        m.put(f"{CPU}/cpu{c}/thermal_throttle/package_throttle_count", 0)
    return m


def desktop():
    cores = [[c, c + 8] for c in range(8)]
    m = Machine("a desktop of eight cores with SMT", cores, name="AMD Ryzen 7 7700 8-Core Processor")
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", cores), (1, "Instruction", "32K", cores), (2, "Unified", "1024K", cores),
             (3, "Unified", "32768K", [m.cpus]))
    m.nodes([m.cpus], 32)
    m.memory(32, 28, 8192)
    m.huge()
    m.frequency(m.cpus, "amd-pstate-epp", "powersave", 400000, 5393000, 3800000, "balance_performance")
    m.put(f"{CPU}/cpufreq/boost", 1)
    m.put(f"{CPU}/smt/active", 1)
    return m


def hybrid():
    cores = [[0, 1], [2, 3], [4, 5], [6, 7]] + singles(range(8, 16))
    m = Machine("four P-cores with SMT and eight E-cores", cores, name="12th Gen Intel(R) Core(TM) i7-1260P")
    m.packages([m.cpus])
    big, small = cores[:4], cores[4:]
    m.caches((1, "Data", "48K", big), (1, "Data", "32K", small), (1, "Instruction", "32K", big),
             (1, "Instruction", "64K", small), (2, "Unified", "1280K", big),
             (2, "Unified", "2048K", [[8, 9, 10, 11], [12, 13, 14, 15]]), (3, "Unified", "18432K", [m.cpus]))
    m.nodes([m.cpus], 16)
    m.memory(16, 11, 2048)
    m.huge()
    m.frequency(range(8), "intel_pstate", "powersave", 400000, 4700000, 2100000, "balance_performance")
    m.frequency(range(8, 16), "intel_pstate", "powersave", 400000, 3400000, 1800000, "balance_performance")
    m.put("/sys/devices/cpu_core/cpus", "0-7")
    m.put("/sys/devices/cpu_atom/cpus", "8-15")
    m.put(f"{CPU}/intel_pstate/no_turbo", 0)
    m.put(f"{CPU}/smt/active", 1)
    return m


def quota_v2():
    m = Machine("a container with 1.5 of eight CPUs and 2 GB, cgroup v2", singles(range(8)), name="Intel(R) Xeon(R) Platinum 8370C CPU @ 2.80GHz")
    m.packages([m.cpus])
    m.caches((1, "Data", "48K", m.cores), (2, "Unified", "1280K", m.cores), (3, "Unified", "49152K", [m.cpus]))
    m.nodes([m.cpus], 64)
    m.memory(64, 50)
    m.huge("always")
    m.process(m.cpus, "0::/kubepods/pod1")
    at = "/sys/fs/cgroup/kubepods"
    m.put(f"{at}/cpu.max", "max 100000")
    m.put(f"{at}/pod1/cpu.max", "150000 100000")
    m.put(f"{at}/pod1/cpu.stat", "usage_usec 912345678\nuser_usec 900000000\nsystem_usec 12345678\n"
          "nr_periods 10000\nnr_throttled 4200\nthrottled_usec 98765432")
    m.put(f"{at}/pod1/cpuset.cpus.effective", "0-7")
    m.put(f"{at}/pod1/memory.max", 2 << 30)
    return m


def quota_v1():
    m = Machine("a container with 2.25 of four CPUs, cgroup v1", singles(range(4)), name="Intel(R) Xeon(R) CPU E5-2673 v4 @ 2.30GHz")
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", m.cores), (2, "Unified", "256K", m.cores), (3, "Unified", "51200K", [m.cpus]))
    m.memory(16, 12)
    m.huge()
    m.process(m.cpus, "11:memory:/docker/1f\n5:cpuset:/docker/1f\n4:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f")
    m.put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", 225000)
    m.put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", 100000)
    m.put("/sys/fs/cgroup/cpu/cpu.stat", "nr_periods 50\nnr_throttled 0\nthrottled_time 0")
    m.put("/sys/fs/cgroup/cpuset/cpuset.effective_cpus", "0-3")
    m.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", 9223372036854771712)
    return m


def cpuset():
    cores = [[c, c + 4] for c in range(4)]
    m = Machine("three of eight CPUs by a cpuset, cgroup v2", cores, name="Intel(R) Core(TM) i7-7700 CPU @ 3.60GHz")
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", cores), (1, "Instruction", "32K", cores), (2, "Unified", "256K", cores),
             (3, "Unified", "8192K", [m.cpus]))
    m.nodes([m.cpus], 16)
    m.memory(16, 10)
    m.huge()
    m.process([2, 3, 4], "0::/jobs")
    m.put("/sys/fs/cgroup/jobs/cpuset.cpus.effective", "2-4")
    m.put("/sys/fs/cgroup/jobs/cpu.max", "max 100000")
    m.frequency(m.cpus, "intel_cpufreq", "schedutil", 800000, 4200000, 800000)
    m.put(f"{CPU}/intel_pstate/no_turbo", 0)
    m.put(f"{CPU}/smt/active", 1)
    return m


def big_little():
    m = Machine("an ARM board: four small cores, three big ones, a prime one", singles(range(8)))
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", singles(range(4))), (1, "Data", "64K", singles(range(4, 8))),
             (2, "Unified", "128K", singles(range(4))), (2, "Unified", "512K", singles(range(4, 8))),
             (3, "Unified", "4096K", [m.cpus]))
    for cpus, capacity, khz in ((range(4), 398, 1804800), (range(4, 7), 862, 2419200), (range(7, 8), 1024, 2841600)):
        m.frequency(cpus, "qcom-cpufreq-hw", "schedutil", 300000, khz, 300000)
        for c in cpus:
            m.put(f"{CPU}/cpu{c}/cpu_capacity", capacity)
    m.put("/proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd aes crc32 asimddp\nCPU implementer\t: 0x41")
    m.memory(8, 5)
    m.huge("never")
    return m


def riscv():
    m = Machine("a RISC-V board of four cores without cpufreq", singles(range(4)))
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", m.cores), (1, "Instruction", "32K", m.cores), (2, "Unified", "2048K", [m.cpus]))
    m.put("/proc/cpuinfo", "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc_zba_zbb\nmmu\t\t: sv39\nuarch\t\t: sifive,u74-mc")
    m.memory(4, 3)
    del m.files["/proc/sys/kernel/perf_event_paranoid"]
    return m


def small_vm():
    m = Machine("a small virtual machine that shows two siblings", [[0, 1]], "hypervisor", name="Intel Xeon Processor (Skylake, IBRS)")
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", m.cores), (2, "Unified", "4096K", m.cores), (3, "Unified", "16384K", [m.cpus]))
    m.nodes([m.cpus], 2)
    m.memory(2, 1, 1024, 700)
    m.huge("never")
    m.put("/sys/class/dmi/id/sys_vendor", "QEMU")
    m.put("/sys/class/dmi/id/product_name", "Standard PC (Q35 + ICH9, 2009)")
    m.put("/proc/loadavg", "3.20 2.90 2.70 4/180 999")
    m.put(f"{CPU}/smt/active", 1)
    return m


def laptop():
    cores = [[c, c + 4] for c in range(4)]
    m = Machine("a laptop that saves power and runs hot", cores, name="Intel(R) Core(TM) i5-8250U CPU @ 1.60GHz")
    m.packages([m.cpus])
    m.caches((1, "Data", "32K", cores), (1, "Instruction", "32K", cores), (2, "Unified", "256K", cores),
             (3, "Unified", "6144K", [m.cpus]))
    m.nodes([m.cpus], 8)
    m.memory(8, 5, 8192)
    m.huge()
    m.process(m.cpus, "0::/user.slice", 65536)
    m.frequency(m.cpus, "acpi-cpufreq", "powersave", 400000, 1600000, 400000)
    m.put(f"{CPU}/cpufreq/boost", 0)
    m.put(f"{CPU}/smt/active", 1)
    for c in m.cpus:
        m.put(f"{CPU}/cpu{c}/thermal_throttle/core_throttle_count", 120)
        m.put(f"{CPU}/cpu{c}/thermal_throttle/package_throttle_count", 300)
    return m


MACHINES = {"two-sockets": two_sockets, "smt-desktop": desktop, "hybrid": hybrid, "quota-v2": quota_v2, "quota-v1": quota_v1,
            "cpuset-3": cpuset, "big-little": big_little, "riscv-board": riscv, "small-vm": small_vm, "hot-laptop": laptop}


def main():
    stale = []
    for name, make in MACHINES.items():
        path, text = HERE / (name + ".txt"), make().text()
        if sys.argv[1:] == ["--check"]:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"not what make.py writes: {' '.join(stale)}")


if __name__ == "__main__":
    main()
