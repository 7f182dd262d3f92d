//! A program that faults all the time and handles it, as virtual machines do, can be attached to: its
//! handlers stay, and its faults are no answer to a call of ours.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use stackbeat_tests::{Background, compile, scratch};

use stackbeat_tests::tool::{stackbeat, text};

/// Threads that fault: half of them leave the handler by a jump, half have it step over the instruction. The
/// end of the input ends the program.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
#include <unistd.h>
static __thread sigjmp_buf back;
static __thread int jumps;
static void spin(void) { for (volatile int i = 0; i < 2000; i++); }
static void on_fault(int number, siginfo_t *info, void *context) {
    spin();
    if (info->si_addr > (void *)8) abort();
    if (jumps) siglongjmp(back, 1);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 7;
}
static void *faults(void *number) {
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    jumps = (long)number & 1;
    for (;;) {
        if (!jumps) __asm__ volatile("xor %%eax, %%eax\n\tmovl $1, (%%rax)\n\tnop" ::: "rax", "memory");
        else if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
        spin();
    }
}
int main(int count, char **arguments) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | (count > 1 ? SA_ONSTACK : 0)};
    sigaction(SIGSEGV, &action, 0);
    pthread_t thread;
    for (long i = 0; i < 3; i++) pthread_create(&thread, 0, faults, (void *)i);
    if (write(1, "running\n", 8) != 8) return 9;
    faults((void *)3);
}
"#;

/// Attach sessions of each program.
const SESSIONS: usize = 2;

#[test]
fn programs_that_fault_can_be_attached_to() {
    let folder = scratch();
    let program = compile(folder.path(), "faults.c", PROGRAM, &["-O1", "-pthread"]);
    for arguments in [&[][..], &["on another stack"]] {
        let mut command = Command::new(&program);
        let child = command.args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = Background(child.expect("starts"));
        let mut line = String::new();
        let mut said = BufReader::new(child.0.stdout.take().expect("is piped"));
        said.read_line(&mut line).expect("reads");
        let pid = child.0.id().to_string();
        for _ in 0..SESSIONS {
            let options = ["attach", "-f", "-o", "t.beat", "--duration", "50ms", &pid];
            let output = stackbeat(folder.path(), &options);
            assert!(output.status.success(), "{}", text(&output.stderr));
            assert_eq!(child.0.try_wait().expect("is ours"), None, "it runs on");
        }
    }
}
