#!/bin/bash
# Builds CPython without its lock, which no suite of Debian has, and runs the tests of the topic `python` with it, too.
# Two minutes of CPU time for each version, most of it once.
#
#   scripts/free-threaded-python.sh FOLDER             from Debian's source packages of 3.13 to 3.15
#   scripts/free-threaded-python.sh FOLDER SOURCE...   from unpacked sources, which stay as they are
set -euo pipefail
[[ $# -ge 1 ]] || { sed -n 2,7p "$0"; exit 2; }
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd)
shift
suites=(forky sid trixie)
# Modules that no test imports, or that need libraries.
disabled="_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _ctypes _curses _curses_panel _dbm
  _decimal _elementtree _gdbm _hashlib _lzma _multibytecodec _sqlite3 _ssl _tkinter _zstd pyexpat readline zlib"

# unpack VERSION: the source of the first suite that has it.
unpack() {
  local work=$folder/apt suite
  . scripts/foreign-apt.sh
  rm -rf "$folder/packages-$1"
  mkdir -p "$folder/packages-$1"
  for suite in "${suites[@]}"; do
    rm -rf "$work"
    foreign_apt_begin "$work" "$suite" deb-src || continue
    (cd "$folder/packages-$1" && foreign_apt source --download-only "python$1" 2>/dev/null) || continue
    mkdir -p "$folder/source-$1"
    tar -xf "$folder/packages-$1"/python"$1"_*.orig.tar.xz -C "$folder/source-$1" --strip-components=1
    return
  done
  echo "the source of Python $1 is in none of ${suites[*]}: give a folder with it" >&2
  return 1
}

# build SOURCE: gives the interpreter.
build() {
  local version at
  version=$(sed -n 's/^#define PY_VERSION  *"\(.*\)"/\1/p' "$1/Include/patchlevel.h")
  at=$folder/build-$version
  if [[ ! -e $at/done ]]; then
    echo "building Python $version in $at" >&2
    mkdir -p "$at/Modules"
    printf '*disabled*\n%s\n' "${disabled//$'\n'/ }" > "$at/Modules/Setup.local"
    (cd "$at" && "$1/configure" --disable-gil --disable-test-modules --without-ensurepip OPT="-O2 -fwrapv" &&
      make -j"$(nproc)") >"$at.log" 2>&1 || { echo "failed: $at.log" >&2; return 1; }
    touch "$at/done"
  fi
  "$at/python" -c 'import sys; assert not sys._is_gil_enabled(); print(sys.executable)'
}

pythons=()
if [[ $# -gt 0 ]]; then
  for source in "$@"; do pythons+=("$(build "$(cd "$source" && pwd)")"); done
else
  for version in 3.13 3.14 3.15; do
    [[ -e $folder/source-$version/configure ]] || unpack "$version" || continue
    pythons+=("$(build "$folder/source-$version")")
  done
fi
[[ ${#pythons[@]} -gt 0 ]] || exit 1
echo "with ${pythons[*]}"
STACKBEAT_TESTS_PYTHONS=$(IFS=:; echo "${pythons[*]}")
export STACKBEAT_TESTS_PYTHONS
# Interpreters that run in parallel would be late for each other's waits.
cargo test --locked -p stackbeat-tests --test main -- python:: --test-threads 1
