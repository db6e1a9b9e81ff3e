#!/bin/sh
# Fetches what tests/speech/test_transcribe.py can run beside (the model itself is fetched by examples/models.sh), into a
# folder; nothing is installed:
#
#   sh tests/speech/install.sh FOLDER      faster-whisper (200 MB); FOLDER/python is the interpreter that it is for
#
# Status 77: there is none for this interpreter and machine; anything else but 0: it could not be fetched.
set -u

peer=1.2.1
folder=${1-}
[ -n "$folder" ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2; }
part=$folder.part

python=python3
"$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
"$python" -m pip --version > /dev/null 2>&1 ||
    $(command -v sudo) apt-get -q -y --no-install-recommends install python3-pip || exit 1

# fetch PACKAGE...
fetch()
{
    rm -rf "$part" && mkdir -p "$part" || return 1
    said=$("$python" -m pip --quiet install --no-compile --only-binary :all: --target "$part" "$@" 2>&1)
    status=$?
    [ -z "$said" ] || echo "$said"
    # An index that cannot be reached has no versions at all.
    case $status:$said in
    0:* | *"(from versions: none)"*) ;;
    *"No matching distribution"*) return 77 ;;
    esac
    return $status
}

[ -e "$folder/python" ] && exit 0
fetch "faster-whisper==$peer" || exit
PYTHONPATH=$part "$python" - "$part/python" << 'EOF' || exit 1
import sys
import faster_whisper
with open(sys.argv[1], "w") as file:
    print(sys.executable, file=file)
print("faster-whisper", faster_whisper.__version__, "with", sys.executable)
EOF
rm -rf "$folder" && mv "$part" "$folder"
