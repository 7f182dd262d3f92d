//! `stackbeat top` in a real terminal (tmux, which also says what is on the screen), on a program that
//! computes and waits.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use stackbeat_collector::session::control::client;
use stackbeat_tests::process_tree::{State, is_hooked, send, slots, slots_left_changed};
use stackbeat_tests::tool::{binary, command_in, json, stackbeat, text};
use stackbeat_tests::{Background, compile, until, until_ok, wait_until};
use tempfile::TempDir;

/// One thread computes all the time, the other waits for a lock that the first holds nearly always.
const SHOP: &str = r#"
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void price(void) { for (volatile long i = 0; i < 20000000; i++) {} }
static void *serve(void *unused) {
  pthread_setname_np(pthread_self(), "server");
  for (;;) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); usleep(1000); }
  return unused;
}
int main(void) {
  pthread_t server;
  pthread_create(&server, 0, serve, 0);
  for (;;) {
    pthread_mutex_lock(&lock);
    price();
    pthread_mutex_unlock(&lock);
    usleep(2000);
  }
}
"#;

/// Starts the program under a name of its own.
fn shop(folder: &Path, name: &str) -> Background {
    compile(folder, &format!("{name}.c"), SHOP, &["-g", "-pthread"]);
    let child = Command::new(folder.join(name)).stdin(Stdio::null()).spawn();
    Background(child.expect("starts"))
}

/// A terminal with a shell in it, which says the settings of the terminal before and after the command.
struct Terminal {
    folder: TempDir,
    socket: String,
}

impl Terminal {
    /// Runs `stackbeat top` with these arguments.
    fn begin(columns: u32, rows: u32, arguments: &str) -> Terminal {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("tmux").display().to_string();
        fs::create_dir(folder.path().join("temporary")).expect("made");
        let script = format!(
            "cd {}; export TMPDIR=$PWD/temporary; stty -g > before; {} top {arguments}; status=$?; stty -g > after; \
             echo status $status; cat",
            folder.path().display(),
            binary(),
        );
        let terminal = Terminal { folder, socket };
        let size = [columns.to_string(), rows.to_string()];
        let new = [
            "-u",
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &size[0],
            "-y",
            &size[1],
        ];
        terminal.tmux(&[&new[..], &[&script]].concat());
        terminal
    }

    #[track_caller]
    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.args(["-S", &self.socket]).args(arguments);
        let output = command.output().expect("tmux runs");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        text(&output.stdout)
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Waits until all of these are on the screen; gives it.
    #[track_caller]
    fn shows(&self, parts: &[&str]) -> String {
        until_ok(|| {
            let screen = self.screen();
            match parts.iter().all(|part| screen.contains(part)) {
                true => Ok(screen),
                false => Err(format!("{parts:?} are not all on the screen:\n{screen}")),
            }
        })
    }

    /// The process of the view, and the one that records for it.
    fn view(&self) -> (u32, u32) {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let child = |of: &str| {
            let listed = Command::new("pgrep").args(["-P", of.trim()]).output();
            text(&listed.expect("pgrep runs").stdout).trim().to_owned()
        };
        let view = child(&shell);
        let number = |pid: &str| pid.parse().expect("one process");
        (number(&view), number(&child(&view)))
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    /// The command has ended: the screen of before is back, and the terminal as it was.
    #[track_caller]
    fn is_as_before(&self, status: &str) {
        let screen = self.shows(&[&format!("status {status}")]);
        assert!(!screen.contains("q quit"), "{screen}");
        assert!(!self.file("before").is_empty());
        assert_eq!(self.file("before"), self.file("after"));
        let visible = self.tmux(&[
            "display-message",
            "-p",
            "#{cursor_flag} #{wrap_flag} #{alternate_on}",
        ]);
        assert_eq!(visible.trim(), "1 1 0");
    }

    fn leftovers(&self) -> usize {
        let folder = self.folder.path().join("temporary");
        fs::read_dir(folder).expect("is there").count()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let mut command = Command::new("tmux");
        let _ = command.args(["-S", &self.socket, "kill-server"]).output();
    }
}

#[track_caller]
fn fits(screen: &str, columns: usize) {
    let widest = screen.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(columns), "{screen}");
}

