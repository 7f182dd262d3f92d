#!/usr/bin/env python3
"""What hooks of ART and captures cost a Java thread: CPU time of calls with and without a recording, on real ART in a
Linux process (scripts/art). Prints the tables of docs/measurements/android.md.

  benches/art_overhead.py [ROUNDS]        15 by default
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "target/release/libstackbeat_app.so"
TOOL = ROOT / "target/debug/stackbeat"
# Of a run in which captures are measured.
WINDOWS = 20
# What stands behind each kind, and the hooked calls of one turn.
KINDS = {
    "monitor": ("enter and leave a monitor", 2),
    "allocation": ("make an object", 1),
    "unpark": ("`LockSupport.unpark`", 1),
    "park": ("`unpark` and `park`, without waiting", 2),
    "notify": ("enter and leave a monitor, `notify` without a waiter", 3),
    "wait": ("the same with a `wait` of 1 µs", 3),
    "native": ("`Runtime.totalMemory`, a native method", 1),
    "collection": ("`Runtime.gc`", 1),
}


def run(*command):
    subprocess.run(command, cwd=ROOT, check=True)


def measure_hooks(program, rounds):
    """Median CPU time of a call by kind and state, ns."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.check_output([*program, LIBRARY, folder, str(rounds)], stderr=subprocess.DEVNULL, text=True)
    for line in said.splitlines():
        kind, state, ns = line.split()
        times.setdefault((kind, state), []).append(float(ns))
    return {key: statistics.median(values) for key, values in times.items()}


def samples_of(recorder):
    """Samples so far, once all are counted."""
    time.sleep(0.5)
    status = json.loads(subprocess.check_output([TOOL, "status", str(recorder.pid), "--json"]))
    return status["sessions"][0]["samples"]


def measure_capture(program):
    """CPU time of a capture, µs, for each pair of windows of one run: in one captures are rare, in the other frequent."""
    with tempfile.TemporaryDirectory() as folder:
        recorder = subprocess.Popen(
            [TOOL, "record", "-q", "--clock", "tick", "-o", Path(folder) / "trace.beat", "--",
             *program, LIBRARY, folder, "0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        windows = []
        assert recorder.stdout.readline() == "ready\n"
        while len(windows) < WINDOWS:
            interval = ("10ms", "100us")[len(windows) % 2]
            subprocess.run([TOOL, "set", str(recorder.pid), "--interval", interval, "--main-interval", interval],
                           check=True, capture_output=True)
            before = samples_of(recorder)
            recorder.stdin.write(".")
            recorder.stdin.flush()
            cpu_ns = int(recorder.stdout.readline().split()[1])
            windows.append((cpu_ns, samples_of(recorder) - before))
        recorder.communicate()
    pairs = zip(windows[::2], windows[1::2])
    return [(fast - slow) / (many - few) / 1000 for (slow, few), (fast, many) in pairs]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    run("cargo", "build", "--quiet", "--locked", "--release", "-p", "stackbeat-android-app")
    with tempfile.TemporaryDirectory() as folder:
        jar = Path(folder) / "overhead.jar"
        run("target/art/dex-it", jar, "benches/art/Overhead.java",
            "hooks-android/aar/stackbeat/src/main/java/dev/stackbeat/Native.java")
        for version in (11, 14):
            art = ROOT / f"target/art/{version}/run-art"
            if not art.is_file():
                continue
            program = [art, jar, "dev.stackbeat.Overhead"]
            times = measure_hooks(program, rounds)
            loop = times["nothing", "plain"]
            print(f"\n| ART {version}, ns of CPU time | without a recording | recorded | a hooked call |\n|---|--:|--:|--:|")
            for kind, (what, calls) in KINDS.items():
                plain, recorded = (times[kind, state] - loop for state in ("plain", "recorded"))
                print(f"| {what} | {plain:.0f} | {recorded:.0f} | {(recorded - plain) / calls:.0f} |")
            captures = measure_capture(program)
            low, high = min(captures), max(captures)
            print(f"\nA capture: {statistics.median(captures):.1f} µs under 30 Java frames ({low:.1f} to {high:.1f} in {len(captures)} pairs).")


if __name__ == "__main__":
    main()
