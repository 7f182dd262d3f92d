//! The capture itself: of a thread that takes part, whatever asks for it.

mod forced;
mod guard;
mod request;
mod sampled_event;

use super::capture_cost;
pub(super) use guard::Guard;
pub(super) use request::{More, Request};

use super::kernel_clock;
use super::own_stack;
use super::registered;
use super::scratch::{self, Scratch};
use super::session;
use super::stack;
use super::tls::{self, Block};
use crate::cycles::Cycles;
use crate::ids::Tid;
use crate::platform;
use crate::platform::rseq;
#[cfg(any(target_os = "linux", target_os = "android"))]
use crate::probe::Probe;
use crate::shm::buffer::{self, Pool, Writer};
use crate::shm::layout::{CLASSES, Control, TICK_RUNNING, ThreadEntry, Tick, drops};
use crate::shm::mapping::Mapping;
use crate::shm::record_format::{self, NAME_BYTES, RecordBuffer, Waited, Woke, flags};
use crate::shm::signal_gate;
use crate::shm::throttle::{self, Due};
use crate::shm::wait_table;
use crate::sync::Ordering;
use crate::unwind::{MAX_DEPTH, Registers};

/// Captures the calling thread, if it is due. Gives the sample's node; 0 when there is none. The caller knows
/// that the thread takes part in this process; where that is not known, see `requests`.
#[inline(never)]
pub(super) fn slow(request: &Request) -> u32 {
    let mut node = 0;
    if !own_stack::run(|registers| node = make(request, registers))
        && let Some((entry, _)) = registered(tls::block())
    {
        session::count(entry, drops::REENTRANT);
    }
    node
}

/// The same on the thread's own stack. `registers`: where the program is, unless the request says that.
pub(super) fn make(request: &Request, registers: &Registers) -> u32 {
    let block = tls::block();
    let Some((entry, tick)) = registered(block) else {
        return 0;
    };
    if is_of_another(entry) {
        return 0;
    }
    let Some(_guard) = Guard::enter(block) else {
        if request.interrupted.is_none() {
            session::count(entry, drops::REENTRANT);
        }
        return 0;
    };
    // SAFETY: the guard is held.
    let Some(scratch) = (unsafe { scratch::scratch(block) }) else {
        return 0;
    };
    let Some(mapping) = session::mapping().filter(|_| !session::is_stale(entry)) else {
        return 0;
    };
    Capture {
        mapping,
        control: mapping.control(),
        block,
        entry,
        tick,
        scratch,
        request,
        delivery_cycles: Cycles(0),
        is_behind_tick: false,
    }
    .run(request.interrupted.unwrap_or(registers))
}

/// Whether the caller is a child on its parent's memory and thread-local block (a raw clone with CLONE_VM):
/// what it does would become the parent's samples.
fn is_of_another(entry: &ThreadEntry) -> bool {
    let tid = platform::thread_id();
    tid != 0 && tid != entry.tid.load(Ordering::Relaxed)
}

/// The writer of this thread.
pub(super) type ThreadWriter<'a> = Writer<'a, Mapping>;

/// Appends the first `words` of a record.
pub(super) fn append(writer: &ThreadWriter, record: &RecordBuffer, words: usize, now: Cycles) {
    writer.append(record.get(..words).unwrap_or(&[]), now);
    super::show_activity(writer.entry);
}

/// Signals in a row that are passed over because they found the thread in front of a call.
const MOST_PASSED_OVER: u32 = 2;

struct Capture<'a> {
    mapping: &'static Mapping,
    control: &'static Control,
    block: &'a Block,
    entry: &'static ThreadEntry,
    tick: &'static Tick,
    scratch: &'a mut Scratch,
    request: &'a Request<'a>,
    /// How long the sampler's signal took to arrive; 0: none has.
    delivery_cycles: Cycles,
    /// Its tick came well before the call: see [`Capture::is_behind`].
    is_behind_tick: bool,
}

