"""What is changed in the programs, and what the gate should say about it.

Tuning kinds were looked at while thresholds and rules of the gate were chosen. Frozen kinds were written and
committed before any of them was recorded, and no rule was chosen by them. Once looked at, a frozen set is used up:
its kinds become tuning kinds, and a new set is written. Blind kinds were written after the rules, by somebody who had
not read them and had looked at the sizes that were measured only, at no finding. Fresh kinds were written after the
blind ones in the same way, by somebody who had seen no trace and no figure of the gate at all.
"""
from dataclasses import dataclass

GROUPS = ["tuning", "frozen", "blind", "fresh"]
SIZES = [0.02, 0.05, 0.10, 0.20]
# `amount` of a kind is in its own measure. The experiment records it once to learn what it adds to
# `measure`, a metric of the whole run, and takes the fraction of it that adds 2, 5, 10 and 20 %.


@dataclass(frozen=True)
class Kind:
    program: str
    name: str
    half: str
    # About what adds 20 %: where the search for the exact amount begins.
    guess: float
    # Right answers: any of these causes, and any of these functions, alone or within a longer name; with "=" before
    # it, alone only. Without functions: the program has no symbols there.
    causes: tuple
    functions: tuple = ()
    measure: str = "wall"
    # For a disk, a timer, another thread, a process or somebody outside: what it adds to the run is measured in runs that
    # are alone. Times that the main thread spends itself do not have it (sleeps shorter than the interval), or the other
    # run of a pair makes it longer (a disk).
    waits: bool = False

    @property
    def key(self):
        return "%s-%s" % (self.program, self.name)


CPU, ALLOCATION, FAULTS, LOCK = "cpu", "allocation", "page-faults", "lock"
IO, NET, SLEEP, WAIT, THREADS = "io", "net", "sleep", "wait", "threads"
EVAL = "_PyEval_EvalFrameDefault"

