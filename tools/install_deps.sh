#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Looks for what is needed and installs what is missing with apt-get.
#   install_deps.sh build                what the library and the program need
#   install_deps.sh python               the same, and what the Python package is built of
#   install_deps.sh quick                all of these, and what ./check quick uses: cmocka, SIMDe, numpy ...
#   install_deps.sh check                the same, and what ./check uses: a second compiler, cross compilers, emulators ...
#   install_deps.sh all                  the same, and what only ./check all uses: torch
#   install_deps.sh --missing LEVEL      installs nothing; prints the packages that would bring what is missing
#
# Looks for the things themselves (a program that runs, a library that pkg-config knows), not for packages; so it is
# quiet where everything is there already, however it came. Exit 0: the build can go on. Exit 1: something the build
# cannot do without is missing and could not be installed; the last lines say what to install. Things only ./check wants
# are no reason to stop here: ./check goes on, and counts each of them as a failure.
set -u
cd "$(dirname "$0")/.." || exit 1
only_look=no
if [ "${1-}" = --missing ]; then
    only_look=yes
    shift
fi
level=${1:-build}

has() { command -v "$1" >/dev/null 2>&1; }
lib() { has pkg-config && pkg-config --exists "$1" 2>/dev/null; }
compiles() { echo "#include <$2>" | "$1" -E -x c - >/dev/null 2>&1; }
meson_ok() { # as new as meson.build asks for
    wanted=$(sed -n "s/.*meson_version: *'>= *\([0-9.]*\)'.*/\1/p" meson.build)
    has meson && [ "$(printf '%s\n' "$wanted" "$(meson --version 2>/dev/null)" | sort -V | head -n 1)" = "$wanted" ]
}
clang_sanitizes() {
    t=$(mktemp -d) || return 1
    echo 'int main(void) { return 0; }' >"$t/a.c"
    clang -fsanitize=address,undefined -o "$t/a" "$t/a.c" >/dev/null 2>&1
    rc=$?
    rm -rf "$t"
    return $rc
}

py() { /usr/bin/python3 -c "import $1" 2>/dev/null; }

# What the Python package is built with and runs on, by the distribution's own Python.
look_python() {
    py cffi || wish="$wish python3-cffi"
    py numpy || wish="$wish python3-numpy"
    py setuptools || wish="$wish python3-setuptools"
    py wheel || wish="$wish python3-wheel"
    py pip || wish="$wish python3-pip"
    py ensurepip || wish="$wish python3-venv"
    has make || wish="$wish make"
    has objdump || wish="$wish binutils"
    compiles "${CC:-cc}" "$(/usr/bin/python3 -c 'import sysconfig; print(sysconfig.get_path("include"))' 2>/dev/null)/Python.h" ||
        wish="$wish python3-dev"
}

