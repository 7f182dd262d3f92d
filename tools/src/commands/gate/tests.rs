//! The outputs of gates of made-up runs, against golden files.

use std::path::Path;

use serde_json::{Value, json};
use stackbeat_gate::decide::Moved;
use stackbeat_gate::random::Random;
use stackbeat_gate::run::ScopeSum;
use stackbeat_model::FunctionIndex;
use stackbeat_model::metric::{Metric, Values};

use super::*;
use crate::summary::call_tree::Label;
use crate::summary::load::Report;
use crate::summary::metadata::FunctionName;
use crate::testing::{self, browser, browser::Browser, golden};

/// Ten runs a side of the made-up server; in the candidate `shop::price` computes half as much again.
pub(super) fn gate(factor: f64) -> Gate {
    gate_of(factor, |_| ())
}

/// The same, with other names of functions.
fn gate_of(factor: f64, rename: impl Fn(&mut Vec<FunctionName>)) -> Gate {
    let mut random = Random::new(1);
    let mut reader = Reader::default();
    let mut runs = Vec::new();
    for side in [Side::Baseline, Side::Candidate] {
        for number in 0..10 {
            let is_slower = side == Side::Candidate;
            let factor = if is_slower { factor } else { 1.0 };
            let mut report = varied(factor, &mut random, &rename);
            report.metadata.recording.started_unix_ns += number;
            let path = format!("{}/{number}.beat", side.name());
            runs.push(reader.run(&report, Path::new(&path), side));
        }
    }
    let rules = Rules::default();
    let table = RunTable::new(runs, reader.names);
    Gate {
        outcome: judge(&table, &rules),
        table,
        sources: reader.sources,
        confidence: rules.confidence,
        pairing: rules.pairing,
    }
}

/// A run of the made-up server in which `shop::price` computes for so many times as long. All times vary by
/// a percent.
pub(super) fn varied(
    factor: f64,
    random: &mut Random,
    rename: impl Fn(&mut Vec<FunctionName>),
) -> Report {
    let price = Label::Function(FunctionIndex(3));
    let mut report = testing::report();
    rename(&mut report.metadata.functions);
    report.metadata.recording.records_lost = 0;
    let places = report.profile.tree.places().to_vec();
    let mut cells: Vec<_> = report.profile.cells.iter_mut().collect();
    cells.sort_by_key(|(key, _)| **key);
    let mut grown = vec![0i64; report.profile.threads.len()];
    for ((thread, place), cell) in cells {
        let is_slower = places[*place as usize].label == price;
        let scale = if is_slower { factor } else { 1.0 } * (1.0 + 0.01 * random.normal());
        let scaled = |ns: u64| (ns as f64 * scale) as u64;
        let spent = &mut cell.spent;
        grown[thread.0 as usize] += scaled(spent.wall_ns) as i64 - spent.wall_ns as i64;
        spent.wall_ns = scaled(spent.wall_ns);
        spent.blocked_ns = scaled(spent.blocked_ns);
        spent.gap_ns = scaled(spent.gap_ns);
        spent.metrics.cpu_ns = scaled(spent.metrics.cpu_ns);
    }
    for (thread, grown) in report.profile.threads.iter_mut().zip(&grown) {
        thread.running_ns = thread.running_ns.saturating_add_signed(*grown);
        thread.metrics.cpu_ns = thread.metrics.cpu_ns.saturating_add_signed(*grown);
    }
    let duration = report.metadata.recording.duration_ns;
    // The server waits for its workers.
    report.metadata.recording.duration_ns = duration.saturating_add_signed(grown[1].max(0));
    report
}

#[test]
fn a_regression_is_written_as_documented() {
    let gate = gate(1.5);
    assert_eq!(exit_code(gate.outcome.verdict), 1);
    let plain = terminal::Style::default();
    for width in [80, 140] {
        let text = text::render(&gate, Some(width), plain);
        golden(&format!("gate-{width}.txt"), &text);
    }
    golden("gate.md", &markdown::render(&gate));
    let json = render(&gate, GateFormat::Json).expect("is made");
    golden("gate.json", &json);
    let page = html::render(&gate);
    assert!(page.contains("Content-Security-Policy"));
    assert!(page.contains("\\u003cevil") && !page.contains("<evil"));
    assert_eq!(page.matches("</script>").count(), 1);
}

