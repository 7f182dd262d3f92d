//! The shared mapping: making it (collector), opening it (agent, `recover`), and reaching its parts.
//!
//! What lies in the file may have been written by anybody. The layout is computed from the header's
//! capacities once, checked against the file's length, and kept in private memory: an index read
//! from the mapping later can be wrong, but never lead outside it.
//!
//! The collector maps all of it. A process of the program maps what has a fixed size, and of thread entries
//! and sub-buffers those that have storage: its address space is the program's.

mod methods;
mod paths;
mod pieces;
mod share;

pub use paths::{Marker, PATH_BYTES};

use pieces::Pieces;

use crate::platform::{self, Backing, Errno};
use crate::shm::layout::{
    self, ABI_VERSION, BufferHeader, CallRow, Capacity, Control, GenerationHeader, Header, Layout,
    MAGIC, METHOD_BYTES, Node, ProcessEntry, ThreadEntry, UNIX_PEERS, UnixPeer, WAIT_BUCKETS,
    WATCHES, WaitBucket, Watch,
};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use core::ffi::CStr;
use core::sync::atomic::AtomicPtr;

/// Thread entries that have storage from the start.
const FIRST_THREADS: u32 = 512;
/// Nodes of a generation that have storage from the start.
const FIRST_NODES: u32 = 1 << 15;
/// Thread entries and sub-buffers that are mapped together: whole pages.
const THREADS_IN_PIECE: u32 = 1024;
const BUFFERS_IN_PIECE: u32 = 512;
const _: () = {
    let threads = THREADS_IN_PIECE as usize * size_of::<ThreadEntry>();
    assert!(threads.is_multiple_of(layout::LARGEST_PAGE));
    // Sub-buffers have 4096 bytes or a multiple.
    assert!((BUFFERS_IN_PIECE as usize * 4096).is_multiple_of(layout::LARGEST_PAGE));
};

/// Why a mapping could not be made or opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingError {
    /// The step that failed and why.
    System(&'static str, Errno),
    /// The capacities cannot be laid out.
    Capacity,
    /// Not a mapping of stackbeat, or cut off.
    NotOurs,
    /// Made by a version with another layout: its number.
    OtherVersion(u32),
    /// Belongs to another user.
    OtherOwner,
    /// The process may take only little more address space (RLIMIT_AS).
    AddressSpace,
}

impl core::fmt::Display for MappingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            MappingError::System(step, errno) => write!(f, "{step}: {errno}"),
            MappingError::Capacity => f.write_str("the capacities cannot be laid out"),
            MappingError::NotOurs => f.write_str("not a stackbeat mapping, or cut off"),
            MappingError::OtherVersion(version) => write!(
                f,
                "its layout has version {version}, this stackbeat knows version {ABI_VERSION}"
            ),
            MappingError::OtherOwner => f.write_str("it belongs to another user"),
            MappingError::AddressSpace => {
                f.write_str("the address space of the process is limited (RLIMIT_AS)")
            }
        }
    }
}

impl core::error::Error for MappingError {}

/// A mapped session.
#[derive(Debug)]
pub struct Mapping {
    layout: Layout,
    /// From the header to the tables of fixed size; in the collector from the header to the end of the file.
    base: *mut u8,
    base_bytes: usize,
    /// The slots of the CallstackTable, and how many nodes of each are mapped.
    generations: [*mut u8; 2],
    nodes: u32,
    /// The table of methods, mapped as a whole; null: not yet.
    methods: AtomicPtr<u8>,
    threads: Pieces,
    buffers: Pieces,
    /// All lies behind `base`.
    is_whole: bool,
    /// The file, kept open by the collector to give it more storage; −1 in agents, and where there is none.
    fd: i32,
}

