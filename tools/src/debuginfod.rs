//! Debug files from the servers that `DEBUGINFOD_URLS` names. They are kept where elfutils keeps them, so
//! that gdb and stackbeat fetch each once.
//!
//! Nothing is asked unless the variable is set, and then only at a recording's end, about files that samples
//! lie in and that have no debug information here. `curl` does the fetching: it knows proxies and
//! certificates, and a library for TLS would be larger than the rest of the binary's libraries together.
//!
//! Names and meanings of variables and of the files in the cache: elfutils, debuginfod-client-config(7).

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use stackbeat_symbolize::{DebugSource, is_file_of_build};

use crate::units;

/// Bytes that a server has to send within `DEBUGINFOD_TIMEOUT`.
const LEAST_BYTES: u64 = 100 << 10;
/// `DEBUGINFOD_TIMEOUT` where it is not set, s.
const TIMEOUT_S: u64 = 90;
/// `DEBUGINFOD_MAXSIZE` where it is not set: debug files of browsers have 4 GB.
const MOST_BYTES: u64 = 2 << 30;
/// How long it is remembered that nobody has a file, where the cache does not say (`cache_miss_s`).
const MISS_S: u64 = 600;
/// How often is looked whether a download has ended, or is wanted no more.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The servers, and what was fetched from them.
#[derive(Debug)]
pub(crate) struct Debuginfod {
    servers: Vec<Server>,
    cache: PathBuf,
    timeout_s: u64,
    most_s: Option<u64>,
    most_bytes: u64,
    curl: PathBuf,
    /// Servers that are sending, as people see them, and where to.
    under_way: Mutex<Vec<(String, PathBuf)>>,
    /// What was not fetched though its server did not fail.
    left_out: Mutex<BTreeSet<String>>,
}

#[derive(Debug)]
struct Server {
    url: String,
    /// The URL for people and traces: without a name and a password.
    shown: String,
    /// Why it is not asked any more.
    failure: Mutex<Option<String>>,
}

/// What came of a download.
enum Fetched {
    File,
    /// The server does not have it.
    Nothing,
    /// The file is larger than allowed; the server may have others.
    TooLarge,
    Failed(String),
    /// Nobody wants it any more.
    Left,
}

/// The servers that the environment names, unless nobody wants them.
pub(crate) fn source(is_unwanted: bool) -> Option<Arc<dyn DebugSource>> {
    let found = (!is_unwanted).then(Debuginfod::of_environment).flatten()?;
    Some(Arc::new(found))
}

impl Debuginfod {
    /// What the environment asks for. `None`: nothing.
    pub(crate) fn of_environment() -> Option<Debuginfod> {
        let number = |name| {
            env::var(name)
                .ok()?
                .trim()
                .parse::<u64>()
                .ok()
                .filter(|n| *n > 0)
        };
        let urls = env::var("DEBUGINFOD_URLS").ok()?;
        let servers = servers(&urls);
        if servers.is_empty() {
            return None;
        }
        Some(Debuginfod {
            servers,
            cache: cache(&|name| env::var_os(name).map(PathBuf::from))?,
            timeout_s: number("DEBUGINFOD_TIMEOUT").unwrap_or(TIMEOUT_S),
            most_s: number("DEBUGINFOD_MAXTIME"),
            most_bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(MOST_BYTES),
            curl: "curl".into(),
            under_way: Mutex::default(),
            left_out: Mutex::default(),
        })
    }

