#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Are the C sources formatted as .clang-format says?
#   check_format.sh ROOT          exit 0: yes; 1: no, with the places; 77: no clang-format here, or another version
#   check_format.sh --fix ROOT    formats them
# CLANG_FORMAT names the program. Versions format a little differently; 14 is the one that decides.
set -eu
fix=no
if [ "${1-}" = --fix ]; then
    fix=yes
    shift
fi
cd "${1:-.}"

format=${CLANG_FORMAT:-}
for name in clang-format-14 clang-format; do
    if [ -z "$format" ] && command -v "$name" >/dev/null 2>&1; then format=$name; fi
done
if [ -z "$format" ]; then
    echo "no clang-format"
    [ -z "${BITNET_TESTS_REQUIRE:-}" ] || exit 1 # ./check wants one
    exit 77
fi
version=$("$format" --version | sed -n 's/.*version \([0-9][0-9]*\).*/\1/p')
if [ "$fix" = no ] && [ "$version" != 14 ]; then
    echo "clang-format 14 decides, this is $version"
    exit 77
fi

# kernels.def and other lists are laid out by hand as tables
list=$(find src include tests examples -name '*.[ch]' | sort)
if [ "$fix" = yes ]; then
    # shellcheck disable=SC2086  # one word a file: no name in the tree has a space
    "$format" -i $list
else
    # shellcheck disable=SC2086
    "$format" --dry-run --Werror $list
fi
