#!/usr/bin/env python3
"""What the sampler covers, what it costs, and how long attaching takes.

    benches/sampler.py [--parts coverage,idle,attach] [--quick] [--stackbeat FILE] [--against FILE]

coverage  the part of the threads' CPU time of which samples say where it was spent, with the fallback sampler
          and without it (`--no-interrupt`: only hooks capture). The rest is "no evidence" in reports.
idle      CPU of the recorder, per second, beside a program with so many waiting threads and none or one that
          computes; what each waiting thread adds; and what reading its stack takes, once. Read from /proc when
          all stacks have been read. With --against in turns for another version.
attach    `attach` to busy programs and away again: how long its thread stood still, and all of it.

Programs that are not installed are left out and said to be.
"""

import argparse
import glob
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from limits import compile_c
from overhead import ROOT, load_redis, write

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sampler")
AS_POSTGRES = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
# The off-CPU sampler's thread, as /proc has room for its name.
OFF_CPU = "stackbeat off-C"
PYTHON = """
total = 0
for i in range(%d):
    total += i * i %% 7
print(total)
"""
NGINX = """
daemon off;
worker_processes 2;
pid nginx.pid;
error_log error.log;
events { worker_connections 256; }
http {
    access_log access.log;
    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
    gzip on; gzip_min_length 1; gzip_types text/plain;
    server { listen unix:nginx.sock; location / { root .; default_type text/plain; } }
}
"""


def compiled(folder, source):
    """benches/sampler/SOURCE, compiled."""
    program = os.path.join(folder, source.removesuffix(".c"))
    compile_c(os.path.join(HERE, source), program, "-pthread")
    return program


