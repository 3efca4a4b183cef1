#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a release consists of, into build-release/: the sources of HEAD, the static program with its man pages and
# completions, a list of what is linked into it (SPDX), and checksums of all of them. Two runs on one machine give the same bytes.
set -eu
cd "$(dirname "$0")/.."
version=$(sed -n "s/^project('bitnet'.*version: '\([0-9.]*\)'.*/\1/p" meson.build)
machine=$(uname -m)
out=build-release
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf $out
mkdir -p $out

echo "release: sources of $(git rev-parse --short HEAD)"
[ -z "$(git status --porcelain)" ] || echo "release: note: uncommitted changes are left out" >&2
git archive --prefix="bitnet-$version/" HEAD | gzip -9n >"$out/bitnet-$version.tar.gz"

echo "release: static program"
folder=bitnet-$version-linux-$machine
mkdir -p "$out/tree/sources" "$out/tree/$folder"
# what is installed and still has to be built; no tests
installed='import json, os, sys
for path in json.load(sys.stdin):
    if path.startswith(sys.argv[1] + "/") and not os.path.exists(path): print(os.path.relpath(path, sys.argv[1]))'
git archive HEAD | tar -x -C "$out/tree/sources"
(
    cd "$out/tree/sources"
    meson setup build -Dstatic=true -Dtext=enabled --prefix=/ \
        --libexecdir=libexec >build.log 2>&1 &&
        meson introspect --installed build | python3 -c "$installed" "$PWD/build" | xargs ninja -C build >>build.log 2>&1 ||
        { tail -n 20 build.log >&2; exit 1; }
    DESTDIR="$PWD/installed" meson install -C build --no-rebuild >>build.log 2>&1
)
for part in bin share; do
    cp -a "$out/tree/sources/installed/$part" "$out/tree/$folder/"
done
cp LICENSE README.md CHANGELOG.md "$out/tree/$folder/"
python3 tools/make_sbom.py "$version" "$out/tree/$folder/bin/bitnet" >"$out/$folder.spdx.json"
cp "$out/$folder.spdx.json" "$out/tree/$folder/sbom.spdx.json"
tar -C "$out/tree" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$folder" |
    gzip -9n >"$out/$folder.tar.gz"
rm -rf "$out/tree"
(cd $out && sha256sum -- *.tar.gz *.json >SHA256SUMS)
ls -l $out
