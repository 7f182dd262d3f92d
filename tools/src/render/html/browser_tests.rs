//! The page in a real browser: it loads, zooms, searches and selects, and its numbers are those of
//! the JSON.

use std::path::PathBuf;

use serde_json::{Value, json};
use stackbeat_core::probe::Cause;
use stackbeat_model::{FunctionIndex, SegmentKind, ThreadIndex};
use stackbeat_symbolize::short_names;

use crate::summary::call_tree::tests::segment;
use crate::summary::call_tree::{Label, Leaf};
use crate::summary::functions::{Own, functions};
use crate::summary::load::Report;
use crate::summary::long_waits::LongWaitRow;
use crate::summary::metadata::FunctionName;
use crate::summary::sort_key::SortKey;
use crate::summary::verdict::verdict;
use crate::testing::{self, browser, browser::Browser};

/// A page in a browser, with the folder that holds it.
struct Shown {
    browser: Browser,
    _folder: tempfile::TempDir,
    file: PathBuf,
}

/// Opens the page of a report. `None`: no browser is installed and none is required.
fn show(report: &Report, width: u32, height: u32) -> Option<Shown> {
    let program = browser::program_or_skip()?;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    let text = super::render(report).expect("renders");
    std::fs::write(&file, text).expect("writes");
    let mut browser = Browser::start(&program, width, height);
    browser.open(&file);
    Some(Shown {
        browser,
        _folder: folder,
        file,
    })
}

/// Writes a picture when somebody wants to look: `STACKBEAT_SCREENSHOTS=folder`.
fn picture(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("STACKBEAT_SCREENSHOTS") {
        browser.frame();
        browser.screenshot(&PathBuf::from(folder).join(name));
    }
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is a number"))
}

#[test]
fn numbers_are_those_of_the_report() {
    let report = testing::report();
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    for (own, library) in [(Own::OfProgram, false), (Own::Exact, true)] {
        b.evaluate(&format!("page.view.set({{ library: {library} }})"));
        let rows = b.evaluate("page.view.functions().map((r) => [r.f.name, r.running, r.inLibrary, r.total, r.cpu, r.bytes, r.totalBlocked])");
        let found = rows.as_array().expect("rows");
        let expected = functions(&report.profile, &|_| true, SortKey::SelfTime, own);
        assert_eq!(found.len(), expected.len());
        for row in expected {
            let name = &report.metadata.functions[row.function.0 as usize].name;
            let line = json!([
                name,
                row.own.running_ns(),
                row.in_library_ns,
                row.total.wall_ns,
                row.own.metrics.cpu_ns,
                row.own.metrics.allocated_bytes,
                row.total.blocked_ns
            ]);
            assert!(found.contains(&line), "{line} in {rows}");
        }
    }
    b.evaluate("page.view.set({ library: false })");
    let wall: u64 = report.profile.threads.iter().map(|t| t.wall_ns()).sum();
    b.evaluate("page.view.set({ idle: true })");
    assert_eq!(number(&b.evaluate("page.view.sums().all")), wall as f64);
    // The picture is as large as its box.
    let sizes = b.evaluate("[page.timeline.canvas.height, page.timeline.box.clientHeight, page.flame.canvas.height, page.flame.box.clientHeight]");
    assert_eq!((&sizes[0], &sizes[2]), (&sizes[1], &sizes[3]));
    let names = b.evaluate("[[\"a::b::c\", 40], [\"<std::fs::File as std::io::Write>::write\", 12], [\"std::map<int, foo<x>>::find\", 14], [\"main\", 3], [\"k::run::{{closure}}\", 8]].map(([n, room]) => page.fitName(n, room, 1))");
    assert_eq!(
        names,
        json!([
            "a::b::c",
            "File::write",
            "std::map::find",
            "m…n",
            "run::{…}"
        ])
    );
    // What the timeline shows sums to the same.
    let bars = b.evaluate("page.data.bars.reduce((s, b) => { for (let i = 0; i < b.n; i++) s += b.end[i] - b.begin[i]; return s; }, 0)");
    assert_eq!(number(&bars), wall as f64);
    assert_eq!(b.complaints, Vec::<String>::new());
    picture(b, "light-1280.png");
    for (tab, file) in [
        ("functions", "functions.png"),
        ("blocking", "blocking.png"),
        ("calls", "calls.png"),
        ("threads", "threads.png"),
        ("about", "about.png"),
    ] {
        b.evaluate(&format!("page.open('{tab}')"));
        let rows = b.evaluate(&format!(
            "document.querySelectorAll('[data-panel={tab}] tr, [data-panel={tab}] dt').length"
        ));
        assert!(number(&rows) > 3.0, "{tab} has {rows} lines");
        picture(b, file);
    }
    let first = b.evaluate("document.querySelector('[data-panel=calls] tbody tr').textContent");
    let line = first.as_str().expect("a line");
    assert!(line.starts_with("1200") && line.contains("read"), "{line}");
    assert_eq!(b.complaints, Vec::<String>::new());
    assert!(shown.file.exists());
}

