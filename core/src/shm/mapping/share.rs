//! What a process of the program maps: what has a fixed size, and of thread entries and sub-buffers those
//! that have storage. Its address space is its own, so it gets more when it starts threads, and little or
//! nothing where the space is limited (RLIMIT_AS).

use super::pieces::{MapPart, Pieces};
use super::{BUFFERS_IN_PIECE, FIRST_NODES, Mapping, MappingError, THREADS_IN_PIECE};
use crate::platform::{self, Backing, Errno};
use crate::shm::layout::{Control, Layout, METHOD_BYTES, Node, ThreadEntry};
use crate::sync::Ordering;
use core::sync::atomic::AtomicPtr;

/// Where address space is limited, the mapping takes at most this part of what is left.
const PART_OF_SPACE: u64 = 16;

/// How much of the mapping a process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    nodes: u32,
    threads: u32,
    buffers: u32,
}

impl Share {
    /// Address space that it takes, bytes.
    fn bytes(&self, layout: &Layout) -> u64 {
        let pieces = |items: u32, in_piece: u32| u64::from(items.next_multiple_of(in_piece));
        let generation = layout.nodes_in_generation + self.nodes as usize * size_of::<Node>();
        layout.head_end as u64
            + 2 * generation as u64
            + pieces(self.threads, THREADS_IN_PIECE) * size_of::<ThreadEntry>() as u64
            + pieces(self.buffers, BUFFERS_IN_PIECE) * u64::from(layout.capacity.buffer_bytes)
    }
}

impl Mapping {
    /// The first of the shares that are small enough for the space that is left: the usual one, which holds
    /// what has storage, and the least one.
    fn share(layout: &Layout, control: &Control, left: Option<u64>) -> Option<Share> {
        let c = layout.capacity;
        let usual = Share {
            nodes: c.generation_nodes,
            threads: control.threads_limit.load(Ordering::Acquire).min(c.threads),
            buffers: control.buffers_limit.load(Ordering::Acquire).min(c.buffers),
        };
        let least = Share {
            nodes: FIRST_NODES.min(c.generation_nodes),
            threads: 1,
            buffers: 1,
        };
        [usual, least]
            .into_iter()
            .find(|share| left.is_none_or(|left| share.bytes(layout) <= left / PART_OF_SPACE))
    }

    pub(super) fn map_share(fd: i32) -> Result<Mapping, MappingError> {
        let layout = Self::check(fd, Backing::Shared(fd))?;
        let map = |bytes, offset| platform::map(bytes, Backing::Shared(fd), offset);
        Self::map_share_by(&map, layout)
    }

    /// Joins a mapping of [`Mapping::create_in_memory`], as [`Mapping::join`] joins one that has a file. In
    /// the process that made it; the share stays mapped when this value is gone.
    pub fn join_here(&self) -> Result<Mapping, MappingError> {
        let map = |bytes, offset| platform::map_again(self.base.wrapping_add(offset), bytes);
        Self::map_share_by(&map, self.layout)
    }

