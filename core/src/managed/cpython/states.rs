//! Which `PyThreadState`s a thread has: one in each interpreter that it came through, sometimes several.
//!
//! Each interpreter has a list of states, newest first, and gives them numbers that only grow. So a thread
//! that has looked at all of a list needs to look only at what was made since, at the list's head. What it
//! has found stays its own as long as it is in the list.
//!
//! Nothing keeps other threads from changing the lists meanwhile. A list that does not hang together is
//! looked at again, some times at once and then in the next search. So is one with a state that no thread
//! runs yet.

use super::Runtime;
use super::offsets::{Offsets, THREAD_INTERPRETER, THREAD_NEXT};
use crate::managed::memory::Memory;

/// Most interpreters, and most states of all of them that a thread looks at in one capture.
const MOST_INTERPRETERS: usize = 256;
const MOST_LOOKS: u64 = 1 << 14;
/// Interpreters whose lists a thread remembers: those behind them it looks at each time.
const MOST_REMEMBERED: usize = 64;
/// Lists that change meanwhile are looked at again at once, so often in all.
const MOST_REPEATS: usize = 8;
/// States of one thread. Before 3.13 whoever makes an interpreter keeps a state in it.
const MOST_STATES: usize = 64;

/// An interpreter. Its memory may be another one's later, and that has another number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Interpreter {
    address: u64,
    /// `PyInterpreterState::id`: newer ones have greater ones.
    number: u64,
}

/// An interpreter, and how much of its list is known.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct List {
    of: Interpreter,
    /// States with numbers up to this one were looked at.
    seen: u64,
}

/// A thread's state.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct State {
    pub(super) address: u64,
    of: Interpreter,
}

#[cfg(test)]
impl State {
    pub(super) fn of(address: u64) -> State {
        let of = Interpreter::default();
        State { address, of }
    }
}

/// What tells that a state is a thread's: the word at an offset of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) offset: u64,
    pub(super) value: u64,
}

/// A thread's states, and the lists that they were found in. All-zero: nothing is known.
#[derive(Debug)]
#[repr(C)]
pub(super) struct States {
    lists: [List; MOST_REMEMBERED],
    lists_len: usize,
    /// That of the newest interpreter first. A thread goes from an interpreter into those that were made in
    /// it, so that this one's frames are the innermost. The newest of one interpreter is first, too.
    states: [State; MOST_STATES],
    states_len: usize,
}

impl States {
    /// Those that the last search found.
    pub(super) fn as_slice(&self) -> &[State] {
        self.states.get(..self.states_len).unwrap_or_default()
    }

    /// Forgets everything: the next search looks at all lists.
    pub(super) fn forget(&mut self) {
        (self.lists_len, self.states_len) = (0, 0);
    }

    /// Finds the states that an owner has now. `None`: the interpreters cannot be read, and all is forgotten.
    pub(super) fn find(
        &mut self,
        runtime: &Runtime,
        memory: &mut impl Memory,
        owner: Owner,
    ) -> Option<&[State]> {
        let offsets = &runtime.offsets;
        let first = memory.word(runtime.runtime + offsets.interpreters);
        let mut search = Search {
            offsets,
            memory,
            owner,
            looks_left: MOST_LOOKS,
            repeats_left: MOST_REPEATS,
            is_complete: true,
            known: self,
            found: 0,
        };
        let lists = first.and_then(|first| search.all_from(first));
        let (found, is_complete) = (search.found, search.is_complete);
        self.states_len = found;
        // What was not met is not known.
        self.lists_len = lists.filter(|_| is_complete).unwrap_or(0);
        lists.map(|_| self.as_slice())
    }

