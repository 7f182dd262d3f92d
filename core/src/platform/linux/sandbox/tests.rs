//! Filters of seccomp, and what the agent makes of them.

use super::*;
use crate::platform::filter::evaluate;
use std::vec::Vec;

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const u64,
}

fn op(code: u16, jump_true: u8, jump_false: u8, constant: u32) -> u64 {
    let instruction = Instruction {
        code,
        jump_true,
        jump_false,
        constant,
    };
    instruction.word()
}

const RET: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// What is noted of a filter, and forgotten when the kernel has not taken it.
#[test]
fn filters_are_noted_and_forgotten() {
    let number = |n: i64| op(0x15, 0, 1, n as u32);
    let words = [
        op(0x20, 0, 0, 0),
        number(libc::SYS_getpid),
        op(RET, 0, 0, 0),
        op(RET, 0, 0, ALLOW),
    ];
    let program = Program {
        length: 4,
        instructions: words.as_ptr(),
    };
    let at = (&raw const program) as u64;
    let pid = platform::process_id();
    let candidate = Candidate::read(at).expect("readable");
    assert!(!candidate.allows(libc::SYS_getpid, &[0; 6]));
    assert!(candidate.allows(libc::SYS_gettid, &[0; 6]));
    assert!(allows(libc::SYS_getpid, &[0; 6]) && !is_filtered());
    candidate.apply();
    assert!(is_filtered() && !allows(libc::SYS_getpid, &[0; 6]));
    assert!(allows(libc::SYS_gettid, &[0; 6]));
    assert_eq!(platform::process_id(), pid, "known from before");
    let second = Candidate::read(at).expect("readable");
    second.apply();
    second.discard();
    assert!(!allows(libc::SYS_getpid, &[0; 6]));
    candidate.discard();
    assert!(allows(libc::SYS_getpid, &[0; 6]) && !is_filtered());

    for wrong in [0, 1, u64::MAX - 7] {
        assert_eq!(Candidate::read(wrong).err(), Some(NotNoted::Invalid));
    }
    let empty = Program {
        length: 0,
        instructions: words.as_ptr(),
    };
    let nowhere = Program {
        length: 4,
        instructions: core::ptr::without_provenance(8),
    };
    for wrong in [&empty, &nowhere] {
        let at = core::ptr::from_ref(wrong) as u64;
        assert_eq!(Candidate::read(at).err(), Some(NotNoted::Invalid));
    }
    assert!(!is_filtered());
}

/// A call that nobody makes here and that fails harmlessly.
const TRIED: i64 = libc::SYS_getpriority;

/// A program of random instructions for `TRIED` whose result is an error number.
fn random_program(random: &mut impl FnMut() -> u64) -> Vec<u64> {
    let mut words = std::vec![
        op(0x20, 0, 0, 0),
        op(0x15, 1, 0, TRIED as u32),
        op(RET, 0, 0, ALLOW),
        // All of the memory is written before it is read.
        op(0x02, 0, 0, 0),
        op(0x02, 0, 0, 1),
    ];
    let length = 3 + random() % 20;
    for left in (0..length).rev() {
        let k = random() as u32;
        // Not past the end, where the result is made.
        let jump = |random: &mut dyn FnMut() -> u64| (random() % (left + 1)) as u8;
        let word = match random() % 8 {
            0 => op(0x20, 0, 0, k % 16 * 4),
            1 => op([0x02, 0x03][k as usize % 2], 0, 0, k >> 8 & 1),
            2 => op([0x60, 0x61][k as usize % 2], 0, 0, k >> 8 & 1),
            3 => op(
                [0x07, 0x87, 0x80, 0x81, 0x00, 0x01][k as usize % 6],
                0,
                0,
                k,
            ),
            4 | 5 => {
                let codes = [
                    0x04, 0x0c, 0x14, 0x1c, 0x24, 0x2c, 0x44, 0x4c, 0x54, 0x5c, 0xa4, 0xac, 0x84,
                ];
                op(codes[k as usize % codes.len()], 0, 0, k >> 4)
            }
            6 => op([0x34, 0x64, 0x74][k as usize % 3], 0, 0, 1 + (k >> 8) % 31),
            _ => {
                let codes = [0x15, 0x1d, 0x25, 0x2d, 0x35, 0x3d, 0x45, 0x4d];
                let code = codes[k as usize % codes.len()];
                op(code, jump(random), jump(random), k % 8)
            }
        };
        words.push(word);
    }
    words.extend([
        op(0x54, 0, 0, 0xfff),
        op(0x44, 0, 0, ERRNO),
        op(0x16, 0, 0, 0),
    ]);
    words
}

/// The kernel runs the same programs with the same results.
#[test]
fn the_kernel_says_the_same() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut compared = 0;
    for _ in 0..60 {
        let words = random_program(&mut random);
        let arguments: [usize; 6] = core::array::from_fn(|i| match i {
            0 => 77,
            _ => random() as usize,
        });
        // A filter is its thread's alone.
        let thread = std::thread::spawn(move || {
            let program = Program {
                length: words.len() as u16,
                instructions: words.as_ptr(),
            };
            // SAFETY: a filter for this thread; the call that it answers has no effect.
            let errno = unsafe {
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                let filter = libc::SECCOMP_MODE_FILTER;
                if libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program) != 0 {
                    return false;
                }
                let [a, b, c, d, e, f] = arguments;
                match libc::syscall(TRIED, a, b, c, d, e, f) {
                    0 => 0,
                    _ => *libc::__errno_location(),
                }
            };
            let call = Call {
                number: TRIED as i32,
                architecture: ARCHITECTURE,
                instruction_pointer: 0,
                arguments: arguments.map(|a| a as u64),
            };
            let instruction = |i: usize| words.get(i).copied().map(Instruction::from_word);
            // The instruction pointer is not known here.
            if words.contains(&op(0x20, 0, 0, 8)) || words.contains(&op(0x20, 0, 0, 12)) {
                return false;
            }
            let result = evaluate(words.len(), instruction, &call);
            assert_eq!(result, ERRNO | errno as u32, "{words:x?} {arguments:x?}");
            true
        });
        compared += u32::from(thread.join().expect("the results are equal"));
    }
    assert!(compared > 20, "{compared}");
}

/// A child of a raw `clone` is noticed in a capture, which is a call under way.
#[test]
fn a_child_that_is_noticed_inside_of_a_call_has_none_under_way_after_it() {
    // SAFETY: the child calls what signal handlers may call, and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let call = UnderWay::begin();
            after_fork();
            call.end();
            let mut calls = CALLS.as_flattened().iter();
            libc::_exit(
                calls
                    .any(|calls| calls.0.load(Ordering::SeqCst) != 0)
                    .into(),
            );
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}