    /// The share of a mapping of this layout.
    fn map_share_by(map: &MapPart<'_>, layout: Layout) -> Result<Mapping, MappingError> {
        let failed = |e| MappingError::System("map", e);
        const HEAD: usize = 8192;
        let head = map(HEAD, 0).map_err(failed)?;
        // SAFETY: the mapping has at least 8192 bytes, and every bit pattern is a valid control block.
        let control = unsafe { &*head.add(4096).cast::<Control>() };
        let share = Self::share(&layout, control, platform::address_space_left());
        if share.is_none() {
            control
                .processes_without_room
                .fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: nothing refers to it any more.
        unsafe { platform::unmap(head, HEAD) };
        let share = share.ok_or(MappingError::AddressSpace)?;
        Self::map_parts(map, layout, share).map_err(failed)
    }

    fn map_parts(map: &MapPart<'_>, layout: Layout, share: Share) -> Result<Mapping, Errno> {
        let c = layout.capacity;
        let mut mapping = Mapping {
            base: core::ptr::null_mut(),
            base_bytes: layout.head_end,
            generations: [core::ptr::null_mut(); 2],
            nodes: share.nodes,
            methods: AtomicPtr::new(core::ptr::null_mut()),
            threads: Pieces::map(
                map,
                layout.threads,
                c.threads,
                size_of::<ThreadEntry>(),
                THREADS_IN_PIECE,
                share.threads,
            )?,
            buffers: Pieces::none(),
            is_whole: false,
            layout,
            fd: -1,
        };
        // From here on, what is mapped goes with `mapping` if the rest fails.
        mapping.buffers = Pieces::map(
            map,
            layout.buffers,
            c.buffers,
            c.buffer_bytes as usize,
            BUFFERS_IN_PIECE,
            share.buffers,
        )?;
        mapping.base = map(mapping.base_bytes, 0)?;
        for slot in 0..2 {
            mapping.generations[slot] = map(mapping.generation_bytes(), layout.generations[slot])?;
        }
        // Elsewhere it cannot be mapped later (`platform::map_again`).
        if cfg!(not(any(target_os = "linux", target_os = "android"))) {
            let table = map(METHOD_BYTES, layout.methods)?;
            mapping.methods = AtomicPtr::new(table);
        }
        Ok(mapping)
    }

    /// Agent: maps the thread entries and sub-buffers that have storage by now. For places where a thread
    /// begins, never for hooks.
    pub fn follow_growth(&self) {
        let control = self.control();
        let threads = control.threads_limit.load(Ordering::Acquire);
        let buffers = control.buffers_limit.load(Ordering::Acquire);
        // A thread holds a sub-buffer: more of them are of use without more entries, too.
        let is_behind = threads > self.threads.mapped() || buffers > self.buffers.mapped();
        if self.may_grow() && is_behind {
            self.threads.extend(threads);
            self.buffers.extend(buffers);
        }
    }

    /// Thread entries that have storage and that this process can reach.
    pub fn reachable_threads(&self) -> u32 {
        let limit = self.control().threads_limit.load(Ordering::Acquire);
        limit.min(self.threads.mapped())
    }

    /// The same, as it is once the next thread begins.
    pub fn attainable_threads(&self) -> u32 {
        match self.may_grow() {
            true => {
                let limit = self.control().threads_limit.load(Ordering::Acquire);
                limit.min(self.layout.capacity.threads)
            }
            false => self.reachable_threads(),
        }
    }

    /// Where address space is limited, the share stays as it is.
    fn may_grow(&self) -> bool {
        !self.is_whole && self.nodes == self.layout.capacity.generation_nodes
    }
}

#[cfg(all(test, not(miri), not(loom), target_os = "linux"))]
mod tests {
    use super::*;
    use crate::shm::layout::Capacity;
    use crate::shm::mapping::tests::unique;
    use crate::shm::registry::{NewThread, add_thread, may_have_room};

    const CAPACITY: Capacity = Capacity {
        processes: 4,
        threads: 5000,
        buffers: 3000,
        buffer_bytes: 4096,
        generation_nodes: 1 << 16,
        call_rows: 0,
    };

