//! The Kotlin of an app: compiled against stand-ins for the few classes of Android that it uses, compared
//! with its variant for release builds, and run on real ART.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use stackbeat_tests::plain_reader::Trace;
use stackbeat_tests::tool::text;
use stackbeat_tests::tool_json::array;
use stackbeat_tests::{json_of, scratch, wait_until, workspace};

use super::{app, folder, one_at_a_time, versions};

const COMMON: &str = "hooks-android/aar/common/kotlin";
const NATIVES: &str = "hooks-android/aar/stackbeat/src/main/java/dev/stackbeat/Native.java";
const SAMPLE: &str = "examples/android/app/src/main/kotlin";
const MAIN: &str = "tests/tests/art/kotlin/Main.kt";
/// The library's classes that apps use.
const CLASSES: [&str; 3] = ["Stackbeat", "LastRun", "LastWait"];

/// Jars of a folder, as a class path.
fn jars(folder: &Path) -> Vec<PathBuf> {
    let items = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut jars: Vec<PathBuf> = items.map(|item| item.path()).collect();
    jars.retain(|path| path.extension().is_some_and(|e| e == "jar"));
    jars.sort();
    jars
}

fn class_path(paths: &[PathBuf]) -> String {
    let paths: Vec<&str> = paths.iter().filter_map(|p| p.to_str()).collect();
    paths.join(":")
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.current_dir(workspace()).output().expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text(&output.stdout)
}

fn java() -> Command {
    let mut command = Command::new("java");
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx1500m"]);
    command
}

/// What the compilers made, a folder each.
struct Compiled {
    folder: tempfile::TempDir,
    /// Kotlin's own.
    library: PathBuf,
}

impl Compiled {
    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn javac(&self, to: &str, sources: &[PathBuf]) {
        let mut command = Command::new("javac");
        command.args([
            "-source",
            "8",
            "-target",
            "8",
            "-nowarn",
            "-Xlint:-options",
            "-cp",
        ]);
        let path = class_path(&[self.at("android"), self.at("real"), self.library.clone()]);
        run(command.arg(path).arg("-d").arg(self.at(to)).args(sources));
    }

    /// Without `invokedynamic`, which ART has not, and dx does not take away.
    fn kotlinc(&self, to: &str, with: &[&str], sources: &[&str]) {
        let mut path = vec![self.library.clone(), self.at("android")];
        path.extend(with.iter().map(|name| self.at(name)));
        let mut command = java();
        command.arg("-cp").arg(class_path(&jars(&kotlin())));
        command.arg("org.jetbrains.kotlin.cli.jvm.K2JVMCompiler");
        command.args(["-no-stdlib", "-no-reflect", "-jvm-target", "1.8", "-Werror"]);
        command.args([
            "-Xlambdas=class",
            "-Xsam-conversions=class",
            "-Xstring-concat=inline",
        ]);
        command.arg("-cp").arg(class_path(&path));
        run(command.arg("-d").arg(self.at(to)).args(sources));
    }

    /// The sample app with the real library, compiled once.
    fn app(&self) {
        static APP: OnceLock<()> = OnceLock::new();
        APP.get_or_init(|| self.kotlinc("app", &["real"], &[SAMPLE, MAIN]));
    }
}

fn kotlin() -> PathBuf {
    workspace().join("target/kotlin/lib")
}

/// Everything, compiled once. `None`: there is no compiler.
fn compiled() -> Option<&'static Compiled> {
    static COMPILED: OnceLock<Option<Compiled>> = OnceLock::new();
    let compile = || {
        let is_library = |path: &PathBuf| path.to_string_lossy().contains("/kotlin-stdlib-");
        let Some(library) = jars(&kotlin()).into_iter().find(is_library) else {
            eprintln!(
                "skipped: there is no Kotlin, scripts/install-kotlin.sh target/kotlin gets it"
            );
            return None;
        };
        let folder = scratch();
        let compiled = Compiled { folder, library };
        let find =
            run(Command::new("find").args(["tests/tests/art/kotlin/stubs", "-name", "*.java"]));
        let stubs: Vec<PathBuf> = find.lines().map(PathBuf::from).collect();
        compiled.javac("android", &stubs);
        let real = "hooks-android/aar/stackbeat/src/main/kotlin";
        compiled.kotlinc("real", &[], &[COMMON, real, NATIVES]);
        compiled.javac("real", &[PathBuf::from(NATIVES)]);
        let noop = "hooks-android/aar/noop/src/main/kotlin";
        compiled.kotlinc("noop", &[], &[COMMON, noop]);
        Some(compiled)
    };
    COMPILED.get_or_init(compile).as_ref()
}

