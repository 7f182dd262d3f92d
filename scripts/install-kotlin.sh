#!/bin/bash
# Puts the Kotlin compiler and its library, from Maven artifacts, into a folder: the tests of Android's library compile its Kotlin.
# Where they cannot be had, that is said, and the tests that need them are skipped.
#
#   scripts/install-kotlin.sh FOLDER
set -uo pipefail
version=2.0.21
for tool in mvn java; do
  command -v "$tool" >/dev/null || { echo "no $tool, so no Kotlin: its tests are skipped"; exit 0; }
done
mkdir -p "$1"
cd "$1" || exit 1
[[ ! -e $version ]] || exit 0
rm -rf lib
mkdir lib
if mvn -q -B -Dmaven.repo.local="$PWD/m2" dependency:get \
  -Dartifact=org.jetbrains.kotlin:kotlin-compiler-embeddable:$version >log 2>&1; then
  find m2/org/jetbrains -name '*.jar' -exec cp {} lib/ \;
  touch "$version"
else
  # Without the hosts that it has asked.
  tail -3 log | sed 's#//[^/ ]*#//...#g'
  echo "Kotlin $version cannot be had: its tests are skipped"
fi
