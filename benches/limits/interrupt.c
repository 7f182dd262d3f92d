// What it costs a running thread to be interrupted, by each way that Linux has. Prints the CPU time in s of
// a fixed amount of work on CPU 0, the interruptions that the thread saw, and the CPU time of a second
// process on CPU 1 that sent them.
//
//     interrupt WAY STEPS PERIOD_NS
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile long interruptions;

static void count(int signal) {
  (void)signal;
  interruptions++;
}

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, strerror(errno));
  exit(1);
}

static double clock_s(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void run_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof set, &set)) fail("sched_setaffinity");
}

static void by_timer(clockid_t clock, long period) {
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGURG};
  event._sigev_un._tid = gettid();
  timer_t timer;
  if (timer_create(clock, &event, &timer)) fail("timer_create");
  struct itimerspec every = {{0, period}, {0, period}};
  if (timer_settime(timer, 0, &every, 0)) fail("timer_settime");
}

enum how { SIGNAL, TRAP, RING };

// task-clock of user mode only. With a signal by the descriptor (as stackbeat does it) or from the event itself, or as perf
// does it: a record in a ring.
static void by_perf_event(enum how how, long period) {
  struct perf_event_attr attr = {
      .type = PERF_TYPE_SOFTWARE, .size = sizeof attr, .config = PERF_COUNT_SW_TASK_CLOCK,
      .sample_period = period, .sample_type = PERF_SAMPLE_IP, .exclude_kernel = 1, .wakeup_events = 1};
  if (how == TRAP) attr.sigtrap = attr.remove_on_exec = 1;
  int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (fd < 0) fail("perf_event_open");
  if (how == RING) {
    if (mmap(0, 2 * sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED) fail("mmap");
    return;
  }
  if (how == TRAP) return;
  struct f_owner_ex owner = {F_OWNER_TID, gettid()};
  if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETOWN_EX, &owner) || fcntl(fd, F_SETFL, O_ASYNC)) fail("fcntl");
}

// A process on the other CPU that wakes every period, and sends a signal if it is asked to.
static pid_t by_process(int with_signal, long period) {
  pid_t target = getpid(), child = fork();
  if (child) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1);
  run_on(1);
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  for (;;) {
    next.tv_nsec += period;
    while (next.tv_nsec >= 1000000000) {
      next.tv_nsec -= 1000000000;
      next.tv_sec++;
    }
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, 0);
    if (with_signal) syscall(SYS_tgkill, target, target, SIGURG);
  }
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: interrupt WAY STEPS PERIOD_NS\n");
    return 2;
  }
  const char *way = argv[1];
  long steps = atol(argv[2]), period = atol(argv[3]);
  pid_t child = 0;
  struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
  sigaction(SIGURG, &action, 0);
  sigaction(SIGTRAP, &action, 0);
  run_on(0);
  if (!strcmp(way, "timer")) by_timer(CLOCK_MONOTONIC, period);
  else if (!strcmp(way, "cpu-timer")) by_timer(CLOCK_THREAD_CPUTIME_ID, period);
  else if (!strcmp(way, "perf-signal")) by_perf_event(SIGNAL, period);
  else if (!strcmp(way, "perf-sigtrap")) by_perf_event(TRAP, period);
  else if (!strcmp(way, "perf-ring")) by_perf_event(RING, period);
  else if (!strcmp(way, "tgkill")) child = by_process(1, period);
  else if (!strcmp(way, "sleeper")) child = by_process(0, period);
  else if (strcmp(way, "nothing")) {
    fprintf(stderr, "%s: not known\n", way);
    return 2;
  }
  double begin = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  unsigned long x = 1;
  for (long i = 0; i < steps; i++) {
    x = x * 6364136223846793005ul + 1442695040888963407ul;
    asm volatile("" ::"r"(x));
  }
  double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID) - begin, other = 0;
  if (child) {
    clockid_t clock;
    if (!clock_getcpuclockid(child, &clock)) other = clock_s(clock);
    kill(child, SIGKILL);
    waitpid(child, 0, 0);
  }
  printf("%.6f %ld %.6f\n", cpu, interruptions, other);
}
