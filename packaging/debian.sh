#!/bin/sh
# Builds the Debian packages of the commit that is checked out, and looks at them with lintian:
#
#   sh packaging/debian.sh FOLDER            FOLDER, which is new or empty, gets the packages
#   sh packaging/debian.sh FOLDER RELEASE    the same in a clean system of RELEASE (bookworm, trixie); then tests them
#
# debian/control says what a build needs; what is missing is installed, as root or with sudo.  With a RELEASE, this needs
# root, git and mmdebstrap, which makes one system to build in, and another in which the packages are installed and
# debian/tests runs.
set -eu

[ $# = 1 ] || [ $# = 2 ] || { echo "usage: debian.sh FOLDER [RELEASE]" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
[ -z "$(ls -A "$out")" ] || { echo "debian.sh: $out is not empty" >&2; exit 1; }
# in_release OPTION...: makes a system of the release, in which hooks do the work, and removes it.
in_release()
{
    # A mirror that is a snapshot may be older than its Release file allows.
    mmdebstrap --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
        --customize-hook="copy-in '$work/clattn' /root" "$@" "$release" /dev/null http://deb.debian.org/debian
}
if [ $# = 2 ]; then
    release=$2 work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    git clone -q --depth 1 "file://$here" "$work/clattn"
    # shellcheck disable=SC2016 # mmdebstrap's shell expands these
    in_release --variant=buildd --include=git,lintian \
        --customize-hook='chroot "$1" sh /root/clattn/packaging/debian.sh /root/packages' \
        --customize-hook="sync-out /root/packages '$out'"
    # shellcheck disable=SC2016
    in_release --variant=apt --include=gcc,gegl,libc6-dev,mpi-default-bin,pkgconf,pocl-opencl-icd \
        --customize-hook="sync-in '$out' /root" \
        --customize-hook='chroot "$1" sh -ec "cd /root && apt-get -q -y --no-install-recommends install ./*.deb
            cd clattn && AUTOPKGTEST_TMP=/tmp && export AUTOPKGTEST_TMP
            for test in command gegl library mpi python; do sh debian/tests/\$test; done"'
    exit
fi
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
