//! The program's own scopes, put together from their begins and ends.

use std::collections::HashMap;

use stackbeat_collector::model::ThreadIndex;

/// A scope that has ended, or was open when its thread did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub thread: ThreadIndex,
    pub name: String,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Scopes of the thread around it.
    pub depth: usize,
}

/// Scopes that are open.
#[derive(Debug, Default)]
pub struct Open {
    by_thread: HashMap<ThreadIndex, Vec<(String, u64)>>,
}

impl Open {
    pub fn begin(&mut self, thread: ThreadIndex, name: &str, at_ns: u64) {
        let open = self.by_thread.entry(thread).or_default();
        open.push((name.to_owned(), at_ns));
    }

    /// The scope that ends; `None` for an end without a begin.
    pub fn end(&mut self, thread: ThreadIndex, at_ns: u64) -> Option<Scope> {
        let open = self.by_thread.get_mut(&thread)?;
        let (name, begin_ns) = open.pop()?;
        Some(Scope {
            thread,
            name,
            begin_ns,
            end_ns: at_ns.max(begin_ns),
            depth: open.len(),
        })
    }

    /// Those that never ended; they last as long as their threads.
    pub fn rest(&mut self, end_of: impl Fn(ThreadIndex) -> u64) -> Vec<Scope> {
        let mut threads: Vec<_> = self.by_thread.keys().copied().collect();
        threads.sort();
        let mut rest = Vec::new();
        for thread in threads {
            while let Some(scope) = self.end(thread, end_of(thread)) {
                rest.push(scope);
            }
        }
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_odd_ends_do_nothing() {
        let (a, b) = (ThreadIndex(1), ThreadIndex(2));
        let mut open = Open::default();
        assert_eq!(open.end(a, 1), None);
        open.begin(a, "outer", 10);
        open.begin(b, "other", 11);
        open.begin(a, "inner", 12);
        let inner = open.end(a, 20).expect("was open");
        assert_eq!((inner.name.as_str(), inner.depth), ("inner", 1));
        assert_eq!((inner.begin_ns, inner.end_ns), (12, 20));
        assert_eq!(open.end(a, 30).map(|s| s.depth), Some(0));
        assert_eq!(open.end(a, 31), None);
        let rest = open.rest(|_| 99);
        assert_eq!(rest.len(), 1);
        assert_eq!((rest[0].name.as_str(), rest[0].end_ns), ("other", 99));
    }
}
