//! Dumps that nobody asks for by hand: on a signal to the recorder (`record --dump-on USR2`).

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::control::Session;
use super::control::protocol::{DumpReply, DumpRequest};

/// How a dump ended.
pub type Ended = Result<DumpReply, String>;

/// Dumps one after the other, beside the recording.
#[derive(Debug)]
pub struct AutoDump {
    session: Arc<Session>,
    last_ns: Option<u64>,
    symbolize: bool,
    under_way: Option<JoinHandle<Ended>>,
    /// Asked for while one was under way.
    once_more: bool,
    number: u32,
}

impl AutoDump {
    pub fn new(session: Arc<Session>, last_ns: Option<u64>, symbolize: bool) -> AutoDump {
        AutoDump {
            session,
            last_ns,
            symbolize,
            under_way: None,
            once_more: false,
            number: 0,
        }
    }

    /// A dump is wanted. While one is under way, another one follows it, however often it is asked for.
    pub fn want(&mut self) {
        if self.under_way.is_some() {
            self.once_more = true;
            return;
        }
        let request = DumpRequest {
            output: self.free_name(),
            overwrite: false,
            last_ns: self.last_ns,
            symbolize: self.symbolize,
        };
        let session = Arc::clone(&self.session);
        let dump = thread::Builder::new().name("stackbeat dump".to_owned());
        self.under_way = dump.spawn(move || session.dump(&request)).ok();
    }

    /// `TRACE.dump-1.beat` and so on, the first that is free.
    fn free_name(&mut self) -> PathBuf {
        loop {
            self.number += 1;
            let name = format!("dump-{}.beat", self.number);
            let path = self.session.trace.with_extension(name);
            if !path.exists() {
                return path;
            }
        }
    }

    /// The dump that has ended since the last call.
    pub fn ended(&mut self) -> Option<Ended> {
        if !self.under_way.as_ref()?.is_finished() {
            return None;
        }
        let ended = self.join();
        if std::mem::take(&mut self.once_more) {
            self.want();
        }
        ended
    }

    /// Finishes what is under way or wanted. The drain must still run.
    pub fn finish(mut self) -> Vec<Ended> {
        let mut all = Vec::from_iter(self.join());
        if self.once_more {
            self.want();
            all.extend(self.join());
        }
        all
    }

    fn join(&mut self) -> Option<Ended> {
        let joined = self.under_way.take()?.join();
        Some(joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}
