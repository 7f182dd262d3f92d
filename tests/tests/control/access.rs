//! Who may see and steer a session, and what a client that is no friend can do.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};

use super::*;

#[test]
fn nobody_else_can_see_or_steer_a_session() {
    let is_root = fs::metadata("/proc/self").is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    let setpriv = Command::new("setpriv").arg("--version").output();
    if !is_root || setpriv.is_err() {
        eprintln!("only root can be somebody else: not tested");
        return;
    }
    let mut recording = Recording::start(&[]);
    // The build's folder may be closed to others.
    let open = tempfile::tempdir_in("/tmp").expect("a folder");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).expect("mode");
    let copy = open.path().join("stackbeat");
    fs::copy(binary(), &copy).expect("copies");
    // A user as whom no other test records at the same time.
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65533", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(arguments)
            .env("NO_COLOR", "1")
            .output()
            .expect("runs")
    };
    let session = recording.status().session;
    let program = recording.status().program_pid.to_string();
    let seen = as_nobody(&["status"]);
    assert_eq!(seen.status.code(), Some(1), "{}", text(&seen.stderr));
    assert!(text(&seen.stdout).contains("no session of yours is recording"));
    assert!(text(&seen.stdout).contains("of other users"));
    assert!(!text(&seen.stdout).contains("python"));
    let out = open.path().join("stolen.beat").display().to_string();
    for arguments in [
        vec!["status", &session],
        vec!["stop", &session],
        vec!["set", &session, "--interval", "1s"],
        vec!["mark", &session, "x"],
        vec!["dump", &session, "-o", &out],
    ] {
        let refused = as_nobody(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let said = text(&refused.stderr);
        assert!(said.contains("a session of another user (uid 0)"), "{said}");
    }
    // By pid it is not even known.
    let refused = as_nobody(&["stop", &program]);
    assert!(text(&refused.stderr).contains("no live session"));
    assert!(recording.status().capturing);
    assert_eq!(recording.status().interval_ns, 1_000_000);
    assert!(!Path::new(&out).exists());
    // The other way round: root sees and steers what others record.
    let theirs = open.path().join("t");
    fs::create_dir(&theirs).expect("a folder");
    fs::set_permissions(&theirs, fs::Permissions::from_mode(0o777)).expect("mode");
    let mut other = Command::new("setpriv")
        .args(["--reuid=65533", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["record", "-q", "--", "sleep", "30"])
        .current_dir(&theirs)
        // Where its agent goes, and goes away with the folder.
        .env("HOME", &theirs)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CACHE_HOME")
        .spawn()
        .expect("starts");
    let target = other.id().to_string();
    wait_until("it begins", || client::find(&target).is_ok());
    stackbeat(&["stop", &target]);
    assert!(!client::find(&target).expect("lives").capturing);
    // Ends the sleeping program through its recorder.
    send("-TERM", other.id());
    other.wait().expect("ends");
    assert_eq!(recording.end(), "worked 4\n");
}

#[test]
fn clients_that_hang_flood_or_talk_nonsense_disturb_nothing() {
    let mut recording = Recording::start(&[]);
    let session = recording.status().session;
    let address = SocketAddr::from_abstract_name(format!("stackbeat/1/{session}"));
    let connect = || UnixStream::connect_addr(address.as_ref().expect("an address"));
    // More than are served at a time, silent.
    let silent: Vec<_> = (0..40).map_while(|_| connect().ok()).collect();
    assert!(silent.len() > 16);
    let answer = |said: &[u8]| {
        let mut stream = connect().expect("connects");
        // Refused before everything was said: what was answered counts.
        let _ = stream.write_all(said);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    for (said, expected) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "no JSON"),
        (b"{\"command\":\"stop\"}\n", "version of the protocol"),
        (b"{\"stackbeat\":9,\"command\":\"stop\"}\n", "version 9"),
        (
            b"{\"stackbeat\":1,\"command\":\"boom\"}\n",
            "unknown variant",
        ),
        (
            b"{\"stackbeat\":1,\"command\":\"set\",\"interval_ns\":1}\n",
            "out of range",
        ),
        (
            b"{\"stackbeat\":1,\"command\":\"set\",\"probes\":[\"x\"]}\n",
            "no group of probes",
        ),
        (b"{\"stackbeat\":1,\"command\":\"set\"}\n", "nothing to set"),
        (
            b"{\"stackbeat\":1,\"command\":\"dump\",\"output\":\"x\"}\n",
            "not an absolute path",
        ),
        (&[b'x'; 100_000], "too long"),
        (&[0xff, b'\n'], "no JSON"),
        (
            b"{\"stackbeat\":1,\"command\":\"mark\",\"text\":\"\"}\n",
            "1 to 1024",
        ),
    ] {
        let got = answer(said);
        assert!(got.contains("\"ok\":false"), "{got}");
        assert!(got.contains(expected), "{expected}: {got}");
    }
    let began = Instant::now();
    let mut asked = 0;
    while began.elapsed() < Duration::from_secs(2) {
        let mut stream = connect().expect("connects");
        // One that is refused because there are too many is closed before it says anything.
        let _ = stream.write_all(b"{\"stackbeat\":1,\"command\":\"status\"}\n");
        drop(stream);
        asked += 1;
    }
    assert!(asked > 100);
    drop(silent);
    // Those that wait still are served first.
    wait_until("it answers again", || recording.try_status().is_some());
    recording.wait_for_samples(100);
    let status = recording.status();
    assert!(status.capturing && status.lost == 0, "{status:?}");
    assert!(descriptors(status.collector_pid) < 64);
    assert_eq!(recording.end(), "worked 4\n");
}

/// Listens under names of sessions, as many as it is told to, and never answers; the last ones take no
/// connection.
const SILENT: &str = r#"
import os, socket, sys
kept = []
for i in range(int(sys.argv[1])):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0stackbeat/1/{os.getpid()}.{i:08x}")
    full = i % 2
    listener.listen(0 if full else 8)
    kept.append(listener)
    for _ in range(2 * full):
        client = socket.socket(socket.AF_UNIX)
        client.setblocking(False)
        try:
            client.connect(f"\0stackbeat/1/{os.getpid()}.{i:08x}")
        except BlockingIOError:
            pass
        kept.append(client)
print("ready", flush=True)
sys.stdin.read()
"#;

#[test]
fn silent_sockets_of_other_users_do_not_hold_up_the_others() {
    use std::io::{BufRead, BufReader};
    let setpriv = Command::new("setpriv").arg("--version").output();
    let user = Command::new("id").arg("-u").output().expect("runs");
    if text(&user.stdout).trim() != "0" || setpriv.is_err() {
        eprintln!("only root can be somebody else: not tested");
        return;
    }
    let recording = Recording::start(&[]);
    let mut silent = Command::new("setpriv")
        .args(["--reuid=65533", "--regid=65534", "--clear-groups"])
        .args(["/usr/bin/python3", "-c", SILENT, "20"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut ready = String::new();
    let out = silent.stdout.take().expect("its output");
    BufReader::new(out).read_line(&mut ready).expect("reads");
    assert_eq!(ready, "ready\n");
    let began = Instant::now();
    let found = client::list();
    // One after the other they would take a hundred seconds.
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    let pid = recording.status().session;
    let answers = found.iter().filter(|f| f.status.is_ok());
    assert!(answers.into_iter().any(|f| f.session == pid));
    let silent_ones = found.iter().filter(|f| f.status.is_err()).count();
    assert!(silent_ones >= 20, "{silent_ones}");
    drop(silent.stdin.take());
    silent.wait().expect("ends");
}
