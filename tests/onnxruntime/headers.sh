#!/bin/sh
# Fetches ONNX Runtime's C headers, of which Debian 12 has none: headers.sh FOLDER
#
# They are those of Debian sid's libonnxruntime-dev (0.1 MB, and 11 MB for the index), checked by Debian's keys; nothing is
# installed.  FOLDER/onnxruntime has them.  Status 77: they cannot be fetched; the last line says why.
set -u

folder=${1-}
[ $# = 1 ] || { echo "usage: headers.sh FOLDER" >&2; exit 2; }
[ -e "$folder/onnxruntime/onnxruntime_ep_c_api.h" ] && { echo "$folder"; exit 0; }
mkdir -p "$folder" && folder=$(cd "$folder" && pwd) || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian sid main" > "$work/list"
set -- -q -o "Dir::Etc::SourceList=$work/list" -o Dir::Etc::SourceParts=/nonexistent -o "Dir::State::Lists=$work/lists" \
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Check-Valid-Until=false
cd "$work" || exit 1
if ! apt-get "$@" update || ! apt-get "$@" download libonnxruntime-dev; then
    echo "Debian sid's libonnxruntime-dev cannot be fetched"
    exit 77
fi
dpkg -x libonnxruntime-dev_*.deb unpacked && cp -r unpacked/usr/include/onnxruntime "$folder" &&
    echo "$folder"