TUNING = [
    Kind("python", "cpu-loop", "tuning", 500e3, (CPU,), (EVAL,)),
    Kind("python", "quadratic", "tuning", 30e3, (CPU,),
         ("list_contains", "PySequence_Contains", "object_richcompare", "long_richcompare", EVAL)),
    Kind("python", "extra-allocations", "tuning", 150e3, (ALLOCATION, FAULTS),
         ("list_repeat", "PyList_New", "_PyEval_EvalFrameDefault", "list_dealloc", "_PyObject_Malloc")),
    Kind("python", "regex-recompiled", "tuning", 700, (CPU,), (EVAL, "_PyFunction_Vectorcall")),
    Kind("python", "sleep", "tuning", 70, (SLEEP,), ("time_sleep", "pysleep"), waits=True),
    Kind("python", "smaller-reads", "tuning", 150e3, (CPU, IO),
         ("_io_FileIO_read", "_Py_read", "read", EVAL)),
    Kind("sqlite3", "fsync-per-write", "tuning", 25, (IO,), waits=True),
    Kind("sqlite3", "missing-index", "tuning", 1500, (CPU,), ("sqlite3_step", "sqlite3VdbeExec")),
    Kind("press", "lock-held-longer", "tuning", 7e6, (LOCK, CPU), ("proof_letters", "borrow")),
    Kind("press", "bigger-allocations", "tuning", 900e3, (ALLOCATION, FAULTS),
         ("sort_letters", "borrow"), measure="allocated-bytes"),
    Kind("press", "thread-per-request", "tuning", 250, (THREADS,),
         ("ask_helper", "std::thread", "pthread_create")),
    Kind("redis", "linear-search", "tuning", 4000, (CPU,),
         ("lposCommand", "listTypeEqual", "lpCompare", "quicklistCompare", "lpGet", "lpNext"), measure="cpu"),
    Kind("git", "wider-window", "tuning", 10, (CPU,)),
    Kind("xz", "deeper-search", "tuning", 12, (CPU,)),
    Kind("python", "page-faults", "tuning", 30e3, (FAULTS,), ("mmap", EVAL)),
    Kind("python", "disabled-buffering", "tuning", 60e3, (CPU, IO),
         ("_io_FileIO_write", "_Py_write", "write", EVAL)),
    Kind("python", "slower-hash", "tuning", 12e3, (CPU,),
         ("sha3", "SHA3", "Keccak", "keccak", "EVP_", "_hashlib")),
    Kind("python", "uncached-reads", "tuning", 250, (IO,), ("os_pread", "pread", "posix_fadvise"), waits=True),
    Kind("python", "dns-wait", "tuning", 40, (NET, WAIT), ("sock_recv", "sock_call", "internal_select"), waits=True),
    Kind("node", "parsed-again", "tuning", 200, (CPU,), ("Json", "JSON")),
    Kind("node", "garbage", "tuning", 250e3, (CPU, ALLOCATION, FAULTS)),
    Kind("press", "new-lock", "tuning", 2.5e6, (LOCK, CPU), ("count_drops", "lock"), measure="cpu"),
    Kind("press", "lock-convoy", "tuning", 6e3, (LOCK, CPU), ("write_ledger", "lock"), measure="cpu"),
    Kind("press", "extra-thread", "tuning", 15e6, (CPU,), ("proofread",), measure="cpu"),
    Kind("press", "busy-wait", "tuning", 30e6, (CPU,), ("wait_for_ink",), measure="cpu"),
    Kind("press", "log-flush", "tuning", 30e3, (CPU, IO), ("log_steps", "fflush"), measure="cpu"),
    Kind("press", "leaked-cache", "tuning", 4e6, (ALLOCATION, FAULTS), ("keep_proof", "string"),
         measure="allocated-bytes"),
    # Where the table is searched, pages are read anew.
    Kind("sqlite3", "small-cache", "tuning", 40e3, (CPU, IO), ("sqlite3_step", "pread", "BtreeTableMoveto"), measure="cpu"),
    Kind("redis", "fsync-per-write", "tuning", 25, (IO,), ("flushAppendOnlyFile", "fdatasync", "fsync"), waits=True),
    Kind("python", "exceptions", "tuning", 400e3, (CPU,), (EVAL, "PyErr", "PyTraceBack", "PyException")),
    Kind("python", "sorted-again", "tuning", 400, (CPU,), ("list_sort", "sort", "compare")),
    Kind("python", "child-process", "tuning", 40, (WAIT,),
         ("os_waitpid", "waitpid", "wait4", "os_posix_spawn", "posix_spawn"), waits=True),
    Kind("python", "stat-calls", "tuning", 60e3, (CPU, IO), ("os_stat", "posix_do_stat", "stat")),
    Kind("python", "harder-compression", "tuning", 800, (CPU,), ("deflate", "zlib")),
    Kind("node", "hashes", "tuning", 20e3, (CPU,), ("sha", "SHA", "EVP_", "Hash")),
    Kind("node", "waits-for-nobody", "tuning", 50, (WAIT, SLEEP),
         ("Futex", "AtomicsWait", "cond_timedwait", "cond_wait"), waits=True),
    Kind("sqlite3", "sorted-by-hand", "tuning", 120e3, (CPU,), ("sqlite3_step", "sqlite3Vdbe", "sqlite3BtreeInsert")),
    Kind("redis", "script", "tuning", 3e6, (CPU,), ("lua", "eval", "script"), measure="cpu"),
    Kind("redis", "server-sleeps", "tuning", 70, (SLEEP,), ("debugCommand", "nanosleep", "usleep"), waits=True),
    # It is searched for longer, too, by 2.5 % of the run's CPU time.
    Kind("xz", "bigger-dictionary", "tuning", 400e3, (ALLOCATION, FAULTS, CPU), measure="allocated-bytes"),
    Kind("press", "small-allocations", "tuning", 50e3, (ALLOCATION, FAULTS),
         ("index_lines", "new"), measure="allocations"),
    Kind("press", "lock-kept-by-other", "tuning", 60, (LOCK, SLEEP), ("ask_foreman", "keep_keys", "lock")),
]

