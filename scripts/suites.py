#!/usr/bin/env python3
"""CPython's own test suite, run plain and under stackbeat: nothing may fail that does not fail without.

    scripts/suites.py [--stackbeat target/debug/stackbeat] [--minutes 60] [MODULE …]

Runs every module of `test.` (or the named ones) both ways and compares the tests that failed. A module that
differs is run twice more each way before it counts, because some of these tests depend on time. Takes an
hour or two for the whole suite; it needs a CPython whose installation includes its tests.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Tests of debuggers and of tracing from outside look at what we change: who is the parent, what is
# preloaded. They are about gdb, not about the program.
NOT_MEANT = {"test_gdb"}


def modules():
    code = "from test.libregrtest.runtest import findtests; print(*findtests())"
    listing = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if listing.returncode == 0:
        return listing.stdout.split()
    listing = subprocess.run([sys.executable, "-m", "test", "--list-tests"], capture_output=True, text=True)
    if listing.returncode != 0:
        sys.exit("this python3 has no test suite")
    return listing.stdout.split()


def run(module, prefix, seconds):
    """The names of the tests of a module that failed, or why it had no result."""
    command = prefix + [sys.executable, "-m", "test", "-v", "--timeout", str(seconds), module]
    with tempfile.TemporaryDirectory(prefix="stackbeat-suite.") as folder:
        try:
            done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds + 60)
        except subprocess.TimeoutExpired:
            return {"timeout"}
    text = (done.stdout + done.stderr).decode(errors="replace")
    failed = set(re.findall(r"^(?:FAIL|ERROR): (.+)$", text, re.MULTILINE))
    if done.returncode != 0 and not failed:
        failed.add(f"status {done.returncode}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/debug/stackbeat"))
    parser.add_argument("--minutes", type=float, default=600, help="stop after so long")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one module")
    options = parser.parse_args()
    stackbeat = os.path.abspath(options.stackbeat)
    if not os.path.exists(stackbeat):
        sys.exit(f"{stackbeat}: not there; build it with: cargo build -p stackbeat")
    end = time.monotonic() + options.minutes * 60
    counts = {"same": 0, "worse": 0, "skipped": 0}
    with tempfile.TemporaryDirectory(prefix="stackbeat-suite.") as folder:
        prefix = [stackbeat, "record", "--quiet", "--force", "-o", os.path.join(folder, "trace.beat"), "--"]
        for module in options.modules or modules():
            if module in NOT_MEANT or time.monotonic() > end:
                counts["skipped"] += 1
                continue
            plain = run(module, [], options.timeout)
            recorded = run(module, prefix, options.timeout)
            for _ in range(2):
                if recorded <= plain:
                    break
                plain |= run(module, [], options.timeout)
                recorded &= run(module, prefix, options.timeout)
            worse = recorded - plain
            counts["worse" if worse else "same"] += 1
            if worse:
                print(f"{module}: fails only under stackbeat: {'; '.join(sorted(worse))}", flush=True)
            else:
                print(f"{module}: same", flush=True)
    print(f"suite: {counts['same']} passed, {counts['worse']} failed, {counts['skipped']} skipped")
    sys.exit(counts["worse"] > 0)


if __name__ == "__main__":
    main()