    /// Fetches a file into another one.
    fn fetch(&self, url: &str, to: &Path, goes_on: &mut dyn FnMut() -> bool) -> Fetched {
        if !goes_on() {
            return Fetched::Left;
        }
        let mut curl = Command::new(&self.curl);
        // The user's .curlrc may change what comes out. It is not read if this comes first.
        curl.arg("--disable")
            .args(["--silent", "--show-error", "--location", "--globoff"])
            .args(["--proto", "=http,https"])
            .args(["--connect-timeout", &self.timeout_s.to_string()])
            .args(["--speed-time", &self.timeout_s.to_string()])
            .args([
                "--speed-limit",
                &LEAST_BYTES.div_ceil(self.timeout_s).to_string(),
            ])
            .args(["--max-filesize", &self.most_bytes.to_string()])
            .args(["--write-out", "%{http_code}", "--output"])
            .arg(to)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(seconds) = self.most_s {
            curl.args(["--max-time", &seconds.to_string()]);
        }
        let mut child = match curl.arg("--").arg(url).spawn() {
            Ok(child) => child,
            Err(error) => {
                return Fetched::Failed(format!("curl, which fetches it, cannot be run: {error}"));
            }
        };
        let size = || fs::metadata(to).map_or(0, |file| file.len());
        loop {
            match child.try_wait() {
                Ok(None) => {}
                Ok(Some(_)) => break,
                Err(error) => return Fetched::Failed(error.to_string()),
            }
            let is_large = size() > self.most_bytes;
            if is_large || !goes_on() {
                stop(&mut child);
                return match is_large {
                    true => Fetched::TooLarge,
                    false => Fetched::Left,
                };
            }
            thread::sleep(LOOK_AGAIN);
        }
        let output = match child.wait_with_output() {
            Ok(output) => output,
            Err(error) => return Fetched::Failed(error.to_string()),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let why = said.lines().next().unwrap_or("curl failed");
        let code = String::from_utf8_lossy(&output.stdout);
        match (output.status.code(), code.trim()) {
            (Some(0), "200") => Fetched::File,
            (Some(0), "404" | "406" | "410") => Fetched::Nothing,
            (Some(0), code) => Fetched::Failed(format!("HTTP status {code}")),
            // CURLE_FILESIZE_EXCEEDED
            (Some(63), _) => Fetched::TooLarge,
            _ => Fetched::Failed(why.trim_start_matches("curl: ").to_owned()),
        }
    }
}

impl DebugSource for Debuginfod {
    fn debug_file(&self, build_id: &[u8], goes_on: &mut dyn FnMut() -> bool) -> Option<PathBuf> {
        let id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = self.cache.join(&id);
        let kept = folder.join("debuginfo");
        match fs::metadata(&kept) {
            Ok(_) if is_file_of_build(&kept, build_id) => return Some(kept),
            // Damaged, or of another build.
            Ok(file) if file.len() > 0 => {
                let _ = fs::remove_file(&kept);
            }
            Ok(file) => {
                let age = file
                    .modified()
                    .ok()
                    .and_then(|at| SystemTime::now().duration_since(at).ok());
                if age.is_some_and(|age| age < self.miss()) {
                    return None;
                }
                let _ = fs::remove_file(&kept);
            }
            Err(_) => {}
        }
        // What cannot be kept is not fetched: it would be fetched for each recording.
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        self.written(made)?;
        let mut is_known_nowhere = true;
        for server in &self.servers {
            if server.failure().is_some() {
                is_known_nowhere = false;
                continue;
            }
            let url = format!("{}/buildid/{id}/debuginfo", server.url);
            let partial = tempfile::Builder::new()
                .prefix("debuginfo.")
                .tempfile_in(&folder);
            let partial = self.written(partial)?;
            let under_way = (server.shown.clone(), partial.path().to_owned());
            locked(&self.under_way).push(under_way);
            let fetched = self.fetch(&url, partial.path(), goes_on);
            locked(&self.under_way).retain(|(_, path)| path != partial.path());
            match fetched {
                Fetched::File if is_file_of_build(partial.path(), build_id) => {
                    let written = partial.persist(&kept).map_err(|error| error.error);
                    return self.written(written).map(|_| kept);
                }
                Fetched::File => {
                    server.fails(format!(
                        "what it sent for build {id} is no file of that build"
                    ));
                    is_known_nowhere = false;
                }
                Fetched::Nothing => {}
                Fetched::TooLarge => {
                    self.leaves_out(format!(
                        "debuginfod {}: the file of build {id} is larger than {} (DEBUGINFOD_MAXSIZE); it was not fetched",
                        server.shown,
                        units::bytes(self.most_bytes)
                    ));
                    is_known_nowhere = false;
                }
                Fetched::Failed(why) => {
                    server.fails(why);
                    is_known_nowhere = false;
                }
                Fetched::Left => return None,
            }
        }
        if is_known_nowhere {
            // Nobody has it: an empty file remembers that.
            let _ = fs::write(&kept, "");
        }
        None
    }

    fn under_way(&self) -> Option<String> {
        let under_way = locked(&self.under_way);
        let (url, path) = under_way.first()?;
        let bytes = fs::metadata(path).map_or(0, |file| file.len());
        Some(format!(
            "{} of debug information from {url}",
            units::bytes(bytes)
        ))
    }

