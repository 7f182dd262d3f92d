//! libmalloc's logger: libmalloc calls it at each allocation, also at those inside the dyld shared cache,
//! which pass no slot.
//!
//! Source: libmalloc's private/stack_logging.h has the type and the kinds, src/malloc.c calls it after an
//! allocation and before a block is given back, with no lock of a zone held. One function at a time can be
//! the logger: where another tool has put its own there, it stays, and hooks count allocations.

use stackbeat_core::agent;
use stackbeat_core::probe::Probe;

use super::logger::Logger;
use super::symbols::MALLOC_LOGGER;

/// stack_logging.h: `stack_logging_type_alloc`, `…_dealloc`, `stack_logging_flag_zone`, `…_cleared`.
const ALLOC: u32 = 2;
const DEALLOC: u32 = 4;
const ZONE: u32 = 8;
const CLEARED: u32 = 64;

pub(super) static LOGGER: Logger = Logger {
    variable: &MALLOC_LOGGER,
    function: logger,
};

/// `malloc_logger_t`. The zone comes first where the kind says so, then a block, or bytes of one, or both.
unsafe extern "C" fn logger(
    kind: u32,
    zone_or_first: usize,
    second: usize,
    third: usize,
    result: usize,
    _hot_frames: u32,
) {
    let [first, second] = match kind & ZONE {
        0 => [zone_or_first, second],
        _ => [second, third],
    };
    match (kind & ALLOC != 0, kind & DEALLOC != 0) {
        (true, true) => {
            if first != 0 {
                agent::freed();
            }
            if result != 0 {
                agent::allocated(Probe::Realloc, second);
            }
        }
        (true, false) if result != 0 => {
            let probe = match kind & CLEARED {
                0 => Probe::Malloc,
                _ => Probe::Calloc,
            };
            agent::allocated(probe, first);
        }
        (false, true) if first != 0 => agent::freed(),
        _ => {}
    }
}