FROZEN = [
    Kind("python", "collections", "frozen", 34, (CPU,),
         ("gc_collect", "visit_decref", "visit_reachable", "subtract_refs", "deduce_unreachable", "traverse")),
    Kind("crew", "slower-worker", "frozen", 90e3, (CPU,), ("pbkdf2", "PBKDF2", "sha256", "SHA256", "EVP_", "HMAC")),
    Kind("crew", "lock-during-sync", "frozen", 25, (LOCK, IO), ("fsync", "acquire_lock", "sem_"), waits=True),
    Kind("node", "pool-compression", "frozen", 230, (CPU,), ("deflate", "Deflate", "zlib", "Zlib", "ZLib")),
    Kind("node", "timers", "frozen", 35, (WAIT, SLEEP), ("uv__io_poll", "uv_run", "epoll_wait", "epoll_pwait"), waits=True),
    Kind("sqlite3", "busy-database", "frozen", 60, (SLEEP, LOCK),
         ("sqlite3_sleep", "usleep", "nanosleep", "unixSleep", "sqlite3_step", "usy"), waits=True),
    Kind("redis", "slow-client", "frozen", 80, (WAIT, NET), ("aeApiPoll", "aeProcessEvents", "aeMain", "epoll_wait"), waits=True),
    Kind("redis", "keys-pattern", "frozen", 16, (CPU,), ("keysCommand", "stringmatch", "dictNext", "dictIter"),
         measure="cpu"),
    Kind("git-read", "read-again", "frozen", 600, (CPU,), ("inflate", "adler32", "crc32", "git")),
    Kind("xz", "slow-input", "frozen", 60, (WAIT, IO), ("poll", "read"), waits=True),
    Kind("press", "exceptions", "frozen", 25e3, (CPU,),
         ("count_misprints", "find_misprint", "_Unwind", "__cxa", "__gxx"), measure="cpu"),
    Kind("press", "pipe-handoff", "frozen", 2e3, (IO, WAIT), ("hand_over", "Colleague", "read")),
    Kind("perl", "backtracking", "frozen", 850, (CPU,),
         ("regmatch", "regtry", "regexec", "pp_match", "Perl_re")),
    Kind("perl", "kept-hash", "frozen", 60e3, (ALLOCATION, FAULTS),
         ("hv_", "newSV", "sv_", "malloc", "pp_helem", "pp_repeat", "more_bodies")),
    Kind("perl", "subprocess", "frozen", 25, (WAIT,), ("pp_system", "wait4", "waitpid", "fork"), waits=True),
    Kind("openssl", "key-iterations", "frozen", 80e3, (CPU,), ("PBKDF2", "pbkdf2", "SHA256", "sha256", "HMAC", "EVP_")),
    Kind("nginx", "compressed-answers", "frozen", 200, (CPU,), ("deflate", "gzip", "crc32"), measure="cpu"),
    Kind("postgres", "nested-loop", "frozen", 570, (CPU,),
         ("NestLoop", "tuplestore", "ExecScan", "CteScan", "SubqueryScan", "Materialize", "MinimalTuple", "ExecutorRun",
          "int4eq")),
    Kind("postgres", "synced-commits", "frozen", 20, (IO,),
         ("XLog", "fsync", "fdatasync", "issue_xlog", "CommitTransaction"), waits=True),
]

