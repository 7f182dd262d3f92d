#!/bin/bash
# Unpacks what makes and reads Mach-O images on Linux into a folder: ziglang (clang, a linker, Apple's headers) and lief (reads binds and
# fixup chains), both as packages of Python. About 100 MB are loaded, once.
#
#   scripts/install-apple-tools.sh FOLDER
set -euo pipefail
mkdir -p "$1"
folder=$(cd "$1" && pwd)
packages=(ziglang==0.17.1 lief==1.0.0)
[[ $(cat "$folder/packages" 2>/dev/null) != "${packages[*]}" ]] || exit 0
rm -rf "$folder/python"
python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-compile --no-deps \
  --target "$folder/python" "${packages[@]}"
chmod +x "$folder/python/ziglang/zig"
echo "${packages[*]}" >"$folder/packages"
