static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

static void mutex_hold(void) { pthread_mutex_lock(&mutex); }
static void mutex_wait(void) {
    pthread_mutex_lock(&mutex);
    pthread_mutex_unlock(&mutex);
}
static void mutex_end(void) { pthread_mutex_unlock(&mutex); }

static void write_hold(void) { pthread_rwlock_wrlock(&rwlock); }
static void read_hold(void) { pthread_rwlock_rdlock(&rwlock); }
static void write_wait(void) {
    pthread_rwlock_wrlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}
static void read_wait(void) {
    pthread_rwlock_rdlock(&rwlock);
    pthread_rwlock_unlock(&rwlock);
}
static void rwlock_end(void) { pthread_rwlock_unlock(&rwlock); }

static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore; // zeros: the value 0
static int flag, word;

static void condition_wait(void) {
    pthread_mutex_lock(&mutex);
    while (!flag)
        pthread_cond_wait(&condition, &mutex);
    flag = 0;
    pthread_mutex_unlock(&mutex);
}
static void set_flag(void) {
    pthread_mutex_lock(&mutex);
    flag = 1;
    pthread_mutex_unlock(&mutex);
}
static void signal_end(void) {
    set_flag();
    pthread_cond_signal(&condition);
}
static void broadcast_end(void) {
    set_flag();
    pthread_cond_broadcast(&condition);
}

static void semaphore_wait(void) { sem_wait(&semaphore); }
static void semaphore_end(void) { sem_post(&semaphore); }

static pthread_barrier_t barrier;
static void make_barrier(void) { pthread_barrier_init(&barrier, NULL, 2); }
static void barrier_wait(void) { pthread_barrier_wait(&barrier); }

static void futex_hold(void) { __atomic_store_n(&word, 0, __ATOMIC_SEQ_CST); }
static void futex_wait(void) {
    while (__atomic_load_n(&word, __ATOMIC_SEQ_CST) == 0)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}
static void futex_end(void) {
    __atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

// The thread and the child end when they are told to.
static sem_t may_end;
static pthread_t thread_to_end;
static pid_t child_to_end;
static int to_child[2];
static atomic_int ender_tid;

static void *ends_with_its_thread(void *unused) {
    ender_tid = gettid();
    sem_wait(&may_end);
    return unused;
}
static void join_hold(void) {
    ender_tid = 0;
    pthread_create(&thread_to_end, NULL, ends_with_its_thread, NULL);
    while (ender_tid == 0)
        pause_us(100);
    printf("ender %d\n", ender_tid);
}
static void join_wait(void) { pthread_join(thread_to_end, NULL); }
static void join_end(void) { sem_post(&may_end); }

__attribute__((noinline)) static void child_ends_it(void) { _exit(0); }
static void child_hold(void) {
    char byte;
    if (pipe(to_child) != 0)
        fail("pipe");
    fflush(stdout);
    child_to_end = fork();
    if (child_to_end == 0) {
        close(to_child[1]);
        if (read(to_child[0], &byte, 1) < 0)
            _exit(1);
        child_ends_it();
    }
    close(to_child[0]);
    printf("ender %d\n", child_to_end);
}
static void child_wait(void) {
    if (waitpid(child_to_end, NULL, 0) != child_to_end)
        fail("waitpid");
}
static void any_child_wait(void) {
    if (wait(NULL) != child_to_end)
        fail("wait");
}
static void child_end(void) { close(to_child[1]); }

static const struct kind kinds[] = {
    {"mutex", mutex_hold, mutex_wait, mutex_end},
    {"write-behind-writer", write_hold, write_wait, rwlock_end},
    {"write-behind-reader", read_hold, write_wait, rwlock_end},
    {"read-behind-writer", write_hold, read_wait, rwlock_end},
    {"signal", nothing, condition_wait, signal_end},
    {"broadcast", nothing, condition_wait, broadcast_end},
    {"semaphore", nothing, semaphore_wait, semaphore_end},
    {"futex", futex_hold, futex_wait, futex_end},
    {"barrier", nothing, barrier_wait, barrier_wait, make_barrier},
    {"join", join_hold, join_wait, join_end},
    {"child", child_hold, child_wait, child_end},
    {"any-child", child_hold, any_child_wait, child_end},
};