    #[test]
    fn a_process_maps_what_has_storage_and_more_when_threads_begin() {
        let path = unique();
        let all = Mapping::create_sparse(&path, CAPACITY, 100).expect("made");
        let part = Mapping::join(&path).expect("joined");
        platform::remove(&path);
        let bytes: usize = part.parts().map(|(_, bytes)| bytes).sum();
        assert!(bytes < all.layout().total / 2, "{bytes}");
        assert_eq!((part.reachable_threads(), part.buffers()), (512, 100));
        assert!(part.thread(1024).is_none() && part.buffer_words(512).is_none());
        for _ in 0..512 {
            add_thread(&part, &NewThread::default()).expect("room");
        }
        assert!(add_thread(&part, &NewThread::default()).is_none());
        assert!(!may_have_room(&part));
        all.extend_threads(4000).expect("there is room");
        all.extend_buffers(2000).expect("there is room");
        assert!(may_have_room(&part));
        for i in 512..4000 {
            let (index, entry) = add_thread(&part, &NewThread::default()).expect("room");
            assert_eq!(index, i);
            entry.frees.store(u64::from(i), Ordering::Relaxed);
            let seen = all.thread(i).expect("there").frees.load(Ordering::Relaxed);
            assert_eq!(seen, u64::from(i));
        }
        assert_eq!(part.buffers(), 2000);
        let last = |mapping: &Mapping| mapping.buffer_words(1999).map(|words| &raw const words[0]);
        let (Some(here), Some(there)) = (last(&part), last(&all)) else {
            panic!("not mapped");
        };
        assert_ne!(here, there);
        let words = part.buffer_words(1999).expect("mapped");
        words[7].store(99, Ordering::Relaxed);
        let seen = all.buffer_words(1999).expect("mapped");
        assert_eq!(seen[7].load(Ordering::Relaxed), 99);
        part.replace_by_private().expect("replaced");
        assert_eq!(words[7].load(Ordering::Relaxed), 0);
        assert_eq!(seen[7].load(Ordering::Relaxed), 99);
    }

    #[test]
    fn what_is_left_of_the_space_says_how_much_is_taken() {
        let path = unique();
        let all = Mapping::create(&path, CAPACITY).expect("made");
        platform::remove(&path);
        let (layout, control) = (all.layout(), all.control());
        let usual = Mapping::share(layout, control, None).expect("no limit");
        let take = |bytes: u64| Mapping::share(layout, control, Some(bytes * PART_OF_SPACE));
        assert_eq!(take(usual.bytes(layout)), Some(usual));
        let least = take(usual.bytes(layout) - 1).expect("little is left");
        assert!(least.bytes(layout) < usual.bytes(layout));
        assert_eq!((least.nodes, least.threads), (FIRST_NODES, 1));
        assert_eq!(take(least.bytes(layout) - 1), None);
    }

    #[test]
    fn memory_without_a_file_is_joined_and_grows_in_its_own_process() {
        let all = Mapping::create_in_memory(CAPACITY, 100).expect("made");
        let part = all.join_here().expect("joined");
        assert_eq!((part.reachable_threads(), part.buffers()), (512, 100));
        all.extend_threads(4000).expect("there is room");
        all.extend_buffers(2000).expect("there is room");
        part.follow_growth();
        let last = part.thread(3999).expect("there");
        last.frees.store(7, Ordering::Relaxed);
        let seen = all
            .thread(3999)
            .expect("there")
            .frees
            .load(Ordering::Relaxed);
        assert_eq!(seen, 7);
        part.map_methods().expect("mapped");
        all.method_entries()[9].key.store(5, Ordering::Relaxed);
        assert_eq!(part.method_entries()[9].key.load(Ordering::Relaxed), 5);
        // A slot that is used again is empty.
        let node = |mapping: &Mapping, i| {
            mapping
                .node(1, i)
                .map(|n| n.address.load(Ordering::Relaxed))
        };
        all.prepare_generation(1).expect("there is room");
        for i in [1, 30_000] {
            all.node(1, i)
                .expect("there")
                .address
                .store(i.into(), Ordering::Relaxed);
            assert_eq!(node(&part, i), Some(i.into()));
        }
        all.prepare_generation(3).expect("there is room");
        assert_eq!((node(&part, 1), node(&part, 30_000)), (Some(0), Some(0)));
        assert!(all.is_intact());
        // The one that is left outlives the one that goes.
        drop(all);
        assert_eq!(
            part.thread(3999)
                .expect("there")
                .frees
                .load(Ordering::Relaxed),
            7
        );
    }
}
