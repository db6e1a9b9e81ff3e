#!/bin/sh
# Makes a root file system of another Debian, with PoCL, rusticl and what tests need to run, and runs a program in it:
#
#   chroot.sh make FOLDER RELEASE [ARCHITECTURE]
#   chroot.sh run FOLDER SOURCE WORK PROGRAM [ARGUMENT...]
#
# PROGRAM sees the folders SOURCE and WORK in their places.  Its mounts are its own and end with it; the drivers' caches stay
# in FOLDER.  Needs root, debootstrap and unshare; an ARCHITECTURE that is not this machine's needs qemu-user-static, with
# which the kernel is told to run such programs, and gets headers to build with instead of rusticl.  Status 77 of `make`: it
# cannot be made here; the last line says why.
set -u

PATH=$PATH:/usr/sbin:/sbin
packages="pocl-opencl-icd ocl-icd-libopencl1 libjansson4 libcmocka0"
verb=${1-} folder=${2-}
case $verb:$# in
make:[34] | run:[5-9]) ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac

# inside COMMAND...: runs in the root file system $root.  PoCL needs /sys to find its memory.
inside()
{
    # shellcheck disable=SC2016 # the inner shell expands these
    unshare --mount sh -c 'root=$1 && shift &&
        mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys" && mount --rbind /dev "$root/dev" &&
        for bound in $BOUND; do mkdir -p "$root$bound" && mount --bind "$bound" "$root$bound" || exit 1; done &&
        exec chroot "$root" "$@"' sh "$root" env HOME=/root TMPDIR=/tmp PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        XDG_CACHE_HOME=/root/.cache POCL_CACHE_DIR=/var/cache/pocl MESA_SHADER_CACHE_DIR=/var/cache/mesa "$@"
}

# The kernel runs programs of $architecture by an emulator, which it opens now, so that a chroot needs none.
emulate()
{
    case $architecture in
    arm64) emulator=qemu-aarch64 ;;
    *) return 1 ;;
    esac
    formats=/proc/sys/fs/binfmt_misc
    [ -e $formats/register ] || mount -t binfmt_misc binfmt_misc $formats || return 1
    [ -e $formats/$emulator ] || cat /usr/lib/binfmt.d/$emulator.conf > $formats/register
}

if [ "$verb" = run ]; then
    root=$folder BOUND="$3 $4"
    export BOUND
    shift 4
    inside "$@"
    exit
fi

release=$3 architecture=${4-}
if [ "$(id -u)" != 0 ] || ! unshare --mount true 2> /dev/null || ! command -v debootstrap > /dev/null; then
    echo "root, the right to mount and debootstrap are needed"
    exit 77
fi
if [ -z "$architecture" ]; then
    packages="$packages mesa-opencl-icd"
elif emulate; then
    packages="$packages libc6-dev ocl-icd-opencl-dev opencl-headers libjansson-dev libcmocka-dev"
else
    echo "this kernel cannot be told to run programs of $architecture, or qemu-user-static is missing"
    exit 77
fi
[ -e "$folder" ] && exit 0
root=$folder.part BOUND=
export BOUND
rm -rf "$root"
debootstrap --variant=minbase ${architecture:+--arch="$architecture"} "$release" "$root" http://deb.debian.org/debian || {
    echo "debootstrap failed"
    exit 77
}
cp /etc/resolv.conf "$root/etc/resolv.conf"
# A mirror that is a snapshot may be older than its Release file allows.
echo 'Acquire::Check-Valid-Until "false"; Acquire::Check-Date "false";' > "$root/etc/apt/apt.conf.d/snapshot"
# shellcheck disable=SC2086 # words are meant
inside sh -c "apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $packages &&
    apt-get clean" || { echo "packages cannot be installed"; exit 77; }
mkdir -p "$root/var/cache/pocl" "$root/var/cache/mesa" && mv "$root" "$folder" && echo "$folder"