#[test]
fn both_variants_have_the_same_api() {
    let Some(compiled) = compiled() else { return };
    let api = |variant: &str| {
        let mut command = Command::new("javap");
        command.args(["-public", "-cp"]).arg(compiled.at(variant));
        run(command.args(CLASSES.map(|class| format!("dev.stackbeat.{class}"))))
    };
    let real = api("real");
    for function in [
        "init",
        "start",
        "stop",
        "dump",
        "scope",
        "beginScope",
        "counter",
    ] {
        assert!(real.contains(&format!(" {function}(")), "{real}");
    }
    assert_eq!(real, api("noop"));
    // An app builds with either, and the release build has no native methods.
    compiled.app();
    compiled.kotlinc("app-noop", &["noop"], &[SAMPLE, MAIN]);
    assert!(!compiled.at("noop/dev/stackbeat/Native.class").exists());
}

/// The sample's work and the library's Kotlin, as dex, with Kotlin's own library.
fn dex(compiled: &Compiled) -> PathBuf {
    compiled.app();
    run(Command::new("unzip")
        .args(["-qo", "-d"])
        .args([&compiled.at("kotlin"), &compiled.library])
        .args(["-x", "META-INF/*", "*.kotlin_builtins"]));
    let jar = compiled.at("app.jar");
    let mut command = java();
    command
        .arg("-cp")
        .arg(class_path(&jars(&folder().join("lib"))));
    command.args([
        "com.android.dx.command.Main",
        "--dex",
        "--min-sdk-version=28",
    ]);
    command.arg(format!("--output={}", jar.display()));
    run(command.args(["kotlin", "android", "real", "app"].map(|name| compiled.at(name))));
    jar
}

#[test]
fn an_apps_kotlin_records_it() {
    let versions = versions();
    let Some(compiled) = compiled().filter(|_| !versions.is_empty()) else {
        return;
    };
    let jar = dex(compiled);
    for version in versions {
        let _one = one_at_a_time();
        let scratch = scratch();
        let files = scratch.path().display();
        let dump = scratch.path().join("dump.beat");
        let start = |arguments: &[&str]| {
            let mut command = Command::new(folder().join(format!("{version}/run-art")));
            let libraries = app::library().parent().expect("a folder");
            command
                .arg(format!("-Djava.library.path={}", libraries.display()))
                .arg(format!("-Dfiles={files}"))
                .arg(&jar)
                .arg("MainKt")
                .arg(&dump)
                .args(arguments)
                .stderr(Stdio::null());
            command
        };
        let said = text(&start(&[]).output().expect("it runs").stdout);
        let trace = said.lines().find_map(|line| line.strip_prefix("trace "));
        let trace = trace.unwrap_or_else(|| panic!("{said}"));
        let expected = format!("trace {trace}\ndumped true\nstopped {trace}\nagain null\n");
        assert_eq!(said, expected, "ART {version}");
        for trace in [trace, dump.to_str().expect("UTF-8")] {
            let report = json_of(&["report", "--json", trace]);
            let all = report.to_string();
            for word in ["monitor wait", "holder", "a mark", "things"] {
                assert!(all.contains(word), "{word}: {report:#}");
            }
            let scopes: Vec<&str> = array(&report, "scopes")
                .filter_map(|scope| scope["name"].as_str())
                .collect();
            assert!(
                scopes.contains(&"lock") && scopes.contains(&"memory"),
                "{scopes:?}"
            );
            assert!(!all.contains("before init"), "{report:#}");
        }

        // The next run is killed while it waits. The one after tells of it.
        let log = scratch.path().join("log");
        let mut dying = start(&["dies"])
            .stdout(std::fs::File::create(&log).expect("a file"))
            .spawn()
            .expect("it runs");
        wait_until("it waits", || {
            std::fs::read_to_string(&log).is_ok_and(|said| said.contains("dies"))
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        dying.kill().expect("it is there");
        dying.wait().expect("it is there");
        let said = text(&start(&[]).output().expect("it runs").stdout);
        let last = format!(
            "last {} true 0 monitor wait true reason 6: user request after error",
            dying.id()
        );
        assert!(said.lines().any(|line| line == last), "{last} in {said}");
        let recovered = said
            .lines()
            .find_map(|line| line.strip_prefix("recovered "));
        let recovered = Trace::read(Path::new(recovered.expect("it says so")));
        assert!(
            recovered
                .threads
                .values()
                .any(|thread| thread.name == "holder")
        );
    }
}
