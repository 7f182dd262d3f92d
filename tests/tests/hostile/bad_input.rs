//! What users and files get wrong: a clear error with the reason and the next step, or a correct result.

use stackbeat_collector::session::control::client;
use stackbeat_tests::{
    Background, Program, compile, plain_reader, run, scratch, stackbeat, wait_until,
};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `stackbeat` and expects failure with status 2 and an error that contains all of `words`.
fn refused(arguments: &[&str], words: &[&str]) {
    let mut command = Command::new(stackbeat());
    command.args(arguments);
    let result = run(command);
    let stderr = result.stderr();
    assert_eq!(
        result.output.status.code(),
        Some(2),
        "{arguments:?}: {stderr}"
    );
    for word in words {
        assert!(
            stderr.contains(word),
            "{arguments:?}: {word:?} is not said in: {stderr}"
        );
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn programs_that_cannot_be_run() {
    let folder = scratch();
    let trace = path(folder.path(), "t.beat");
    refused(
        &["record", "-o", &trace, "--", "no-such-program-here"],
        &["no-such-program-here", "not found"],
    );
    refused(
        &["record", "-o", &trace, "--", "/nonexistent/program"],
        &["/nonexistent/program"],
    );
    let text = path(folder.path(), "text");
    std::fs::write(&text, "hello").unwrap();
    refused(&["record", "-o", &trace, "--", &text], &[&text, "execut"]);
    let directory = path(folder.path(), "");
    refused(&["record", "-o", &trace, "--", &directory], &["directory"]);
    assert!(
        !Path::new(&trace).exists(),
        "nothing was recorded, nothing may be left"
    );
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = scratch();
    let existing = path(folder.path(), "existing.beat");
    std::fs::write(&existing, "precious").unwrap();
    refused(
        &["record", "-o", &existing, "--", "true"],
        &[&existing, "exists", "--force"],
    );
    assert_eq!(std::fs::read_to_string(&existing).unwrap(), "precious");
    refused(
        &["record", "-o", "/nonexistent/t.beat", "--", "true"],
        &["/nonexistent"],
    );
    refused(
        &["record", "-o", "/proc/t.beat", "--", "true"],
        &["/proc/t.beat"],
    );
    refused(
        &["record", "-o", &path(folder.path(), ""), "--", "true"],
        &["directory"],
    );
    for command in [
        &["record", "-o", "-", "--", "true"][..],
        &["attach", "-o", "-", "1"],
        &["dump", "-o", "-", "1"],
        &["recover", "-o", "-", &existing],
    ] {
        refused(command, &["standard output", "mkfifo"]);
    }
}

#[test]
fn options_out_of_range() {
    refused(
        &["record", "--probes", "alloc,lokc", "--", "true"],
        &["lokc", "lock"],
    );
    refused(
        &["record", "--interval", "10us", "--", "true"],
        &["interval", "50"],
    );
    refused(&["record", "--interval", "soon", "--", "true"], &["soon"]);
    refused(&["record", "--depth", "0", "--", "true"], &["depth"]);
    refused(&["record", "--buffer", "1", "--", "true"], &["buffer"]);
    refused(
        &["record", "--mode", "sometimes", "--", "true"],
        &["sometimes"],
    );
    refused(&["record"], &["COMMAND"]);
    refused(&["rekord", "true"], &["rekord"]);
}

#[test]
fn a_static_program_runs_and_the_user_is_told() {
    let folder = scratch();
    let program = compile(
        folder.path(),
        "static.c",
        "#include <stdio.h>\nint main(void) { puts(\"static\"); return 5; }\n",
        &["-static"],
    );
    let trace = path(folder.path(), "t.beat");
    let mut command = Command::new(stackbeat());
    command.args(["record", "-o", &trace, "--"]).arg(&program);
    let result = run(command);
    assert_eq!(result.output.status.code(), Some(5));
    assert_eq!(result.stdout(), "static\n");
    assert!(result.stderr().contains("static"), "{}", result.stderr());
}

#[test]
fn a_setuid_program_is_said_to_be_out_of_reach() {
    // Root is not affected by the bit of a program that root owns.
    let folder = scratch();
    let copy = folder.path().join("id");
    std::fs::copy("/usr/bin/id", &copy).unwrap();
    std::os::unix::fs::chown(&copy, Some(65534), Some(65534)).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o4755)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let trace = path(folder.path(), "t.beat");
    let mut command = Command::new(stackbeat());
    command.args(["record", "-o", &trace, "--"]).arg(&copy);
    let result = run(command);
    assert!(result.output.status.success(), "{}", result.stderr());
    assert!(result.stdout().contains("65534"), "{}", result.stdout());
    assert!(
        result.stderr().contains("set-user-ID") || result.stderr().contains("setuid"),
        "{}",
        result.stderr()
    );
}

/// A file system of 256 KiB, gone with the value.
struct TinyDisk(tempfile::TempDir);

impl TinyDisk {
    fn mount() -> TinyDisk {
        let folder = scratch();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(folder.path());
        let result = run(mount);
        assert!(
            result.output.status.success(),
            "this test mounts a tmpfs: {}",
            result.stderr()
        );
        TinyDisk(folder)
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        unmount.arg("-l").arg(self.0.path());
        run(unmount);
    }
}

#[test]
fn a_full_disk_does_not_touch_the_program_and_leaves_what_fitted() {
    let (disk, folder) = (TinyDisk::mount(), scratch());
    let trace = path(disk.0.path(), "t.beat");
    let go_on = path(folder.path(), "go-on");
    std::fs::write(&go_on, "").unwrap();
    let script = "import os, sys\n\
                  def f(i, d): return f(i, d-1) if d else len(bytearray(100 + i % 50))\n\
                  while os.path.exists(sys.argv[1]):\n    for i in range(1000): f(i, i % 40)\nprint('done')";
    let mut command = Command::new(stackbeat());
    command
        .args(["record", "--interval", "1ms", "-o", &trace, "--"])
        .args(["python3", "-c", script, &go_on])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut recorder = Background(command.spawn().unwrap());
    let session = recorder.0.id().to_string();
    wait_until("samples are in the trace", || {
        client::find(&session).is_ok_and(|session| session.samples > 0)
    });
    // As much as there is room for.
    let filled = std::fs::write(disk.0.path().join("ballast"), vec![0; 256 << 10]);
    assert!(filled.is_err(), "the disk is full");
    let mut said = BufReader::new(recorder.0.stderr.take().unwrap()).lines();
    let is_said = said.any(|line| line.unwrap().contains("space"));
    assert!(is_said, "the recorder does not say that the disk is full");
    std::fs::remove_file(&go_on).unwrap();
    said.for_each(drop);
    assert!(recorder.0.wait().unwrap().success());
    let mut done = String::new();
    let stdout = recorder.0.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut done).unwrap();
    assert_eq!(done, "done\n");
    // What is there is a readable prefix, and the summary in its header says what happened.
    let bytes = std::fs::read(&trace).unwrap();
    let mut packets = stackbeat_proto::stream::PacketReader::new(bytes.as_slice());
    let (_, header) = packets.next().unwrap().unwrap();
    let Some(stackbeat_proto::v1::packet::Body::Header(header)) = header.body else {
        panic!("the first packet is the header");
    };
    let summary = header.summary.unwrap();
    assert_eq!(
        summary.outcome(),
        stackbeat_proto::v1::summary::Outcome::DiskFull
    );
    assert!(summary.records_lost > 0 && summary.records_stored > 0);
    assert_eq!(
        summary.records_written,
        summary.records_stored + summary.records_lost
    );
    assert!(packets.all(|item| item.is_ok()), "a torn packet was left");
    assert_eq!(info(Path::new(&trace)).output.status.code(), Some(0));
}

