"""The programs that the experiment records: how they are made ready and how one run is recorded."""
import fcntl
import os
import random
import shutil
import sqlite3
import subprocess
import threading
import time

from program import HERE, ROOT, Program
from servers import Nginx, Postgres, Redis


class Python(Program):
    needs = ("python3",)
    script = "work.py"

    def prepare(self, folder):
        # The interpreter itself, not a script that looks for one.
        say = "import sys; print(sys.executable)"
        found = subprocess.run(["python3", "-c", say], capture_output=True, text=True, check=True)
        self.interpreter = found.stdout.strip()

    def command(self, folder, kind, amount):
        words = [self.interpreter, str(HERE / self.script)]
        return words + ([] if kind == "none" else [kind, "%g" % amount]), None


class Crew(Python):
    """Threads of python that wait for each other."""

    script = "crew.py"


class Shelf(Python):
    """Threads of python that ask sqlite, which computes at the same time in several."""

    together = False
    script = "shelf.py"


class Node(Program):
    needs = ("node",)

    def command(self, folder, kind, amount):
        words = ["node", str(HERE / "work.js")]
        return words + ([] if kind == "none" else [kind, str(round(amount))]), None


class Press(Program):
    """examples/cpp/press.cpp, unmodified, or with the patch of the kind's name."""

    needs = ("g++", "patch")
    together = False
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

    needs = ("sqlite3",)
    QUESTIONS = 4000

    def clear(self, folder):
        for old in folder.glob("work.db*"):
            old.unlink()
        (folder / "rest").unlink(missing_ok=True)

    def command(self, folder, kind, amount):
        """The first half of the script on standard input, which ends with reading the rest from a pipe."""
        rest = folder / "rest"
        os.mkfifo(rest)
        return ["sqlite3", str(folder / "work.db")], self.first_half(rest)

    def run(self, recorder, folder, kind, amount):
        held_ms = amount if kind == "busy-database" else 0
        text = self.second_half(kind, round(amount))
        helper = threading.Thread(target=self.go_on, args=(folder, text, held_ms), daemon=True)
        self.clear(folder)
        words, first = self.command(folder, kind, amount)
        helper.start()
        subprocess.run(recorder + words, input=first, text=True, env=self.environment(folder), check=True,
                       stdout=subprocess.DEVNULL)
        helper.join()

    @staticmethod
    def go_on(folder, text, held_ms):
        """Gives the second half, and has the database locked for so long from then on."""
        with open(folder / "rest", "w") as rest:
            other = sqlite3.connect(folder / "work.db", isolation_level=None)
            if held_ms:
                other.execute("BEGIN IMMEDIATE")
            rest.write(text[:text.index(";") + 1] + "\n")
            rest.flush()
            if held_ms:
                time.sleep(held_ms / 1e3)
                other.execute("ROLLBACK")
            other.close()
            rest.write(text)

    def first_half(self, rest):
        return (
            ".timeout 10000\n"
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF; CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v INT);"
            "BEGIN; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<200000)"
            " INSERT INTO t(name,v) SELECT 'n'||(x%%997), x*7919%%10007 FROM c; COMMIT;"
            "CREATE INDEX i ON t(v); SELECT sum(length(name)) FROM t WHERE v BETWEEN 100 AND 4000;\n"
            ".read %s\n" % rest
        )

    def second_half(self, kind, amount):
        small_cache = amount if kind == "small-cache" else 0
        look_up = (
            "WITH RECURSIVE c(x) AS (SELECT %d UNION ALL SELECT x+1 FROM c WHERE x<%d)"
            " SELECT sum(t.v) FROM c JOIN t ON t.id = x*7919%%200000+1;"
        )
        script = "INSERT INTO t(name,v) VALUES('first',0);"
        # The same rows are looked up, some of them with next to no cache.
        if small_cache:
            script += "PRAGMA cache_size=2;" + look_up % (1, small_cache) + "PRAGMA cache_size=-2000;"
        script += look_up % (small_cache + 1, 60000)
        # The same questions; some may not use the index and scan 1200 rows.
        scans = min(amount, self.QUESTIONS) if kind == "missing-index" else 0
        script += "".join(
            "SELECT count(*) FROM t %s WHERE v=%d AND id<1200;"
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
        return script + "\n"


class Git(Program):
    """Packs objects of this repository; a setting makes it look for better deltas."""

    needs = ("git",)

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


class GitRead(Git):
    """Prints objects of this repository, some of them again."""

    OBJECTS = 3000

    def prepare(self, folder):
        self.list = folder / "objects"
        if not self.list.exists():
            words = ["git", "-C", str(ROOT), "rev-list", "--objects", "--no-object-names", "HEAD"]
            found = subprocess.run(words, capture_output=True, text=True, check=True)
            self.list.write_text("".join(l + "\n" for l in found.stdout.splitlines()[:self.OBJECTS]))

    def command(self, folder, kind, amount):
        names = self.list.read_text().split()
        # Evenly spread over all of them, so that what is read again is like what is read.
        again = round(amount)
        chosen = [names[i * 7919 % len(names)] for i in range(again)]
        return ["git", "-C", str(ROOT), "cat-file", "--batch", "--buffer"], "\n".join(names + chosen) + "\n"


class Xz(Program):
    """Compresses what it is sent; the sender may pause."""

    needs = ("xz",)
    PAUSES = 3

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
        return ["xz", "-T1", "-c", options], None

    def run(self, recorder, folder, kind, amount):
        pause_s = amount / 1e3 / self.PAUSES if kind == "slow-input" else 0
        words, _ = self.command(folder, kind, amount)
        data = self.input.read_bytes()
        program = subprocess.Popen(recorder + words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, bufsize=0)
        # A small pipe: what is in it when a pause begins hides the pause.
        fcntl.fcntl(program.stdin, fcntl.F_SETPIPE_SZ, 4096)
        step = len(data) // (self.PAUSES + 1)
        for start in range(0, len(data), step):
            if start:
                time.sleep(pause_s)
            with memoryview(data)[start:start + step] as part:
                sent = 0
                while sent < len(part):
                    sent += program.stdin.write(part[sent:])
        program.stdin.close()
        if program.wait() != 0:
            raise RuntimeError("xz ended with %d" % program.returncode)


class Perl(Program):
    needs = ("perl",)

    def command(self, folder, kind, amount):
        if kind == "more-input":
            return ["perl", str(HERE / "work.pl"), "none", "0", "%g" % (1 + amount)], None
        return ["perl", str(HERE / "work.pl")] + ([] if kind == "none" else [kind, "%g" % amount]), None


class Openssl(Program):
    """Derives a key from a password and encrypts a file with it."""

    needs = ("openssl",)
    ITERATIONS = 150_000
    INPUT_BYTES = 96 << 20

    def prepare(self, folder):
        self.input = folder / "zeros"
        with open(self.input, "ab") as file:
            file.truncate(self.INPUT_BYTES)

    def command(self, folder, kind, amount):
        iterations = self.ITERATIONS + (round(amount) if kind == "key-iterations" else 0)
        return ["openssl", "enc", "-aes-256-cbc", "-pbkdf2", "-iter", str(iterations), "-S", "0123456789abcdef",
                "-pass", "pass:stackbeat", "-in", str(self.input), "-out", "/dev/null"], None


PROGRAMS = {
    program.name: program
    for program in [
        Python("python"), Crew("crew"), Shelf("shelf"), Node("node"), Press("press"), Sqlite("sqlite3"), Redis("redis"),
        Git("git"), GitRead("git-read"), Xz("xz"), Perl("perl"), Openssl("openssl"), Nginx("nginx"),
        Postgres("postgres"),
    ]
}
