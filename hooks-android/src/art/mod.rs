//! ART: its symbols by version, walks of Java stacks, and the hooks in its locks, waits, allocator and collector.
