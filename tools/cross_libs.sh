#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Fetches the libraries that a minimal program for another architecture is linked with, as Debian packages them, into a
# folder; nothing is installed. Writes FOLDER/libs.ini, a second cross file for meson.
#   cross_libs.sh arm64 aarch64-linux-gnu FOLDER     exit 0: they are there; else they cannot be had
#   meson setup build-arm64 --cross-file tests/cross/aarch64-linux-gnu.ini --cross-file FOLDER/libs.ini \
#       -Dminimal=true -Dstatic=true -Dtext=enabled
set -eu
[ $# = 3 ] || { sed -n '3,7p' "$0" >&2; exit 2; }
arch=$1 triple=$2
mkdir -p "$3/lists/partial" "$3/archives/partial" "$3/root"
folder=$(cd "$3" && pwd)
[ ! -f "$folder/libs.ini" ] || exit 0 # written last

# package lists and archives of its own, so that the system's stay what they are
apt() {
    apt-get -qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch" -o Dir::State::lists="$folder/lists" \
        -o Dir::State::status=/dev/null -o Dir::Cache="$folder" -o APT::Sandbox::User=root "$@" >&2
}
apt update
cd "$folder/archives"
apt download libpcre2-dev libutf8proc-dev
for package in *.deb; do dpkg -x "$package" "$folder/root"; done

cat >"$folder/libs.ini" <<EOF
[binaries]
pkgconfig = 'pkg-config'

[properties]
sys_root = '$folder/root'
pkg_config_libdir = '$folder/root/usr/lib/$triple/pkgconfig'
EOF
