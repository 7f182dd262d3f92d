//! Captures that a counter asks for (`agent::event_sampling`).

use super::{Capture, Request};
use crate::agent::event_sampling::Kind;
use crate::agent::is_category_enabled;
use crate::agent::session;
use crate::probe::Category;
use crate::sync::Ordering;
use crate::system_call::SystemCall;
use crate::unwind::Registers;

impl Capture<'_> {
    /// Beside the ticks: what a tick finds is the same with and without this capture.
    pub(super) fn run_sampled_event(self, kind: Kind, registers: &Registers) -> u32 {
        let interval_ns = self.control.sampling_interval_ns(self.entry);
        let is_enabled = match kind {
            // Of files and of sockets.
            Kind::Calls(call) if call.is_bytes() => {
                is_category_enabled(Category::Io) || is_category_enabled(Category::Net)
            }
            // Of whatever waits.
            Kind::Calls(SystemCall::WakeUps) => true,
            Kind::Calls(call) => is_category_enabled(call.category()),
            _ => is_category_enabled(self.request.probe.category()),
        };
        let is_on =
            self.control.switch.load(Ordering::Relaxed) == 1 && is_enabled && interval_ns != 0;
        let (block, entry) = (self.block, self.entry);
        let event_sampling = &mut self.scratch.event_sampling;
        if !is_on {
            event_sampling.rest(kind, block, entry);
            return 0;
        }
        let Some(amount) = event_sampling.draw(kind, block, entry, interval_ns) else {
            return 0;
        };
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
        .capture(registers, session::now())
    }
}
