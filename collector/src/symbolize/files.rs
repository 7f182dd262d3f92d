//! Names for the addresses in files, several files at the same time.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use stackbeat_proto::v1;

use super::module::{self, Address, ModuleError};
use super::wanted::AddressSet;
use super::{ModuleFile, Options, Packet, Progress, Report};

/// Files that are read at the same time, with what each takes of memory.
const AT_ONCE: usize = 2;

/// The addresses of one file.
struct Job {
    file: Arc<ModuleFile>,
    addresses: Vec<Address>,
}

/// What is told of a job, by its number.
enum News {
    Names(v1::Symbols),
    /// So many of its addresses are done.
    Done(usize, usize),
    /// So many have a name; why none has, if the file could not be read.
    Ended(usize, usize, Option<ModuleError>),
}

/// Names the addresses in these files, and says in `report` how many. `progress` is told as in
/// [`super::Symbolizer::symbolize`]. False: it wants no more.
pub(super) fn symbolize(
    files: BTreeMap<Arc<ModuleFile>, AddressSet>,
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress<'_>) -> bool,
    emit: &mut dyn FnMut(v1::Symbols),
) -> bool {
    let jobs = largest_first(files);
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let goes_on = &AtomicBool::new(true);
    let (sender, news) = channel();
    let sender = &sender;
    // Done of each job, and their sum.
    let (mut done_of, mut done) = (vec![0; jobs.len()], 0);
    let total = report.addresses;
    let mut ask = |job: &Job, addresses_done| {
        let progress = progress(Progress {
            addresses_done,
            addresses: total,
            module: &job.file.path,
        });
        goes_on.fetch_and(progress, Ordering::Relaxed) && progress
    };
    thread::scope(|scope| {
        let (mut begun, mut running) = (0, 0);
        loop {
            while running < AT_ONCE.min(processors)
                && goes_on.load(Ordering::Relaxed)
                && let Some(job) = jobs.get(begun)
                && ask(job, done)
            {
                let number = begun;
                let work = move || look_up(number, job, options, goes_on, sender);
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    // There can be no more threads.
                    work();
                }
                begun += 1;
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
                    if goes_on.load(Ordering::Relaxed) {
                        ask(&jobs[number], done);
                    }
                }
                Ok(News::Ended(number, named, failure)) => {
                    running -= 1;
                    let all = jobs[number].addresses.len();
                    done += all - done_of[number];
                    done_of[number] = all;
                    report.named += named;
                    report.failures.extend(failure);
                    if !goes_on.load(Ordering::Relaxed) {
                        report.skipped += all - named;
                    }
                }
                Err(_) => break,
            }
        }
        report.skipped += jobs[begun..]
            .iter()
            .map(|job| job.addresses.len())
            .sum::<usize>();
    });
    goes_on.load(Ordering::Relaxed)
}

/// The one that takes longest does not begin last.
fn largest_first(files: BTreeMap<Arc<ModuleFile>, AddressSet>) -> Vec<Job> {
    let job = |(file, set): (Arc<ModuleFile>, AddressSet)| Job {
        file,
        addresses: Vec::from(&set),
    };
    let mut jobs: Vec<Job> = files.into_iter().map(job).collect();
    let bytes = |job: &Job| std::fs::metadata(&job.file.path).map_or(0, |file| file.len());
    jobs.sort_by_cached_key(|job| std::cmp::Reverse(bytes(job)));
    jobs
}

/// Tells that a job has ended, also by a panic.
struct End<'a> {
    number: usize,
    named: usize,
    failure: Option<ModuleError>,
    sender: &'a Sender<News>,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        let news = News::Ended(self.number, self.named, self.failure.take());
        tell(self.sender, news);
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
    goes_on: &AtomicBool,
    sender: &Sender<News>,
) {
    let mut end = End {
        number,
        named: 0,
        failure: None,
        sender,
    };
    let mut packet = Packet::of_file(&job.file);
    let result = module::symbolize(
        &job.file.path,
        &job.file.build_id,
        options,
        &job.addresses,
        &mut |i, frames| {
            let address = job.addresses[i];
            packet.add(address.svma, address.kind(), &frames);
            end.named += 1;
            if packet.is_full() {
                let full = std::mem::replace(&mut packet, Packet::of_file(&job.file));
                tell(sender, News::Names(full.symbols));
            }
        },
        &mut |done| {
            tell(sender, News::Done(number, done));
            goes_on.load(Ordering::Relaxed)
        },
    );
    packet.finish(&mut |symbols| tell(sender, News::Names(symbols)));
    end.failure = result.err();
}
