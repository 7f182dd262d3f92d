#!/bin/bash
# Runs a Java program on each real ART with hooks that walk at each call, while threads allocate, lock, wait,
# throw, overflow their stacks, load and unload classes, and collect. It ends with the first run that fails or
# hangs.
#
#   scripts/art-stress.sh [SECONDS]        3600 by default
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-3600}
scripts/install-art.sh target/art
cargo build --quiet --locked -p stackbeat -p stackbeat-art-rig
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
target/art/dex-it "$folder/program.jar" tests/tests/art/Program.java
export ART_AGENT=$PWD/target/debug/libstackbeat_art_rig.so ART_AGENT_ALWAYS=1 ART_AGENT_CHECK=1
export ART_AGENT_LOG=$folder/status
runs=0
while ((SECONDS < seconds)); do
  for version in 11 14; do
    [[ -x target/art/$version/run-art ]] || continue
    # A run takes 20 s; one that takes 120 s hangs.
    timeout 120 target/debug/stackbeat record -q -f --interval 100us -o "$folder/trace.beat" -- \
      "target/art/$version/run-art" "$folder/program.jar" Program stress 20000 "$folder/program.jar" \
      >"$folder/output" 2>&1 || { status=$?; cat "$folder/output"; echo "ART $version: status $status"; exit 1; }
    grep -q '^different 0$' "$folder/status" || { cat "$folder/status"; exit 1; }
    runs=$((runs + 1))
    echo "ART $version: $(grep -E '^(walks|named|forgotten|restored) ' "$folder/status" | paste -sd' ')"
  done
done
echo "$runs runs without a fault"
