#!/bin/bash
# Stands in for xcrun with simctl and devicectl, and for one simulator and one device that run one app: a program on this machine. FAKE_XCRUN
# is the folder with their state. Each call becomes a line of `calls`; a call that no test knows fails.
state=$FAKE_XCRUN
has() { [[ -e $state/$1 ]]; }
fail() { printf '%s\n' "$*" >&2; exit 1; }
app=com.example.app
json=''
arguments=()
while [[ $# -gt 0 ]]; do
  if [[ $1 = --json-output ]]; then json=$2; shift; else arguments+=("$1"); fi
  shift
done
call="${arguments[*]}"
printf '%s\n' "$call" >> "$state/calls"
# result JSON: as devicectl writes it.
result() { printf '{"info":{"outcome":"success"},"result":%s}' "$1" > "$json"; }
# start NAME=VALUE…: the app, in the place of the one that runs. Its home is its container.
start() {
  local before; before=$(cat "$state/pid" 2>/dev/null) && kill "$before" 2>/dev/null
  mkdir -p "$state/home"
  env HOME="$state/home" "$@" nohup "$state/app" >"$state/said" 2>&1 &
  printf '%s' $! > "$state/pid"
}
case $call in
  "simctl list devices booted --json") cat "$state/simulators" ;;
  "simctl get_app_container S-1 $app data")
    has installed || fail "No such file or directory"
    printf '%s\n' "$state/home"
    ;;
  "simctl launch --terminate-running-process S-1 $app")
    # What begins so goes to the app, without it.
    mapfile -t child < <(env | sed -n 's/^SIMCTL_CHILD_//p')
    printf '%s\n' "${child[@]}" | sort > "$state/environment"
    start "${child[@]/#DYLD_INSERT_LIBRARIES=*/INSERTED=1}"
    printf '%s: %s\n' "$app" "$(cat "$state/pid")"
    ;;
  "devicectl list devices") result "$(cat "$state/devices")" ;;
  "devicectl device info apps --device D-1 --bundle-id $app")
    has installed && result "{\"apps\":[{\"bundleIdentifier\":\"$app\"}]}" || result '{"apps":[]}'
    ;;
  "devicectl device process launch --device D-1 --terminate-existing --environment-variables {"*"} $app")
    printf '%s\n' "${arguments[8]}" > "$state/environment"
    mapfile -t child < <(python3 -c 'import json, sys; [print(f"{k}={v}") for k, v in json.loads(sys.argv[1]).items()]' "${arguments[8]}")
    has ends && child+=(ENDS_AT_ONCE=1)
    has captured && child+=(IS_CAPTURED=1)
    start "${child[@]}"
    result "{\"process\":{\"processIdentifier\":$(cat "$state/pid")}}"
    ;;
  "devicectl device info processes --device D-1")
    pid=$(cat "$state/pid")
    # A program that has ended is there until somebody asks for its status.
    if grep -q '^State:.[^Z]' "/proc/$pid/status" 2>/dev/null; then
      result "{\"runningProcesses\":[{\"processIdentifier\":1},{\"processIdentifier\":$pid}]}"
    else
      result '{"runningProcesses":[{"processIdentifier":1}]}'
    fi
    ;;
  "devicectl device copy from --device D-1 --domain-type appDataContainer --domain-identifier $app --source Library/Caches/stackbeat/app.beat --destination "*)
    cp "$state/home/${arguments[11]}" "${arguments[13]}" || exit 1
    result '{}'
    ;;
  *) fail "no such call: $call" ;;
esac
