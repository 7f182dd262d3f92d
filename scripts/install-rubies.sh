#!/bin/bash
# Unpacks versions of Ruby that this Debian does not have into a folder: 3.3 from the next suite, with a libc of its own, and 3.4 from
# experimental, so that nothing here changes. What cannot be had is left out, and said.
#
#   scripts/install-rubies.sh FOLDER
#
# Debian's Ruby looks for its own libraries in /usr: who runs one of these names them (`-I`).
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/foreign-apt.sh
. "$(dirname "$0")/foreign-apt.sh"
ruby() { echo "$folder/usr/bin/ruby$1"; }
missing=()
for version in 3.3 3.4; do "$(ruby "$version")" --disable-gems -e "" 2>/dev/null || missing+=("$version"); done
((${#missing[@]})) || exit 0

# fetch SUITE PACKAGE...
fetch() {
  local at=$work/$1
  foreign_apt_begin "$at" "$1" && (cd "$at" && foreign_apt download "${@:2}") || return 1
  for package in "$at"/*.deb; do dpkg -x "$package" "$folder"; done
}
libraries=(libc6 libcrypt1 libffi8 libgcc-s1 libgmp10 libssl3t64 libyaml-0-2 zlib1g)
fetch trixie "${libraries[@]}" || { echo "trixie cannot be had: its Ruby is not tested"; exit 0; }
for directory in bin sbin lib lib64; do
  mkdir -p "$folder/usr/$directory"
  ln -sfn "usr/$directory" "$folder/$directory"
done
for version in "${missing[@]}"; do
  suite=trixie
  [[ $version == 3.3 ]] || suite=experimental
  fetch "$suite" "ruby$version" "libruby$version" || { echo "Ruby $version is not in $suite: not tested"; continue; }
  patchelf --set-interpreter "$folder/usr/lib64/ld-linux-x86-64.so.2" --force-rpath \
    --set-rpath "$folder/usr/lib/x86_64-linux-gnu" "$(ruby "$version")"
  echo "unpacked $("$(ruby "$version")" --disable-gems --version)"
done
