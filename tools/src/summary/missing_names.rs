//! Which code has no names, and what would give it some: packages with debug files, servers, switches of
//! runtimes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use stackbeat_model::layers::Layer;
use stackbeat_model::{GENERATED, ThreadIndex, is_runtime};

use crate::summary::functions::{FunctionRow, Own, functions};
use crate::summary::labels::gap_cpu_ns;
use crate::summary::load::Report;
use crate::summary::metadata::FunctionName;
use crate::summary::sort_key::SortKey;
use crate::terminal::clean;
use crate::units::percent;

/// Modules that are named.
const MOST: usize = 3;
/// Least part of the running time that is worth a word.
const WORTH: f64 = 0.01;

/// What is known of the system that says it.
#[derive(Debug)]
pub(crate) struct System {
    /// Of each package the list of its files: `/var/lib/dpkg/info`.
    packages: PathBuf,
    /// Servers were asked for debug files.
    has_servers: bool,
}

impl System {
    /// This one, which has recorded the program.
    #[cfg(target_os = "linux")]
    pub(crate) fn that_records() -> System {
        System {
            has_servers: std::env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.is_empty()),
            ..System::that_shows()
        }
    }

    /// One that knows of no packages.
    #[cfg(test)]
    pub(crate) fn without_packages() -> System {
        System {
            packages: "/nonexistent".into(),
            has_servers: false,
        }
    }

    /// This one, which shows a trace: its environment does not say whom the recording has asked.
    pub(crate) fn that_shows() -> System {
        System {
            packages: "/var/lib/dpkg/info".into(),
            has_servers: false,
        }
    }
}

/// Lines for people; none where names are not worth a word.
pub(crate) fn lines(
    report: &Report,
    wanted: &dyn Fn(ThreadIndex) -> bool,
    system: &System,
) -> Vec<String> {
    let names = &report.metadata.functions;
    let rows = functions(&report.profile, wanted, SortKey::SelfTime, Own::Exact);
    // As the tables count: without the time in which others had the processor.
    let running = rows.iter().map(|row| row.own.computing_ns());
    let whole = running.fold(0, u64::saturating_add) + gap_cpu_ns(&report.profile, wanted);
    // By module's path; of generated code by the program's name.
    let (mut stripped, mut generated) = (BTreeMap::new(), BTreeMap::new());
    for row in &rows {
        let Some(function) = names.get(row.function.0 as usize) else {
            continue;
        };
        let sum = match function.name.strip_prefix(GENERATED) {
            Some(program) => generated.entry(program.trim_end_matches(']')),
            None if is_nameless(&function.name, &function.module) => {
                stripped.entry(&*function.module)
            }
            None => continue,
        };
        *sum.or_insert(0) += row.own.computing_ns();
    }
    let heaviest = |sums: BTreeMap<_, u64>| {
        let mut sums: Vec<(&str, u64)> = sums.into_iter().collect();
        sums.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        sums.retain(|(_, ns)| *ns > 0 && *ns as f64 >= WORTH * whole as f64);
        sums.truncate(MOST);
        sums
    };
    let mut lines = stripped_lines(&heaviest(stripped), whole, system);
    lines.extend(interpreter_line(report, &rows, whole));
    let modules = || names.iter().map(|function| function.module.as_str());
    // A runtime was asked for names and gave some: `[JIT php]` is none. Older traces do not say whose they
    // are.
    let is_of_map =
        |f: &FunctionName| is_runtime(&f.module) || f.module.is_empty() && !f.name.starts_with('[');
    let mut of_rows = rows
        .iter()
        .filter_map(|row| names.get(row.function.0 as usize));
    let has_names = of_rows.any(is_of_map);
    for (program, ns) in heaviest(generated) {
        lines.push(format!(
            "{} of the running time is generated code without names in {}: {}",
            percent(ns, whole),
            clean(program),
            switch(program, &mut modules(), has_names)
        ));
    }
    lines
}

