//! Names for the addresses in files, several files at the same time.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use stackbeat_core::address::Svma;
use stackbeat_proto::v1;

use super::module::{self, Address, Doing, Found, ModuleError};
use super::wanted::AddressSet;
use super::{ModuleFile, Options, Packet, Progress, Report};

/// Files that are read at the same time, with what each takes of memory.
const AT_ONCE: usize = 2;

/// The addresses of one file.
pub(super) struct Job {
    file: Arc<ModuleFile>,
    addresses: AddressSet,
    /// In its data.
    variables: BTreeSet<Svma>,
}

impl Job {
    pub(super) fn new(
        file: Arc<ModuleFile>,
        addresses: AddressSet,
        variables: BTreeSet<Svma>,
    ) -> Job {
        Job {
            file,
            addresses,
            variables,
        }
    }
}

/// What is reported of a job, by its number.
enum News {
    Names(v1::Symbols),
    /// So many of its addresses are done.
    Done(usize, usize),
    Ended(usize, Outcome),
}

#[derive(Default)]
struct Outcome {
    named: usize,
    /// Those that were not looked up any more.
    skipped: usize,
    failure: Option<ModuleError>,
}

/// What is still wanted of a search.
struct StillWanted {
    names: AtomicBool,
    /// Debug files from elsewhere.
    fetches: AtomicBool,
}

impl StillWanted {
    fn names(&self) -> bool {
        self.names.load(Ordering::Relaxed)
    }

    fn fetches(&self) -> bool {
        self.names() && self.fetches.load(Ordering::Relaxed)
    }

    /// Somebody wants no more. Whoever sees a fetch that takes long means that: what is here is still looked
    /// up.
    fn lessen(&self, is_fetching: bool) {
        if !(is_fetching && self.fetches.swap(false, Ordering::Relaxed)) {
            self.names.store(false, Ordering::Relaxed);
        }
    }
}

/// Names the addresses in these files, and says in `report` how many. `progress` is called as in
/// [`super::Symbolizer::symbolize`].
pub(super) fn symbolize(
    mut jobs: Vec<Job>,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress<'_>) -> bool,
    emit: &mut dyn FnMut(v1::Symbols),
) {
    // The one that takes longest does not begin last.
    let bytes = |job: &Job| {
        std::fs::metadata(options.sources.place_of(Path::new(&job.file.path)))
            .map_or(0, |file| file.len())
    };
    jobs.sort_by_cached_key(|job| std::cmp::Reverse(bytes(job)));
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let wanted = &StillWanted {
        names: AtomicBool::new(true),
        fetches: AtomicBool::new(true),
    };
    let source = options.sources.debug.as_deref();
    let is_fetching = || source.is_some_and(|source| source.under_way().is_some());
    let (sender, news) = channel();
    let sender = &sender;
    // Done of each job, and their sum.
    let (mut done_of, mut done) = (vec![0; jobs.len()], 0);
    let total = report.addresses;
    let mut ask = |job: &Job, addresses_done| {
        let goes_on = progress(Progress {
            addresses_done,
            addresses: total,
            module: &job.file.path,
        });
        if !goes_on {
            wanted.lessen(is_fetching());
        }
        wanted.names()
    };
    let (hand_out, numbers) = channel();
    let numbers = Mutex::new(numbers);
    // The lock is not held while a file is looked up.
    let next = &|| {
        numbers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv()
    };
    thread::scope(|scope| {
        // Ends the threads, whatever comes.
        let hand_out = hand_out;
        let at_once = match options.without_threads {
            true => 0,
            false => AT_ONCE.min(processors).min(jobs.len()),
        };
        let look_up_all = || {
            while let Ok::<usize, _>(number) = next() {
                look_up(number, &jobs[number], options, wanted, sender);
            }
        };
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, look_up_all);
        let threads = (0..at_once).map_while(|i| spawn(i).ok()).count();
        let (mut started, mut running) = (0, 0);
        loop {
            while running < threads.max(1)
                && wanted.names()
                && let Some(job) = jobs.get(started)
                && ask(job, done)
            {
                match threads {
                    // There can be no more of them.
                    0 => look_up(started, job, options, wanted, sender),
                    _ => drop(hand_out.send(started)),
                }
                started += 1;
                running += 1;
            }
            if running == 0 {
                break;
            }
            match news.recv() {
                Ok(News::Names(symbols)) => emit(symbols),
                Ok(News::Done(number, of_job)) => {
                    done += of_job - done_of[number];
                    done_of[number] = of_job;
                    if wanted.names() {
                        ask(&jobs[number], done);
                    }
                }
                Ok(News::Ended(number, outcome)) => {
                    running -= 1;
                    done += jobs[number].addresses.len() - done_of[number];
                    report.named += outcome.named;
                    report.skipped += outcome.skipped;
                    report.failures.extend(outcome.failure);
                }
                Err(_) => break,
            }
        }
        report.skipped += jobs[started..]
            .iter()
            .map(|job| job.addresses.len())
            .sum::<usize>();
    });
}

/// Tells that a job has ended, also by a panic, after which none is begun.
struct End<'a> {
    number: usize,
    outcome: Outcome,
    wanted: &'a StillWanted,
    sender: &'a Sender<News>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.wanted.names.store(false, Ordering::Relaxed);
        }
        let outcome = std::mem::take(&mut self.outcome);
        tell(self.sender, News::Ended(self.number, outcome));
    }
}

/// Nobody listens any more only where the whole search has panicked.
fn tell(sender: &Sender<News>, news: News) {
    drop(sender.send(news));
}

fn look_up(
    number: usize,
    job: &Job,
    options: &Options,
    wanted: &StillWanted,
    sender: &Sender<News>,
) {
    let mut end = End {
        number,
        outcome: Outcome::default(),
        wanted,
        sender,
    };
    let addresses = Vec::from(&job.addresses);
    let mut packet = Packet::of_file(&job.file);
    let mut skipped = 0;
    let ended = module::symbolize(
        &job.file.path,
        &job.file.build_id,
        options,
        &addresses,
        &job.variables,
        &mut |found| match found {
            Found::Variable(variable) => packet.add_variable(&variable),
            Found::Frames(i, frames) => {
                let address: Address = addresses[i];
                packet.add(address.svma, address.kind(), &frames);
                end.outcome.named += 1;
                if packet.is_full() {
                    let full = std::mem::replace(&mut packet, Packet::of_file(&job.file));
                    tell(sender, News::Names(full.symbols));
                }
            }
        },
        &mut |doing| match doing {
            Doing::Fetch => {
                tell(sender, News::Done(number, 0));
                wanted.fetches()
            }
            Doing::Addresses(done) => {
                tell(sender, News::Done(number, done));
                let goes_on = wanted.names();
                if !goes_on {
                    skipped = addresses.len() - done;
                }
                goes_on
            }
        },
    );
    packet.finish(&mut |symbols| tell(sender, News::Names(symbols)));
    end.outcome.skipped = skipped;
    end.outcome.failure = ended.err();
}
