//! Where the fields of Ruby's structures lie, by version. The numbers are those of the headers of each
//! version for 64 bits and glibc. With other ones nothing is found that refers to itself as it should.
//! Releases of one version do not differ in them.

/// Where fields lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    /// `rb_vm_t`: the list of ractors.
    pub ractors: u64,
    /// `rb_ractor_t`: its place in that list, and the list of its threads.
    pub ractor_node: u64,
    pub threads: u64,
    /// `rb_thread_t`: its place in that list, the virtual machine, the execution context.
    pub thread_node: u64,
    pub thread_vm: u64,
    pub context: u64,
    /// Where it leads to the thread of the system that it runs in (`struct rb_native_thread`). `None`: it is
    /// one itself.
    pub native_thread: Option<u64>,
    /// What `pthread_self` gives there, and the kernel's number.
    pub thread_handle: u64,
    pub thread_number: u64,
    /// `rb_execution_context_t`: the VM stack and its words, the innermost control frame, the innermost tag,
    /// the thread.
    pub stack: u64,
    pub stack_words: u64,
    pub innermost: u64,
    pub tag: u64,
    pub context_thread: u64,
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
    /// Whether short strings have their length in a word of its own, as long ones have, and their bytes
    /// behind it. Otherwise it is in the flags.
    pub short_strings_have_length: bool,
    /// Whether the first line is 32 bits. Otherwise it is an object, a small integer.
    pub first_line_is_plain: bool,
    /// What leads to a method's class, where backtraces show it. A `rescue` and an `ensure` have no line of
    /// their own in these.
    pub classes: Option<Classes>,
}

/// What leads to a method's class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    /// `struct rb_iseq_constant_body`, which begins with its kind: the code that it stands in, and the code
    /// of the method.
    pub parent: u64,
    pub local: u64,
    /// `rb_callable_method_entry_t`: the class that has it.
    pub owner: u64,
    /// `struct RClass` and what is behind it: whose singleton class it is, a byte whose lowest bit says that
    /// its path stays, the path.
    pub attached: u64,
    pub permanent: u64,
    pub path: u64,
}

/// `struct rb_vm_tag`: the next outer one, behind a jump buffer. That is the compiler's or libc's, as the
/// build has it.
pub(super) const TAG_OUTER: [u64; 2] = [56, 216];

const V3_1: Offsets = Offsets {
    ractors: 8,
    ractor_node: 568,
    threads: 304,
    thread_node: 0,
    thread_vm: 32,
    context: 40,
    native_thread: None,
    thread_handle: 80,
    thread_number: 88,
    stack: 0,
    stack_words: 8,
    innermost: 16,
    tag: 24,
    context_thread: 48,
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
    short_strings_have_length: false,
    first_line_is_plain: false,
    classes: None,
};

const V3_2: Offsets = Offsets {
    ractor_node: 568,
    threads: 304,
    thread_handle: 8,
    thread_number: 16,
    frame_bytes: 64,
    ..V3_3
};

const V3_3: Offsets = Offsets {
    ractors: 8,
    ractor_node: 432,
    threads: 256,
    thread_node: 0,
    thread_vm: 32,
    context: 48,
    native_thread: Some(40),
    thread_handle: 16,
    thread_number: 24,
    stack: 0,
    stack_words: 8,
    innermost: 16,
    tag: 24,
    context_thread: 48,
    frame_bytes: 56,
    code: 16,
    environment: 32,
    body: 16,
    words: 4,
    instructions: 8,
    file: 64,
    label: 80,
    first_line: 88,
    lines: 112,
    lines_count: 128,
    lines_index: 136,
    short_strings_have_length: true,
    first_line_is_plain: true,
    classes: None,
};

const V3_4: Offsets = Offsets {
    classes: Some(Classes {
        parent: 160,
        local: 168,
        owner: 32,
        attached: 128,
        permanent: 149,
        path: 152,
    }),
    ..V3_3
};

/// Those of a version, if they are known.
pub(super) fn of_version(version: (u32, u32)) -> Option<Offsets> {
    match version {
        (3, 1) => Some(V3_1),
        (3, 2) => Some(V3_2),
        (3, 3) => Some(V3_3),
        (3, 4) => Some(V3_4),
        _ => None,
    }
}