/// The differential flame graph in a browser: it colours what changed, and shares its hands with the
/// report's.
#[test]
fn the_differential_flame_graph_zooms_and_searches() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    std::fs::write(&file, html::render(&gate(1.5))).expect("writes");
    for (width, scheme) in [(1280, "light"), (400, "dark")] {
        let mut b = Browser::start(&program, width, 900);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        b.call("Emulation.setEmulatedMedia", json!({"features": features}));
        b.open(&file);
        // Columns have room each; a table that finds none scrolls, and not the page.
        let wide = b.evaluate(
            "[[...document.querySelectorAll('.table td')].filter((td) => td.scrollWidth > td.clientWidth).map((td) => td.textContent), \
             document.documentElement.scrollWidth <= innerWidth]",
        );
        assert_eq!(wide, json!([[], true]), "{width}");
        b.evaluate("document.getElementById('flame').scrollIntoView()");
        b.frame();
        let overflow = b.evaluate(
            "document.getElementById('flame').getBoundingClientRect().right - innerWidth",
        );
        assert!(overflow.as_f64().is_some_and(|o| o <= 0.0), "{overflow}");
        assert_eq!(b.evaluate("page.comparison.colors.dark"), scheme == "dark");
        // The widest frame of a function, and what is said of it.
        let find = |name: &str| {
            format!(
                "(() => {{ const all = page.flame.rows.flatMap((row, y) => row.map((f) => ({{ ...f, y }}))); \
                 const f = all.filter((f) => page.comparison.nameOf(f.node) === '{name}').reduce((a, f) => (f.x1 - f.x0 > a.x1 - a.x0 ? f : a)); \
                 const r = page.flame.canvas.getBoundingClientRect(); \
                 return [r.x + (f.x0 + f.x1) / 2, r.y + (f.y + 0.5) * 18, f.x1 - f.x0, page.comparison.colorOf(f.node)]; }})()"
            )
        };
        let price = b.evaluate(&find("shop::price"));
        let parse = b.evaluate(&find("shop::parse_order"));
        assert_eq!(parse[3], b.evaluate("page.comparison.colors.flat"));
        assert_ne!(price[3], parse[3]);
        let (x, y) = (price[0].as_f64(), price[1].as_f64());
        let (x, y) = x.zip(y).expect("numbers");
        b.mouse("mouseMoved", x, y, json!({}));
        b.frame();
        let tip = b.evaluate("document.getElementById('tip').textContent");
        let tip = tip.as_str().expect("text");
        assert!(
            tip.starts_with("shop::price") && tip.contains("change+"),
            "{tip}"
        );
        b.click(x, y);
        assert_eq!(b.evaluate("document.getElementById('back').hidden"), false);
        let wide = b.evaluate(&find("shop::price"));
        assert!(wide[2].as_f64() > price[2].as_f64(), "{wide}");
        b.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }; document.getElementById('svg').click()");
        let svg = b.evaluate("saved.text()");
        let svg = svg.as_str().expect("text");
        assert!(
            svg.starts_with("<svg ") && svg.contains(">shop::price"),
            "{svg}"
        );
        b.evaluate("document.getElementById('back').click()");
        assert_eq!(b.evaluate("page.flame.zoomPath"), json!([]));
        b.evaluate("(() => { const s = document.getElementById('search'); s.value = 'price'; s.dispatchEvent(new Event('input')); })()");
        let matched = b.evaluate("document.getElementById('matched').textContent");
        let share = matched.as_str().and_then(|text| text.split_once(" % of "));
        let share = share.and_then(|(share, _)| share.parse::<f64>().ok());
        assert!(share.is_some_and(|s| s > 0.0 && s < 100.0), "{matched}");
        b.evaluate("(() => { const s = document.getElementById('search'); s.value = '/[/'; s.dispatchEvent(new Event('input')); })()");
        let matched = b.evaluate("document.getElementById('matched').textContent");
        assert!(
            matched.to_string().contains("not a regular expression: "),
            "{matched}"
        );
        assert_eq!(b.complaints, Vec::<String>::new());
    }
}

