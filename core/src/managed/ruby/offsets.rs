//! Where the fields of Ruby's structures lie, by version. The numbers are those of the headers of each
//! version for 64 bits and glibc. With other ones nothing is found that refers to itself as it should.

/// Where fields lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// `rb_vm_t`: the list of ractors.
    pub ractors: u64,
    /// `rb_ractor_t`: its place in that list, and the list of its threads.
    pub ractor_node: u64,
    pub threads: u64,
    /// `rb_thread_t`: its place in that list, the virtual machine, the execution context, what
    /// `pthread_self` gives there, the kernel's number.
    pub thread_node: u64,
    pub thread_vm: u64,
    pub context: u64,
    pub thread_handle: u64,
    pub thread_number: u64,
    /// `rb_execution_context_t`: the VM stack and its words, the innermost control frame, the innermost tag,
    /// the thread.
    pub stack: u64,
    pub stack_words: u64,
    pub innermost: u64,
    pub tag: u64,
    pub context_thread: u64,
    /// `struct rb_vm_tag`: the next outer one.
    pub tag_outer: u64,
    /// `rb_control_frame_t`: its bytes, its code (`iseq`), its environment. It begins with the address of the
    /// next instruction.
    pub frame_bytes: u64,
    pub code: u64,
    pub environment: u64,
    /// `rb_iseq_t`.
    pub body: u64,
    /// `struct rb_iseq_constant_body`: words of the code, the code.
    pub words: u64,
    pub instructions: u64,
    /// `location`: file, label, first line.
    pub file: u64,
    pub label: u64,
    pub first_line: u64,
    /// `insns_info`: lines, how many there are, and the index that leads to them.
    pub lines: u64,
    pub lines_count: u64,
    pub lines_index: u64,
}

const V3_1: Offsets = Offsets {
    ractors: 8,
    ractor_node: 568,
    threads: 304,
    thread_node: 0,
    thread_vm: 32,
    context: 40,
    thread_handle: 80,
    thread_number: 88,
    stack: 0,
    stack_words: 8,
    innermost: 16,
    tag: 24,
    context_thread: 48,
    tag_outer: 56,
    frame_bytes: 64,
    code: 16,
    environment: 32,
    body: 16,
    words: 4,
    instructions: 8,
    file: 64,
    label: 80,
    first_line: 88,
    lines: 120,
    lines_count: 136,
    lines_index: 144,
};

/// Those of a version, if they are known.
pub(super) fn of_version(version: (u32, u32)) -> Option<Offsets> {
    match version {
        (3, 1) => Some(V3_1),
        _ => None,
    }
}
