#!/bin/bash
# Puts real ARTs, which the tests of Android's hooks run, into a folder: 11 and 14. What cannot be had is left out, and said: the
# tests that need it are skipped.
#
#   scripts/install-art.sh FOLDER
set -uo pipefail
for tool in apt-get dpkg-deb mvn javac g++; do
  command -v "$tool" >/dev/null || { echo "no $tool, so no ART: its tests are skipped"; exit 0; }
done
for version in 11 14; do
  "$(dirname "$0")/art/setup.sh" "$1" "$version" ||
    { rm -f "$1/$version/run-art"; echo "ART $version cannot be had: its tests are skipped"; }
done
