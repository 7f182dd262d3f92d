//! What records say about threads and processes besides samples.

use super::*;

/// Longest text that an agent may tell in parts (a command line).
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Kinds of texts, and bytes of what works in a process, that are kept of one.
const MOST_TEXTS: usize = 8;
const MOST_CAPABILITY_BYTES: usize = 64 << 10;
/// Modules of one process. Programs load some hundreds; each unloading and loading makes another one.
const MOST_MODULES: usize = 16 << 10;

impl Lifecycle {
    /// The last sample so far of a thread.
    pub(crate) fn note_sample(&mut self, utid: Utid, row: &SampleRow) {
        if let Some(thread) = self.threads.get_mut(&utid) {
            thread.last_cpu_ns = thread.last_cpu_ns.max(row.cpu_ns);
            thread.last_ns = thread.last_ns.max(row.time_ns);
            self.last_ns = self.last_ns.max(row.time_ns);
            if row.rusage.is_some() {
                thread.rusage = row.rusage;
            }
        }
    }

    /// A module's path as the program gave it to the dynamic linker may be relative to where the program
    /// was then; the kernel knows the whole.
    fn absolute(&self, upid: Upid, path: String, start: u64, host: &dyn Host) -> String {
        if path.starts_with(['/', '[']) || path.is_empty() {
            return path;
        }
        self.processes
            .get(&upid)
            .and_then(|process| host.mapped_file(process.pid(), start))
            // By now something else may lie there.
            .filter(|found| found.rsplit('/').next() == path.rsplit('/').next())
            .or_else(|| {
                let from_here = std::env::current_dir().ok()?.join(&path);
                let found = stackbeat_symbolize::paths::real(&from_here)?;
                found.into_os_string().into_string().ok()
            })
            .unwrap_or(path)
    }

    /// A module that was met from outside; the agent may never meet it, or later.
    pub(crate) fn add_module(&mut self, module: v1::Module) {
        if !self.modules.is_there(Upid(module.upid), module.start) {
            self.insert_module(module);
        }
    }

    /// Adds what a process has mapped of its modules' code a second time.
    pub(crate) fn find_copies_of_code(&mut self, upid: Upid, host: &dyn Host) {
        /// The one that each process begins with: what a process mapped by itself belongs to no other.
        const FIRST_EPOCH: u32 = 1;
        let Some(process) = self.processes.get(&upid) else {
            return;
        };
        for copy in host.copies_of_code(process.pid()) {
            let module_at = |address| self.modules.at(upid, None, address);
            if module_at(copy.start).is_some() {
                continue;
            }
            let Some(original) = module_at(copy.original) else {
                continue;
            };
            let moved = copy.start.wrapping_sub(copy.original);
            let module = v1::Module {
                upid: upid.0,
                epoch: FIRST_EPOCH,
                end_epoch: 0,
                path: original.file.path.clone(),
                build_id: original.file.build_id.clone(),
                start: copy.start,
                end: copy.end,
                bias: original.bias.0.wrapping_add(moved),
            };
            self.insert_module(module);
        }
    }

    /// Adds a module or changes it, unless its process has too many.
    fn insert_module(&mut self, module: v1::Module) {
        let process = Upid(module.upid);
        let is_new = !(self.modules).contains(&(process, module.start, module.epoch));
        if !self.processes.contains_key(&process) && !self.module_counts.contains_key(&process) {
            // Not met yet, or over and forgotten, maybe: it is forgotten (again) unless it lives then.
            self.remembered.push_back((self.now_ns, process));
        }
        let count = self.module_counts.entry(process).or_default();
        if is_new && *count >= MOST_MODULES {
            self.contradictions += 1;
            return;
        }
        *count += usize::from(is_new);
        self.modules.insert(&module);
        self.say(packet::Body::Module(module));
    }

