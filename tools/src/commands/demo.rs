//! `stackbeat demo`: records two programs on any machine and shows what can be seen in them.
//!
//! The second program is this binary itself, started with a hidden command that runs the bundled
//! example, so that an installed `stackbeat` needs neither its sources nor a compiler.

// A link to the file in `examples`, so that this package contains it.
#[allow(
    unreachable_pub,
    reason = "the examples crate has the same file, and there it is public"
)]
mod kitchen;

use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use stackbeat_collector::session::Options;

use crate::cli::local::{DemoArgs, WorkerArgs};
use crate::commands::{record, report, self_test};
use crate::render::html;
use crate::summary::load;
use crate::summary::load::Report;
use crate::{agent_library, terminal};

/// Runs the command.
pub(crate) fn run(args: &DemoArgs) -> Result<u8> {
    fs::create_dir_all(&args.output)
        .with_context(|| format!("{}: cannot be made", args.output.display()))?;
    let style = terminal::Style::stdout();
    let mut pages = Vec::new();
    for program in programs()? {
        terminal::print(&format!(
            "{}\n{}\n\n",
            style.bold(&format!("━━ {}", program.title)),
            program.what
        ))?;
        let (report, page) = show(&program, &args.output)?;
        terminal::print(&report::screen(&report))?;
        terminal::print("\n")?;
        pages.push(page);
    }
    let mut text = format!("{}\n", style.bold("Open these pages in a browser:"));
    for page in &pages {
        let shown = page.canonicalize().unwrap_or_else(|_| page.clone());
        text.push_str(&format!("  {}\n", shown.display()));
    }
    text.push_str(&format!(
        "\nRecord a program of yours:  stackbeat record -- COMMAND\nLook at it again:           \
         stackbeat report {}\n",
        pages[0].with_extension("beat").display()
    ));
    terminal::print(&text)?;
    Ok(0)
}

/// Something to record.
struct Program {
    name: &'static str,
    title: String,
    what: &'static str,
    command: Vec<OsString>,
}

/// A real program that is installed here, and the bundled example.
fn programs() -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    programs.extend(real_program());
    let own = std::env::current_exe().context("the path of this program is not known")?;
    programs.push(Program {
        name: "kitchen",
        title: "kitchen, the bundled example: six threads, a contended lock, synced writes".into(),
        what: "Cooks wait for the pantry's lock while the accountant counts; receipts are synced to disk.",
        command: vec![own.into(), "demo-worker".into(), "kitchen".into()],
    });
    Ok(programs)
}

/// Parses a good part of Python's standard library: reading, allocating, interpreting.
const PYTHON: &str = "\
import ast, glob, os, time
end = time.monotonic() + 1.5
nodes = 0
for path in sorted(glob.glob(os.path.join(os.path.dirname(os.__file__), '*.py'))):
    with open(path, encoding='utf-8', errors='replace') as source:
        nodes += sum(1 for _ in ast.walk(ast.parse(source.read())))
    if time.monotonic() > end:
        break
print(nodes, 'nodes parsed')
";

const SQLITE: &str = "\
create table item(id integer primary key, name text, price integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 400000)
  insert into item select i, 'item ' || (i * 7919 % 100003), i * 31 % 997 from n;
create index item_name on item(name);
select count(*), sum(a.price) from item a join item b on a.name = b.name where a.id < b.id;
";

const PERL: &str = "my %n; for my $i (1..1500000) { $n{$i * 7919 % 100003} .= 'x' } \
                    print scalar(keys %n), \" keys\\n\";";

fn real_program() -> Option<Program> {
    let choices: [(&str, &str, &[&str]); 3] = [
        (
            "python3",
            "Parses Python's own standard library.",
            &["-c", PYTHON],
        ),
        (
            "sqlite3",
            "Inserts, indexes and joins 400,000 rows.",
            &[":memory:", SQLITE],
        ),
        ("perl", "Fills a large hash.", &["-e", PERL]),
    ];
    choices.into_iter().find_map(|(name, what, arguments)| {
        let path = match name {
            "python3" => python().or_else(|| installed(name))?,
            _ => installed(name)?,
        };
        let command = std::iter::once(path.into_os_string());
        Some(Program {
            name,
            title: format!("{name}, as it is installed here"),
            what,
            command: command
                .chain(arguments.iter().map(OsString::from))
                .collect(),
        })
    })
}

/// The interpreter that `python3` ends up in: version managers put wrappers into PATH.
fn python() -> Option<PathBuf> {
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let path = PathBuf::from(String::from_utf8(asked.stdout).ok()?.trim());
    is_binary(&path).then_some(path)
}

/// The first program of this name in PATH that is no script: version managers put wrappers there,
/// and their shells would fill the picture.
fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_binary(file))
}

fn is_binary(file: &Path) -> bool {
    let mut magic = [0u8; 4];
    let read = fs::File::open(file).and_then(|mut f| f.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

/// Records a program and writes its page.
fn show(program: &Program, folder: &Path) -> Result<(Report, PathBuf)> {
    let trace = folder.join(format!("{}.beat", program.name));
    let mut options = Options::new(
        program.command.clone(),
        agent_library::locate(None)?,
        trace.clone(),
    );
    options.overwrite = true;
    record::record(&options, false)?;
    let report = load::load(&trace, html::BAR_BUDGET)?;
    let output = trace.with_extension("html");
    report::write_page(&report, &output)?;
    Ok((report, output))
}

/// Runs what `demo` and `doctor` record.
pub(crate) fn work(args: &WorkerArgs) -> Result<u8> {
    match args.program.as_str() {
        "kitchen" => {
            let served = kitchen::run(kitchen::DEFAULT_ORDERS)?;
            println!("{served}");
        }
        "self-test" => self_test::program()?,
        other => anyhow::bail!("demo-worker {other}: there is no such program"),
    }
    Ok(0)
}