#[test]
fn names_for_little_room_are_those_of_the_tables() {
    const NAMES: [&str; 26] = [
        "main",
        "std::string::_M_replace(int)  [libstdc++.so.6]",
        "shop::Basket<shop::Item, 4>::add(shop::Item const&, int) const",
        "run(int) const::{lambda(int)#1}::operator()(int) const",
        "a::Id::operator std::vector<int>() const",
        "a::Id::operator char const*() const",
        "a::operator<(a::B<c> const&, int)",
        "a::operator< <int>(a::B<int> const&)",
        "a::operator<<(std::ostream&, int)",
        "a::B<c>::operator->() const",
        "a::B<c>::operator()(int)::{lambda()#2}::operator()() const &",
        "a::(anonymous namespace)::f<int>(int) [clone .isra.0]",
        "add_everything_to_basket(int)  [libshop.so.1]",
        "a::b::f(int)@plt",
        "<std::fs::File as std::io::Write>::write",
        "<&mut a::B<C> as a::D<E>>::f::<G>",
        "<[T] as a::D>::f::{{closure}}",
        "k::run::{closure#0}",
        "main.(*Server).Serve",
        "Shop.<locals>.<lambda>",
        "LazyCompile:*sum(a) /shop/basket.js:12",
        "operator new(unsigned long)",
        "f<(a > b), c->d>(int (*)(char))",
        "a::b::f(int) const (.part.0)",
        "a::𝔹asket<int>::größe𝔹(int) noexcept",
        "::run(int) const::{lambda(auto:1)#12}::operator()<int>(int) const [clone .cold]",
    ];
    const ALIKE: [&[&str]; 11] = [
        &[
            "a::Alloc<a::Tree<std::pair<std::string const, int>>>::give(int)",
            "a::Alloc<a::Tree<std::pair<std::string const, long>>>::give(int)",
            "a::Alloc<a::Hash<std::vector<int>>>::give(int)",
            "a::Other<a::Hash<std::vector<int>>>::give(int)",
            "a::Alloc<a::Hash<std::vector<int>>>::give(int) const",
            "b::Alloc<a::Hash<std::vector<int>>>::give(long)",
        ],
        &[
            "a::give<std::vector<int>>(int)",
            "a::give<std::pair<int, int>>(int)",
        ],
        &[
            "shop::join(int) const",
            "shop::join(std::vector<int> const&)",
            "shop::join(int)",
        ],
        &[
            "std::_Rb_tree<std::string, std::pair<std::string const, int>>::find(std::string const&) const",
            "std::_Rb_tree<std::string, std::pair<std::string const, std::string>>::find(std::string const&) const",
        ],
        &[
            "a::Map<int, long>::put<a::B>(a::B&&)  [shop]",
            "a::Map<int, long>::put<a::B>(a::B&&)  [shop2]",
            "a::Map<int, int>::put<a::C>(a::C&&)  [shop]",
            "a::Map<int, long>::put<a::C>(a::C&&)  [shop]",
        ],
        &[
            "a::b::Basket<int>::add(int)",
            "a::c::Basket<int>::add(int)",
            "Basket<int>::add(int)",
        ],
        &[
            "<a::B as a::From<u8>>::from",
            "<a::B as a::From<i64>>::from",
            "<&mut a::B as a::From<u8>>::from",
        ],
        &[
            "run(int)::{lambda(int)#1}::operator()(int) const",
            "run(long)::{lambda(long)#1}::operator()(long) const",
        ],
        &[
            "a::operator< <int>(a::B<int>)@plt",
            "a::operator< <long>(a::B<long>)@plt",
        ],
        &[
            "a_function_with_𝔹_one_long_name",
            "a_function_with_𝔹_two_long_name",
        ],
        &["f(int)", "f(int, int)", "f(int) [clone .cold]"],
    ];
    let report = testing::report();
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    for name in NAMES {
        let rooms = 3..=name.len();
        let forms = b.evaluate(&format!(
            "Array.from({{ length: {} }}, (_, i) => page.fitName({}, i + 3, 1))",
            rooms.end() - 2,
            json!(name)
        ));
        let expected: Vec<_> = rooms.map(|room| short_names::fit(name, room)).collect();
        assert_eq!(forms, json!(expected), "{name}");
    }
    for names in ALIKE {
        let rooms = 3..=names.iter().map(|name| name.len()).max().unwrap_or(3);
        let forms = b.evaluate(&format!(
            "Array.from({{ length: {} }}, (_, i) => page.fitApart({}, i + 3))",
            rooms.end() - 2,
            json!(names)
        ));
        let expected: Vec<_> = rooms
            .map(|room| short_names::fit_apart(names, room))
            .collect();
        assert_eq!(forms, json!(expected), "{names:?}");
    }
    // Only those that would become one are told apart.
    let names = json!([
        "a::join(int)",
        "a::join(long)",
        "a::join(int)",
        "a::jump(long)"
    ]);
    let shown = b.evaluate(&format!("page.fitNames({names}, [10, 10, 11, 10])"));
    assert_eq!(
        shown,
        json!(["join(int)", "join(long)", "join(int)", "a::jump"])
    );
    // The table of functions shows what fits, and cuts nothing that it shows.
    let mut shown = Vec::new();
    for room in (380..=620).step_by(20) {
        let rows = b.evaluate(&format!(
            "(() => {{ page.open('functions');
              const names = [...document.querySelectorAll('[data-name]')].filter((s) => s.offsetParent);
              const td = names[0].closest('td'), table = td.closest('table');
              table.style.width = `${{table.offsetWidth - td.offsetWidth + {room}}}px`;
              page.tables.fitNames();
              return names.map((s) => [s.textContent, s.closest('td').scrollWidth > s.closest('td').clientWidth]); }})()"
        ));
        for row in rows.as_array().expect("rows") {
            assert_eq!(row[1], json!(false), "{room}: {row}");
            shown.push(row[0].as_str().unwrap_or_default().to_owned());
        }
    }
    for form in [
        "std::map::operator[]",
        "std::map<std::string, std::vector<int>>::operator[]",
    ] {
        assert!(shown.iter().any(|name| name == form), "{form}");
    }
    assert_eq!(b.complaints, Vec::<String>::new());
}

