//! What the crate fishhook uses of the crate mach2, over Linux. Only pages of the image that is given may be
//! changed.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Where the image lies: begin and end.
pub static IMAGE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

pub mod kern_return {
    pub const KERN_SUCCESS: i32 = 0;
    pub const KERN_INVALID_ADDRESS: i32 = 1;
}

pub mod vm_prot {
    pub const VM_PROT_READ: i32 = 1;
    pub const VM_PROT_WRITE: i32 = 2;
    pub const VM_PROT_COPY: i32 = 16;
}

pub mod vm_types {
    pub type mach_vm_address_t = u64;
    pub type mach_vm_size_t = u64;
}

pub mod traps {
    pub fn mach_task_self() -> u32 {
        1
    }
}

pub mod vm {
    use super::*;

    extern "C" {
        fn mprotect(address: usize, bytes: usize, protection: i32) -> i32;
    }

    /// # Safety
    /// The pages are an image's.
    pub unsafe fn mach_vm_protect(_: u32, address: u64, bytes: u64, _: i32, new: i32) -> i32 {
        let [begin, end] = [0, 1].map(|at: usize| IMAGE[at].load(Ordering::Relaxed));
        let (from, to) = (address as usize & !4095, (address + bytes) as usize);
        let wanted = new & !vm_prot::VM_PROT_COPY;
        if from < begin || to > end || mprotect(from, to - from, wanted) != 0 {
            return kern_return::KERN_INVALID_ADDRESS;
        }
        kern_return::KERN_SUCCESS
    }
}
