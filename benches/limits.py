#!/usr/bin/env python3
"""Where this machine's floor lies, and what a recording costs once.

    benches/limits.py [--runs 15] [--stackbeat FILE]

Interruptions: what a running thread loses when something interrupts it every millisecond, by each way that
Linux has, with a signal handler that only counts (benches/limits/interrupt.c). No sampler that interrupts
that often can cost less on this machine.

Fixed costs: wall and CPU time of recording `true` beyond `true` itself, by tool; and the time from exec to
main of a program with 50 shared libraries, with and without the agent (benches/limits/start.c).

Runs are in turns; shown is the median with its 95 % bootstrap interval.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

from overhead import ROOT, interval, remove, resource, time, tool_commands

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limits")
LIBRARIES = 50
STEPS = 600_000_000
WAYS = {
    "nothing": "nothing",
    "timer": "timer_create, CLOCK_MONOTONIC, signal",
    "cpu-timer": "timer_create, CLOCK_THREAD_CPUTIME_ID, signal",
    "perf-signal": "perf_event task-clock, signal by its descriptor",
    "perf-sigtrap": "perf_event task-clock, its own SIGTRAP",
    "perf-ring": "perf_event task-clock, record in a ring",
    "tgkill": "another process wakes and sends a signal",
    "sleeper": "another process wakes and sends nothing",
}


def compile_c(source, out, *more):
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-O2", "-o", out, os.path.join(HERE, source), *more], check=True)


def show(values, unit):
    middle, low, high = interval(values)
    return f"{middle:+.2f} {unit} [{low:+.2f}, {high:+.2f}]"


def interruptions(folder, runs):
    program = os.path.join(folder, "interrupt")
    compile_c("interrupt.c", program)
    results = {way: [] for way in WAYS}
    for _ in range(runs):
        for way in list(results):
            done = subprocess.run([program, way, str(STEPS), "1000000"], capture_output=True, text=True)
            if done.returncode:
                print(f"left out: {WAYS[way]}: {done.stderr.strip()}")
                del results[way]
            else:
                results[way].append([float(word) for word in done.stdout.split()])
    print(f"{'an interruption every millisecond':<50} {'CPU lost':<28} {'seen a second':>13} {'sender, of a core':>18}")
    for way, measured in results.items():
        lost = [(own[0] / nothing[0] - 1) * 100 for own, nothing in zip(measured, results["nothing"])]
        seen = statistics.median(count / cpu for cpu, count, _ in measured)
        sender = statistics.median(other / cpu for cpu, _, other in measured) * 100
        if way == "nothing":  # against itself: each run with the one before
            lost = [(a[0] / b[0] - 1) * 100 for a, b in zip(measured[1:], measured)] or [0.0]
        print(f"{WAYS[way]:<50} {show(lost, '%'):<28} {seen:>13.0f} {sender:>16.1f} %")


def recording_true(folder, stackbeat, runs):
    tools, missing = tool_commands(stackbeat)
    tools.pop("stackbeat-100us", None)
    out = os.path.join(folder, "true.out")

    def run(prefix):
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(prefix + ["true"], stdin=subprocess.DEVNULL, capture_output=True)
        wall = time.perf_counter() - begin
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        remove(out)
        return wall * 1e3, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3

    results = {name: [] for name in tools}
    for _ in range(runs):
        for name, prefix in tools.items():
            alone, recorded = run([]), run(prefix(out))
            results[name].append([recorded[i] - alone[i] for i in range(2)])
    print(f"\n{'recording `true`':<50} {'wall':<28} CPU")
    for name, costs in results.items():
        walls, cpus = zip(*costs)
        print(f"{name:<50} {show(walls, 'ms'):<28} {show(cpus, 'ms')}")
    for name in missing:
        print(f"left out: {name} is not installed")


def start(folder, stackbeat, runs):
    names = []
    for i in range(LIBRARIES):
        source = os.path.join(folder, f"part{i}.c")
        with open(source, "w") as file:
            file.write("#include <stdlib.h>\n" + "".join(
                f"void *part{i}_{j}(int n) {{ return n ? malloc(n) : calloc({j} + 1, 8); }}\n" for j in range(200)))
        subprocess.run([os.environ.get("CC", "cc"), "-O1", "-fPIC", "-shared", "-o", f"{folder}/libpart{i}.so", source], check=True)
        names.append(f"-lpart{i}")
    program = os.path.join(folder, "program")
    compile_c("start.c", program, "-Wl,--no-as-needed", f"-L{folder}", *names, f"-Wl,-rpath,{folder}")
    launcher = os.path.join(folder, "start")
    compile_c("start.c", launcher)
    out = os.path.join(folder, "start.beat")
    record = [stackbeat, "record", "--quiet", "--force", "-o", out, "--"]

    def run(prefix):
        done = subprocess.run(prefix + [launcher, "exec", program], capture_output=True, text=True, check=True)
        return [float(word) for word in done.stdout.split()]

    plain, recorded = [], []
    for _ in range(runs):
        plain.append(run([]))
        recorded.append(run(record))
    print(f"\n{f'from exec to main, {LIBRARIES} libraries':<50} {'wall':<28} CPU")
    for name, rows in (("alone", plain), ("beyond that, recorded", [[b - a for a, b in zip(*pair)] for pair in zip(plain, recorded)])):
        walls, cpus = zip(*rows)
        print(f"{name:<50} {show(walls, 'ms'):<28} {show(cpus, 'ms')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    options = parser.parse_args()
    if not os.path.exists(options.stackbeat):
        sys.exit(f"{options.stackbeat}: not there; build it with: cargo build --release -p stackbeat")
    with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
        interruptions(folder, options.runs)
        recording_true(folder, os.path.abspath(options.stackbeat), options.runs)
        start(folder, os.path.abspath(options.stackbeat), options.runs)


if __name__ == "__main__":
    main()
