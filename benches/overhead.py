#!/usr/bin/env python3
"""Overhead of stackbeat on real workloads, beside other tools.

    benches/overhead.py [--pairs 10] [--only sqlite,git] [--tools stackbeat,perf-fp] [--quick] [--json F]

Each workload runs without and with a tool in alternation; the overhead of a pair is with/without - 1. Shown
is the median over the pairs with its 95 % bootstrap interval, for

  wall    wall time
  cpu     user + system time of the program and of everything the tool runs beside it
  held    cpu until the program's end: without the names that are looked up after it (only stackbeat says how much
          that was). This is what `--budget` is about
  steady  cpu without what each recording costs once. stackbeat measures itself (program, ticker and drain
          without start and symbolization); of the others the cost of recording `true` is taken off
  ins     instructions, where the machine counts them (`perf stat -e instructions:u`)

Not counted: the daemons of LTTng, which outlive the run.

With --long each workload takes some ten seconds, so that what a recording costs once weighs less:

    benches/overhead.py --long --pairs 3 --only sqlite3,python,git --tools stackbeat-budget-1

Where the machine's speed changes from one run to the next, --together runs both of a pair at the same time on one
processor, which takes turns every few milliseconds: what slows one slows the other. CPU only.

    benches/overhead.py --long --together --pairs 5 --only sqlite3,python,git --tools stackbeat-budget-1

With --before another build takes the place of the program alone, so that each figure is what a change costs or saves:

    benches/overhead.py --long --together --pairs 10 --tools stackbeat --before FILE --only sqlite3,python,git,node

With --callgrind it counts instead the instructions that hooks add when they have nothing to capture (interval
4 s, a tenth of the work, one run each): what callgrind counts does not depend on the machine's load.

The row "nothing" is the workload against itself: what differs by chance. The row "floor" counts allocations and
takes a signal each millisecond of CPU time, and does nothing else (benches/limits/floor.c). Workloads and tools
that are not installed are left out and said to be.
"""

import argparse
import glob
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

LONG = 6
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Workload:
    """A command that does a fixed amount of work."""

    def __init__(self, name, needs, prepare, command, stdin=None, env=None, server=None, long=None):
        self.name, self.needs, self.prepare = name, needs, prepare
        self.command, self.stdin, self.env, self.server = command, stdin, env or {}, server
        self.long = long

    def lengthened(self):
        """With LONG times the work, in one process."""
        if self.long:
            return self.long
        prepare = lambda size: self.prepare(size / LONG)
        server = self.server and (lambda size, folder: self.server(size / LONG, folder))
        return Workload(self.name, self.needs, prepare, self.command, self.stdin, self.env, server)


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


def prepare_sqlite(size):
    n = int(300_000 / size)
    write("shop.sql", f"""
create table customer(id integer primary key, name text);
create table purchase(id integer primary key, customer int, cents int);
with recursive n(i) as (select 1 union all select i+1 from n where i<{n // 10}) insert into customer select i, 'customer ' || i from n;
with recursive n(i) as (select 1 union all select i+1 from n where i<{n}) insert into purchase select i, i*7919 % {n // 10}, i % 1000 from n;
create index by_customer on purchase(customer);
select count(*), sum(length(s)) from (select name || sum(cents) s from customer c join purchase p on p.customer=c.id group by c.id);
select count(*), sum(a.cents*b.cents) from purchase a join purchase b on a.customer=b.customer;
""")


def prepare_python(size):
    write("work.py", f"""
import collections, json, re
words = collections.Counter()
rows = []
for i in range({int(400_000 / size)}):
    row = {{'id': i, 'name': 'item %d' % i, 'tags': [str(i % 7), str(i % 11)]}}
    rows.append(row)
    words.update(row['tags'])
    if len(rows) == 20000:
        text = json.dumps(rows)
        assert len(json.loads(text)) == 20000
        words[re.sub('[aeiou]', '', text[:1000])[:5]] += 1
        rows.clear()
print(sum(words.values()))
""")


