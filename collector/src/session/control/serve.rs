//! Serves clients: one thread, a few connections at a time, each with one request and little time.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::setpriority_process;
use stackbeat_core::platform;

use super::Session;
use super::socket;
use crate::session::protocol::{MAX_REQUEST, Reply, Request, decode_request, line};

/// Connections at a time; further ones wait in the kernel.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to say what it wants.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client may take to read the answer.
const WRITE_TIMEOUT: Duration = Duration::from_millis(200);
/// Rest after a round in which something was done: a client that floods gets no more than this.
const PACE: Duration = Duration::from_millis(1);

/// The thread that serves clients.
#[derive(Debug)]
pub(crate) struct Server {
    thread: JoinHandle<()>,
    /// Closed to end it.
    wake: UnixStream,
}

impl Server {
    /// Begins to serve.
    ///
    /// # Errors
    ///
    /// When the socket cannot be had; the session can go on without.
    pub(crate) fn start(session: Arc<Session>) -> io::Result<Server> {
        let listener = socket::listen(&session.name)?;
        let (wake, waked) = UnixStream::pair()?;
        let thread = thread::Builder::new()
            .name("stackbeat control".to_owned())
            .spawn(move || {
                Serving {
                    session,
                    listener,
                    waked: Some(waked),
                    clients: Vec::new(),
                    dump: None,
                }
                .run();
            })?;
        Ok(Server { thread, wake })
    }

    /// Serves on the calling thread until the session stops and [`Server::call`] says so: inside the program,
    /// where a thread that this one would start takes memory of the program's malloc, and each thread has
    /// descriptors of its own. So dumps are written here, and other clients wait meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Server::start`].
    pub(crate) fn serve_here(session: Arc<Session>) -> io::Result<()> {
        let listener = socket::listen(&session.name)?;
        be_nice();
        Serving {
            session,
            listener,
            waked: None,
            clients: Vec::new(),
            dump: None,
        }
        .run();
        Ok(())
    }

    /// Has [`Server::serve_here`] look whether the session has stopped. A server that does not listen yet
    /// looks by itself.
    pub(crate) fn call(session: &str) {
        let _ = socket::connect_at_once(session);
    }

    /// Ends it. A dump that is under way is finished first.
    pub(crate) fn stop(self) {
        drop(self.wake);
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// A connection whose request is not complete.
struct Client {
    stream: UnixStream,
    said: Vec<u8>,
    until: Instant,
}

/// What became of a connection.
enum Progress {
    Waiting,
    Gone,
    Said,
}

/// What there is to do.
struct Ready {
    is_over: bool,
    is_new: bool,
    /// Of each client, whether it has said something or is gone.
    clients: Vec<bool>,
}

struct Serving {
    session: Arc<Session>,
    listener: UnixListener,
    /// Closed to end it. `None`: it serves until the session stops.
    waked: Option<UnixStream>,
    clients: Vec<Client>,
    dump: Option<JoinHandle<()>>,
}

impl Serving {
    fn run(mut self) {
        while self.waked.is_some() || !self.session.shared.stopping() {
            let ready = self.wait();
            if ready.is_over {
                break;
            }
            let clients = std::mem::take(&mut self.clients);
            for (client, is_ready) in clients.into_iter().zip(ready.clients) {
                self.serve(client, is_ready);
            }
            if ready.is_new {
                self.accept();
            }
            thread::sleep(PACE);
        }
        if let Some(dump) = self.dump.take() {
            // Its own end is said to its client.
            let _ = dump.join();
        }
        socket::forget(&self.session.name);
    }

    /// Waits for something to do.
    fn wait(&self) -> Ready {
        let polled = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let streams = self.clients.iter().map(|client| client.stream.as_fd());
        let mut all: Vec<PollFd<'_>> = streams.map(polled).collect();
        let mut add = |fd| {
            all.push(polled(fd));
            all.len() - 1
        };
        let waked = self.waked.as_ref().map(|waked| add(waked.as_fd()));
        let has_room = self.clients.len() < MAX_CLIENTS;
        let listener = has_room.then(|| add(self.listener.as_fd()));
        let now = Instant::now();
        let nearest = self.clients.iter().map(|c| c.until).min();
        let timeout = nearest.map(|until| until.saturating_duration_since(now));
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Interrupted: nothing is ready.
        let _ = poll(&mut all, timeout.as_ref());
        let is_ready = |at: usize| !all[at].revents().is_empty();
        Ready {
            is_over: waked.is_some_and(is_ready),
            is_new: listener.is_some_and(is_ready),
            clients: (0..self.clients.len()).map(is_ready).collect(),
        }
    }

    fn accept(&mut self) {
        while self.clients.len() < MAX_CLIENTS {
            let Ok((stream, _)) = self.listener.accept() else {
                return;
            };
            let is_allowed = socket::peer_uid(&stream)
                .is_ok_and(|uid| socket::may_steer(uid, platform::effective_user()));
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            if !is_allowed {
                answer(
                    stream,
                    &Reply::error("only the session's user and root may steer it"),
                );
                continue;
            }
            self.clients.push(Client {
                stream,
                said: Vec::new(),
                until: Instant::now() + TIMEOUT,
            });
        }
    }

    fn serve(&mut self, mut client: Client, is_ready: bool) {
        let progress = if is_ready {
            client.read()
        } else {
            Progress::Waiting
        };
        match progress {
            Progress::Gone => {}
            Progress::Said => self.handle(client),
            Progress::Waiting if client.said.len() > MAX_REQUEST => {
                answer(client.stream, &Reply::error("the request is too long"));
            }
            Progress::Waiting if Instant::now() >= client.until => {
                answer(client.stream, &Reply::error("no request came in time"));
            }
            Progress::Waiting => self.clients.push(client),
        }
    }

    fn handle(&mut self, client: Client) {
        let request = match decode_request(&client.said) {
            Ok(request) => request,
            Err(error) => return answer(client.stream, &Reply::error(error)),
        };
        if !matches!(request, Request::Dump(_)) {
            return answer(client.stream, &self.session.handle(&request));
        }
        if self.dump.as_ref().is_some_and(|dump| !dump.is_finished()) {
            return answer(
                client.stream,
                &Reply::error("another dump is under way; try again when it is done"),
            );
        }
        if self.waked.is_none() {
            return answer(client.stream, &self.session.handle(&request));
        }
        let session = Arc::clone(&self.session);
        let dump = thread::Builder::new().name("stackbeat dump".to_owned());
        self.dump = dump
            .spawn(move || {
                be_nice();
                answer(client.stream, &session.handle(&request));
            })
            .ok();
    }
}

/// Looking names up is not to take the processor from the program.
fn be_nice() {
    // On Linux this process means the calling thread. It may always be nicer.
    let _ = setpriority_process(None, 10);
}

impl Client {
    fn read(&mut self) -> Progress {
        let mut part = [0; 4096];
        loop {
            match self.stream.read(&mut part) {
                Ok(0) => return Progress::Gone,
                Ok(n) => {
                    self.said.extend_from_slice(&part[..n]);
                    if let Some(end) = self.said.iter().position(|b| *b == b'\n') {
                        self.said.truncate(end);
                        return Progress::Said;
                    }
                    if self.said.len() > MAX_REQUEST {
                        return Progress::Waiting;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Waiting;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Progress::Gone,
            }
        }
    }
}

/// Says it and ends the connection. A client that does not listen does not matter.
fn answer(mut stream: UnixStream, reply: &Reply) {
    let _ = stream.set_nonblocking(false);
    let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let _ = stream.write_all(&line(reply));
    let _ = stream.shutdown(std::net::Shutdown::Both);
}
