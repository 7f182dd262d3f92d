#!/usr/bin/env python3
"""What a hook costs where many threads pass hooks at once.

    benches/threads.py [--pairs 7] [--calls 80000000] [--interval 1ms] [--stackbeat FILE]
    benches/threads.py --events …        counters, and begins and ends of scopes, of one thread

A program shares so many calls (malloc and free, or locks and unlocks of a mutex of its own) out among 1 to 64 threads,
alone and recorded, both of a pair at the same time. Shown is the CPU time that a recorded call takes beyond one of the
program alone, captures included: the median of the pairs, and its 95 % bootstrap interval. It grows with the number of
threads where they write to the same cache lines.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from overhead import ROOT, interval

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "threads")
API = os.path.join(ROOT, "api/include")
THREADS = [1, 2, 4, 8, 16, 32, 64]


def pair(program, options, folder, arguments):
    """The CPU time of a call in ns: alone, recorded."""
    trace = os.path.join(folder, "calls.beat")
    record = [options.stackbeat, "record", "--force", "--interval", options.interval, "-o", trace, "--"]
    commands = [[program, *arguments], [*record, program, *arguments]]
    running = [subprocess.Popen(c, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for c in commands]
    results = []
    for command, process in zip(commands, running):
        out, errors = process.communicate()
        if process.returncode:
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}: {errors.strip()}")
        results.append(float(out))
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--calls", type=int)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--interval", default="1ms")
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    options = parser.parse_args()
    kinds, numbers = (["counter", "scope"], [1]) if options.events else (["malloc", "mutex"], THREADS)
    calls = options.calls or (200_000 if options.events else 80_000_000)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "calls")
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-pthread", "-I", API, "-o", program, os.path.join(HERE, "calls.c")], check=True)
        print("| calls | threads | alone, ns | recorded beyond that, ns |")
        print("|---|---|---|---|")
        for kind in kinds:
            for threads in numbers:
                arguments = [kind, str(threads), str(calls)]
                pairs = [pair(program, options, folder, arguments) for _ in range(options.pairs)]
                alone, _, _ = interval([alone for alone, _ in pairs])
                middle, low, high = interval([recorded - alone for alone, recorded in pairs])
                print(f"| {kind} | {threads} | {alone:.2f} | {middle:.2f} ({low:.2f} to {high:.2f}) |", flush=True)


if __name__ == "__main__":
    main()
