#include "show.h"
#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

int main(int argc, char **argv) {
    const char *path = argv[1];
    char buffer[64];
    volatile size_t four = 4;
    struct stat st;
    (void)argc;
    unlink(path);
    umask(022);
    SHOW(open(path, O_RDONLY));
    int f = open(path, O_CREAT | O_RDWR | O_EXCL, 0666);
    SHOW_TRUE(f >= 0);
    SHOW(fstat(f, &st));
    SHOW(st.st_mode);
    SHOW(write(f, "0123456789", 10));
    SHOW(pwrite(f, "ab", 2, 4));
    SHOW(lseek(f, 0, SEEK_SET));
    SHOW(read(f, buffer, four));
    SHOW(pread(f, buffer, four, 3));
    printf("%.4s\n", buffer);
    struct iovec parts[2] = {{buffer, 3}, {buffer + 10, 3}};
    SHOW(readv(f, parts, 2));
    SHOW(preadv(f, parts, 2, 0));
    SHOW(preadv2(f, parts, 2, 0, 0));
    SHOW(writev(f, parts, 2));
    SHOW(pwritev(f, parts, 2, 1));
    SHOW(pwritev2(f, parts, 2, -1, 0));
    SHOW(fsync(f));
    SHOW(fdatasync(f));
    SHOW(syncfs(-1));
    SHOW(read(-1, buffer, four));
    SHOW(write(-1, buffer, four));
    SHOW(close(-1));
    SHOW(fcntl(f, F_GETFD));
    SHOW(fcntl(f, F_SETFD, FD_CLOEXEC));
    SHOW(fcntl(f, F_GETFD));
    SHOW_TRUE(fcntl(f, F_DUPFD_CLOEXEC, 100) >= 100);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    SHOW(fcntl(f, F_SETLKW, &lock));
    SHOW(fcntl(f, F_GETLK, &lock));
    SHOW(lock.l_type == F_UNLCK);
    SHOW(flock(f, LOCK_EX));
    SHOW(lockf(f, F_TEST, 1));
    SHOW(stat(path, &st));
    SHOW(st.st_size);
    SHOW(lstat("/nonexistent", &st));
    SHOW(fstatat(AT_FDCWD, path, &st, 0));
    struct statx sx;
    SHOW(statx(AT_FDCWD, path, 0, STATX_SIZE, &sx));
    SHOW(sx.stx_size);
    int p[2], q[2];
    if (pipe(p) || pipe(q)) return 1;
    lseek(f, 0, SEEK_SET);
    off_t at = 2;
    SHOW(sendfile(p[1], f, &at, 5));
    SHOW(at);
    SHOW(splice(p[0], NULL, q[1], NULL, 3, 0));
    SHOW(tee(p[0], q[1], 2, 0));
    SHOW(vmsplice(q[1], parts, 1, 0));
    SHOW(read(q[0], buffer, sizeof buffer));
    fcntl(p[0], F_SETFL, O_NONBLOCK);
    SHOW(read(p[0], buffer, sizeof buffer));
    SHOW(read(p[0], buffer, sizeof buffer));
    int d = openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY);
    SHOW_TRUE(d >= 0);
    SHOW_TRUE(openat(d, "dev/null", O_RDWR) >= 0);
    volatile int flags = O_RDONLY;
    SHOW_TRUE(open("/dev/null", flags) >= 0);
    SHOW_TRUE(creat(path, 0600) >= 0);
    SHOW(msync(0, 0, MS_SYNC));
    int c = open(path, O_RDWR);
    SHOW(copy_file_range(f, NULL, c, NULL, 0, 0));
    SHOW(close_range(3, UINT_MAX, 0));
    SHOW(close(f));
    FILE *file = fopen(path, "w");
    SHOW_TRUE(file);
    SHOW(fwrite("through stdio", 1, 13, file));
    SHOW(fclose(file));
    SHOW(unlink(path));
    return 0;
}