#[test]
fn a_process_is_shown_on_a_terminal_and_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = shop(folder.path(), "shop");
    let pid = program.0.id();
    // Signals are blocked while libc starts a thread.
    wait_until("its second thread has begun", || {
        let state = State::of(pid);
        state.threads.contains(&"server".to_owned())
            && u64::from_str_radix(&state.signals[0], 16) == Ok(0)
    });
    let (before, slots) = (State::of(pid), slots(pid));
    let terminal = Terminal::begin(80, 24, &format!("--every 500ms {pid}"));
    let screen = terminal.shows(&[
        "attached",
        "Threads",
        "server",
        "Functions by time running",
        "price  [shop]",
        "Blocking calls",
        "pthread_mutex_lock",
        "q quit",
    ]);
    assert!(is_hooked(pid), "it is attached to");
    fits(&screen, 80);
    assert_eq!(screen.lines().count(), 24, "{screen}");
    // Of 500 ms nearly all is in one function; the next screen comes without a key.
    let at = |screen: &str| {
        screen
            .split("attached ")
            .nth(1)
            .map(|text| text[..6].to_owned())
    };
    until("the next screen comes", || {
        (at(&terminal.screen()) != at(&screen)).then_some(())
    });
    terminal.tmux(&["resize-window", "-x", "140", "-y", "40"]);
    until("it fills the larger window", || {
        let screen = terminal.screen();
        let is_larger = screen
            .lines()
            .nth(39)
            .is_some_and(|line| line.contains("q quit"));
        (is_larger && screen.contains("INTERVAL")).then_some(())
    });
    terminal.press("s");
    terminal.shows(&["Functions by wall time with callees"]);
    terminal.press("w");
    until("only blocking calls are left", || {
        let screen = terminal.screen();
        let is_left = screen.contains("Blocking calls") && !screen.contains("Functions by");
        is_left.then_some(())
    });
    terminal.press("?");
    terminal.shows(&["Any key goes back."]);
    terminal.press("x");
    terminal.press("p");
    let paused = terminal.shows(&["Blocking calls", "; paused"]);
    terminal.press("p");
    until("it goes on", || {
        (at(&terminal.screen()) != at(&paused)).then_some(())
    });
    terminal.press("q");
    terminal.is_as_before("0");
    assert_eq!(terminal.leftovers(), 0);
    assert_eq!(State::of(pid), before);
    assert_eq!(slots_left_changed(pid, &slots), []);
}

#[test]
fn however_the_view_ends_the_process_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = shop(folder.path(), "killed");
    let pid = program.0.id();
    for signal in ["-TERM", "-HUP", "-KILL"] {
        let terminal = Terminal::begin(100, 30, &format!("--every 500ms {pid}"));
        terminal.shows(&["price", "q quit"]);
        let (view, recorder) = terminal.view();
        assert!(is_hooked(pid), "{signal}");
        send(signal, view);
        wait_until("the recorder ends", || {
            !Path::new(&format!("/proc/{recorder}")).exists()
        });
        assert!(!State::of(pid).is_attached && !is_hooked(pid), "{signal}");
        if signal != "-KILL" {
            terminal.is_as_before("0");
            assert_eq!(terminal.leftovers(), 0, "{signal}");
        }
    }
    // The terminal goes.
    let terminal = Terminal::begin(100, 30, &format!("--every 500ms {pid}"));
    terminal.shows(&["price", "q quit"]);
    let (_, recorder) = terminal.view();
    terminal.tmux(&["kill-server"]);
    wait_until("the recorder ends", || {
        !Path::new(&format!("/proc/{recorder}")).exists()
    });
    assert!(!State::of(pid).is_attached && !is_hooked(pid));
}

#[test]
fn the_end_of_the_process_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = shop(folder.path(), "ends");
    let terminal = Terminal::begin(80, 24, &format!("--every 500ms {}", program.0.id()));
    terminal.shows(&["price", "q quit"]);
    drop(program);
    terminal.shows(&["has ended: q quits", "price"]);
    terminal.press("q");
    terminal.is_as_before("0");
    assert_eq!(terminal.leftovers(), 0);
}

#[test]
fn a_recorded_process_goes_on_being_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    compile(folder.path(), "recorded.c", SHOP, &["-g", "-pthread"]);
    let mut record = command_in(
        folder.path(),
        &["record", "-q", "-o", "t.beat", "./recorded"],
    );
    let mut recorder = Background(record.spawn().expect("starts"));
    let session = until("it records", || {
        let status = client::find(&recorder.0.id().to_string()).ok()?;
        (status.samples > 500).then_some(status)
    });
    let pid = session.program_pid;
    // By pid, by name and by session; no process is attached to.
    for target in [&pid.to_string(), "recorded", &session.session] {
        let output = stackbeat(folder.path(), &["top", "--once", "--every", "1s", target]);
        let screen = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        for part in ["./recorded", "recorded ", "price", "server", "lock"] {
            assert!(screen.contains(part), "{target}: {part}: {screen}");
        }
        fits(&screen, 100);
        let share = share_of_price(&screen);
        assert!(share > 60.0, "{target}: {screen}");
    }
    send("-TERM", pid);
    recorder.0.wait().expect("it ends with the program");
    let info = json(folder.path(), &["info", "t.beat", "--json", "--check"]);
    assert_eq!(info["recording"]["state"], "complete", "{info}");
}

/// The share of the heaviest function.
#[track_caller]
fn share_of_price(screen: &str) -> f64 {
    let line = screen.lines().find(|line| line.contains("price  ["));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let percent = words.iter().position(|word| *word == "%").expect("a share");
    words[percent - 1].parse().expect("a number")
}

#[test]
fn what_cannot_be_shown_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    for (target, part) in [
        ("4194000", "4194000"),
        (
            "no-such-program",
            "top no-such-program: no process runs a program of this name",
        ),
        ("4710.00000000", "no process and no session"),
        ("1", "1"),
    ] {
        let output = stackbeat(folder.path(), &["top", "--once", target]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{target}: {said}");
        assert!(
            said.starts_with("stackbeat: ") && said.contains(part),
            "{said}"
        );
        assert_eq!(said.matches("stackbeat: ").count(), 1, "{said}");
    }
}