/// A line of the table of functions leads to callers and callees, as a double-click on a frame does. Both
/// have the function's whole amount and the colour of what changed in it.
#[test]
fn a_function_has_callers_and_callees_of_both_sides() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let gate = gate(1.5);
    std::fs::write(&file, html::render(&gate)).expect("writes");
    let mut b = Browser::start(&program, 1280, 900);
    b.open(&file);
    assert_eq!(b.evaluate("document.getElementById('around').hidden"), true);
    b.evaluate("[...document.querySelectorAll('tr[data-function] button')].find((b) => b.textContent.endsWith(': shop::price')).click()");
    assert_eq!(
        b.evaluate("document.getElementById('around-name').textContent"),
        "shop::price"
    );
    // By the runs: the outermost calls have the inner ones in them.
    let is_price = |label| gate.table.label(label) == "shop::price";
    let places = gate.table.places(Metric::Wall);
    let outermost = |place: u32| {
        let mut labels = gate.table.tree.labels(place);
        labels.next().is_some_and(is_price) && !labels.any(is_price)
    };
    let of_side = |place: usize| {
        let (before, after) = gate.table.split(&places[place]);
        [before, after].map(|side| stackbeat_gate::stats::mean(side).round())
    };
    let outermost = (0..places.len()).filter(|place| outermost(*place as u32));
    let expected = outermost.fold([0.0, 0.0], |sum: [f64; 2], place| {
        [0, 1].map(|side| sum[side] + of_side(place)[side])
    });
    let graphs = "page.aroundPanel.flames.map((f) => [f.tree.value, page.comparison.colorOf(f.tree), f.children(f.tree).map((n) => f.source.nameOf(n))])";
    for (side, amount) in [(1, expected[1]), (0, expected[0])] {
        b.evaluate(&format!(
            "(() => {{ const e = document.getElementById('side'); e.value = {side}; e.dispatchEvent(new Event('change')); }})()"
        ));
        let graphs = b.evaluate(graphs);
        for direction in [0, 1] {
            assert_eq!(graphs[direction][0].as_f64(), Some(amount), "{graphs}");
            assert_ne!(
                json!(graphs[direction][1]),
                b.evaluate("page.comparison.colors.flat")
            );
        }
        assert_eq!(graphs[0][2], json!(["shop::worker"]));
        let callees = graphs[1][2].to_string();
        assert!(
            callees.contains("shop::price") && !callees.contains("shop::worker"),
            "{callees}"
        );
    }
    b.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }; document.getElementById('around-svg').click()");
    let svg = b.evaluate("saved.text()");
    let svg = svg.as_str().expect("text");
    let both = svg.find(">Callers</text>").zip(svg.find(">Callees</text>"));
    assert!(both.is_some_and(|(a, b)| a < b), "{svg}");
    assert!(svg.contains("shop::worker"), "{svg}");
    // Another function, by a double-click on its frame.
    let frame = b.evaluate(
        "(() => { const f = page.flame, row = f.rows.findIndex((r) => r.some((x) => page.comparison.nameOf(x.node) === 'shop::parse_order')); \
         f.box.scrollIntoView(); const frame = f.rows[row].find((x) => page.comparison.nameOf(x.node) === 'shop::parse_order'), r = f.canvas.getBoundingClientRect(); \
         f.canvas.dispatchEvent(new MouseEvent('dblclick', { clientX: r.x + (frame.x0 + frame.x1) / 2, clientY: r.y + (row + 0.5) * 18 })); \
         return document.getElementById('around-name').textContent; })()",
    );
    assert_eq!(frame, "shop::parse_order");
    b.evaluate("document.getElementById('around-close').click()");
    assert_eq!(b.evaluate("document.getElementById('around').hidden"), true);
    assert_eq!(b.complaints, Vec::<String>::new());
    // One that has another caller than before has not changed, whichever side gives the widths.
    let moved = b.evaluate(
        "(() => { const whole = page.comparison, { tree, nodes } = whole, source = page.aroundPanel.flames[0].source; \
         const placesOf = (label) => nodes.map((_, at) => at).filter((at) => at > 0 && tree.label[at] === label && !tree.repeats[at]); \
         const label = tree.label.find((label) => label >= 0 && placesOf(label).length > 1), [from, to] = placesOf(label); \
         for (const node of nodes) node[2] = node[2].map(() => [0, 0, false]); \
         nodes[from][2].fill([100, 0, true]); nodes[to][2].fill([0, 100, true]); \
         source.label = label; whole.known = null; \
         return [0, 1].map((side) => { whole.side = side; const { before, after } = whole.amounts(source.root()); return [before, after]; }); })()",
    );
    assert_eq!(moved, json!([[100, 100], [100, 100]]));
}

