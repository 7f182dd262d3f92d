#!/bin/sh
# viewers.sh TRACE [DIR]: opens a trace's exports in the real viewers and leaves their pictures in DIR
# (target/viewers by default) to look at. Fails when a viewer reports an error or warns.
# Needs node, npm, python3 with pip, chromium (CHROMIUM names another one), and a built stackbeat
# (STACKBEAT, target/debug/stackbeat by default).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
trace=$(realpath "$1")
out=${2:-$root/target/viewers}
stackbeat=${STACKBEAT:-$root/target/debug/stackbeat}
mkdir -p "$out"
out=$(realpath "$out")

cd "$out"
[ -d perfetto-ui ] || sh "$root/tests/perfetto/setup.sh" perfetto-ui > setup.log
[ -d node_modules ] || npm install --silent --no-audit --no-fund --prefix . \
    playwright-core@1 speedscope@1 @firefox-devtools/profiler-cli@0.10 > npm.log 2>&1

for format in perfetto chrome speedscope firefox flamegraph-svg; do
    case $format in
        perfetto) file=trace.pftrace ;;
        # speedscope takes names with .chrome.json for another format.
        chrome) file=trace.json ;;
        flamegraph-svg) file=trace.svg ;;
        *) file=trace.$format.json ;;
    esac
    "$stackbeat" export --force "$trace" --to "$format" -o "$file"
done

cp "$root/tests/perfetto/ui.mjs" "$here/viewer.mjs" .
PERFETTO_UI_DIR=$out/perfetto-ui node ui.mjs trace.pftrace perfetto.png
PERFETTO_UI_DIR=$out/perfetto-ui node ui.mjs trace.json chrome.png
node viewer.mjs svg trace.svg flamegraph.png
node viewer.mjs speedscope trace.speedscope.json speedscope.png
node viewer.mjs speedscope trace.json speedscope-chrome.png

cli=node_modules/@firefox-devtools/profiler-cli/dist/profiler-cli.js
node "$cli" load trace.firefox.json
node "$cli" profile info | head -20
node "$cli" thread functions | head -20
node "$cli" stop
ls -l "$out"/*.png
