#!/bin/sh
# Makes the Python package's wheel of a source folder: wheel.sh SOURCE FOLDER [PYTHON [HEADERS]]
#
# It serves every Python 3, and every C library from that one on whose symbols it has.  PYTHON (python3) has pip, which fetches
# what builds a wheel.  With HEADERS, a folder that has ONNX Runtime's, clattn_onnxruntime is in the wheel, too.
set -eu

[ $# -ge 2 ] && [ $# -le 4 ] || { echo "usage: wheel.sh SOURCE FOLDER [PYTHON [HEADERS]]" >&2; exit 2; }
source=$(cd "$1" && pwd) python=${3-python3} out=$2
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --target "$work/tools" wheel
if [ $# = 4 ]; then
    set -- -Csetup-args=-Donnxruntime=enabled "-Csetup-args=-Donnxruntime_headers=$(cd "$4" && pwd)"
else
    set --
fi
CFLAGS="-ffile-prefix-map=$source=." "$python" -m pip wheel --quiet --no-deps --wheel-dir "$work/wheel" "$@" "$source"
"$python" -m zipfile -e "$work"/wheel/*.whl "$work/unpacked"
libc=$(find "$work/unpacked" -name '*.so' -exec objdump -T {} + | grep -o 'GLIBC_[0-9.]*' | sort -t. -k2 -n | tail -n 1 | tr . _)
PYTHONPATH=$work/tools "$python" -m wheel tags --remove --python-tag py3 --abi-tag none \
    --platform-tag "manylinux_${libc#GLIBC_}_$(uname -m)" "$work"/wheel/*.whl > /dev/null
cp "$work"/wheel/*.whl "$out"