#[test]
fn hands_zoom_search_select_and_reset() {
    let report = testing::report();
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    b.evaluate("page.view.set({ idle: true })");
    let flame = b.evaluate(
        "(() => { const r = page.flame.canvas.getBoundingClientRect(); return [r.x, r.y]; })()",
    );
    let (left, top) = (number(&flame[0]), number(&flame[1]));
    // A click on the widest frame of the second row zooms to it.
    let frame = b.evaluate("(() => { const f = page.flame.rows[1].reduce((a, f) => (f.x1 - f.x0 > a.x1 - a.x0 ? f : a)); return [(f.x0 + f.x1) / 2, f.node.label, f.x1 - f.x0]; })()");
    b.click(left + number(&frame[0]), top + 1.5 * 18.0);
    assert_eq!(b.evaluate("page.flame.zoomPath"), json!([frame[1]]));
    let wide = b.evaluate("page.flame.rows[1][0].x1 - page.flame.rows[1][0].x0");
    assert!(number(&wide) > number(&frame[2]));
    picture(b, "zoomed.png");
    // Its top row goes back.
    b.click(left + 300.0, top + 9.0);
    assert_eq!(b.evaluate("page.flame.zoomPath"), json!([]));

    // Search by keyboard; the share is that of the stacks with a match, recursion counted once.
    b.key("/");
    for c in "price".chars() {
        b.key(&c.to_string());
    }
    let price: u64 = functions(&report.profile, &|_| true, SortKey::Total, Own::Exact)
        .iter()
        .filter(|r| report.metadata.functions[r.function.0 as usize].name == "shop::price")
        .map(|r| r.total.wall_ns)
        .sum();
    let wall: u64 = report.profile.threads.iter().map(|t| t.wall_ns()).sum();
    let text = format!("{:.1} %", price as f64 * 100.0 / wall as f64);
    assert_eq!(
        b.evaluate("document.getElementById('matched').textContent"),
        json!(text)
    );
    picture(b, "search.png");
    b.key("Escape");
    assert_eq!(
        b.evaluate("document.getElementById('matched').textContent"),
        json!("")
    );

    // Every weight and direction sums to the same whole.
    for weight in ["wall", "cpu", "blocked", "alloc"] {
        let sums = b.evaluate(&format!(
            "(() => {{ page.view.set({{ weight: '{weight}', inverted: true }}); const t = page.flame.tree; \
             return [t.value, page.flame.children(t).reduce((s, n) => s + n.value, 0)]; }})()"
        ));
        assert_eq!(sums[0], sums[1], "{weight}");
        assert!(number(&sums[0]) > 0.0, "{weight}");
    }
    picture(b, "inverted-alloc.png");
    b.key("0");
    assert_eq!(
        b.evaluate("page.view.weight + page.view.inverted"),
        json!("wallfalse")
    );

    // The wheel zooms the timeline at the pointer, keys pan it.
    let tracks = b.evaluate("(() => { const r = page.timeline.canvas.getBoundingClientRect(); return [r.x, r.y, r.width]; })()");
    let (left, top, width) = (number(&tracks[0]), number(&tracks[1]), number(&tracks[2]));
    let middle = left + 190.0 + (width - 190.0) / 2.0;
    b.mouse(
        "mouseWheel",
        middle,
        top + 60.0,
        json!({"deltaX": 0, "deltaY": -300}),
    );
    b.frame();
    let shown_ns = b.evaluate("page.timeline.shown[1] - page.timeline.shown[0]");
    assert!(number(&shown_ns) < number(&b.evaluate("page.timeline.duration")) * 0.7);
    let before = number(&b.evaluate("page.timeline.shown[0]"));
    b.key("d");
    assert!(number(&b.evaluate("page.timeline.shown[0]")) > before);

    // A drag selects a range; sums follow and are bounded by threads × range.
    b.mouse("mouseMoved", middle, top + 60.0, json!({}));
    b.mouse(
        "mousePressed",
        middle,
        top + 60.0,
        json!({"button": "left", "buttons": 1, "clickCount": 1}),
    );
    for step in 1..=4 {
        b.mouse(
            "mouseMoved",
            middle + 40.0 * f64::from(step),
            top + 60.0,
            json!({"button": "left", "buttons": 1}),
        );
    }
    picture(b, "selecting.png");
    b.mouse(
        "mouseReleased",
        middle + 160.0,
        top + 60.0,
        json!({"button": "left", "clickCount": 1}),
    );
    b.frame();
    let range = b.evaluate("page.view.range");
    let length = number(&range[1]) - number(&range[0]);
    let all = number(&b.evaluate("page.view.sums().all"));
    assert!(
        all > 0.0 && all <= length * 4.0 * 1.0001,
        "{all} in {length}"
    );
    picture(b, "selected.png");
    b.key("Escape");
    assert_eq!(b.evaluate("page.view.range"), Value::Null);

    // A click on a slice narrows everything to that call.
    b.key("0");
    b.evaluate("page.view.set({ idle: true })");
    b.click(middle, top + 20.0 + 2.0 + 18.0 + 8.0 + 17.0);
    assert_eq!(b.evaluate("page.view.scope[0]"), json!("t"));
    let same = b.evaluate("(() => { const s = page.timeline.selected; return [s.end - s.begin, page.view.sums().all]; })()");
    assert!((number(&same[0]) - number(&same[1])).abs() < 1.0, "{same}");
    picture(b, "slice.png");
    assert_eq!(b.complaints, Vec::<String>::new());
}

