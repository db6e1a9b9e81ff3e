#!/bin/sh
# Makes the Python package's wheel of a source folder: wheel.sh SOURCE FOLDER [PYTHON]
#
# It serves every Python 3, and every C library from that one on whose symbols it has.  PYTHON (python3) has pip, which fetches
# what builds a wheel.
set -eu

[ $# = 2 ] || [ $# = 3 ] || { echo "usage: wheel.sh SOURCE FOLDER [PYTHON]" >&2; exit 2; }
source=$(cd "$1" && pwd) python=${3-python3}
mkdir -p "$2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --target "$work/tools" wheel
CFLAGS="-ffile-prefix-map=$source=." "$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" "$source"
"$python" -m zipfile -e "$work"/wheel/*.whl "$work/unpacked"
libc=$(objdump -T "$work"/unpacked/clattn/_clattn.* | grep -o 'GLIBC_[0-9.]*' | sort -t. -k2 -n | tail -n 1 | tr . _)
PYTHONPATH=$work/tools "$python" -m wheel tags --remove --python-tag py3 --abi-tag none \
    --platform-tag "manylinux_${libc#GLIBC_}_$(uname -m)" "$work"/wheel/*.whl > /dev/null
cp "$work"/wheel/*.whl "$2"
