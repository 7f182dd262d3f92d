#!/usr/bin/env python3
"""What profilers show of a known cause, and what they cost: stackbeat beside py-spy, samply, perf, async-profiler, heaptrack.

    benches/compare.py [--pairs 3] [--only lock.cpp,cpu.py] [--tools stackbeat,perf] [--rows FILE] > docs/measurements/comparison.md

Records the programs of benches/compare with each tool that can record them, and looks for the cause in the tool's own output. The
cause is the line of a program marked CAUSE, its function, and the function of the line marked HOLDER or WAKER; how much it took is
what the program prints of itself. Every answer and figure is computed from outputs. stackbeat and the peers of one row ran the same
program; costs are pairs of runs with and without the tool, at the same time on one processor.

--rows keeps each row as it comes: what is in the file already is not measured again.

Peers come from their registries into --peers (py-spy: pip, async-profiler: Maven, samply: cargo, unless it is on the PATH) and from
Debian (scripts/install-test-packages.sh: perf, heaptrack). What is not there is left out, and said on standard error.
"""

import argparse
import collections
import datetime
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import traceback
import urllib.parse
import urllib.request
import zipfile
from typing import NamedTuple

from overhead import Workload, interval, remove, run_together

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = os.path.join(ROOT, "benches/compare")
ASYNC_PROFILER = "4.1"
HZ = 999
SPY_HZ = 250
# A function whose name says what kind of wait its caller is in.
WAITS = {"lock": r"mutex|futex|sem_wait|acquire_lock|[Mm]onitor|lll_lock", "pipe": r"\bread\b|sys_read|pipe_read|GI_read|read0|readSync"}
# V8 and HotSpot write perf maps for tools that read these; perf needs frame pointers, too.
JAVA_MAP = "JAVA_TOOL_OPTIONS=-XX:+PreserveFramePointer -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
NODE_MAP = "NODE_OPTIONS=--perf-basic-prof --interpreted-frames-native-stack"


class Stack(NamedTuple):
    """What a tool says of one callstack. `kind`: what it calls the wait, if it does."""
    amount: float
    frames: list  # (function, line or 0), innermost first
    kind: str = ""


class Found(NamedTuple):
    """All that a tool says about a program, in the dimension of its cause: CPU (any unit), seconds waited, bytes or calls."""
    stacks: list
    unit: str = ""
    # Waits with who ended them or held the lock: (waiter's functions, thread's name, waker's functions, amount).
    wakers: list = []


class Program:
    def __init__(self, file, python):
        self.file, (stem, extension) = file, file.split(".")
        self.cause, self.language = stem.lower(), {"py": "Python", "cpp": "C++", "java": "Java", "js": "node"}[extension]
        self.command = {"Python": [python, file], "C++": [f"./{stem}"], "Java": ["java", "-cp", ".", stem], "node": ["node", file]}[self.language]
        with open(os.path.join(SOURCES, file)) as source:
            lines = source.read().splitlines()
        self.line, self.function = self.marked(lines, "CAUSE")
        self.waker = self.marked(lines, "HOLDER")[1] or self.marked(lines, "WAKER")[1]

    def marked(self, lines, mark):
        """The line with a mark and the function around it: the last one that begins above."""
        begin = {"Python": r"def (\w+)", "C++": r"__attribute__.* \*?(\w+)\(", "Java": r"    static [\w\[\]]+ (\w+)\(", "node": r"function (\w+)"}[self.language]
        function = ""
        for number, line in enumerate(lines, 1):
            match = re.match(begin, line)
            function = match.group(1) if match else function
            if line.rstrip().endswith(mark):
                return number, function
        return 0, ""

    def build(self):
        if self.language == "C++":
            subprocess.run(["g++", "-std=c++17", "-O2", "-g", "-o", self.command[0], self.file, "-pthread"], check=True)
        elif self.language == "Java":
            subprocess.run(["javac", self.file], check=True)


