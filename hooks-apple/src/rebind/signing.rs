//! Signs pointers as dyld does for arm64e (`ChainedFixupPointerOnDisk::Arm64e::signPointer` of dyld 1378).
//!
//! A process of an arm64 program has no arm64e images: the kernel gives it other keys, and dyld loads images
//! of its own kind. So a build for arm64 refuses signed slots, and only one for arm64e signs.

use crate::macho::Authentication;

/// A signed pointer for the slot at an address. `None`: this build cannot sign.
#[cfg(not(all(target_arch = "aarch64", target_feature = "paca")))]
pub(super) fn sign(_pointer: u64, _slot: u64, _how: Authentication) -> Option<u64> {
    None
}

/// A signed pointer for the slot at an address.
#[cfg(all(target_arch = "aarch64", target_feature = "paca"))]
pub(super) fn sign(mut pointer: u64, slot: u64, how: Authentication) -> Option<u64> {
    use crate::macho::Key;
    use core::arch::asm;

    // `ptrauth_blend_discriminator` puts the constant into the upper 16 bits of the address.
    let discriminator = match how.has_address {
        true => slot & 0x0000_ffff_ffff_ffff | u64::from(how.diversity) << 48,
        false => how.diversity.into(),
    };
    // SAFETY: changes the register only.
    unsafe {
        match how.key {
            Key::InstructionA => asm!("pacia {}, {}", inout(reg) pointer, in(reg) discriminator),
            Key::InstructionB => asm!("pacib {}, {}", inout(reg) pointer, in(reg) discriminator),
            Key::DataA => asm!("pacda {}, {}", inout(reg) pointer, in(reg) discriminator),
            Key::DataB => asm!("pacdb {}, {}", inout(reg) pointer, in(reg) discriminator),
        }
    }
    Some(pointer)
}
