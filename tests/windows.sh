#!/bin/sh
# Fetches what building and testing for Windows needs besides tests/deps.sh: windows.sh FOLDER [wine]
#
# Installs mingw-w64 (56 MB), and with `wine` also wine (101 MB), if they are not there.  Debian has cmocka and jansson for no
# Windows: they are built of its source packages (10 MB to fetch, nearly all of it their index) into FOLDER, beside OpenCL's
# headers, an import library for OpenCL.dll, and `cross.ini`, which tells meson where all this is; with `wine` also a prefix
# of wine's.  The last line is FOLDER.  Works as root or with sudo.  Status 77: it cannot be fetched; the last line says why.
set -u

folder=${1-}
case $#:${2-wine} in
[12]:wine) ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
case $folder in
/*) ;;
*) folder=$PWD/$folder ;;
esac
host=x86_64-w64-mingw32

missing=
command -v $host-gcc > /dev/null || missing=gcc-mingw-w64-x86-64-win32
[ $# = 1 ] || command -v wine > /dev/null || missing="$missing wine wine64 libwine"
if [ -n "$missing" ]; then
    as_root=
    [ "$(id -u)" = 0 ] || as_root=sudo
    $as_root apt-get -q update || echo "apt-get update had errors; going on"
    # shellcheck disable=SC2086 # words are meant
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing ||
        { echo "cannot be installed: $missing"; exit 77; }
fi

# fetch_sources: the newest source packages of this Debian, by apt-get with lists of its own, into the current folder.
fetch_sources()
{
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    mkdir -p lists/partial cache/archives/partial &&
        echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $release main" \
            > sources.list || return 1
    set -- -q -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$PWD/lists" \
        -o Dir::Cache="$PWD/cache" -o APT::Sandbox::User= -o Acquire::Languages=none
    apt-get "$@" update && apt-get "$@" --download-only source cmocka jansson
}

# build NAME PREFIX DEFINITIONS SOURCE...: a static library of C files, which are compiled without warnings.
build()
{
    name=$1 prefix=$2 definitions=$3
    shift 3
    # shellcheck disable=SC2086 # words are meant
    (mkdir -p "objects-$name" && cd "objects-$name" && $host-gcc -O2 -w -c $definitions -I "$prefix/include" "$@" &&
        $host-ar rcs "$prefix/lib/lib$name.a" ./*.o) || return 1
    printf 'Name: %s\nDescription: for Windows\nVersion: %s\nLibs: -L%s/lib -l%s\nCflags: -I%s/include\n' "$name" \
        "$(version "$name")" "$folder" "$name" "$folder" > "$prefix/lib/pkgconfig/$name.pc"
}
version() { ls -- "$1"_*.orig.tar.?z 2> /dev/null | sed -n "s/^$1_\(.*\)\.orig\.tar\..z$/\1/p" | head -n 1; }

make_prefix()
{
    prefix=$folder.part
    rm -rf "$prefix" && mkdir -p "$prefix/include" "$prefix/lib/pkgconfig" "$prefix/sources" && cd "$prefix/sources" || return 1
    fetch_sources || { echo "the source packages of cmocka and jansson cannot be fetched"; return 77; }
    for name in cmocka jansson; do
        mkdir "$name" && tar -xf "$(ls -- "$name"_*.orig.tar.?z)" --strip-components=1 -C "$name" || return 1
    done
    # mingw-w64's own printf is C11's, and __printf__ is Windows'.
    sed -e 's/(__printf__,/(__gnu_printf__,/' cmocka/include/cmocka.h > "$prefix/include/cmocka.h" &&
        cp jansson/src/jansson.h "$prefix/include" &&
        sed -e 's/@json_inline@/inline/' -e 's/@json_[a-z_]*@/1/' jansson/src/jansson_config.h.in \
            > "$prefix/include/jansson_config.h" || return 1
    # All that their build systems would find out is in the definitions.
    : > config.h && : > jansson_private_config.h || return 1
    build cmocka "$prefix" "-I$PWD -I$PWD/cmocka/include -DHAVE_CONFIG_H -DHAVE_MALLOC_H -DHAVE_INTTYPES_H -DHAVE_SIGNAL_H -DHAVE_STRINGS_H
        -DHAVE_GCC_THREAD_LOCAL_STORAGE -DHAVE_STRUCT_TIMESPEC -D__USE_MINGW_ANSI_STDIO=1" "$PWD/cmocka/src/cmocka.c" &&
        build jansson "$prefix" "-I$PWD -DHAVE_STDINT_H -DHAVE_UNISTD_H -DHAVE_SYS_TYPES_H -DHAVE_ATOMIC_BUILTINS
            -D__USE_MINGW_ANSI_STDIO=1" "$PWD"/jansson/src/*.c || return 1
    # The functions of OpenCL 1.2, which every loader has.
    cp -rL /usr/include/CL "$prefix/include" && {
        printf 'LIBRARY OpenCL.dll\nEXPORTS\n'
        printf '#define CL_TARGET_OPENCL_VERSION 120\n#define CL_USE_DEPRECATED_OPENCL_1_1_APIS\n#include <CL/cl.h>\n' |
            $host-gcc -E -I "$prefix/include" - | grep -oE '\bcl[A-Z][A-Za-z0-9]*\(' | tr -d '(' | sort -u
    } > OpenCL.def && $host-dlltool -d OpenCL.def -l "$prefix/lib/libOpenCL.a" || return 1
    printf 'Name: OpenCL\nDescription: for Windows\nVersion: 1.2\nLibs: -L%s/lib -lOpenCL\nCflags: -I%s/include\n' "$folder" \
        "$folder" > "$prefix/lib/pkgconfig/OpenCL.pc"
    # Programs that bring their runtime along need no other DLL than Windows' and the project's.
    printf "[binaries]\npkgconfig = 'pkg-config'\n[properties]\npkg_config_libdir = '%s'\n[built-in options]\nc_link_args = ['-static']\n" \
        "$folder/lib/pkgconfig" > "$prefix/cross.ini"
    cd / && rm -rf "$prefix/sources" "$folder" && mv "$prefix" "$folder"
}

if [ ! -e "$folder/cross.ini" ]; then
    make_prefix
    status=$?
    [ "$status" = 0 ] || exit "$status"
fi
if [ $# = 2 ] && [ ! -e "$folder/wine/system.reg" ]; then
    # Without what wine has for .NET and web pages, which it would ask for.
    WINEPREFIX=$folder/wine WINEDEBUG=-all WINEDLLOVERRIDES='mscoree,mshtml=' wine wineboot --init || exit 1
fi
echo "$folder"
