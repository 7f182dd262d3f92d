//! Who is who where a viewer knows processes and threads by their ids: an exec gives a process another
//! image, not another id. Its images, and their main threads, are shown as one.

use std::collections::HashMap;

use stackbeat_model::{ProcessIndex, ThreadIndex, Trace};

/// The first of the images of each process, and of their main threads.
#[derive(Debug)]
pub(super) struct Identities {
    processes: Vec<ProcessIndex>,
    threads: Vec<ThreadIndex>,
    /// By first image: the last one, which names the whole.
    last_images: Vec<ProcessIndex>,
    last_threads: Vec<ThreadIndex>,
}

impl Identities {
    pub(super) fn new(trace: &Trace) -> Identities {
        let indices = 0..trace.processes().len() as u32;
        let mut processes: Vec<ProcessIndex> = indices.clone().map(ProcessIndex).collect();
        let mut last_images = processes.clone();
        // Images come in the order of their time, so a parent is settled before its child.
        for index in indices.map(ProcessIndex) {
            let process = trace.process(index);
            if let Some(before) = trace.image_before(index) {
                let first = processes[before.0 as usize];
                processes[index.0 as usize] = first;
                if trace.process(last_images[first.0 as usize]).start_ns <= process.start_ns {
                    last_images[first.0 as usize] = index;
                }
            }
        }
        let mut threads = Vec::new();
        let mut mains: HashMap<ProcessIndex, ThreadIndex> = HashMap::new();
        let mut last_threads: Vec<ThreadIndex> = Vec::new();
        for (index, thread) in trace.threads().iter().enumerate() {
            let index = ThreadIndex(index as u32);
            last_threads.push(index);
            if thread.tid != trace.process(thread.process).pid.main_thread() {
                threads.push(index);
                continue;
            }
            let first = *mains
                .entry(processes[thread.process.0 as usize])
                .or_insert(index);
            threads.push(first);
            let last = &mut last_threads[first.0 as usize];
            if trace.thread(*last).start_ns <= thread.start_ns {
                *last = index;
            }
        }
        Identities {
            processes,
            threads,
            last_images,
            last_threads,
        }
    }

    /// Stands for all images of the process.
    pub(super) fn process(&self, process: ProcessIndex) -> ProcessIndex {
        self.processes[process.0 as usize]
    }

    /// Stands for the main threads of all images of a process, or for the thread itself.
    pub(super) fn thread(&self, thread: ThreadIndex) -> ThreadIndex {
        self.threads[thread.0 as usize]
    }

    /// The image that names the process.
    pub(super) fn last_image(&self, process: ProcessIndex) -> ProcessIndex {
        self.last_images[self.process(process).0 as usize]
    }

    /// The thread that names it and its earlier selves.
    pub(super) fn last_thread(&self, thread: ThreadIndex) -> ThreadIndex {
        self.last_threads[self.thread(thread).0 as usize]
    }
}