    /// A record that says something about a thread or its process. Saying it again changes nothing.
    pub(crate) fn take(&mut self, drained: &Drained, record: Record, host: &dyn Host) {
        match record {
            Record::Module {
                start,
                end,
                bias,
                epoch,
                path,
                build_id,
            } => {
                // A ring's records are read in each pass. Of a process that has ended they were said when
                // they were new, and would never be forgotten.
                if self.ended_processes.contains(&drained.upid) && !self.dead_world {
                    return;
                }
                let path = self.absolute(drained.upid, path, start, host);
                let module = v1::Module {
                    upid: drained.upid.0,
                    epoch,
                    end_epoch: 0,
                    path,
                    build_id,
                    start,
                    end,
                    bias: bias.0,
                };
                let key = (drained.upid, start, epoch);
                let is_known = self.modules.get(&key).is_some_and(|known| {
                    v1::Module {
                        end_epoch: 0,
                        ..known
                    } == module
                });
                // Only what the recorder sees from outside (`add_module`) may come before the process is met,
                // or after its end.
                let has_process = self.pids.contains_key(&drained.upid) || self.dead_world;
                self.contradictions += u64::from(!has_process);
                if has_process && !is_known {
                    self.insert_module(module);
                }
            }
            Record::ModuleGone { start, epoch } => {
                let process = drained.upid;
                // What came in its place has this epoch, and may have been announced before.
                if let Some(gone) = self.modules.end(process, start, epoch) {
                    self.say(packet::Body::Module(gone));
                }
            }
            Record::Name(name, of_runtime) => {
                if let Some(thread) = self.threads.get_mut(&drained.utid) {
                    thread.has_own_name = of_runtime;
                    if thread.packet.name != name {
                        thread.packet.name = name;
                        thread.dirty = true;
                        self.dirty.push(drained.utid);
                    }
                }
            }
            Record::Text {
                kind,
                offset,
                bytes,
            } => {
                if let Some(process) = self.processes.get_mut(&drained.upid) {
                    process.take_text(kind, offset, &bytes);
                }
            }
            Record::Sample(_)
            | Record::Mark { .. }
            | Record::Wait(_)
            | Record::Wake(_)
            | Record::Unknown => {}
        }
    }

    /// Records of a thread up to `end` are in the trace, or known to be lost.
    pub(crate) fn stored(&mut self, utid: Utid, end: u64, counts: &Counts) {
        if let Some(thread) = self.threads.get_mut(&utid) {
            thread.next_record = thread.next_record.max(end);
            thread.counts.0 += counts.stored;
            thread.counts.1 += counts.samples;
            thread.counts.2 += counts.damaged;
        } else {
            // Its totals are written already: a ring that is stored after its threads' ends.
            self.past.stored += counts.stored;
            self.past.damaged += counts.damaged;
        }
    }
}

impl Process {
    fn take_text(&mut self, kind: u32, offset: usize, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len());
        let is_new = !self.texts.contains_key(&kind);
        if end > MAX_TEXT_BYTES || (is_new && self.texts.len() >= MOST_TEXTS) {
            return;
        }
        let text = self.texts.entry(kind).or_default();
        if text.len() < end {
            text.resize(end, 0);
        }
        text[offset..end].copy_from_slice(bytes);
        let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if kind == TextKind::Executable as u32 {
            self.packet.executable = read(text);
        } else if kind == TextKind::StartedAs as u32 {
            self.packet.started_as = name_of_file(read(text));
        } else if kind == TextKind::CommandLine as u32 {
            let text = text.strip_suffix(b"\0").unwrap_or(text);
            self.packet.command_line = text.split(|b| *b == 0).map(read).collect();
        } else if kind == TextKind::Capability as u32 {
            let said = read(bytes);
            let capabilities = &mut self.packet.capabilities;
            let bytes: usize = capabilities.iter().map(String::len).sum();
            if !capabilities.contains(&said) && bytes < MOST_CAPABILITY_BYTES {
                capabilities.push(said);
            }
        }
        self.dirty = true;
    }
}
