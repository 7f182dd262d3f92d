#!/usr/bin/env python3
"""Runs programs that do unusual things under `stackbeat record`, each beside a plain run of the same, and compares the two.

    scripts/soak.py [--seconds 120] [--programs a,b] [--settings default,100us,budget,hooks,kernel,timer] [--jobs 1] [--list] [--table FILE] [--keep]

Each side repeats the workload until the time is over; the recorded side is one recording. Checked are:
  output and status of each repetition, the same in both; no core file, no hang, no repetition that stalls
  `stackbeat info --check`
  memory: the recorder's, and the growth of the program's beside that of the plain run
  waits over 2 ms in one more repetition, against tests/interposers/waits.c (see scripts/count-waits.py)

STACKBEAT names the binary; target/release/stackbeat otherwise. ART_RIG names a folder with `11/run-art`, `14/run-art` and
`test/smoke.jar`; without it ART is left out. Packages that are missing are installed by apt when this runs as root.
Failures keep their folder; --keep keeps all. Exit status 1: something is wrong.
"""

import argparse
import concurrent.futures
import glob
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
STACKBEAT = str(pathlib.Path(os.environ.setdefault("STACKBEAT", str(ROOT / "target/release/stackbeat"))).resolve())
SETTINGS = {
    "default": [],
    "100us": ["--interval", "100us"],
    "budget": ["--budget", "1%"],
    "hooks": ["--no-interrupt"],
    "kernel": ["--clock", "kernel"],
    "timer": ["--clock", "timer"],
}
# A repetition that takes longer hangs: the longest takes 10 s on an idle machine.
HANG_S = 90
# What a repetition of the recorded side may take longer than the longest of the plain one: more is a stall.
STALL_S = 20
# Memory of the last quarter beside that of the second. The recorder keeps what it knows of each process and stack.
RECORDER_GROWTH = 0.10, 24 << 20
PROGRAM_GROWTH = 0.20, 32 << 20
# Part of the waits over the interval in force that may be missing.
MISSING = 0.001

AS_NOBODY = "setpriv --reuid=nobody --regid=nogroup --clear-groups"


class Program:
    """`setup` runs once in the folder $W, a copy of `scripts/soak/SOURCES` (the program's name, if there is such a folder).
    `command` runs again and again in a folder of each side, with a $PORT of its own. `nobody`: not as root."""

    def __init__(self, command, setup="", packages="", sources=None, normalize=(), env=None, waits=True, nobody=False, kept=""):
        self.command, self.setup, self.packages, self.sources, self.normalize = command, setup, packages.split(), sources, normalize
        # `env` must be set. `kept` says why waits are not counted where `waits` is False.
        self.env, self.waits, self.nobody, self.kept = env, waits, nobody, kept


CHROMIUM = (
    "rm -rf profile; HOME=$PWD chromium --headless --disable-gpu --disable-dev-shm-usage --user-data-dir=$PWD/profile {}"
    " --dump-dom file://$W/page.html 2>errors | grep -o '>workers.*<\\|>none<'; grep -i 'signal\\|crash' errors; true"
)

# What its self-test says of times also fails in plain runs on a busy machine, and with them its status.
ART_TIMES = r"blocked on a monitor\|wait/notify\|wait(\|park/unpark\|FAILED\|all ok"

GO = """export GOCACHE=$PWD/cache GO111MODULE=off; cp a.go plain; cp a.go cgo
(cd plain && CGO_ENABLED=0 go build -o ../go-plain .) && (cd cgo && CGO_ENABLED=1 go build -o ../go-cgo .)"""

