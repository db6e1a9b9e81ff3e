#!/bin/sh
# Fetches PyTorch into a folder, from which property.py runs; nothing is installed:
#
#   sh tests/pytorch/install.sh FOLDER
#
# FOLDER/python is then the interpreter that the packages in FOLDER are for.  Status 77: there is no such PyTorch for this
# interpreter and machine; anything else but 0: it could not be fetched.
#
# What PyPI has for Linux is PyTorch's CUDA build: 540 MB, and 2 GB of libraries that nothing here calls.  Of these, it is only
# given the two that it calls while it starts (60 MB); the others are one library of placeholders, made here, that has
# the symbols which PyTorch's libraries are linked with and stops the process if any is called.
set -u

torch=2.15.0 cuda=13.2.86
[ -n "${1-}" ] || { echo "usage: install.sh FOLDER" >&2; exit 2; }
folder=$1 part=$1.part
[ -e "$folder/python" ] && exit 0

case $(uname -sm) in
"Linux x86_64" | "Linux aarch64") ;;
*)
    echo "PyPI has no PyTorch $torch for $(uname -sm)"
    exit 77
    ;;
esac

python=python3
"$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
"$python" -m pip --version > /dev/null 2>&1 ||
    $(command -v sudo) apt-get -q -y --no-install-recommends install python3-pip || exit 1

# fetch PACKAGE...
fetch() { "$python" -m pip --quiet install --no-compile --only-binary :all: --target "$part" "$@" 2>&1; }

rm -rf "$part" && mkdir -p "$part" || exit 1
said=$(fetch --no-deps "torch==$torch")
status=$?
[ -z "$said" ] || echo "$said"
if [ $status != 0 ]; then
    # An index that cannot be reached has no versions at all.
    case $said in
    *"(from versions: none)"*) exit 1 ;;
    *"No matching distribution"*) exit 77 ;;
    esac
    exit 1
fi
# NumPy, and what torch imports if nothing is compiled.
fetch numpy typing-extensions sympy networkx jinja2 fsspec filelock || exit 1

libraries=$part/torch/lib
if [ -e "$libraries/libtorch_cuda.so" ]; then
    fetch --no-deps "nvidia-cuda-runtime==$cuda" "nvidia-cuda-cupti==$cuda" || exit 1
    placeholders=libcuda_placeholders.so
    for each in "$libraries"/libtorch*.so "$libraries"/libc10*.so; do
        readelf -W --dyn-syms "$each" | awk '$7 == "UND" { print $8 }'
    done | grep -E '^(cublas|cudnn|cufft|cusparse|cusolver|nccl|nvshmem|nvrtc|cuFile|nvJitLink)' | sort -u > "$part/symbols"
    # name, name@VERSION or name@@VERSION; the dynamic linker insists on the versions.
    sed 's/@.*//; s/.*/void &(void) { __builtin_trap(); }/' "$part/symbols" | sort -u > "$part/placeholders.c"
    awk -F@ 'NF > 1 { of[$NF] = of[$NF] " " $1 ";" } END { for (v in of) print v " {" of[v] " };" }' \
        "$part/symbols" > "$part/versions"
    cc=cc
    command -v cc > /dev/null || cc=gcc
    $cc -w -shared -fPIC -Wl,--version-script="$part/versions" -o "$libraries/$placeholders" "$part/placeholders.c" || exit 1
    for each in "$libraries"/libtorch*.so "$libraries"/libc10*.so; do
        readelf -d "$each" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'
    done | sort -u | grep -E '^lib(cublas|cudnn|cufft|cufile|cusparse|cusolver|nccl|nvshmem|nvrtc|nvJitLink)' |
        while read -r each; do
            ln -s $placeholders "$libraries/$each"
        done
fi

PYTHONPATH=$part "$python" - "$part/python" << 'EOF' || exit 1
import sys
import torch
import torch.nn.attention.flex_attention
assert torch.ones(3, dtype=torch.float64).sum() == 3
with open(sys.argv[1], "w") as file:
    print(sys.executable, file=file)
print("PyTorch", torch.__version__, "with", sys.executable)
EOF
rm -rf "$folder" && mv "$part" "$folder"
