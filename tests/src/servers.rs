//! Servers that tests record: started alone or by a recorder, used by clients that accept no error, ended by
//! their pids however the test ends. All of them listen on a Unix socket in their folder, but the service on
//! tokio, which takes a free port.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stackbeat_collector::session::control::client;
use stackbeat_collector::session::protocol::SessionStatus;
use tempfile::TempDir;

use crate::process_tree::{State, end_family, family, send};
use crate::{Program, example, run, scratch, stackbeat, wait_until};

/// Two workers, and nothing outside of the folder that they are started in.
pub const NGINX: &str = "
daemon off; worker_processes 2; error_log nginx.log; pid nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen unix:n.sock; location / { return 200 answer; } }
}";

/// Answers as nginx does; for `/slow` it computes for 1.5 s, and everybody waits.
const NODE: &str = "
const http = require('http');
const server = http.createServer((request, response) => {
    const end = Date.now() + (request.url === '/slow' ? 1500 : 0);
    while (Date.now() < end) {}
    response.end('answer');
});
server.listen('n.sock');
process.on('SIGTERM', () => server.close());
";

/// Lets users that servers take see what is in a folder, and write there.
pub fn open_to_all(path: &Path) {
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(path, all).expect("is ours");
}

/// The newest server that Debian's packages have installed.
fn postgres_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("postgresql is installed");
    let programs = versions.flatten().map(|version| version.path().join("bin"));
    let number = |path: &PathBuf| -> u32 {
        let version = path.iter().rev().nth(1).and_then(|name| name.to_str());
        version.and_then(|name| name.parse().ok()).unwrap_or(0)
    };
    programs.max_by_key(number).expect("a version")
}

/// The program, in a folder, with what postgres' programs need in their environment.
pub fn with_postgres(program: Program, folder: &Path) -> Program {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", postgres_programs().display());
    program
        .folder(folder)
        .variable("PATH", &path)
        .variable("HOME", folder.to_str().expect("UTF-8"))
}

/// postgres does not run as root: there, the command runs as the user that the package has made. A recorder
/// is given a name in the folder, because the build's own may be closed to that user.
pub fn as_postgres_user(command: Command, folder: &Path) -> Command {
    let mut who = Command::new("id");
    who.arg("-u");
    if run(who).stdout().trim() != "0" {
        return command;
    }
    let mut program = PathBuf::from(command.get_program());
    if program == stackbeat() {
        program = folder.join("stackbeat");
        if !program.exists() && fs::hard_link(stackbeat(), &program).is_err() {
            fs::copy(stackbeat(), &program).expect("is copied");
        }
    }
    let mut as_user = Command::new("setpriv");
    as_user
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
        .arg(program)
        .args(command.get_args())
        .current_dir(folder);
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => as_user.env(name, value),
            None => as_user.env_remove(name),
        };
    }
    as_user
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// Which server it is.
pub enum Kind {
    /// One thread for its clients, and some for work in the background.
    Redis,
    /// A master and two workers.
    Nginx,
    /// An event loop, and threads for files.
    Node,
    /// A process for each client.
    Postgres,
    /// `examples/tokio_service.rs` of this package.
    Tokio,
}

impl Kind {
    /// What is started in the server's folder.
    fn command(self) -> Vec<String> {
        let words: &[&str] = match self {
            Kind::Redis => &[
                "redis-server",
                "--port",
                "0",
                "--unixsocket",
                "r.sock",
                "--save",
                "",
                "--daemonize",
                "no",
            ],
            Kind::Nginx => &["nginx", "-p", ".", "-c", "nginx.conf"],
            Kind::Node => &["node", "server.js"],
            // Workers that come and go by themselves would be in the way of comparisons.
            Kind::Postgres => &[
                "postgres",
                "-D",
                "data",
                "-h",
                "",
                "-c",
                "autovacuum=off",
                "-c",
                "unix_socket_directories=..",
            ],
            Kind::Tokio => return [self.tokio(), "serve", "port"].map(str::to_owned).to_vec(),
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn tokio(self) -> &'static str {
        static PATH: std::sync::OnceLock<String> = std::sync::OnceLock::new();
        let path = || {
            let path = example("tokio_service");
            path.to_str().expect("UTF-8").to_owned()
        };
        PATH.get_or_init(path)
    }
}

/// Where a server is reached.
#[derive(Clone, Debug)]
pub struct Address {
    kind: Kind,
    folder: PathBuf,
}

impl Address {
    /// A client program in the server's folder.
    pub fn client<S: AsRef<str>>(&self, command: impl IntoIterator<Item = S>) -> Command {
        let program = Program::new(command);
        let program = match self.kind {
            Kind::Postgres => with_postgres(program, &self.folder),
            Kind::Redis | Kind::Nginx | Kind::Node | Kind::Tokio => program.folder(&self.folder),
        };
        program.plain_command()
    }

