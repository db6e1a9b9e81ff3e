#!/bin/sh
# Fetches packages of PyPI's into a folder; nothing is installed, and what is there already is not fetched again:
#
#   sh tests/packages.sh FOLDER PACKAGE==VERSION...
#
# FOLDER/python is then the interpreter that they are for, and FOLDER its PYTHONPATH.  Status 77: they cannot be fetched; the
# last line says why.
set -u

folder=${1-}
[ $# -ge 2 ] || { echo "usage: packages.sh FOLDER PACKAGE==VERSION..." >&2; exit 2; }
shift
[ -e "$folder/python" ] && exit 0
rm -rf "$folder.part" && mkdir -p "$folder.part" || exit 1
python=python3
"$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
"$python" -m pip --quiet install --no-compile --only-binary :all: --target "$folder.part" "$@" 2>&1 || {
    rm -rf "$folder.part"
    exit 77
}
"$python" -c 'import sys; print(sys.executable)' > "$folder.part/python" || exit 1
rm -rf "$folder" && mv "$folder.part" "$folder"
