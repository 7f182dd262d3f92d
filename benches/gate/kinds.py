"""What is changed in the programs, and what the gate should say about it.

Tuning kinds were looked at while thresholds and rules of the gate were chosen. Frozen kinds were written and
committed before any of them was recorded, and no rule was chosen by them. Once looked at, a frozen set is used up:
its kinds become tuning kinds, and a new set is written.
"""
from dataclasses import dataclass

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
    # Right answers: any of these causes, and any of these functions, alone or within a longer name.
    # Without functions: the program has no symbols there.
    causes: tuple
    functions: tuple = ()
    measure: str = "wall"

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
    Kind("python", "sleep", "tuning", 70, (SLEEP,), ("time_sleep", "pysleep")),
    Kind("python", "smaller-reads", "tuning", 150e3, (CPU, IO),
         ("_io_FileIO_read", "_Py_read", "read", EVAL)),
    Kind("sqlite3", "fsync-per-write", "tuning", 25, (IO,)),
    Kind("sqlite3", "missing-index", "tuning", 1500, (CPU,), ("sqlite3_step", "sqlite3VdbeExec")),
    Kind("press", "lock-held-longer", "tuning", 7e6, (LOCK, CPU), ("proof_letters", "borrow")),
    Kind("press", "bigger-allocations", "tuning", 900e3, (ALLOCATION, FAULTS),
         ("sort_letters", "borrow"), measure="allocated-bytes"),
    Kind("press", "thread-per-request", "tuning", 250, (THREADS,),
         ("ask_helper", "std::thread", "pthread_create")),
    Kind("redis", "linear-search", "tuning", 4000, (CPU,),
         ("lposCommand", "listTypeEqual", "lpCompare", "quicklistCompare", "lpGet", "lpNext")),
    Kind("git", "wider-window", "tuning", 10, (CPU,)),
    Kind("xz", "deeper-search", "tuning", 12, (CPU,)),
    Kind("python", "page-faults", "tuning", 30e3, (FAULTS,), ("mmap", EVAL)),
    Kind("python", "disabled-buffering", "tuning", 60e3, (CPU, IO),
         ("_io_FileIO_write", "_Py_write", "write", EVAL)),
    Kind("python", "slower-hash", "tuning", 12e3, (CPU,),
         ("sha3", "SHA3", "Keccak", "keccak", "EVP_", "_hashlib")),
    Kind("python", "uncached-reads", "tuning", 250, (IO,), ("os_pread", "pread", "posix_fadvise")),
    Kind("python", "dns-wait", "tuning", 40, (NET, WAIT), ("sock_recv", "sock_call", "internal_select")),
    Kind("node", "parsed-again", "tuning", 200, (CPU,), ("Json", "JSON")),
    Kind("node", "garbage", "tuning", 250e3, (CPU, ALLOCATION, FAULTS)),
    Kind("press", "new-lock", "tuning", 2.5e6, (LOCK, CPU), ("count_drops", "lock"), measure="cpu"),
    Kind("press", "lock-convoy", "tuning", 6e3, (LOCK, CPU), ("write_ledger", "lock"), measure="cpu"),
    Kind("press", "extra-thread", "tuning", 15e6, (CPU,), ("proofread",), measure="cpu"),
    Kind("press", "busy-wait", "tuning", 30e6, (CPU,), ("wait_for_ink",), measure="cpu"),
    Kind("press", "log-flush", "tuning", 30e3, (CPU, IO), ("log_steps", "fflush"), measure="cpu"),
    Kind("press", "leaked-cache", "tuning", 4e6, (ALLOCATION, FAULTS), ("keep_proof", "string"),
         measure="allocated-bytes"),
    Kind("sqlite3", "small-cache", "tuning", 40e3, (CPU, IO), ("sqlite3_step", "pread"), measure="cpu"),
    Kind("redis", "fsync-per-write", "tuning", 25, (IO,), ("flushAppendOnlyFile", "fdatasync", "fsync")),
]

FROZEN = [
    Kind("python", "exceptions", "frozen", 400e3, (CPU,), (EVAL, "PyErr", "PyTraceBack", "PyException")),
    Kind("python", "sorted-again", "frozen", 400, (CPU,), ("list_sort", "sort", "compare")),
    Kind("python", "child-process", "frozen", 40, (WAIT,),
         ("os_waitpid", "waitpid", "wait4", "os_posix_spawn", "posix_spawn")),
    Kind("python", "stat-calls", "frozen", 60e3, (CPU, IO), ("os_stat", "posix_do_stat", "stat")),
    Kind("python", "harder-compression", "frozen", 800, (CPU,), ("deflate", "zlib")),
    Kind("node", "hashes", "frozen", 20e3, (CPU,), ("sha", "SHA", "EVP_", "Hash")),
    Kind("node", "waits-for-nobody", "frozen", 50, (WAIT, SLEEP),
         ("Futex", "AtomicsWait", "cond_timedwait", "cond_wait")),
    Kind("sqlite3", "sorted-by-hand", "frozen", 120e3, (CPU,), ("sqlite3_step", "sqlite3Vdbe")),
    Kind("redis", "script", "frozen", 3e6, (CPU,), ("lua", "eval", "script")),
    Kind("redis", "server-sleeps", "frozen", 70, (SLEEP,), ("debugCommand", "nanosleep", "usleep")),
    Kind("xz", "bigger-dictionary", "frozen", 400e3, (ALLOCATION, FAULTS), measure="allocated-bytes"),
    Kind("press", "small-allocations", "frozen", 50e3, (ALLOCATION, FAULTS),
         ("index_lines", "new"), measure="allocations"),
    Kind("press", "lock-kept-by-other", "frozen", 60, (LOCK, SLEEP), ("ask_foreman", "keep_keys", "lock")),
]

KINDS = TUNING + FROZEN
