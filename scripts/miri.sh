#!/bin/sh
# Runs under miri what needs no system calls: the shared protocols between threads, and core's unit
# tests. Needs a nightly toolchain with miri: rustup component add --toolchain nightly miri rust-src
set -eu
cd "$(dirname "$0")/.."
cargo +nightly miri --version >/dev/null || {
  echo "miri.sh: miri is not installed: rustup component add --toolchain nightly miri rust-src" >&2
  exit 2
}
# The unwinder's tests work on large tables and take hours there.
cargo +nightly miri test -p stackbeat-core --lib "$@" -- --skip unwind
MIRIFLAGS="${MIRIFLAGS:--Zmiri-many-seeds=0..8}" cargo +nightly miri test -p stackbeat-core --test main "$@"
