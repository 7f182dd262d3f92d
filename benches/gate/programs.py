"""The programs that the experiment records: how they are made ready and how one run is recorded."""
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENT = dict(os.environ, PYTHONHASHSEED="0", LC_ALL="C")


class Program:
    """A program and its workload. `folder` is its own; what `prepare` puts there is kept."""

    def __init__(self, name):
        self.name = name

    def prepare(self, folder):
        pass

    def command(self, folder, kind, amount):
        """The words of a run with this kind of change ("none": without), and its standard input."""
        raise NotImplementedError

    def clear(self, folder):
        """Removes what the last run left, outside of the recording."""

    def run(self, recorder, folder, kind, amount):
        """One run under `recorder`, the words that stand before the command."""
        self.clear(folder)
        words, text = self.command(folder, kind, amount)
        # A program's temporary files are on a disk, where a sync means something.
        environment = dict(ENVIRONMENT, TMPDIR=str(folder))
        subprocess.run(
            recorder + words, input=text, text=True, env=environment, check=True,
            stdout=subprocess.DEVNULL,
        )


class Python(Program):
    def prepare(self, folder):
        # The interpreter itself, not a script that looks for one.
        say = "import sys; print(sys.executable)"
        found = subprocess.run(["python3", "-c", say], capture_output=True, text=True, check=True)
        self.interpreter = found.stdout.strip()

    def command(self, folder, kind, amount):
        words = [self.interpreter, str(HERE / "work.py")]
        return words + ([] if kind == "none" else [kind, "%g" % amount]), None


class Node(Program):
    def command(self, folder, kind, amount):
        words = ["node", str(HERE / "work.js")]
        return words + ([] if kind == "none" else [kind, str(round(amount))]), None


class Press(Program):
    """examples/cpp/press.cpp, unmodified, or with the patch of the kind's name."""

    PAGES = "44"
    RENAMED = {"typeset": "compose", "sort_letters": "arrange_case", "read_pages": "work_off"}

    def prepare(self, folder):
        source = ROOT / "examples" / "cpp" / "press.cpp"
        self.build(folder, "none", source.read_text())
        renamed = source.read_text()
        for old, new in self.RENAMED.items():
            renamed = renamed.replace(old, new)
        self.build(folder, "renamed", renamed)
        for patch in (HERE / "patches").glob("*.patch"):
            copy = folder / "press.cpp"
            shutil.copy(source, copy)
            words = ["patch", "--quiet", str(copy), str(patch)]
            subprocess.run(words, check=True)
            self.build(folder, patch.stem, copy.read_text())

    def build(self, folder, kind, text):
        # Every build has the same file name, as two commits would have.
        place = folder / kind
        place.mkdir(exist_ok=True)
        source = place / "press.cpp"
        if source.exists() and source.read_text() == text and (place / "press").exists():
            return
        source.write_text(text)
        subprocess.run(
            ["g++", "-O2", "-g", "-pthread", "-o", str(place / "press"), str(source)], check=True
        )

    def command(self, folder, kind, amount):
        if kind == "more-input":
            return [str(folder / "none" / "press"), str(round(int(self.PAGES) * (1 + amount)))], None
        words = [str(folder / kind / "press"), self.PAGES]
        return words + ([str(round(amount))] if amount else []), None


