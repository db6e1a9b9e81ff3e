#!/bin/sh
# Builds the Debian packages of the commit that is checked out, and looks at them with lintian:
#
#   sh packaging/debian.sh FOLDER          FOLDER, which is new or empty, gets the packages
#
# debian/control says what a build needs; as root or with sudo, what is missing is installed.  Tried on Debian 12.
set -eu

[ $# = 1 ] || { echo "usage: debian.sh FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "debian.sh: $out is not empty" >&2; exit 1; }
as_root=
[ "$(id -u)" = 0 ] || as_root=sudo
if ! (cd "$here" && dpkg-checkbuilddeps) 2> /dev/null || ! command -v lintian > /dev/null; then
    $as_root apt-get -q update || echo "apt-get update had errors; going on"
    $as_root apt-get -q -y --no-install-recommends install dpkg-dev lintian
    (cd "$here" && $as_root apt-get -q -y --no-install-recommends build-dep ./)
fi
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$here/meson.build")
git -C "$here" archive --format=tar.gz --prefix="clattn-$version/" HEAD -- . ':!debian' > "$out/clattn_$version.orig.tar.gz"
git -C "$here" archive --prefix="clattn-$version/" HEAD | tar -x -C "$out"
cd "$out/clattn-$version"
dpkg-buildpackage -us -uc
cd ..
rm -rf "clattn-$version"
# No bug asks for the package yet.
lintian --allow-root --pedantic --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs,wrong-bug-number-in-closes \
    clattn_*.changes
ls ./*.deb
