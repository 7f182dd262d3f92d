//! Whether the first instructions of a function on x86-64 can be moved elsewhere to make room for a jump.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use super::Refusal;

/// Looks at the instructions that a jump of `jump` bytes would replace or cut. `code` begins at `address`;
/// `size` is the function's, 0: not known.
pub(super) fn check(code: &[u8], address: u64, size: usize, jump: usize) -> Result<(), Refusal> {
    let mut decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    let mut bytes = 0;
    while bytes < jump {
        let instruction = decoder.decode();
        if instruction.is_invalid() || !is_moved_rightly(&instruction) {
            return Err(Refusal::NotRelocatable);
        }
        bytes += instruction.len();
        if leaves_for_good(&instruction) && bytes < jump && !is_padding(&code[bytes..jump]) {
            return Err(Refusal::TooShort {
                size: bytes,
                needed: jump,
            });
        }
    }
    let moved = address..address + bytes as u64;
    let mut rest = Decoder::with_ip(
        64,
        &code[..size.min(code.len())],
        address,
        DecoderOptions::NONE,
    );
    // What is no instruction ends the look: a table of jumps among the code is not code.
    let comes_back = rest
        .iter()
        .take_while(|i| !i.is_invalid())
        .filter(|i| i.flow_control() != FlowControl::Call)
        .any(|i| near_target(&i).is_some_and(|target| moved.contains(&target)));
    match comes_back {
        true => Err(Refusal::NotRelocatable),
        false => Ok(()),
    }
}

/// Dobby knows jumps and calls with 32-bit distances, and operands relative to `rip`. Of jumps with 8-bit
/// distances it has the unconditional one right.
fn is_moved_rightly(instruction: &Instruction) -> bool {
    near_target(instruction).is_none() || !is_short_and_conditional(instruction)
}

fn is_short_and_conditional(instruction: &Instruction) -> bool {
    instruction.is_jcc_short()
        || instruction.is_jcx_short()
        || instruction.is_loop()
        || instruction.is_loopcc()
}

/// Where a jump or call with a distance goes.
fn near_target(instruction: &Instruction) -> Option<u64> {
    (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64)
        .then(|| instruction.near_branch64())
}

fn leaves_for_good(instruction: &Instruction) -> bool {
    let flow = instruction.flow_control();
    matches!(
        flow,
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// What linkers put between functions. Nobody runs it.
fn is_padding(bytes: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let only = |byte| bytes.iter().all(|&b| b == byte);
    only(0) || only(0xcc) || decoder.iter().all(|i| i.is_invalid() || is_nop(&i))
}

fn is_nop(instruction: &Instruction) -> bool {
    use iced_x86::Mnemonic;
    matches!(instruction.mnemonic(), Mnemonic::Nop)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x1000;

    fn of(code: &[u8]) -> Result<(), Refusal> {
        check(code, AT, code.len(), 6)
    }

    #[test]
    fn what_is_moved_and_what_is_not() {
        // push rbp; mov rbp, rsp; sub rsp, 16
        assert_eq!(
            of(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10]),
            Ok(())
        );
        // mov eax, [rip + 0x100]; ret
        assert_eq!(of(&[0x8b, 0x05, 0, 1, 0, 0, 0xc3]), Ok(()));
        // cmp edi, 3; jg +0x13; …
        let short = [0x83, 0xff, 0x03, 0x7f, 0x13, 0x8b, 0x05, 0, 0, 0, 0];
        assert_eq!(of(&short), Err(Refusal::NotRelocatable));
        // jrcxz +2
        assert_eq!(
            of(&[0xe3, 2, 0x90, 0x90, 0x90, 0x90]),
            Err(Refusal::NotRelocatable)
        );
    }

    #[test]
    fn a_function_that_ends_early_needs_padding_behind_it() {
        let ends = |rest: [u8; 4]| {
            let mut code = vec![0x31, 0xc0, 0xc3];
            code.extend(rest);
            check(&code, AT, 0, 6)
        };
        assert_eq!(ends([0xcc; 4]), Ok(()));
        // nopw [rax + rax]: cut, still padding
        assert_eq!(ends([0x0f, 0x1f, 0x40, 0x00]), Ok(()));
        let short = Refusal::TooShort { size: 3, needed: 6 };
        assert_eq!(ends([0x55, 0x48, 0x89, 0xe5]), Err(short));
    }

    #[test]
    fn a_jump_back_among_the_first_bytes_is_seen() {
        // push rbx; nop; dec edi; nop; nop; jnz to the nop at 1; ret
        let code = [0x53, 0x90, 0xff, 0xcf, 0x90, 0x90, 0x75, 0xf9, 0xc3];
        assert_eq!(
            check(&code, AT, code.len(), 6),
            Err(Refusal::NotRelocatable)
        );
        // A function that calls itself does no harm: push rbx; nop; dec edi; nop; nop; call to the push; ret
        let code = [
            0x53, 0x90, 0xff, 0xcf, 0x90, 0x90, 0xe8, 0xf5, 0xff, 0xff, 0xff, 0xc3,
        ];
        assert_eq!(check(&code, AT, code.len(), 6), Ok(()));
    }
}
