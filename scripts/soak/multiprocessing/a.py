import multiprocessing as m, time, os, signal
def work(n): time.sleep(0.005); return sum(i * i for i in range(20000)) + n
def put(q, n): q.put(n); time.sleep(0.01)
if __name__ == "__main__":
    for kind in ("fork", "spawn", "forkserver"):
        c = m.get_context(kind)
        with c.Pool(3) as p: print(kind, sum(p.map(work, range(40), chunksize=4)))
        q = c.Queue(); all = [c.Process(target=put, args=(q, n)) for n in range(4)]; [p.start() for p in all]
        print(sorted(q.get() for _ in all)); [p.join() for p in all]; print([p.exitcode for p in all])
        p = c.Process(target=time.sleep, args=(60,)); p.start(); time.sleep(0.05); p.terminate(); p.join(); print(p.exitcode)
