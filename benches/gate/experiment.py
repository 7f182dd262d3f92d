#!/usr/bin/env python3
"""How often the gate is wrong, how small a change it finds, and whether it names function and cause.

    benches/gate/experiment.py --stackbeat target/release/stackbeat -o DIR            everything
    benches/gate/experiment.py --stackbeat target/release/stackbeat -o DIR --quick    a taste, in two minutes

For each kind of change (kinds.py) the amount that adds 2, 5, 10 and 20 % is found first. Then blocks are
recorded: ten rounds, in each round the unchanged program twice and the changed one in each size, in random
order. A block gives a gate for each size against the first unchanged runs, and gates of unchanged runs
against each other: as recorded, and split at random. Special cases (special.py) have two sides each.

Everything goes into DIR: traces, amounts (amounts.json), results (gates.jsonl, one line a gate with the hash of
the binary that judged it), tables (figures.md). What is there already is not done again, so the command can be
stopped and given again; a changed binary judges the same traces anew.

Times mean something on a quiet machine only. --around gives words to run each block under, a lock for
example; --pause 1 sleeps as long after a block as the block took.
"""
import argparse
import hashlib
import json
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

UNCHANGED = ["none-1", "none-2"]
# Random splits of a block's unchanged runs, besides the one that was recorded.
SPLITS = 10
# Amounts are found with this many runs a side.
CALIBRATION_RUNS = 5
# Most amounts that are tried.
CALIBRATIONS = 7


class Experiment:
    def __init__(self, arguments):
        self.stackbeat = os.path.abspath(arguments.stackbeat)
        self.out = Path(arguments.output).resolve()
        self.runs = arguments.runs
        self.sizes = arguments.sizes
        self.binary = hashlib.sha256(Path(self.stackbeat).read_bytes()).hexdigest()[:12]

    def folder(self, program):
        place = self.out / "programs" / program
        place.mkdir(parents=True, exist_ok=True)
        PROGRAMS[program].prepare(place)
        return place

    def record(self, program, kind, amount, trace):
        """One run, unless it is there."""
        if trace.exists():
            return
        trace.parent.mkdir(parents=True, exist_ok=True)
        part = trace.with_suffix(".part")
        recorder = [self.stackbeat, "record", "-q", "-f", "-o", str(part), "--"]
        PROGRAMS[program].run(recorder, self.out / "programs" / program, kind, amount)
        part.rename(trace)

    def rounds(self, program, variants, place, seed, runs):
        """Every variant (name: kind and amount) once a round, in random order."""
        self.folder(program)
        for number in range(runs):
            order = sorted(variants)
            random.Random("%s %d" % (seed, number)).shuffle(order)
            for name in order:
                kind, amount = variants[name]
                self.record(program, kind, amount, place / name / ("%03d.beat" % number))

    def gate(self, baseline, candidate):
        """The verdict as JSON."""
        command = [self.stackbeat, "gate", "--format", "json", "--baseline"]
        command += [str(t) for t in baseline] + ["--candidate"] + [str(t) for t in candidate]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode not in (0, 1, 3):
            sys.exit("gate failed: " + done.stderr)
        return json.loads(done.stdout)

    # Amounts

    def amounts(self):
        path = self.out / "amounts.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def calibrate(self, kind):
        """Finds the amount that adds 20 % (12 to 28 % will do; its fractions add theirs): from a guess, then on the
        line between what added too little and what added too much."""
        amount = kind.guess
        less, more = (0.0, 0.0), None
        for attempt in range(CALIBRATIONS):
            place = self.out / "calibration" / kind.key / str(attempt)
            variants = {"none": ("none", 0), "changed": (kind.name, amount)}
            self.rounds(kind.program, variants, place, kind.key, CALIBRATION_RUNS)
            traces = lambda name: sorted((place / name).glob("*.beat"))
            whole = self.gate(traces("none"), traces("changed"))["whole"]
            row = next(r for r in whole if r["metric"] == kind.measure)
            added = row["candidate_median"] / row["baseline_median"] - 1
            if 0.12 <= added <= 0.28:
                break
            if added < 0.2:
                less = (amount, max(added, 0.0))
            else:
                more = (amount, added)
            if more:
                amount = less[0] + (more[0] - less[0]) * (0.2 - less[1]) / (more[1] - less[1])
            else:
                amount *= 0.2 / max(added, 0.02)
        known = self.amounts()
        known[kind.key] = {"amount": amount, "adds": added, "measure": kind.measure}
        (self.out / "amounts.json").write_text(json.dumps(known, indent=1) + "\n")

    # Blocks

    def block(self, kind, replicate):
        return self.out / "blocks" / kind.key / str(replicate)

    def record_block(self, kind, replicate):
        known = self.amounts()[kind.key]
        variants = {name: ("none", 0) for name in UNCHANGED}
        for size in self.sizes:
            amount = max(1, known["amount"] * size / known["adds"])
            variants["%g" % size] = (kind.name, amount)
        place = self.block(kind, replicate)
        self.rounds(kind.program, variants, place, "%s %d" % (kind.key, replicate), self.runs)

    def record_case(self, case, replicate):
        variants = {"baseline": case.baseline, "candidate": case.candidate}
        if case.amount_of:
            known = self.amounts()[case.amount_of]
            scale = known["amount"] / known["adds"]
            variants = {name: (kind, size * scale) for name, (kind, size) in variants.items()}
        place = self.out / "special" / case.name / str(replicate)
        self.rounds(case.program, variants, place, "%s %d" % (case.name, replicate), self.runs)

    # Gates

    def questions(self, kinds, replicates):
        """(what is asked, the traces of both sides) of all gates whose traces are complete."""
        for kind in kinds:
            for replicate in range(replicates):
                place = self.block(kind, replicate)
                of = lambda name: sorted((place / name).glob("*.beat"))
                is_there = lambda name: len(of(name)) >= self.runs
                if not all(is_there(name) for name in UNCHANGED):
                    continue
                about = {"kind": kind.key, "program": kind.program, "half": kind.half,
                         "replicate": replicate}
                for size in (size for size in SIZES if is_there("%g" % size)):
                    yield dict(about, what="changed", size=size), of(UNCHANGED[0]), of("%g" % size)
                yield dict(about, what="unchanged", split=0), of(UNCHANGED[0]), of(UNCHANGED[1])
                chances = random.Random("%s %d" % (kind.key, replicate))
                every = of(UNCHANGED[0]) + of(UNCHANGED[1])
                for split in range(1, SPLITS + 1):
                    drawn = chances.sample(every, len(every))
                    half = len(drawn) // 2
                    yield dict(about, what="unchanged", split=split), drawn[:half], drawn[half:]
        for case in CASES:
            for replicate in range(replicates):
                place = self.out / "special" / case.name / str(replicate)
                of = lambda name: sorted((place / name).glob("*.beat"))
                if all(len(of(name)) >= self.runs for name in ("baseline", "candidate")):
                    about = {"what": "special", "case": case.name, "replicate": replicate}
                    yield about, of("baseline"), of("candidate")

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
            answers = pool.map(lambda q: self.gate(q[1], q[2]), asked)
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
    words += ["--runs", str(arguments.runs), "--sizes", ",".join("%g" % s for s in arguments.sizes), "--step", step]
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


