#!/bin/sh
# The recipes of other package managers (packaging/recipes.sh), as far as they can be tried here: recipes.sh CONAN FOLDER
#
# CONAN is Conan 2's command.  It builds both kinds of library and a program that uses them, with OpenCL's headers from this
# system in place of Conan's package of them.  vcpkg's port is read by CMake, and Homebrew's formula is not run.
set -eu

[ $# = 2 ] || { echo "usage: recipes.sh CONAN FOLDER" >&2; exit 2; }
conan=$1 work=$2
here=$(cd "$(dirname "$0")/.." && pwd)
rm -rf "$work"
mkdir -p "$work/headers"
version=$(sed -n "s/^  version: '\(.*\)',$/\1/p" "$here/meson.build")
archive=$work/clattn-$version.tar.gz
git -C "$here" archive --format=tar --prefix="clattn-$version/" HEAD | gzip -n -9 > "$archive"
sh "$here/packaging/recipes.sh" "$archive" "file://$archive" "$work"

cat > "$work/headers/conanfile.py" << 'EOF'
from conan import ConanFile
from conan.tools.files import copy


class Headers(ConanFile):
    name, version, package_type = "opencl-headers", "2023.12.14", "header-library"

    def package(self):
        copy(self, "*.h", "/usr/include/CL", f"{self.package_folder}/include/CL")

    def package_info(self):
        self.cpp_info.bindirs = self.cpp_info.libdirs = []
EOF
export CONAN_HOME="$work/home"
"$conan" profile detect > "$work/log" 2>&1
"$conan" create "$work/headers" --no-remote >> "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
for shared in False True; do
    "$conan" create "$work/conan" --no-remote -o "clattn/*:shared=$shared" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    grep "^clattn $version: " "$work/log" || { cat "$work/log"; echo "the program did not run"; exit 1; }
done

python3 - "$work" << 'EOF'
import json, sys
port = json.load(open(f"{sys.argv[1]}/vcpkg/clattn/vcpkg.json"))
assert {each if isinstance(each, str) else each["name"] for each in port["dependencies"]} >= {"opencl", "vcpkg-tool-meson"}
EOF
cat > "$work/port.cmake" << 'EOF'
# vcpkg's functions, which say what they are given.
function(vcpkg_download_distfile name)
    cmake_parse_arguments(PARSE_ARGV 1 given "" "FILENAME;SHA512" "URLS")
    file(DOWNLOAD "${given_URLS}" "${CMAKE_CURRENT_BINARY_DIR}/fetched.tar.gz" EXPECTED_HASH SHA512=${given_SHA512})
endfunction()
function(vcpkg_configure_meson)
    cmake_parse_arguments(PARSE_ARGV 0 given "" "SOURCE_PATH" "OPTIONS")
    foreach(option IN LISTS given_OPTIONS)
        message("option ${option}")
    endforeach()
endfunction()
foreach(name IN ITEMS vcpkg_extract_source_archive vcpkg_install_meson vcpkg_cmake_config_fixup vcpkg_fixup_pkgconfig
        vcpkg_install_copyright)
    cmake_language(EVAL CODE "function(${name})\nendfunction()")
endforeach()
set(CURRENT_PACKAGES_DIR "${CMAKE_CURRENT_BINARY_DIR}/package")
include("${CMAKE_CURRENT_LIST_DIR}/vcpkg/clattn/portfile.cmake")
EOF
(cd "$work" && cmake -P port.cmake) > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
# What the recipes say to meson, it knows.
{ sed -n 's/^option -D\([a-z0-9_]*\)=.*/\1/p' "$work/log"; sed -n 's/.*w\[\(.*\)\].*/\1/p' "$work/homebrew/clattn.rb" | tr ' ' '\n'; } |
    while read -r option; do
        grep -q "^option('$option'" "$here/meson_options.txt" || { echo "meson knows no option $option"; exit 1; }
    done
echo "the recipes are for clattn $version"
