#!/bin/sh
# Writes the recipes of other package managers for a release, with its address and checksums:
#
#   sh packaging/recipes.sh ARCHIVE URL FOLDER
#
# ARCHIVE is what packaging/release.sh made, clattn-VERSION.tar.gz; URL is where it can be fetched.  FOLDER gets
#
#   conan/                 conan create FOLDER/conan; the test group `packages` does that
#   vcpkg/clattn/          an overlay port: vcpkg install clattn --overlay-ports=FOLDER/vcpkg; read by CMake in the tests, never by vcpkg
#   meson/clattn.wrap      for the folder subprojects of a Meson project; the tests build a program by it
#   homebrew/clattn.rb     brew install --formula FOLDER/homebrew/clattn.rb, on Linux; not tried
#
# Each but the wrap file builds libclattn and libclattn-io, which need nothing but OpenCL's headers and open the OpenCL loader at
# run time.  libclattn-pictures is left out: it calls the loader itself.  With the wrap file Meson builds libclattn, linked to the
# loader, and what else the project's default_options say.
set -eu

[ $# = 3 ] || { echo "usage: recipes.sh ARCHIVE URL FOLDER" >&2; exit 2; }
archive=$1 url=$2
mkdir -p "$3"
out=$(cd "$3" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
name=${archive##*/}
version=${name#clattn-}
version=${version%.tar.gz}
[ "$name" = "clattn-$version.tar.gz" ] || { echo "recipes.sh: $archive is no clattn-VERSION.tar.gz" >&2; exit 1; }
case $url in *[\"\'\\\|\&]* | *' '*) echo "recipes.sh: $url is no address" >&2; exit 1 ;; esac
sha256=$(sha256sum < "$archive" | cut -d ' ' -f 1)
sha512=$(sha512sum < "$archive" | cut -d ' ' -f 1)

cd "$here/recipes"
find . -type f | while read -r file; do
    mkdir -p "$out/$(dirname "$file")"
    sed -e "s|@VERSION@|$version|g" -e "s|@URL@|$url|g" -e "s|@SHA256@|$sha256|g" -e "s|@SHA512@|$sha512|g" \
        "$file" > "$out/$file"
done
ls "$out"
