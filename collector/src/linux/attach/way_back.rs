//! How a thread that makes calls for us comes back to what it did, whoever is still there then.
//!
//! It returns from each call as from a signal handler. The code that it returns to notes the result, sends
//! the thread SIGURG, and has the kernel put its registers back (`rt_sigreturn`) from a frame that was
//! prepared before. The signal stops it for us. When the recorder has been killed meanwhile, the kernel drops
//! the signal: nobody handles it, or somebody who gets it unasked as well.

use std::io;

/// `UC_FP_XSTATE`, `UC_SIGCONTEXT_SS` and `UC_STRICT_RESTORE_SS` of Linux'
/// arch/x86/include/uapi/asm/ucontext.h.
const FLAGS: u64 = 1 | 2 | 4;
/// No flags of an alternate stack: the kernel leaves the one that there is (`do_sigaltstack`).
const NO_STACK: u64 = 0x7fff;
/// `FP_XSTATE_MAGIC1` and `FP_XSTATE_MAGIC2` of arch/x86/include/uapi/asm/sigcontext.h, and where its
/// `_fpx_sw_bytes` lie.
const MAGIC: (u32, u32) = (0x4650_5853, 0x4650_5845);
const SOFTWARE_BYTES: usize = 464;
/// `FXSAVE`'s part and the header behind it, whose first word names the components in use (Intel SDM volume
/// 1, 13.4).
const HEADER: usize = 512;
const LEAST_STATE: usize = HEADER + 64;
/// The components of AMX. The state of a process that has not asked for them has no room for them.
const AMX: u64 = 3 << 17;

/// `rt_sigframe` of arch/x86/include/asm/sigframe.h: the return address, a `ucontext` with 32 words of
/// registers and a word of signals, and a `siginfo`, which nobody reads here. Then the state of the vector
/// registers, at a multiple of 64.
const CONTEXT: usize = 8;
const RESULT: usize = CONTEXT + 40 + 256 + 8;
const FRAME_BYTES: usize = RESULT + 128;

/// The kernel's error codes for a call that begins again (include/linux/errno.h).
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];

pub(super) type Registers = libc::user_regs_struct;

/// The code, by its address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code(pub u64);

impl Code {
    #[rustfmt::skip]
    pub(super) const BYTES: [u8; 40] = [
        0x0f, 0x05,                 // syscall
        0xeb, 0x18,                 // jmp to the last but one
        0x48, 0x89, 0x03,           // mov %rax, (%rbx)
        0xb8, 186, 0, 0, 0,         // mov $SYS_gettid, %eax
        0x0f, 0x05,                 // syscall
        0x89, 0xc7,                 // mov %eax, %edi
        0xbe, 23, 0, 0, 0,          // mov $SIGURG, %esi
        0xb8, 200, 0, 0, 0,         // mov $SYS_tkill, %eax
        0x0f, 0x05,                 // syscall
        0xb8, 15, 0, 0, 0,          // mov $SYS_rt_sigreturn, %eax
        0x0f, 0x05,                 // syscall
        0, 0, 0, 0, 0,
    ];

    /// Makes a system call, then [`Code::leave`].
    pub(super) fn system_call(self) -> u64 {
        self.0
    }

    /// Where functions return to.
    fn returned(self) -> u64 {
        self.0 + 4
    }

    /// Has the kernel put the registers back. A function's end stops the thread here.
    pub(super) fn leave(self) -> u64 {
        self.0 + 28
    }
}

/// A frame, for memory that ends at an address that was chosen.
#[derive(Debug)]
pub(super) struct Frame {
    /// Where it begins: a function that is called has its return address there.
    pub at: u64,
    pub bytes: Vec<u8>,
}

impl Frame {
    /// The frame below `end` by which a thread goes on with these registers, vector registers (as
    /// `NT_X86_XSTATE` has them), and signals blocked.
    ///
    /// # Errors
    /// The vector registers are in a form that is not known.
    pub(super) fn new(
        code: Code,
        end: u64,
        registers: &Registers,
        vectors: &[u8],
        mask: u64,
    ) -> io::Result<Frame> {
        let state = vector_state(vectors)?;
        let state_at = (end - state.len() as u64) & !63;
        let at = state_at - FRAME_BYTES as u64;
        let now = after_a_handler(registers);
        let segments = now.cs | now.gs << 16 | now.fs << 32 | now.ss << 48;
        let words = [
            &[code.returned(), FLAGS, 0, 0, NO_STACK, 0][..],
            &[
                now.r8, now.r9, now.r10, now.r11, now.r12, now.r13, now.r14, now.r15,
            ],
            &[
                now.rdi, now.rsi, now.rbp, now.rbx, now.rdx, now.rax, now.rcx, now.rsp,
            ],
            &[now.rip, now.eflags, segments, 0, 0, 0, 0, state_at],
            &[0; 8],
            &[mask],
        ];
        let mut bytes: Vec<u8> = words
            .concat()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        debug_assert_eq!(bytes.len(), RESULT);
        bytes.resize(FRAME_BYTES, 0);
        bytes.extend(state);
        Ok(Frame { at, bytes })
    }

    /// The stack pointer of a thread that has returned to it.
    pub(super) fn stack_pointer(at: u64) -> u64 {
        at + CONTEXT as u64
    }

    /// Where the result of a call is noted.
    pub(super) fn result(at: u64) -> u64 {
        at + RESULT as u64
    }
}

/// The registers of a thread that goes on after a handler: a call that was interrupted begins again.
fn after_a_handler(registers: &Registers) -> Registers {
    let mut after = *registers;
    if registers.orig_rax as i64 >= 0 && RESTARTS.contains(&(registers.rax as i64)) {
        after.rax = registers.orig_rax;
        // The `syscall` instruction.
        after.rip -= 2;
    }
    after
}

/// The state of the vector registers in the form of a frame.
fn vector_state(vectors: &[u8]) -> io::Result<Vec<u8>> {
    let word = |at: usize| {
        let bytes = vectors.get(at..at + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (Some(known), Some(used)) = (word(SOFTWARE_BYTES), word(HEADER)) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let components = if used & AMX == 0 { known & !AMX } else { known };
    let ends = (2..63).filter(|i| components & 1 << i != 0).map(|i| {
        // Size and place of a component.
        let component = std::arch::x86_64::__cpuid_count(0xd, i);
        (component.ebx + component.eax) as usize
    });
    let length = ends.fold(LEAST_STATE, usize::max);
    let mut state = vectors
        .get(..length)
        .ok_or(io::ErrorKind::Unsupported)?
        .to_vec();
    state[SOFTWARE_BYTES..HEADER].fill(0);
    let software = [
        &MAGIC.0.to_le_bytes()[..],
        &(length as u32 + 4).to_le_bytes(),
        &components.to_le_bytes(),
        &(length as u32).to_le_bytes(),
    ];
    let software = software.concat();
    state[SOFTWARE_BYTES..SOFTWARE_BYTES + software.len()].copy_from_slice(&software);
    state.extend(MAGIC.1.to_le_bytes());
    Ok(state)
}
