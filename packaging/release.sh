#!/bin/sh
# Makes what a release has, in a folder: the source as an archive, the Python package's wheel, and their checksums.
#
#   sh packaging/release.sh FOLDER [HEADERS]
#
# It takes the commit that is checked out; what is not committed is refused.  The same commit gives the same bytes.  Needs git and
# pip with the network, which fetches what builds a wheel.  With HEADERS, a folder that has ONNX Runtime's, the wheel has
# clattn_onnxruntime, too (tests/onnxruntime/headers.sh fetches them).
set -eu

[ $# = 1 ] || [ $# = 2 ] || { echo "usage: release.sh FOLDER [HEADERS]" >&2; exit 2; }
headers=${2+$(cd "$2" && pwd)}
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$here"
[ -z "$(git status --porcelain)" ] || { echo "release.sh: there are changes that are not committed" >&2; exit 1; }

version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" meson.build)
header=$(sed -n 's/^#define CLATTN_VERSION_STRING "\([^"]*\)".*/\1/p' include/clattn/version.h)
changes=$(sed -n 's/^## \([0-9.]*\).*/\1/p' CHANGES.md | head -n 1)
for other in "$header" "$changes"; do
    [ "$other" = "$version" ] ||
        { echo "release.sh: meson.build says $version, version.h $header and CHANGES.md $changes" >&2; exit 1; }
done

SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
name=clattn-$version
git archive --format=tar --prefix="$name/" HEAD | gzip -n -9 > "$out/$name.tar.gz"

# The wheel is made of the archive, so that it needs nothing else.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -xzf "$out/$name.tar.gz" -C "$work"
sh packaging/wheel.sh "$work/$name" "$out" python3 ${headers:+"$headers"}
cd "$out" && sha256sum "$name.tar.gz" "$name"*.whl | tee SHA256SUMS
