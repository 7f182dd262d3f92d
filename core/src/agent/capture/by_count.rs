//! Captures that a counter asks for (`agent::counted`).

use super::{Capture, Request};
use crate::agent::counted::Kind;
use crate::agent::{is_category_enabled, process};
use crate::sync::Ordering;
use crate::unwind::Registers;

impl Capture<'_> {
    /// Beside the ticks: what a tick finds is the same with and without this capture.
    pub(super) fn run_counted(self, kind: Kind, registers: &Registers) -> u32 {
        let interval_ns = self.interval_ns();
        let category = match kind {
            Kind::Calls(call) => call.category(),
            _ => self.request.probe.category(),
        };
        let is_on = self.control.switch.load(Ordering::Relaxed) == 1
            && is_category_enabled(category)
            && interval_ns != 0;
        let (block, entry) = (self.block, self.entry);
        let counted = &mut self.scratch.counted;
        if !is_on {
            counted.rest(kind, block, entry);
            return 0;
        }
        if !counted.draw(kind, block, entry, interval_ns) {
            return 0;
        }
        let amount = counted.take(kind, entry);
        let request = Request {
            arg: match kind {
                Kind::Calls(call) => Some((call as u64, amount as i64)),
                _ => None,
            },
            ..Request::point(self.request.probe)
        };
        Capture {
            request: &request,
            ..self
        }
        .capture(registers, process::now())
    }
}