# Fills need (the build cannot do without) and wish (only ./check asks for it) with the packages that bring what is missing.
look() {
    need='' wish=''
    has gcc || has clang || need="$need gcc"
    compiles "${CC:-cc}" stdio.h || compiles gcc stdio.h || need="$need libc6-dev"
    meson_ok || need="$need meson"
    has ninja || need="$need ninja-build"
    has pkg-config || need="$need pkg-config"
    has python3 && python3 -c 'import json, subprocess, unittest' 2>/dev/null || need="$need python3"
    lib libpcre2-8 || need="$need libpcre2-dev"
    lib libutf8proc || need="$need libutf8proc-dev"
    lib libevent_core || need="$need libevent-dev"
    lib hwloc || wish="$wish libhwloc-dev"
    lib ompi-c || wish="$wish libopenmpi-dev openmpi-bin"
    lib openssl || wish="$wish libssl-dev"
    [ -f /usr/share/javascript/chart.js/chart.min.js ] || wish="$wish libjs-chart.js"
    [ -f /usr/share/javascript/highlight.js/highlight.min.js ] || wish="$wish libjs-highlight.js"
    [ -f /usr/share/javascript/katex/katex.min.js ] || wish="$wish libjs-katex"
    [ "$level" != build ] || return 0
    look_python
    [ "$level" != python ] || return 0
    has gcc || case "$need " in *" gcc "*) ;; *) wish="$wish gcc" ;; esac
    lib cmocka || wish="$wish libcmocka-dev"
    has abidiff || wish="$wish abigail-tools"
    has lstopo || wish="$wish hwloc-nox"
    has ip || wish="$wish iproute2"
    has tmux || wish="$wish tmux"
    has openssl || wish="$wish openssl"
    has clang-format-14 || has clang-format || wish="$wish clang-format"
    py jsonschema || wish="$wish python3-jsonschema"
    py pytest || wish="$wish python3-pytest"
    py mypy || wish="$wish mypy"
    py build || wish="$wish python3-build"
    py yaml || wish="$wish python3-yaml"
    py pydantic || wish="$wish python3-pydantic"
    machine=$(uname -m)
    # AVX-512 kernels are checked without the CPU
    [ "$machine" != x86_64 ] || compiles "${CC:-cc}" simde/x86/avx512.h || wish="$wish libsimde-dev"
    [ "$level" != quick ] || return 0
    [ "$level" != all ] || py torch || wish="$wish python3-torch"
    has node || wish="$wish nodejs"
    has npm || wish="$wish npm"
    has chromium || has chromium-browser || has google-chrome || wish="$wish chromium"
    has promtool && has prometheus || wish="$wish prometheus"
    has haproxy || has /usr/sbin/haproxy || wish="$wish haproxy"
    has zsh || wish="$wish zsh"
    has fish || wish="$wish fish"
    has man || wish="$wish man-db"
    has systemd-analyze || wish="$wish systemd"
    if has clang; then
        # Debian keeps the sanitizers' run time beside clang, under its version
        clang_sanitizes || wish="$wish libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
    else
        wish="$wish clang"
    fi
    if [ "$machine" != aarch64 ]; then
        has aarch64-linux-gnu-gcc || wish="$wish gcc-aarch64-linux-gnu"
        has aarch64-linux-gnu-gcc && compiles aarch64-linux-gnu-gcc stdio.h || wish="$wish libc6-dev-arm64-cross"
        has qemu-aarch64 || wish="$wish qemu-user"
        has qemu-aarch64-static || wish="$wish qemu-user-static"
    fi
    if [ "$machine" != riscv64 ]; then
        has riscv64-linux-gnu-gcc || wish="$wish gcc-riscv64-linux-gnu"
        has riscv64-linux-gnu-gcc && compiles riscv64-linux-gnu-gcc stdio.h || wish="$wish libc6-dev-riscv64-cross"
        has qemu-riscv64 || case $wish in *qemu-user*) ;; *) wish="$wish qemu-user" ;; esac
    fi
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif [ -t 0 ]; then
        sudo "$@"
    else
        sudo -n "$@"
    fi
}

apt() { # quiet; what it said is in $log
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1 </dev/null
}

have_candidate() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'; }

stop() { # what is still needed cannot be had
    echo "$1" >&2
    echo "Please install these (Debian and Ubuntu names), then run this again:" >&2
    echo "  $2" >&2
    exit 1
}

look
if [ "$only_look" = yes ]; then
    [ -z "$need$wish" ] || echo "$need$wish"
    exit 0
fi
[ -n "$need$wish" ] || exit 0
missing=$need$wish # a list that begins with a space
if ! has apt-get; then
    [ -z "$need" ] || stop "This system has no apt-get." "${need# }"
    echo "packages: not installed, no apt-get here:$missing"
    exit 0
fi
if [ "$(id -u)" != 0 ] && ! has sudo; then
    [ -z "$need" ] || stop "Installing packages needs root or sudo." "apt-get install$missing"
    echo "packages: not installed, neither root nor sudo:$missing"
    exit 0
fi

log=$(mktemp "${TMPDIR:-/tmp}/bitnet-packages.XXXXXX") || exit 1
echo "packages: installing$missing"
apt update || echo "packages: apt-get update failed; trying with the lists that are here"
# A second look afterwards: the name of clang's run time is only known once clang is there.
for round in 1 2; do
    able=''
    for p in $wish; do
        if have_candidate "$p"; then able="$able $p"; else echo "packages: not in this distribution: $p"; fi
    done
    # shellcheck disable=SC2086  # a list of words
    if ! apt install --no-install-recommends $need $able; then
        tail -n 15 "$log" >&2
        [ -z "$need" ] || stop "apt-get could not install the packages (whole log: $log)." "${need# }$able"
        echo "packages: not installed:$able"
    fi
    before="$need$wish"
    look
    if [ -z "$need$wish" ] || [ "$need$wish" = "$before" ]; then break; fi
    [ "$round" = 2 ] || echo "packages: installing$need$wish"
done
if [ -n "$need" ]; then
    case $need in
    *meson*) echo "meson $wanted or later is needed; where the system's is older: python3 -m pip install --user meson" >&2 ;;
    esac
    stop "Still missing after the installation (log: $log)." "${need# }"
fi
rm -f "$log"
exit 0