// SAFETY: everything behind the pointers is atomics; the rest is atomics and plain data that does not change.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Makes the file (which must not exist) and maps it. For the collector.
    pub fn create(path: &CStr, capacity: Capacity) -> Result<Mapping, MappingError> {
        Self::create_sparse(path, capacity, capacity.buffers)
    }

    /// As [`Mapping::create`]; only the first `buffers` sub-buffers have storage, until
    /// [`Mapping::extend_buffers`].
    pub fn create_sparse(
        path: &CStr,
        capacity: Capacity,
        buffers: u32,
    ) -> Result<Mapping, MappingError> {
        let layout = Layout::new(capacity).ok_or(MappingError::Capacity)?;
        let fd = platform::open(path, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)
            .map_err(|e| MappingError::System("create", e))?;
        // Others see by this that somebody works with the file (`recover`), however this process ends.
        platform::lock(fd);
        let mapping = Self::lay_out(fd, layout, buffers.min(capacity.buffers));
        if mapping.is_err() {
            platform::close(fd);
            platform::remove(path);
        }
        mapping
    }

    /// Makes one without a file, for a session inside the program: [`Mapping::join_here`] joins it, and
    /// nothing of it outlives the process.
    pub fn create_in_memory(capacity: Capacity, buffers: u32) -> Result<Mapping, MappingError> {
        let layout = Layout::new(capacity).ok_or(MappingError::Capacity)?;
        Self::fill_in(
            Backing::SharedAnonymous,
            -1,
            layout,
            buffers.min(capacity.buffers),
        )
    }

    fn lay_out(fd: i32, layout: Layout, buffers: u32) -> Result<Mapping, MappingError> {
        platform::set_length(fd, layout.total as u64)
            .map_err(|e| MappingError::System("set the length", e))?;
        Self::fill_in(Backing::Shared(fd), fd, layout, buffers)
    }

    fn fill_in(
        backing: Backing,
        fd: i32,
        layout: Layout,
        buffers: u32,
    ) -> Result<Mapping, MappingError> {
        // What has a fixed size but the tables of methods and callstacks, and the first thread entries and
        // buffers.
        let threads = FIRST_THREADS.min(layout.capacity.threads);
        for (offset, bytes) in [
            (0, layout.head_end),
            (layout.threads, threads as usize * size_of::<ThreadEntry>()),
            (
                layout.buffers,
                buffers as usize * layout.capacity.buffer_bytes as usize,
            ),
        ] {
            allocate(fd, offset, bytes)
                .map_err(|e| MappingError::System("allocate shared memory", e))?;
        }
        let base =
            platform::map(layout.total, backing, 0).map_err(|e| MappingError::System("map", e))?;
        let mapping = Mapping::of_whole(base, layout, fd);
        mapping.prepare_generation(0)?;
        mapping.prepare_methods()?;

        let header = mapping.header();
        let c = layout.capacity;
        header.abi_version.store(ABI_VERSION, Ordering::Relaxed);
        header
            .collector_pid
            .store(platform::process_id(), Ordering::Relaxed);
        header.processes.store(c.processes, Ordering::Relaxed);
        header.threads.store(c.threads, Ordering::Relaxed);
        header.buffers.store(c.buffers, Ordering::Relaxed);
        header.buffer_bytes.store(c.buffer_bytes, Ordering::Relaxed);
        header
            .generation_nodes
            .store(c.generation_nodes, Ordering::Relaxed);
        header.call_rows.store(c.call_rows, Ordering::Relaxed);
        header.total.store(layout.total as u64, Ordering::Relaxed);
        let control = mapping.control();
        control.next_upid.store(1, Ordering::Relaxed);
        control.next_utid.store(1, Ordering::Relaxed);
        control.threads_limit.store(threads, Ordering::Relaxed);
        control.buffers_limit.store(buffers, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
        Ok(mapping)
    }

    /// Opens and checks a mapping, and maps all of it. No descriptor stays open.
    pub fn open(path: &CStr) -> Result<Mapping, MappingError> {
        Self::opened(path, libc::O_RDWR | libc::O_NOFOLLOW, |fd| {
            Self::map_whole(fd, Backing::Shared(fd))
        })
    }

    /// Opens a mapping's file wherever it was copied to, for reading only (`recover`). Storing
    /// anything into it faults.
    pub fn open_read_only(path: &CStr) -> Result<Mapping, MappingError> {
        Self::opened(path, libc::O_RDONLY, |fd| {
            Self::map_whole(fd, Backing::SharedReadOnly(fd))
        })
    }

    /// Opens and checks a mapping as a process of the program, which maps the part of it that it needs. Where
    /// its address space is limited, it takes little of what is left, or stays out, counted. No descriptor
    /// stays open.
    pub fn join(path: &CStr) -> Result<Mapping, MappingError> {
        Self::opened(path, libc::O_RDWR | libc::O_NOFOLLOW, Self::map_share)
    }

    fn opened(
        path: &CStr,
        flags: i32,
        map: impl FnOnce(i32) -> Result<Mapping, MappingError>,
    ) -> Result<Mapping, MappingError> {
        let fd = platform::open(path, flags, 0).map_err(|e| MappingError::System("open", e))?;
        let mapping = map(fd);
        platform::close(fd);
        mapping
    }

    fn map_whole(fd: i32, backing: Backing) -> Result<Mapping, MappingError> {
        let layout = Self::check(fd, backing)?;
        let base =
            platform::map(layout.total, backing, 0).map_err(|e| MappingError::System("map", e))?;
        Ok(Mapping::of_whole(base, layout, -1))
    }

    fn of_whole(base: *mut u8, layout: Layout, fd: i32) -> Mapping {
        let c = layout.capacity;
        Mapping {
            base,
            base_bytes: layout.total,
            generations: layout.generations.map(|offset| base.wrapping_add(offset)),
            nodes: c.generation_nodes,
            methods: AtomicPtr::new(base.wrapping_add(layout.methods)),
            threads: Pieces::of_whole(
                base,
                layout.threads,
                c.threads,
                size_of::<ThreadEntry>(),
                THREADS_IN_PIECE,
            ),
            buffers: Pieces::of_whole(
                base,
                layout.buffers,
                c.buffers,
                c.buffer_bytes as usize,
                BUFFERS_IN_PIECE,
            ),
            is_whole: true,
            layout,
            fd,
        }
    }

    /// Of one slot, what is mapped in an agent.
    fn generation_bytes(&self) -> usize {
        self.layout.nodes_in_generation + self.nodes as usize * size_of::<Node>()
    }

    /// The layout of a file that may be anything.
    fn check(fd: i32, backing: Backing) -> Result<Layout, MappingError> {
        let (size, owner) =
            platform::file_size_and_owner(fd).map_err(|e| MappingError::System("inspect", e))?;
        let user = platform::effective_user();
        if owner != user && user != 0 {
            return Err(MappingError::OtherOwner);
        }
        if size < 8192 || size > isize::MAX as u64 {
            return Err(MappingError::NotOurs);
        }
        let base = platform::map(size_of::<Header>(), backing, 0)
            .map_err(|e| MappingError::System("map", e))?;
        // SAFETY: the file has at least 8192 bytes, the mapping is page aligned, and every bit
        // pattern is a valid header.
        let header = unsafe { &*base.cast::<Header>() };
        let layout = Self::layout_of(header, size);
        // SAFETY: nothing refers to the mapping any more.
        unsafe { platform::unmap(base, size_of::<Header>()) };
        layout
    }

    /// Whether the head still says what was written there when the mapping was made. False: somebody has
    /// written over it.
    pub fn is_intact(&self) -> bool {
        Self::layout_of(self.header(), self.layout.total as u64)
            .is_ok_and(|layout| layout.capacity == self.layout.capacity)
    }

    fn layout_of(header: &Header, size: u64) -> Result<Layout, MappingError> {
        if header.magic.load(Ordering::Acquire) != MAGIC {
            return Err(MappingError::NotOurs);
        }
        let version = header.abi_version.load(Ordering::Relaxed);
        if version != ABI_VERSION {
            return Err(MappingError::OtherVersion(version));
        }
        let layout = Layout::new(Capacity {
            processes: header.processes.load(Ordering::Relaxed),
            threads: header.threads.load(Ordering::Relaxed),
            buffers: header.buffers.load(Ordering::Relaxed),
            buffer_bytes: header.buffer_bytes.load(Ordering::Relaxed),
            generation_nodes: header.generation_nodes.load(Ordering::Relaxed),
            call_rows: header.call_rows.load(Ordering::Relaxed),
        });
        layout
            .filter(|layout| layout.total as u64 == size)
            .ok_or(MappingError::NotOurs)
    }

    /// Whether an address lies in the mapping.
    #[inline(always)]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base.addr()) < self.base_bytes || self.threads.contains(address)
    }

    /// Agent that leaves: gives the shared memory up and puts private zeros where it was, because threads
    /// may be about to write there.
    pub fn replace_by_private(&self) -> Result<(), MappingError> {
        for (memory, bytes) in self.parts() {
            // SAFETY: the range is this mapping's own, and everything in it is atomics for which zeros are
            // valid.
            unsafe { platform::map_zeros_over(memory, bytes) }
                .map_err(|e| MappingError::System("map", e))?;
        }
        Ok(())
    }

    /// What is mapped.
    fn parts(&self) -> impl Iterator<Item = (*mut u8, usize)> {
        let slots = self.generations.map(|slot| (slot, self.generation_bytes()));
        let methods = self.methods.load(Ordering::Acquire);
        let rest = slots
            .into_iter()
            .chain([(methods, METHOD_BYTES)])
            .filter(|(memory, _)| !memory.is_null())
            .chain(self.threads.each())
            .chain(self.buffers.each())
            .filter(|_| !self.is_whole);
        let base = (!self.base.is_null()).then_some((self.base, self.base_bytes));
        base.into_iter().chain(rest)
    }

    /// Where a mapping of the whole file lies, its length, and the descriptor that stays open; −1: there is
    /// no file. For the collector.
    pub fn file(&self) -> (*mut u8, usize, i32) {
        (self.base, self.base_bytes, self.fd)
    }

    /// Gives thread entries below `limit` their storage and lets agents use them. For the collector.
    pub fn extend_threads(&self, limit: u32) -> Result<(), MappingError> {
        let limit = limit.min(self.layout.capacity.threads);
        let have = self.control().threads_limit.load(Ordering::Relaxed);
        if limit <= have {
            return Ok(());
        }
        let offset = self.layout.threads + have as usize * size_of::<ThreadEntry>();
        let length = (limit - have) as usize * size_of::<ThreadEntry>();
        allocate(self.fd, offset, length)
            .map_err(|e| MappingError::System("allocate thread entries", e))?;
        self.control().threads_limit.store(limit, Ordering::Release);
        Ok(())
    }

    /// Sub-buffers that have storage and that this process can reach.
    pub fn buffers(&self) -> u32 {
        let limit = self.control().buffers_limit.load(Ordering::Acquire);
        limit.min(self.buffers.mapped())
    }

    /// Gives sub-buffers below `limit` their storage and lets agents use them. For the collector.
    pub fn extend_buffers(&self, limit: u32) -> Result<(), MappingError> {
        let limit = limit.min(self.layout.capacity.buffers);
        let have = self.buffers();
        if limit <= have {
            return Ok(());
        }
        let bytes = self.layout.capacity.buffer_bytes as usize;
        let offset = self.layout.buffers + have as usize * bytes;
        let length = (limit - have) as usize * bytes;
        allocate(self.fd, offset, length)
            .map_err(|e| MappingError::System("allocate sub-buffers", e))?;
        self.control().buffers_limit.store(limit, Ordering::Release);
        Ok(())
    }

    /// Gives nodes below `limit` of a slot their storage and lets agents use them. For the collector.
    pub fn extend_nodes(&self, slot: usize, limit: u32) -> Result<(), MappingError> {
        let header = self.generation(slot);
        let limit = limit.min(self.layout.capacity.generation_nodes);
        let have = header.nodes_limit.load(Ordering::Relaxed);
        if limit <= have {
            return Ok(());
        }
        let offset = self.layout.generations[slot & 1]
            + self.layout.nodes_in_generation
            + have as usize * size_of::<Node>();
        let length = (limit - have) as usize * size_of::<Node>();
        allocate(self.fd, offset, length)
            .map_err(|e| MappingError::System("allocate callstack nodes", e))?;
        header.nodes_limit.store(limit, Ordering::Release);
        Ok(())
    }

    /// Empties the slot of a generation and gives it storage. For the collector, which must have
    /// made sure that no thread uses the slot; agents use it once `Control::generation` names it.
    pub fn prepare_generation(&self, generation: u32) -> Result<(), MappingError> {
        let slot = generation as usize % 2;
        let offset = self.layout.generations[slot];
        let length = self.layout.nodes_in_generation
            + self.layout.capacity.generation_nodes as usize * size_of::<Node>();
        let header = self.generation(slot);
        header.nodes_limit.store(0, Ordering::Relaxed);
        if self.clear(offset, length).is_err() {
            for word in self.index(slot) {
                word.store(0, Ordering::Relaxed);
            }
            for i in 0..self.layout.capacity.generation_nodes {
                if let Some(node) = self.node(slot, i) {
                    node.parent.store(0, Ordering::Relaxed);
                    node.address.store(0, Ordering::Relaxed);
                }
            }
        }
        allocate(self.fd, offset, self.layout.nodes_in_generation)
            .map_err(|e| MappingError::System("allocate the callstack table", e))?;
        header.nodes_used.store(1, Ordering::Relaxed);
        header.generation.store(generation, Ordering::Release);
        self.extend_nodes(slot, FIRST_NODES)
    }

    /// Makes a part of it zeros, whose storage it takes away.
    fn clear(&self, offset: usize, length: usize) -> Result<(), Errno> {
        if self.fd >= 0 {
            return platform::punch_hole(self.fd, offset as u64, length as u64);
        }
        // SAFETY: the collector's own, which has mapped the whole; for everything in it zeros are valid.
        unsafe { platform::clear_shared(self.base.wrapping_add(offset), length) }
    }

    /// The layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A `T` at an offset that the layout gave, of what has a fixed size.
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.layout.head_end);
        // SAFETY: inside the mapping by the assertion; the layout aligns each region to a page and
        // each item to its size; `T` is one of the layout's types, which are all atomics, so every
        // bit pattern is valid and other processes may write.
        unsafe { &*self.base.add(offset).cast::<T>() }
    }

    /// `length` `T`s at an offset that the layout gave, of what has a fixed size.
    fn slice_at<T>(&self, offset: usize, length: usize) -> &[T] {
        assert!(offset + length * size_of::<T>() <= self.layout.head_end);
        // SAFETY: as in `at`.
        unsafe { core::slice::from_raw_parts(self.base.add(offset).cast::<T>(), length) }
    }

    /// `length` `T`s in a slot of the CallstackTable.
    fn in_generation<T>(&self, slot: usize, offset: usize, length: usize) -> &[T] {
        assert!(offset + length * size_of::<T>() <= self.generation_bytes());
        // SAFETY: as in `at`; so many bytes of each slot are mapped.
        unsafe {
            core::slice::from_raw_parts(self.generations[slot & 1].add(offset).cast::<T>(), length)
        }
    }

    /// Facts that do not change after the start.
    pub fn header(&self) -> &Header {
        self.at(0)
    }

    /// Settings, ticks and sums of all processes.
    pub fn control(&self) -> &Control {
        self.at(4096)
    }

    /// A process entry.
    pub fn process(&self, i: u32) -> Option<&ProcessEntry> {
        (i < self.layout.capacity.processes)
            .then(|| self.at(self.layout.processes + i as usize * size_of::<ProcessEntry>()))
    }

    /// A thread entry; `None` also for one that this process has not mapped. Entries at or above
    /// `Control::threads_limit` have no storage yet: an agent must not touch them.
    pub fn thread(&self, i: u32) -> Option<&ThreadEntry> {
        let entry = self.threads.at(i)?.cast::<ThreadEntry>();
        // SAFETY: as in `at`; pieces stay mapped as long as the mapping.
        Some(unsafe { &*entry })
    }

    /// The head of a sub-buffer.
    pub fn buffer(&self, i: u32) -> Option<&BufferHeader> {
        (i < self.layout.capacity.buffers)
            .then(|| self.at(self.layout.buffer_headers + i as usize * size_of::<BufferHeader>()))
    }

    /// How many threads wait for an object of each bucket; some of them may stand in the buckets behind.
    /// Apart from the buckets, because hooks that let go of something look here each time: 16 KiB stay in the
    /// caches, the buckets' 256 KiB do not.
    pub fn waiter_counts(&self) -> &[AtomicU32] {
        self.slice_at(self.layout.waiter_counts, WAIT_BUCKETS)
    }

    /// The table of waiters.
    pub fn waiters(&self) -> &[WaitBucket] {
        self.slice_at(self.layout.waiters, WAIT_BUCKETS)
    }

    /// The table of watches.
    pub fn watches(&self) -> &[Watch] {
        self.slice_at(self.layout.watches, WATCHES)
    }

    /// The table of Unix sockets.
    pub fn unix_peers(&self) -> &[UnixPeer] {
        self.slice_at(self.layout.unix_peers, UNIX_PEERS)
    }

    /// The activity bitmap: bit `i % 64` of word `i / 64` is set since thread entry `i` has changed.
    pub fn activity(&self) -> &[AtomicU64] {
        let words = layout::activity_words(self.layout.capacity.threads);
        self.slice_at(self.layout.activity, words)
    }

    /// Copies of seccomp filters.
    pub fn filters(&self) -> &[AtomicU64] {
        self.slice_at(self.layout.filters, layout::FILTER_WORDS)
    }

    /// A row of counted calls.
    pub fn call_row(&self, i: u32) -> Option<&CallRow> {
        (i < self.layout.capacity.call_rows)
            .then(|| self.at(self.layout.call_rows + i as usize * size_of::<CallRow>()))
    }

    /// The words of a sub-buffer; `None` also for one that this process has not mapped.
    pub fn buffer_words(&self, i: u32) -> Option<&[AtomicU64]> {
        let words = self.layout.capacity.buffer_bytes as usize / 8;
        let first = self.buffers.at(i)?.cast::<AtomicU64>();
        // SAFETY: as in `at`; pieces stay mapped as long as the mapping.
        Some(unsafe { core::slice::from_raw_parts(first, words) })
    }

    /// The head of a generation slot (0 or 1).
    pub fn generation(&self, slot: usize) -> &GenerationHeader {
        &self.in_generation(slot, 0, 1)[0]
    }

    /// The hash index of a generation slot.
    #[allow(clippy::should_implement_trait)]
    pub fn index(&self, slot: usize) -> &[AtomicU32] {
        self.in_generation(
            slot,
            self.layout.index_in_generation,
            self.layout.capacity.generation_nodes as usize * 2,
        )
    }

    /// A node of a generation slot. Nodes at or above `GenerationHeader::nodes_limit` may have no
    /// storage yet.
    pub fn node(&self, slot: usize, i: u32) -> Option<&Node> {
        self.nodes(slot).get(i as usize)
    }

    /// The nodes of a generation slot that this process can reach.
    pub fn nodes(&self, slot: usize) -> &[Node] {
        self.in_generation(slot, self.layout.nodes_in_generation, self.nodes as usize)
    }
}