    /// How much of an interpreter's list is known, at this index of all. Those of interpreters that have
    /// ended are taken out, and a new one is put in; `None`: there is no room. Lists are in the order of the
    /// interpreters, and are asked for in this order.
    fn list(&mut self, index: usize, of: Interpreter) -> Option<&mut List> {
        if index >= MOST_REMEMBERED {
            return None;
        }
        let known = self.lists.get(index..self.lists_len)?;
        if known.first().is_some_and(|list| list.of == of) {
            return self.lists.get_mut(index);
        }
        let has_ended = |list: &&List| list.of != of && list.of.number >= of.number;
        let ended = known.iter().take_while(has_ended).count();
        if ended > 0 {
            self.lists.copy_within(index + ended..self.lists_len, index);
            self.lists_len -= ended;
        }
        let is_known = index < self.lists_len && self.lists.get(index)?.of == of;
        if !is_known {
            self.lists_len = (self.lists_len + 1).min(MOST_REMEMBERED);
            let behind = self.lists.get_mut(index..self.lists_len)?;
            behind.rotate_right(1);
            *behind.first_mut()? = List { of, seen: 0 };
        }
        self.lists.get_mut(index)
    }

    /// Puts a state in at this index. False: there is no room, and the last one had to go.
    fn put(&mut self, index: usize, state: State) -> bool {
        let has_room = self.states_len < MOST_STATES;
        self.states_len += usize::from(has_room);
        let index = index.min(MOST_STATES - 1);
        if let Some(behind) = self.states.get_mut(index..self.states_len) {
            behind.rotate_right(1);
            behind[0] = state;
        }
        has_room
    }
}

/// One search.
struct Search<'a, M> {
    offsets: &'a Offsets,
    memory: &'a mut M,
    owner: Owner,
    looks_left: u64,
    repeats_left: usize,
    /// There was room for all states.
    is_complete: bool,
    known: &'a mut States,
    /// So many of the known states are there. Those behind them are of older interpreters, or are no more.
    found: usize,
}