def output(words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace").stdout


def with_maps(program, words):
    switches = {"Java": [JAVA_MAP], "node": [NODE_MAP]}.get(program.language)
    return ["env", *switches, *words] if switches else words


class Stackbeat:
    """`export --to pprof` for amounts and lines, `report --json` for wakers."""
    name, languages = "stackbeat", ("Python", "C++", "Java", "node")

    def __init__(self, options):
        self.file = options.stackbeat

    def words(self, program, out):
        record = [self.file, "record", "--quiet", "--force", "-o", out, "--"]
        return ["env", JAVA_MAP, *record] if program.language == "Java" else record

    def read(self, program, out):
        subprocess.run([self.file, "export", "--force", "--to", "pprof", "-o", f"{out}.pb.gz", out], check=True, stderr=subprocess.DEVNULL)
        raw = output(["go", "tool", "pprof", "-raw", f"{out}.pb.gz"])
        column = {"cpu": "cpu/", "alloc": "alloc_space/", "lock": "blocked/", "pipe": "blocked/"}[program.cause]
        head, rest = raw.split("Samples:\n", 1)
        types, samples = rest.split("\n", 1)
        samples, locations = samples.split("Locations\n", 1)
        index = [name.startswith(column) for name in types.split()].index(True)
        names = {}
        for line in locations.split("Mappings")[0].splitlines():
            match = re.match(r"\s+(\d+): 0x\w+ (?:M=\d+ )?(.*)$", line)
            if match:
                number = match.group(1)
                names[number] = []
            # Inlined functions of one location follow on lines of their own.
            frame = re.match(r"(.*) \S*?:(\d+)(?::\d+)? s=\d+", (match.group(2) if match else line).strip())
            if frame:
                names[number].append((frame.group(1), int(frame.group(2))))
        stacks = []
        for line in samples.splitlines():
            match = re.match(r"\s+([\d ]+): ([\d ]+)$", line)
            if match and (amount := int(match.group(1).split()[index])):
                stacks.append(Stack(amount, [frame for number in match.group(2).split() for frame in names[number]]))
        if program.cause in ("cpu", "alloc"):
            return Found(stacks, "bytes" if program.cause == "alloc" else "")
        report = json.loads(output([self.file, "report", "--json", out]))
        threads = {thread["utid"]: thread["name"] for thread in report["threads"]}
        wakers = [(pair["stack"], threads.get(pair["waker_utid"], ""), pair["waker_stack"] or [], pair["total_ns"] / 1e9) for pair in report["waits"]["pairs"]]
        kinds = {call["call"]: call["cause"] for call in report["blocking_sites"]}
        return Found([Stack(stack.amount / 1e9, stack.frames, kinds.get(stack.frames[0][0], "")) for stack in stacks], "s", wakers)


class PySpy:
    """`record --format raw`: a line for each stack. `--idle` shows threads that wait among those that run."""
    name, languages = "py-spy", ("Python",)

    def __init__(self, options):
        self.file = os.path.join(options.peers, "python/bin/py-spy")
        if not os.path.exists(self.file):
            subprocess.run([sys.executable, "-m", "venv", os.path.join(options.peers, "python")], check=True)
            subprocess.run([os.path.join(options.peers, "python/bin/pip"), "-q", "install", "py-spy"], check=True, stdout=sys.stderr)

    def words(self, program, out):
        idle = ["--idle"] if program.cause in WAITS else []
        return [self.file, "record", "-r", str(SPY_HZ), *idle, "-f", "raw", "-o", out, "--"]

    def read(self, program, out):
        stacks = []
        with open(out) as lines:
            for line in lines:
                stack, amount = line.rsplit(" ", 1)
                frames = re.findall(r"([^;]+?) \([^;]*?(?::(\d+))?\)(?:;|$)", stack)
                stacks.append(Stack(int(amount) / SPY_HZ, [(name, int(number or 0)) for name, number in reversed(frames)]))
        return Found(stacks, "s")


class Samply:
    """The profile, with names and lines from its own server, as its page asks for them. A sample without CPU time is a wait."""
    name, languages = "samply", ("Python", "C++", "Java", "node")

    def __init__(self, options):
        own = os.path.join(options.peers, "samply/bin/samply")
        self.file = shutil.which("samply") or own
        if not os.path.exists(self.file):
            subprocess.run(["cargo", "install", "-q", "--locked", "--root", os.path.join(options.peers, "samply"), "samply"], check=True)
        with open("/proc/sys/kernel/perf_event_paranoid") as setting:
            level = int(setting.read())
        self.before = []
        # It refuses to begin where the setting is above 1, for root too, who may do all the same. So it sees another file there.
        if level > 1:
            if os.geteuid():
                raise RuntimeError(f"samply wants /proc/sys/kernel/perf_event_paranoid to be 1 (it is {level}), or root")
            one = os.path.join(options.peers, "one")
            with open(one, "w") as file:
                file.write("1\n")
            mount = f"mount --bind '{one}' /proc/sys/kernel/perf_event_paranoid && exec \"$@\""
            self.before = ["unshare", "--mount", "sh", "-c", mount, "sh"]

    def words(self, program, out):
        return with_maps(program, [*self.before, self.file, "record", "--save-only", "--rate", str(HZ), "-o", out, "--"])

    def symbolicated(self, out, profile):
        """(library, address) -> frames, innermost first."""
        wanted = collections.defaultdict(set)
        for thread in profile["threads"]:
            for function, address in zip(thread["frameTable"]["func"], thread["frameTable"]["address"]):
                resource = thread["funcTable"]["resource"][function]
                if resource is not None and resource >= 0 and address is not None and address >= 0:
                    wanted[thread["resourceTable"]["lib"][resource]].add(address)
        libraries = sorted(wanted)
        addresses = [(index, address) for index, library in enumerate(libraries) for address in sorted(wanted[library])]
        memory = [[profile["libs"][library]["debugName"], profile["libs"][library]["breakpadId"]] for library in libraries]
        server = subprocess.Popen([self.file, "load", "--no-open", out], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            for line in server.stdout:
                if match := re.search(r"symbolServer=(\S+)", line):
                    break
            address = urllib.parse.unquote(match.group(1))
            request = json.dumps({"jobs": [{"memoryMap": memory, "stacks": [addresses]}]}).encode()
            with urllib.request.urlopen(f"{address}/symbolicate/v5", request) as answer:
                frames = json.load(answer)["results"][0]["stacks"][0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()
        named = {}
        for (index, address), frame in zip(addresses, frames):
            inner = [(inline.get("function", ""), inline.get("line") or 0) for inline in frame.get("inlines", [])]
            named[libraries[index], address] = [*inner, (frame.get("function", hex(address)), frame.get("line") or 0)]
        return named

    def read(self, program, out):
        with open(out) as file:
            profile = json.load(file)
        named, stacks = self.symbolicated(out, profile), []
        for thread in profile["threads"]:
            table, functions, strings = thread["stackTable"], thread["funcTable"], thread["stringArray"]
            samples = thread["samples"]

            def frames_of(stack):
                while stack is not None:
                    frame = table["frame"][stack]
                    function, resource = thread["frameTable"]["func"][frame], None
                    resource = functions["resource"][function]
                    library = thread["resourceTable"]["lib"][resource] if resource is not None and resource >= 0 else None
                    found = named.get((library, thread["frameTable"]["address"][frame]))
                    yield from found or [(strings[functions["name"][function]], thread["frameTable"]["line"][frame] or 0)]
                    stack = table["prefix"][stack]

            for stack, weight, cpu in zip(samples["stack"], samples["weight"], samples["threadCPUDelta"]):
                is_wait = not cpu
                if is_wait == (program.cause in WAITS):
                    stacks.append(Stack(weight / HZ, list(frames_of(stack))))
        return Found(stacks, "s")


class Perf:
    """`perf script`. Waits as hotspot's off-CPU table has them: from the switch, with its stack, until the thread runs again."""
    name, languages = "perf", ("Python", "C++", "Java", "node")

    def __init__(self, options):
        if not shutil.which("perf"):
            raise RuntimeError("perf is not installed")

    def words(self, program, out):
        # DWARF, as hotspot has it by default, cannot walk generated code.
        graph = "fp" if program.language in ("Java", "node") else "dwarf"
        waits = ["--switch-events", "-e", "sched:sched_switch", "-e", "sched:sched_waking"] if program.cause in WAITS else []
        return with_maps(program, ["perf", "record", "-q", "--call-graph", graph, "-e", f"cpu-clock/freq={HZ}/", *waits, "-o", out, "--"])

    def read(self, program, out):
        # Lines of generated code are in no map, and libjvm's take minutes.
        lines = ",srcline" if program.language == "C++" else ""
        text = output(["perf", "script", "-i", out, "--show-switch-events", "-F", f"comm,tid,time,event,trace,ip,sym{lines}"])
        samples, off, waits, wakers = [], {}, [], {}
        for event in re.split(r"\n(?=\S)", text):
            first, *rest = event.splitlines() or [""]
            head = re.match(r"\s*(.*?)\s+(\d+)\s+([\d.]+):\s+(?:(PERF_RECORD_SWITCH.*)|(\S+):(?: +(.*))?)$", first)
            if not head:
                continue
            comm, tid, time, switch, kind, trace = head.groups()
            time, frames = float(time), []
            for line in rest:
                if match := re.match(r"\s+[0-9a-f]+ (.+)$", line):
                    frames.append((match.group(1), 0))
                elif frames and (match := re.match(r"\s+\S+?:(\d+)", line)):
                    frames[-1] = frames[-1][0], int(match.group(1))
            if switch:
                if " IN" in switch and tid in off:
                    begin, stack = off.pop(tid)
                    waits.append(Stack(time - begin, stack))
                    if tid in wakers:
                        waker, names = wakers.pop(tid)
                        wakers.setdefault("all", []).append(([name for name, _ in stack], waker, names, time - begin))
            elif kind == "sched:sched_switch":
                if re.search(r"prev_state=[SD]", trace):
                    off[tid] = time, frames
            elif kind == "sched:sched_waking":
                if match := re.search(r" pid=(\d+)", trace):
                    wakers[match.group(1)] = comm, [name for name, _ in frames]
            else:
                samples.append(Stack(1 / HZ, frames))
        if program.cause in WAITS:
            return Found(waits, "s", wakers.get("all", []))
        return Found(samples, "s")


class AsyncProfiler:
    """A flight recording, read by the JDK's own `jfr print --json`."""
    name, languages = "async-profiler", ("Java",)
    events = {"cpu": "event=cpu,interval=1ms", "alloc": "alloc=512k", "lock": "lock=1us", "pipe": "wall=5ms"}

    def __init__(self, options):
        folder = os.path.join(options.peers, "async-profiler")
        self.library = os.path.join(folder, "linux-x64/libasyncProfiler.so")
        if not os.path.exists(self.library):
            artifact = f"tools.profiler:async-profiler:{ASYNC_PROFILER}"
            subprocess.run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], check=True, stdout=sys.stderr)
            with zipfile.ZipFile(os.path.join(folder, f"async-profiler-{ASYNC_PROFILER}.jar")) as jar:
                jar.extract("linux-x64/libasyncProfiler.so", folder)

    def words(self, program, out):
        return ["env", f"JAVA_TOOL_OPTIONS=-agentpath:{self.library}=start,{self.events[program.cause]},jfr,file={out}.jfr"]

    def read(self, program, out):
        names = {"cpu": "jdk.ExecutionSample", "alloc": "jdk.ObjectAllocation*", "lock": "jdk.JavaMonitorEnter", "pipe": "profiler.WallClockSample"}
        events = json.loads(output(["jfr", "print", "--json", "--stack-depth", "64", "--events", names[program.cause], f"{out}.jfr"]))
        stacks, wakers, of_threads = [], [], collections.defaultdict(lambda: [0, []])
        for event in events["recording"]["events"]:
            values = event["values"]
            frames = [(frame["method"]["name"], max(frame["lineNumber"], 0)) for frame in (values["stackTrace"] or {"frames": []})["frames"]]
            kind = ""
            if program.cause == "cpu":
                amount = 0.001
            elif program.cause == "alloc":
                amount = values.get("tlabSize") or values["allocationSize"]
            elif program.cause == "lock":
                amount, kind = float(re.match(r"PT([\d.]+)S", values["duration"]).group(1)), "lock"
                if values.get("previousOwner"):
                    wakers.append(([name for name, _ in frames], values["previousOwner"]["javaName"], [], amount))
            else:
                # Each tick meets some of the threads only. So a stack's time is its share of its thread's samples.
                thread = of_threads[values["sampledThread"]["osThreadId"]]
                thread[0] += values.get("samples", 1)
                thread[1].append(datetime.datetime.fromisoformat(values["startTime"]).timestamp())
                stacks.append((values.get("samples", 1), frames, thread))
                continue
            stacks.append(Stack(amount, frames, kind))
        if program.cause == "pipe":
            stacks = [Stack(samples * (max(times) - min(times)) / total, frames) for samples, frames, (total, times) in stacks]
        return Found(stacks, "bytes" if program.cause == "alloc" else "s", wakers)


class Heaptrack:
    """`heaptrack_print`: calls of allocation functions by where they are made. It has bytes of peaks only."""
    name, languages = "heaptrack", ("Python", "C++")

    def __init__(self, options):
        if not shutil.which("heaptrack"):
            raise RuntimeError("heaptrack is not installed")

    def words(self, program, out):
        return ["heaptrack", "-o", out]

    def read(self, program, out):
        text = output(["heaptrack_print", "-p0", "-T0", "-n", "1000", "-s", "1000", "-f", *glob.glob(f"{out}*")])
        stacks = []
        for block in re.split(r"\n(?=\d+ calls to allocation functions)", text)[1:]:
            calls, frames = int(block.split()[0]), []
            for line in block.splitlines()[1:]:
                if not line.strip() or line.endswith("from:") or line.lstrip().startswith("in /"):
                    continue
                if match := re.match(r"\s+at .*?:(\d+)$", line):
                    frames[-1] = frames[-1][0], int(match.group(1))
                else:
                    frames.append((line.strip(), 0))
            stacks.append(Stack(calls, frames))
        return Found(stacks, "calls") if program.cause == "alloc" else Found([])


TOOLS = (Stackbeat, PySpy, Samply, Perf, AsyncProfiler, Heaptrack)


def is_function(name, function):
    """Whether a tool's name, with or without class, module, arguments and source, is this function's."""
    return re.search(rf"(?<!\w){function}(?!\w)", name.split("<", 1)[0]) is not None


def answers(program, truth, found):
    """Column -> (answer, figure or nothing)."""
    own = [stack for stack in found.stacks if any(is_function(name, program.function) for name, _ in stack.frames)]
    amount, whole = sum(stack.amount for stack in own), sum(stack.amount for stack in found.stacks)
    # What a tool that has no allocations says of a program that allocates is CPU time, of others it is nothing.
    has_dimension = program.cause != "alloc" or found.unit in ("bytes", "calls")
    lines = collections.Counter()
    for stack in own:
        # Of an inlined call some tools show the function twice, with the line of either.
        numbers = [line for name, line in stack.frames if is_function(name, program.function)]
        lines[program.line if program.line in numbers else numbers[0]] += stack.amount
    heaviest = lines.most_common(1)[0][0] if lines else 0
    if program.cause == "cpu":
        ratio = amount / whole / truth["share"] if whole else 0
        is_amount, figure = abs(ratio - 1) * truth["share"] < 0.05, f"{ratio * truth['share']:.0%} of {truth['share']:.0%}"
    else:
        true = truth["wait_s" if program.cause in WAITS else found.unit] if has_dimension else 0
        ratio = amount / true if true else 0
        is_amount, figure = abs(ratio - 1) < 0.1, f"{ratio:.0%}"
    # A tenth is not what the program does.
    is_seen = 0.1 < ratio < 10
    cells = {
        "function": "yes" if is_seen else "partly" if own else "no",
        "line": "no" if program.line not in lines else "yes" if heaviest == program.line and is_seen else "partly",
        "amount": ("yes" if is_amount else "partly", figure) if is_seen else "no",
    }
    if program.cause in WAITS:
        said = sum(stack.amount for stack in own if stack.kind == {"lock": "lock", "pipe": "io"}[program.cause] or inner_says(program, stack))
        cells["wait"] = "no" if not said else "yes" if said > amount / 2 else "partly"
        ended = [waker for waker in found.wakers if any(is_function(name, program.function) for name in waker[0])]
        known = sum(waker[3] for waker in ended if any(is_function(name, program.waker) for name in waker[2]))
        cells["waker"] = "yes" if known > amount / 2 > 0 else "partly" if any(waker[1] for waker in ended) else "no"
    return cells


def inner_says(program, stack):
    """Whether a function that the cause's function calls tells what it waits for."""
    for name, _ in stack.frames:
        if is_function(name, program.function):
            return False
        if re.search(WAITS[program.cause], name):
            return True
    return False


def cost(program, tool, folder, pairs):
    """What a tool adds in CPU time: a share of the program's, and for programs that wait, of a processor."""
    workload = Workload(program.file, [], None, program.command)
    values = []
    affinity = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(affinity)})
    try:
        for _ in range(pairs):
            out = os.path.join(folder, "cost")
            (wall, base, _), (_, cpu, _) = run_together(workload, [], tool.words(program, out), folder, 1)
            remove(out)
            values.append((cpu - base) / (wall if program.cause in WAITS else base))
    finally:
        os.sched_setaffinity(0, affinity)
    return values