/// The same runs of a program whose `shop::price` is a function in Python.
fn gate_of_python() -> Gate {
    gate_of(1.5, |functions| {
        for f in functions {
            match f.name.as_str() {
                "shop::worker" => {
                    f.name = "_PyEval_Vector".into();
                    f.module = "/usr/bin/python3.11".into();
                }
                "shop::price" => {
                    f.name = "price".into();
                    f.module = "python".into();
                    f.file = "/srv/shop.py".into();
                }
                _ => {}
            }
        }
    })
}

#[test]
fn an_interpreter_is_left_out_of_the_place_of_a_finding() {
    let gate = gate_of_python();
    let (_, finding) = gate.reported().next().expect("a finding");
    assert_eq!(
        gate.place(finding),
        "worker-* of shop: start_thread → shop.price"
    );
}

/// As in the report's page, an interpreter's frames are not between the functions that it runs.
#[test]
fn an_interpreter_is_left_out_of_the_differential_flame_graph() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let gate = gate_of_python();
    std::fs::write(&file, html::render(&gate)).expect("writes");
    let mut b = Browser::start(&program, 1280, 900);
    b.open(&file);
    let names = "[...new Set(page.flame.rows.flat().map((f) => page.comparison.nameOf(f.node)))]";
    let whole = b.evaluate("page.flame.tree.value");
    let shown = b.evaluate(names).to_string();
    assert!(
        shown.contains("shop.price") && !shown.contains("_PyEval_Vector"),
        "{shown}"
    );
    b.evaluate("page.flame.onChoose(page.flame.rows.flat().find((f) => page.comparison.nameOf(f.node) === 'shop.price').node)");
    let callers = "page.aroundPanel.flames[0].children(page.aroundPanel.flames[0].tree).map((n) => page.comparison.nameOfLabel(n.label))";
    assert!(!b.evaluate(callers).to_string().contains("_PyEval_Vector"));
    b.evaluate("document.getElementById('library').click()");
    let shown = b.evaluate(names).to_string();
    assert!(shown.contains("_PyEval_Vector"), "{shown}");
    assert_eq!(b.evaluate(callers), json!(["_PyEval_Vector"]));
    assert_eq!(b.evaluate("page.flame.tree.value"), whole);
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// A search goes through all of the page: lines of tables, frames of the main threads, and flame graphs.
#[test]
fn a_search_goes_through_tables_lanes_and_flame_graphs() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let Gate { table, sources, .. } = gate(1.5);
    let lane = || ("a.beat".to_owned(), testing::report());
    let body = [
        diff::markup(&table, &sources, 50),
        lanes::render(&[lane(), lane()]),
    ];
    let page = html::page("a → b", &body.concat(), &table, &sources, Pairing::None);
    std::fs::write(&file, page).expect("writes");
    let mut b = Browser::start(&program, 1280, 900);
    b.open(&file);
    let shown = "[...document.querySelectorAll('tr[data-name]')].filter((r) => !r.hidden).map((r) => r.dataset.name)";
    let marked = "[...document.querySelectorAll('.lanes .match title')].map((t) => t.textContent)";
    let all = b.evaluate(shown);
    let is_in = |names: &Value, name: &str| {
        let names = names.as_array().expect("a list");
        names
            .iter()
            .any(|n| n.as_str().is_some_and(|n| n.contains(name)))
    };
    assert!(
        is_in(&all, "worker") && is_in(&all, "shop::parse_order"),
        "{all}"
    );
    assert_eq!(b.evaluate(marked), json!([]));
    b.key("/");
    for c in "/^shop::p/".chars() {
        b.key(&c.to_string());
    }
    let found = b.evaluate(shown);
    assert!(is_in(&found, "shop::price"), "{found}");
    assert!(
        !is_in(&found, "worker") && !is_in(&found, "memcpy"),
        "{found}"
    );
    let frames = b.evaluate(marked);
    assert!(
        is_in(&frames, "shop::p") && !is_in(&frames, "memcpy"),
        "{frames}"
    );
    let matched = b.evaluate("document.getElementById('matched').textContent");
    assert!(matched.to_string().contains(" % of wall time"), "{matched}");
    // The whole run is not what is searched.
    let whole = b.evaluate(
        "[...document.querySelectorAll('table')][0].querySelectorAll('tr:not([hidden])').length",
    );
    assert!(whole.as_f64().is_some_and(|lines| lines > 2.0), "{whole}");
    b.key("Escape");
    assert_eq!(b.evaluate(shown), all);
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// The page's address holds what is shown. What is wrong in a link is not followed.
#[test]
fn a_link_leads_to_what_the_differential_flame_graph_showed() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    std::fs::write(&file, html::render(&gate(1.5))).expect("writes");
    let state = "JSON.stringify([page.comparison.weight, page.comparison.side, String(page.comparison.test), page.flame.zoomPath, \
                 page.aroundPanel.flames.map((f) => [f.source.label, f.zoomPath]), document.getElementById('around').hidden, \
                 ['weight', 'side', 'search', 'back'].map((id) => [document.getElementById(id).value, document.getElementById(id).hidden])])";
    let open = |link: &str| {
        let mut b = Browser::start(&program, 1280, 900);
        b.open(&PathBuf::from(format!("{}{link}", file.display())));
        b.frame();
        b
    };
    let mut b = open("");
    let start = b.evaluate(state);
    b.evaluate(
        "(() => { const set = (id, value, event) => { const e = document.getElementById(id); e.value = value; e.dispatchEvent(new Event(event)); }; \
         set('weight', '1', 'change'); set('side', '0', 'change'); set('search', '/pri|w&/', 'input'); \
         const deepest = (flame) => flame.zoomTo(flame.pathOf(flame.rows.at(-1)[0].node)); \
         document.querySelector('tr[data-function] button').click(); deepest(page.aroundPanel.flames[0]); deepest(page.flame); })()",
    );
    let before = b.evaluate(state);
    b.evaluate("new Promise((done) => setTimeout(done, 400))");
    let link = b.evaluate("location.hash");
    let link = link.as_str().expect("text");
    for part in ["zoom=", "callers=", "function="] {
        assert!(link.contains(part) && before != start, "{link} {before}");
    }
    assert_eq!(open(link).evaluate(state), before);
    let wrong =
        open("#amount=99&widths=x&zoom=a.99999999&function=0&callers=99999999").evaluate(state);
    assert_eq!(wrong, start);
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// The colour of a change follows its size, also where there is no larger one.
#[test]
fn a_small_change_is_pale() {
    let Some(program) = browser::program_or_skip() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let mut b = Browser::start(&program, 1280, 900);
    // How far the colour of `shop::price` is on its way from no change to the strongest.
    let mut strength = |factor: f64| {
        std::fs::write(&file, html::render(&gate(factor))).expect("writes");
        b.open(&file);
        let strength = b.evaluate(
            "(() => { const { flat, more } = page.comparison.colors, blue = (color) => Number(color.match(/\\d+/g)[2]); \
             const price = page.flame.rows.flat().find((f) => page.comparison.nameOf(f.node) === 'shop::price'); \
             return (blue(page.comparison.colorOf(price.node)) - blue(flat)) / (blue(more) - blue(flat)); })()",
        );
        strength.as_f64().expect("a number")
    };
    let (small, large) = (strength(1.04), strength(3.0));
    assert!(
        small > 0.0 && small < 0.6 && large > 0.95,
        "{small} {large}"
    );
}