/// Says of an interpreter why none of its functions have names.
fn interpreter_line(report: &Report, rows: &[FunctionRow], whole: u64) -> Option<String> {
    let layer = report.metadata.layers();
    let names = &report.metadata.functions;
    let name = |row: &FunctionRow| names.get(row.function.0 as usize);
    let is_named = |f: &FunctionName| is_runtime(&f.module);
    if names.iter().any(is_named) {
        return None;
    }
    let of_interpreter = (rows.iter()).filter(|row| layer(row.function) == Layer::Interpreter);
    let running = of_interpreter.clone().map(|row| row.own.computing_ns());
    let ns = running.fold(0, u64::saturating_add);
    let heaviest = of_interpreter.max_by_key(|row| row.own.computing_ns())?;
    let file = name(heaviest)?.module.rsplit('/').next()?;
    let known = match file {
        file if file.contains("ruby") => "Ruby methods: those of Ruby 3.1 to 3.4 are known",
        file if file.contains("python") => {
            "Python functions: those of CPython 3.9 to 3.15 are known"
        }
        // V8 names what it compiles, and without a compiler nothing.
        file if is_node(file) && is_jitless(report) => {
            "JavaScript functions: V8 names none with --jitless; leave that out, and record again"
        }
        _ => return None,
    };
    (ns > 0 && ns as f64 >= WORTH * whole as f64).then(|| {
        format!(
            "{} of the running time is in {} without names of {known}",
            percent(ns, whole),
            clean(file)
        )
    })
}

fn is_node(file: &str) -> bool {
    ["node", "nodejs"].contains(&file) || file.starts_with("libnode.so")
}

/// Whether a Node.js was told not to compile.
fn is_jitless(report: &Report) -> bool {
    let processes = report.metadata.processes.iter();
    let mut words = processes.flat_map(|process| &process.command);
    words.any(|word| word == "--jitless")
}

/// `libfoo.so.1+0x1240`, in a file.
fn is_nameless(name: &str, module: &str) -> bool {
    let Some((_, file)) = module.rsplit_once('/') else {
        return false;
    };
    let rest = name.strip_prefix(file).filter(|_| !file.is_empty());
    rest.is_some_and(|rest| rest.starts_with("+0x"))
}

fn stripped_lines(modules: &[(&str, u64)], whole: u64, system: &System) -> Vec<String> {
    if modules.is_empty() {
        return Vec::new();
    }
    let file_name = |path: &str| clean(path.rsplit('/').next().unwrap_or(path)).into_owned();
    let shares = modules
        .iter()
        .map(|(path, ns)| format!("{} ({})", file_name(path), percent(*ns, whole)));
    let shares = shares.collect::<Vec<_>>().join(", ");
    let paths: Vec<&str> = modules.iter().map(|(path, _)| *path).collect();
    let owners = owners(&paths, &system.packages);
    let mut packages: Vec<String> = Vec::new();
    let mut own: Vec<String> = Vec::new();
    for path in &paths {
        let package = match owners.get(path) {
            Some(package) => debug_package(package),
            None if is_of_system(path) => format!("the debug package of {}", file_name(path)),
            None => {
                own.push(file_name(path));
                continue;
            }
        };
        if !packages.contains(&package) {
            packages.push(package);
        }
    }
    let mut wishes = Vec::new();
    if !packages.is_empty() {
        let servers = match system.has_servers {
            true => "",
            false => "set DEBUGINFOD_URLS or ",
        };
        wishes.push(format!("{servers}install {}", packages.join(", ")));
    }
    if !own.is_empty() {
        wishes.push(format!(
            "build {} without stripping symbols",
            own.join(", ")
        ));
    }
    vec![format!(
        "no function names in {shares}: {}, and record again",
        wishes.join("; ")
    )]
}

/// Whether a package has brought a file, on whatever system it was recorded.
fn is_of_system(path: &str) -> bool {
    let folders = ["/usr/", "/lib", "/bin/", "/sbin/"];
    folders.iter().any(|folder| path.starts_with(folder)) && !path.starts_with("/usr/local/")
}