def prepare_git(size):
    random.seed(7)
    files = {}
    subprocess.run(["git", "init", "-q", "."], check=True)
    stream = subprocess.Popen(["git", "fast-import", "--quiet"], stdin=subprocess.PIPE, text=True)
    for n in range(12000 // size):
        stream.stdin.write(f"commit refs/heads/main\ncommitter A <a@example.org> {1500000000 + n * 60} +0000\ndata 2\nc\n")
        for _ in range(3):
            name = f"part{random.randrange(20)}/file{random.randrange(15)}.txt"
            lines = files.setdefault(name, [])
            lines.insert(random.randrange(len(lines) + 1), f"line {random.randrange(1 << 30)} of change {n}")
            text = "\n".join(lines) + "\n"
            stream.stdin.write(f"M 644 inline {name}\ndata {len(text)}\n{text}\n")
    stream.stdin.close()
    assert stream.wait() == 0


def prepare_git_long(size):
    prepare_git(size)
    commits = subprocess.run(["git", "rev-list", "main"], check=True, capture_output=True, text=True).stdout
    write("commits", commits * LONG)


def prepare_pigz(size):
    random.seed(3)
    words = ["".join(random.choices("abcdefghij", k=random.randrange(2, 9))) for _ in range(3000)]
    with open("data", "w") as file:
        for _ in range(int(32 / size)):
            file.write(" ".join(random.choices(words, k=170_000)))


def prepare_xz(size):
    prepare_pigz(size * 16)


def prepare_java(size):
    write("Work.java", f"""
import java.util.*;
public class Work {{
    public static void main(String[] arguments) {{
        long total = 0;
        for (int round = 0; round < {int(150 / size)}; round++) {{
            Map<String, List<Integer>> byTag = new HashMap<>();
            for (int i = 0; i < 60000; i++)
                byTag.computeIfAbsent("tag " + i % 997, tag -> new ArrayList<>()).add(i);
            StringBuilder text = new StringBuilder();
            for (var entry : new TreeMap<>(byTag).entrySet())
                text.append(entry.getKey()).append(entry.getValue());
            total += text.toString().split(",").length;
        }}
        System.out.println(total);
    }}
}}
""")
    subprocess.run(["javac", "Work.java"], check=True)


def prepare_node(size):
    write("work.js", f"""
const crypto = require('crypto'), zlib = require('zlib');
let total = 0;
for (let round = 0; round < {int(60 / size)}; round++) {{
    const rows = [];
    for (let i = 0; i < 20000; i++) rows.push({{ id: i, name: 'item ' + i, tags: [i % 7, i % 11] }});
    const text = JSON.stringify(rows);
    total += JSON.parse(text).length + zlib.deflateSync(text, {{ level: 1 }}).length;
    total += crypto.createHash('sha256').update(text).digest()[0];
}}
console.log(total);
""")


def load_redis(size, folder):
    """Runs redis' own benchmark against the server in a folder, then ends the server."""
    path = os.path.join(folder, "redis.sock")
    deadline = time.monotonic() + 20
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as test:
                test.connect(path)
                break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    n = str(int(100_000 / size))
    subprocess.run(["redis-benchmark", "-s", path, "-q", "-n", n, "-c", "20", "-t", "set,get,lpush"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["redis-cli", "-s", path, "shutdown", "nosave"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


WORKLOADS = [
    Workload("sqlite3", ["sqlite3"], prepare_sqlite, ["sqlite3", ":memory:"], stdin="shop.sql"),
    Workload("python", ["python3"], prepare_python, [sys.executable, "work.py"], env={"PYTHONMALLOC": "malloc"}),
    Workload("git", ["git"], prepare_git, ["git", "--no-pager", "log", "-p", "main"],
             long=Workload("git", ["git"], prepare_git_long, ["git", "diff-tree", "--stdin", "-r", "-p"], stdin="commits")),
    Workload("pigz", ["pigz"], prepare_pigz, ["pigz", "-p2", "-k", "-c", "data"]),
    Workload("xz", ["xz"], prepare_xz, ["xz", "-T2", "-k", "-c", "data"]),
    Workload("java", ["java", "javac"], prepare_java, ["java", "-cp", ".", "Work"]),
    Workload("redis", ["redis-server", "redis-benchmark"], lambda size: None,
             ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no"], server=load_redis),
    Workload("node", ["node"], prepare_node, ["node", "work.js"]),
]


LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# The session's name is the file's; its daemon stays.
LTTNG = """
out=$1; name=$(basename "$1")-$$; shift
pgrep -x lttng-sessiond >/dev/null || lttng-sessiond --daemonize --no-kernel
lttng create "$name" --output="$out"
lttng enable-event -s "$name" --userspace 'lttng_ust_libc:*,lttng_ust_pthread:*'
lttng start "$name"
exec 1>&3 3>&-
LD_PRELOAD="WRAPPERS" "$@"
status=$?
lttng destroy "$name" >/dev/null
exit $status
"""


def floor(out):
    """The words that load floor.c's library, which is compiled beside the first file name asked for."""
    library = os.path.join(os.path.dirname(out), "floor.so")
    if not os.path.exists(library):
        source = os.path.join(ROOT, "benches/limits/floor.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-fno-tree-slp-vectorize", "-shared", "-fPIC", "-o", library, source], check=True)
    return ["env", f"LD_PRELOAD={library}"]


def tool_commands(stackbeat):
    """Name -> the words before a command, given a file name for what the tool writes. Also the names of
    those that are not installed."""
    missing = []
    tools = {"nothing": lambda out: [], "floor": floor}
    if os.path.exists(stackbeat):
        tools["stackbeat"] = lambda out: [stackbeat, "record", "--quiet", "--force", "-o", out, "--"]
        tools["stackbeat-100us"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--interval", "100us", "-o", out, "--"]
        tools["stackbeat-1ms"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--interval", "1ms", "-o", out, "--"]
        tools["stackbeat-kernel"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--clock", "kernel", "-o", out, "--"]
        tools["stackbeat-timer"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--clock", "timer", "-o", out, "--"]
        # Hooks count, and nothing else is done.
        tools["stackbeat-counting"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--interval", "4s", "--no-interrupt", "--counters", "off", "-o", out, "--"]
        tools["stackbeat-budget-1"] = lambda out: [stackbeat, "record", "--quiet", "--force", "--budget", "1%", "-o", out, "--"]
    if not shutil.which("perf"):
        missing.append("perf")
    else:
        tools["perf-fp"] = lambda out: ["perf", "record", "-q", "-F", "999", "-g", "-o", out, "--"]
        # What it takes to have the names of JavaScript functions afterwards, as stackbeat has.
        names = "NODE_OPTIONS=--perf-basic-prof --interpreted-frames-native-stack"
        tools["perf-names"] = lambda out: ["env", names, "perf", "record", "-q", "-F", "999", "-g", "-o", out, "--"]
        tools["perf-dwarf"] = lambda out: ["perf", "record", "-q", "-F", "999", "--call-graph", "dwarf", "-o", out, "--"]
    if shutil.which("heaptrack"):
        tools["heaptrack"] = lambda out: ["heaptrack", "--raw", "-o", out]
    else:
        missing.append("heaptrack")
    profiler = f"{LIBRARIES}/libprofiler.so.0"
    if os.path.exists(profiler):
        tools["gperftools"] = lambda out: ["env", f"LD_PRELOAD={profiler}", f"CPUPROFILE={out}", "CPUPROFILE_FREQUENCY=999"]
    else:
        missing.append("gperftools (libgoogle-perftools4)")
    if shutil.which("uftrace"):
        tools["uftrace"] = lambda out: ["uftrace", "record", "--force", "--no-pager", "-d", out]
    else:
        missing.append("uftrace")
    if shutil.which("samply"):
        tools["samply"] = lambda out: ["samply", "record", "--save-only", "--rate", "1000", "-o", out, "--"]
    else:
        missing.append("samply")
    wrappers = [f"{LIBRARIES}/liblttng-ust-{part}-wrapper.so.1" for part in ("libc", "pthread")]
    if shutil.which("lttng") and all(map(os.path.exists, wrappers)):
        script = LTTNG.replace("WRAPPERS", ":".join(wrappers))
        tools["lttng"] = lambda out: ["sh", "-c", f"exec 3>&1 1>/dev/null\n{script}", "sh", out]
    else:
        missing.append("LTTng (lttng-tools, liblttng-ust1)")
    return tools, missing


def parts_of_cpu(stackbeat, out):
    """CPU s of a recorded program, of the ticker and of the drain; and of the recorder after the program's end."""
    done = subprocess.run([stackbeat, "info", "--json", out], capture_output=True, text=True, check=True)
    figures = {figure["name"]: figure["value"] for figure in json.loads(done.stdout)["recorder_figures"]}
    steady = sum(figures[f"{part}_cpu_ns"] for part in ("program", "ticker", "drain"))
    return steady / 1e9, figures.get("after_cpu_ns", 0) / 1e9


def fixed_cpu(prefix, out):
    """CPU s of recording a program that does nothing."""
    def run(words):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words + ["true"], stdin=subprocess.DEVNULL, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    costs = []
    for _ in range(3):
        costs.append(run(prefix) - run([]))
        remove(out)
    return max(statistics.median(costs), 0.0)


def remove(out):
    """Everything that a tool has written; gives its bytes."""
    total = 0
    for path in glob.glob(out + "*"):
        for folder, _, files in os.walk(path):
            total += sum(os.path.getsize(os.path.join(folder, file)) for file in files)
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            total += os.path.getsize(path)
            os.remove(path)
    return total


def count_instructions_works():
    probe = subprocess.run(["perf", "stat", "-x,", "-e", "instructions:u", "true"], capture_output=True, text=True)
    return probe.returncode == 0 and probe.stderr[:1].isdigit()


def run_together(workload, base, prefix, folder, size):
    """With `base` and with `prefix` at the same time: wall s, CPU s, None each."""
    begin = time.perf_counter()

    def run(words, folder, results, index):
        stdin = open(os.path.join(folder, workload.stdin)) if workload.stdin else subprocess.DEVNULL
        child = subprocess.Popen(words + workload.command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env={**os.environ, **workload.env}, cwd=folder)
        if workload.server:
            workload.server(size, folder)
        # Of this child alone: the load of a server is a child of ours, too.
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = status
        results[index] = time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, status

    results, threads = [None, None], []
    for index, words in enumerate((base, prefix)):
        # A server listens in its folder.
        own = os.path.join(folder, f"server{index}") if workload.server else folder
        os.makedirs(own, exist_ok=True)
        threads.append(threading.Thread(target=run, args=(words, own, results, index)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    for result in results:
        if result is None or result[2]:
            raise RuntimeError(f"{' '.join(workload.command)}: {'did not run' if result is None else f'wait status {result[2]}'}")
    return [(wall, cpu, None) for wall, cpu, _ in results]


def run_once(workload, prefix, folder, size, count):
    """Wall s, CPU s of program and tool, instructions or None."""
    command = prefix + workload.command
    counts = os.path.join(folder, "instructions")
    if count:
        command = ["perf", "stat", "-x,", "-e", "instructions:u", "-o", counts, "--"] + command
    environment = {**os.environ, **workload.env}
    stdin = open(workload.stdin) if workload.stdin else subprocess.DEVNULL
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, cwd=folder)
    load_cpu = 0.0
    if workload.server:
        before_load = resource.getrusage(resource.RUSAGE_CHILDREN)
        workload.server(size, folder)
        after_load = resource.getrusage(resource.RUSAGE_CHILDREN)
        load_cpu = after_load.ru_utime + after_load.ru_stime - before_load.ru_utime - before_load.ru_stime
    errors = child.communicate()[1]
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}: {errors.decode(errors='replace')[-500:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime - load_cpu
    instructions = None
    if count:
        with open(counts) as file:
            for line in file:
                if "instructions" in line:
                    instructions = float(line.split(",")[0])
    return wall, cpu, instructions


def callgrind(workload, prefix):
    """Instructions of the program under valgrind, its children left out."""
    command = prefix + ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"] + workload.command
    stdin = open(workload.stdin) if workload.stdin else subprocess.DEVNULL
    done = subprocess.run(command, stdin=stdin, capture_output=True, text=True, errors="replace", env={**os.environ, **workload.env})
    for line in done.stderr.splitlines():
        if "Collected :" in line:
            return int(line.split(":")[1].split()[0])
    raise RuntimeError(f"{' '.join(command)}: no count: {done.stderr[-300:]}")


def count_hooks(stackbeat, only):
    print(f"{'workload':<9} {'instructions':>15} {'with hooks':>15} {'added':>8}")
    for workload in WORKLOADS:
        if only and workload.name not in only.split(",") or workload.server:
            continue
        with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
            os.chdir(folder)
            workload.prepare(10)
            record = [stackbeat, "record", "--quiet", "--force", "--no-interrupt", "--interval", "4s", "-o", "out.beat", "--"]
            try:
                plain, hooked = callgrind(workload, []), callgrind(workload, record)
                print(f"{workload.name:<9} {plain:>15,} {hooked:>15,} {(hooked / plain - 1) * 100:>+7.2f} %", flush=True)
            except RuntimeError as error:
                print(f"{workload.name:<9} failed: {error}")
            os.chdir("/")


def interval(values):
    """Median with its 95 % bootstrap interval."""
    if len(values) < 3:
        return statistics.median(values), min(values), max(values)
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return statistics.median(values), medians[50], medians[1949]


def show(values):
    if not values:
        return "-"
    middle, low, high = interval(values)
    return f"{middle * 100:+.1f} % [{low * 100:+.1f}, {high * 100:+.1f}]"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", help="workloads, separated by commas")
    parser.add_argument("--tools", help="tools, separated by commas")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, two pairs: does it run?")
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    parser.add_argument("--before", help="another build of stackbeat, to compare with instead of nothing")
    parser.add_argument("--long", action="store_true", help=f"{LONG} times the work")
    parser.add_argument("--together", action="store_true", help="both of a pair at the same time, on one processor")
    parser.add_argument("--callgrind", action="store_true", help="count the instructions that idle hooks add")
    parser.add_argument("--json", help="also write the measurements of all pairs here")
    parser.add_argument("--cpus", help="bind everything to these CPUs, as taskset -c takes them")
    options = parser.parse_args()
    options.stackbeat = os.path.abspath(options.stackbeat)
    options.before = options.before and os.path.abspath(options.before)
    options.json = options.json and os.path.abspath(options.json)
    if not os.path.exists(options.stackbeat):
        sys.exit(f"{options.stackbeat}: not there; build it with: cargo build --release -p stackbeat")
    before = tool_commands(options.before)[0] if options.before else {}
    if options.before and "stackbeat" not in before:
        sys.exit(f"{options.before}: not there")
    if options.cpus:
        os.sched_setaffinity(0, {int(cpu) for cpu in options.cpus.split(",")})
    if options.together:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if options.callgrind:
        return count_hooks(options.stackbeat, options.only)
    size = 10 if options.quick else 1
    pairs = 2 if options.quick else options.pairs
    tools, missing_tools = tool_commands(options.stackbeat)
    if options.tools:
        unknown = set(options.tools.split(",")) - set(tools)
        if unknown:
            sys.exit(f"not installed or not known: {', '.join(sorted(unknown))}; there are: {', '.join(tools)}")
        tools = {name: tools[name] for name in tools if name == "nothing" or name in options.tools.split(",")}
    count = not options.together and shutil.which("perf") is not None and count_instructions_works()
    if not count and not options.together:
        print("instructions: this machine does not count them")
    for tool in missing_tools:
        print(f"left out: {tool} is not installed")
    print(f"{'workload':<9} {'tool':<16} {'wall s':>7}  {'wall':<25} {'cpu':<25} {'held':<25} {'steady cpu':<25} {'instructions':<25} {'file':>9}")
    records = []
    for workload in WORKLOADS:
        if options.only and workload.name not in options.only.split(","):
            continue
        missing = [program for program in workload.needs if not shutil.which(program)]
        if missing:
            print(f"{workload.name:<9} left out: {', '.join(missing)} not installed")
            continue
        if options.long:
            workload = workload.lengthened()
        with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
            os.chdir(folder)
            workload.prepare(size)
            run_once(workload, [], folder, size, False)
            for name, prefix in tools.items():
                ratios = ([], [], [])
                steady, held = [], []
                walls, bytes_written = [], 0
                out, out_before = os.path.join(folder, f"out.{name}"), os.path.join(folder, f"before.{name}")
                compared = name in before and name.startswith("stackbeat")
                base = before[name](out_before) if compared else []
                try:
                    fixed = 0.0 if name.startswith(("nothing", "stackbeat")) else fixed_cpu(prefix(out), out)
                    for pair in range(pairs):
                        both = {}
                        if options.together:
                            both[False], both[True] = run_together(workload, base, prefix(out), folder, size)
                        # Who goes first changes from pair to pair.
                        for with_tool in () if options.together else ((False, True), (True, False))[pair % 2]:
                            both[with_tool] = run_once(workload, prefix(out) if with_tool else base, folder, size, count)
                        walls.append(both[False][0])
                        for i in range(options.together, 3):
                            if both[True][i] and both[False][i]:
                                ratios[i].append(both[True][i] / both[False][i] - 1)
                        cost, after = both[True][1] - fixed, 0.0
                        if name.startswith("stackbeat"):
                            cost, after = parts_of_cpu(options.stackbeat, out)
                        plain, plain_after = both[False][1], 0.0
                        if compared:
                            plain, plain_after = parts_of_cpu(options.before, out_before)
                            remove(out_before)
                        if plain:
                            held.append((both[True][1] - after) / (both[False][1] - plain_after) - 1)
                            steady.append(cost / plain - 1)
                        records.append({"workload": workload.name, "tool": name, "without": both[False], "with": both[True], "steady_cpu": cost, "after_cpu": after})
                        bytes_written = remove(out)
                except (RuntimeError, OSError) as error:
                    print(f"{workload.name:<9} {name:<16} failed: {error}")
                    continue
                wall, cpu, instructions, until_end, without_fixed = (show(values) for values in (*ratios, held, steady))
                print(f"{workload.name:<9} {name:<16} {statistics.median(walls):>7.2f}  {wall:<25} {cpu:<25} {until_end:<25} {without_fixed:<25} {instructions:<25} {bytes_written / 1e6:>6.1f} MB", flush=True)
            os.chdir("/")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(records, file, indent=1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    main()
