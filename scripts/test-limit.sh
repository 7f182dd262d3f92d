#!/bin/bash
# Runs a test binary, and ends it when it takes longer than a limit: says what its processes do at that moment, and
# kills them. Cargo runs each test binary with it:
#
#   CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="scripts/test-limit.sh SECONDS" cargo test
limit=$1
shift

# The binary's processes, also those that lost their parent: each has inherited this variable.
processes() {
  grep -lszx "TEST_LIMIT_PID=$$" /proc/[0-9]*/environ | tr -cd '0-9\n'
}

show() {
  local pid=$1 task
  echo "-- $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline")"
  for task in "/proc/$pid/task"/*; do
    echo "thread ${task##*/} $(<"$task/comm"): $(grep -E '^(State|TracerPid|SigPnd|ShdPnd|SigBlk)' "$task/status" | tr '\t\n' '  ')"
    echo "  in $(<"$task/wchan"), call $(<"$task/syscall")"
  done
  ls -l "/proc/$pid/fd" | sed -n 's/.* \([0-9]* -> \)/  \1/p'
  timeout 60 gdb -q -batch -nx -p "$pid" -ex 'thread apply all backtrace 30' 2>/dev/null | grep -E '^(Thread|#)'
}

watch() {
  timeout "$limit" tail --pid=$$ -f /dev/null && return
  echo "== no end after $limit s: $1; it counts as failed. Its processes:"
  for pid in $(processes); do show "$pid"; done 2>/dev/null
  for _ in {1..50}; do
    pids=$(processes)
    [[ -n $pids ]] || break
    # shellcheck disable=SC2086 # several
    kill -KILL $pids 2>/dev/null
    sleep 0.1
  done
}

# Not a child of the test's, which takes the place of this process.
(watch "$1" &)
# Cargo in a test runs no tests.
exec env -u CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER TEST_LIMIT_PID=$$ "$@"