/// The packages that these files are of, as far as dpkg knows.
fn owners<'a>(paths: &[&'a str], packages: &Path) -> HashMap<&'a str, String> {
    // Where /lib is a link to /usr/lib, packages and modules may each say either.
    let other = |path: &str| match path.strip_prefix("/usr") {
        Some(linked) => linked.to_owned(),
        None => format!("/usr{path}"),
    };
    // Other folders may be links as well: /usr/lib/x86_64-linux-gnu/perl/5.36.
    let followed = |path: &str| {
        fs::canonicalize(path)
            .ok()?
            .into_os_string()
            .into_string()
            .ok()
    };
    let all = |path: &&'a str| {
        let same = [Some((*path).to_owned()), followed(path)];
        let names = same.into_iter().flatten();
        let names: HashSet<String> = names.flat_map(|path| [other(&path), path]).collect();
        (*path, names)
    };
    let paths: Vec<(&'a str, HashSet<String>)> = paths.iter().map(all).collect();
    let mut owners = HashMap::new();
    let files = fs::read_dir(packages).into_iter().flatten().flatten();
    for list in files.map(|file| file.path()) {
        if owners.len() == paths.len() {
            break;
        }
        let name = list.file_name().and_then(|name| name.to_str());
        let Some(package) = name.and_then(|name| name.strip_suffix(".list")) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(&list) else {
            continue;
        };
        for (path, names) in &paths {
            if text.lines().any(|line| names.contains(line)) {
                let plain = package.split(':').next().unwrap_or(package);
                owners.insert(*path, plain.to_owned());
            }
        }
    }
    owners
}

/// The package with the debug files of another one: Debian makes `-dbgsym` for all but a few.
fn debug_package(package: &str) -> String {
    const DBG: [&str; 6] = [
        "libc6",
        "libdb5.3",
        "libpcre3",
        "liblua5.1-0",
        "liblua5.3-0",
        "liblua5.4-0",
    ];
    // Python's and Java's are of all packages of one version.
    let versioned = |prefix: &str| {
        let rest = package.strip_prefix(prefix)?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        (end > 0).then_some(&rest[..end])
    };
    if let Some(version) = versioned("libpython3.").or_else(|| versioned("python3.")) {
        return format!("python3.{version}-dbg");
    }
    if let Some(version) = versioned("openjdk-") {
        return format!("openjdk-{version}-dbg");
    }
    match DBG.contains(&package) {
        true => format!("{package}-dbg"),
        false => format!("{package}-dbgsym"),
    }
}

