#!/bin/bash
# Unpacks versions of Python that this Debian does not have into a folder: 3.9 from bullseye, and newer ones from the next suite with a
# libc of their own, so that nothing here changes. What cannot be had is left out, and said.
#
#   scripts/install-pythons.sh FOLDER
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=scripts/foreign-apt.sh
. "$(dirname "$0")/foreign-apt.sh"
say() { "$1" -c 'import sys; print("unpacked Python", sys.version.split()[0])'; }

# It runs with this machine's libraries.
older=$folder/3.9/usr/bin/python3.9
if ! "$older" -c "" 2>/dev/null; then
  packages=(python3.9-minimal libpython3.9-minimal libpython3.9-stdlib)
  if foreign_apt_begin "$work/older" bullseye && (cd "$work/older" && foreign_apt download "${packages[@]}"); then
    for package in "$work"/older/*.deb; do dpkg -x "$package" "$folder/3.9"; done
    say "$older"
  else
    echo "Python 3.9 cannot be had from bullseye: not tested"
  fi
fi

suite=forky
versions=(3.14 3.15)
python() { echo "$folder/usr/bin/python$1"; }
missing=()
for version in "${versions[@]}"; do "$(python "$version")" -c "" 2>/dev/null || missing+=("$version"); done
((${#missing[@]})) || exit 0

foreign_apt_begin "$work" "$suite" || { echo "$suite cannot be had: its Pythons are not tested"; exit 0; }
for version in "${missing[@]}"; do
  foreign_apt -y --download-only --no-install-recommends install "python$version-minimal" "libpython$version-stdlib" \
    </dev/null >/dev/null || { echo "Python $version is not in $suite: not tested"; continue; }
done
for directory in bin sbin lib lib64; do
  mkdir -p "$folder/usr/$directory"
  ln -sfn "usr/$directory" "$folder/$directory"
done
for package in "$work"/cache/archives/*.deb; do [[ ! -e $package ]] || dpkg -x "$package" "$folder"; done
for version in "${missing[@]}"; do
  [[ -x $(python "$version") ]] || continue
  patchelf --set-interpreter "$folder/usr/lib64/ld-linux-x86-64.so.2" --force-rpath \
    --set-rpath "$folder/usr/lib/x86_64-linux-gnu" "$(python "$version")"
  say "$(python "$version")"
done
