#!/bin/sh
# Makes a virtual environment that has a wheel of clattn and what pip installs with it:
#
#   venv.sh FOLDER PYTHON WHEELS PACKAGE==VERSION...
#
# WHEELS is the wheel's folder.  Packages that the wheel asks for are of these versions; others are not installed.  Status 77:
# PYTHON is not there.
set -eu

folder=$1 python=$2 wheels=$3
shift 3
"$python" --version || { echo "there is no $python"; exit 77; }
rm -rf "$folder"
"$python" -m venv --without-pip "$folder"
printf '%s\n' "$@" > "$folder/constraints.txt"
"$python" -m pip --python "$folder" install --quiet --no-compile --constraint "$folder/constraints.txt" \
    "$(echo "$wheels"/*.whl)[text]"
