#!/bin/bash
# Runs a Java program on each real ART, while its threads allocate, lock, wait, throw, overflow their stacks, load and unload
# classes, and collect. It ends with the first run that fails or hangs.
#
#   scripts/art-stress.sh [SECONDS]              hooks that walk at each call; 3600 by default
#   scripts/art-stress.sh suspensions [COUNT]    threads are suspended at random and walked, so often on each ART; 1000000 by default
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=${1:-3600}
[[ $wanted = suspensions ]] && count=${2:-1000000}
scripts/install-art.sh target/art
[[ -x target/art/11/run-art || -x target/art/14/run-art ]] || { echo "not run: there is no ART"; exit 0; }
# After the tests all is there, built with the features of the whole workspace.
[[ -n ${STACKBEAT_TESTS_BUILT:-} ]] || cargo build --quiet --locked -p stackbeat -p stackbeat-art-rig
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Whoever builds meanwhile does not change what runs.
cp target/debug/stackbeat target/debug/deps/libstackbeat_art_rig.so "$folder"
target/art/dex-it "$folder/program.jar" tests/tests/art/Program.java
export ART_AGENT=$folder/libstackbeat_art_rig.so ART_AGENT_LOG=$folder/status

# run VERSION INTERVAL: the program for 20 s. One that takes 10 minutes hangs; a busy machine needs some.
run() {
  timeout 600 "$folder/stackbeat" record -q -f --interval "$2" -o "$folder/trace.beat" -- \
    "target/art/$1/run-art" "$folder/program.jar" Program stress 20000 "$folder/program.jar" \
    >"$folder/output" 2>&1 || { status=$?; cat "$folder/output"; echo "ART $1: status $status"; exit 1; }
}
of() { sed -n "s/^$1 //p" "$folder/status"; }

walks() {
  local runs=0
  export ART_AGENT_ALWAYS=1 ART_AGENT_CHECK=1
  while ((SECONDS < wanted)); do
    for version in 11 14; do
      [[ -x target/art/$version/run-art ]] || continue
      run "$version" 100us
      [[ $(of different) = 0 && $(of restored) = 1 ]] || { cat "$folder/status"; exit 1; }
      runs=$((runs + 1))
      echo "ART $version: $(grep -E '^(walks|named|forgotten) ' "$folder/status" | paste -sd' ')"
    done
  done
  ((runs > 0)) || { echo "$wanted s were over before the first run"; exit 1; }
  echo "$runs runs without a fault"
}

suspensions() {
  local version sum frames runs late
  export ART_AGENT_SUSPEND=1
  for version in 11 14; do
    [[ -x target/art/$version/run-art ]] || continue
    sum=0 frames=0 runs=0 late=0
    while ((sum < count)); do
      run "$version" 1ms
      [[ $(of restored) = 1 ]] || { cat "$folder/status"; exit 1; }
      # ART gives a thread some seconds to come to a place where it can be suspended. A busy machine may not let it.
      late=$((late + $(of suspension-timed-out)))
      sum=$((sum + $(of suspended))) frames=$((frames + $(of suspended-frames))) runs=$((runs + 1))
      echo "ART $version: $sum suspensions, $frames frames, $late given up by ART, in $runs runs and $SECONDS s"
    done
  done
}

[[ $wanted = suspensions ]] && suspensions || walks