#[test]
fn no_regression_says_what_would_have_been_seen() {
    let gate = gate(1.0);
    assert_eq!(exit_code(gate.outcome.verdict), 0, "{}", gate.headline());
    let text = text::render(&gate, None, terminal::Style::default());
    assert!(text.starts_with("no regression: "), "{text}");
    assert!(text.contains("would have been seen"), "{text}");
}

#[test]
fn a_verdict_fits_its_terminal() {
    for slower in [1.0, 1.5] {
        let text = text::render(&gate(slower), Some(80), terminal::Style::default());
        let widest = text.lines().map(crate::table::text_width).max();
        assert!(widest <= Some(80), "{text}");
    }
}

fn shown(width: usize) -> diff::Shown {
    diff::Shown {
        top: 5,
        width,
        style: terminal::Style::default(),
    }
}

#[test]
fn a_diff_shows_what_changed_most() {
    let Gate { table, sources, .. } = gate(1.5);
    for width in [80, 140] {
        let text = diff::text(&table, &sources, &shown(width));
        golden(&format!("diff-{width}.txt"), &text);
    }
    // `--top` is for each of its tables.
    let shown = diff::Shown {
        top: 1,
        ..shown(90)
    };
    let text = diff::text(&table, &sources, &shown);
    let (_, whole) = text.split_once("WHOLE RUN\n").expect("a table");
    let whole: Vec<&str> = whole.lines().take(3).collect();
    assert!(
        whole[0].ends_with("wall time") && whole[2].is_empty(),
        "{text}"
    );
    let others = "  … and 1 with a difference, 14 without a difference (--top 0 shows all)";
    assert_eq!(whole[1], others);
}