    fn complaints(&self) -> Vec<String> {
        let failed = |server: &Server| {
            let why = server.failure()?;
            Some(format!(
                "debuginfod {}: {why}; it was not asked any more",
                server.shown
            ))
        };
        let failed = self.servers.iter().filter_map(failed);
        let left_out = locked(&self.left_out);
        failed.chain(left_out.iter().cloned()).collect()
    }
}

impl Debuginfod {
    /// What was written to the cache, unless it cannot be written.
    fn written<T>(&self, written: io::Result<T>) -> Option<T> {
        let failed = |error: io::Error| {
            self.leaves_out(format!(
                "debuginfod: {}: cannot keep debug files ({}); they were not fetched",
                self.cache.display(),
                error.kind()
            ));
        };
        written.map_err(failed).ok()
    }

    fn leaves_out(&self, why: String) {
        locked(&self.left_out).insert(why);
    }

    fn miss(&self) -> Duration {
        let said = fs::read_to_string(self.cache.join("cache_miss_s")).ok();
        Duration::from_secs(
            said.and_then(|said| said.trim().parse().ok())
                .unwrap_or(MISS_S),
        )
    }
}

impl Server {
    fn failure(&self) -> Option<String> {
        locked(&self.failure).clone()
    }

    fn fails(&self, why: String) {
        *locked(&self.failure) = Some(why);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends a process of ours.
fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The servers of `DEBUGINFOD_URLS`; what is no address there says how signatures are verified.
fn servers(urls: &str) -> Vec<Server> {
    let urls = urls
        .split_whitespace()
        .filter(|url| !url.starts_with("ima:"));
    let server = |url: &str| Server {
        url: url.trim_end_matches('/').to_owned(),
        shown: without_password(url.trim_end_matches('/')),
        failure: Mutex::default(),
    };
    urls.map(server).collect()
}

/// A URL without what stands before `@`. A password may hold a `/`, though it should not.
fn without_password(url: &str) -> String {
    let (scheme, rest) = match url.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), url),
    };
    let shown = rest.rsplit_once('@').map_or(rest, |(_, shown)| shown);
    scheme + shown
}

