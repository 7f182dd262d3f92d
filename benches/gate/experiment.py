#!/usr/bin/env python3
"""How often the gate is wrong, and how small a change it finds.

Records real programs in rounds: each round runs every variant once and the unchanged program twice, in
random order. Then gates: the unchanged runs against each other, split at random in many ways (every
regression is a false alarm), and each variant against the unchanged runs (every one that is not called a
regression is missed; function and cause are compared with what was changed).

    benches/gate/experiment.py record --stackbeat target/release/stackbeat -o DIR --rounds 10
    benches/gate/experiment.py gate   --stackbeat target/release/stackbeat -o DIR > figures.md

`record` goes on where it stopped, and stops after --seconds.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIZES = [0.02, 0.05, 0.10, 0.20]


def sql(kind="none", size=0.0):
    """A script for sqlite3 whose change adds about this share of its time."""
    extra = {
        # A loop in the virtual machine.
        "cpu": lambda: "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<%d)"
        " SELECT sum(x*x %% 7) FROM c;" % (556000 * size),
        # A lookup that has no index.
        "no-index": lambda: "".join(
            "SELECT count(*) FROM t WHERE name='n%d';" % i for i in range(max(1, round(28 * size)))
        ),
        # A commit after each statement, synced.
        "fsync": lambda: "PRAGMA synchronous=FULL;"
        + "".join("INSERT INTO t(name,v) VALUES('x',%d);" % i for i in range(round(100 * size))),
    }
    return (
        "PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v INT);"
        "BEGIN; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<150000)"
        " INSERT INTO t(name,v) SELECT 'n'||(x%997), x*7919%10007 FROM c; COMMIT;"
        "CREATE INDEX i ON t(v); SELECT sum(length(name)) FROM t WHERE v BETWEEN 100 AND 4000;"
        "SELECT name, count(*), avg(v) FROM t GROUP BY name ORDER BY 3 DESC LIMIT 3;"
        + (extra[kind]() if kind in extra else "")
    )


class Variant:
    """A program with one change, and what the gate should say about it."""

    def __init__(self, program, kind, size, command, causes=(), functions=(), text=None):
        self.program, self.kind, self.size = program, kind, size
        self.command, self.text = command, text
        self.causes, self.functions = causes, functions
        self.name = kind if kind.startswith("none") else "%s-%g" % (kind, size)


def variants(arguments):
    """All of them. Sizes of `more` follow from the number of units, the others were measured once."""
    found = []
    python = shutil.which("python3")
    real = subprocess.run([python, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
    python = real.stdout.strip()
    expected = {
        "cpu": (["cpu"], ["_PyEval_EvalFrameDefault"]),
        "quadratic": (["cpu"], ["list_contains", "_PyEval_EvalFrameDefault", "PySequence_Contains"]),
        "alloc": (["allocation", "page-faults"], ["list_repeat", "PyList_New", "_PyEval_EvalFrameDefault"]),
        "recompile": (["cpu"], ["_PyEval_EvalFrameDefault"]),
        "faults": (["page-faults", "allocation"], ["PyByteArray_Resize", "bytearray___init___impl"]),
        "sleep": (["sleep"], ["time_sleep", "pysleep"]),
        "fsync": (["io"], ["os_fsync", "os_fsync_impl"]),
    }
    work = [python, str(HERE / "work.py")]
    for same in ("none-1", "none-2"):
        found.append(Variant("python", same, 0, work))
    for kind, (causes, functions) in expected.items():
        for size in SIZES:
            found.append(Variant("python", kind, size, work + [kind, str(size)], causes, functions))
    if shutil.which("sqlite3"):
        for same in ("none-1", "none-2"):
            found.append(Variant("sqlite3", same, 0, ["sqlite3", "DB"], text=sql()))
        for kind, causes, functions in [
            ("cpu", ["cpu"], ["sqlite3VdbeExec"]),
            ("no-index", ["cpu"], ["sqlite3VdbeExec"]),
            ("fsync", ["io"], []),
        ]:
            for size in SIZES:
                text = sql(kind, size)
                found.append(Variant("sqlite3", kind, size, ["sqlite3", "DB"], causes, functions, text))
    if arguments.repository:
        git = ["git", "-C", arguments.repository]
        log = ["log", "-p", "--no-color", "--format=%H"]
        for same in ("none-1", "none-2"):
            found.append(Variant("git", same, 0, git + log + ["-n", "100"]))
        for size in SIZES:
            more = log + ["-n", str(round(100 * (1 + size)))]
            found.append(Variant("git", "more", size, git + more, ["cpu", "allocation", "page-faults"]))
    if arguments.kitchen:
        for same in ("none-1", "none-2"):
            found.append(Variant("kitchen", same, 0, [arguments.kitchen, "40"]))
        for size in SIZES:
            orders = str(round(40 * (1 + size)))
            # Its main thread waits for the waiter, who sleeps once for eight orders.
            causes = ["sleep", "cpu", "lock", "io"]
            found.append(Variant("kitchen", "more", size, [arguments.kitchen, orders], causes))
    return found


def record(arguments):
    begin = time.monotonic()
    out = Path(arguments.output)
    database = out / "work.db"
    everything = [v for v in variants(arguments) if not arguments.only or v.program in arguments.only]
    for v in everything:
        (out / v.program / v.name).mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ, PYTHONHASHSEED="0", LC_ALL="C")
    for number in range(arguments.rounds):
        order = list(everything)
        random.Random(number).shuffle(order)
        for v in order:
            trace = out / v.program / v.name / ("%03d.beat" % number)
            if trace.exists():
                continue
            if time.monotonic() - begin > arguments.seconds:
                print("stopped in round %d" % number)
                return
            for old in out.glob("work.db*"):
                old.unlink()
            command = [str(database) if word == "DB" else word for word in v.command]
            part = trace.with_suffix(".part")
            subprocess.run(
                [arguments.stackbeat, "record", "-q", "-f", "-o", str(part), "--"] + command,
                input=v.text, text=True, env=environment, check=True, stdout=subprocess.DEVNULL,
            )
            part.rename(trace)
    print("complete")


def gate(arguments, baseline, candidate):
    """The verdict of one gate as JSON."""
    command = [arguments.stackbeat, "gate", "--format", "json"]
    command += ["--baseline"] + [str(t) for t in baseline] + ["--candidate"] + [str(t) for t in candidate]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1, 3):
        sys.exit("gate failed: " + done.stderr)
    return json.loads(done.stdout)


def traces(arguments, program, name):
    return sorted((Path(arguments.output) / program / name).glob("*.beat"))


def false_alarms(arguments, program, runs, pool):
    """Gates of unchanged runs: splits at random, in turns within a split as `ab` makes them."""
    every = traces(arguments, program, "none-1") + traces(arguments, program, "none-2")
    chances = random.Random(7)
    splits = []
    for _ in range(arguments.splits):
        drawn = chances.sample(every, min(2 * runs, len(every)))
        splits.append((drawn[: len(drawn) // 2], drawn[len(drawn) // 2 :]))
    results = list(pool.map(lambda s: gate(arguments, *s), splits))
    count = lambda verdict: sum(r["verdict"] == verdict for r in results)
    alarms = [r["headline"] for r in results if r["verdict"] == "regression"]
    return len(results), count("regression"), count("cannot-tell"), alarms


def is_right(result, v):
    """Whether the first finding has the cause and the function that were changed."""
    if not result["findings"]:
        return False, False
    first = result["findings"][0]
    named = [first["function"], first["deepest"]] + first["path"]
    function = not v.functions or any(f in named for f in v.functions)
    return first["cause"] in v.causes, function


def effect(result, metric):
    rows = [r for r in result["whole"] if r["metric"] == metric]
    return rows[0]["relative"] if rows and rows[0]["relative"] is not None else 0.0


def judge(arguments):
    pool = ThreadPoolExecutor(os.cpu_count())
    everything = variants(arguments)
    programs = sorted({v.program for v in everything if traces(arguments, v.program, "none-2")})
    print("## A/A\n\n| program | runs a side | gates | false alarms | cannot tell |")
    print("|---|--:|--:|--:|--:|")
    alarms = []
    for program in programs:
        runs = arguments.runs
        gates, wrong, unknown, lines = false_alarms(arguments, program, runs, pool)
        alarms += ["%s: %s" % (program, line) for line in lines]
        print("| %s | %d | %d | %d | %d |" % (program, runs, gates, wrong, unknown))
    for line in sorted(set(alarms)):
        print("\nfalse alarm: " + line)
    print("\n## A/B\n\n| program | change | size | wall | CPU | verdict | cause | function | first finding |")
    print("|---|---|--:|--:|--:|---|---|---|---|")
    changed = []
    for v in everything:
        if v.causes:
            runs = traces(arguments, v.program, v.name)
            baseline = traces(arguments, v.program, "none-1")
            # Rounds that were made together are compared.
            for at in range(0, min(len(runs), len(baseline)) - arguments.runs + 1, arguments.runs):
                changed.append((v, baseline[at : at + arguments.runs], runs[at : at + arguments.runs]))

    tally = {}
    results = pool.map(lambda c: gate(arguments, c[1], c[2]), changed)
    for (v, _, _), result in zip(changed, results):
        found = result["verdict"] == "regression"
        cause, function = is_right(result, v)
        first = result["findings"][0] if result["findings"] else {}
        sums = tally.setdefault(v.size, [0, 0, 0, 0])
        for at, value in enumerate([1, found, cause, function]):
            sums[at] += value
        print("| %s | %s | %g | %+.1f %% | %+.1f %% | %s | %s | %s | %s |" % (
            v.program, v.kind, v.size, 100 * effect(result, "wall"), 100 * effect(result, "cpu"),
            result["verdict"], "right" if cause else first.get("cause", ""),
            "right" if function else first.get("function", ""), first.get("metric", "")))
    print("\n| size | gates | found | cause right | function right |\n|--:|--:|--:|--:|--:|")
    for size, (total, found, cause, function) in sorted(tally.items()):
        print("| %g | %d | %d | %d | %d |" % (size, total, found, cause, function))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["record", "gate"])
    parser.add_argument("--stackbeat", default="stackbeat")
    parser.add_argument("-o", "--output", default="gate-experiment")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--runs", type=int, default=10, help="runs a side of each gate")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--only", action="append", help="record this program only; may be repeated")
    parser.add_argument("--repository", help="a git repository of a few hundred commits")
    parser.add_argument("--kitchen", help="the kitchen example's binary")
    arguments = parser.parse_args()
    {"record": record, "gate": judge}[arguments.step](arguments)


main()
