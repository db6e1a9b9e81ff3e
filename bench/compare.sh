#!/bin/sh
# Compares clattn with the machine's roofs and with PyTorch, and keeps the results, the tables and a plot:
#
#   sh bench/compare.sh BUILD_DIR [--out FOLDER] [OPTION...]
#
#   BUILD_DIR  where clattn was built, with the command
#   --out      where compare.json, compare.md and compare.svg go (default: BUILD_DIR/bench); those of an earlier run are
#              replaced
#   OPTION     bench/compare.py's: --rounds N, --only TEXT, --machine TEXT, --openblas FILE
#
# Runs on the OpenCL device that the command chooses (CLATTN_DEVICE).  PyTorch is measured if the Python that PYTHON names
# (default: python3) can import it.  compare.json has the form of bench/results.
exec "${PYTHON:-python3}" "$(dirname "$0")/compare.py" --out="${1-}/bench" "$@"
