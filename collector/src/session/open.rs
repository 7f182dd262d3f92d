//! Opens a session: makes the mapping and the output, and what drains the one into the other. Nobody records
//! yet.

use std::sync::Arc;
use std::time::SystemTime;

use stackbeat_core::clock::{self, Snapshot};
use stackbeat_core::shm::layout::ClockSource;
use stackbeat_core::shm::mapping::Mapping;
use stackbeat_core::sync::Ordering;
use stackbeat_proto::columns::time_unit_ns;

use super::drainer::DrainThread;
use super::error::{RecordError, Warning};
use super::finish;
use super::options::{Chosen, Options, Progress};
use super::shared::{Place, Shared};
use super::storage::{self, Storage};
use super::trace_header;
use crate::drain::Drainer;
use crate::host::Host;
use crate::writer::Writer;

/// A session before its threads.
pub(crate) struct Opened {
    pub shared: Arc<Shared>,
    pub storage: Storage,
    pub drain_thread: DrainThread,
    pub source: ClockSource,
    pub start: Snapshot,
    pub session_id: [u8; 16],
    /// What the mapping is called where it is mapped.
    pub mapping_name: Vec<u8>,
    pub host: Arc<dyn Host>,
}

/// What a session is opened with.
pub(crate) struct Opening<'a> {
    pub options: &'a Options,
    pub chosen: &'a Chosen,
    pub place: Place,
    /// When the program began; `None`: it begins later.
    pub program_began_at: Option<SystemTime>,
    /// Where the program runs, if that is not where the recorder does.
    pub working_directory: Option<&'a String>,
}

impl Opening<'_> {
    /// `prepare` is given the mapping before anybody knows of it, `host` its file's name.
    pub(crate) fn open(
        &self,
        prepare: impl FnOnce(&Mapping) -> Option<Warning>,
        host: impl FnOnce(&[u8]) -> Arc<dyn Host>,
        warnings: &mut Vec<Warning>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Opened, RecordError> {
        let Opening {
            options, chosen, ..
        } = *self;
        let source = clock::best_source();
        if source == ClockSource::Monotonic {
            warnings.push(Warning::NoCycleCounter);
        }
        let start = Snapshot::take(source);
        let session_id = trace_header::session_id();
        // The mapping first: an output that is to be replaced is only touched when recording can begin.
        let (mapping, storage, moved) = storage::create(options, session_id)?;
        let mut writer = create_output(options)?;
        let control = mapping.control();
        control
            .sampling_clock
            .store(chosen.clock as u32, Ordering::Relaxed);
        control.at_first.store(chosen.at_first, Ordering::Relaxed);
        control
            .timer_ns
            .store(chosen.timer_ns as u32, Ordering::Relaxed);
        // A program that is started comes after this; one that records itself ran before.
        let began = (self.program_began_at)
            .or_else(|| (self.place == Place::Outside).then(SystemTime::now));
        let mut header = trace_header::header(options, session_id, &start, chosen, began);
        if let Some(directory) = self.working_directory {
            header.working_directory.clone_from(directory);
        }
        writer.write_header(header).map_err(|source| {
            finish::remove_output(&options.output);
            RecordError::Output {
                path: options.output.clone(),
                source,
            }
        })?;
        warnings.extend(moved);
        warnings.extend(prepare(&mapping));
        for warning in &*warnings {
            progress(&Progress::Warning(warning.clone()));
        }
        let program_began_at = began.unwrap_or_else(SystemTime::now);
        let shared = Arc::new(Shared::new(mapping, self.place, program_began_at));
        let mapping_name = storage.mapping_name();
        let host = host(&mapping_name);
        let mut drainer = Drainer::new(
            Arc::clone(&host),
            source,
            &start,
            time_unit_ns(options.interval_ns.min(options.main_interval_ns)),
            options.compress,
        );
        drainer.generated.not_before = Some(program_began_at);
        drainer.generated.maps = shared.maps.clone();
        drainer.methods.unqualified.not_after = began;
        let second = Snapshot::take(source);
        drainer.add_snapshot(&second);
        let cycles_in = |ns| drainer.converter.to_cycles(ns);
        storage::set_clock(&shared.mapping, source, options.long_wait_ns, cycles_in);
        let drain_thread = DrainThread::new(Arc::clone(&shared), drainer, writer);
        Ok(Opened {
            shared,
            storage,
            drain_thread,
            source,
            start,
            session_id,
            mapping_name,
            host,
        })
    }
}

fn create_output(options: &Options) -> Result<Writer, RecordError> {
    Writer::create(&options.output, options.overwrite).map_err(|source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => RecordError::OutputExists {
            path: options.output.clone(),
        },
        _ => RecordError::Output {
            path: options.output.clone(),
            source,
        },
    })
}
