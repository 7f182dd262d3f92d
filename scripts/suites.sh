#!/bin/sh
# Runs other projects' own test suites with and without the agent and compares: a test that passes
# without it must pass under it.
#
#   scripts/suites.sh [python] [redis] [sqlite]     default: all that can be run here
#
# python: the CPython test suite that comes with python3 (PYTHON names another interpreter).
# redis:  the suite of Debian's redis source package (REDIS_SOURCE names an unpacked tree).
# sqlite: the suite of Debian's sqlite3 source package (SQLITE_SOURCE names a built tree with testfixture).
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

# compare NAME PATTERN: the failed tests of both runs, as sed extracts them.
compare() {
    for run in plain hooked; do
        sed -nE "$2" "$WORK/$1.$run" | sort -u >"$WORK/$1.$run.failed"
    done
    total=$(sed -nE "$3" "$WORK/$1.hooked" | wc -l)
    new=$(comm -13 "$WORK/$1.plain.failed" "$WORK/$1.hooked.failed")
    if [ "$total" -eq 0 ]; then
        echo "$1: nothing ran; the end of its output:"; tail -5 "$WORK/$1.hooked"; failed=1
    elif [ -n "$new" ]; then
        echo "$1: fails under the agent only:"; echo "$new"; failed=1
    else
        echo "$1: $total passed under the agent, $(wc -l <"$WORK/$1.plain.failed") fail with and without it"
    fi
}

python() {
    modules="test_os test_posix test_signal test_subprocess test_threading test_thread
        test_threadsignals test_socket test_select test_selectors test_poll test_epoll test_fork1
        test_wait3 test_wait4 test_pty test_popen test_mmap test_fcntl test_resource test_eintr
        test_faulthandler test_concurrent_futures test_io test_time test_queue test_signal
        test_asyncore test_posixpath test_tempfile test_json test_ctypes"
    # shellcheck disable=SC2086
    under python "${PYTHON:-python3}" -m test -v -u all,-network,-gui,-cpu,-audio ${MODULES:-$modules}
    compare python 's/^(test_[^ ]+ \([^)]*\)).* \.\.\. (FAIL|ERROR)$/\1/p' \
        's/^(test_[^ ]+ \([^)]*\)).* \.\.\. ok$/\1/p'
}

redis() {
    [ -n "${REDIS_SOURCE:-}" ] || { echo "redis: set REDIS_SOURCE to a built tree of its source"; return; }
    under redis sh -c "cd '$REDIS_SOURCE' && ./runtest --clients 2 --single unit/type/list \
        --single unit/type/string --single unit/expire --single unit/multi --single unit/aofrw"
    compare redis 's/^\[(err|exception)\]: (.*) in .*/\2/p' 's/^\[ok\]: (.*)/\1/p'
}

sqlite() {
    [ -n "${SQLITE_SOURCE:-}" ] || { echo "sqlite: set SQLITE_SOURCE to a tree with testfixture"; return; }
    under sqlite sh -c "cd '$SQLITE_SOURCE' && ./testfixture test/veryquick.test"
    compare sqlite 's/^! ([^ ]+) .*/\1/p' 's/^([^ ]+)\.\.\. Ok$/\1/p'
}

for suite in ${*:-python redis sqlite}; do "$suite"; done
exit "$failed"