def load_nginx(size, folder):
    """Asks for a page on one connection after the other, then ends the server."""
    path, pid_file = (os.path.join(folder, name) for name in ("nginx.sock", "nginx.pid"))
    deadline = time.monotonic() + 20
    while not os.path.exists(pid_file) or not os.path.exists(path):
        if time.monotonic() > deadline:
            raise RuntimeError("nginx does not listen")
        time.sleep(0.01)
    for _ in range(200 // size):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            reader = client.makefile("rb")
            for _ in range(50):
                client.sendall(b"GET /page.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n")
                while reader.readline() not in (b"\r\n", b""):
                    pass
                # A chunked body: each chunk after its length, the last one empty.
                while (length := int(reader.readline() or b"0", 16)) > 0:
                    reader.read(length + 2)
                reader.readline()
    with open(pid_file) as file:
        os.kill(int(file.read()), signal.SIGQUIT)


def coverage_programs(folder, size):
    """Name, command, and who gives a server its work."""
    write(os.path.join(folder, "compute.py"), PYTHON % (20_000_000 // size))
    write(os.path.join(folder, "nginx.conf"), NGINX)
    write(os.path.join(folder, "page.txt"), "\n".join(f"line {n} of a page" for n in range(5000)))
    steps = str(2_000_000_000 // size)
    redis = ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no"]
    # A folder that its workers may enter, who are somebody else when root starts it.
    os.chmod(folder, 0o755)
    return [
        ("C, computes only", [compiled(folder, "compute.c"), steps], None),
        ("python, computes", [sys.executable, "compute.py"], None),
        ("redis under redis-benchmark", redis, load_redis),
        ("nginx, two workers, gzip", ["nginx", "-p", folder, "-c", "nginx.conf"], load_nginx),
    ]


def covered(stackbeat, folder, command, server, size, options):
    """CPU s of all threads, the part of it that functions got, samples."""
    out = os.path.join(folder, "out.beat")
    record = [stackbeat, "record", "--quiet", "--force", *options, "-o", out, "--"]
    child = subprocess.Popen(record + command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    if server:
        server(size, folder)
    errors = child.communicate()[1]
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {child.returncode}: {errors.decode(errors='replace')[-300:]}")
    report = json.loads(subprocess.run([stackbeat, "report", "--json", out], capture_output=True, check=True).stdout)
    cpu_ns = sum(thread["exact_cpu_ns"] or thread["cpu_ns"] for thread in report["threads"])
    known_ns = sum(function["self"]["cpu_ns"] for function in report["functions"])
    samples = sum(thread["samples"] for thread in report["threads"])
    return cpu_ns / 1e9, known_ns / max(cpu_ns, 1), samples


def coverage(stackbeat, size):
    print(f"{'coverage':<28} {'CPU s':>6} {'sampler':>9} {'samples':>8} {'hooks only':>11} {'samples':>8}")
    with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
        for name, command, server in coverage_programs(folder, size):
            needed = [command[0]] + (["redis-benchmark"] if server is load_redis else [])
            if missing := [program for program in needed if not shutil.which(program)]:
                print(f"{name:<28} left out: {', '.join(missing)} not installed")
                continue
            with_sampler = covered(stackbeat, folder, command, server, size, [])
            without = covered(stackbeat, folder, command, server, size, ["--no-interrupt"])
            print(f"{name:<28} {with_sampler[0]:>6.2f} {with_sampler[1]:>8.1%} {with_sampler[2]:>8} {without[1]:>10.1%} {without[2]:>8}", flush=True)


def cpu_s(pid, name=None):
    """CPU time so far of a process, or of its threads of this name: the first field of schedstat, ns."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/comm") as file:
            if name and file.read().strip() != name:
                continue
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def settle(pid):
    """Waits until each stack was read once; the thread that does it takes 1 % of a processor until then."""
    for _ in range(120):
        before = cpu_s(pid, OFF_CPU)
        time.sleep(1)
        if cpu_s(pid, OFF_CPU) - before < 0.002:
            return
    raise RuntimeError("the recorder reads stacks of waiting threads all the time")


def idle(stackbeats, quick):
    seconds = 2 if quick else 5
    print(f"\n{'idle threads':>12} {'busy':>5} {'recorder, ms CPU/s':>19} {'beyond that of none':>20} {'each idle one, us CPU/s':>24} {'once, us CPU':>13}")
    with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
        program = compiled(folder, "idle.c")
        for busy in (0, 1):
            alone = {}
            for threads in (0, 100, 1000, 5000, 10000):
                for stackbeat in stackbeats:
                    out = os.path.join(folder, "out.beat")
                    record = [stackbeat, "record", "--quiet", "--force", "-o", out, "--", program, str(threads), str(busy)]
                    child = subprocess.Popen(record, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                    if child.stdout.readline() != b"ready\n":
                        raise RuntimeError(f"{threads} threads cannot be started")
                    time.sleep(2)
                    settle(child.pid)
                    before, began = cpu_s(child.pid), time.monotonic()
                    once = cpu_s(child.pid, OFF_CPU)
                    time.sleep(seconds)
                    rate = (cpu_s(child.pid) - before) / (time.monotonic() - began)
                    child.communicate(b"\n")
                    more = rate - alone.setdefault(stackbeat, rate)
                    each, first = (f"{value / threads * 1e6:.1f}" if threads else "-" for value in (more, once))
                    name = stackbeat if len(stackbeats) > 1 else ""
                    print(f"{threads:>12} {busy:>5} {rate * 1e3:>19.1f} {more * 1e3:>+20.1f} {each:>24} {first:>13} {name}", flush=True)


def busiest(pid):
    """Of a server's processes, the one that has done most."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        children = [int(child) for child in file.read().split()]
    return max([pid, *children], key=cpu_s)


def programs_to_attach_to(folder):
    """Name, command, who makes a server ready, and who asks it all the time."""
    work = "import threading\ndef f():\n  while True: sum(bytes([i % 251])[0] for i in range(2000))\n[threading.Thread(target=f).start() for _ in range(4)]"
    redis = ["redis-server", "--port", "0", "--unixsocket", "redis.sock", "--save", "", "--daemonize", "no"]
    redis_load = ["redis-benchmark", "-s", "redis.sock", "-q", "-l", "-n", "100000", "-c", "20", "-t", "set,get"]
    write(os.path.join(folder, "nginx.conf"), NGINX)
    write(os.path.join(folder, "page.txt"), "a page")
    nginx_load = "import socket\nwhile True:\n  s = socket.socket(socket.AF_UNIX)\n  s.connect('nginx.sock')\n  s.sendall(b'GET /page.txt HTTP/1.0\\r\\n\\r\\n')\n  while s.recv(4096): pass"
    programs = [
        ("python, four threads", [sys.executable, "-c", work], None, None),
        ("redis under redis-benchmark", redis, None, redis_load),
        ("nginx worker, one client", ["nginx", "-p", folder, "-c", "nginx.conf"], None, [sys.executable, "-c", nginx_load]),
    ]
    # Its workers and the server itself may be other users.
    os.chmod(folder, 0o777)
    if versions := sorted(glob.glob("/usr/lib/postgresql/*/bin")):
        tool = lambda name, *arguments: [*(AS_POSTGRES if os.geteuid() == 0 else []), os.path.join(versions[-1], name), *arguments]
        run = lambda *command: subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run(*tool("initdb", "-D", "data", "-A", "trust", "-U", "postgres", "--no-sync"))
        server = tool("postgres", "-D", "data", "-h", "", "-c", f"unix_socket_directories={folder}")
        client = tool("pgbench", "-h", folder, "-U", "postgres")
        programs.append(("postgres backend, pgbench", server, lambda: run(*client, "-iq", "postgres"), [*client, "-n", "-T", "3600", "postgres"]))
    return programs


def attach(stackbeat, quick):
    """Of servers, the process that does most."""
    rounds = 5 if quick else 30
    print(f"\n{'attach':<28} {'':<8} {'thread stopped ms':>22} {'all of it ms':>22}")
    with tempfile.TemporaryDirectory(prefix="stackbeat-bench.") as folder:
        out = os.path.join(folder, "out.beat")
        for name, command, prepare, asking in programs_to_attach_to(folder):
            if not shutil.which(command[0]):
                print(f"{name:<28} left out: {command[0]} not installed")
                continue
            program = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            load = None
            figures = {}
            try:
                time.sleep(1)
                if prepare:
                    prepare()
                load = asking and subprocess.Popen(asking, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                time.sleep(1)
                pid = str(busiest(program.pid))
                for _ in range(rounds):
                    subprocess.run([stackbeat, "attach", "--quiet", "--force", "--duration", "200ms", "-o", out, pid], check=True)
                    info = json.loads(subprocess.run([stackbeat, "info", "--json", out], capture_output=True, check=True).stdout)
                    for figure in info["recorder_figures"]:
                        figures.setdefault(figure["name"], []).append(figure["value"] / 1e6)
            finally:
                for process in filter(None, (load, program)):
                    process.send_signal(signal.SIGINT if prepare else signal.SIGTERM)
                    process.wait()
            for kind in ("attach", "detach"):
                shown = (f"median {statistics.median(v):5.1f}, max {max(v):5.1f}" for v in (figures[f"{kind}_pause_ns"], figures[f"{kind}_ns"]))
                print(f"{name:<28} {kind:<8} " + " ".join(f"{text:>22}" for text in shown), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="coverage,idle,attach")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work: does it run?")
    parser.add_argument("--against", help="the idle part for this version, too")
    parser.add_argument("--stackbeat", default=os.path.join(ROOT, "target/release/stackbeat"))
    options = parser.parse_args()
    stackbeat = os.path.abspath(options.stackbeat)
    if not os.path.exists(stackbeat):
        sys.exit(f"{stackbeat}: not there; build it with: cargo build --release -p stackbeat")
    parts = options.parts.split(",")
    if unknown := set(parts) - {"coverage", "idle", "attach"}:
        sys.exit(f"not known: {', '.join(sorted(unknown))}; there are: coverage, idle, attach")
    if "coverage" in parts:
        coverage(stackbeat, 10 if options.quick else 1)
    if "idle" in parts:
        idle([stackbeat] + [os.path.abspath(other) for other in [options.against] if other], options.quick)
    if "attach" in parts:
        attach(stackbeat, options.quick)


if __name__ == "__main__":
    main()