    /// Runs a client that must succeed; gives what it said.
    #[track_caller]
    pub fn tell<S: AsRef<str>>(&self, command: impl IntoIterator<Item = S>) -> String {
        let ended = run(self.client(command));
        let said = ended.stdout() + &ended.stderr();
        assert!(ended.output.status.success(), "{:?}: {said}", self.kind);
        said
    }

    fn is_ready(&self) -> bool {
        let answers = |command: &[&str]| run(self.client(command)).output.status.success();
        match self.kind {
            Kind::Redis => answers(&["redis-cli", "-s", "r.sock", "-e", "ping"]),
            Kind::Nginx | Kind::Node => UnixStream::connect(self.folder.join("n.sock")).is_ok(),
            Kind::Postgres => answers(&["pg_isready", "-q", "-h", &self.host()]),
            Kind::Tokio => self.port().is_some(),
        }
    }

    /// The folder, as postgres' clients want it.
    pub fn host(&self) -> String {
        self.folder.to_str().expect("UTF-8").to_owned()
    }

    fn port(&self) -> Option<u16> {
        let port = fs::read_to_string(self.folder.join("port")).ok()?;
        port.parse().ok()
    }

    /// A round of requests, each of which must be answered, and rightly.
    pub fn ask(&self) {
        match self.kind {
            Kind::Redis => {
                let benchmark = "redis-benchmark -s r.sock -q -n 1000 -c 8 -t set,get,lpush";
                let said = self.tell(benchmark.split(' '));
                assert!(!said.contains("rror"), "{said}");
            }
            Kind::Nginx | Kind::Node => {
                for _ in 0..50 {
                    self.get("/");
                }
            }
            Kind::Postgres => {
                let benchmark = "pgbench -n -c 3 -j 1 -t 20 -U postgres postgres -h";
                let host = self.host();
                let said = self.tell(benchmark.split(' ').chain([host.as_str()]));
                assert!(said.contains("failed transactions: 0 "), "{said}");
                assert!(said.contains("processed: 60/60"), "{said}");
            }
            Kind::Tokio => self.count(),
        }
    }

    /// Asks nginx or node for a page, which must be answered.
    pub fn get(&self, path: &str) {
        let mut stream = UnixStream::connect(self.folder.join("n.sock")).expect("connects");
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").expect("asks");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("is answered");
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.ends_with("answer"), "{answer}");
    }

    fn count(&self) {
        let port = self.port().expect("it listens");
        let connect = || TcpStream::connect(("127.0.0.1", port)).expect("connects");
        let mut streams = [connect(), connect(), connect()];
        for number in 0..15u64 {
            for stream in &mut streams {
                stream.write_all(&number.to_be_bytes()).expect("asks");
            }
            for stream in &mut streams {
                let mut answer = [0; 8];
                stream.read_exact(&mut answer).expect("is answered");
                assert_eq!(u64::from_be_bytes(answer), number + 1);
            }
        }
    }
}

/// A running server, or its recorder.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    child: Child,
    is_recorded: bool,
    input: Option<ChildStdin>,
    // Goes last.
    folder: TempDir,
}

impl Server {
    /// As it is without us.
    pub fn alone(kind: Kind) -> Server {
        Server::start(kind, None)
    }

    /// Under `stackbeat record` with these options.
    pub fn recorded(kind: Kind, options: &[&str]) -> Server {
        Server::start(kind, Some(options))
    }

