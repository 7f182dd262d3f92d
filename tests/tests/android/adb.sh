#!/bin/bash
# Stands in for adb, with a device that runs one app: a program on this machine whose session is inside of it. FAKE_ADB is the
# folder with the device's state. Each call becomes a line of `calls`; a call that no test knows fails.
state=$FAKE_ADB
printf '%s\n' "$*" >> "$state/calls"
say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 1; }
has() { [[ -e $state/$1 ]]; }
pid() { local recorder; recorder=$(cat "$state/recorder" 2>/dev/null) && cat "/proc/$recorder/task/$recorder/children" 2>/dev/null; }
if [[ $1 = devices ]]; then
  say "List of devices attached"
  cat "$state/devices"
  exit
fi
[[ $1 = -s && $2 = emulator-5554 ]] || fail "error: device '$2' not found"
shift 2
app=com.example.app
case "$1 $2" in
  "shell pm path $app") has installed && say "package:/data/app/$app/base.apk" || exit 1 ;;
  "shell run-as $app true") has debuggable || fail "run-as: package not debuggable: $app" ;;
  "shell setprop debug.stackbeat."*) ;;
  "shell getprop ro.build.version.release") say 14 ;;
  "shell getprop ro.build.version.sdk") say 34 ;;
  "shell getprop ro.product.cpu.abi") say arm64-v8a ;;
  "shell am force-stop $app")
    # The next start writes to the same file.
    if recorder=$(cat "$state/recorder" 2>/dev/null) && kill "$recorder" 2>/dev/null; then
      while kill -0 "$recorder" 2>/dev/null; do sleep 0.1; done
    fi
    ;;
  "shell monkey -p $app -c android.intent.category.LAUNCHER 1")
    has no_activity && fail "** No activities found to run, monkey aborted."
    nohup "$state/app" >/dev/null 2>&1 &
    say $! > "$state/recorder"
    ;;
  "shell pidof $app") found=$(pid); [[ $found ]] && say $found || exit 1 ;;
  "shell cat /proc/net/unix") cat /proc/net/unix ;;
  "forward tcp:0") say "$3" > "$state/forwarded"; cat "$state/port" ;;
  "forward --remove") ;;
  "exec-out run-as $app cat "*) cat "${2#run-as $app cat }" ;;
  "shell run-as $app rm -f "*) rm -f "${2#run-as $app rm -f }" ;;
  "shell perfetto --background -o /data/misc/perfetto-traces/stackbeat.pftrace -t 2s "*) say 4711 ;;
  "exec-out cat /data/misc/perfetto-traces/stackbeat.pftrace") cat "$state/system.pftrace" ;;
  "shell rm -f /data/misc/perfetto-traces/stackbeat.pftrace") ;;
  *) fail "no such call: $*" ;;
esac