BLIND = [
    # Words are sorted by the rules of a language, where they were by their code units.
    Kind("node", "sorted-by-locale", "blind", 10e3, (CPU,), ("icu_", "Collat", "collat")),
    # A file is on the disk under another name before it takes the place of the old one.
    Kind("node", "atomic-saves", "blind", 20, (IO,), ("fsync", "FSync", "Fsync", "fdatasync", "uv__fs"), waits=True),
    # Prices are numbers of any length, where they were integers.
    Kind("postgres", "numeric-sums", "blind", 10e3, (CPU,), ("numeric",)),
    # Two threads have one connection, which has a mutex, where each had its own. Who holds it is computing.
    Kind("shelf", "shared-connection", "blind", 110, (LOCK,), ("sqlite3_", "pysqlite", "mutex_lock", "lll_lock"), waits=True),
    # The names of two logs have a variable in them, so that they are opened for each line.
    Kind("nginx", "logs-opened-again", "blind", 5000, (IO, CPU),
         ("ngx_http_log", "ngx_http_free_request", "ngx_open_cached_file", "open", "=write", "=__write"),
         measure="cpu"),
    # An answer is asked for every millisecond, where it was waited for.
    Kind("crew", "polled-answer", "blind", 50, (SLEEP,), ("time_sleep", "pysleep", "nanosleep"), waits=True),
    # A text is passed by value, where it was by reference.
    Kind("press", "passed-by-value", "blind", 3300, (ALLOCATION,),
         ("proof_page", "has_letter", "_M_create", "_M_construct", "operator new"), measure="allocated-bytes"),
    # Memory is given back after each use, where it was kept for the next.
    Kind("python", "memory-given-back", "blind", 36e3, (FAULTS,), ("mmap", "madvise")),
]

FRESH = [
    # The first of many who wait is taken from the front of a list, where it was from a deque.
    Kind("python", "list-as-queue", "fresh", 20e3, (CPU,), ("list_pop", "list_ass_slice", "memmove", "memcpy")),
    # What is handed out is a deep copy, where it was the thing itself.
    Kind("node", "structured-clones", "fresh", 280, (CPU,),
         ("StructuredClone", "ValueSerializer", "ValueDeserializer", "worker::Message")),
    # Each message has a zeroed buffer of its own, where all had the same.
    Kind("node", "new-buffers", "fresh", 1600, (ALLOCATION, FAULTS),
         ("ArrayBuffer", "BackingStore", "CreateTypedArray", "calloc", "Calloc", "memset")),
    # Numbers are compared by a sub, where perl compared them itself.
    Kind("perl", "sorted-by-sub", "fresh", 105, (CPU,),
         ("sortcv", "sortsv", "pp_sort", "Perl_runops", "pp_modulo", "pp_gvsv", "pp_aassign")),
    # Half a millisecond is waited before the next attempt, in a select of no files.
    Kind("perl", "pauses", "fresh", 85, (SLEEP, WAIT), ("pp_sselect", "select"), waits=True),
    # A lock file is locked while a thread compresses, where it was unlocked before that.
    Kind("crew", "lock-file", "fresh", 155, (LOCK, WAIT, CPU), ("flock", "deflate", "zlib", "longest_match"), waits=True),
    # Each note has a thread of its own, where whoever had it to note did so.
    Kind("crew", "thread-per-note", "fresh", 380, (THREADS,),
         ("start_new_thread", "pthread_create", "clone", "thread_run", "pythread_wrapper"), waits=True),
    # A list is sorted by the server for each who asks, where the order was kept.
    Kind("redis", "sorted-by-server", "fresh", 390, (CPU,),
         ("sortCommand", "sortCompare", "compareStringObjects", "qsort", "msort", "memcmp"), measure="cpu"),
    # A file is read past the page cache.
    Kind("nginx", "direct-reads", "fresh", 400, (IO,), ("ngx_read_file", "ngx_output_chain", "pread"), waits=True),
    # A number is in a text of JSON, where it had a column.
    Kind("postgres", "json-texts", "fresh", 1800, (CPU,), ("json",)),
]

KINDS = TUNING + FROZEN + BLIND + FRESH
