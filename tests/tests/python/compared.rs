//! What `gate` and `diff` say of Python functions: files have functions of the same name, and each is
//! compared with itself.

use std::fs;
use std::path::Path;

use stackbeat_tests::python;
use stackbeat_tests::tool::{stackbeat, text};

/// Two modules with a function of one name. The last one is what differs.
fn write_shop(at: &Path, rounds: u32) {
    fs::create_dir_all(at).expect("is made");
    let sums = |rounds| format!("def run():\n    return sum(i * i for i in range({rounds}))\n");
    let write = |name, text: String| fs::write(at.join(name), text).expect("is written");
    write("orders.py", sums(1_000_000));
    write("prices.py", sums(rounds));
    let main = "import orders, prices\nfor _ in range(3):\n    orders.run()\n    prices.run()\n";
    write("shop.py", main.to_owned());
}

#[test]
fn functions_of_one_name_are_compared_by_their_modules() {
    const RUNS: usize = 5;
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let python = python();
    let sides = [("old", 500_000), ("new", 1_500_000)];
    for (side, rounds) in sides {
        write_shop(&at.join(format!("src-{side}")), rounds);
        fs::create_dir(at.join(side)).expect("is made");
    }
    // In turns: what else the machine does then meets both sides.
    for (run, (side, _)) in (0..RUNS).flat_map(|run| sides.map(|side| (run, side))) {
        let (trace, script) = (format!("{side}/{run}.beat"), format!("src-{side}/shop.py"));
        let recorded = stackbeat(at, &["record", "-q", "-o", &trace, "--", &python, &script]);
        assert!(recorded.status.success(), "{}", text(&recorded.stderr));
    }
    let words = ["gate", "-b", "old", "-c", "new", "-o", "gate.json"];
    let gate = stackbeat(at, &words);
    let said = text(&gate.stdout);
    assert_eq!(gate.status.code(), Some(1), "{said}{}", text(&gate.stderr));
    assert!(said.contains("prices.run"), "{said}");
    let functions = said.split_once("FUNCTIONS THEMSELVES").expect("a table").1;
    assert!(functions.contains("prices.run"), "{said}");
    assert!(!functions.contains("orders.run"), "{said}");

    // The function, or what it passes to `sum`: by where on a stack more of the change is.
    let is_named = [
        "prices.run (prices.py:1) has ",
        "prices.run.<locals>.<genexpr> (prices.py:2) has ",
    ];
    assert!(is_named.iter().any(|place| said.contains(place)), "{said}");
    let written = fs::read_to_string(at.join("gate.json")).expect("is written");
    assert!(written.contains("src-new/prices.py"), "{written}");

    let diff = text(&stackbeat(at, &["diff", "old", "new"]).stdout);
    assert!(diff.contains("prices.run"), "{diff}");
}