/// A small recorded trace to damage.
fn small_trace(folder: &Path) -> Vec<u8> {
    let recorded =
        Program::new(["ls", "-lR", "/usr/share/doc/base-files", "/etc/apt"]).record(folder);
    plain_reader::Trace::read(&recorded.trace).assert_sound();
    std::fs::read(recorded.trace).unwrap()
}

fn info(file: &Path) -> stackbeat_tests::Run {
    let mut command = Command::new("timeout");
    command.arg("30").arg(stackbeat()).arg("info").arg(file);
    run(command)
}

#[test]
fn damaged_traces_are_read_as_far_as_they_are_good_or_refused() {
    let folder = scratch();
    let whole = small_trace(folder.path());
    let file = folder.path().join("damaged.beat");
    let mut answers = std::collections::BTreeMap::new();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    for round in 0..60 {
        let mut bytes = whole.clone();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // The first is cut inside of its header, which is then no trace; in others much is still good.
        let at = match round {
            0 => 20,
            _ => (state % bytes.len() as u64) as usize,
        };
        if round % 2 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << (state >> 60 & 7);
        }
        std::fs::write(&file, &bytes).unwrap();
        let result = info(&file);
        let stderr = result.stderr();
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = result.output.status.code();
        assert!(matches!(code, Some(0..=2)), "{code:?}: {stderr}");
        if code == Some(2) {
            assert!(
                stderr.contains("damaged.beat"),
                "the file is not named: {stderr}"
            );
        }
        *answers.entry(code).or_insert(0) += 1;
    }
    assert!(
        answers.len() >= 2,
        "all are good or all are refused: {answers:?}"
    );
}

