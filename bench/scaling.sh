#!/bin/sh
# Times clattn against the sizes of its work, and random shapes against the machine's roofs, and keeps tables and a plot:
#
#   sh bench/scaling.sh BUILD_DIR [--out FOLDER] [OPTION...]
#
#   BUILD_DIR  where clattn was built, with the command
#   --out      where scaling.md, scaling.svg and random_shapes.md go (default: BUILD_DIR/bench); those of an earlier run
#              are replaced
#   OPTION     bench/scaling.py's: --rounds N, --only TEXT; with --only, random shapes are left out
#
# Runs on the OpenCL device that the command chooses (CLATTN_DEVICE).  The exit status is 1 if something grows faster than
# its arithmetic, or could not be measured.
exec "${PYTHON:-python3}" "$(dirname "$0")/scaling.py" --out="${1-}/bench" "$@"