/// How a runtime is told to name its code.
fn switch(program: &str, modules: &mut dyn Iterator<Item = &str>, has_names: bool) -> String {
    const BY_LIBRARY: [(&str, &str); 3] = [
        ("libjvm.so", "java"),
        ("libcoreclr.so", "dotnet"),
        ("libruby", "ruby"),
    ];
    let known = ["java", "node", "ruby", "dotnet", "php"];
    let by_name = known
        .iter()
        .find(|name| program.starts_with(**name))
        .copied();
    let runtime = by_name.or_else(|| {
        let files: Vec<&str> = modules
            .map(|path| path.rsplit('/').next().unwrap_or(path))
            .collect();
        let loaded = |library: &str| files.iter().any(|file| file.starts_with(library));
        BY_LIBRARY
            .iter()
            .find(|(library, _)| loaded(library))
            .map(|(_, runtime)| *runtime)
    });
    match runtime {
        Some("java") => {
            "run it with -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit, or say `jcmd PID Compiler.perfmap` \
             before the recording ends (JDK 17)"
        }
        Some("node") if has_names => "V8 has named the rest of it",
        // Attached to, it may not have been asked.
        Some("node") => {
            "start it by `stackbeat record` itself, without --no-runtime-options, or with --perf-basic-prof \
             --interpreted-frames-native-stack"
        }
        Some("ruby") => "run it with --yjit-perf (Ruby 3.3)",
        Some("dotnet") if has_names => {
            "it was compiled ahead; DOTNET_ReadyToRun=0 compiles it at run time, with names"
        }
        Some("dotnet") => {
            "start it by `stackbeat record` itself, without --no-runtime-options, or set DOTNET_PerfMapEnabled=1 \
             (COMPlus_PerfMapEnabled=1 before .NET 6)"
        }
        // Its regular expressions are compiled by PCRE, which names nothing.
        Some("php") if has_names => {
            "PHP has named its functions, and regular expressions have no names"
        }
        Some("php") => {
            "run it with -d opcache.jit_debug=16 (regular expressions stay without names)"
        }
        _ => "its compiler has to write /tmp/perf-PID.map",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use stackbeat_model::FunctionIndex;

    use super::*;
    use crate::summary::call_tree::Label;

    fn system(folder: &Path, has_servers: bool) -> System {
        let list = |package: &str, files: &str| {
            fs::write(folder.join(format!("{package}.list")), files).expect("writes");
        };
        list("coreutils", "/.\n/usr/bin\n/usr/bin/sort\n");
        list("libc6:amd64", "/lib/x86_64-linux-gnu/libc.so.6\n");
        list(
            "libsqlite3-0:amd64",
            "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0\n",
        );
        System {
            packages: folder.to_owned(),
            has_servers,
        }
    }

    #[test]
    fn three_modules_are_named_with_what_would_name_their_functions() {
        let folder = tempfile::tempdir().expect("a folder");
        let asked = system(folder.path(), false);
        let modules = [
            ("/usr/bin/sort", 600),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", 200),
            ("/srv/app", 100),
        ];
        assert_eq!(
            stripped_lines(&modules, 1000, &asked),
            [
                "no function names in sort (60.0 %), libc.so.6 (20.0 %), app (10.0 %): set DEBUGINFOD_URLS or install \
              coreutils-dbgsym, libc6-dbg; build app without stripping symbols, and record again"
            ]
        );
        assert_eq!(
            stripped_lines(&modules[..1], 1000, &system(folder.path(), true)),
            ["no function names in sort (60.0 %): install coreutils-dbgsym, and record again"]
        );
        assert_eq!(
            stripped_lines(&modules[2..], 1000, &system(folder.path(), true)),
            [
                "no function names in app (10.0 %): build app without stripping symbols, and record again"
            ]
        );
        assert_eq!(
            stripped_lines(&[("/usr/lib64/libx.so.1", 100)], 1000, &asked),
            [
                "no function names in libx.so.1 (10.0 %): set DEBUGINFOD_URLS or install the debug package of libx.so.1, \
              and record again"
            ]
        );
        assert!(stripped_lines(&[], 1000, &asked).is_empty());
        let linked = [("/lib/x86_64-linux-gnu/libsqlite3.so.0", 100)];
        let said = stripped_lines(&linked, 1000, &asked);
        assert!(said[0].contains("install libsqlite3-0-dbgsym"), "{said:?}");
    }

    #[test]
    fn packages_are_found_through_links_and_have_debug_packages_of_their_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let real = folder.path().canonicalize().expect("a path");
        fs::create_dir(real.join("5.36.0")).expect("a folder");
        fs::write(real.join("5.36.0/MD5.so"), "").expect("writes");
        std::os::unix::fs::symlink("5.36.0", real.join("5.36")).expect("links");
        let list = format!("{}/5.36.0/MD5.so\n", real.display());
        fs::write(real.join("libperl5.36:amd64.list"), list).expect("writes");
        let linked = real.join("5.36/MD5.so");
        let linked = linked.to_str().expect("text");
        let owners = owners(&[linked], &real);
        assert_eq!(owners.get(linked).map(String::as_str), Some("libperl5.36"));
        for (package, expected) in [
            ("python3.11-minimal", "python3.11-dbg"),
            ("libpython3.13", "python3.13-dbg"),
            ("libpython3.11-stdlib", "python3.11-dbg"),
            ("python3-numpy", "python3-numpy-dbgsym"),
            ("openjdk-17-jre-headless", "openjdk-17-dbg"),
            ("liblua5.4-0", "liblua5.4-0-dbg"),
            ("perl-base", "perl-base-dbgsym"),
        ] {
            assert_eq!(debug_package(package), expected);
        }
    }

    #[test]
    fn a_report_counts_what_ran_without_a_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut report = crate::testing::report();
        let asked = system(folder.path(), false);
        let said = lines(&report, &|_| true, &asked);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("no function names in shop (16.5 %): build shop"),
            "{said:?}"
        );
        for function in &mut report.metadata.functions {
            if function.name.starts_with("shop+0x") {
                function.name = "[JIT java]".into();
            }
        }
        let said = lines(&report, &|_| true, &asked);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].starts_with("16.5 % of the running time is generated code without names in java: run it with -XX:"),
            "{said:?}"
        );
        assert!(lines(&report, &|_| false, &asked).is_empty());
    }

    #[test]
    fn time_in_which_others_had_the_processor_counts_for_no_module() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut report = crate::testing::report();
        let asked = system(folder.path(), false);
        let mut functions = report.metadata.functions.iter();
        let nameless = functions.position(|f| f.name.starts_with("shop+0x"));
        let nameless = Label::Function(FunctionIndex(nameless.expect("is there") as u32));
        let profile = &mut report.profile;
        for ((_, place), cell) in &mut profile.cells {
            let innermost = profile.tree.outwards(*place).next();
            if innermost.is_some_and(|(_, label)| label == nameless) {
                cell.spent.metrics.runnable_ns = cell.spent.running_ns();
            }
        }
        assert!(lines(&report, &|_| true, &asked).is_empty());
    }

    #[test]
    fn of_an_interpreter_that_is_not_known_it_is_said() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut report = crate::testing::report();
        let asked = system(folder.path(), false);
        let price = (report.metadata.functions.iter()).position(|f| f.name == "shop::price");
        let price = price.expect("is there");
        report.metadata.functions[price].module = "/usr/lib/libpython3.8.so.1.0".into();
        let says = |report: &Report| lines(report, &|_| true, &asked).join("\n");
        let said = says(&report);
        assert!(
            said.contains("is in libpython3.8.so.1.0 without names of Python functions"),
            "{said}"
        );
        report.metadata.functions[price].module = "/usr/lib/libruby-3.0.so.3.0".into();
        assert!(says(&report).contains("names of Ruby methods: those of Ruby 3.1 to 3.4"));
        report.metadata.functions[price].module = "/usr/bin/node".into();
        assert!(!says(&report).contains("JavaScript"));
        report.metadata.processes[0].command =
            ["node", "--jitless", "x.js"].map(String::from).into();
        assert!(says(&report).contains("V8 names none with --jitless; leave that out"));
        report.metadata.functions[0].module = "python".into();
        assert!(!says(&report).contains("are known"));
    }

    #[test]
    fn runtimes_are_known_by_name_or_library() {
        let none: [&str; 0] = [];
        let switch =
            |program, modules: &[&str]| switch(program, &mut modules.iter().copied(), false);
        assert!(switch("node", &none).contains("--perf-basic-prof"));
        let named = super::switch("node", &mut std::iter::empty(), true);
        assert_eq!(named, "V8 has named the rest of it");
        assert!(switch("ruby3.1", &none).contains("--yjit-perf"));
        assert!(switch("php8.2", &none).contains("opcache.jit_debug"));
        let named = super::switch("php8.2", &mut std::iter::empty(), true);
        assert!(!named.contains("opcache"), "{named}");
        let named = super::switch("dotnet", &mut std::iter::empty(), true);
        assert!(named.contains("DOTNET_ReadyToRun=0"), "{named}");
        assert!(switch("shop-server", &["/srv/libcoreclr.so"]).contains("DOTNET_PerfMapEnabled=1"));
        assert!(switch("luajit", &["/usr/lib/libc.so.6"]).contains("perf-PID.map"));
    }
}