/// Where elfutils keeps what it has fetched.
fn cache(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    if let Some(path) =
        variable("DEBUGINFOD_CACHE_PATH").filter(|path| !path.as_os_str().is_empty())
    {
        return Some(path);
    }
    let home = absolute("HOME");
    let old = home
        .as_ref()
        .map(|home| home.join(".debuginfod_client_cache"));
    if let Some(old) = old.filter(|old| old.is_dir()) {
        return Some(old);
    }
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))?;
    Some(caches.join("debuginfod_client"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    const ID: [u8; 4] = [0x01, 0x23, 0xab, 0xcd];

    /// A server on this machine that answers each request so, and counts them.
    struct TestServer {
        url: String,
        requests: Arc<AtomicUsize>,
    }

    impl TestServer {
        fn new(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> TestServer {
            let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
            let url = format!("http://{}", listener.local_addr().expect("has one"));
            let requests = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&requests);
            thread::spawn(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.expect("connects");
                    counted.fetch_add(1, Ordering::Relaxed);
                    let reader = BufReader::new(stream.try_clone().expect("a clone"));
                    let mut lines = reader.lines().map_while(Result::ok);
                    let first = lines.next().unwrap_or_default();
                    lines.find(String::is_empty);
                    let path = first.split(' ').nth(1).unwrap_or_default();
                    answer(path, &mut stream);
                }
            });
            TestServer { url, requests }
        }

        fn requests(&self) -> usize {
            self.requests.load(Ordering::Relaxed)
        }
    }

    fn say(stream: &mut TcpStream, status: &str, length: usize, body: &[u8]) {
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // Whoever has asked may have gone.
        let _ = stream.write_all(head.as_bytes());
        let _ = stream.write_all(body);
    }

    /// An object file with the build id.
    fn program(folder: &Path) -> Vec<u8> {
        let out = folder.join("program");
        let mut cc = Command::new("cc")
            .args(["-x", "c", "-", "-g", "-Wl,--build-id=0x0123abcd", "-o"])
            .arg(&out)
            .stdin(Stdio::piped())
            .spawn()
            .expect("a compiler");
        let mut source = cc.stdin.take().expect("a pipe");
        source
            .write_all(b"int main(void) { return 0; }\n")
            .expect("writes");
        drop(source);
        assert!(cc.wait().expect("ends").success());
        fs::read(out).expect("is there")
    }

    fn asking(urls: &str, folder: &Path) -> Debuginfod {
        Debuginfod {
            servers: servers(urls),
            cache: folder.join("cache"),
            timeout_s: 1,
            most_s: None,
            most_bytes: 1 << 20,
            curl: "curl".into(),
            under_way: Mutex::default(),
            left_out: Mutex::default(),
        }
    }

    #[test]
    fn a_file_is_fetched_once_from_the_first_server_that_has_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let content = program(folder.path());
        let sent = content.clone();
        let without = TestServer::new(|_, stream| say(stream, "404 Not Found", 0, b""));
        let with = TestServer::new(move |path, stream| {
            assert_eq!(path, "/below/buildid/0123abcd/debuginfo");
            say(stream, "200 OK", sent.len(), &sent);
        });
        let urls = format!("{} ima:ignore {}/below/", without.url, with.url);
        let debuginfod = asking(&urls, folder.path());
        for _ in 0..2 {
            let file = debuginfod
                .debug_file(&ID, &mut || true)
                .expect("is fetched");
            assert_eq!(file, folder.path().join("cache/0123abcd/debuginfo"));
            assert!(fs::read(file).expect("is there") == content);
        }
        assert_eq!((without.requests(), with.requests()), (1, 1));
        assert_eq!(debuginfod.complaints(), Vec::<String>::new());
    }

    #[test]
    fn what_nobody_has_is_not_asked_for_again_for_a_while() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = TestServer::new(|_, stream| say(stream, "404 Not Found", 0, b""));
        for _ in 0..2 {
            let debuginfod = asking(&server.url, folder.path());
            assert_eq!(debuginfod.debug_file(&ID, &mut || true), None);
            assert_eq!(debuginfod.complaints(), Vec::<String>::new());
        }
        assert_eq!(server.requests(), 1);
        fs::write(folder.path().join("cache/cache_miss_s"), "0\n").expect("writes");
        assert_eq!(
            asking(&server.url, folder.path()).debug_file(&ID, &mut || true),
            None
        );
        assert_eq!(server.requests(), 2);
    }

    #[test]
    fn servers_that_fail_are_named_and_asked_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let content = program(folder.path());
        let (half, length) = (content[..content.len() / 2].to_vec(), content.len());
        let other = half.clone();
        let silent = |_: &str, stream: &mut TcpStream| {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
            let _ = std::io::Read::read(stream, &mut [0]);
        };
        let cases: [(&str, TestServer); 4] = [
            ("Operation too slow", TestServer::new(silent)),
            (
                "bytes remaining",
                TestServer::new(move |_, stream| say(stream, "200 OK", length, &half)),
            ),
            (
                "no file of that build",
                TestServer::new(move |_, stream| say(stream, "200 OK", other.len(), &other)),
            ),
            (
                "HTTP status 500",
                TestServer::new(|_, stream| say(stream, "500 Error", 0, b"")),
            ),
        ];
        for (why, server) in &cases {
            let debuginfod = asking(&server.url, folder.path());
            let began = Instant::now();
            for id in [&ID[..], &ID[1..], &ID] {
                assert_eq!(debuginfod.debug_file(id, &mut || true), None, "{why}");
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{why}");
            let complaints = debuginfod.complaints();
            assert!(
                complaints.len() == 1 && complaints[0].contains(why),
                "{why}: {complaints:?}"
            );
            assert!(complaints[0].contains(&server.url));
            assert_eq!(server.requests(), 1, "{why}");
            // Not even as a file that nobody has.
            assert!(
                !folder.path().join("cache/0123abcd/debuginfo").exists(),
                "{why}"
            );
        }
        let nobody = asking("http://127.0.0.1:1", folder.path());
        assert_eq!(nobody.debug_file(&ID, &mut || true), None);
        assert!(
            nobody.complaints()[0].contains("connect"),
            "{:?}",
            nobody.complaints()
        );
        let mut without_curl = asking(&cases[0].1.url, folder.path());
        without_curl.curl = folder.path().join("no-curl");
        assert_eq!(without_curl.debug_file(&ID, &mut || true), None);
        assert!(without_curl.complaints()[0].contains("curl"));
        let left = fs::read_dir(folder.path().join("cache/0123abcd"))
            .expect("is there")
            .count();
        assert_eq!(left, 0, "nothing half stays");
    }

    #[test]
    fn large_files_and_impatient_people_end_a_download() {
        let folder = tempfile::tempdir().expect("a folder");
        let large = TestServer::new(|_, stream| say(stream, "200 OK", 2 << 20, &vec![0; 2 << 20]));
        let debuginfod = asking(&large.url, folder.path());
        // It may have smaller ones.
        for id in [&ID[..], &ID[1..]] {
            assert_eq!(debuginfod.debug_file(id, &mut || true), None);
        }
        assert_eq!(large.requests(), 2);
        let complaints = debuginfod.complaints();
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(
            complaints[0].ends_with(
                "the file of build 0123abcd is larger than 1.00 MiB (DEBUGINFOD_MAXSIZE); it was not fetched"
            ),
            "{complaints:?}"
        );
        let slow = TestServer::new(|_, stream| {
            say(stream, "200 OK", 1 << 20, b"");
            while stream.write_all(&[0; 4096]).is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let mut patient = asking(&slow.url, folder.path());
        patient.timeout_s = 60;
        let began = Instant::now();
        let mut asked = 0;
        // For whoever does not want it nothing is started.
        patient.curl = folder.path().join("no-curl");
        assert_eq!(patient.debug_file(&ID, &mut || false), None);
        assert_eq!(patient.complaints(), Vec::<String>::new());
        patient.curl = "curl".into();
        let file = patient.debug_file(&ID, &mut || {
            asked += 1;
            let said = patient.under_way().expect("it fetches");
            assert!(said.ends_with(&slow.url), "{said}");
            asked < 10
        });
        assert_eq!(patient.under_way(), None);
        assert_eq!(file, None);
        assert!(began.elapsed() < Duration::from_secs(5));
        assert_eq!(patient.complaints(), Vec::<String>::new());
    }

    #[test]
    fn passwords_are_sent_and_not_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let server = TestServer::new(|_, stream| say(stream, "500 Error", 0, b""));
        let urls = server.url.replace("://", "://user:secret@");
        let debuginfod = asking(&urls, folder.path());
        let mut said = Vec::new();
        let file = debuginfod.debug_file(&ID, &mut || {
            said.extend(debuginfod.under_way());
            true
        });
        assert_eq!((file, server.requests()), (None, 1));
        said.extend(debuginfod.complaints());
        assert!(said.len() > 1);
        for text in &said {
            assert!(text.contains(&server.url), "{text}");
        }
        for (url, shown) in [
            ("https://user:se/c@ret@host/below", "https://host/below"),
            ("user:secret@host", "host"),
            ("https://host/below", "https://host/below"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn what_is_kept_is_checked_and_what_cannot_be_kept_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let content = program(folder.path());
        let sent = content.clone();
        let server = TestServer::new(move |_, stream| say(stream, "200 OK", sent.len(), &sent));
        let kept = folder.path().join("cache/0123abcd/debuginfo");
        fs::create_dir_all(kept.parent().expect("a folder")).expect("is made");
        fs::write(&kept, "<html>").expect("writes");
        let debuginfod = asking(&server.url, folder.path());
        for _ in 0..2 {
            assert_eq!(
                debuginfod.debug_file(&ID, &mut || true).as_ref(),
                Some(&kept)
            );
            assert!(fs::read(&kept).expect("is there") == content);
        }
        assert_eq!(server.requests(), 1);

        let nowhere = Debuginfod {
            cache: folder.path().join("program/cache"),
            ..asking(&server.url, folder.path())
        };
        for id in [&ID[..], &ID[1..]] {
            assert_eq!(nowhere.debug_file(id, &mut || true), None);
        }
        assert_eq!(server.requests(), 1);
        let complaints = nowhere.complaints();
        assert!(
            complaints.len() == 1 && complaints[0].contains("program/cache: cannot keep"),
            "{complaints:?}"
        );
    }

    #[test]
    fn the_cache_is_that_of_elfutils() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().to_owned();
        let of = |variables: &[(&str, PathBuf)]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| value.clone())
            };
            cache(&variable)
        };
        assert_eq!(of(&[]), None);
        let at_home = ("HOME", home.clone());
        assert_eq!(
            of(std::slice::from_ref(&at_home)),
            Some(home.join(".cache/debuginfod_client"))
        );
        let xdg = ("XDG_CACHE_HOME", home.join("xdg"));
        assert_eq!(
            of(&[at_home.clone(), xdg.clone()]),
            Some(home.join("xdg/debuginfod_client"))
        );
        fs::create_dir(home.join(".debuginfod_client_cache")).expect("is made");
        assert_eq!(
            of(&[at_home.clone(), xdg.clone()]),
            Some(home.join(".debuginfod_client_cache"))
        );
        let own = ("DEBUGINFOD_CACHE_PATH", home.join("own"));
        assert_eq!(of(&[at_home, xdg, own]), Some(home.join("own")));
    }
}