impl<M: Memory> Search<'_, M> {
    /// All interpreters, from the newest on. Gives how many of the lists are known now.
    fn all_from(&mut self, newest: u64) -> Option<usize> {
        let mut address = newest;
        let mut count = 0;
        while address != 0 && count < MOST_INTERPRETERS {
            let number = address.checked_add(self.offsets.interpreter_id)?;
            let number = self.memory.word(number)?;
            let of = Interpreter { address, number };
            let mut seen = self.known.list(count, of).map_or(0, |list| list.seen);
            let before = self.found;
            while !self.look_at(of, &mut seen)? && self.repeats_left > 0 {
                self.repeats_left -= 1;
                self.found = before;
            }
            if let Some(list) = self.known.lists.get_mut(count) {
                list.seen = seen;
            }
            let next = address.checked_add(self.offsets.interpreter_next)?;
            address = self.memory.word(next)?;
            count += 1;
        }
        Some(count.min(MOST_REMEMBERED))
    }

    /// One interpreter, of whose states those up to the number `seen` were seen. False: its list changes.
    fn look_at(&mut self, of: Interpreter, seen: &mut u64) -> Option<bool> {
        let threads = of.address.checked_add(self.offsets.threads)?;
        let head = self.memory.word(threads)?;
        let made = match self.offsets.state_number {
            _ if head == 0 => Some(seen.saturating_add(1)),
            // `threads.next_unique_id`
            0 => self.memory.word(threads.checked_sub(8)?),
            offset => self.memory.word(head.checked_add(offset)?),
        };
        let is_lost = |search: &mut Self, state: &State| {
            state.of == of && search.is_own(state.address, of, head) != Some(true)
        };
        let mut has_lost = false;
        for index in self.found..self.known.states_len {
            let state = *self.known.states.get(index)?;
            has_lost |= is_lost(self, &state);
        }
        let new = match made {
            // Or it is no such number.
            None | Some(0) => None,
            // The newest one may be gone, where the number is its own.
            Some(made) if self.offsets.state_number != 0 => Some(made.saturating_sub(*seen)),
            // It begins anew with the interpreter.
            Some(made) => made.checked_sub(*seen),
        };
        let most = new.filter(|_| !has_lost).unwrap_or(u64::MAX);
        let walk = self.walk(of, head, most);
        for index in self.found..self.known.states_len {
            let state = *self.known.states.get(index)?;
            if state.of == of && !(has_lost && is_lost(self, &state)) {
                self.settle(index);
            }
        }
        // The newest one may have its number, and not be in the list yet.
        let seen_now = made.unwrap_or(0).saturating_sub(1);
        match walk {
            Some(true) if self.offsets.state_number != 0 => *seen = seen_now.max(*seen),
            Some(true) => *seen = seen_now,
            // Those that are lost may be further behind.
            _ if has_lost => *seen = 0,
            _ => {}
        }
        Some(walk.is_some())
    }

    /// Looks at the first states of a list. `Some(false)`: no thread runs one of them yet. `None`: the list
    /// does not hang together, because it is being changed.
    fn walk(&mut self, of: Interpreter, head: u64, most: u64) -> Option<bool> {
        let mut is_sure = true;
        let (mut at, mut before) = (head, 0);
        for looked_at in 1..=most {
            if at == 0 {
                let is_there = before == 0 || self.is_in_list(before, head)?;
                return is_there.then_some(is_sure);
            }
            self.looks_left = self.looks_left.checked_sub(1)?;
            if before != 0 && self.memory.word(at)? != before {
                return None;
            }
            let owner = self.memory.word(at.checked_add(self.owner.offset)?)?;
            is_sure &= owner != 0;
            if owner == self.owner.value {
                self.take(State { address: at, of });
            }
            if looked_at < most {
                before = at;
                at = self.memory.word(at + THREAD_NEXT)?;
            }
        }
        Some(is_sure)
    }

    /// Takes a state that is there.
    fn take(&mut self, state: State) {
        let known = self.known.as_slice().get(self.found..).unwrap_or_default();
        let is_it = |known: &State| known.address == state.address && known.of == state.of;
        match known.iter().position(is_it) {
            Some(behind) => self.settle(self.found + behind),
            None => {
                self.is_complete &= self.known.put(self.found, state);
                self.found = (self.found + 1).min(MOST_STATES);
            }
        }
    }

    /// One of the known states is there.
    fn settle(&mut self, index: usize) {
        if let Some(states) = self.known.states.get_mut(self.found..=index) {
            states.rotate_right(1);
            self.found += 1;
        }
    }

    /// Whether a state is in an interpreter's list and the owner's.
    fn is_own(&mut self, state: u64, of: Interpreter, head: u64) -> Option<bool> {
        let is_own = self.memory.word(state + self.owner.offset)? == self.owner.value
            && self.memory.word(state + THREAD_INTERPRETER)? == of.address
            && self.is_in_list(state, head)?;
        Some(is_own)
    }

    /// Whether the state before it leads to it. Memory that was freed has something else there.
    fn is_in_list(&mut self, state: u64, head: u64) -> Option<bool> {
        let before = self.memory.word(state)?;
        let next = match before {
            0 => head,
            before => self.memory.word(before.checked_add(THREAD_NEXT)?)?,
        };
        Some(next == state)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::super::offsets::{V3_10, V3_11, V3_12};
    use super::super::tests::{Garbage, of};
    use super::*;
    use std::boxed::Box;
    use std::collections::HashMap;
    use std::vec::Vec;

    const RUNTIME: u64 = 1 << 32;
    const ME: u64 = 77;
    const OTHER: u64 = 78;

    fn none() -> Box<States> {
        // SAFETY: all-zero is a valid one.
        unsafe { crate::unwind::walk::zeroed() }
    }

    /// The lists of a program. What is not there cannot be read.
    struct Program {
        runtime: Runtime,
        words: HashMap<u64, u64>,
        loads: usize,
    }

    impl Memory for Program {
        fn word(&mut self, address: u64) -> Option<u64> {
            self.loads += 1;
            self.words.get(&address).copied()
        }
    }

    impl Program {
        fn new(offsets: Offsets) -> Program {
            let words = HashMap::from([(RUNTIME + offsets.interpreters, 0)]);
            Program {
                runtime: of(offsets, false),
                words,
                loads: 0,
            }
        }

        fn set(&mut self, address: u64, value: u64) {
            self.words.insert(address, value);
        }

        fn get(&self, address: u64) -> u64 {
            self.words[&address]
        }

        fn interpreter(&mut self, at: u64, number: u64) {
            let o = self.runtime.offsets;
            self.set(at + o.interpreter_id, number);
            self.set(at + o.threads, 0);
            if o.state_number == 0 {
                self.set(at + o.threads - 8, 0);
            }
            self.set(at + o.interpreter_next, self.get(RUNTIME + o.interpreters));
            self.set(RUNTIME + o.interpreters, at);
        }

        fn state(&mut self, interpreter: u64, at: u64, number: u64, thread: u64) {
            let o = self.runtime.offsets;
            let head = self.get(interpreter + o.threads);
            self.set(at, 0);
            self.set(at + THREAD_NEXT, head);
            self.set(at + THREAD_INTERPRETER, interpreter);
            self.set(at + o.thread_id, thread);
            match o.state_number {
                0 => self.set(interpreter + o.threads - 8, number),
                offset => self.set(at + offset, number),
            }
            if head != 0 {
                self.set(head, at);
            }
            self.set(interpreter + o.threads, at);
        }

        /// Takes a state out of its list, and leaves the memory as `free` does: only its begin is another.
        fn end(&mut self, at: u64) {
            let (before, next) = (self.get(at), self.get(at + THREAD_NEXT));
            match before {
                0 => {
                    let interpreter = self.get(at + THREAD_INTERPRETER);
                    self.set(interpreter + self.runtime.offsets.threads, next);
                }
                before => self.set(before + THREAD_NEXT, next),
            }
            if next != 0 {
                self.set(next, before);
            }
            self.set(at, 0x1234_5678);
            self.set(at + THREAD_NEXT, 0x1234_5678);
        }

        fn find(&mut self, states: &mut States) -> Vec<u64> {
            let runtime = self.runtime;
            let owner = Owner {
                offset: runtime.offsets.thread_id,
                value: ME,
            };
            self.loads = 0;
            let found = states.find(&runtime, self, owner).expect("can be read");
            found.iter().map(|state| state.address).collect()
        }
    }

    const MAIN: u64 = 0x10_0000;
    const SUB: u64 = 0x20_0000;

    /// A program with 100 threads, of which the first one is asked for; its state is 0x1000.
    fn program(offsets: Offsets) -> Program {
        let mut program = Program::new(offsets);
        program.interpreter(MAIN, 0);
        program.state(MAIN, 0x1000, 1, ME);
        for i in 2..=100 {
            program.state(MAIN, 0x1000 * i, i, OTHER);
        }
        program
    }

    #[test]
    fn what_was_looked_at_is_not_looked_at_again() {
        for offsets in [V3_10, V3_11, V3_12] {
            let (mut program, mut states) = (program(offsets), none());
            assert_eq!(program.find(&mut states), [0x1000]);
            assert!(program.loads > 300, "{}", program.loads);
            assert_eq!(program.find(&mut states), [0x1000]);
            assert!(program.loads < 20, "{}", program.loads);
            // Others come and go.
            program.state(MAIN, 0x20_1000, 101, OTHER);
            program.end(0x5000);
            assert_eq!(program.find(&mut states), [0x1000]);
            assert!(program.loads < 20, "{}", program.loads);
        }
    }

    #[test]
    fn states_of_newer_interpreters_come_first() {
        for offsets in [V3_10, V3_11, V3_12] {
            let (mut program, mut states) = (program(offsets), none());
            assert_eq!(program.find(&mut states), [0x1000]);
            for round in 0..3 {
                // At the place of the one before.
                program.interpreter(SUB, 1 + round);
                program.state(SUB, 0x30_1000, 1, OTHER);
                assert_eq!(program.find(&mut states), [0x1000]);
                program.state(SUB, 0x30_2000, 2, ME);
                assert_eq!(program.find(&mut states), [0x30_2000, 0x1000]);
                program.state(SUB, 0x30_3000, 3, ME);
                let all = [0x30_3000, 0x30_2000, 0x1000];
                assert_eq!(program.find(&mut states), all);
                program.end(0x30_2000);
                assert_eq!(program.find(&mut states), [0x30_3000, 0x1000]);
                // The memory of its state looks as it did.
                program.set(RUNTIME + offsets.interpreters, MAIN);
                assert_eq!(program.find(&mut states), [0x1000]);
            }
        }
    }

    /// A thread that calls in makes a state each time, at the place of the last one or another.
    #[test]
    fn a_state_that_ended_is_no_more() {
        for offsets in [V3_10, V3_11, V3_12] {
            let (mut program, mut states) = (program(offsets), none());
            assert_eq!(program.find(&mut states), [0x1000]);
            program.end(0x1000);
            assert_eq!(program.find(&mut states), []);
            for (i, at) in [0x1000, 0x20_1000, 0x1000].into_iter().enumerate() {
                program.state(MAIN, at, 101 + i as u64, ME);
                assert_eq!(program.find(&mut states), [at]);
                program.end(at);
            }
            assert_eq!(program.find(&mut states), []);
        }
    }

    /// From 3.12 on a new state is nobody's at first; before, it is that of the thread that makes it.
    #[test]
    fn new_threads_have_their_states_later() {
        for (offsets, at_first) in [(V3_10, OTHER), (V3_11, ME), (V3_12, 0)] {
            let (mut program, mut states) = (program(offsets), none());
            program.state(MAIN, 0x20_1000, 101, at_first);
            program.state(MAIN, 0x20_2000, 102, OTHER);
            let known: &[u64] = match at_first {
                ME => &[0x20_1000, 0x1000],
                _ => &[0x1000],
            };
            assert_eq!(program.find(&mut states), known);
            let now = if at_first == 0 { ME } else { OTHER };
            program.set(0x20_1000 + offsets.thread_id, now);
            let known: &[u64] = match at_first {
                0 => &[0x20_1000, 0x1000],
                _ => &[0x1000],
            };
            assert_eq!(program.find(&mut states), known);
        }
    }

    /// A signal may come between a state's number and its place in the list.
    #[test]
    fn a_state_that_is_just_being_made_is_found() {
        let (mut program, mut states) = (program(V3_12), none());
        program.set(MAIN + V3_12.threads - 8, 101);
        assert_eq!(program.find(&mut states), [0x1000]);
        program.state(MAIN, 0x20_1000, 101, ME);
        assert_eq!(program.find(&mut states), [0x20_1000, 0x1000]);
    }

    #[test]
    fn a_list_that_is_just_changed_is_looked_at_again() {
        for offsets in [V3_10, V3_11, V3_12] {
            let (mut program, mut states) = (program(offsets), none());
            program.state(MAIN, 0x20_1000, 101, ME);
            // One in between has been freed, and its neighbours do not know yet.
            program.set(0x20_1000, 0xdead_0000);
            let cut = program.words.remove(&(0x5_0000 + THREAD_NEXT));
            assert_eq!(program.find(&mut states), [0x20_1000]);
            program.set(0x20_1000, 0);
            program.set(0x5_0000 + THREAD_NEXT, cut.expect("there was one"));
            assert_eq!(program.find(&mut states), [0x20_1000, 0x1000]);
        }
    }

    /// More interpreters, and more states of the thread, than have room.
    #[test]
    fn the_oldest_state_is_found_among_many() {
        for offsets in [V3_10, V3_12] {
            for count in [3, 63, 64, 65, 200] {
                let (mut program, mut states) = (program(offsets), none());
                for i in 1..count {
                    program.interpreter(SUB + 0x1000 * i, i);
                    program.state(SUB + 0x1000 * i, 0x100_0000 + 0x1000 * i, 1, ME);
                }
                for _ in 0..3 {
                    let found = program.find(&mut states);
                    assert_eq!(found.len(), count.min(64) as usize);
                    assert_eq!(found.last(), Some(&0x1000));
                    let newest = 0x100_0000 + 0x1000 * (count - 1);
                    assert_eq!(found.first(), Some(&newest));
                }
                for i in 1..count {
                    program.end(0x100_0000 + 0x1000 * i);
                }
                assert_eq!(program.find(&mut states), [0x1000]);
            }
        }
    }

    #[test]
    fn a_search_ends_whatever_memory_says() {
        let mut states = none();
        for seed in 0..3_000 {
            let offsets = [V3_10, V3_11, V3_12][seed as usize % 3];
            let mut memory = Garbage { seed, reads: 0 };
            let runtime = of(offsets, false);
            let offset = offsets.thread_id;
            for value in [memory.word(RUNTIME).unwrap_or(1), 0x64] {
                let owner = Owner { offset, value };
                let _ = states.find(&runtime, &mut memory, owner);
            }
            assert!(memory.reads < 1_000_000, "{}", memory.reads);
        }
    }
}
