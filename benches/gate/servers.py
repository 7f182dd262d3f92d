"""Servers that the experiment records. The server alone is recorded; what asks it does the same in every run."""
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

from program import ENVIRONMENT, Program


def connect(server, path):
    """A connection to a server that was just started, as soon as it takes one."""
    while server.poll() is None:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
            client.settimeout(60)
            return client
        except OSError:
            client.close()
            time.sleep(0.001)
    raise RuntimeError("the server did not start")


def wait_for_end(server):
    if server.wait(timeout=60) != 0:
        raise RuntimeError("the server ended with %d" % server.returncode)


class Redis(Program):
    needs = ("redis-server",)
    COMMANDS = 80000
    SINGLE = 300
    SEARCHES = 8000

    def clear(self, folder):
        shutil.rmtree(folder / "appendonlydir", ignore_errors=True)

    def requests(self, kind, amount):
        """What is sent at once, then what is sent one by one."""
        chances = random.Random(3)
        many = ["RPUSH list " + " ".join("entry-%d" % i for i in range(400))]
        for i in range(self.COMMANDS):
            key = chances.randrange(5000)
            many.append(["SET key:%d value-%d", "GET key:%d", "INCRBY count:%d %d"][i % 3] % (
                (key, i) if i % 3 != 1 else (key,)))
        many.append("RPUSH short one two three")
        searches = round(amount) if kind == "linear-search" else 0
        many += ["LPOS %s absent" % ("list" if i < searches else "short") for i in range(self.SEARCHES)]
        if kind == "keys-pattern":
            # Spread over the other commands, as the scripts are.
            for i in range(round(amount)):
                many.insert((i + 1) * len(many) // (round(amount) + 1), "KEYS absent:*:of:*:any")
        if kind == "sorted-by-server":
            for i in range(round(amount)):
                many.insert((i + 1) * len(many) // (round(amount) + 1), "SORT list ALPHA LIMIT 0 10 STORE first")
        if kind == "script":
            # A hundred scripts, spread over the other commands.
            loop = "EVAL \"local n=0; for i=1,%d do n=(n*31+i)%%1009 end; return n\" 0" % (amount / 100)
            for i in range(100):
                many.insert((i + 1) * len(many) // 101, loop)
        one_by_one = ["SET single:%d x" % i for i in range(self.SINGLE)]
        if kind == "fsync-per-write" and amount:
            one_by_one.insert(0, "CONFIG SET appendfsync always")
            one_by_one.insert(round(amount) + 1, "CONFIG SET appendfsync no")
        if kind == "server-sleeps":
            one_by_one += ["DEBUG SLEEP 0.0005"] * round(amount)
        return many, one_by_one

    def run(self, recorder, folder, kind, amount):
        self.clear(folder)
        many, one_by_one = self.requests(kind, amount)
        path = folder / "redis.socket"
        path.unlink(missing_ok=True)
        words = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "",
                 "--appendonly", "yes", "--appendfsync", "no", "--dir", str(folder),
                 "--enable-debug-command", "yes"]
        server = subprocess.Popen(recorder + words, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        try:
            with connect(server, path) as client:
                replies = client.makefile("rb")
                for start in range(0, len(many), 1000):
                    part = many[start:start + 1000]
                    client.sendall("".join(c + "\r\n" for c in part).encode())
                    self.read(replies, len(part))
                pauses = round(amount) if kind == "slow-client" else 0
                for number, command in enumerate(one_by_one):
                    if number < pauses:
                        time.sleep(0.0005)
                    client.sendall((command + "\r\n").encode())
                    self.read(replies, 1)
                client.sendall(b"SHUTDOWN NOSAVE\r\n")
        finally:
            wait_for_end(server)

    @staticmethod
    def read(replies, count):
        for _ in range(count):
            line = replies.readline()
            if line[:1] == b"-" or not line:
                raise RuntimeError("redis answered %r" % line)
            if line[:1] == b"$" and line != b"$-1\r\n":
                replies.readline()


class Nginx(Program):
    """One process that answers with a file, compressed for those who ask for that."""

    needs = ("nginx",)
    REQUESTS = 20000
    # Requests of one connection.
    BATCH = 50
    CONFIGURATION = """
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  map $http_x_logged $is_logged {{ default 0; 1 1; }}
  log_format times "$msec $request_time $uri";
  access_log {folder}/$host.log combined if=$is_logged; access_log {folder}/$host.times times if=$is_logged;
  gzip_types text/plain; gzip_comp_level 5; gzip on; default_type text/plain;
  client_body_temp_path {folder}/temp; proxy_temp_path {folder}/temp; fastcgi_temp_path {folder}/temp;
  uwsgi_temp_path {folder}/temp; scgi_temp_path {folder}/temp;
  keepalive_requests 100000;
  server {{ listen unix:{folder}/nginx.socket; root {folder}/pages; }}
}}
"""

    # Other ways to answer with that file: the configuration of those kinds of change has them too.
    PATHS = {"direct-reads": "/direct"}
    LOCATIONS = " location = /direct {{ directio 512; output_buffers 1 12k; alias {folder}/pages/blocks; }}"
    # Past the page cache nginx reads whole blocks only, and buffers that the file fills.
    BLOCK = 4096

    def prepare(self, folder):
        pages = folder / "pages"
        pages.mkdir(exist_ok=True)
        chances = random.Random(7)
        words = ["page", "press", "ink", "letter", "type", "reader", "binder", "torn", "sorted", "proof"]
        text = "".join("%s %d\n" % (chances.choice(words), chances.randrange(1000)) for _ in range(1200))
        (pages / "text").write_text(text)
        (pages / "blocks").write_text(text + "\n" * (-len(text) % self.BLOCK))
        (folder / "nginx.conf").write_text(self.CONFIGURATION.format(folder=folder))
        root = "root {folder}/pages;"
        more = self.CONFIGURATION.replace(root, root + self.LOCATIONS)
        (folder / "more.conf").write_text(more.format(folder=folder))

    def clear(self, folder):
        (folder / "nginx.socket").unlink(missing_ok=True)
        for log in ("press.log", "press.times"):
            (folder / log).unlink(missing_ok=True)

    def run(self, recorder, folder, kind, amount):
        self.clear(folder)
        # Which header so many of the requests have, spread evenly.
        header = {"compressed-answers": "Accept-Encoding: gzip", "logs-opened-again": "X-Logged: 1"}.get(kind, "")
        path = self.PATHS.get(kind, "/text")
        configuration = "more.conf" if kind in self.PATHS else "nginx.conf"
        words = ["nginx", "-p", str(folder), "-c", str(folder / configuration)]
        server = subprocess.Popen(recorder + words, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        try:
            for first in range(0, self.REQUESTS, self.BATCH):
                self.ask(server, folder, first, path, header, round(amount))
        finally:
            pid = int((folder / "nginx.pid").read_text())
            os.kill(pid, 15)
            wait_for_end(server)

    def ask(self, server, folder, first, path, header, amount):
        requests = []
        for number in range(first, first + self.BATCH):
            share = amount * (number + 1) // self.REQUESTS - amount * number // self.REQUESTS
            request = "GET %s HTTP/1.1\r\nHost: press\r\n" % (path if share else "/text")
            if share and header:
                request += header + "\r\n"
            if number == first + self.BATCH - 1:
                request += "Connection: close\r\n"
            requests.append(request + "\r\n")
        with connect(server, folder / "nginx.socket") as client:
            client.sendall("".join(requests).encode())
            answer = bytearray()
            while part := client.recv(1 << 20):
                answer += part
        if answer.count(b"HTTP/1.1 200 OK") != self.BATCH:
            raise RuntimeError("nginx answered %d of %d" % (answer.count(b"HTTP/1.1 200 OK"), self.BATCH))


class Postgres(Program):
    """The server without its postmaster, with questions on standard input."""

    needs = ("postgres", "initdb")
    # It refuses to run as root; `folder` has to be within this user's reach.
    USER = {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}
    ROWS = 40000
    INSERTS = 200

    @staticmethod
    def find(name):
        # Debian has the server's programs beside the PATH, a folder for each version.
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/" + name))
        return shutil.which(name) or (str(versions[-1]) if versions else None)

    def lacks(self):
        return [need for need in self.needs if not self.find(need)]

    def start(self, words, text, **more):
        return subprocess.run(words, input=text, text=True, env=ENVIRONMENT, check=True,
                              stdout=subprocess.DEVNULL, **self.USER, **more)

    def prepare(self, folder):
        self.data = folder / "data"
        if (folder / "is-prepared").exists():
            return
        shutil.rmtree(self.data, ignore_errors=True)
        folder.chmod(0o777)
        self.start([self.find("initdb"), "-D", str(self.data), "-A", "trust", "-U", "press", "-E", "UTF8"], "", cwd=folder)
        self.start(self.words(), "".join((
            "CREATE TABLE t(id int, name text, v int);\n",
            "INSERT INTO t SELECT x, 'n' || (x %% 997), (x::bigint * 7919 %% 10007)::int"
            " FROM generate_series(1, %d) x;\n" % self.ROWS,
            "CREATE TABLE notes(id int, note text);\n",
            "VACUUM ANALYZE;\n",
        )), cwd=folder)
        (folder / "is-prepared").touch()

    def words(self):
        settings = ["shared_buffers=64MB", "max_parallel_workers_per_gather=0", "jit=off", "log_checkpoints=off"]
        return [self.find("postgres"), "--single", "-D", str(self.data)] + [
            word for setting in settings for word in ("-c", setting)] + ["postgres"]

    def questions(self, kind, amount):
        lines = []
        for i in range(6):
            lines.append("SELECT name, count(*), sum(v) FROM t WHERE v %% %d <> 1 GROUP BY name ORDER BY 2" % (i + 5))
            lines.append("SELECT count(*) FROM t a JOIN t b ON a.id = b.v AND a.v > %d" % i)
        if kind == "nested-loop":
            lines.append("SET enable_hashjoin = off")
            lines.append("SET enable_mergejoin = off")
            # Every row of one side is compared with so many of the other.
            lines.append("SELECT count(*) FROM (SELECT v FROM t WHERE id <= %d OFFSET 0) a"
                         " JOIN (SELECT id FROM t WHERE id <= 2000 OFFSET 0) b ON a.v = b.id" % amount)
        if kind == "numeric-sums":
            lines.append("SELECT sum(v::numeric * 1.19) FROM (SELECT v FROM t LIMIT %d) a, generate_series(1, 20)"
                         % amount)
        if kind == "json-texts":
            lines.append("SELECT sum((a.text::json ->> 'v')::int) FROM (SELECT '{\"id\": ' || id || ', \"name\": \"'"
                         " || name || '\", \"tags\": [1, 2, 3], \"v\": ' || v || '}' AS text FROM t LIMIT %d) a,"
                         " generate_series(1, 20)" % amount)
        # The same rows; some of them are on the disk before the next is inserted.
        synced = round(amount) if kind == "synced-commits" else 0
        lines.append("SET synchronous_commit = on")
        for i in range(self.INSERTS):
            if i == synced:
                lines.append("SET synchronous_commit = off")
            lines.append("INSERT INTO notes VALUES (%d, 'checked')" % i)
        return "".join(line + ";\n" for line in lines)

    def run(self, recorder, folder, kind, amount):
        # The recorder writes as the server's user.
        trace = next((Path(word) for word in recorder if word.endswith(".part")), None)
        if trace and self.USER:
            trace.parent.chmod(0o777)
        self.start(recorder + self.words(), self.questions(kind, amount), cwd=folder)