def is_complete(place, runs):
    names = [d for d in place.iterdir() if d.is_dir()] if place.exists() else []
    return bool(names) and all(len(list(d.glob("*.beat"))) >= runs for d in names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stackbeat", default="stackbeat")
    parser.add_argument("-o", "--output", default="gate-experiment")
    parser.add_argument("--runs", type=int, default=10, help="runs a side of each gate")
    parser.add_argument("--replicates", type=int, default=2, help="blocks of each kind")
    sizes = lambda text: [float(size) for size in text.split(",")]
    parser.add_argument("--sizes", type=sizes, default=SIZES, help="sizes to record, of %s" % SIZES)
    parser.add_argument("--half", choices=GROUPS, help="only this part of the kinds; blind: and no special case")
    parser.add_argument("--only", action="append", help="only this kind, for example press-new-lock; may be repeated")
    parser.add_argument("--quick", action="store_true", help="at most three of these kinds, one block, six runs a side")
    parser.add_argument("--around", default="", help="words to run each block under")
    parser.add_argument("--pause", type=float, default=0.0, help="sleep this many times as long as a block took")
    parser.add_argument("--judge-only", action="store_true", help="record nothing, judge what is there")
    parser.add_argument("--record-only", action="store_true", help="judge nothing")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    kinds = [k for k in KINDS if not arguments.half or k.half == arguments.half]
    kinds = [k for k in kinds if not arguments.only or k.key in arguments.only]
    cases = CASES if arguments.half != "blind" else []
    if arguments.quick:
        arguments.runs, arguments.replicates = 6, 1
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
                if not is_complete(experiment.block(kind, replicate), arguments.runs):
                    under_lock(arguments, "block:%s:%d" % (kind.key, replicate))
            for case in cases:
                place = experiment.out / "special" / case.name / str(replicate)
                if not is_complete(place, arguments.runs):
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