PROGRAMS = {
    "chromium": Program(CHROMIUM.format("--no-sandbox"), packages="chromium"),
    "chromium-sandbox": Program(
        CHROMIUM.format(""), packages="chromium chromium-sandbox", sources="chromium", nobody=True, waits=False,
        kept="its processes end by _exit",
    ),  # fmt: skip
    "ruby": Program("ruby $W/a.rb", packages="ruby"),
    "perl": Program("perl $W/a.pl", packages="perl"),
    "lua": Program("lua5.4 $W/a.lua", packages="lua5.4"),
    **{
        f"art{version}": Program(
            f"$ART_RIG/{version}/run-art -Dsmoke.lib=$ART_RIG/test/libsmoke.so $ART_RIG/test/smoke.jar Smoke >o 2>errors; s=$?; grep -v '{ART_TIMES}' o; [ $s -lt 2 ] || echo died $s",
            env="ART_RIG",
            # Preloads reach its own C library.
            waits=version == 11,
            kept="another C library",
        )
        for version in (11, 14)
    },
    # Linked at the start: the dynamic linker's own need of a stack is larger than these stacks.
    "boost": Program("$W/a", "g++ -O1 -w -Wl,-z,now -o a a.cc -lboost_context -pthread", "libboost-context-dev g++"),
    "java": Program("java -Xmx256m -Xss512k -cp $W A", "javac A.java"),
    "go": Program("$W/go-plain", GO, waits=False, kept="no calls of libc"),
    "cgo": Program("$W/go-cgo", GO, sources="go", waits=False, kept="Go's own calls are not libc's"),
    "node": Program("node $W/a.js"),
    "asyncio": Program("python3 $W/a.py"),
    "multiprocessing": Program("python3 $W/a.py"),
    "postgres": Program(
        "P=$(ls -d /usr/lib/postgresql/*/bin | tail -1); [ -d db ] || { cp -r $W/db db; chmod 700 db; }; S=\"-h $PWD -p $PORT\"\n"
        "$P/pg_ctl -s -w -D db -l log -o \"-k $PWD -p $PORT -c listen_addresses= -c fsync=on\" start || { cat log; exit 1; }\n"
        "$P/pgbench $S -n -c 4 -j 2 -t 150 postgres 2>&1 | grep -E 'actually|failed'; $P/psql $S -At postgres -c 'select count(*), sum(bid) from pgbench_accounts'\n"
        "$P/pg_ctl -s -w -D db -m fast stop; echo stopped $?; grep -E 'PANIC|FATAL|signal' log | grep -v administrator; true",
        f"P=$(ls -d /usr/lib/postgresql/*/bin | tail -1); chown nobody .; {AS_NOBODY} sh -ec \"$P/initdb -A trust -D db >/dev/null;"
        " $P/pg_ctl -s -w -D db -l log -o '-k /tmp -p 5999 -c listen_addresses=' start; $P/pgbench -q -h /tmp -p 5999 -i postgres 2>/dev/null; $P/pg_ctl -s -w -D db stop\"",
        "postgresql",
        nobody=True,
    ),
    "nginx": Program(
        "mkdir -p n; sed \"s#PORT#$PORT#; s#DIR#$PWD/n#g\" $W/c >n/c; nginx -e $PWD/n/e -c $PWD/n/c -p $PWD/n & until [ -s n/pid ]; do sleep 0.05; done\n"
        "ab -q -n 6000 -c 16 -k http://127.0.0.1:$PORT/f | grep -E 'Complete|Failed|Document Length|Non-2xx'\n"
        "nginx -e $PWD/n/e -c $PWD/n/c -p $PWD/n -s quit; wait; echo $?; grep -E 'alert|emerg' n/e",
        r"""head -c 20000 /dev/zero >f; cat >c <<X
daemon off; user root; pid DIR/pid; error_log DIR/e; worker_processes 2; events { worker_connections 100; }
http { access_log DIR/a; client_body_temp_path DIR/b; proxy_temp_path DIR/p; fastcgi_temp_path DIR/q; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s; server { listen 127.0.0.1:PORT; root $PWD; } }
X""",
        "nginx apache2-utils",
    ),
    "redis": Program(
        "rm -rf appendonlydir; redis-server --port $PORT --bind 127.0.0.1 --save '' --appendonly yes --dir $PWD --daemonize no >log 2>&1 & until redis-cli -p $PORT ping 2>&1 | grep -q PONG; do sleep 0.05; done\n"
        "redis-benchmark -p $PORT -n 4000 -c 10 -q -t set,get,lpush,hset 2>&1 | tr '\\r' '\\n' | grep -o '^[A-Z]*: [0-9.]* requests' | sed 's/[0-9.]* r/r/'\n"
        "redis-cli -p $PORT set a 1; redis-cli -p $PORT bgsave; until redis-cli -p $PORT info persistence | grep -q bgsave_in_progress:0; do sleep 0.05; done; redis-cli -p $PORT lastsave | grep -c .; redis-cli -p $PORT flushall; redis-cli -p $PORT shutdown nosave; wait; echo $?; grep -i 'crash\\|bug report' log",
        packages="redis-server redis-tools",
    ),
    "ssh": Program(
        "rm -f log; cp $W/key $W/host .; chmod 600 key host; mkdir -p /run/sshd; O=\"-p $PORT -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR\"\n"
        "/usr/sbin/sshd -D -p $PORT -o ListenAddress=127.0.0.1 -h $PWD/host -o AuthorizedKeysFile=$W/key.pub -o StrictModes=no -o PidFile=none -o UsePAM=no -f /dev/null -E log & D=$!; until grep -q listening log 2>/dev/null; do sleep 0.05; done\n"
        "for i in 1 2 3; do ssh $O root@127.0.0.1 'seq 50000 | md5sum' 2>/dev/null; done; seq 200000 | ssh $O root@127.0.0.1 md5sum 2>/dev/null; ssh $O root@127.0.0.1 'exit 7' 2>/dev/null; echo $?\n"
        "kill $D; wait $D; grep -iE 'fatal|signal [^1]|violation' log",
        "ssh-keygen -q -t ed25519 -N '' -f key; ssh-keygen -q -t ed25519 -N '' -f host",
        "openssh-server openssh-client",
    ),
    "gcc": Program(
        "rm -rf b; cp -r $W/s b; make -s -C b -j4 && b/all",
        r"""mkdir s; for i in $(seq 16); do echo "#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int f$i(int n) { char b[99]; snprintf(b, 99, \"%d\", n * $i); return atoi(b) + strlen(b); }" >s/f$i.c; done
(for i in $(seq 16); do echo "int f$i(int);"; done; echo '#include <stdio.h>'; echo 'int main() { int n = 0;'; for i in $(seq 16); do echo "n += f$i(n);"; done; echo 'puts(n > 9 ? "fine" : "none"); }') >s/m.c
printf 'O = $(patsubst %%.c,%%.o,$(wildcard *.c))\nall: $(O)\n\tgcc -o $@ $(O)\n%%.o: %%.c\n\tgcc -O2 -c -o $@ $<\n' >s/Makefile""",
        "gcc make",
    ),
    "git": Program(
        "rm -rf r; cp -r $W/r r; cd r; git gc -q --prune=now --aggressive && git fsck 2>&1 | grep -v notice; git log --format=%H | md5sum; git count-objects -v | grep -E 'count|in-pack|garbage'; git clone -q . ../r2 && git -C ../r2 ls-files | wc -l; rm -rf ../r2",
        r"""git init -q r; (for i in $(seq 300); do echo "commit refs/heads/master
committer A <a@example.com> $((1700000000 + i)) +0000
data 2
c
M 644 inline f$((i % 40))"; body=$(seq $i $((i + 400))); echo "data ${#body}"; echo "$body"; done) | git -C r fast-import --quiet; git -C r config gc.auto 0; git -C r checkout -q -f master""",
        "git",
    ),
    "tar": Program(
        "for z in gzip xz; do rm -rf o; mkdir o; tar -c -I $z -f a.tar -C $W t && tar -x -I $z -f a.tar -C o && (cd o && find . -type f | sort | xargs md5sum | md5sum); done; diff -r $W/t o/t && echo same",
        "mkdir t; for i in $(seq 300); do seq $i $((i * 7 + 500)) >t/f$i; done; ln -s f1 t/l",
        "tar xz-utils gzip",
    ),
    "rsync": Program(
        "rm -rf o; for i in 1 2; do rsync -a --checksum --stats $W/t/ o/ | grep -E 'Number of|Total file size|Literal'; done; diff -r $W/t o && echo same; echo x >>o/f1; rsync -a --delete --checksum $W/t/ o/; diff -r $W/t o && echo same",
        "mkdir t; for i in $(seq 300); do seq $i $((i * 9 + 900)) >t/f$i; done",
        "rsync",
    ),
}
# The loop that a side runs: one file of output and one of status a repetition.
LOOP = """i=0; while :; do sh "$W/command" >../out.$i 2>&1 </dev/null; echo $? >../status.$i; i=$((i+1)); [ "$(date +%s)" -lt "$END" ] || break; done"""

