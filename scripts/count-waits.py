#!/usr/bin/env python3
"""Counts waits independently of the recorder, and compares them with the trace.

    scripts/count-waits.py kinds [--lengths 2,5,30,200,1000] [--busy] [--rounds 4] [--threads 4] [-- RECORD OPTIONS]
        every kind of call in tests/tests/lengths/kinds.c, which knows how often and for how long it waits
    scripts/count-waits.py run [-- RECORD OPTIONS --] COMMAND …
        any program, with tests/interposers/waits.c preloaded behind the agent; processes that end by a signal are left out

STACKBEAT names the binary; target/debug/stackbeat otherwise. Exit status 1: something is missing in a trace.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACKBEAT = str(pathlib.Path(os.environ.get("STACKBEAT", ROOT / "target/debug/stackbeat")).resolve())
# Waits from here on count, ns: clearly longer than the interval of a millisecond.
LEAST_NS = 2_000_000
# So far apart may the interposer's clock and the hook's be read.
NEAR_NS = 300_000


def said(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def compile_c(folder, source, *options):
    target = folder / source.stem
    said("gcc", "-g", "-O1", "-pthread", "-o", target, source, *options)
    return target


def record(folder, options, command, user=(), **more):
    """The trace, what the program has printed, and the recorder's pid."""
    trace = folder / "t.beat"
    words = [*user, STACKBEAT, "record", "-q", "--force", "-o", trace, *options, "--", *command]
    recorder = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    output, errors = recorder.communicate()
    if recorder.returncode:
        raise subprocess.CalledProcessError(recorder.returncode, words, output, errors)
    # Its status says, too, that something is wrong.
    check = subprocess.run([STACKBEAT, "info", "--json", "--check", trace], capture_output=True, text=True).stdout
    for violation in json.loads(check)["violations"]:
        print("  info --check:", violation)
    return trace, output, recorder.pid


def kinds(folder, arguments, options):
    value = lambda name, usual: arguments[arguments.index(name) + 1] if name in arguments else usual
    program = compile_c(folder, ROOT / "tests/tests/lengths/kinds.c", "-lrt")
    rounds, threads = value("--rounds", "4"), value("--threads", "4")
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() * 2 * ("--busy" in arguments))]
    all_missing = 0
    try:
        for length in value("--lengths", "2,5,30,200,1000").split(","):
            trace, output, _ = record(folder, options, [program, length, rounds, threads])
            report = json.loads(said(STACKBEAT, "report", "--json", "--top", "0", trace))
            waits = missing = 0
            for line in output.splitlines():
                kind, count, *rest = line.split()
                if count == "missing":
                    continue
                sites = [site for site in report["blocking_sites"] if f"w_{kind}" in site["stack"]]
                seen, seen_ns = (sum(site[key] for site in sites) for key in ("count", "total_ns"))
                waits += int(count)
                missing += max(0, int(count) - seen)
                # What the program measures begins before the hook and ends after it.
                if seen < int(count) or seen_ns < int(rest[0]) * 0.9:
                    print(f"  {kind}: {count} waits, {int(rest[0]) / 1e6:.1f} ms; in the trace {seen}, {seen_ns / 1e6:.1f} ms")
            print(f"{length} ms: {waits} waits, {missing} missing, drops {report['drops']}")
            all_missing += missing
    finally:
        for process in busy:
            process.kill()
    return all_missing


def intervals_in_force(info):
    """Gives the longest interval that was in force between two times for threads, or main threads: waits over it are records."""

    def longest(of, begin, end):
        known = [(change["at_ns"], change["interval_ns"]) for change in info["intervals"] if change["of"] == of]
        before = [ns for at, ns in known if at <= begin][-1:]
        return max(before + [ns for at, ns in known if begin < at <= end], default=0)

    return longest


def slices_of_waits(events):
    """By (pid, tid): begin, end and name of the slices that are waits, ns since the beginning of the recording."""
    opened, found = {}, {}
    for event in events:
        thread = event.get("pid"), event.get("tid")
        if event.get("ph") == "B":
            opened.setdefault(thread, []).append(event)
        elif event.get("ph") == "E":
            begin = opened[thread].pop()
            if begin["name"].endswith(f" [{begin.get('cat')}]"):
                found.setdefault(thread, []).append((begin["ts"] * 1000, event["ts"] * 1000, begin["name"]))
    return found


