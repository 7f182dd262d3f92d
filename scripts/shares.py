#!/usr/bin/env python3
"""Compares the CPU shares of functions with those of perf.

    scripts/shares.py [--only sqlite3,python,…] [--clocks tick,kernel,timer] [--intervals 1ms,100us] [--rounds 3] [--top 20] [--show]

The workloads are those of benches/overhead.py, and short ones by name: cc1plus, sort, perl, json, ledger, pages. Each round records a program by `perf record -e task-clock -c 1000000 -g` and by
stackbeat with each setting, in turns. A function is what the unwind tables say is one (.eh_frame_hdr), so names and inlining
have no part in it; code without tables is one function a file. Time in the kernel belongs to the function that called it.

The table has the mean absolute difference, in points, of the shares of perf's top functions: of two rounds of perf, and of
each setting from perf, a round each. STACKBEAT names the binary; target/release/stackbeat otherwise. Needs perf, and go for
`go tool pprof`.
"""

import argparse
import bisect
import collections
import importlib.util
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACKBEAT = str(pathlib.Path(os.environ.get("STACKBEAT", ROOT / "target/release/stackbeat")).resolve())


def overhead():
    spec = importlib.util.spec_from_file_location("overhead", ROOT / "benches/overhead.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Functions:
    """Where the functions of a file begin, by its table for binary search (LSB 5.0, Exception Frames, .eh_frame_hdr)."""

    files = {}

    def __init__(self, path):
        self.starts, self.loads = [], []
        try:
            data = pathlib.Path(path).read_bytes()
        except OSError:
            return
        if data[:5] != b"\x7fELF\x02":
            return
        offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
        for i in range(count):
            kind, _, at, address, _, length = struct.unpack_from("<IIQQQQ", data, offset + i * size)
            if kind == 1:
                self.loads.append((at, at + length, address))
            # PT_GNU_EH_FRAME, its table of pairs of 32-bit distances from here.
            if kind == 0x6474E550 and data[at + 2 : at + 4] == b"\x03\x3b":
                (entries,) = struct.unpack_from("<I", data, at + 8)
                table = struct.unpack_from(f"<{entries * 2}i", data, at + 12)
                self.starts = [address + distance for distance in table[::2]]

    @classmethod
    def of(cls, path, offset):
        """The function at this offset of a file."""
        path = os.path.realpath(path)
        if path not in cls.files:
            cls.files[path] = cls(path)
        self = cls.files[path]
        for begin, end, address in self.loads:
            if begin <= offset < end:
                at = bisect.bisect(self.starts, address + offset - begin)
                return path, self.starts[at - 1] if at else 0
        return path, 0


OTHER = "other code", 0

PERL = """
my %h;
for my $i (1..300000) { push @{$h{$i % 5003}}, "v$i" }
my $n = 0;
for my $k (sort keys %h) { $n += length(join(",", @{$h{$k}})) }
print $n
"""
JSON = """
import json, re
text = json.dumps([{"a": i, "b": str(i) * 3, "c": [i] * 5} for i in range(60000)])
print(len(re.findall(r"\\d+", text)), len(json.loads(text)))
"""
PAGES = """
kept = []
for i in range(300):
    kept.append(bytearray(1 << 20))
    sum(kept[-1][:4000])
"""


def short_workloads(Workload):
    """Programs that compute for less than a second or two: as much as is sampled at 1 ms by default."""

    def lines(size):
        pathlib.Path("lines").write_text("\n".join(f"{i * 7919 % 1000003} {'x' * (i % 37)}" for i in range(400_000)))

    def cpp(size):
        headers = "".join(f"#include <{name}>\n" for name in ("map", "string", "vector", "regex", "iostream"))
        body = 'int main() { std::regex r("a+b"); std::map<std::string, std::vector<int>> m; return m.size() + std::regex_match("aab", r); }'
        pathlib.Path("a.cpp").write_text(headers + body)
        subprocess.run(["g++", "-E", "a.cpp", "-o", "a.ii"], check=True)
        compiler = subprocess.run(["g++", "-print-prog-name=cc1plus"], check=True, capture_output=True, text=True).stdout.strip()
        os.symlink(compiler, "cc1plus")

    def ledger(size):
        subprocess.run(["g++", "-O2", "-g", "-pthread", "-o", "ledger", ROOT / "scripts/shares/ledger.cpp"], check=True)

    return [
        Workload("cc1plus", ["g++"], cpp, ["./cc1plus", "-quiet", "-O1", "-fpreprocessed", "a.ii", "-o", "/dev/null"]),
        Workload("sort", ["sort"], lines, ["sort", "--parallel=1", "lines", "-o", "/dev/null"]),
        Workload("perl", ["perl"], lambda size: None, ["perl", "-e", PERL]),
        Workload("json", ["python3"], lambda size: None, ["python3", "-c", JSON]),
        Workload("ledger", ["g++"], ledger, ["./ledger"]),
        Workload("pages", ["python3"], lambda size: None, ["python3", "-c", PAGES]),
    ]


def by_perf(folder, command, **more):
    data = folder / "perf.data"
    subprocess.run(["perf", "record", "-q", "-e", "task-clock", "-c", "1000000", "-g", "-o", data, "--", *command], check=True, **more)
    # Without names perf gives offsets into files.
    script = ["perf", "script", "-i", data, "-F", "pid,ip,dso", "--no-inline"]
    text = subprocess.run(script, check=True, capture_output=True, text=True, errors="replace").stdout
    found = collections.Counter()
    for sample in text.split("\n\n"):
        for line in sample.splitlines():
            if (match := re.match(r"\s+(\w+) \((.*)\)$", line)) and "[kernel" not in match[2] and int(match[1], 16) < 1 << 47:
                found[Functions.of(match[2], int(match[1], 16)) if match[2].startswith("/") else OTHER] += 1
                break
    return found


def by_stackbeat(folder, command, options, **more):
    trace, profile = folder / "t.beat", folder / "t.pb.gz"
    subprocess.run([STACKBEAT, "record", "-q", "--force", *options, "-o", trace, "--", *command], check=True, **more)
    subprocess.run([STACKBEAT, "export", "--force", "--to", "pprof", "-o", profile, trace], check=True, stderr=subprocess.DEVNULL)
    raw = subprocess.run(["go", "tool", "pprof", "-raw", profile], check=True, capture_output=True, text=True).stdout
    head, rest = raw.split("\nLocations\n")
    locations, mappings = rest.split("\nMappings\n")
    files = {}
    for line in mappings.splitlines():
        if match := re.match(r"(\d+): (0x\w+)/0x\w+/(0x\w+) (/\S*)", line):
            files[match[1]] = match[4], int(match[3], 16) - int(match[2], 16)
    places = {}
    for line in locations.splitlines():
        if match := re.match(r" *(\d+): (0x\w+)(?: M=(\d+))?", line):
            path, shift = files.get(match[3], ("", 0))
            places[match[1]] = Functions.of(path, int(match[2], 16) + shift) if path else OTHER
    kinds, *samples = head.split("\nSamples:\n")[1].splitlines()
    column = next(i for i, kind in enumerate(kinds.split()) if kind.startswith("cpu/"))
    found = collections.Counter()
    for line in samples:
        if match := re.match(r"\s+((?:\d+ +)*\d+): (.*)", line):
            stack = match[2].split()
            found[places.get(stack[0]) if stack else "no stack"] += int(match[1].split()[column])
    return found


def difference(one, other, top):
    """Mean absolute difference of the shares of these functions, in points."""
    share = lambda counts, function: 100 * counts[function] / max(1, counts.total())
    return statistics.mean(abs(share(one, function) - share(other, function)) for function in top)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="sqlite3,python,git,pigz,node")
    parser.add_argument("--clocks", default="tick,kernel,timer")
    parser.add_argument("--intervals", default="1ms,100us")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--show", action="store_true", help="the shares of each function, too: perf's, then those of each setting")
    arguments = parser.parse_args()
    for tool in ("perf", "go"):
        if not shutil.which(tool):
            sys.exit(f"{tool} is not installed; this needs it beside stackbeat")
    intervals = arguments.intervals.split(",")
    settings = [(clock, interval) for clock in arguments.clocks.split(",") for interval in (intervals if clock != "auto" else ["default"])]
    if arguments.rounds < 2:
        sys.exit("--rounds: at least 2, because perf is compared with itself")
    print("| program | perf, two runs |" + "".join(f" {clock}, {interval} |" for clock, interval in settings))
    print("|---" * (len(settings) + 2) + "|")
    benches = overhead()
    for workload in [*benches.WORKLOADS, *short_workloads(benches.Workload)]:
        if workload.name not in arguments.only.split(",") or workload.server:
            continue
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            os.chdir(folder)
            workload.prepare(1)
            runs = collections.defaultdict(list)
            for _ in range(arguments.rounds):
                for setting in ["perf", *settings]:
                    more = {"stdout": subprocess.DEVNULL, "env": dict(os.environ, **(workload.env or {}))}
                    more["stdin"] = open(workload.stdin) if workload.stdin else subprocess.DEVNULL
                    if setting == "perf":
                        runs[setting].append(by_perf(folder, workload.command, **more))
                    else:
                        options = ["--clock", setting[0], *([] if setting[0] == "auto" else ["--interval", setting[1]]), "--no-children"]
                        runs[setting].append(by_stackbeat(folder, workload.command, options, **more))
            all_of_perf = sum(runs["perf"], collections.Counter())
            top = [function for function, _ in all_of_perf.most_common(arguments.top)]
            pairs = zip(runs["perf"], runs["perf"][1:])
            row = [statistics.mean(difference(one, other, top) for one, other in pairs)]
            row += [statistics.mean(difference(run, perf, top) for run in runs[key] for perf in runs["perf"]) for key in settings]
            print(f"| {workload.name} |" + "".join(f" {value:.2f} |" for value in row), flush=True)
            if arguments.show:
                for function in top:
                    shares = [100 * sum(run[function] for run in runs[key]) / sum(run.total() for run in runs[key]) for key in runs]
                    print("  ", f"{pathlib.Path(function[0]).name}+{function[1]:#x}", " ".join(f"{share:.1f}" for share in shares))
            os.chdir(ROOT)


if __name__ == "__main__":
    main()
