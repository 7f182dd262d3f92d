package dev.stackbeat;

import java.util.concurrent.locks.LockSupport;

// An app that records itself. Each mode says what it did.
public class App {
    static final Object lock = new Object();
    static volatile int held, wanted, taken;
    /** Waits for the lock of more than 3 ms. */
    static volatile int waited;

    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    static Thread start(String name, Runnable what) {
        Thread thread = new Thread(what, name);
        thread.start();
        return thread;
    }

    static void say(String what) {
        System.out.println(what);
        System.out.flush();
    }

    /** One thread allocates. Then one holds a lock that another one waits for. */
    static void work(int rounds, int objects) throws InterruptedException {
        held = wanted = taken = waited = 0;
        Thread allocator = start("allocator", () -> {
            Object last = null;
            for (int i = 0; i < objects; i++) last = new int[8];
        });
        allocator.join();
        Thread holder = start("holder", () -> {
            for (int i = 1; i <= rounds; i++) {
                synchronized (lock) {
                    held = i;
                    while (wanted < i) Thread.yield();
                    sleep(8);
                }
                while (taken < i) Thread.yield();
            }
        });
        Thread contender = start("contender", () -> {
            for (int i = 1; i <= rounds; i++) {
                while (held < i) Thread.yield();
                long begin = System.nanoTime();
                wanted = i;
                synchronized (lock) {
                    if (System.nanoTime() - begin > 3000000) waited++;
                    taken = i;
                }
            }
        });
        holder.join();
        contender.join();
    }

    /** The same, and says how often the lock was waited for. */
    static void workAndSay(int rounds, int objects) throws InterruptedException {
        work(rounds, objects);
        say("waited " + waited);
    }

    static void records(String folder, int rounds) throws InterruptedException {
        say("trace " + Native.start(folder, false, false));
        Native.event(1, "work", 0);
        workAndSay(rounds, 100000);
        Native.event(2, null, 0);
        Native.event(10, "rounds", rounds);
        say("stopped " + Native.stop());
    }

    static volatile int round, done;

    /** In each recording so many objects. Before it begins, one of the threads runs, and the other one is parked. */
    static void early(String folder, int rounds, int objects) throws InterruptedException {
        Thread[] threads = new Thread[2];
        for (int i = 0; i < 2; i++) {
            boolean runs = i == 0;
            threads[i] = start(runs ? "runner" : "sleeper", () -> {
                for (int next = 1; next <= rounds; next++) {
                    while (round < next) {
                        if (!runs) LockSupport.park();
                    }
                    Object last = null;
                    for (int n = 0; n < objects; n++) last = new int[8];
                    synchronized (lock) {
                        done++;
                    }
                }
            });
        }
        for (int i = 1; i <= rounds; i++) {
            // Both are where they should be.
            sleep(100);
            say("trace " + Native.start(folder, false, false));
            round = i;
            LockSupport.unpark(threads[1]);
            while (done < 2 * i) sleep(1);
            say("stopped " + Native.stop());
        }
    }

    /** Its main thread waits for a lock until it is killed. */
    static void dies(String folder) throws InterruptedException {
        say("trace " + Native.start(folder, false, false));
        // So that hooks know where ART keeps owners.
        work(5, 1000);
        Thread holder = start("keeper", () -> {
            synchronized (lock) {
                held = -1;
                LockSupport.park();
            }
        });
        while (held != -1) Thread.yield();
        say("blocked " + System.currentTimeMillis());
        synchronized (lock) {
            say("never");
        }
    }

    static volatile boolean never;
    static volatile int result;

    /** Passes no hook: it calls nothing, and makes no object. */
    static void spin() {
        int x = 1;
        for (int i = 0; !never; i++) x = x * 31 + i;
        result = x;
    }

    static int deep(int n) {
        return n == 0 ? new byte[100].length : 1 + deep(n - 1);
    }

    /** Until it is killed some threads compute and pass no hook, others call, allocate and wait. */
    static void runs(String folder) throws InterruptedException {
        say("trace " + Native.start(folder, false, false));
        start("spinner", () -> spin());
        start("caller", () -> {
            while (!never) result = deep(50);
        });
        start("parker", () -> {
            while (!never) LockSupport.parkNanos(200000);
        });
        say("runs");
        while (!never) work(2, 100);
    }

    static void set(Class<?> program, String name, Object value) throws ReflectiveOperationException {
        java.lang.reflect.Field field = program.getDeclaredField(name);
        field.setAccessible(true);
        field.set(null, value);
    }

    /** Records all that threads do in the stress run, with whatever a session can be asked for. */
    static void stress(String folder, String path) throws Exception {
        Class<?> program = Class.forName("Program");
        // A full stack is walked at each capture, which takes its time without optimizations.
        set(program, "overflows", false);
        for (boolean inMemory : new boolean[] {false, true}) {
            say("trace " + Native.start(folder, false, inMemory));
            Native.event(10, "memory", inMemory ? 1 : 0);
            set(program, "stop", false);
            set(program, "shared", 0);
            Object arguments = new String[] {"stress", "1000", path};
            program.getMethod("main", String[].class).invoke(null, arguments);
            Native.doctor();
            Native.dump(folder + "/dump", 0);
            say("stopped " + Native.stop());
        }
        say(Native.save(folder));
    }

    public static void main(String[] arguments) throws Exception {
        String folder = arguments[2];
        System.load(arguments[1]);
        // A lock word with a hash has no room for an owner: the lock is a monitor from the start, and nobody spins for it.
        System.identityHashCode(lock);
        switch (arguments[0]) {
            case "records":
                records(folder, 20);
                break;
            case "again":
                for (int i = 0; i < 3; i++) {
                    records(folder, 10);
                    // Nothing is hooked now.
                    work(3, 1000);
                }
                break;
            case "early":
                early(folder, 3, 20000);
                break;
            case "dumps":
                say("trace " + Native.start(folder, false, false));
                workAndSay(10, 1000);
                Native.dump(folder + "/dump", 0);
                say("dumped");
                say("stopped " + Native.stop());
                break;
            case "doctor":
                say("trace " + Native.start(folder, false, false));
                say(Native.doctor());
                say("stopped " + Native.stop());
                break;
            case "refuses":
                say("asked " + Native.start(folder, true, false));
                say("stopped " + Native.stop());
                try {
                    Native.dump(folder + "/dump", 0);
                } catch (IllegalStateException e) {
                    say("dump " + e.getMessage());
                }
                try {
                    Native.start("/dev/null/nowhere", false, false);
                } catch (IllegalStateException e) {
                    say("start " + e.getMessage());
                }
                break;
            case "dies":
                dies(folder);
                break;
            case "runs":
                runs(folder);
                break;
            case "stress":
                stress(folder, arguments[3]);
                break;
            case "next":
                say(Native.save(folder));
                break;
            case "beside":
                // Another agent records it.
                try {
                    Native.start(folder, false, false);
                } catch (IllegalStateException e) {
                    say("refused " + e.getMessage());
                }
                workAndSay(20, 1000);
                break;
        }
    }
}
