//! What a first user sees: the end of a recording, the first screen of its report, and its page in a browser.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use stackbeat_tests::tool::{binary, command_in, stackbeat, text};
use stackbeat_tests::{compile, wait_until, workspace};

/// Three quarters of its time in `price`, however long a busy machine makes that, and the rest in a wait for
/// a lock that another thread holds.
const SHOP: &str = r#"
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static pthread_mutex_t catalog = PTHREAD_MUTEX_INITIALIZER;
static volatile int is_held;
static long lasted;
static long now(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
__attribute__((noinline)) void price(long ms) {
  long begin = now(CLOCK_MONOTONIC);
  for (long end = now(CLOCK_THREAD_CPUTIME_ID) + ms; now(CLOCK_THREAD_CPUTIME_ID) < end;)
    for (volatile long i = 0; i < 100000; i++) {}
  lasted = now(CLOCK_MONOTONIC) - begin;
}
__attribute__((noinline)) void insert(void) { pthread_mutex_lock(&catalog); pthread_mutex_unlock(&catalog); }
static void *keep(void *unused) {
  pthread_setname_np(pthread_self(), "keeper");
  pthread_mutex_lock(&catalog);
  is_held = 1;
  usleep(lasted * 360);
  pthread_mutex_unlock(&catalog);
  return unused;
}
int main(void) {
  pthread_t keeper;
  price(700);
  pthread_create(&keeper, 0, keep, 0);
  while (!is_held) usleep(1000);
  insert();
  pthread_join(keeper, 0);
  return 0;
}
"#;

/// A folder with a recording of the shop, `t.beat`, and what `record` said.
fn recorded(options: &[&str]) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    compile(folder.path(), "shop.c", SHOP, &["-g", "-pthread"]);
    let record = [&["record", "-o", "t.beat"], options, &["--", "./shop"]].concat();
    let output = stackbeat(folder.path(), &record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    (folder, text(&output.stderr))
}

#[test]
fn a_recording_ends_with_what_it_found_what_it_cost_and_what_to_type() {
    let (folder, said) = recorded(&[]);
    // Before them may stand what recordings of others have left.
    let lines: Vec<&str> = said.lines().collect();
    let Some([found, cost, next]) = lines.last_chunk() else {
        panic!("three lines: {said}");
    };
    let verdict = found.split_once(" of shop: ").expect("a verdict").1;
    let mut parts = vec![" waiting for lock catalog held by keeper", "in insert"];
    // The two largest parts are named. On a busy machine the wait for a processor is one of them.
    if !verdict.contains("waiting for a processor") {
        parts.extend([" % computing (", "in price"]);
    }
    for part in parts {
        assert!(verdict.contains(part), "{part}: {verdict}");
    }
    for part in [
        "  recording cost ",
        " %",
        "1 process, 2 threads",
        "none lost",
    ] {
        assert!(cost.contains(part), "{part}: {cost}");
    }
    assert!(next.contains("stackbeat report t.beat"), "{next}");
    assert!(next.contains("stackbeat open t.beat"), "{next}");

    // The report begins with the same sentence, and fits a screen. Everything that it can show fits its
    // width.
    for columns in [80, 140] {
        let report = |words: &[&str]| {
            let mut report = command_in(folder.path(), &[&["report", "t.beat"], words].concat());
            let report = report.env("COLUMNS", columns.to_string()).output();
            let report = text(&report.expect("runs").stdout);
            let widest = report.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(columns), "{report}");
            report
        };
        let screen = report(&[]);
        let words =
            |text: &str| Vec::from_iter(text.split_whitespace().map(str::to_owned)).join(" ");
        assert!(
            words(&screen).contains(&words(verdict)),
            "{verdict}: {screen}"
        );
        assert!(screen.lines().count() <= 40, "{screen}");
        let all = report(&["--all"]);
        assert!(all.contains("Who makes whom wait"), "{all}");
        // Which lock it is has room on every screen.
        assert!(screen.contains("(catalog)"), "{screen}");
        let (_, waits) = all.split_once("Who makes whom wait").expect("a table");
        assert!(waits.contains("(catalog)"), "{all}");
    }

    // Viewers have the lock's name, too.
    for format in ["chrome", "perfetto"] {
        let export = [
            "export", "--to", format, "-o", "exported", "--force", "t.beat",
        ];
        let output = stackbeat(folder.path(), &export);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = fs::read(folder.path().join("exported")).expect("written");
        let exported = String::from_utf8_lossy(&bytes);
        for part in ["waited_for", "catalog"] {
            assert!(exported.contains(part), "{format}: {part}");
        }
    }
}