impl Capture<'_> {
    fn run(mut self, registers: &Registers) -> u32 {
        self.follow_class();
        let request = self.request;
        if let Some(kind) = request.sampled_event() {
            return self.run_sampled_event(kind, registers);
        }
        if request.begin == Cycles(0) && request.may_be_in_wait() {
            self.open_stale_signal_gate(registers);
        }
        let is_on = self.control.switch.load(Ordering::Relaxed) == 1;
        if request.is_at_better_moment() && !self.scratch.better_moment.is_wanted() {
            return 0;
        }
        if is_on && request.is_of_clock() {
            if self.comes_too_soon() {
                self.take_tick();
                return 0;
            }
            if self.is_left_to_better_moment() {
                return 0;
            }
        }
        if request.is_met {
            return if is_on { self.run_met(registers) } else { 0 };
        }
        let tick = self.tick.count.load(Ordering::Relaxed);
        if !is_on && !request.exempt {
            if tick < TICK_RUNNING {
                self.entry.last_tick.store(tick, Ordering::Relaxed);
            }
            return 0;
        }
        let now = session::now();
        if request.is_of_sampler() {
            self.delivery_cycles = capture_cost::add_delivery(self.control, self.entry, now);
        }
        let class = (self.entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
        let is_plain = request.is_plain();
        if is_plain && tick < TICK_RUNNING && !self.entry.is_due(tick) {
            self.entry.last_tick.store(tick, Ordering::Relaxed);
            return 0;
        }
        if request.is_chosen() && tick < TICK_RUNNING {
            // Beside the ticks, like counted captures: functions that wake others would be met more often
            // than their share.
            if !self.pay(now, class) {
                return 0;
            }
            let node = self.capture(registers, now);
            // With the CPU time of the same moment it says when a wait outside any hook began.
            self.entry.last_capture_cycles.store(now, Ordering::Relaxed);
            return node;
        }
        let mut last_tick = self.entry.last_tick.load(Ordering::Relaxed);
        // A hook was quicker after all, or there is a better moment.
        if request.is_of_sampler() && (tick == last_tick || self.was_held_up()) {
            self.block.held_since.store(Cycles(0), Ordering::Relaxed);
            if tick < TICK_RUNNING {
                self.entry.last_tick.store(tick, Ordering::Relaxed);
            }
            return 0;
        }
        if tick != last_tick {
            match throttle::due(self.control, self.tick, self.entry, class, || now) {
                Due::Capture { tick, wake } => {
                    last_tick = tick;
                    if wake {
                        platform::wake(&self.control.parked, 1);
                    }
                }
                Due::NotYet => {
                    if is_plain {
                        return 0;
                    }
                }
            }
        } else if is_plain {
            return 0;
        }
        self.is_behind_tick = is_plain && tick < TICK_RUNNING && self.is_behind(now);
        let is_free = request.exempt || request.overdue;
        if request.forced && !is_free && !self.pay(now, class) {
            return 0;
        }
        let node = self.capture(registers, now);
        // A wait for a signal that does not come is not begun anew with each capture.
        if request.interrupted.is_some() || self.entry.in_flight.load(Ordering::Relaxed) == 0 {
            self.block.held_since.store(Cycles(0), Ordering::Relaxed);
        }
        self.scratch.passed_over = 0;
        self.entry.last_tick.store(last_tick, Ordering::Relaxed);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        super::left_handlers::capture_soon(self.entry);
        self.is_captured(now);
        node
    }

    /// The sampling clock has met the thread without a tick.
    fn run_met(&mut self, registers: &Registers) -> u32 {
        let now = session::now();
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let before_ns = self.entry.cpu_ns.load(Ordering::Relaxed);
        let node = self.capture(registers, now);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if self.entry.has_user_clock() {
            let unseen = &mut self.scratch.unseen_calls;
            unseen.event_strikes(self.control, self.entry, before_ns);
        }
        self.is_captured(now);
        node
    }

    /// Whether the thread is about to come to a better moment than the one at which the sampling clock has
    /// found it. That takes the tick, too.
    fn is_left_to_better_moment(&mut self) -> bool {
        if !self.scratch.better_moment.leaves() {
            return false;
        }
        self.take_tick();
        true
    }

    /// The tick has no capture.
    fn take_tick(&self) {
        let tick = self.tick.count.load(Ordering::Relaxed);
        if tick < TICK_RUNNING {
            self.entry.last_tick.store(tick, Ordering::Relaxed);
        }
        self.block.held_since.store(Cycles(0), Ordering::Relaxed);
    }

    /// The sampling clock, by a tick or without, has had its capture.
    fn is_captured(&mut self, now: Cycles) {
        self.scratch.better_moment.is_over();
        self.entry.last_capture_cycles.store(now, Ordering::Relaxed);
        let interval_ns = self.control.sampling_interval_ns(self.entry);
        self.scratch
            .event_sampling
            .catch_up(self.block, self.entry, interval_ns);
    }

    /// A signal takes microseconds to another processor. One that finds the thread in front of a call that
    /// waited for it would charge all that time to the call. Such a moment is passed over, unless the last
    /// ones were such too.
    fn was_held_up(&mut self) -> bool {
        let is_at_signal_gate = self.entry.closed.load(Ordering::Relaxed) != 0;
        self.scratch.passed_over += u32::from(is_at_signal_gate);
        is_at_signal_gate && self.scratch.passed_over <= MOST_PASSED_OVER
    }

    /// Takes the tick word that the entry names now: the collector may have changed its class or its clock.
    fn follow_class(&mut self) {
        if self.request.interrupted.is_none() {
            let open = self.scratch.program_mask & platform::signal_bit(libc::SIGURG as u32) == 0;
            kernel_clock::begin_timer(self.mapping, self.entry, open);
        }
        self.tick = kernel_clock::follow(self.control, self.block, self.entry);
    }

    /// A call left by longjmp or cancellation has closed the gate and never opened it. A signal handler that
    /// runs inside the call leaves it alone.
    fn open_stale_signal_gate(&self, registers: &Registers) {
        if self.entry.closed.load(Ordering::Relaxed) != 0
            && !self.request.last
            && !self.is_in_wait(registers)
        {
            let blocking_section = self.entry.blocking_section.load(Ordering::Relaxed);
            if blocking_section & 1 != 0 {
                self.entry
                    .blocking_section
                    .store(blocking_section.wrapping_add(1), Ordering::Release);
                signal_gate::reopen(self.entry, 0);
                #[cfg(any(target_os = "linux", target_os = "android"))]
                super::call_timer::cancel();
                let index = self.block.entry_index.load(Ordering::Relaxed);
                wait_table::leave(self.mapping, index, self.entry);
            }
        }
    }

    /// Whether a wait goes on around this capture, which is not the one at its end.
    fn is_inside_of_wait(&self) -> bool {
        let request = self.request;
        self.entry.closed.load(Ordering::Relaxed) != 0
            && request.may_be_in_wait()
            && request.begin != self.entry.blocking_section_begin.load(Ordering::Relaxed)
    }

    /// Whether the call that closed the gate is on the thread's stack still, below a signal handler: the
    /// hook's frame lies there, and either runs, or what it called returns to it.
    fn is_in_wait(&self, registers: &Registers) -> bool {
        const LONGEST_HOOK: u64 = 8192;
        let low = self.entry.stack_low.load(Ordering::Relaxed);
        let own = low.saturating_add(8)..self.entry.stack_high.load(Ordering::Relaxed);
        let hook_pc = self.entry.registers[0].load(Ordering::Relaxed);
        let hook_sp = self.entry.registers[1].load(Ordering::Relaxed);
        if registers.sp == hook_sp {
            return registers.pc.abs_diff(hook_pc) < LONGEST_HOOK;
        }
        let is_below = !own.contains(&registers.sp) || registers.sp < hook_sp;
        if !own.contains(&hook_sp) || !hook_sp.is_multiple_of(8) || !is_below {
            return false;
        }
        // Where a call leaves no return address on the stack, the wait is taken for one that goes on.
        #[cfg(target_arch = "x86_64")]
        {
            // SAFETY: on the thread's own stack, at or above what is in use, or in use when the wait began.
            let back = unsafe { *((hook_sp - 8) as *const u64) };
            back.abs_diff(hook_pc) < LONGEST_HOOK
        }
        #[cfg(not(target_arch = "x86_64"))]
        true
    }

    fn capture(&mut self, registers: &Registers, now: Cycles) -> u32 {
        let Some(generation) = self.enter_generation() else {
            return 0;
        };
        let node = self.record(registers, now, generation);
        buffer::end_capture(self.entry);
        if self.control.asleep.load(Ordering::Relaxed) != 0 {
            self.wake_drain();
        }
        let took = session::now().saturating_sub(now);
        let (request, entry) = (self.request, self.entry);
        let is_read = request.sampled_event().is_none();
        let cpu_ns = is_read.then(|| entry.cpu_ns.load(Ordering::Relaxed));
        let long_ns = capture_cost::add_capture(self.control, entry, took, request.overdue, cpu_ns);
        if request.interrupted.is_some() || request.is_at_better_moment() {
            self.scratch.long_capture_ns = long_ns;
        }
        node
    }

    /// A capture may take longer than the sampling clock's interval: the next signal is there when it ends,
    /// and the thread would do nothing else any more. So it computes for as long as the last one took.
    fn comes_too_soon(&self) -> bool {
        let [end_ns, free_ns] = self.scratch.long_capture_ns;
        free_ns != 0 && (end_ns..free_ns).contains(&platform::thread_cpu_ns())
    }

    /// The drain sleeps until something is captured. A store that it makes at this very moment may be missed:
    /// then the next capture wakes it, or the end of the session.
    #[cold]
    fn wake_drain(&self) {
        if self.control.asleep.swap(0, Ordering::SeqCst) != 0 {
            self.mapping.want_drain();
        }
    }

    /// Announces which generation of the CallstackTable this capture uses. The collector replaces the
    /// current one first and then looks for threads that still use the old one; both orders are
    /// sequentially consistent, so one of the two notices. Also what keeps the thread's sub-buffer
    /// from being taken away (`buffer::settle`).
    fn enter_generation(&self) -> Option<u32> {
        for _ in 0..4 {
            let generation = self.control.generation.load(Ordering::Acquire);
            buffer::begin_capture(self.entry, generation);
            if self.control.generation.load(Ordering::SeqCst) == generation {
                return Some(generation);
            }
        }
        buffer::end_capture(self.entry);
        None
    }

    /// The interval of the thread's class, in ns and in cycles.
    fn interval(&self) -> (u32, Cycles) {
        let class = (self.entry.class.load(Ordering::Relaxed) as usize).min(CLASSES - 1);
        (
            self.control.interval_ns[class].load(Ordering::Relaxed),
            self.control.interval_cycles[class].load(Ordering::Relaxed),
        )
    }

    fn in_ns(&self, cycles: Cycles) -> u64 {
        let (interval_ns, interval_cycles) = self.interval();
        cycles.saturating_mul(interval_ns.into()).0 / interval_cycles.0.max(1)
    }

    /// CPU time of the thread at the moment of the sample: no more since the last one than has passed. What
    /// goes beyond that the capture has used, and belongs to what follows: woken tickers, first uses of pages
    /// and interrupts take up to 100 µs between the two clocks, and a hypervisor more.
    fn cpu_ns_at(&self, now: Cycles) -> u64 {
        const AT_ONCE_NS: u64 = 20_000;
        let interval_cycles = self.interval().1;
        let last = self.entry.last_capture_cycles.load(Ordering::Relaxed);
        let last_ns = self.entry.cpu_ns.load(Ordering::Relaxed);
        let since = |from: Cycles, to: Cycles| self.in_ns(to.saturating_sub(from));
        let read = || (session::now(), platform::thread_cpu_ns());
        let mut found = read();
        if since(found.0, session::now()) > AT_ONCE_NS {
            // Something came in between.
            found = read();
        }
        let used_ns = since(now, found.0);
        match found.1 {
            0 => last_ns,
            ns if interval_cycles == Cycles(0) => ns,
            ns => {
                let most_ns = last_ns.saturating_add(since(last, now));
                ns.min(most_ns.max(ns.saturating_sub(used_ns)))
            }
        }
    }

    /// Whether the sampler's signal found the thread waiting for a processor: from when it was sent until now
    /// the thread has hardly run. Then the scheduler chose this moment and no tick, and each such wait would
    /// have a sample at the same place of the program's work where that decides when its processor is taken
    /// away.
    fn was_without_processor(&self, cpu_ns: u64) -> bool {
        let sent_run_ns = self.entry.sent_run_ns.load(Ordering::Relaxed);
        let is_known = self.delivery_cycles != Cycles(0) && sent_run_ns != 0;
        is_known
            && capture_cost::was_without_processor(
                self.in_ns(self.delivery_cycles),
                cpu_ns.saturating_sub(sent_run_ns),
            )
    }

    /// Whether a hook comes so long after its tick that the tick fell into what the thread ran before, or
    /// found it without a processor, and no signal came: then the call has not been found, but what led to
    /// it. So it is always without ticks, where another clock has the weight.
    fn is_behind(&self, now: Cycles) -> bool {
        let call = match self.request.begin {
            Cycles(0) => now,
            begin => begin,
        };
        let since = call.saturating_sub(self.tick.at.load(Ordering::Relaxed));
        self.in_ns(since) > capture_cost::OF_SAMPLER_NS
    }

    fn record(&mut self, registers: &Registers, now: Cycles, generation: u32) -> u32 {
        let request = self.request;
        // Nothing follows the last sample: it has all CPU time so far, and the moment at which that is read.
        let now = if request.last { session::now() } else { now };
        let writer = Writer {
            pool: self.mapping,
            entry: self.entry,
            index: self.block.entry_index.load(Ordering::Relaxed),
            upid: session::upid(),
            mode: session::mode(self.control),
            generation,
        };
        // Counted samples say nothing of time: they do without system calls, and leave what is read now and
        // then to the next capture at a tick.
        let is_sampled_event = request.sampled_event().is_some();
        let cpu_ns = match is_sampled_event {
            true => self.entry.cpu_ns.load(Ordering::Relaxed),
            false if request.last => match platform::thread_cpu_ns() {
                0 => self.entry.cpu_ns.load(Ordering::Relaxed),
                ns => ns,
            },
            false => self.cpu_ns_at(now),
        };
        let limit = self.control.depth_limit.load(Ordering::Relaxed) as usize;
        let (node, cut) = stack::find(
            self.mapping,
            self.entry,
            self.scratch,
            registers,
            request.interrupted.is_some(),
            limit.clamp(1, MAX_DEPTH),
            generation,
        );
        report_modules(&writer, &mut self.scratch.record, now);
        session::publish_epoch(self.mapping);
        let is_named_anew =
            (self.scratch.managed.name()).is_some_and(|name| *name != self.scratch.name);
        if is_named_anew
            || request.last
            || !is_sampled_event && self.scratch.usage.is_time_for_rare_reads()
        {
            write_name(&writer, self.scratch, now);
        }
        let is_inside = self.is_inside_of_wait();
        let usage = if request.exempt {
            platform::thread_usage()
        } else if is_sampled_event {
            None
        } else {
            let interval = self.interval();
            let waited = request.begin != Cycles(0);
            let was_switched = rseq::was_switched();
            let usage = self.scratch.usage.read(waited, now, cpu_ns, interval);
            if is_inside && was_switched != Some(false) {
                // The wait around it must not seem to have passed without a switch.
                rseq::disarm();
            }
            usage
        };
        let mut bits = 0;
        let is_by_chance = !request.forced
            && !request.overdue
            && !self.is_behind_tick
            && !self.was_without_processor(cpu_ns);
        if !is_by_chance {
            bits |= flags::FORCED;
        }
        if request.begin != Cycles(0) {
            bits |= flags::BLOCKED;
        }
        if is_inside {
            bits |= flags::INSIDE;
        }
        if cut {
            bits |= flags::STACK_CUT;
        }
        if !is_sampled_event && self.block.has_iterated.swap(0, Ordering::Relaxed) != 0 {
            bits |= flags::LOOP_ITERATION;
        }
        let sample = record_format::Sample {
            probe: request.probe as u8,
            flags: bits,
            node,
            end_cycles: now,
            duration_cycles: match request.begin {
                Cycles(0) => Cycles(0),
                begin => now.saturating_sub(begin),
            },
            cpu_ns,
            allocations: self.entry.allocations.load(Ordering::Relaxed),
            allocated_bytes: self.entry.allocated_bytes.load(Ordering::Relaxed),
            frees: self.entry.frees.load(Ordering::Relaxed),
            arg: request.arg,
            usage,
            waker_tid: match request.more {
                Some(More::Waited(waited)) if waited.waker_tid != Tid(0) => Some(waited.waker_tid),
                _ => None,
            },
        };
        let words = record_format::write_sample(&sample, &mut self.scratch.record);
        append(&writer, &self.scratch.record, words, now);
        let more = match request.more {
            Some(More::Waited(waited)) => {
                let waited = Waited { node, ..waited };
                record_format::write_wait(&waited, &mut self.scratch.record)
            }
            Some(More::Woke(woke)) => {
                let woke = Woke {
                    node,
                    cycles: now,
                    ..woke
                };
                record_format::write_wake(&woke, &mut self.scratch.record)
            }
            None => 0,
        };
        if more != 0 {
            append(&writer, &self.scratch.record, more, now);
        }
        self.entry.cpu_ns.store(cpu_ns, Ordering::Relaxed);
        let samples = self.entry.samples.load(Ordering::Relaxed);
        self.entry
            .samples
            .store(samples.wrapping_add(1), Ordering::Relaxed);
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if request.probe == Probe::Exit {
            report_checks(&writer, &mut self.scratch.record, now);
        }
        if request.last {
            writer.complete();
        }
        node
    }
}