class Sqlite(Program):
    """The command line shell with a script; the database is on a disk."""

    QUESTIONS = 4000

    def clear(self, folder):
        for old in folder.glob("work.db*"):
            old.unlink()

    def command(self, folder, kind, amount):
        amount = round(amount)
        small_cache = amount if kind == "small-cache" else 0
        look_up = (
            "WITH RECURSIVE c(x) AS (SELECT %d UNION ALL SELECT x+1 FROM c WHERE x<%d)"
            " SELECT sum(t.v) FROM c JOIN t ON t.id = x*7919%%200000+1;"
        )
        script = (
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v INT);"
            "BEGIN; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<200000)"
            " INSERT INTO t(name,v) SELECT 'n'||(x%997), x*7919%10007 FROM c; COMMIT;"
            "CREATE INDEX i ON t(v); SELECT sum(length(name)) FROM t WHERE v BETWEEN 100 AND 4000;"
        )
        # The same rows are looked up, some of them with next to no cache.
        if small_cache:
            script += "PRAGMA cache_size=2;" + look_up % (1, small_cache) + "PRAGMA cache_size=-2000;"
        script += look_up % (small_cache + 1, 60000)
        # The same questions; some may not use the index and scan 400 rows.
        scans = min(amount, self.QUESTIONS) if kind == "missing-index" else 0
        script += "".join(
            "SELECT count(*) FROM t %s WHERE v=%d AND id<400;"
            % ("NOT INDEXED" if i < scans else "INDEXED BY i", i)
            for i in range(self.QUESTIONS)
        )
        # The same rows, in an order that no index has; the text makes the keys long.
        if kind == "sorted-by-hand":
            script += (
                "SELECT count(*) FROM (SELECT id FROM t WHERE id<=%d ORDER BY v*31%%1009, name LIMIT -1 OFFSET 1);"
                % amount
            )
        synced = amount if kind == "fsync-per-write" else 0
        if synced:
            script += "PRAGMA synchronous=FULL;"
        script += "".join("INSERT INTO t(name,v) VALUES('x',%d);" % i for i in range(synced))
        return ["sqlite3", str(folder / "work.db")], script


class Redis(Program):
    """The server alone is recorded; its client sends the same commands in every run."""

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
            with self.connect(server, path) as client:
                replies = client.makefile("rb")
                client.settimeout(60)
                for start in range(0, len(many), 1000):
                    part = many[start:start + 1000]
                    client.sendall("".join(c + "\r\n" for c in part).encode())
                    self.read(replies, len(part))
                for command in one_by_one:
                    client.sendall((command + "\r\n").encode())
                    self.read(replies, 1)
                client.sendall(b"SHUTDOWN NOSAVE\r\n")
        finally:
            if server.wait(timeout=60) != 0:
                raise RuntimeError("redis-server ended with %d" % server.returncode)

    @staticmethod
    def connect(server, path):
        while server.poll() is None:
            client = socket.socket(socket.AF_UNIX)
            try:
                client.connect(str(path))
                return client
            except OSError:
                client.close()
                time.sleep(0.001)
        raise RuntimeError("redis-server did not start")

    @staticmethod
    def read(replies, count):
        for _ in range(count):
            line = replies.readline()
            if line[:1] == b"-" or not line:
                raise RuntimeError("redis answered %r" % line)
            if line[:1] == b"$" and line != b"$-1\r\n":
                replies.readline()


class Git(Program):
    """Packs objects of this repository; a setting makes it look for better deltas."""

    def prepare(self, folder):
        self.list = folder / "objects"
        if not self.list.exists():
            words = ["git", "-C", str(ROOT), "rev-list", "--objects", "HEAD"]
            found = subprocess.run(words, capture_output=True, text=True, check=True)
            self.list.write_text("".join(l + "\n" for l in found.stdout.splitlines()[:450]))

    def command(self, folder, kind, amount):
        words = ["git", "-C", str(ROOT), "pack-objects", "-q", "--stdout", "--threads=1",
                 "--no-reuse-delta", "--window=%d" % (25 + round(amount))]
        return words, self.list.read_text()


class Xz(Program):
    def prepare(self, folder):
        self.input = folder / "words"
        if not self.input.exists():
            chances = random.Random(5)
            letters = "abcdefghijklmnopqrstuvwxyz"
            word = lambda: "".join(chances.choices(letters, k=chances.randint(2, 9)))
            words = [word() for _ in range(3000)]
            self.input.write_text(" ".join(chances.choices(words, k=220000)))

    def command(self, folder, kind, amount):
        more = lambda of: round(amount) if kind == of else 0
        options = "--lzma2=preset=1,dict=%d,mf=hc4,mode=fast,nice=64,depth=%d" % (
            (1 << 20) + more("bigger-dictionary"), 32 + more("deeper-search"))
        return ["xz", "-T1", "-k", "-c", options, str(self.input)], None


PROGRAMS = {
    program.name: program
    for program in [
        Python("python"), Node("node"), Press("press"), Sqlite("sqlite3"), Redis("redis"),
        Git("git"), Xz("xz"),
    ]
}
