#!/bin/sh
# Makes a root file system of another Debian, with what tests need to run, and runs a program in it:
#
#   chroot.sh make FOLDER RELEASE ARCHITECTURE PACKAGE...
#   chroot.sh run FOLDER SOURCE WORK PROGRAM [ARGUMENT...]
#
# PACKAGEs, a shell and what they depend on are unpacked and not configured.  PROGRAM sees the folders SOURCE and WORK in
# their places.  Its mounts are its own and end with it; the drivers' caches stay in FOLDER.  Needs root, mmdebstrap and
# unshare; for another ARCHITECTURE than this machine's qemu-user-static, too, which the kernel is told to start such programs
# with.  Status 77 of `make`: it cannot be made here; the last line says why.
set -u

PATH=$PATH:/usr/sbin:/sbin
verb=${1-} folder=${2-}
case $verb:$# in
make:[5-9] | make:1? | run:[5-9] | run:1?) ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

if [ "$verb" = run ]; then
    shift 2
    # PoCL needs /sys to find its memory.
    # shellcheck disable=SC2016 # the inner shell expands these
    exec unshare --mount sh -c 'root=$0 source=$1 work=$2 && shift 2 &&
        for bound in /proc /sys /dev "$source" "$work"; do
            mkdir -p "$root$bound" && mount --rbind "$bound" "$root$bound" || exit 1
        done
        exec env HOME=/root TMPDIR=/tmp XDG_CACHE_HOME=/root/.cache POCL_CACHE_DIR=/var/cache/pocl \
            MESA_SHADER_CACHE_DIR=/var/cache/mesa chroot "$root" "$@"' "$folder" "$@"
fi

# can_start ARCHITECTURE: the kernel starts programs of it, by an emulator that it opens now, so that a root needs none.
can_start()
{
    case $1 in
    "$(dpkg --print-architecture)") return 0 ;;
    arm64) emulator=qemu-aarch64 ;;
    *) return 1 ;;
    esac
    formats=/proc/sys/fs/binfmt_misc
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats || return 1
    [ -e $formats/$emulator ] || cat /usr/lib/binfmt.d/$emulator.conf > $formats/register
}

release=$3 architecture=$4
shift 4
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2> /dev/null || ! command -v mmdebstrap > /dev/null; then
    echo "root, the right to mount and mmdebstrap are needed"
    exit 77
fi
if ! can_start "$architecture"; then
    echo "this kernel cannot be told to start programs of $architecture, or qemu-user-static is missing"
    exit 77
fi
[ -e "$folder" ] && exit 0
rm -rf "$folder.part"
# base-files has the links of a merged /usr.  A mirror that is a snapshot may be older than its Release file allows.
mmdebstrap --variant=extract --architectures="$architecture" --include="base-files dash coreutils findutils $*" \
    --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Check-Date "false"' \
    "$release" "$folder.part" http://deb.debian.org/debian 2>&1 || {
    echo "mmdebstrap failed"
    exit 77
}
# A linker outside follows no link that begins at the root's own /.
find "$folder.part/usr/lib" -lname '/*' | while read -r link; do
    ln -snfr "$folder.part$(readlink "$link")" "$link"
done
mkdir -p "$folder.part/var/cache/pocl" "$folder.part/var/cache/mesa" && mv "$folder.part" "$folder" && echo "$folder"
