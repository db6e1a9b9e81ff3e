#!/bin/sh
# Installs what is missing (Debian 12), then builds and tests: see tests/run.py, whose options it takes.
#
#   sh tests/run.sh           what a change has to pass: a quarter to half an hour on two cores, a third with its caches
#   sh tests/run.sh --help
set -u

here=$(cd "$(dirname "$0")" && pwd)
case " $* " in
*" --deps "*) exec sh "$here/deps.sh" build ;;
*" --no-install "* | *" --help "* | *" -h "*) ;;
*)
    began=$(date +%s)
    log=$(mktemp)
    if ! sh "$here/deps.sh" test > "$log" 2>&1; then
        tail -n 20 "$log"
        echo "0 passed, 1 failed"
        exit 1
    fi
    echo "packages   $(sed -n '1s/^installing//p' "$log" | wc -w) missing, installed, $(($(date +%s) - began)) s"
    rm -f "$log"
    ;;
esac
exec python3 "$here/run.py" "$@"