/// Writes the thread's name down if it has changed: what the program calls it where that is known, else what
/// the system does.
fn write_name(writer: &ThreadWriter, scratch: &mut Scratch, now: Cycles) {
    let of_runtime = scratch.managed.name().copied();
    let name = of_runtime.or_else(|| {
        let mut name = [0; NAME_BYTES];
        let known = platform::thread_name()?;
        name[..known.len()].copy_from_slice(&known);
        Some(name)
    });
    if let Some(name) = name
        && name != scratch.name
    {
        scratch.name = name;
        let words = record_format::write_name(&name, of_runtime.is_some(), &mut scratch.record);
        append(writer, &scratch.record, words, now);
    }
}

/// Writes down which modules came and went.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn report_modules(writer: &ThreadWriter, to: &mut RecordBuffer, now: Cycles) {
    crate::native::own_modules::report_changes(|module, gone| {
        let words = match gone {
            None => record_format::write_module(
                (module.start, module.end),
                module.bias,
                module.epoch,
                module.path(),
                module.build_id(),
                to,
            ),
            Some(epoch) => record_format::write_module_gone(module.start, epoch, to),
        };
        append(writer, to, words, now);
    });
}

/// At the end of a process whose walks were checked: says how often reuse was wrong.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn report_checks(writer: &ThreadWriter, to: &mut RecordBuffer, now: Cycles) {
    use std::io::Write;
    let (checked, differing) = crate::native::own_walk::checked_walks();
    if checked == 0 {
        return;
    }
    let mut text = [0u8; 96];
    let mut rest = &mut text[..];
    let _ = write!(
        rest,
        "unwind check: {differing} of {checked} reused stacks differ"
    );
    let length = 96 - rest.len();
    let words =
        record_format::write_text(record_format::TextKind::Capability, 0, &text[..length], to);
    append(writer, to, words, now);
}

/// The same, of those that the platform's hooks have announced.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn report_modules(writer: &ThreadWriter, to: &mut RecordBuffer, now: Cycles) {
    crate::native::image_list::report_changes(|image, epoch, gone| {
        let words = match gone {
            None => record_format::write_module(
                (image.start, image.end),
                image.slide,
                epoch,
                &image.path,
                &image.uuid,
                to,
            ),
            Some(gone) => record_format::write_module_gone(image.start, gone, to),
        };
        append(writer, to, words, now);
    });
}
