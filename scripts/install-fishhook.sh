#!/bin/bash
# Loads fishhook (facebook/fishhook, BSD license) into a folder: two files, with which Apple's rebinder is compared. Needs a way to
# GitHub.
#
#   scripts/install-fishhook.sh FOLDER
set -euo pipefail
mkdir -p "$1"
cd "$1"
commit=aadc161ac3b80db07a9908851839a17ba63a9eb1
sums='48f51e1a36d9013501381fdf31a3e9c838938ebf8bb39e0e3a7ac119aa59b61b  fishhook.c
5432b81bd302956adcbfc8836af74e47dd38748d5078495cbe1b5bea62180120  fishhook.h'
has_them() { sha256sum --check --status <<<"$sums" 2>/dev/null; }
has_them && exit 0
for file in fishhook.c fishhook.h; do
  curl -sSfL --max-time 60 -o "$file" "https://raw.githubusercontent.com/facebook/fishhook/$commit/$file"
done
has_them || { echo "fishhook: the files are not those of $commit" >&2; exit 1; }
