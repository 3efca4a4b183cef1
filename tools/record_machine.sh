#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes down what `bitnet doctor` reads of a machine, as one text file that it can look at elsewhere:
#   tools/record_machine.sh >machine.txt        bitnet doctor --root machine.txt
# Only reads. In it are the names of CPU and system, counts, sizes and limits, and the names of the control groups
# of this process; nothing about users, files or addresses.
set -u
cpu=/sys/devices/system/cpu
node=/sys/devices/system/node
thp=/sys/kernel/mm/transparent_hugepage
tab=$(printf '\t')

one() { # files of one line, those that can be read
    for f; do
        line=$(cat "$f" 2>/dev/null) && printf '%s\t%s\n' "$f" "$line"
    done
}

lines() { # FILE PATTERN: its lines that match, up to the first empty one
    [ -r "$1" ] || return 0
    text=$(awk -v want="$2" '/^$/ && NR > 1 { exit } $0 ~ want { gsub(/\\/, "\\\\"); gsub(/\t/, "\\t"); printf "%s%s", sep, $0; sep = "\\n" }' "$1" 2>/dev/null)
    [ -z "$text" ] || printf '%s%s%s\n' "$1" "$tab" "$text"
}

groups() { # the folders of this process's groups, and those above them
    while IFS=: read -r _ names path; do
        for name in $(printf '%s' "$names" | tr , ' '); do climb "/sys/fs/cgroup/$name" "$path"; done
        [ -n "$names" ] || climb /sys/fs/cgroup "$path"
    done </proc/self/cgroup | sort -u
}

climb() { # MOUNT PATH
    path=${2%/}
    while :; do
        printf '%s\n' "$1$path"
        [ -n "$path" ] || return 0
        path=${path%/*}
    done
}

echo "# recorded by tools/record_machine.sh on $(uname -srm)"
one $cpu/online $cpu/smt/active $cpu/cpufreq/boost $cpu/intel_pstate/no_turbo
one /sys/devices/cpu_core/cpus /sys/devices/cpu_atom/cpus
for c in "$cpu"/cpu[0-9]*; do
    one "$c"/topology/core_id "$c"/topology/core_cpus_list "$c"/topology/thread_siblings_list
    one "$c"/topology/physical_package_id "$c"/topology/package_cpus_list "$c"/topology/core_siblings_list
    one "$c"/cpu_capacity "$c"/thermal_throttle/core_throttle_count "$c"/thermal_throttle/package_throttle_count
    for i in "$c"/cache/index[0-9]*; do one "$i"/level "$i"/type "$i"/size "$i"/shared_cpu_list; done
    for f in scaling_driver scaling_governor cpuinfo_min_freq cpuinfo_max_freq scaling_cur_freq energy_performance_preference; do
        one "$c/cpufreq/$f"
    done
done
one $node/online
for n in "$node"/node[0-9]*; do
    one "$n"/cpulist "$n"/distance
    lines "$n"/meminfo 'Mem(Total|Free):'
done
one $thp/enabled $thp/defrag $thp/khugepaged/defrag
for h in /sys/kernel/mm/hugepages/hugepages-*kB; do one "$h"/nr_hugepages "$h"/free_hugepages; done
one /sys/class/dmi/id/sys_vendor /sys/class/dmi/id/product_name /sys/hypervisor/type
one /proc/loadavg /proc/sys/kernel/perf_event_paranoid
lines /proc/cpuinfo '^(processor|model name|Model|uarch|isa|flags|Features|CPU implementer|vendor_id)'
lines /proc/meminfo '^(MemTotal|MemFree|MemAvailable|SwapTotal|SwapFree):'
lines /proc/self/cgroup .
lines /proc/self/status '^Cpus_allowed_list:'
lines /proc/self/limits '^Max locked memory'
groups | while read -r g; do
    one "$g"/cpu.max "$g"/cpuset.cpus.effective "$g"/memory.max
    one "$g"/cpu.cfs_quota_us "$g"/cpu.cfs_period_us "$g"/cpuset.effective_cpus "$g"/memory.limit_in_bytes
    lines "$g"/cpu.stat '^nr_'
done
