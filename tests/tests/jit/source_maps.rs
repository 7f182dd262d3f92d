//! JavaScript that a bundler wrote has the names and lines of its sources where its map says them. The
//! witness is Node.js' own reader of source maps.

use serde_json::Value;
use stackbeat_tests::tool_json::{array, number};
use stackbeat_tests::{Program, report, run, scratch};
use std::fs;
use std::process::Command;

/// Where the map says that the function is which is called `l` in the bundle, counted from 1.
const WITNESS: &str = "
const { SourceMap } = require('module'), fs = require('fs');
const map = new SourceMap(JSON.parse(fs.readFileSync('dist/work.js.map', 'utf8')));
const column = fs.readFileSync('dist/work.js', 'utf8').indexOf('function l(') + 'function '.length;
const found = map.findEntry(0, column);
console.log(found.name, found.originalLine + 1);
";

#[test]
fn bundled_functions_have_the_names_and_lines_of_their_sources() {
    let folder = scratch();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("makes");
        fs::write(path, text).expect("writes");
    };
    write("work.ts", include_str!("bundle/work.ts"));
    write("dist/work.js", include_str!("bundle/work.js"));
    write("dist/work.js.map", include_str!("bundle/work.js.map"));
    let mut witness = Command::new("node");
    witness.args(["-e", WITNESS]).current_dir(folder.path());
    let witness = run(witness).stdout();
    let (name, line) = witness.trim().split_once(' ').expect("a name and a line");
    assert_eq!((name, line), ("countSimilar", "13"));
    let source = folder.path().join("work.ts");
    let bundle = folder.path().join("dist/work.js");
    for (flags, name, file, line) in [
        (&["--source-maps"][..], name, &source, 13),
        (&[], "l", &bundle, 1),
    ] {
        let recorded = Program::new(["node", bundle.to_str().expect("UTF-8")])
            .options(flags)
            .record(folder.path());
        assert!(recorded.run.output.status.success());
        let report = report(&recorded.trace);
        let is_it = |function: &&Value| {
            function["name"] == name && function["file"] == file.to_str().expect("UTF-8")
        };
        let function = array(&report, "functions").find(is_it);
        let function = function.unwrap_or_else(|| panic!("no {name}: {report:#}"));
        assert_eq!(number(function, "line"), line, "{function}");
        let whole = array(&report, "functions").map(|f| number(&f["self"], "cpu_ns"));
        let own = number(&function["self"], "cpu_ns");
        assert!(own > whole.sum::<u64>() / 3, "{function}");
        fs::remove_file(&recorded.trace).expect("removes");
    }
}