    fn start(kind: Kind, recorder: Option<&[&str]>) -> Server {
        let folder = scratch();
        let at = folder.path();
        open_to_all(at);
        let mut program = Program::new(kind.command()).folder(at);
        match kind {
            Kind::Nginx => fs::write(at.join("nginx.conf"), NGINX).expect("is written"),
            Kind::Node => fs::write(at.join("server.js"), NODE).expect("is written"),
            Kind::Postgres => {
                let init = "initdb -D data -A trust -U postgres --no-sync";
                let init = with_postgres(Program::new(init.split(' ')), at);
                let made = run(as_postgres_user(init.plain_command(), at));
                assert!(made.output.status.success(), "{}", made.stderr());
                program = with_postgres(program, at);
            }
            _ => {}
        }
        let mut command = match recorder {
            None => program.plain_command(),
            Some(options) => program
                .options(options)
                .recorded_command(&at.join("trace.beat")),
        };
        if kind == Kind::Postgres {
            command = as_postgres_user(command, at);
        }
        let log = fs::File::create(at.join("server.log")).expect("is made");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a second descriptor"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{command:?}: {error}; see scripts/install-test-packages.sh")
            });
        let input = child.stdin.take();
        let mut server = Server {
            kind,
            child,
            is_recorded: recorder.is_some(),
            input,
            folder,
        };
        wait_until("the server answers", || {
            server.assert_runs();
            server.address().is_ready()
        });
        if kind == Kind::Nginx {
            wait_until("its workers are there", || server.family().len() == 3);
        }
        if kind == Kind::Postgres {
            let host = server.address().host();
            let init = ["pgbench", "-h", &host, "-U", "postgres", "-iq", "postgres"];
            server.address().tell(init);
        }
        server
    }

    #[track_caller]
    fn assert_runs(&mut self) {
        let ended = self.child.try_wait().expect("is our child");
        assert!(ended.is_none(), "{ended:?}: {}", self.log());
    }

    /// What it printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.at("server.log")).unwrap_or_default()
    }

    /// Where its clients find it.
    pub fn address(&self) -> Address {
        Address {
            kind: self.kind,
            folder: self.folder.path().into(),
        }
    }

    /// A file in its folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file in its folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.at(name).to_str().expect("UTF-8").to_owned()
    }

    /// The trace of its recorder.
    pub fn trace(&self) -> PathBuf {
        self.at("trace.beat")
    }

    /// Where its session stands.
    #[track_caller]
    pub fn status(&self) -> SessionStatus {
        client::find(&self.child.id().to_string()).expect("the session lives")
    }

    /// The session, as commands name it.
    pub fn session(&self) -> String {
        self.child.id().to_string()
    }

    /// The server's first process.
    pub fn pid(&self) -> u32 {
        match self.is_recorded {
            true => self.status().program_pid,
            false => self.child.id(),
        }
    }

    /// The server's processes, the first one first.
    pub fn family(&self) -> Vec<u32> {
        family(self.pid())
    }

    /// Waits until the connections of clients that have ended are closed: nothing has changed for some time.
    pub fn at_rest(&self) {
        let now = || -> Vec<State> { self.family().into_iter().map(State::of).collect() };
        let (mut last, mut since) = (now(), Instant::now());
        wait_until("it comes to rest", || {
            let now = now();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            since.elapsed() > Duration::from_millis(700)
        });
    }

    /// Clients that ask until they are told to end.
    pub fn load(&self) -> Load {
        Load::begin(&self.address(), 2)
    }

    /// Ends the server as its users do; it must say that all was well, and so must its recorder.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        let pid = self.pid();
        match self.kind {
            Kind::Redis => {
                let down = "redis-cli -s r.sock shutdown nosave";
                self.address().tell(down.split(' '));
            }
            Kind::Nginx => send("-QUIT", pid),
            Kind::Node => send("-TERM", pid),
            Kind::Postgres => send("-INT", pid),
            Kind::Tokio => drop(self.input.take()),
        }
        let status = self.child.wait().expect("ends");
        assert!(status.success(), "{status}: {}", self.log());
        Ended(self)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        end_family(&mut self.child);
    }
}

/// A server that has ended, and its files.
#[derive(Debug)]
pub struct Ended(Server);

impl Ended {
    /// The trace of its recorder.
    pub fn trace(&self) -> PathBuf {
        self.0.trace()
    }

    /// What it printed.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// A file in its folder, as text.
    pub fn path(&self, name: &str) -> String {
        self.0.path(name)
    }
}

/// Clients of a server, each in a thread. One that is answered wrongly fails the test.
#[derive(Debug)]
pub struct Load {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn begin(address: &Address, clients: usize) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicU64::new(0));
        let client = || {
            let (address, is_over, rounds) =
                (address.clone(), Arc::clone(&is_over), Arc::clone(&rounds));
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    address.ask();
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let clients = (0..clients).map(|_| client()).collect();
        Load {
            is_over,
            rounds,
            clients,
        }
    }

    /// Waits until so many more rounds of requests were answered.
    #[track_caller]
    pub fn rounds(&self, more: u64) {
        let wanted = self.rounds.load(Ordering::Relaxed) + more;
        wait_until("requests are answered", || {
            assert!(self.clients.iter().all(|client| !client.is_finished()));
            self.rounds.load(Ordering::Relaxed) >= wanted
        });
    }

    /// Ends the clients; each must have been answered rightly until then.
    #[track_caller]
    pub fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("every request was answered");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