/// Gives a part of the file its storage. Memory without a file has some when it is written.
fn allocate(fd: i32, offset: usize, length: usize) -> Result<(), Errno> {
    match fd {
        ..0 => Ok(()),
        fd => platform::allocate(fd, offset as u64, length as u64),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        for (memory, bytes) in self.parts() {
            // SAFETY: every reference into the mapping borrows `self`.
            unsafe { platform::unmap(memory, bytes) };
        }
        if self.fd >= 0 {
            platform::close(self.fd);
        }
    }
}

#[cfg(all(test, not(miri), not(loom)))]
pub(crate) mod tests {
    use super::*;
    use std::ffi::CString;
    use std::format;
    use std::io::{Read, Seek, SeekFrom, Write};

    /// A small mapping whose file is removed at once.
    pub(crate) fn small() -> Mapping {
        let path = unique();
        let mapping = Mapping::create(
            &path,
            Capacity {
                processes: 4,
                threads: 64,
                buffers: 8,
                buffer_bytes: 4096,
                generation_nodes: 1024,
                call_rows: 2,
            },
        )
        .expect("tmpfs has room for a small mapping");
        platform::remove(&path);
        mapping
    }

    pub(crate) fn unique() -> CString {
        use core::sync::atomic::AtomicU32;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = if cfg!(target_os = "linux") {
            std::path::PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let name = format!("stackbeat-test.{}.{n}", platform::process_id());
        CString::new(folder.join(name).into_os_string().into_encoded_bytes())
            .expect("no NUL in the path")
    }

    #[test]
    fn what_one_side_writes_the_other_sees() {
        let path = unique();
        let a = Mapping::create(&path, Capacity::default()).expect("created");
        assert!(matches!(
            Mapping::create(&path, Capacity::default()),
            Err(MappingError::System("create", Errno(libc::EEXIST)))
        ));
        let b = Mapping::open(&path).expect("opened");
        platform::remove(&path);
        assert_eq!(a.layout(), b.layout());
        let last = a.layout().capacity.buffers - 1;
        a.buffer_words(last).expect("exists")[511].store(77, Ordering::Relaxed);
        assert_eq!(
            b.buffer_words(last).expect("exists")[511].load(Ordering::Relaxed),
            77
        );
        assert!(a.buffer(last + 1).is_none());
        assert!(a.set_trace_path(b"/tmp/x/some-run.beat"));
        assert_eq!(b.trace_path(), b"/tmp/x/some-run.beat");
        a.extend_threads(2000).expect("there is room");
        assert_eq!(b.control().threads_limit.load(Ordering::Relaxed), 2000);
    }

    #[test]
    fn a_pool_grows_for_everybody() {
        use crate::shm::buffer::Pool;
        let path = unique();
        let capacity = Capacity::default();
        let a = Mapping::create_sparse(&path, capacity, 16).expect("created");
        let b = Mapping::open(&path).expect("opened");
        assert_eq!((a.count(), b.count()), (16, 16));
        a.extend_buffers(64).expect("there is room");
        a.extend_buffers(32).expect("nothing to do");
        assert_eq!((a.count(), b.count()), (64, 64));
        a.extend_buffers(u32::MAX).expect("there is room");
        assert_eq!(b.count(), capacity.buffers);
        platform::remove(&path);
    }

    #[test]
    fn damaged_files_are_refused() {
        let path = unique();
        drop(Mapping::create(&path, Capacity::default()).expect("created"));
        let name = path.to_str().expect("ASCII");
        let file = || {
            std::fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(name)
                .expect("it exists")
        };
        assert!(Mapping::open(&path).is_ok());
        // Each byte of the header, flipped, is noticed: another magic, version or size.
        for offset in (0..12).chain(32..52).chain(56..64) {
            let mut f = file();
            let mut byte = [0u8];
            f.seek(SeekFrom::Start(offset)).expect("seek");
            f.read_exact(&mut byte).expect("read");
            f.seek(SeekFrom::Start(offset)).expect("seek");
            f.write_all(&[byte[0] ^ 0x40]).expect("write");
            if !(56..64).contains(&offset) {
                assert!(Mapping::open(&path).is_err(), "byte {offset}");
            }
            f.seek(SeekFrom::Start(offset)).expect("seek");
            f.write_all(&byte).expect("write");
        }
        assert!(Mapping::open(&path).is_ok());
        file().set_len(100_000).expect("shrinks");
        assert_eq!(Mapping::open(&path).err(), Some(MappingError::NotOurs));
        file().set_len(0).expect("shrinks");
        assert_eq!(Mapping::open(&path).err(), Some(MappingError::NotOurs));
        platform::remove(&path);
        assert!(Mapping::open(&path).is_err());
    }
}