#[test]
fn what_a_package_takes_counts_for_the_programs_own_function_around_it() {
    let Gate { table, sources, .. } = gate_of(1.5, |functions| {
        functions[3].file = "/home/a/.cargo/registry/src/index/price-1.0.0/src/lib.rs".into();
    });
    let text = diff::text(&table, &sources, &shown(90));
    let sentence = text.split("\n\n").next().expect("there is one");
    assert!(sentence.contains("of it +"), "{sentence}");
    assert!(!sentence.contains("shop::price"), "{sentence}");
}

#[test]
fn a_function_of_several_threads_is_one_row_of_a_diff() {
    let price = Label::Function(FunctionIndex(3));
    let mut report = testing::report();
    let profile = &mut report.profile;
    let is_price = |place: u32| profile.tree.places()[place as usize].label == price;
    let cells = profile
        .cells
        .iter()
        .filter(|((_, place), _)| is_price(*place));
    let cells: Vec<_> = cells.map(|(key, cell)| (*key, *cell)).collect();
    let threads: Vec<u32> = (0..profile.threads.len() as u32).collect();
    // Each thread is in it now, whatever its role.
    for ((_, place), cell) in &cells {
        for thread in &threads {
            profile
                .cells
                .insert((stackbeat_model::ThreadIndex(*thread), *place), *cell);
        }
    }
    let mut reader = Reader::default();
    let sides = [Side::Baseline, Side::Candidate];
    let runs = sides.map(|side| reader.run(&report, Path::new("t.beat"), side));
    let table = RunTable::new(runs.into(), reader.names);
    let all = diff::Shown {
        top: usize::MAX,
        ..shown(90)
    };
    let text = diff::text(&table, &reader.sources, &all);
    let rows = text.lines().filter(|line| line.ends_with("  shop::price"));
    assert_eq!(rows.count(), 1, "{text}");
}

#[test]
fn a_diff_names_both_files_of_a_renamed_program() {
    let Gate {
        mut table, sources, ..
    } = gate(1.5);
    for run in table
        .runs
        .iter_mut()
        .filter(|run| run.side == Side::Candidate)
    {
        run.about.programs = vec!["shop-new".into()];
    }
    let text = diff::text(&table, &sources, &shown(90));
    assert!(
        text.contains("wall time: main thread of shop → shop-new"),
        "{text}"
    );
}

