#include "show.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(void) {
    int s[2];
    char buffer[64];
    volatile size_t room = sizeof buffer;
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    SHOW(send(s[0], "hello", 5, 0));
    SHOW(recv(s[1], buffer, room, 0));
    SHOW(recv(s[1], buffer, room, MSG_DONTWAIT));
    SHOW(sendto(s[0], "x", 1, 0, NULL, 0));
    SHOW(recvfrom(s[1], buffer, room, 0, NULL, NULL));
    struct iovec part = {buffer, 5};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    SHOW(sendmsg(s[0], &m, 0));
    SHOW(recvmsg(s[1], &m, 0));
    struct mmsghdr mm[1] = {{.msg_hdr = m}};
    SHOW(sendmmsg(s[0], mm, 1, 0));
    SHOW(recvmmsg(s[1], mm, 1, 0, NULL));
    int value = 0;
    socklen_t bytes = sizeof value;
    SHOW(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &value, &bytes));
    SHOW(value);
    SHOW(setsockopt(s[0], SOL_SOCKET, 9999, &value, bytes));

    int l = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    SHOW(bind(l, (void *)&a, sizeof a));
    bytes = sizeof a;
    getsockname(l, (void *)&a, &bytes);
    int c = socket(AF_INET, SOCK_STREAM, 0);
    SHOW(connect(c, (void *)&a, sizeof a));
    SHOW(listen(l, 1));
    SHOW(connect(c, (void *)&a, sizeof a));
    int e = accept(l, NULL, NULL);
    SHOW_TRUE(e >= 0);
    SHOW(accept4(-1, NULL, NULL, 0));
    SHOW(send(c, "over tcp", 8, 0));
    SHOW(read(e, buffer, room));

    struct pollfd p = {e, POLLIN, 0};
    SHOW(poll(&p, 1, 10));
    SHOW(ppoll(&p, 1, &(struct timespec){0, 1000}, NULL));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(e, &set);
    struct timeval tv = {0, 5000};
    SHOW(select(e + 1, &set, NULL, NULL, &tv));
    SHOW(tv.tv_usec);
    SHOW(pselect(0, NULL, NULL, NULL, &(struct timespec){0, 1000}, NULL));
    SHOW(select(-1, NULL, NULL, NULL, NULL));
    /* What leads nowhere is the kernel's to refuse. */
    void *volatile nowhere = (void *)64;
    SHOW(poll(nowhere, 1, 10));
    SHOW(poll(nowhere, 0, 10));
    SHOW(ppoll(nowhere, 40, &(struct timespec){0, 1000}, NULL));
    SHOW(select(e + 1, nowhere, NULL, NULL, &tv));
    SHOW(connect(c, nowhere, sizeof a));
    SHOW(connect(c, nowhere, 0));
    int ep = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.fd = e}}, got;
    SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, e, &event));
    SHOW(epoll_wait(ep, &got, 1, 5));
    send(c, "z", 1, 0);
    SHOW(epoll_pwait(ep, &got, 1, -1, NULL));
    SHOW(epoll_pwait2(ep, &got, 1, &(struct timespec){1, 0}, NULL));
    SHOW(epoll_wait(-1, &got, 1, 5));
    SHOW(close(c));
    SHOW(recv(e, buffer, room, 0));
    SHOW(recv(e, buffer, room, 0));
    return 0;
}
