#!/usr/bin/env python3
"""How often the gate is wrong, how small a change it finds, and whether it names function and cause.

    benches/gate/experiment.py --stackbeat target/release/stackbeat -o DIR            everything
    benches/gate/experiment.py --stackbeat target/release/stackbeat -o DIR --quick    a short version, in four minutes

For each kind of change (kinds.py) the amount that adds 2, 5, 10 and 20 % is found first. Then blocks are
recorded: for each size, and for no change at all, ten pairs of an unchanged and a changed run. A pair is recorded
as `stackbeat ab --together` does, both at the same time on one processor (--cpu); programs whose threads compute at
the same time in turns, in random order. A block gives a gate for each size, and gates of the pairs without change:
as recorded, and with sides exchanged at random. Special cases (special.py) have two sides each.

Everything goes into DIR: traces, amounts (amounts.json), results (gates.jsonl, one line a gate with the hash of
the binary that judged it), tables (figures.md). What is there already is not done again, so the command can be
stopped and given again; a changed binary judges the same traces anew.

What runs in turns wants a quiet machine. --around gives words to run each block under, a lock for
example; --pause 1 sleeps as long after a block as the block took.
"""
import argparse
import copy
import fcntl
import hashlib
import json
import multiprocessing
import os
import random
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import figures
from kinds import GROUPS, KINDS, SIZES
from programs import HERE, PROGRAMS
from special import CASES

# What a run of one thread spends by itself.
OWN = ["cpu", "lock", "io", "net", "sleep"]
SIDES = ["baseline", "candidate"]
# Random exchanges of sides in a block's pairs without change, besides what was recorded.
SPLITS = 10
# Amounts are found with this many pairs, and with more where they are in turns.
CALIBRATION_RUNS = 5
CALIBRATION_RUNS_IN_TURNS = 9
# Most amounts that are tried.
CALIBRATIONS = 7


