static const struct kind *kind;
static int rounds;

__attribute__((noinline)) static void waits_for_it(void) {
    kind->wait();
    asm volatile("");
}

__attribute__((noinline)) static void ends_it(void) {
    kind->end();
    asm volatile("");
}

static void *waiter(void *unused) {
    pthread_setname_np(pthread_self(), "waiter");
    shared->waiter_tid = gettid();
    for (int round = 1; round <= rounds; round++) {
        while (shared->round_begun < round)
            pause_us(200);
        shared->is_entering = 1;
        waits_for_it();
        shared->is_entering = 0;
        shared->round_done = round;
    }
    return unused;
}

static void *waker(void *unused) {
    pthread_setname_np(pthread_self(), "waker");
    printf("waker %d\n", gettid());
    for (int round = 1; round <= rounds; round++) {
        kind->hold();
        shared->round_begun = round;
        while (!shared->is_entering || !is_asleep(shared->waiter_tid))
            pause_us(200);
        pause_us(2000);
        ends_it();
        while (shared->round_done < round)
            pause_us(200);
    }
    return unused;
}

// Lets go of other things all the time: none of the waits is its doing.
static atomic_int is_over;
static void *bystander(void *unused) {
    pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;
    pthread_rwlock_t other_rwlock = PTHREAD_RWLOCK_INITIALIZER;
    pthread_cond_t other_condition = PTHREAD_COND_INITIALIZER;
    sem_t other_semaphore;
    int other_word = 0, other_pipe[2], other_event = eventfd(0, 0);
    uint64_t one = 1;
    char byte = 0;
    if (pipe(other_pipe) != 0)
        fail("pipe");
    sem_init(&other_semaphore, 0, 0);
    pthread_setname_np(pthread_self(), "bystander");
    while (!is_over) {
        pthread_mutex_lock(&other);
        pthread_mutex_unlock(&other);
        pthread_rwlock_wrlock(&other_rwlock);
        pthread_rwlock_unlock(&other_rwlock);
        pthread_cond_broadcast(&other_condition);
        sem_post(&other_semaphore);
        sem_wait(&other_semaphore);
        syscall(SYS_futex, &other_word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        if (write(other_pipe[1], &byte, 1) != 1 || read(other_pipe[0], &byte, 1) != 1 ||
            write(other_event, &one, 8) != 8 || read(other_event, &one, 8) != 8)
            fail("bystander");
        pause_us(100);
    }
    return unused;
}

int main(int count, char **arguments) {
    if (count != 3 && count != 4)
        return 2;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
    rounds = atoi(arguments[2]);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, arguments[1]) == 0)
            kind = &kinds[i];
    if (kind == NULL)
        return 2;
    if (kind->prepare != NULL)
        kind->prepare();
    pid_t child = count == 4 ? fork() : -1;
    if (child == 0) {
        while (shared->waiter_tid == 0)
            pause_us(100);
        waker(NULL);
        return 0;
    }
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, waiter, NULL);
    while (shared->waiter_tid == 0)
        pause_us(100);
    printf("waiter %d\n", shared->waiter_tid);
    fflush(stdout);
    if (child < 0)
        pthread_create(&threads[1], NULL, waker, NULL);
    pthread_create(&threads[2], NULL, bystander, NULL);
    pthread_join(threads[0], NULL);
    if (child < 0)
        pthread_join(threads[1], NULL);
    else
        waitpid(child, NULL, 0);
    is_over = 1;
    pthread_join(threads[2], NULL);
    return 0;
}
