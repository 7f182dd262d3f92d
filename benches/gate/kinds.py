"""What is changed in the programs, and what the gate should say about it.

Tuning kinds were there while thresholds and rules of the gate were chosen. Frozen kinds were written and
committed before they were measured, and are measured after the thresholds were frozen.
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
]

FROZEN = [
    Kind("python", "page-faults", "frozen", 30e3, (FAULTS,), ("mmap", EVAL)),
    Kind("python", "disabled-buffering", "frozen", 60e3, (CPU, IO),
         ("_io_FileIO_write", "_Py_write", "write", EVAL)),
    Kind("python", "slower-hash", "frozen", 12e3, (CPU,),
         ("sha3", "SHA3", "Keccak", "keccak", "EVP_", "_hashlib")),
    Kind("python", "uncached-reads", "frozen", 250, (IO,), ("os_pread", "pread", "posix_fadvise")),
    Kind("python", "dns-wait", "frozen", 40, (NET, WAIT), ("sock_recv", "sock_call", "internal_select")),
    Kind("node", "parsed-again", "frozen", 200, (CPU,), ("Json", "JSON")),
    Kind("node", "garbage", "frozen", 250e3, (CPU, ALLOCATION, FAULTS)),
    Kind("press", "new-lock", "frozen", 2.5e6, (LOCK, CPU), ("count_drops", "lock")),
    Kind("press", "lock-convoy", "frozen", 6e3, (LOCK, CPU), ("write_ledger", "lock")),
    Kind("press", "extra-thread", "frozen", 15e6, (CPU,), ("proofread",), measure="cpu"),
    Kind("press", "busy-wait", "frozen", 30e6, (CPU,), ("wait_for_ink",)),
    Kind("press", "log-flush", "frozen", 30e3, (CPU, IO), ("log_steps", "fflush")),
    Kind("press", "leaked-cache", "frozen", 4e6, (ALLOCATION, FAULTS), ("keep_proof", "string"),
         measure="allocated-bytes"),
    Kind("sqlite3", "small-cache", "frozen", 40e3, (CPU, IO), ("sqlite3_step", "pread")),
    Kind("redis", "fsync-per-write", "frozen", 25, (IO,), ("flushAppendOnlyFile", "fdatasync", "fsync")),
]

KINDS = TUNING + FROZEN