class Experiment:
    def __init__(self, arguments):
        self.stackbeat = os.path.abspath(arguments.stackbeat)
        self.out = Path(arguments.output).resolve()
        self.runs = arguments.runs
        self.sizes = arguments.sizes
        self.cpu = arguments.cpu
        self.binary = hashlib.sha256(Path(self.stackbeat).read_bytes()).hexdigest()[:12]

    def prepared(self, program, number):
        """The program and a folder of its own: what runs at the same time needs two of each."""
        place = self.out / "programs" / program / str(number)
        place.mkdir(parents=True, exist_ok=True)
        own = copy.copy(PROGRAMS[program])
        own.prepare(place)
        return own, place

    def record(self, where, change, trace, cpu=None):
        """One run of a prepared program with a change (kind and amount), on one processor or on any."""
        program, folder = where
        part = trace.with_suffix(".part")
        pinned = [] if cpu is None else ["--cpus", str(cpu)]
        recorder = [self.stackbeat, "record", "-q", "-f", *pinned, "-o", str(part), "--"]
        program.run(recorder, folder, *change)
        part.rename(trace)

    def record_together(self, places, changes, traces):
        """Both runs of a pair at the same time on one processor; who sends them requests has the others."""
        def side(*run):
            others = os.sched_getaffinity(0) - {self.cpu}
            os.sched_setaffinity(0, others or {self.cpu})
            self.record(*run, cpu=self.cpu)

        sides = [multiprocessing.Process(target=side, args=run) for run in zip(places, changes, traces)]
        for process in sides:
            process.start()
        for process in sides:
            process.join()
        if any(process.exitcode for process in sides):
            raise RuntimeError("a run failed: %s" % ", ".join(map(str, traces)))

    def pairs(self, program, changes, place, runs, together):
        """So many pairs, unless they are there. `changes` are those of baseline and candidate."""
        places = None
        for number in range(runs):
            traces = [place / side / ("%03d.beat" % number) for side in SIDES]
            if all(trace.exists() for trace in traces):
                continue
            places = places or [self.prepared(program, number) for number in range(2)]
            for trace in traces:
                trace.parent.mkdir(parents=True, exist_ok=True)
            # No side always has the same folder, or begins.
            order = [0, 1]
            random.Random("%s %d" % (place.relative_to(self.out), number)).shuffle(order)
            ordered = [[of[side] for side in order] for of in (changes, traces)]
            if together:
                self.record_together(places, *ordered)
            else:
                cpu = self.cpu if PROGRAMS[program].together else None
                for change, trace in zip(*ordered):
                    self.record(places[0], change, trace, cpu)

    def gate(self, options, baseline, candidate):
        """The verdict as JSON."""
        command = [self.stackbeat, "gate", "--format", "json", *options]
        command += ["--baseline"] + [str(t) for t in baseline] + ["--candidate"] + [str(t) for t in candidate]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1, 3):
            sys.exit("gate failed: " + done.stderr)
        return json.loads(done.stdout)

    # Amounts

    def amounts(self):
        path = self.out / "amounts.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def alone_ns(self, kind):
        """What a run without change spends itself when nothing of its own runs beside it: not how long it takes, which is
        longer on a machine that does something else as well."""
        place = self.out / "calibration" / kind.key / "alone"
        place.mkdir(parents=True, exist_ok=True)
        traces = [place / ("%d.beat" % number) for number in range(3)]
        for trace in traces:
            self.record(self.prepared(kind.program, 0), ("none", 0), trace, self.cpu)
        whole = self.gate([], traces, traces)["whole"]
        return sum(row["baseline_median"] for row in whole if row["metric"] in OWN)

    def calibrate(self, kind):
        """Finds the amount that adds 20 % (15 to 25 % will do; its fractions add theirs): from a guess, then on the
        line between what added too little and what added too much."""
        amount = kind.guess
        less, more = (0.0, 0.0), None
        # Who waits has to be alone. Otherwise, at the same time, wall times have the other's turns in them: what was
        # computed and blocked is compared with what that is in a run that is alone.
        together = PROGRAMS[kind.program].together and not kind.waits
        alone = self.alone_ns(kind) if together and kind.measure == "wall" else None
        for attempt in range(CALIBRATIONS):
            place = self.out / "calibration" / kind.key / str(attempt)
            runs = CALIBRATION_RUNS if together else CALIBRATION_RUNS_IN_TURNS
            self.pairs(kind.program, [("none", 0), (kind.name, amount)], place, runs, together)
            sides = [sorted((place / side).glob("*.beat")) for side in SIDES]
            whole = self.gate(["--together" if together else "--paired"], *sides)["whole"]
            if alone:
                added = sum(r["candidate_median"] - r["baseline_median"] for r in whole if r["metric"] in OWN) / alone
            else:
                added = next(r["relative"] for r in whole if r["metric"] == kind.measure)
            tried = amount
            if 0.15 <= added <= 0.25:
                break
            if added < 0.2:
                less = (amount, max(added, 0.0))
            else:
                more = (amount, added)
            if more:
                amount = less[0] + (more[0] - less[0]) * (0.2 - less[1]) / (more[1] - less[1])
            else:
                amount *= 0.2 / max(added, 0.02)
        else:
            if not 0.08 <= added <= 0.4:
                sys.exit("%s: no amount was found that adds 20 %%; %g added %.0f %%" % (kind.key, tried, 100 * added))
        with open(self.out / "amounts.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = self.amounts()
            known[kind.key] = {"amount": tried, "adds": added, "measure": kind.measure}
            (self.out / "amounts.json").write_text(json.dumps(known, indent=1) + "\n")

    # Blocks

    def block(self, kind, replicate):
        return self.out / "blocks" / kind.key / str(replicate)

    def record_block(self, kind, replicate):
        known = self.amounts()[kind.key]
        place = self.block(kind, replicate)
        together = PROGRAMS[kind.program].together
        self.pairs(kind.program, [("none", 0)] * 2, place / "none", self.runs, together)
        for size in self.sizes:
            amount = max(1, known["amount"] * size / known["adds"])
            self.pairs(kind.program, [("none", 0), (kind.name, amount)], place / ("%g" % size), self.runs, together)

    def record_case(self, case, replicate):
        changes = [case.baseline, case.candidate]
        if case.amount_of:
            known = self.amounts()[case.amount_of]
            scale = known["amount"] / known["adds"]
            changes = [(kind, size * scale) for kind, size in changes]
        together = PROGRAMS[case.program].together
        self.pairs(case.program, changes, self.case(case, replicate), self.runs, together)

    def case(self, case, replicate):
        return self.out / "special" / case.name / str(replicate)

    # Gates

    def sides(self, place):
        """The traces of both sides, or nothing where some are missing."""
        found = [sorted((place / side).glob("*.beat"))[:self.runs] for side in SIDES]
        return found if all(len(traces) == self.runs for traces in found) else None

    def questions(self, kinds, replicates):
        """(what is asked, whether pairs ran together, the traces of both sides) of all gates whose traces are complete."""
        for kind in kinds:
            for replicate in range(replicates):
                place, together = self.block(kind, replicate), PROGRAMS[kind.program].together
                about = {"kind": kind.key, "program": kind.program, "half": kind.half,
                         "replicate": replicate}
                for size in SIZES:
                    if sides := self.sides(place / ("%g" % size)):
                        yield dict(about, what="changed", size=size), together, sides
                if sides := self.sides(place / "none"):
                    yield dict(about, what="unchanged", split=0), together, sides
                    chances = random.Random("%s %d" % (kind.key, replicate))
                    for split in range(1, SPLITS + 1):
                        pairs = [chances.sample(pair, 2) for pair in zip(*sides)]
                        yield dict(about, what="unchanged", split=split), together, list(zip(*pairs))
        for case in CASES:
            for replicate in range(replicates):
                if sides := self.sides(self.case(case, replicate)):
                    about = {"what": "special", "case": case.name, "replicate": replicate}
                    yield about, PROGRAMS[case.program].together, sides

    def judge(self, kinds, replicates):
        """Asks what was not asked before with this binary; gives all answers of it."""
        path = self.out / "gates.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        of_binary = [line for line in lines if line["binary"] == self.binary]
        identity = lambda about: tuple(sorted((k, v) for k, v in about.items()))
        known = {identity(line["about"]) for line in of_binary}
        asked = [q for q in self.questions(kinds, replicates) if identity(q[0]) not in known]
        # Most are about unchanged programs: what was changed is known before them.
        asked.sort(key=lambda q: ["changed", "special", "unchanged"].index(q[0]["what"]))
        with path.open("a") as file, ThreadPoolExecutor(os.cpu_count()) as pool:
            answers = pool.map(lambda q: self.gate(["--fail-on-counts"] + (["--together"] if q[1] else []), *q[2]), asked)
            for (about, _, _), answer in zip(asked, answers):
                line = {"binary": self.binary, "about": about, "answer": short(answer)}
                of_binary.append(line)
                print(json.dumps(line), file=file, flush=True)
        return of_binary


def short(answer):
    """What the figures need of a verdict."""
    median = lambda r: {k: r[k] for k in ("relative", "answer", "p", "fence", "interval")}
    finding = lambda f: {
        k: f[k] for k in ("metric", "found_by", "function", "deepest", "path", "cause", "headline", "role", "share")
    }
    return {
        "verdict": answer["verdict"],
        "runs_needed": answer["runs_needed"],
        "whole": {r["metric"]: median(r) for r in answer["whole"]},
        "findings": [finding(f) for f in answer["findings"]],
        "matches": answer["matches"][:20],
        "moved": answer["moved"][:10],
        "warnings": answer["warnings"],
    }


def under_lock(arguments, step):
    """Runs one step in a process of its own, under the words of --around."""
    words = shlex.split(arguments.around) + [sys.executable, str(HERE / "experiment.py")]
    words += ["--stackbeat", arguments.stackbeat, "-o", arguments.output]
    words += ["--cpu", str(arguments.cpu), "--runs", str(arguments.runs)]
    words += ["--sizes", ",".join("%g" % s for s in arguments.sizes), "--step", step]
    begin = time.monotonic()
    if subprocess.run(words).returncode != 0:
        print("%s failed; given again, the command tries it once more" % step, file=sys.stderr)
    took = time.monotonic() - begin
    print("%s: %.1f s" % (step, took), flush=True)
    time.sleep(arguments.pause * took)


def run_step(experiment, step):
    what, name, replicate = step.split(":")
    if what == "case":
        experiment.record_case(next(c for c in CASES if c.name == name), int(replicate))
        return
    kind = next(k for k in KINDS if k.key == name)
    if what == "amount":
        experiment.calibrate(kind)
    else:
        experiment.record_block(kind, int(replicate))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stackbeat", default="stackbeat")
    parser.add_argument("-o", "--output", default="gate-experiment")
    parser.add_argument("--runs", type=int, default=10, help="runs a side of each gate")
    parser.add_argument("--replicates", type=int, default=2, help="blocks of each kind")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)),
                        help="the processor that both runs of a pair share")
    sizes = lambda text: [float(size) for size in text.split(",")]
    parser.add_argument("--sizes", type=sizes, default=SIZES, help="sizes to record, of %s" % SIZES)
    parser.add_argument("--half", choices=GROUPS, help="only this part of the kinds; blind, fresh: and no special case")
    parser.add_argument("--only", action="append",
                        help="only this kind, for example press-new-lock, and no special case; may be repeated")
    parser.add_argument("--quick", action="store_true", help="at most three of these kinds, one block, eight runs a side")
    parser.add_argument("--around", default="", help="words to run each block under")
    parser.add_argument("--pause", type=float, default=0.0, help="sleep this many times as long as a block took")
    parser.add_argument("--judge-only", action="store_true", help="record nothing, judge what is there")
    parser.add_argument("--record-only", action="store_true", help="judge nothing")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kinds = [k for k in KINDS if not arguments.half or k.half == arguments.half]
    kinds = [k for k in kinds if not arguments.only or k.key in arguments.only]
    cases = CASES if arguments.half not in ("blind", "fresh") and not arguments.only else []
    if arguments.quick:
        arguments.runs, arguments.replicates = 8, 1
        kinds, cases = [k for k in kinds if k.key in QUICK] or kinds[:3], cases[:1]
    for name in sorted({k.program for k in kinds}):
        if lacks := PROGRAMS[name].lacks():
            print("%s is left out: %s not found" % (name, ", ".join(lacks)), file=sys.stderr)
            kinds = [k for k in kinds if k.program != name]
            cases = [c for c in cases if c.program != name]
    experiment = Experiment(arguments)
    if arguments.step:
        run_step(experiment, arguments.step)
        return
    experiment.out.mkdir(parents=True, exist_ok=True)
    if not arguments.judge_only:
        needed = {k.key: k for k in kinds}
        for case in cases:
            # The amount of a special case is that of a kind.
            needed.update({k.key: k for k in KINDS if k.key == case.amount_of})
        for key in needed:
            if key not in experiment.amounts():
                under_lock(arguments, "amount:%s:0" % key)
        for replicate in range(arguments.replicates):
            for kind in kinds:
                names = ["none"] + ["%g" % size for size in arguments.sizes]
                if not all(experiment.sides(experiment.block(kind, replicate) / name) for name in names):
                    under_lock(arguments, "block:%s:%d" % (kind.key, replicate))
            for case in cases:
                if not experiment.sides(experiment.case(case, replicate)):
                    under_lock(arguments, "case:%s:%d" % (case.name, replicate))
    if arguments.record_only:
        return
    lines = experiment.judge(kinds, arguments.replicates)
    text = figures.tables(lines)
    (experiment.out / "figures.md").write_text(text)
    print(text)


QUICK = ["python-sleep", "press-bigger-allocations", "xz-deeper-search"]

if __name__ == "__main__":
    main()
