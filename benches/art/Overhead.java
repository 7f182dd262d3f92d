package dev.stackbeat;

import java.util.concurrent.locks.LockSupport;

// What hooks and captures cost a thread on ART: its CPU time for many calls of a kind. benches/art_overhead.py runs it.
//
//   Overhead LIBRARY FOLDER ROUNDS
//
// Says `KIND STATE NANOSECONDS` for each round: plain (the library is loaded, nothing is hooked), recorded (captures each 4 ms).
// Without rounds it says `ready`, and `cpu NANOSECONDS` of many calls for each byte that comes in: somebody else records it.
public class Overhead {
    static final Object lock = new Object();
    static volatile Object last;
    static final int CALLS = 50000;
    static final int TURNS = 200;
    static final int FRAMES = 30;
    static final String[] KINDS = {"nothing", "monitor", "allocation", "unpark", "park", "notify", "wait", "native", "collection"};
    static final Runtime runtime = Runtime.getRuntime();

    static long cpu() {
        return dalvik.system.VMDebug.threadCpuTimeNanos();
    }

    static int count(String kind) {
        switch (kind) {
            case "wait": return CALLS / 50;
            case "collection": return 20;
            default: return CALLS;
        }
    }

    static void calls(String kind) throws Exception {
        Thread self = Thread.currentThread();
        switch (kind) {
            case "nothing":
                for (int i = 0; i < CALLS; i++) last = lock;
                break;
            case "monitor":
                for (int i = 0; i < CALLS; i++) synchronized (lock) { last = lock; }
                break;
            case "allocation":
                for (int i = 0; i < CALLS; i++) last = new int[8];
                break;
            case "unpark":
                for (int i = 0; i < CALLS; i++) LockSupport.unpark(self);
                break;
            case "park":
                // With a permit, so that it does not wait.
                for (int i = 0; i < CALLS; i++) {
                    LockSupport.unpark(self);
                    LockSupport.park();
                }
                break;
            case "notify":
                for (int i = 0; i < CALLS; i++) synchronized (lock) { lock.notify(); }
                break;
            case "wait":
                // Nobody notifies.
                for (int i = 0; i < count(kind); i++) synchronized (lock) { lock.wait(0, 1000); }
                break;
            case "native":
                for (int i = 0; i < CALLS; i++) last = runtime.totalMemory() > 0 ? lock : null;
                break;
            case "collection":
                for (int i = 0; i < count(kind); i++) runtime.gc();
                break;
        }
    }

    /** Under so many frames. */
    static void under(int frames) throws Exception {
        if (frames > 0) {
            under(frames - 1);
            return;
        }
        System.out.println("ready");
        System.out.flush();
        while (System.in.read() >= 0) {
            long before = cpu();
            for (int k = 0; k < TURNS; k++) calls("monitor");
            System.out.println("cpu " + (cpu() - before));
            System.out.flush();
        }
    }

    static long timed(String kind) throws Exception {
        calls(kind);
        long before = cpu();
        calls(kind);
        return cpu() - before;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        // A monitor from the start, so that ART's own function enters it.
        System.identityHashCode(lock);
        int rounds = Integer.parseInt(arguments[2]);
        if (rounds == 0) {
            under(FRAMES);
        }
        for (int round = 0; round < rounds; round++) {
            for (String kind : KINDS) System.out.println(kind + " plain " + timed(kind) / (double) count(kind));
            Native.start(arguments[1], false, false);
            for (String kind : KINDS) System.out.println(kind + " recorded " + timed(kind) / (double) count(kind));
            Native.stop();
        }
    }
}