spec = importlib.util.spec_from_file_location("count_waits", ROOT / "scripts/count-waits.py")
count_waits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(count_waits)


def processes():
    """pid -> (parent, resident bytes, state, name)."""
    found = {}
    for stat in glob.glob("/proc/[0-9]*/stat"):
        try:
            text = pathlib.Path(stat).read_text()
        except OSError:
            continue
        name, rest = text.split("(", 1)[1].rsplit(")", 1)
        rest = rest.split()
        found[int(text.split(" ", 1)[0])] = int(rest[1]), int(rest[21]) * 4096, rest[0], name
    return found


def tree(all_processes, root):
    found, children = [], {}
    for pid, (parent, *_) in all_processes.items():
        children.setdefault(parent, []).append(pid)
    wanted = [root]
    while wanted:
        pid = wanted.pop()
        found.append(pid)
        wanted += children.get(pid, [])
    return found


def is_recorder(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe") == STACKBEAT
    except OSError:
        return False


def as_user(program, folder):
    """What comes before a command that may not be root's; the folder and the one in it become the user's."""
    if not program.nobody or os.geteuid() != 0:
        return []
    for place in (folder, folder / "d"):
        shutil.chown(place, "nobody", "nogroup")
    return AS_NOBODY.split()


class Side:
    """One of the two runs: plain, or recorded."""

    def __init__(self, folder, name, program, port, seconds, prefix):
        self.folder, self.name = folder / name, name
        (self.folder / "d").mkdir(parents=True)
        self.log = self.folder / "log"
        # A folder for temporary files that others than root may use as well.
        environment = dict(os.environ, TMPDIR="/tmp", W=str(folder.parent / "w"), PORT=str(port), END=str(int(time.time() + seconds)))
        user = as_user(program, self.folder)
        self.process = subprocess.Popen(
            [*user, *prefix, "sh", "-c", "ulimit -c unlimited; " + LOOP],
            cwd=self.folder / "d", env=environment, stdin=subprocess.DEVNULL, stdout=self.log.open("w"), stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.recorder_memory, self.memory = [], []

    def look(self, all_processes):
        recorder = program = 0
        for pid in tree(all_processes, self.process.pid):
            if pid in all_processes:
                parent, resident, *_ = all_processes[pid]
                if is_recorder(pid):
                    recorder += resident
                # A child of vfork has its parent's memory.
                elif resident != all_processes.get(parent, (0, None))[1]:
                    program += resident
        # Without a program the recorder starts, or writes down its names.
        if program:
            self.recorder_memory.append(recorder)
            self.memory.append(program)

    def repetitions(self):
        result = []
        while (self.folder / f"status.{len(result)}").exists():
            i = len(result)
            output = (self.folder / f"out.{i}").read_text(errors="replace")
            result.append((output, (self.folder / f"status.{i}").read_text().strip()))
        return result

    def longest(self):
        """The longest time between the ends of two repetitions, s."""
        ends = sorted(status.stat().st_mtime for status in self.folder.glob("status.*"))
        return max((after - before for before, after in zip(ends, ends[1:])), default=0)

    def kill(self):
        """Says what hangs, and ends it."""
        said = []
        all_processes = processes()
        for pid in tree(all_processes, self.process.pid):
            if pid in all_processes:
                said.append(f"{pid} {all_processes[pid][3]} {all_processes[pid][2]}")
        for pid in [int(line.split()[0]) for line in said]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        return ", ".join(said)


def quarters(memory):
    """Most in the second and in the last quarter: what a repetition takes at its peak."""
    quarter = max(1, len(memory) // 4)
    return [max(part or [0]) for part in (memory[quarter : 2 * quarter], memory[-quarter:])]


def mb(count):
    return f"{count / 1e6:.0f}"


def normalized(program, output):
    for pattern, with_ in program.normalize:
        output = re.sub(pattern, with_, output)
    return output


def start(program, folder, port, seconds, options):
    """Both sides until their end. What is wrong is a list of texts; then the sides."""
    wrong = []
    (folder / "trace").mkdir(parents=True)
    (folder / "trace").chmod(0o777)
    prefix = [STACKBEAT, "record", "-q", "--force", *options, "-o", str(folder / "trace/t.beat"), "--"]
    sides = [Side(folder, "plain", program, port, seconds, []), Side(folder, "recorded", program, port + 1, seconds, prefix)]
    end, step = time.time() + seconds + HANG_S, min(1, seconds / 40)
    while any(side.process.poll() is None for side in sides) and time.time() < end:
        all_processes = processes()
        for side in sides:
            if side.process.poll() is None and time.time() < end - HANG_S:
                side.look(all_processes)
        time.sleep(step)
    for side in sides:
        if side.process.poll() is None:
            wrong.append(f"{side.name} hangs: {side.kill()}")
        elif side.process.returncode:
            wrong.append(f"{side.name}: status {side.process.returncode}: {side.log.read_text()[-300:]}")
    return wrong, sides


def compared(program, sides):
    """What differs from the first repetition of the plain run."""
    wrong, (first, status) = [], (sides[0].repetitions() or [("", "")])[0]
    if not normalized(program, first).strip():
        wrong.append("plain: says nothing, so nothing is compared")
    for side in sides:
        repetitions = side.repetitions()
        if not repetitions:
            wrong.append(f"{side.name}: no repetition")
        bad = [
            i for i, (output, its) in enumerate(repetitions)
            if normalized(program, output) != normalized(program, first) or its != status
        ]  # fmt: skip
        if bad:
            output, its = repetitions[bad[0]]
            wrong.append(f"{side.name}: {len(bad)} of {len(repetitions)} differ, out.{bad[0]} with status {its}: {output[-300:]!r}")
        cores = glob.glob(str(side.folder / "**/core*"), recursive=True)
        if cores:
            wrong.append(f"{side.name}: {len(cores)} core files, {cores[0]}")
    return wrong


def waits(program, folder, options, work, port):
    """One more repetition under the interposer: all waits, those that are no records although they are over the interval in force,
    and those that are none because a budget had made it longer."""
    place = folder / "interposed"
    (place / "d").mkdir(parents=True)
    user = as_user(program, place)
    environment = dict(os.environ, W=str(work), PORT=str(port))
    command = ["sh", "-c", f"cd d && sh {work}/command; exit 0"]
    counted = count_waits.count(place, command, options, user, env=environment, cwd=place)
    lost = count_waits.lost(counted)
    return sum(row[1] for row in counted), lost, sum(len(row[3]) for row in counted) - len(lost)


def soak(name, program, setting, folder, work, port, seconds):
    """One line of the table."""
    options = SETTINGS[setting]
    wrong, sides = start(program, folder, port, seconds, options)
    wrong += compared(program, sides)
    plain_s, recorded_s = (side.longest() for side in sides)
    if recorded_s > plain_s + STALL_S:
        wrong.append(f"a repetition took {recorded_s:.1f} s, at most {plain_s:.1f} s in the plain run")
    row = {"program": name, "setting": setting, "repetitions": "/".join(str(len(side.repetitions())) for side in sides)}

    trace = folder / "trace/t.beat"
    row["trace"] = f"{mb(trace.stat().st_size)} MB" if trace.exists() else "-"
    check = subprocess.run([STACKBEAT, "info", "--json", "--check", trace], capture_output=True, text=True)
    try:
        info = json.loads(check.stdout)
        row["lost"] = f"{info['recording']['records_lost']} of {info['recording']['records_written']}"
        if info["violations"] or info["recording"]["outcome"] != "finished":
            wrong.append(f"info --check: {info['recording']['outcome']}, {info['violations'][:3]}")
    except (ValueError, KeyError) as error:
        wrong.append(f"info --check: {error}, {check.stderr[-300:]}")

    before, after = quarters(sides[1].recorder_memory)
    row["recorder MB"] = f"{mb(before)} to {mb(after)}"
    if after - before > RECORDER_GROWTH[0] * before + RECORDER_GROWTH[1]:
        wrong.append(f"the recorder grows: {row['recorder MB']} MB")
    (plain_before, plain_after), (before, after) = (quarters(side.memory) for side in sides)
    row["program MB"] = f"{mb(before)} to {mb(after)}, plain {mb(plain_before)} to {mb(plain_after)}"
    # A peak that the second quarter missed is no growth: the plain program has it, too, or it was there before.
    earlier = sides[1].memory[: len(sides[1].memory) * 3 // 4]
    peak = max([before + max(0, plain_after - plain_before), *sides[0].memory, *earlier])
    if after > peak * (1 + PROGRAM_GROWTH[0]) + PROGRAM_GROWTH[1]:
        wrong.append(f"the program grows: {row['program MB']} MB")

    row["waits"] = f"({program.kept})"
    if program.waits:
        try:
            all_waits, lost, below = waits(program, folder, options, work, port)
            row["waits"] = f"{all_waits}, {len(lost)} missing"
            if below:
                row["waits"] += f", {below} below the budget's interval"
            if len(lost) > all_waits * MISSING:
                wrong.append(f"waits: {row['waits']}: {lost[:3]}")
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            wrong.append(f"waits: {error} {getattr(error, 'stderr', '')[-300:]}")
    row["result"] = "; ".join(wrong) or "ok"
    return row


INSTALLING = threading.Lock()


def install(packages):
    """True when all are there."""
    def missing():
        state = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *packages], capture_output=True, text=True).stdout
        return [package for package in packages if f"{package} installed" not in state.splitlines()]

    with INSTALLING:
        if packages and missing() and os.geteuid() == 0:
            apt = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing()]
            subprocess.run(apt, capture_output=True, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"), stdin=subprocess.DEVNULL)
    return not packages or not missing()


def run(name, base, port, arguments):
    """The lines of a program, under each setting."""
    program, place, rows = PROGRAMS[name], base / name, []
    work = place / "w"
    sources = ROOT / "scripts/soak" / (program.sources or name)
    if sources.exists():
        shutil.copytree(sources, work)
    work.mkdir(parents=True, exist_ok=True)
    (work / "command").write_text(program.command + "\n")
    reason = None
    if program.env and program.env not in os.environ:
        reason = f"{program.env} is not set"
    elif not install(program.packages):
        reason = "no packages " + " ".join(program.packages)
    else:
        made = subprocess.run(["sh", "-ec", program.setup], cwd=work, capture_output=True, text=True)
        if made.returncode:
            reason = "setup failed: " + (made.stdout + made.stderr)[-500:]
    if reason:
        print(f"{name}: not run, {reason}", flush=True)
        return [{"program": name, "result": f"not run: {reason}"}]
    for setting in arguments.settings.split(","):
        row = soak(name, program, setting, place / setting, work, port, arguments.seconds)
        rows.append(row)
        text = ", ".join(f"{key} {value}" if key not in ("program", "setting") else value for key, value in row.items())
        port += 4
        if row["result"] == "ok" and not arguments.keep:
            shutil.rmtree(place / setting)
        else:
            text += f"\n  kept: {place / setting}"
        print(text, flush=True)
    if not arguments.keep and all(row["result"] == "ok" for row in rows):
        shutil.rmtree(place)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--settings", default="default,100us,budget")
    parser.add_argument("--jobs", type=int, default=1, help="programs at the same time")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", help="where the table goes, too")
    parser.add_argument("--keep", action="store_true")
    arguments = parser.parse_args()
    if arguments.list:
        sys.exit("\n".join(f"{name:18}{' '.join(program.packages)}" for name, program in PROGRAMS.items()))
    base = pathlib.Path(tempfile.mkdtemp(prefix="soak-"))
    base.chmod(0o755)
    names = arguments.programs.split(",")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        parts = [pool.submit(run, name, base, 20000 + 100 * i, arguments) for i, name in enumerate(names)]
        rows = [row for part in parts for row in part.result()]
    columns = ["program", "setting", "repetitions", "trace", "lost", "recorder MB", "program MB", "waits", "result"]
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    lines += ["| " + " | ".join(str(row.get(column, "")).replace("|", "\\|").replace("\n", " ") for column in columns) + " |" for row in rows]
    table = "\n".join(lines)
    print(table)
    if arguments.table:
        pathlib.Path(arguments.table).write_text(table + "\n")
    sys.exit(any(row["result"] != "ok" and not row["result"].startswith("not run") for row in rows))


if __name__ == "__main__":
    main()
