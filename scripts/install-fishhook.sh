#!/bin/bash
# Loads fishhook into a folder, with which Apple's rebinder is compared.
#
#   scripts/install-fishhook.sh FOLDER [crate]     the crate of that name, its module for macOS built for this machine over what
#                                                  hooks-apple/tests/fishhook has: libfishhook_peer.so
#   scripts/install-fishhook.sh FOLDER original    facebook/fishhook (BSD license), of which the crate is a translation: two files of
#                                                  C. Needs a way to GitHub.
set -euo pipefail
peer=$(cd "$(dirname "$0")/../hooks-apple/tests/fishhook" && pwd)
mkdir -p "$1"
cd "$1"
case ${2:-crate} in
  original)
    commit=aadc161ac3b80db07a9908851839a17ba63a9eb1
    sums='48f51e1a36d9013501381fdf31a3e9c838938ebf8bb39e0e3a7ac119aa59b61b  fishhook.c
5432b81bd302956adcbfc8836af74e47dd38748d5078495cbe1b5bea62180120  fishhook.h'
    has_them() { sha256sum --check --status <<<"$sums" 2>/dev/null; }
    has_them && exit 0
    for file in fishhook.c fishhook.h; do
      curl -sSfL --max-time 60 -o "$file" "https://raw.githubusercontent.com/facebook/fishhook/$commit/$file"
    done
    has_them || { echo "fishhook: the files are not those of $commit" >&2; exit 1; }
    ;;
  crate)
    sum=$(cat "$peer"/* | sha256sum)
    [[ $(cat peer.sum 2>/dev/null) != "$sum" ]] || exit 0
    # What is compiled lies below a folder of its module's name.
    mkdir -p src/arch mach2/src .cargo
    cp "$peer/Cargo.toml" .
    cp "$peer/mach2.toml" mach2/Cargo.toml
    cp "$peer/peer.rs" src/lib.rs
    cp "$peer/mach2.rs" mach2/src/lib.rs
    cargo vendor -q vendor >.cargo/config.toml
    # The crate's warnings are not ours.
    RUSTFLAGS=--cap-lints=allow CARGO_TARGET_DIR=$PWD/build CARGO_PROFILE_DEV_DEBUG=0 cargo build -q --offline
    mv build/debug/libfishhook_peer.so .
    rm -rf .cargo Cargo.lock Cargo.toml build mach2 src vendor
    echo "$sum" >peer.sum
    ;;
  *) echo "install-fishhook.sh: crate or original, not $2" >&2; exit 2 ;;
esac
