#!/bin/sh
# Fetches Intel's OpenCL runtime for CPUs into a folder: intel.sh FOLDER
#
# It is the one platform here that has float16 arithmetic and sub-groups, some 800 MB of PyPI's under a licence of its own.
# Nothing is installed, and nothing links with it.  Status 77: it cannot be fetched; the last line says why.
set -u

folder=${1-}
[ -n "$folder" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ -e "$folder/lib/libintelocl.so" ] && exit 0
rm -rf "$folder.part" && mkdir -p "$folder.part" || exit 1
python=python3
"$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
# Versions that work together: the runtime finds the other two beside itself.
"$python" -m pip --quiet install --no-deps --no-compile --ignore-installed --prefix "$folder.part" \
    intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0 'tbb==2023.*' 2>&1 || exit 77
# Debian's pip puts a prefix's files under local/.
inner=$folder.part
[ -d "$inner/local" ] && inner=$inner/local
[ -e "$inner/lib/libintelocl.so" ] && rm -rf "$folder" && mv "$inner" "$folder"
