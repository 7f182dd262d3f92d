// Stands in for an Android of API level 26: its property, and its filter as far as calls are concerned that it does not know and that
// neither this C library nor ART makes by itself. Whoever makes one ends with SIGSYS.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int __system_property_get(const char *name, char *value)
{
    if (strcmp(name, "ro.build.version.sdk"))
        return 0;
    strcpy(value, getenv("STACKBEAT_TEST_SDK"));
    return strlen(value);
}

#define WORD(at) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, at))
#define IF(value, then, other) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, then, other)

__attribute__((constructor)) static void begin(void)
{
    struct sock_filter filter[] = {
        WORD(nr),
        IF(SYS_close_range, 7, 0),
        IF(SYS_pidfd_open, 6, 0),
        IF(SYS_membarrier, 0, 4),
        // ART has commands of its own.
        WORD(args[0]),
        IF(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 3, 0),
        IF(MEMBARRIER_CMD_GLOBAL_EXPEDITED, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
    };
    struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        abort();
}