#[test]
fn files_that_are_no_traces_or_of_a_newer_version() {
    let folder = scratch();
    let file = folder.path().join("x.beat");
    let name = file.to_str().unwrap();
    for content in [
        &b""[..],
        b"hello world\n",
        b"\x7fELF\x02\x01\x01",
        &[0xff; 4096],
    ] {
        std::fs::write(&file, content).unwrap();
        refused(&["info", name], &["x.beat"]);
        refused(&["report", name], &["x.beat"]);
    }
    refused(
        &["info", &path(folder.path(), "absent.beat")],
        &["absent.beat"],
    );
    refused(&["report", &path(folder.path(), "")], &["directory"]);

    use stackbeat_proto::v1::{Packet, SessionHeader, packet::Body};
    let header = SessionHeader {
        format_version: 99,
        stackbeat_version: "99.0.0".into(),
        ..Default::default()
    };
    let mut bytes = Vec::new();
    let packet = Packet {
        body: Some(Body::Header(header)),
    };
    stackbeat_proto::stream::write_packet(&packet, &mut bytes);
    std::fs::write(&file, &bytes).unwrap();
    refused(&["info", name], &["99", "newer"]);
}

/// Whoever wants a trace while it is recorded reads it from a named pipe.
#[test]
fn a_named_pipe_gives_the_trace_while_it_is_recorded() {
    let folder = scratch();
    let pipe = path(folder.path(), "pipe");
    let mut mkfifo = Command::new("mkfifo");
    mkfifo.arg(&pipe);
    assert!(run(mkfifo).output.status.success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).expect("the pipe can be read")
    });
    let mut command = Command::new(stackbeat());
    let program = ["python3", "-c", "print(sum(i * i for i in range(10**6)))"];
    command.args(["record", "-o", &pipe, "--"]).args(program);
    let result = run(command);
    assert!(result.output.status.success(), "{}", result.stderr());
    let trace = path(folder.path(), "t.beat");
    std::fs::write(&trace, reader.join().expect("reads")).unwrap();
    let mut info = Command::new(stackbeat());
    info.args(["info", "--check", &trace]);
    let checked = run(info);
    assert!(checked.output.status.success(), "{}", checked.stderr());
    assert!(plain_reader::Trace::read(Path::new(&trace)).sample_count() > 10);

    // A reader that goes away costs the trace, not the program.
    let mut head = Command::new("head");
    head.args(["-c", "100", &pipe]);
    let reader = std::thread::spawn(move || run(head));
    let mut command = Command::new(stackbeat());
    command.args(["record", "-o", &pipe, "--"]).args(program);
    let result = run(command);
    assert_eq!(result.stdout(), "333332833333500000\n");
    assert!(result.stderr().contains("pipe"), "{}", result.stderr());
    assert_eq!(reader.join().expect("reads").output.stdout.len(), 100);
}
