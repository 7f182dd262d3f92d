#!/bin/bash
# Links what an app would carry and compares what it asks of the platform with a list.
#
#   imports.sh TARGET FOLDER [SYSROOT]     FOLDER: where cargo has put the packages' libraries for the target
#
# The lists in imports/ say for each name where it is declared and since when it exists. A name that is not there fails.
set -euo pipefail
TARGET=$1 FOLDER=$2 SYSROOT=${3:-}
HERE=$(cd "$(dirname "$0")" && pwd)
case $TARGET in
  *-android) list=$HERE/imports/android.txt ;;
  *-apple-*) list=$HERE/imports/apple.txt ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# compare FILE LIST…: what a file asks for is on the lists. What is weak may be missing, and is asked for then. Intel Macs have
# variants of some names (sys/cdefs.h, __DARWIN_SUF_64_BIT_INO_T and __DARWIN_SUF_NON_CANCELABLE).
compare() {
  local file=$1 unknown late; shift
  llvm-nm --undefined-only --format=posix $([[ $TARGET = *-android ]] && echo --dynamic) "$file" \
    | awk '$2 != "w" { sub(/@.*|\$(INODE64|NOCANCEL)/, "", $1); print $1 }' | sort -u > "$work/imports"
  awk '!/^#/ && NF { print $1 }' "$@" | sort -u > "$work/known"
  unknown=$(comm -23 "$work/imports" "$work/known")
  echo "$TARGET: $(wc -l < "$work/imports") imports of ${file##*/}"
  if [[ ${IMPORTS_PRINT:-} ]]; then cat "$work/imports"; fi
  late=$(awk '!/^#/ && $3 ~ /^[0-9]+$/ && $3 > 21 { print $1 }' "$@")
  if [[ $late ]]; then
    echo "Older devices do not have: $late" >&2
    exit 1
  fi
  if [[ $unknown ]]; then
    echo "$TARGET asks the platform for what $* does not name:" >&2
    echo "$unknown" >&2
    exit 1
  fi
}
newest() { ls -t "$FOLDER"/deps/lib"$1"-*.rlib | head -1; }

# link FILE NAME…: a library of all that these packages have.
link() {
  local file=$1 name library externs=() libraries=() cfg=(); shift
  for name; do
    library=$(newest "stackbeat_$name")
    libraries+=("$library")
    externs+=(--extern "stackbeat_$name=$library")
    cfg+=(--cfg "with_$name")
  done
  # Everything of ours is kept, whoever calls it.
  llvm-nm --defined-only --format=posix "${libraries[@]}" 2>/dev/null \
    | awk '$2 ~ /^[TD]$/ && $1 !~ /^(rust_eh_|_?__rust|anon\.|l_anon)/ { print $1 }' | sort -u > "$work/roots"
  # rustc asks Xcode for a folder of libraries, unless it has one.
  LINK_ROOTS=$work/roots SDKROOT=$work rustc --crate-type cdylib --edition 2024 --target "$TARGET" "${cfg[@]}" \
    ${SYSROOT:+--sysroot "$SYSROOT"} -C panic=unwind -C linker="$HERE/lld-cc.sh" -L "$FOLDER/deps" -L "$FOLDER/../../debug/deps" "${externs[@]}" \
    -o "$file" "$HERE/everything.rs"
}
link "$work/everything" api core
compare "$work/everything" "$list"
# Android's hooks place themselves with std's files and locks, and bring Dobby, which is C++.
if compgen -G "$FOLDER/deps/libstackbeat_android-*.rlib" >/dev/null; then
  link "$work/android_hooks" api core android
  compare "$work/android_hooks" "$list" "${list%.txt}-session.txt" "${list%.txt}-hooks.txt"
fi
if compgen -G "$FOLDER/deps/libstackbeat_apple-*.rlib" >/dev/null; then
  link "$work/apple_hooks" api core apple
  compare "$work/apple_hooks" "$list" "${list%.txt}-hooks.txt"
fi
# The library for an app on Apple's systems, with all of these; what it exports are the functions of its header, and those that
# stackbeat.h looks for.
app=$FOLDER/libstackbeat_apple_app.dylib
if [[ $TARGET = *-apple-* && -e $app ]]; then
  compare "$app" "$list" "${list%.txt}-hooks.txt" "${list%.txt}-session.txt"
  llvm-nm --defined-only --extern-only --format=posix "$app" | awk '$1 != "__mh_dylib_header" { print $1 }' | sort >"$work/exports"
  { grep -o 'stackbeat_app_[a-z]*(' "$HERE/../../apple/include/stackbeat_app.h" | sed 's/($//; s/^/_/'
    printf '_%s\n' stackbeat_v1_capture stackbeat_v1_event; } | sort -u >"$work/declared"
  if ! diff "$work/declared" "$work/exports" >&2; then
    echo "$TARGET: ${app##*/} exports (>) something else than what its headers declare (<)" >&2
    exit 1
  fi
fi
# A session inside an app is a library of its own, with std's files, threads and sockets.
session=$FOLDER/libstackbeat_session.so
if [[ $TARGET = *-android && -e $session ]]; then compare "$session" "$list" "${list%.txt}-session.txt"; fi
# The library that an app loads: all of that, and what Java and native code find in it by name.
app=$FOLDER/libstackbeat_app.so
if [[ $TARGET = *-android && -e $app ]]; then
  compare "$app" "$list" "${list%.txt}-session.txt" "${list%.txt}-hooks.txt"
  llvm-nm --defined-only --dynamic --format=posix "$app" | awk '$2 == "T" { print $1 }' | sort >"$work/exports"
  diff <(grep -v '^#' "$HERE/imports/android-app-exports.txt" | sort) "$work/exports" || {
    echo "$TARGET: ${app##*/} does not offer what imports/android-app-exports.txt names" >&2
    exit 1
  }
fi
