static int ends[2], others[2], event, poll_set, listening;
static struct sockaddr_storage address;
static socklen_t address_bytes;

static void write_byte(int file) {
    if (write(file, "x", 1) != 1)
        fail("write");
}
static void read_byte(int file) {
    char byte;
    if (read(file, &byte, 1) != 1)
        fail("read");
}

static void make_pipes(void) {
    if (pipe(ends) != 0 || pipe(others) != 0)
        fail("pipe");
}
static void pipe_wait(void) { read_byte(ends[0]); }
static void pipe_end(void) { write_byte(ends[1]); }

// A timer's handler runs inside of the wait again and again, and passes hooks.
static sem_t posted;
static void post(int signal) {
    struct timespec now;
    (void)signal;
    clock_gettime(CLOCK_MONOTONIC, &now);
    sem_post(&posted);
}
static void make_alarm(void) {
    make_pipes();
    sem_init(&posted, 0, 0);
    struct sigaction action = {.sa_handler = post, .sa_flags = SA_RESTART};
    if (sigaction(SIGALRM, &action, NULL) != 0)
        fail("sigaction");
}
static void alarmed_wait(void) {
    struct sigevent here = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
    struct itimerspec often = {{0, 300000}, {0, 300000}};
    timer_t timer;
    here._sigev_un._tid = syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &here, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0)
        fail("timer");
    read_byte(ends[0]);
    timer_delete(timer);
}

static void close_wait(void) {
    char byte;
    if (read(ends[0], &byte, 1) != 0)
        fail("read");
    close(ends[0]);
}
static void close_end(void) { close(ends[1]); }

static void poll_one_wait(void) {
    struct pollfd file = {ends[0], POLLIN, 0};
    if (poll(&file, 1, -1) != 1)
        fail("poll");
    read_byte(ends[0]);
}
static void poll_wait(void) {
    struct pollfd files[3] = {{others[0], POLLIN, 0}, {event, POLLIN, 0}, {ends[0], POLLIN, 0}};
    if (poll(files, 3, 60000) != 1 || files[2].revents != POLLIN)
        fail("poll");
    read_byte(ends[0]);
}
static void select_wait(void) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(others[0], &set);
    FD_SET(ends[0], &set);
    if (select(FD_SETSIZE, &set, NULL, NULL, NULL) != 1 || !FD_ISSET(ends[0], &set))
        fail("select");
    read_byte(ends[0]);
}
static void watch(int file) {
    struct epoll_event wanted = {EPOLLIN, {.u64 = 0x100000000 | file}};
    if (epoll_ctl(poll_set, EPOLL_CTL_ADD, file, &wanted) != 0)
        fail("epoll_ctl");
}
static void make_epoll(void) {
    make_pipes();
    event = eventfd(0, 0);
    poll_set = epoll_create1(0);
    watch(others[0]);
    watch(ends[0]);
    watch(event);
}
static void make_two_epolls(void) {
    make_epoll();
    // The other one is added to last, and nobody waits there.
    int first = poll_set;
    poll_set = epoll_create1(0);
    watch(ends[0]);
    poll_set = first;
}
static int epoll(void) {
    struct epoll_event got[4];
    if (epoll_wait(poll_set, got, 4, -1) != 1)
        fail("epoll_wait");
    return (int)got[0].data.u64;
}
static void epoll_pipe_wait(void) { read_byte(epoll()); }

static void event_wait(void) {
    uint64_t value;
    if (read(event, &value, 8) != 8)
        fail("read");
}
static void event_end(void) {
    uint64_t one = 1;
    if (write(event, &one, 8) != 8)
        fail("write");
}
static void epoll_event_wait(void) {
    if (epoll() != event)
        fail("event");
    event_wait();
}
static void call_event_end(void) { eventfd_write(event, 1); }

static void make_pair(void) {
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
        fail("socketpair");
}
static void receive_wait(void) {
    char byte;
    if (recv(ends[0], &byte, 1, 0) != 1)
        fail("recv");
}
static void send_end(void) {
    if (send(ends[1], "x", 1, 0) != 1)
        fail("send");
}
static void make_epoll_pair(void) {
    make_pair();
    poll_set = epoll_create1(0);
    watch(ends[0]);
}
static void epoll_pair_wait(void) {
    epoll();
    receive_wait();
}

static void listens(int domain) {
    struct sockaddr_un *local = (void *)&address;
    struct sockaddr_in *inet = (void *)&address;
    address.ss_family = domain;
    address_bytes = domain == AF_UNIX ? sizeof *local : sizeof *inet;
    if (domain == AF_UNIX)
        // No file: a name that begins with NUL.
        snprintf(local->sun_path + 1, sizeof local->sun_path - 1, "stackbeat-test-%d", getpid());
    else
        inet->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listening = socket(domain, SOCK_STREAM, 0);
    if (bind(listening, (void *)&address, address_bytes) != 0 || listen(listening, 8) != 0 ||
        getsockname(listening, (void *)&address, &address_bytes) != 0)
        fail("listen");
}
static void connects(int domain) {
    listens(domain);
    ends[1] = socket(domain, SOCK_STREAM, 0);
    if (connect(ends[1], (void *)&address, address_bytes) != 0)
        fail("connect");
    ends[0] = accept(listening, NULL, NULL);
}
static void listen_tcp(void) { listens(AF_INET); }
static void listen_unix(void) { listens(AF_UNIX); }
static void make_tcp(void) { connects(AF_INET); }
static void make_unix(void) { connects(AF_UNIX); }
static void accept_wait(void) {
    int file = accept(listening, NULL, NULL);
    if (file < 0)
        fail("accept");
    close(file);
}
static void connect_end(void) {
    int file = socket(address.ss_family, SOCK_STREAM, 0);
    if (connect(file, (void *)&address, address_bytes) != 0)
        fail("connect");
    close(file);
}

// A child has the only other end.
__attribute__((noinline)) static void child_ends_it(void) { _exit(0); }
static void child_hold(void) {
    int order[2];
    if (pipe(ends) != 0 || pipe(order) != 0)
        fail("pipe");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(order[1]);
        read_byte(order[0]);
        child_ends_it();
    }
    close(ends[1]);
    close(order[0]);
    ends[1] = order[1];
    printf("ender %d\n", child);
}

static const struct kind kinds[] = {
    {"pipe", nothing, pipe_wait, pipe_end, make_pipes},
    {"alarmed-pipe", nothing, alarmed_wait, pipe_end, make_alarm},
    {"close", make_pipes, close_wait, close_end},
    {"poll-one", nothing, poll_one_wait, pipe_end, make_pipes},
    {"poll", nothing, poll_wait, pipe_end, make_epoll},
    {"select", nothing, select_wait, pipe_end, make_pipes},
    {"epoll-pipe", nothing, epoll_pipe_wait, pipe_end, make_epoll},
    {"epoll-two-sets", nothing, epoll_pipe_wait, pipe_end, make_two_epolls},
    {"event", nothing, event_wait, event_end, make_epoll},
    {"epoll-event", nothing, epoll_event_wait, call_event_end, make_epoll},
    {"socketpair", nothing, receive_wait, send_end, make_pair},
    {"epoll-socketpair", nothing, epoll_pair_wait, pipe_end, make_epoll_pair},
    {"tcp", nothing, receive_wait, send_end, make_tcp},
    {"unix", nothing, receive_wait, send_end, make_unix},
    {"accept-tcp", nothing, accept_wait, connect_end, listen_tcp},
    {"accept-unix", nothing, accept_wait, connect_end, listen_unix},
    {"child-exit", child_hold, close_wait, pipe_end},
};