#[test]
fn a_required_scope_that_is_missing_is_an_error() {
    let mut table = gate(1.0).table;
    let required = ["parse *".to_string()];
    let scope = |name: &str| ScopeSum {
        name: name.into(),
        count: 1,
        longest_ns: 5,
        values: Values::default(),
        knows_inside: true,
    };
    for run in &mut table.runs {
        run.scopes = vec![scope("parse header"), scope("store")];
    }
    let ask = |table: &RunTable| {
        table
            .runs
            .iter()
            .try_for_each(|run| require_scopes(run, &required))
    };
    ask(&table).expect("is there");
    // The baseline need not have it.
    table.runs[0].scopes.clear();
    ask(&table).expect("is there");
    let last = table.runs.last_mut().expect("there are runs");
    last.scopes.remove(0);
    let trace = last.about.label.clone();
    let error = ask(&table).expect_err("is missing");
    let text = error.to_string();
    for part in [trace.as_str(), "`parse *`", "the run has store"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn pairs_that_were_not_together_are_told_of() {
    let mut table = gate(1.0).table;
    let count = table.baseline_count;
    for (number, run) in table.runs.iter_mut().enumerate() {
        let wall = run.whole.get(Metric::Wall);
        run.about.started_unix_ns = 10 * wall * (number % count) as u64 + wall / 2;
    }
    let rules = Rules {
        pairing: Pairing::Together,
        ..Rules::default()
    };
    let says = |table: &RunTable| {
        let warnings = judged(table, &rules).warnings.into_iter();
        warnings
            .filter(|w| w.contains("at the same time"))
            .collect::<Vec<_>>()
    };
    assert_eq!(pairs_apart(&table).len(), 0);
    assert_eq!(says(&table), [""; 0]);
    table.runs[count].about.started_unix_ns += 2 * table.runs[0].whole.get(Metric::Wall);
    let said = says(&table);
    let expected = format!("1 of {count} pairs did not run at the same time");
    assert!(
        said.len() == 1 && said[0].starts_with(&expected),
        "{said:?}"
    );
}

#[test]
fn scopes_are_compared_in_every_format() {
    let mut gate = gate(1.0);
    for (number, run) in gate.table.runs.iter_mut().enumerate() {
        let is_slower = run.side == Side::Candidate;
        let mut values = Values::default();
        let more = |ns| if is_slower { ns } else { 0 };
        values.set(
            Metric::Wall,
            40_000_000 + 1000 * number as u64 + more(9_000_000),
        );
        values.set(
            Metric::Cpu,
            20_000_000 + 1000 * number as u64 + more(9_000_000),
        );
        values.set(Metric::Sleep, 20_000_000);
        values.set(Metric::CallsStat, if is_slower { 2020 } else { 20 });
        run.scopes = vec![ScopeSum {
            name: "parse <header>".into(),
            count: if is_slower { 2500 } else { 2000 },
            longest_ns: 5,
            values,
            knows_inside: true,
        }];
        run.about.knows_callers = true;
    }
    gate.outcome = judge(&gate.table, &Rules::default());
    let row = &gate.outcome.scopes[0].row;
    assert_eq!(
        row.comparison.answer,
        stackbeat_gate::compare::Answer::Higher
    );
    // Evidence: the verdict is of the run and its functions.
    assert_ne!(gate.outcome.verdict, Verdict::Regression);
    let text = text::render(&gate, None, terminal::Style::default());
    assert!(
        text.contains("parse <header> (2000 → 2500 calls; system calls: stat 20 → 2020)"),
        "{text}"
    );
    let escaped = "parse &lt;header&gt; (2000 → 2500 calls;";
    assert!(markdown::render(&gate).contains(escaped));
    assert!(html::render(&gate).contains(escaped));
    // Of what is the same there is no line.
    assert!(text.contains("CPU time: parse <header>"), "{text}");
    assert!(!text.contains("blocked: sleep: parse"), "{text}");
    let json = json::render(&gate);
    assert_eq!(json["scopes"][0]["scope"], "parse <header>");
    assert_eq!(json["scopes"][0]["calls"][1], 2500.0);
    let metrics = json["scopes"].as_array().expect("rows").iter();
    let metrics: Vec<&str> = metrics.filter_map(|row| row["metric"].as_str()).collect();
    assert_eq!(metrics, ["wall", "cpu", "sleep"]);
    let inside = &json["scopes"][0]["system_calls"];
    assert_eq!(inside[0]["metric"], "calls:stat");
    assert_eq!(inside[0]["candidate"], 2020.0);
}

#[test]
fn what_moved_says_in_json_whether_the_rest_became_lighter() {
    let mut gate = gate(1.5);
    let of_finding = &gate.outcome.findings[0].explanation;
    let role = of_finding.role.expect("is known");
    let function = of_finding.function.expect("is known");
    let moved = |is_lighter_around| Moved {
        role,
        function,
        metric: Metric::Cpu,
        shift: 1e6,
        is_lighter_around,
    };
    gate.outcome.moved = vec![moved(true), moved(false)];
    let json = json::render(&gate);
    assert_eq!(json["moved"][0]["is_lighter_around"], true);
    assert_eq!(json["moved"][1]["is_lighter_around"], false);
}

#[test]
fn a_file_says_its_format() {
    let format = GateFormat::of_file("a/b.xml".as_ref());
    assert_eq!(format.ok(), Some(GateFormat::Junit));
    let error = GateFormat::of_file("report.pdf".as_ref()).expect_err("is unknown");
    assert!(error.to_string().contains("use .txt, .md"), "{error}");
}
