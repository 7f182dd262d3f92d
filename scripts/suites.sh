#!/bin/sh
# Runs other projects' own test suites with and without the agent and compares: a test that passes
# without it must pass under it.
#
#   scripts/suites.sh [python] [redis] [sqlite]     default: all that can be run here
#
# python: the CPython test suite that comes with python3 (PYTHON names another interpreter).
# redis:  the suite of Debian's redis source package, with the installed redis-server.
# sqlite: sqlite's veryquick suite; SQLITE_SOURCE names a tree in which `make testfixture` has run.
#
# MODULES and UNITS choose other parts of the first two.
set -eu
cd "$(dirname "$0")/.."
STACKBEAT=${STACKBEAT:-target/release/stackbeat}
[ -x "$STACKBEAT" ] || { echo "build first: cargo build --release" >&2; exit 2; }
STACKBEAT=$(realpath "$STACKBEAT")
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
failed=0

# under NAME COMMAND…: runs it plain and recorded, outputs in $WORK/NAME.plain and .hooked.
under() {
    name=$1; shift
    echo "$name: without the agent" >&2
    "$@" >"$WORK/$name.plain" 2>&1 </dev/null || true
    echo "$name: with the agent" >&2
    "$STACKBEAT" record -o "$WORK/$name.beat" -- "$@" >"$WORK/$name.hooked" 2>&1 </dev/null || true
}

# compare NAME PASSED: the tests that passed in both runs, as this sed script extracts them.
compare() {
    for run in plain hooked; do
        # Without colours.
        sed -i "s/$(printf '\033')\\[[0-9;]*m//g" "$WORK/$1.$run"
        sed -nE "$2" "$WORK/$1.$run" | sort -u >"$WORK/$1.$run.passed"
    done
    total=$(wc -l <"$WORK/$1.plain.passed")
    lost=$(comm -23 "$WORK/$1.plain.passed" "$WORK/$1.hooked.passed")
    if [ "$total" -eq 0 ]; then
        echo "$1: nothing passed; the end of its output:"; tail -5 "$WORK/$1.plain"; failed=1
    elif [ -n "$lost" ]; then
        echo "$1: passes only without the agent:"; echo "$lost"; failed=1
    else
        echo "$1: all $total tests that pass without the agent pass under it"
    fi
}

python() {
    modules="test_os test_posix test_signal test_subprocess test_threading test_thread
        test_threadsignals test_socket test_select test_selectors test_poll test_epoll test_fork1
        test_wait3 test_wait4 test_pty test_popen test_mmap test_fcntl test_resource test_eintr
        test_faulthandler test_io test_time test_queue
        test_posixpath test_tempfile test_json test_ctypes"
    # shellcheck disable=SC2086
    under python "${PYTHON:-python3}" -m test -v --timeout 120 -i '*VSOCK*' -u subprocess \
        ${MODULES:-$modules}
    compare python 's/^(test_[^ ]+ \([^)]*\)).* \.\.\. ok$/\1/p'
}

# The installed redis-server under the suite of its Debian source package.
redis() {
    command -v redis-server >/dev/null || { echo "redis: not installed"; return; }
    source=target/suites/redis
    if [ ! -d "$source" ]; then
        mkdir -p target/suites/download
        (cd target/suites/download && apt-get source -qq --download-only redis) || {
            echo "redis: apt-get source needs a deb-src line"; return; }
        mkdir "$source"
        tar -xf target/suites/download/redis_*.orig.tar.gz -C "$source" --strip-components 1
        for program in server cli benchmark sentinel check-aof check-rdb; do
            ln -sf "$(command -v redis-$program)" "$source/src/redis-$program"
        done
    fi
    units="unit/type/list unit/type/string unit/type/hash unit/type/zset unit/expire unit/multi
        unit/pubsub unit/scripting unit/aofrw unit/dump integration/aof integration/rdb"
    # shellcheck disable=SC2046
    under redis env -C "$source" ./runtest --clients 2 $(printf -- '--single %s ' ${UNITS:-$units})
    compare redis 's/^\[ok\]: (.*)( \([0-9]+ ms\))$/\1/p'
}

sqlite() {
    [ -n "${SQLITE_SOURCE:-}" ] || { echo "sqlite: not run, SQLITE_SOURCE is not set"; return; }
    under sqlite sh -c "cd '$SQLITE_SOURCE' && ./testfixture test/veryquick.test"
    compare sqlite 's/^([^ ]+)\.\.\. Ok$/\1/p'
}

for suite in ${*:-python redis sqlite}; do "$suite"; done
exit "$failed"