/// Computes for half a second of CPU time, with a line every 50 ms.
const FEED: &str = r#"
#include <stdio.h>
#include <time.h>
static long now(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
__attribute__((noinline)) void prepare(long ms) {
  for (long end = now() + ms; now() < end;)
    for (volatile long i = 0; i < 2000000; i++) {}
}
int main(void) {
  for (int i = 0; i < 10; i++) {
    prepare(50);
    puts("line");
    fflush(stdout);
  }
}
"#;

/// The first screen of what a shell is told to run beside `feed`.
fn screen_of(script: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    compile(folder.path(), "feed.c", FEED, &["-g"]);
    let record = ["record", "-q", "-o", "t.beat", "--", "sh", "-c", script];
    let output = stackbeat(folder.path(), &record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = command_in(folder.path(), &["report", "t.beat"])
        .env("COLUMNS", "140")
        .output();
    text(&report.expect("runs").stdout)
}

#[test]
fn of_a_pipeline_the_programs_are_named_and_who_waits_for_whom() {
    let screen = screen_of("./feed | cat");
    for part in [
        "\nfeed ",
        "in prepare at feed.c",
        "waits mostly: cat for feed (",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
}

/// Waits in two functions of its own, which are stripped, with nothing else that has a name.
const STRIPPED: &str = r#"
#include <unistd.h>
__attribute__((noinline)) static void often(void) { usleep(3000); __asm__ volatile(""); }
__attribute__((noinline)) static void seldom(void) { usleep(20000); __asm__ volatile(""); }
int main(void) {
  for (int i = 0; i < 100; i++) often();
  for (int i = 0; i < 10; i++) seldom();
  return 0;
}
"#;

#[test]
fn callers_of_a_wait_begin_where_the_program_calls_a_library() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let script = "const { execSync } = require('child_process');
        function load() { execSync('sleep 0.3'); }
        load();";
    fs::write(at.join("load.js"), script).expect("written");
    let script = "import queue, threading, time
jobs = queue.Queue()
def worker():
    jobs.get()
def give():
    time.sleep(0.3)
    jobs.put(1)
thread = threading.Thread(target=worker)
thread.start()
give()
thread.join()
";
    fs::write(at.join("jobs.py"), script).expect("written");
    compile(at, "stripped.c", STRIPPED, &["-s"]);
    let blocking = |program: &[&str]| {
        let record = [&["record", "-q", "-f", "-o", "t.beat", "--"], program].concat();
        let output = stackbeat(at, &record);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = ["report", "t.beat", "--section", "blocking"];
        let report = command_in(at, &report).env("COLUMNS", "140").output();
        text(&report.expect("runs").stdout)
    };
    let node = blocking(&["node", "load.js"]);
    assert!(node.contains("  execSync ← load"), "{node}");
    let python = blocking(&[&stackbeat_tests::python(), "jobs.py"]);
    let rows: Vec<&str> = python.lines().map(str::trim_end).collect();
    for ends in ["  Queue.get ← worker", "  give ← <module>"] {
        assert!(
            rows.iter().any(|row| row.ends_with(ends)),
            "{ends}: {python}"
        );
    }
    // What differs in addresses only stays apart.
    let stripped = blocking(&["./stripped"]);
    let sleeps = stripped.lines().filter(|row| row.contains("  stripped+0x"));
    assert_eq!(sleeps.count(), 2, "{stripped}");
}

#[test]
fn the_program_that_a_wrapper_starts_comes_first_and_its_helpers_are_summed_up() {
    let helper = "x=$(echo a | sed s/a/b/); ".repeat(8);
    let screen = screen_of(&format!("{helper} exec ./feed"));
    assert!(screen.contains("\nfeed "), "{screen}");
    let (_, table) = screen
        .split_once("BLOCKED ON\n")
        .expect("a table of threads");
    let rows: Vec<&str> = table.lines().take_while(|line| !line.is_empty()).collect();
    assert!(rows[0].contains(" feed "), "{screen}");
    assert!(rows.len() <= 5, "{screen}");
    assert!(rows.iter().any(|row| row.contains(" helpers ")), "{screen}");
}

/// The README's first command.
#[test]
fn the_demo_shows_the_lock_that_it_announces() {
    let folder = tempfile::tempdir().expect("a folder");
    let tool = binary();
    let record = [
        "record",
        "-q",
        "-o",
        "t.beat",
        "--",
        tool,
        "demo-worker",
        "kitchen",
    ];
    let output = stackbeat(folder.path(), &record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = command_in(folder.path(), &["report", "t.beat"])
        .env("COLUMNS", "140")
        .output();
    let screen = text(&report.expect("runs").stdout);
    let words = Vec::from_iter(screen.split_whitespace()).join(" ");
    assert!(words.contains("waiting for a lock"), "{screen}");
    let is_lock = |line: &str| line.contains(" lock ") && line.contains(" futex lock ");
    assert!(screen.lines().any(is_lock), "{screen}");
}

#[test]
fn quiet_and_empty_recordings_find_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let record = |options: &[&str]| {
        let words = [&["record", "-f", "-o", "t.beat"], options].concat();
        text(&stackbeat(folder.path(), &words).stderr)
    };
    assert_eq!(record(&["-q", "--", "sleep", "0.05"]), "");
    let idle = record(&["--", "sleep", "0.05"]);
    assert!(
        idle.contains(" of sleep: ") && idle.contains(" % sleeping"),
        "{idle}"
    );
    let empty = record(&["--start-disabled", "--", "true"]);
    assert!(
        empty.contains("stackbeat: recorded ") && empty.contains(" of true\n"),
        "{empty}"
    );
    let one_line = record(&["--json", "--", "true"]);
    assert!(
        one_line
            .lines()
            .last()
            .is_some_and(|line| line.starts_with('{')),
        "{one_line}"
    );
}

#[test]
fn sections_are_chosen_by_name() {
    let (folder, _) = recorded(&["-q"]);
    let report =
        |words: &[&str]| stackbeat(folder.path(), &[&["report", "t.beat"], words].concat());
    let first = text(&report(&[]).stdout);
    assert!(first.contains("More with --section NAME: waits"), "{first}");
    let waits = text(&report(&["--section", "waits", "--section", "losses"]).stdout);
    assert!(
        waits.contains("Who makes whom wait") && waits.contains("keeper"),
        "{waits}"
    );
    assert!(
        waits.contains("Losses") && !waits.contains("Functions by"),
        "{waits}"
    );
    let all = text(&report(&["--all"]).stdout);
    for title in [
        "Threads",
        "Functions by",
        "Who makes whom wait",
        "System calls",
        "Losses",
    ] {
        assert!(all.contains(title), "{title}: {all}");
    }
    // Each title is explained.
    let page = fs::read_to_string(workspace().join("docs/reading-a-report.md")).expect("reads");
    let is_title = |line: &&str| {
        line.starts_with(|c: char| c.is_ascii_uppercase()) && !line.starts_with("No room for ")
    };
    let titles = all.split("\n\n").skip(1);
    for title in titles
        .filter_map(|part| part.lines().next())
        .filter(is_title)
    {
        assert!(page.contains(title), "{title}");
    }
    let wrong = report(&["--section", "wait"]);
    let said = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(
        said.contains("threads, functions, blocking, waits"),
        "{said}"
    );
}

/// A browser that notes what it is to show, and ends with this status.
fn browser(folder: &Path, status: i32) -> PathBuf {
    let path = folder.join(format!("browser-{status}"));
    let script = format!("#!/bin/sh\necho \"$@\" >> shown\nexit {status}\n");
    fs::write(&path, script).expect("writes");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("is ours");
    path
}

/// The tool without a display, with a cache of its own.
fn without_display(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command_in(folder, arguments);
    command
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .env_remove("BROWSER");
    command
}

/// The page that a message names.
#[track_caller]
fn page(said: &str) -> String {
    let path = said.split_whitespace().find(|word| word.ends_with(".html"));
    let page = fs::read_to_string(path.unwrap_or_else(|| panic!("a path: {said}")));
    page.expect("is there")
}

#[test]
fn the_page_opens_in_a_browser_or_its_path_is_said() {
    let (folder, _) = recorded(&["-q"]);
    let at = folder.path();
    let open = |change: &dyn Fn(&mut Command)| {
        let mut command = without_display(at, &["open", "t.beat"]);
        change(&mut command);
        let output = command.output().expect("runs");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let said = open(&|command| _ = command.env("BROWSER", browser(at, 0)));
    assert!(
        said.contains("opened ") && page(&said).contains("price"),
        "{said}"
    );
    let shown = fs::read_to_string(at.join("shown")).expect("the browser ran");
    assert!(said.contains(shown.trim()), "{shown}: {said}");

    let said = open(&|_| {});
    assert!(
        said.contains("no display") && page(&said).contains("price"),
        "{said}"
    );
    let said = open(&|command| _ = command.env("BROWSER", browser(at, 3)));
    assert!(
        said.contains("exit status: 3") && page(&said).contains("price"),
        "{said}"
    );
    // One after the other, as xdg-open takes them; with a display the browser may run on.
    let both = format!("no-such-browser:{} --new %s", browser(at, 0).display());
    let said = open(&|command| _ = command.env("BROWSER", &both).env("DISPLAY", ":9"));
    assert!(said.contains("opened "), "{said}");
    let shown = fs::read_to_string(at.join("shown")).expect("the browser ran");
    assert!(
        shown
            .lines()
            .last()
            .is_some_and(|line| line.starts_with("--new ")),
        "{shown}"
    );
    // All of them are one file, which nobody else may read.
    let pages = fs::read_dir(at.join("cache/stackbeat")).expect("a folder");
    let pages: Vec<_> = { pages }.map(|page| page.expect("is there")).collect();
    assert_eq!(pages.len(), 1, "{pages:?}");
    let mode = pages[0].metadata().expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn record_opens_the_page_and_ends_as_the_program_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let mut record = without_display(
        at,
        &[
            "record", "--open", "-o", "t.beat", "--", "sh", "-c", "exit 7",
        ],
    );
    let output = record
        .env("BROWSER", browser(at, 0))
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("opened "),
        "{}",
        text(&output.stderr)
    );
    assert!(at.join("shown").exists());
}

#[test]
fn a_process_is_attached_to_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let program = format!("naming-{}", std::process::id());
    let source = "#include <unistd.h>\nint main(void) { for (;;) usleep(1000); }\n";
    let built = compile(at, "naming.c", source, &[]);
    fs::rename(built, at.join(&program)).expect("is ours");
    let start = || {
        let child = Command::new(at.join(&program)).spawn().expect("starts");
        stackbeat_tests::Background(child)
    };
    let attach = ["attach", "-d", "200ms", "-o", "t.beat", "-f", &program];
    let one = start();
    wait_until("the program has its name", || {
        fs::read_link(format!("/proc/{}/exe", one.0.id())).is_ok_and(|exe| exe.ends_with(&program))
    });
    let output = stackbeat(at, &attach);
    let said = text(&output.stderr);
    // Where no process may be traced, the process has been found all the same.
    let is_found = output.status.success() || said.contains(&one.0.id().to_string());
    assert!(is_found, "{said}");
    let two = start();
    let output = stackbeat(at, &attach);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    for process in [&one, &two] {
        assert!(said.contains(&format!(" {}  ", process.0.id())), "{said}");
    }
}

#[test]
fn differences_are_there_as_json() {
    let (folder, _) = recorded(&["-q"]);
    let diff = stackbeat_tests::tool::json(folder.path(), &["diff", "t.beat", "t.beat", "--json"]);
    assert_eq!(diff["schema"], "stackbeat.diff.v1");
    for side in ["a", "b"] {
        assert_eq!(diff[side].as_array().map(Vec::len), Some(1), "{diff}");
    }
    let of_price = |row: &&serde_json::Value| row["of"] == "price";
    let functions = diff["functions"].as_array().expect("a list");
    let price = functions.iter().find(of_price).expect("is there");
    assert_eq!(
        (&price["a"], &price["relative"]),
        (&price["b"], &0.0.into()),
        "{price}"
    );
    assert!(price["a"].as_f64() > Some(1e8), "{price}");
    let waits = diff["waits"].to_string();
    assert!(waits.contains("insert"), "{waits}");
}

#[test]
fn existing_files_are_treated_alike() {
    let (folder, _) = recorded(&["-q"]);
    let at = folder.path();
    let run = |words: &[&str]| stackbeat(at, words);
    // The format and the name are those that most want; a name that is taken gets a number.
    for name in ["t.pftrace", "t.2.pftrace"] {
        let output = run(&["export", "t.beat"]);
        assert!(
            text(&output.stderr).contains(&format!("wrote {name} ")),
            "{}",
            text(&output.stderr)
        );
    }
    let output = run(&["export", "t.beat", "--to", "svg"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let picture = fs::read_to_string(at.join("t.svg")).expect("is there");
    assert!(picture.contains("<svg"), "{picture}");
    // What was named and is there is kept, whoever writes it.
    fs::write(at.join("mine"), "mine").expect("writes");
    for words in [
        &["export", "t.beat", "-o", "mine"][..],
        &["report", "t.beat", "--html", "mine"],
        &["diff", "t.beat", "t.beat", "--html", "mine"],
        &["record", "-o", "mine", "--", "true"],
    ] {
        let output = run(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        let said = text(&output.stderr);
        assert!(
            said.contains("exists") && said.contains("--force"),
            "{words:?}: {said}"
        );
        assert_eq!(fs::read(at.join("mine")).expect("is there"), b"mine");
        let at_command = words
            .iter()
            .position(|word| *word == "--")
            .unwrap_or(words.len());
        let mut forced = words.to_vec();
        forced.insert(at_command, "--force");
        let output = run(&forced);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_ne!(fs::read(at.join("mine")).expect("is there"), b"mine");
        fs::write(at.join("mine"), "mine").expect("writes");
    }
}
