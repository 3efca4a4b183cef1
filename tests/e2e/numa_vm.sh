#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tests of memory nodes on a machine that has two: an emulated one, booted for them alone. Placement of threads and
# pages is real there, times are not.
#   numa_vm.sh BUILD KERNEL [ARGS...]      ARGS: a command of the program to run there instead ("run --numa replicate ...")
# BUILD: a build folder with unit tests. KERNEL: a Linux kernel image with NUMA and serial console built in (Debian:
# apt-get download linux-image-cloud-amd64's package, dpkg -x, boot/vmlinuz-*). Needs qemu-system-x86_64, busybox
# (static). Exit 77: something of it is missing.
set -eu
[ $# -ge 2 ] || { echo "usage: numa_vm.sh BUILD KERNEL [ARGS...]" >&2; exit 2; }
build=$(cd "$1" && pwd) kernel=$2
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
for tool in qemu-system-x86_64 busybox gzip; do
    command -v "$tool" >/dev/null 2>&1 || { echo "numa_vm: no $tool here"; exit 77; }
done
[ -r "$kernel" ] || { echo "numa_vm: no kernel at $kernel"; exit 77; }
work=$(mktemp -d "${TMPDIR:-/tmp}/bitnet-numa.XXXXXX")
trap 'rm -rf "$work"' EXIT INT TERM

take() { # files, to the same paths
    for f in "$@"; do
        mkdir -p "$work/root/$(dirname "$f")"
        cp -L "$f" "$work/root/$f"
    done
}
tests="$build/tests/unit/base_machine_numa_test $build/tests/unit/model_weights_place_test"
programs="$build/bitnet $tests"
mkdir -p "$work/root/proc" "$work/root/sys" "$work/root/tmp" "$work/root/bin" "$work/root/dev"
cp -L "$(command -v busybox)" "$work/root/bin/busybox"
# shellcheck disable=SC2086  # lists of words
take $programs "$root/models/stories-31m.gguf" "$root/tests/data/numa/no_memory.xml"
# shellcheck disable=SC2046,SC2086
take $(ldd $programs | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*\) (.*/\1/p' | sort -u)
# shellcheck disable=SC2016  # for the shell in there
{
    echo '#!/bin/busybox sh'
    echo 'b=/bin/busybox; $b mount -t proc none /proc; $b mount -t sysfs none /sys; $b mount -t devtmpfs none /dev'
    echo 'echo "numa_vm: nodes $($b cat /sys/devices/system/node/online)"'
    if [ $# -gt 0 ]; then
        printf '%s/bitnet' "$build"
        printf " '%s'" "$@"
        echo '; rc=$?'
    else
        echo "${tests% *} && ${tests#* }; rc=\$?"
    fi
    echo 'echo "numa_vm: rc $rc"; $b poweroff -f'
} >"$work/root/init"
chmod +x "$work/root/init"
(cd "$work/root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/initrd"
timeout 1500 qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 4,sockets=2,cores=2,threads=1 -m 3G \
    -object memory-backend-ram,id=a,size=1536M -object memory-backend-ram,id=b,size=1536M \
    -numa node,nodeid=0,cpus=0-1,memdev=a -numa node,nodeid=1,cpus=2-3,memdev=b \
    -kernel "$kernel" -initrd "$work/initrd" -append 'console=ttyS0 quiet panic=-1' \
    -display none -monitor none -serial stdio -no-reboot </dev/null | tee "$work/log"
tr -d '\r' <"$work/log" | grep -q '^numa_vm: rc 0$'
