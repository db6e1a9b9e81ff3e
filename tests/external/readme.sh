#!/bin/sh
# Builds README's first program by README's own lines, and runs it: readme.sh FOLDER cc|cmake|meson [ARGUMENT...]
#
# FOLDER gets the program and its build file; ARGUMENTs are CMake's or Meson's.
set -eu

[ $# -ge 2 ] || { echo "usage: readme.sh FOLDER cc|cmake|meson [ARGUMENT...]" >&2; exit 2; }
readme=$(cd "$(dirname "$0")/../.." && pwd)/README.md
folder=$1 way=$2
shift 2
rm -rf "$folder/build"
mkdir -p "$folder"
cd "$folder"
# block LANGUAGE WORD: the block of code in the language whose first line begins with the word.
block()
{
    awk -v fence="\`\`\`$1" -v word="$2" '
        /^```/ { inside = $0 == fence; first = inside; next }
        first { inside = index($0, word) == 1; first = 0 }
        inside' "$readme"
}
block c '/*' > first.c
case $way in
cc)
    mkdir build
    sh -euxc "$(block sh cc)"
    mv first build
    ;;
cmake)
    block cmake cmake_minimum_required > CMakeLists.txt
    cmake -B build "$@"
    cmake --build build
    ;;
meson)
    block meson project > meson.build
    meson setup build "$@"
    meson compile -C build
    ;;
esac
build/first
