#!/bin/bash
# Compares times in traces with exact times of the same runs, and writes the table of docs/measurements/ground-truth.md.
#
#     scripts/ground-truth.sh [--print [CLOCK]]     (--print: show the table, change nothing; CLOCK: see `record --clock`)
#
# Programs are compiled with -finstrument-functions and a logger that measures every call
# (tests/ground-truth). STACKBEAT names the binary to test; otherwise it is built.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ -z "${STACKBEAT:-}" ]; then
  cargo build -q --release -p stackbeat
  STACKBEAT=${CARGO_TARGET_DIR:-target}/release/stackbeat
fi
cargo build -q --release -p stackbeat-model --example ground_truth
compare=${CARGO_TARGET_DIR:-target}/release/examples/ground_truth

${CC:-cc} -O1 -g -finstrument-functions -rdynamic -pthread \
  -o "$work/shapes" tests/ground-truth/shapes.c tests/ground-truth/truth.c -ldl

{
  echo "| shape, interval | function | calls | exact total, ms | exact self, ms | total | self |"
  echo "|---|---|---|---|---|---|---|"
  for shape in recursion short mixed phases; do
    for interval in 1ms 100us; do
      TRUTH="$work/truth" "$STACKBEAT" record --interval "$interval" --budget 0 --clock "${2:-tick}" -o "$work/run.beat" \
        -- "$work/shapes" "$shape" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
      "$compare" "$shape, $interval" "$work/run.beat" "$work/truth"
      rm -f "$work/run.beat" "$work/truth"
    done
  done
} >"$work/table.md"

if [ "${1:-}" = --print ]; then
  cat "$work/table.md"
  exit
fi
awk -v table="$work/table.md" '
  /<!-- ground truth: begin -->/ {
    print
    while ((getline line < table) > 0) print line
    skip = 1
  }
  /<!-- ground truth: end -->/ { skip = 0 }
  !skip { print }
' docs/measurements/ground-truth.md >"$work/page.md"
cp "$work/page.md" docs/measurements/ground-truth.md
echo "docs/measurements/ground-truth.md: table written"