def show_cost(program, values):
    middle, low, high = interval(values)
    of = " of a processor" if program.cause in WAITS else ""
    return f"{middle:+.1%}{of} ({low:+.1%} to {high:+.1%})"


def compare(program, tool, folder, pairs):
    """A row: column -> text. Files of one tool do not lie beside those of another."""
    out = os.path.join(folder, f"{tool.name}.{program.file}.out")
    done = subprocess.run(tool.words(program, out) + program.command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    truth = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    row = answers(program, truth, tool.read(program, out))
    remove(out)
    row["cost"] = show_cost(program, cost(program, tool, folder, pairs)) if pairs else "not measured"
    return row


def text(cell):
    return cell if isinstance(cell, str) else " ".join(filter(None, cell[:1])) + (f" ({cell[1]})" if cell[1] else "")


CAUSES = {
    "cpu": "Computing, most of it in one line",
    "lock": "Waiting for a lock that another thread holds",
    "pipe": "Waiting for a pipe that another thread writes to late",
    "alloc": "Allocating, nearly all of it in one line",
}
COLUMNS = ["function", "line", "amount", "wait", "waker"]


def in_short(rows):
    """A row for each tool: how many answers are yes."""
    print("""
## In short

How many of the programs that the tool can record: shown whole, of how many.

| tool | function | line | amount | wait | waker | allocation |
|---|---|---|---|---|---|---|""")
    for name in dict.fromkeys(name for _, name, _ in rows):
        own = [(program, row) for program, tool, row in rows if tool == name]

        def count(values):
            values = [value if isinstance(value, str) else value[0] for value in values]
            return f"{values.count('yes')} of {len(values)}" if values else "–"
        timed = [row for program, row in own if program.cause != "alloc"]
        cells = [count([row[column] for row in timed if column in row]) for column in COLUMNS]
        print(f"| {name} | {' | '.join(cells)} | {count([row['amount'] for program, row in own if program.cause == 'alloc'])} |")


def page(rows, versions, pairs, left):
    """The Markdown page of all rows: (program, tool's name, row), and of what was left out."""
    machine = os.uname()
    print(f"""# What tools show of a known cause

`benches/compare.py --pairs {pairs}`, {datetime.date.today()}, {machine.sysname} {machine.release.split('-')[0]}, {os.cpu_count()} processors. Small programs
(`benches/compare`) have one cause each. Each tool records them, and the script looks for the cause in the tool's
own output. Every answer is computed.

- **function**, **line**: the function with the cause, and its line as that function's heaviest. *partly*: less than a
  tenth of the amount is there. Among allocations: it is seen computing, but nothing is said of allocations.
- **amount**: *yes* within 5 points of the share of CPU time, or within 10 % of seconds, bytes or calls, of what
  the program measured itself. In brackets: found of true.
- **wait**: the wait has a name: lock, mutex, read, ….
- **waker**: *yes*: the function that held the lock or wrote; *partly*: its thread only.
- **cost**: CPU time that the tool adds, median of at least {pairs} pairs and range, in which both ran at once on one
  processor. Of programs that wait, it is a share of a processor. It has the tool's start and end in it, which weigh
  more in short runs.

Versions: {'; '.join(versions)}.

`perf` has DWARF stacks and `sched` events where the program waits, as hotspot records, and frame pointers with
perf maps for Java and node. Its waits are computed as hotspot does. hotspot itself has no output but its window.
py-spy runs with `--idle` where the program waits. Java and node run with perf maps for perf and
samply, Java for stackbeat, too.""")
    # Of other programs for each tool it would compare nothing.
    if not left:
        in_short(rows)
    for cause, title in CAUSES.items():
        columns = [column for column in COLUMNS if any(column in row for program, _, row in rows if program.cause == cause)]
        if not columns:
            continue
        print(f"\n## {title}\n\n| program | tool | {' | '.join(columns)} | cost |\n|---|---|{'---|' * len(columns)}--:|")
        for program, name, row in rows:
            if program.cause == cause:
                print(f"| {program.language} | {name} | {' | '.join(text(row[column]) for column in columns)} | {row['cost']} |")
    if left:
        print(f"\n## Not run\n\n{', '.join(left)}.")


def version(words):
    done = subprocess.run(words, capture_output=True, text=True)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="pairs of runs for each cost; 0 leaves costs out")
    parser.add_argument("--only", help="programs, separated by commas")
    parser.add_argument("--tools", help="tools, separated by commas")
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--peers", default=os.path.join(ROOT, "target/compare-peers"), help="where peers are installed")
    parser.add_argument("--rows", help="a file that keeps rows from run to run")
    options = parser.parse_args()
    options.stackbeat, options.peers = os.path.abspath(options.stackbeat), os.path.abspath(options.peers)
    options.rows = options.rows and os.path.abspath(options.rows)
    if not os.path.exists(options.stackbeat):
        sys.exit(f"{options.stackbeat}: not there; build it with: cargo build --release -p stackbeat")
    os.makedirs(options.peers, exist_ok=True)
    tools = []
    for tool in TOOLS:
        if not options.tools or tool.name in options.tools.split(","):
            try:
                tools.append(tool(options))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                print(f"left out: {tool.name}: {error}", file=sys.stderr)
    versions = [version([tool.file, "--version"]) for tool in tools if hasattr(tool, "file")]
    versions += [version([tool.name, "--version"]) for tool in tools if tool.name in ("perf", "heaptrack")]
    versions += [f"async-profiler {ASYNC_PROFILER}"] * any(tool.name == "async-profiler" for tool in tools)
    versions += [version([options.python, "--version"]), version(["g++", "--version"]), version(["java", "-version"]), "node " + version(["node", "--version"])]
    rows, kept, left = [], {}, []
    if options.rows and os.path.exists(options.rows):
        with open(options.rows) as file:
            kept = {(row["program"], row["tool"]): row["row"] for row in map(json.loads, file)}
    with tempfile.TemporaryDirectory(prefix="stackbeat-compare.") as folder:
        os.chdir(folder)
        for file in sorted(os.listdir(SOURCES), key=lambda file: (file.split(".")[1], file)):
            shutil.copy(os.path.join(SOURCES, file), folder)
            program = Program(file, options.python)
            is_built = False
            for tool in tools:
                # heaptrack answers one question only.
                if program.language not in tool.languages or tool.name == "heaptrack" and program.cause != "alloc":
                    continue
                if (file, tool.name) in kept:
                    rows.append((program, tool.name, kept[file, tool.name]))
                    continue
                if options.only and file not in options.only.split(","):
                    left.append(f"{file} with {tool.name}")
                    continue
                if not is_built:
                    program.build()
                    is_built = True
                try:
                    rows.append((program, tool.name, compare(program, tool, folder, options.pairs)))
                    print(file, tool.name, rows[-1][2], file=sys.stderr)
                    if options.rows:
                        with open(options.rows, "a") as to:
                            to.write(json.dumps({"program": file, "tool": tool.name, "row": rows[-1][2]}) + "\n")
                except Exception:
                    left.append(f"{file} with {tool.name}")
                    print(f"left out: {file} with {tool.name}: {traceback.format_exc()}", file=sys.stderr)
        os.chdir("/")
    page(rows, versions, options.pairs, left)


if __name__ == "__main__":
    main()
