#!/usr/bin/env python3
"""Counts waits independently of the recorder, and compares them with the trace.

    scripts/count-waits.py kinds [--lengths 2,5,30,200,1000] [--busy] [--rounds 4] [--threads 4] [-- RECORD OPTIONS]
        every kind of call in tests/tests/lengths/kinds.c, which knows how often and for how long it waits
    scripts/count-waits.py run [-- RECORD OPTIONS --] COMMAND …
        any program, with tests/witness/waits.c preloaded behind the agent; processes that end by a signal or _exit are left out

STACKBEAT names the binary; target/debug/stackbeat otherwise. Exit status 1: something is missing in a trace.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACKBEAT = os.environ.get("STACKBEAT", str(ROOT / "target/debug/stackbeat"))
# Waits from here on count, ns: clearly longer than the interval of a millisecond.
LEAST_NS = 2_000_000


def said(*command, **more):
    return subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout


def compile_c(folder, source, *options):
    target = folder / source.stem
    said("gcc", "-g", "-O1", "-pthread", "-o", target, source, *options)
    return target


def record(folder, options, command, user=(), **more):
    trace = folder / "t.beat"
    output = said(*user, STACKBEAT, "record", "-q", "--force", "-o", trace, *options, "--", *command, **more)
    # Its status says, too, that something is wrong.
    check = subprocess.run([STACKBEAT, "info", "--json", "--check", trace], capture_output=True, text=True).stdout
    for violation in json.loads(check)["violations"]:
        print("  info --check:", violation)
    return trace, output


def kinds(folder, arguments, options):
    value = lambda name, usual: arguments[arguments.index(name) + 1] if name in arguments else usual
    program = compile_c(folder, ROOT / "tests/tests/lengths/kinds.c", "-lrt")
    rounds, threads = value("--rounds", "4"), value("--threads", "4")
    busy = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(os.cpu_count() * 2 * ("--busy" in arguments))]
    all_missing = 0
    try:
        for length in value("--lengths", "2,5,30,200,1000").split(","):
            trace, output = record(folder, options, [program, length, rounds, threads])
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
            print(f"{length} ms: {waits} waits, {missing} missing, losses {report['losses']}")
            all_missing += missing
    finally:
        for process in busy:
            process.kill()
    return all_missing


def count(folder, command, options, user=(), env=os.environ, cwd=None):
    """For each process: pid, waits and their ns by the interposer, waits and their ns in the trace. `user`: what runs the recorder as one."""
    library = compile_c(folder, ROOT / "tests/witness/waits.c", "-shared", "-fPIC", "-ldl")
    counts = folder / "counts"
    environment = dict(env, LD_PRELOAD=str(library), WAITS_OUT=str(counts), WAITS_MIN_NS=str(LEAST_NS))
    trace, _ = record(folder, options, command, user, env=environment, cwd=cwd)
    said(STACKBEAT, "export", "--to", "chrome", "-o", folder / "t.json", trace)
    events = json.loads((folder / "t.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    open_slices, seen, seen_ns, pids = {}, {}, {}, set()
    for event in events:
        thread = event.get("pid"), event.get("tid")
        pids.add(thread[0])
        if event.get("ph") == "B":
            open_slices.setdefault(thread, []).append(event)
        elif event.get("ph") == "E":
            begin = open_slices[thread].pop()
            ns = (event["ts"] - begin["ts"]) * 1000
            if begin["name"].endswith(f" [{begin.get('cat')}]") and ns >= LEAST_NS * 0.999:
                seen[thread[0]] = seen.get(thread[0], 0) + 1
                seen_ns[thread[0]] = seen_ns.get(thread[0], 0) + ns
    lines = [map(int, line.split()) for line in counts.read_text().splitlines()]
    return [(pid, waits, ns, seen.get(pid, 0), seen_ns.get(pid, 0)) for pid, waits, ns in lines if pid in pids]


def run(folder, command, options):
    missing = 0
    for pid, waits, ns, in_trace, in_trace_ns in count(folder, command, options):
        missing += max(0, waits - in_trace)
        print(f"{pid}: {waits} waits, {ns / 1e6:.1f} ms; in the trace {in_trace}, {in_trace_ns / 1e6:.1f} ms")
    return missing


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
