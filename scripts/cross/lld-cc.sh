#!/bin/bash
# Stands in for the C compiler that rustc links with: Debian's lld, without any library of the platform. What such a
# library would have to offer stays undefined. LINK_ROOTS: a file of symbols that have to be kept, a line each.
set -euo pipefail
args=() macho='' kind='' minimum='' arch=arm64
add() {
  case $1 in
    -l* | -nodefaultlibs | -nostartfiles | -m64 | -fuse-ld=* | -target=*) ;;
    # Two words that mean nothing here.
    -arch | -isysroot | -framework | -target) skip=1 ;;
    -dynamiclib) macho=yes kind=-dylib ;;
    -mmacosx-version-min=*) macho=yes minimum="macos ${1#*=}" ;;
    -miphoneos-version-min=* | -mios-version-min=*) minimum="ios ${1#*=}" ;;
    *) args+=("$1") ;;
  esac
}
skip=
for argument in "$@"; do
  if [[ $skip ]]; then
    case $argument in
      *apple-ios*-simulator) minimum="ios-simulator 14.0" ;;
      *apple-ios*) minimum="ios 14.0" ;;
    esac
    [[ $argument = x86_64* ]] && arch=x86_64
    skip=
    continue
  fi
  if [[ $argument = -Wl,* ]]; then
    IFS=, read -ra parts <<<"${argument#-Wl,}"
    args+=("${parts[@]}")
  else
    add "$argument"
  fi
done
roots=$(mktemp)
trap 'rm -f "$roots"' EXIT
sed 's/^/-u /' "$LINK_ROOTS" >"$roots"
if [[ $macho ]]; then
  read -r platform version <<<"${minimum:-macos 11.0}"
  /usr/lib/llvm-14/bin/ld64.lld -arch "$arch" -platform_version "$platform" "$version" "$version" $kind \
    -undefined dynamic_lookup "${args[@]}" "@$roots"
else
  /usr/lib/llvm-14/bin/ld.lld --unresolved-symbols=ignore-all "${args[@]}" "@$roots"
fi