#[test]
fn dark_and_narrow_windows_work() {
    let report = testing::report();
    for (width, height, scheme) in [(1440, 900, "dark"), (480, 760, "light"), (900, 420, "dark")] {
        let Some(mut shown) = show(&report, width, height) else {
            return;
        };
        let b = &mut shown.browser;
        b.call(
            "Emulation.setEmulatedMedia",
            json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]}),
        );
        b.frame();
        let overflow = b.evaluate("document.documentElement.scrollWidth - innerWidth");
        assert!(number(&overflow) <= 0.0, "{width}: {overflow}");
        assert!(number(&b.evaluate("page.flame.rows.length")) > 3.0);
        let dark = b.evaluate("page.colors.dark");
        assert_eq!(dark, json!(scheme == "dark"));
        picture(b, &format!("{scheme}-{width}.png"));
        assert_eq!(b.complaints, Vec::<String>::new());
    }
}

#[test]
fn a_large_trace_stays_small_and_quick_and_says_what_was_cut() {
    let mut report = testing::large_report(300, 400, 60_000);
    report.metadata.recording.state = "damaged: in parts".into();
    report.damage.push("damaged near byte 7".into());
    let text = super::render(&report).expect("renders");
    assert!(report.timeline.joined() > 0);
    assert!(text.len() < 8 << 20, "{} bytes", text.len());
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    let notice = b.evaluate("document.getElementById('notice').textContent");
    assert!(notice.to_string().contains("coarser"), "{notice}");
    assert!(notice.to_string().contains("damaged: in parts"), "{notice}");
    b.evaluate("page.open('about')");
    let about = b.evaluate("document.querySelector('[data-panel=about]').textContent");
    assert!(about.to_string().contains("near byte 7"), "{about}");
    let wall: u64 = report.profile.threads.iter().map(|t| t.wall_ns()).sum();
    b.evaluate("page.view.set({ idle: true })");
    assert_eq!(number(&b.evaluate("page.view.sums().all")), wall as f64);
    let took = b.evaluate(
        "(() => { const t = performance.now(); page.timeline.drawTracks(); page.timeline.drawOverview(); \
         page.view.set({ weight: 'cpu', inverted: true }); return performance.now() - t; })()",
    );
    assert!(number(&took) < 2000.0, "{took} ms");
    picture(b, "large.png");
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// Counters are charts above the threads: they say what was counted, zoom with the threads, and all of them
/// are shown after a click.
#[test]
fn counters_are_charts_that_zoom_with_the_threads() {
    let mut report = testing::report();
    let upid = report.metadata.processes[0].upid;
    let end_ns = report.metadata.recording.duration_ns;
    let row = |name: &str, unit: &str, upid, values: &[i64]| {
        let step = end_ns / values.len() as u64;
        let points = values.iter().zip(0u64..).map(|(v, i)| (i * step, *v));
        crate::summary::counters::CounterRow {
            name: name.to_owned(),
            unit: unit.to_owned(),
            upid,
            points: points.collect(),
            ..Default::default()
        }
    };
    report.metadata.counters = vec![
        row("machine I/O pressure", "us/s", 0, &[500, 20_000]),
        row("descriptors", "", upid, &[3, 9, 4]),
        row("memory", "bytes", upid, &[1 << 20, 3 << 20, 2 << 20]),
        row("CPU", "%", upid, &[10, 90, 60, 100]),
    ];
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    let names = "page.timeline.charts.shown.map((r) => r.name)";
    assert_eq!(b.evaluate(names), json!(["CPU", "memory"]));
    // The value under a point of the picture, in the tip.
    let place = b.evaluate("(() => { const r = page.timeline.canvas.getBoundingClientRect(), t = page.timeline; return [r.x + t.x(t.duration * 0.4), r.y + t.charts.shown[0].y + 10]; })()");
    let (x, y) = (number(&place[0]), number(&place[1]));
    b.mouse("mouseMoved", x, y, json!({}));
    b.frame();
    let tip = "document.getElementById('tip').textContent";
    let said = b.evaluate(tip);
    assert!(said.as_str().is_some_and(|s| s.contains("90 %")), "{said}");
    // A high value is a high column, also after a zoom to it.
    let height_at = |b: &mut Browser, share: f64| {
        let script = format!(
            "(() => {{ const t = page.timeline, ratio = devicePixelRatio, x = Math.round(t.x(t.duration * {share}) * ratio), y = t.charts.shown[0].y; \
             const at = (dy) => t.canvas.getContext('2d').getImageData(x, Math.round((y + dy) * ratio), 1, 1).data.join(); \
             let n = 0; for (let dy = 1; dy < 24; dy++) if (at(dy) === at(23)) n++; return n; }})()"
        );
        number(&b.evaluate(&script))
    };
    assert!(height_at(b, 0.4) > 4.0 * height_at(b, 0.1).max(1.0));
    b.evaluate("page.timeline.show(page.timeline.duration * 0.2, page.timeline.duration * 0.45)");
    b.frame();
    assert!(height_at(b, 0.3) > 15.0 && height_at(b, 0.22) < 8.0);
    b.key("0");
    // All of them; the threads move down.
    let first = number(&b.evaluate("page.timeline.tracks[0].y"));
    let heading = b.evaluate("(() => { const r = page.timeline.canvas.getBoundingClientRect(), t = page.timeline; return [r.x + 30, r.y + t.charts.top + 8]; })()");
    b.click(number(&heading[0]), number(&heading[1]));
    b.frame();
    let all = json!(["CPU", "memory", "descriptors", "machine I/O pressure"]);
    assert_eq!(b.evaluate(names), all);
    assert!(number(&b.evaluate("page.timeline.tracks[0].y")) > first + 40.0);
    // The browser would rather not be asked for pixels, which only this test does.
    let complaints = b.complaints.iter().filter(|c| !c.contains("getImageData"));
    assert_eq!(complaints.count(), 0, "{:?}", b.complaints);
    picture(b, "counters.png");
}

/// The tip of a blocking call says what it waited for, who held it, and who ended the wait where.
#[test]
fn a_blocking_call_says_who_ended_it() {
    let mut report = testing::report();
    let tree = report.profile.tree.places();
    let is_blocking =
        |place: u32| matches!(tree[place as usize].label, Label::Leaf(Leaf::Blocking(_)));
    let threads = report.timeline.threads().iter().enumerate();
    let (thread, begin_ns, end_ns) = threads
        .flat_map(|(thread, bars)| bars.iter().map(move |bar| (thread, bar)))
        .filter(|(_, bar)| is_blocking(bar.place))
        .map(|(thread, bar)| (thread, bar.begin_ns, bar.end_ns))
        .max_by_key(|(_, begin, end)| end - begin)
        .expect("somebody waits");
    let waking =
        (1..tree.len() as u32).find(|p| matches!(tree[*p as usize].label, Label::Function(_)));
    let start_ns = report.metadata.recording.start_ns;
    let wait = LongWaitRow {
        thread: ThreadIndex(thread as u32),
        begin_ns: begin_ns - start_ns,
        end_ns: end_ns - start_ns,
        object: "lock at 0x5000".to_owned(),
        owner: Some(ThreadIndex(1)),
        waker: Some(ThreadIndex(2)),
        waking,
    };
    // Neighbours in the list that are about something else.
    let other = |thread: u32, from: u64| LongWaitRow {
        thread: ThreadIndex(thread),
        begin_ns: from,
        end_ns: from + 1,
        object: "another".to_owned(),
        owner: None,
        waker: None,
        waking: None,
    };
    let at = wait.thread.0;
    let (before, after) = (wait.begin_ns.saturating_sub(9), wait.end_ns + 1);
    report.metadata.long_waits = vec![other(at, before), wait, other(at, after), other(at + 1, 0)];
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    let described = b.evaluate(&format!(
        "(() => {{ const t = page.timeline, bars = t.data.bars[{thread}]; let i = 0; \
         for (let k = 0; k < bars.n; k++) if (t.data.isBlocking(t.data.label[bars.place[k]]) && bars.end[k] - bars.begin[k] > bars.end[i] - bars.begin[i]) i = k; \
         const p = bars.place[i]; return Object.fromEntries(t.describe(t.extend({thread}, i, t.data.depth[p] - 1, t.data.label[p])).lines); }})()"
    ));
    assert_eq!(described["Waited for"], "lock at 0x5000", "{described}");
    let name = |index: usize| {
        let thread = &report.metadata.threads[index];
        format!("{} {}", thread.name, thread.tid)
    };
    assert_eq!(described["Held by"], name(1));
    assert_eq!(described["Woken by"], name(2));
    assert!(described["Woken in"].is_string(), "{described}");
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// What runs comes first: idle loops and workers without work are hidden until somebody wants to see them,
/// and threads stand in the order of their running time with a runtime's helpers below.
#[test]
fn the_page_starts_with_what_runs() {
    let mut report = testing::report();
    // The one that runs longest.
    report.metadata.threads[0].name = "Sweeper thread".into();
    report.metadata.threads[0].is_main = false;
    report.metadata.threads[1].is_main = true;
    let times = &report.profile.threads;
    assert!(times[0].running_ns > times[2].running_ns && times[2].running_ns > times[1].running_ns);
    let of = |thread: usize, cause: Cause| times[thread].blocked_ns[cause as usize];
    // The main thread's waits for others are no idle time.
    let hidden: u64 = (0..times.len())
        .map(|t| {
            let work = if t == 1 { 0 } else { of(t, Cause::Wait) };
            times[t].gap_ns + of(t, Cause::Poll) + of(t, Cause::Sleep) + work
        })
        .sum();
    let wall: u64 = times.iter().map(|t| t.wall_ns()).sum();
    assert!(hidden > 0 && of(1, Cause::Wait) > 0);
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    assert_eq!(
        b.evaluate("document.getElementById('verdict').innerText"),
        json!(verdict(&report, &|_| true))
    );
    assert_eq!(
        b.evaluate("page.timeline.tracks.slice(0, 3).map((t) => t.t)"),
        json!([2, 1, 0])
    );
    let open = "page.timeline.tracks.filter((t) => t.open).map((t) => t.t)";
    assert_eq!(b.evaluate(open), json!([2, 1]));
    b.evaluate("page.open('threads')");
    let rows = "[...document.querySelectorAll('[data-panel=threads] tbody td.name')].map((td) => td.textContent)";
    // Two columns show the running time: one of them has the arrow.
    let sorted = "[...document.querySelectorAll('[data-panel=threads] th[aria-sort]')].map((th) => th.textContent)";
    assert_eq!(b.evaluate(sorted), json!(["Running ↓"]));
    let rows_at_start = json!(["worker-2", "worker-1", "sh", "Sweeper thread"]);
    assert_eq!(b.evaluate(rows), rows_at_start);
    // The timeline hides what the other views hide: in the strips, in stacks, and below the pointer.
    b.evaluate("for (const t of page.timeline.tracks) t.open = true; page.timeline.place()");
    let drawn = "(() => { const t = page.timeline, bins = new Float64Array(12), draw = t.drawSlice, names = new Set(), track = t.tracks.find((track) => track.t === 0); \
         t.box.scrollTop = track.y - 60; \
         t.fillBins(0, 0, t.duration, 1, bins); \
         t.drawSlice = (c, label) => names.add(t.data.nameOf(label)); t.drawTracks(); t.drawSlice = draw; \
         const at = Array.from(t.data.bars[0].place).findIndex((p) => t.data.nameOf(t.data.label[p]) === 'epoll_wait'); \
         const time = t.data.bars[0].begin[at] + 1; \
         return [bins[5] > 0, names.has('epoll_wait'), t.sliceAt(t.x(time), track.y + 1 - t.box.scrollTop) !== null, names.has('memcpy')]; })()";
    assert_eq!(b.evaluate(drawn), json!([false, false, false, true]));
    b.evaluate("page.view.set({ idle: true })");
    assert_eq!(b.evaluate(drawn), json!([true, true, true, true]));
    b.evaluate("page.view.set({ idle: false })");
    let all = "page.view.sums().all";
    assert_eq!(number(&b.evaluate(all)), (wall - hidden) as f64);
    let whole = "page.view.set({ range: [0, page.timeline.duration] })";
    b.evaluate(whole);
    assert_eq!(number(&b.evaluate(all)), (wall - hidden) as f64);
    b.evaluate("page.view.set({ range: null }); page.open('blocking')");
    let panel = "document.querySelector('[data-panel=blocking]').textContent";
    let text = b.evaluate(panel);
    let text = text.as_str().expect("text");
    assert!(
        text.contains("of idle time is hidden") && !text.contains("epoll_wait"),
        "{text}"
    );
    b.evaluate("document.getElementById('idle').click()");
    assert_eq!(number(&b.evaluate(all)), wall as f64);
    assert!(b.evaluate(panel).to_string().contains("epoll_wait"));
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// Callers and callees of a function have its whole time, and its source lines stand above them.
#[test]
fn a_function_has_callers_callees_and_source_lines() {
    let mut report = testing::report();
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("price.rs");
    std::fs::write(&source, "one\ntwo <b>\nfn price() {\nfour\n").expect("writes");
    let price = report
        .metadata
        .functions
        .iter()
        .position(|f| f.name == "shop::price");
    let price = price.expect("a function");
    report.metadata.functions[price].file = source.display().to_string();
    report.metadata.functions[price].line = 3;
    report.metadata.recording.started_unix_ns = u64::MAX / 2;
    let rows = functions(&report.profile, &|_| true, SortKey::Total, Own::Exact);
    let total = rows
        .iter()
        .find(|r| r.function.0 as usize == price)
        .expect("a row")
        .total
        .wall_ns;
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    b.evaluate("page.view.set({ idle: true }); page.open('functions')");
    // A click on its line in the table.
    b.evaluate("[...document.querySelectorAll('[data-panel=functions] tbody tr')].find((r) => r.textContent.includes('shop::price')).click()");
    assert_eq!(b.evaluate("page.tab"), "around");
    assert_eq!(
        b.evaluate("document.getElementById('around-name').textContent"),
        "shop::price"
    );
    let graphs = b.evaluate(
        "page.aroundPanel.flames.map((f) => [f.tree.value, f.children(f.tree).map((n) => [f.source.nameOf(n), n.value])])",
    );
    // Recursion counts once in the whole; the inner call is among the callees.
    assert_eq!(number(&graphs[0][0]), total as f64);
    assert_eq!(graphs[0][1], json!([["shop::worker", total]]));
    assert_eq!(graphs[1][0], graphs[0][0]);
    let callees = graphs[1][1].to_string();
    assert!(
        callees.contains("shop::price") && !callees.contains("shop::worker"),
        "{callees}"
    );
    let lines =
        b.evaluate("[...document.querySelectorAll('#source div')].map((d) => d.textContent)");
    assert_eq!(lines, json!(["1one", "2two <b>", "3fn price() {", "4four"]));
    assert_eq!(
        b.evaluate("document.querySelector('#source .first').textContent"),
        "3fn price() {"
    );
    picture(b, "around.png");
    // Another one has no lines.
    b.evaluate("page.showAround(page.data.meta.functions.findIndex((f) => f.name === 'memcpy'))");
    assert_eq!(b.evaluate("document.getElementById('source').hidden"), true);
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// Two ranges are compared by what the baseline would be in the other's length.
#[test]
fn two_ranges_are_compared() {
    let report = testing::report();
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    // A range with itself: nothing changed.
    b.evaluate("page.view.set({ scope: 't0', idle: true, range: [0, 100e6] })");
    b.evaluate("document.getElementById('compare').click()");
    assert_eq!(
        b.evaluate("[page.view.baseline, page.view.range]"),
        json!([[0, 100_000_000], null])
    );
    b.evaluate("page.view.set({ range: [0, 100e6] })");
    let colors = "[...new Set(page.flame.rows.slice(1).flat().map((f) => page.flame.source.colorOf(f.node)))]";
    let flat = b.evaluate("page.colors.flat.replaceAll(' ', '')");
    assert_eq!(b.evaluate(colors), json!([flat]));
    // The first half of it: the same per second, twice as long.
    b.evaluate("page.view.set({ range: [0, 50e6] })");
    let pair = b.evaluate(
        "[page.view.scale(), page.flame.source.before(page.flame.tree), page.view.sums().all]",
    );
    assert_eq!(pair[0], 0.5);
    assert!((number(&pair[1]) - number(&pair[2])).abs() < 1.0, "{pair}");
    // A turn with a lock and one without.
    b.evaluate("page.view.set({ range: [100e6, 150e6] })");
    assert!(b.evaluate(colors).as_array().is_some_and(|c| c.len() > 2));
    b.evaluate("page.open('functions')");
    let heads = b.evaluate("document.querySelector('[data-panel=functions] thead').textContent");
    assert!(heads.to_string().contains("BaselineChange"), "{heads}");
    picture(b, "compared.png");
    b.evaluate("document.getElementById('compare').click()");
    assert_eq!(b.evaluate("page.view.baseline"), Value::Null);
    assert_eq!(b.complaints, Vec::<String>::new());
}

/// The page's address holds what is shown. What is wrong in a link is not followed.
#[test]
fn a_link_leads_to_what_was_shown() {
    let report = testing::report();
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let file = shown.file.clone();
    let b = &mut shown.browser;
    let state = "JSON.stringify([page.tab, page.view.weight, page.view.inverted, page.view.idle, page.view.scope, page.view.range, \
                 page.view.baseline, page.view.search, page.timeline.shown.map(Math.round), page.around, \
                 page.flame.zoomPath, page.aroundPanel.flames.map((f) => f.zoomPath), page.tables.sort])";
    let start = b.evaluate(state);
    b.evaluate(
        "page.view.set({ weight: 'cpu', inverted: true, idle: true, scope: 't1', range: [5e6, 90e6], baseline: [1e8, 2e8], search: '/^shop::(price|w)&/' }); \
         page.timeline.show(1e6, 3e8); const deepest = (flame) => flame.zoomTo(flame.pathOf(flame.rows.at(-1)[0].node)); \
         deepest(page.flame); page.open('threads'); \
         [...document.querySelectorAll('[data-panel=threads] th button')].find((b) => b.textContent === 'Blocked').click(); \
         page.showAround(page.view.functions().at(-1).index); deepest(page.aroundPanel.flames[0])",
    );
    let zooms = "[page.flame, page.aroundPanel.flames[0]].map((f) => f.zoomPath.length > 0).join()";
    assert_eq!(b.evaluate(zooms), "true,true");
    let before = b.evaluate(state);
    b.evaluate("new Promise((done) => setTimeout(done, 400))");
    let link = b.evaluate("location.hash");
    let link = link.as_str().expect("text").to_owned();
    let follow = |b: &mut Browser, link: &str| {
        b.evaluate(&format!("new Promise((done) => {{ addEventListener('hashchange', () => done(1), {{ once: true }}); location.hash = {}; }})", json!(link)));
        b.frame();
        b.evaluate(state)
    };
    // Nothing else is asked for than the start.
    assert_eq!(follow(b, "#tab=flame"), start);
    assert_eq!(follow(b, &link), before);
    let wrong = "#tab=x\"]&weight=constructor&scope=t99&range=9-3&compare=a&function=1e9&shown=-1&zoom=x.99999999&sort=a.b.1";
    assert_eq!(follow(b, wrong), start);
    assert_eq!(
        b.evaluate("document.getElementById('weight').value"),
        "wall"
    );
    assert_eq!(b.complaints, Vec::<String>::new());
    // A page that is opened by a link.
    let mut second = Browser::start(
        &browser::program_or_skip().expect("found before"),
        1280,
        800,
    );
    second.open(&PathBuf::from(format!("{}{link}", file.display())));
    assert_eq!(second.evaluate(state), before);
    // The flame graph, which it has not shown, is a picture all the same.
    second.evaluate("page.open('functions'); URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }; document.getElementById('svg').click()");
    let svg = second.evaluate("saved.text()").to_string();
    assert!(
        svg.contains("<svg ") && !svg.contains(r#"width=\"0\""#) && svg.matches("<g").count() > 2,
        "{svg}"
    );
    assert_eq!(second.complaints, Vec::<String>::new());
}

/// Every view follows the search, expressions included; tips stay in the window; the picture is an SVG file.
#[test]
fn views_are_searched_tips_wrap_and_pictures_are_kept() {
    let mut report = testing::report();
    report.metadata.functions[2].name = "long_".repeat(120);
    // A frame around it.
    report.metadata.functions[1].name = "serve_".repeat(40);
    // Wide letters.
    report.metadata.functions[3].name = "shop::price_of_MWMWMWMWMWMWMW".into();
    report.metadata.threads[1].name = "worker-1_WMWMWM".into();
    report.metadata.recording.command = vec!["shop".into(), "<&\">".into()];
    let Some(mut shown) = show(&report, 400, 800) else {
        return;
    };
    let b = &mut shown.browser;
    for (tab, pattern, one, other) in [
        ("functions", "/^shop::p/", "price_of_M", "memcpy"),
        ("blocking", "/^fsync$/", "fsync", "send"),
        ("calls", "/store::.*insert/", "Store::insert", "parse"),
        ("threads", "/^worker-1/", "worker-1", "worker-2"),
    ] {
        b.evaluate(&format!(
            "page.search({}); page.view.set({{ idle: true }}); page.open('{tab}')",
            json!(pattern)
        ));
        let text = b.evaluate(&format!(
            "document.querySelector('[data-panel={tab}] tbody').textContent"
        ));
        let text = text.as_str().expect("text");
        assert!(text.contains(one) && !text.contains(other), "{tab}: {text}");
    }
    b.evaluate("page.search('/[/')");
    let matched = b.evaluate(
        "(() => { const o = document.getElementById('matched'), r = o.getBoundingClientRect(); \
         return [o.textContent, r.left >= 0 && r.right <= innerWidth]; })()",
    );
    let reason = matched[0].as_str().and_then(|text| text.split_once(": "));
    assert!(
        reason.is_some_and(|(what, why)| what == "not a regular expression" && !why.is_empty()),
        "{matched}"
    );
    assert_eq!(matched[1], true, "it stays in the window");
    // Numbers scroll, names stay.
    b.evaluate("page.search(''); page.open('functions')");
    let cell = b.evaluate("(() => { const r = document.querySelector('[data-panel=functions] td.name').getBoundingClientRect(); return [r.left, r.right, innerWidth]; })()");
    let [left, right, window] = [0, 1, 2].map(|i| number(&cell[i]));
    assert!(
        left >= 0.0 && right <= window && right - left > 150.0,
        "{cell}"
    );
    picture(b, "functions-400.png");
    // No text runs over its neighbour.
    b.evaluate("page.open('flame')");
    b.frame();
    let over = b.evaluate(
        "(() => { const of = CanvasRenderingContext2D.prototype, fill = of.fillText, lines = new Map(); \
         of.fillText = function (text, x, y, most = Infinity) { \
           const line = lines.get(y) || []; lines.set(y, line); line.push([x, x + Math.min(most, this.measureText(text).width), text]); }; \
         const all = []; \
         for (const draw of [() => page.flame.draw(), () => page.timeline.drawTracks()]) { \
           lines.clear(); draw(); all.push(...[...lines.values()].map((line) => line.sort((a, b) => a[0] - b[0]))); } \
         of.fillText = fill; \
         return [all.filter((line) => line.some((text, i) => i > 0 && line[i - 1][1] > text[0])), all.length]; })()",
    );
    assert_eq!(over[0], json!([]));
    assert!(number(&over[1]) > 10.0, "{over}");
    b.evaluate("page.search(''); page.open('flame')");
    let tip = b.evaluate(
        "(() => { const all = page.flame.rows.flat(), f = all.find((f) => page.flame.source.nameOf(f.node).startsWith('long_')); \
         page.tip.show({ clientX: 390, clientY: 300 }, page.flame.describe({ node: f.node, skipped: 1 })); \
         const r = page.tip.box.getBoundingClientRect(), cells = [...page.tip.box.querySelectorAll('td')]; \
         return [r.left >= 0 && r.right <= innerWidth, page.tip.box.scrollWidth <= page.tip.box.clientWidth, cells.length > 3]; })()",
    );
    assert_eq!(tip, json!([true, true, true]));
    // What the button hands to the browser.
    b.evaluate("URL.createObjectURL = (blob) => { window.saved = blob; return 'data:,'; }; document.getElementById('svg').click()");
    let svg = b.evaluate("saved.text()");
    let svg = svg.as_str().expect("text");
    let read = b.evaluate(&format!(
        "(() => {{ const d = new DOMParser().parseFromString({}, 'image/svg+xml'); \
         return [d.querySelector('parsererror') === null, d.querySelectorAll('g').length, d.querySelectorAll('script').length, d.querySelector('text').textContent]; }})()",
        json!(svg)
    ));
    let frames = b.evaluate("page.flame.rows.flat().length");
    assert_eq!(
        read.as_array().expect("a list")[..3],
        [json!(true), frames, json!(0)]
    );
    assert!(read[3].to_string().contains("<&"), "{read}");
    assert_eq!(b.complaints, Vec::<String>::new());
}

#[test]
fn an_interpreter_is_left_out_between_the_functions_that_it_runs() {
    const MS: u64 = 1_000_000;
    let [python, libc] = ["/usr/bin/python3.11", "/lib/x86_64-linux-gnu/libc.so.6"];
    let functions = [
        ("embed", "/srv/embed", ""),
        ("_PyEval_Vector", python, ""),
        ("<module>", "python", "/srv/shop.py"),
        ("_PyObject_Call", python, ""),
        ("load", "python", "/srv/shop.py"),
        ("PyObject_Vectorcall", python, ""),
        ("memcpy", libc, ""),
    ];
    let mut report = testing::report();
    let function = |(name, module, file): &(&str, &str, &str)| FunctionName {
        name: (*name).to_owned(),
        module: (*module).to_owned(),
        file: (*file).to_owned(),
        line: 3,
    };
    let before = report.metadata.functions.len() as u32;
    (report.metadata.functions).extend(functions.iter().map(function));
    let stacks: [(&[u32], u64); 4] = [
        (&[0, 1, 2, 3, 4, 6], 30 * MS),
        (&[0, 1, 2, 5, 4], 20 * MS),
        (&[0, 1, 2, 3, 4, 3], 10 * MS),
        (&[0, 1, 2, 3], 4 * MS),
    ];
    for (stack, ns) in stacks {
        let stack: Vec<_> = stack.iter().map(|f| FunctionIndex(before + f)).collect();
        let path = report.profile.tree.path(&stack);
        report
            .profile
            .add(&segment(0, ns, SegmentKind::Running), path);
    }
    let Some(mut shown) = show(&report, 1280, 800) else {
        return;
    };
    let b = &mut shown.browser;
    b.evaluate(
        "window.tree = (node) => { const { source } = page.flame;
           const name = (n) => source.data.nameOf(n.label);
           return source.children(node).map((n) => [name(n), n.value / 1e6, n.self / 1e6, tree(n)]); }; 0",
    );
    let own = "tree(page.flame.source.root()).find((n) => n[0] === 'embed')";
    let tree = b.evaluate(own);
    let library = json!([["memcpy", 30, 30, []], ["_PyObject_Call", 10, 10, []]]);
    let load = json!(["load", 60, 20, library]);
    // The frame that led to no function is gone, and not its time.
    let module = json!(["<module>", 64, 4, [load]]);
    assert_eq!(tree, json!(["embed", 64, 0, [module]]));
    // Nor among callers and callees.
    b.evaluate("page.showAround(page.data.meta.functions.findIndex((f) => f.name === 'load'))");
    let around = "page.aroundPanel.flames.map((f) => f.children(f.tree).map((n) => [f.source.whole.nameOfLabel(n.label), n.value / 1e6]))";
    assert_eq!(
        b.evaluate(around),
        json!([[["<module>", 60]], [["memcpy", 30], ["_PyObject_Call", 10]]])
    );
    b.evaluate("page.view.set({ library: true })");
    let tree = b.evaluate(&format!("{own}[3][0][0]"));
    assert_eq!(tree, json!("_PyEval_Vector"));
    let callers = b.evaluate(&format!("{around}[0]"));
    let interpreter = json!([["_PyObject_Call", 40], ["PyObject_Vectorcall", 20]]);
    assert_eq!(callers, interpreter);
}
