#!/bin/bash
# Time and peak memory of everything that reads a trace, on a synthetic one.
#
#     scripts/large-trace.sh [MEGABYTES [COMMAND…]]
#
# MEGABYTES is 1024 unless it is given; COMMAND narrows the list to those whose words contain one of the
# given ones. STACKBEAT names the binary to test; otherwise it is built. Exports go to /dev/null.
set -euo pipefail
cd "$(dirname "$0")/.."
megabytes=${1:-1024}
shift || true

if [ -z "${STACKBEAT:-}" ]; then
  cargo build -q --release -p stackbeat
  STACKBEAT=${CARGO_TARGET_DIR:-target}/release/stackbeat
fi
cargo build -q --release -p stackbeat-model --features testing --example large_trace

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trace=$work/large.beat
samples=$("${CARGO_TARGET_DIR:-target}"/release/examples/large_trace "$trace" "$megabytes")
echo "$megabytes MB, $samples samples"
echo "| command | s | M samples/s | peak MB |"
echo "|---|---|---|---|"

measure() {
  local name=$1 wanted=${#only[@]}
  shift
  for word in ${only[@]+"${only[@]}"}; do
    [[ $name == *$word* ]] && wanted=0
  done
  [ "$wanted" = 0 ] || return 0
  /usr/bin/time -f '%e %M' -o "$work/time" "$STACKBEAT" "$@" >/dev/null 2>"$work/log" ||
    { cat "$work/log" >&2; exit 1; }
  awk -v name="$name" -v samples="$samples" \
    '{ printf "| %s | %.1f | %.2f | %.0f |\n", name, $1, samples / 1e6 / $1, $2 / 1024 }' "$work/time"
}

only=("$@")
measure "info" info "$trace"
measure "info --check" info --check "$trace"
measure "report" report "$trace"
measure "report --json" report --json "$trace"
measure "report --html" report --html - "$trace"
for format in perfetto chrome firefox speedscope pprof folded flamegraph-svg; do
  measure "export $format" export --to "$format" --output - "$trace"
done
