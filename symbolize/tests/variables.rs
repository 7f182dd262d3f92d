//! Names of variables that locks are, beside `nm`'s.

use super::*;

const PROGRAM: &str = r#"
struct Cache { long size; int lock[10]; static int shared; };
int Cache::shared = 1;
namespace app { Cache cache; static int hidden = 2; }
extern "C" { int exported = 3; }
int main() { static int once = 4; return app::cache.lock[0] + Cache::shared + app::hidden + exported + once; }
"#;

/// The variables at these addresses of a file: name, offset.
fn variables(path: &Path, addresses: &[u64]) -> BTreeMap<u64, (String, u64)> {
    let mut modules = Modules::default();
    modules.insert(&v1::Module {
        upid: 1,
        path: text(path).into(),
        start: 0x5000_0000,
        end: 0x6000_0000,
        bias: 0x5000_0000,
        ..Default::default()
    });
    let mut wanted = Wanted::default();
    for address in addresses {
        wanted.add_variable(&modules, Upid(1), 0x5000_0000 + address);
    }
    // On the heap, and of another process.
    wanted.add_variable(&modules, Upid(1), 0x7000_0000);
    wanted.add_variable(&modules, Upid(2), 0x5000_0000);
    let mut found = BTreeMap::new();
    let symbolizer = Symbolizer::new(options(Path::new("/nonexistent")));
    symbolizer.symbolize(wanted, &mut |_| true, &mut |packet| {
        for variable in &packet.variables {
            let name = packet.strings[variable.name as usize].clone();
            found.insert(variable.address, (name, variable.offset));
        }
    });
    found
}

#[test]
fn an_address_in_data_has_the_name_of_its_variable() {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (folder.path().join("a.cpp"), folder.path().join("a"));
    std::fs::write(&source, PROGRAM).unwrap();
    run("g++", &["-rdynamic", "-o", text(&path), text(&source)]);
    let symbols = nm(&path, "-a");
    let at = |name: &str| {
        let symbol = symbols.iter().find(|(_, _, symbol)| symbol == name);
        symbol.unwrap_or_else(|| panic!("{name}: {symbols:?}")).0
    };
    let cache = at("_ZN3app5cacheE");
    let expected = [
        (cache, "app::cache", 0),
        (cache + 8, "app::cache", 8),
        (at("_ZN5Cache6sharedE"), "Cache::shared", 0),
        (at("_ZN3appL6hiddenE"), "app::hidden", 0),
        (at("exported"), "exported", 0),
        (at("_ZZ4mainE4once"), "main::once", 0),
    ];
    let addresses = expected.map(|(address, ..)| address);
    let expected = expected.map(|(address, name, offset)| (address, (name.to_owned(), offset)));
    let mut all = addresses.to_vec();
    // Code is no variable.
    all.push(at("main"));
    assert_eq!(variables(&path, &all), BTreeMap::from(expected.clone()));

    // What is for the dynamic linker keeps its name in a stripped file.
    run("strip", &[text(&path)]);
    let names: BTreeSet<String> = variables(&path, &all).into_values().map(|v| v.0).collect();
    let dynamic = ["Cache::shared", "app::cache", "exported"].map(str::to_owned);
    assert_eq!(names, BTreeSet::from(dynamic));
}