def compared(waits, slices):
    """Waits of a thread that are no records: those that slices cover to less than 90 %, and those that share one with another. A
    handler that runs in a wait has slices of its own: then one of the wait's begins and another of it ends with the wait."""
    missing, taken = [], set()
    # The inner ones first: their handlers run in the outer ones.
    for wait in sorted(waits, key=lambda wait: wait[1] - wait[0]):
        begin, end, _ = wait
        shared = [(min(end, s[1]) - max(begin, s[0]), s) for s in slices if s[0] < end and s[1] > begin]
        free = [(ns, s) for ns, s in shared if s not in taken]
        first, last = (shared[0][1], shared[-1][1]) if shared else (None, None)
        is_split = shared and first[2] == last[2] and abs(first[0] - begin) < NEAR_NS and abs(last[1] - end) < NEAR_NS
        if sum(ns for ns, _ in shared) < (end - begin) * 0.9 and not is_split:
            missing.append((wait, "not there"))
        elif not free:
            missing.append((wait, "in one with another"))
        else:
            taken.add(max(free)[1])
    return missing


def count(folder, command, options, user=(), env=os.environ, cwd=None):
    """For each process: pid, number of waits by the interposer, their ns, and those that are no records: call, begin and length in
    ns, the interval in force, and in which way they are none. A wait within the interval in force need not be one."""
    library = compile_c(folder, ROOT / "tests/interposers/waits.c", "-shared", "-fPIC", "-ldl")
    counts = folder / "counts"
    environment = dict(env, LD_PRELOAD=str(library), WAITS_OUT=str(counts), WAITS_MIN_NS=str(LEAST_NS))
    trace, _, recorder = record(folder, options, command, user, env=environment, cwd=cwd)
    said(STACKBEAT, "export", "--to", "chrome", "-o", folder / "t.json", trace)
    exported = json.loads((folder / "t.json").read_text())
    began = int(exported["otherData"]["start_monotonic_ns"])
    slices = slices_of_waits(exported["traceEvents"])
    in_force = intervals_in_force(json.loads(said(STACKBEAT, "info", "--json", trace)))
    totals, waits = {}, {}
    for line in counts.read_text().splitlines():
        pid, *rest = line.split()
        if len(rest) == 2:
            totals[int(pid)] = [int(value) for value in rest]
        else:
            tid, begin, end, call = rest
            waits.setdefault((int(pid), int(tid)), []).append((int(begin) - began, int(end) - began, call))
    rows = []
    # The interposer is in the recorder, too.
    for pid in totals.keys() - {recorder}:
        missing = []
        for thread in (key for key in waits if key[0] == pid):
            kind = "main threads" if thread[0] == thread[1] else "threads"
            for (begin, end, call), way in compared(waits[thread], slices.get(thread, [])):
                missing.append((call, begin, end - begin, in_force(kind, begin, end), way))
        rows.append((pid, *totals[pid], missing))
    return rows


def lost(rows):
    """Those of `count` that are over the interval in force."""
    return [wait for row in rows for wait in row[3] if wait[2] > wait[3]]


def run(folder, command, options):
    rows = count(folder, command, options)
    for pid, waits, ns, missing in rows:
        print(f"{pid}: {waits} waits, {ns / 1e6:.1f} ms; {len(missing)} are no records")
        for call, begin, length, interval, way in missing:
            print(f"  {call} at {begin / 1e6:.3f} ms for {length / 1e6:.3f} ms: {way}; the interval was {interval / 1e6:.1f} ms")
    return len(lost(rows))


def main():
    mode, *rest = sys.argv[1:] or ["--help"]
    if mode not in ("kinds", "run"):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if mode == "kinds":
            at = rest.index("--") if "--" in rest else len(rest)
            missing = kinds(folder, rest[:at], rest[at + 1 :])
        else:
            options = []
            if rest[:1] == ["--"]:
                at = rest.index("--", 1)
                options, rest = rest[1:at], rest[at + 1 :]
            missing = run(folder, rest, options)
    sys.exit(missing != 0)


if __name__ == "__main__":
    main()
