//! Methods: what managed frames (Python, a JVM, …) are named by.

use std::borrow::Cow;

use hashbrown::HashMap;
use stackbeat_proto::v1::{self, NodeKind, methods::Runtime};

use super::Function;

/// The position that is not known.
const NO_POSITION: u32 = u32::MAX;

/// Whether nodes of this kind are managed frames.
pub(super) fn is_managed(kind: u8) -> bool {
    (NodeKind::Managed as u8..=NodeKind::ManagedInlined as u8).contains(&kind)
        || kind == NodeKind::ManagedAwaiting as u8
}

/// Methods by number.
#[derive(Debug, Default)]
pub(super) struct Methods {
    methods: HashMap<u32, Method>,
}

#[derive(Debug)]
struct Method {
    function: Function,
    /// From which position on which line is executed; positions ascend.
    lines: Vec<(u32, u32)>,
}

impl Methods {
    /// Takes over a packet. Returns how many of its methods make no sense.
    pub(super) fn add(&mut self, packet: &v1::Methods) -> u64 {
        let mut odd = 0;
        for method in &packet.methods {
            let strings = [method.name, method.file].map(|index| match index {
                0 => Some(""),
                _ => packet.strings.get(index as usize).map(String::as_str),
            });
            let ([Some(name), Some(file)], 1.., Some(lines)) =
                (strings, method.number, lines(method))
            else {
                odd += 1;
                continue;
            };
            // A recording that was saved may have a method twice, and what is learned of it later counts.
            let described = Method {
                function: Function {
                    name: match name {
                        "" => "[method without a name]".to_owned(),
                        name => name.to_owned(),
                    },
                    module: runtime_name(method.runtime).to_owned(),
                    file: file.to_owned(),
                    line: method.first_line,
                },
                lines,
            };
            self.methods.insert(method.number, described);
        }
        odd
    }

    /// The function of a method whose position is not known.
    pub(super) fn function(&self, number: u32) -> Function {
        self.frame(u64::from(number) << 32 | u64::from(NO_POSITION))
            .0
    }

    /// The function and line that the address field of a managed node says.
    pub(super) fn frame(&self, address: u64) -> (Function, u32) {
        let (number, position) = ((address >> 32) as u32, address as u32);
        let Some(method) = self.methods.get(&number) else {
            let unknown = Function {
                name: "[unknown method]".to_owned(),
                ..Function::default()
            };
            return (unknown, 0);
        };
        let lines_before = method.lines.partition_point(|(from, _)| *from <= position);
        let line = match lines_before.checked_sub(1) {
            Some(last) if position != NO_POSITION => method.lines[last].1,
            _ => 0,
        };
        (method.function.clone(), line)
    }
}

const PYTHON: &str = "python";
const RUBY: &str = "ruby";
const OTHER: &str = "managed";
/// Runtimes whose compilers name their code in perf maps.
const V8: &str = "node";
const JVM: &str = "java";
const DOTNET: &str = "dotnet";
const PHP: &str = "php";

/// What stands in the place of a module.
fn runtime_name(runtime: i32) -> &'static str {
    match Runtime::try_from(runtime) {
        Ok(Runtime::Cpython) => PYTHON,
        Ok(Runtime::Ruby) => RUBY,
        Ok(Runtime::V8) => V8,
        Ok(Runtime::Jvm) => JVM,
        Ok(Runtime::Dotnet) => DOTNET,
        Ok(Runtime::Php) => PHP,
        Ok(Runtime::Other) | Err(_) => OTHER,
    }
}

/// Whether what stands in the place of a function's module is a runtime: then its file says more.
pub fn is_runtime(module: &str) -> bool {
    matches!(module, PYTHON | RUBY | OTHER | V8 | JVM | DOTNET | PHP)
}

/// A function's name where others stand beside it: of Python's it has the module, because each file may have
/// a `run`.
pub fn qualified_name<'a>(name: &'a str, module: &str, file: &str) -> Cow<'a, str> {
    match python_module(file).filter(|_| module == PYTHON) {
        Some(of_file) => Cow::Owned(format!("{of_file}.{name}")),
        None => Cow::Borrowed(name),
    }
}

/// `json.decoder` of `/usr/lib/python3.11/json/decoder.py`. Elsewhere nobody knows where packages begin: the
/// file's own name, or that of the folder that a package is.
fn python_module(file: &str) -> Option<String> {
    const PACKAGES: [&str; 2] = ["site-packages/", "dist-packages/"];
    if let Some(frozen) = file.strip_prefix("<frozen ") {
        return Some(frozen.trim_end_matches('>').to_owned());
    }
    let path = file.strip_suffix(".py")?;
    let path = path.strip_suffix("/__init__").unwrap_or(path);
    let in_packages = PACKAGES.iter().find_map(|folder| path.rsplit_once(folder));
    let of_library = || {
        let (_, rest) = path.rsplit_once("/lib/python")?;
        rest.split_once('/')
    };
    let own = || path.rsplit('/').next().unwrap_or(path);
    let place = in_packages
        .or_else(of_library)
        .map_or_else(own, |(_, rest)| rest);
    (!place.is_empty()).then(|| place.replace('/', "."))
}

/// The line table; `None` when its columns do not fit each other.
fn lines(method: &v1::methods::Method) -> Option<Vec<(u32, u32)>> {
    if method.position.len() != method.line.len() {
        return None;
    }
    let (mut position, mut line) = (0u32, 0u32);
    let entries = method.position.iter().zip(&method.line);
    entries
        .map(|(further, more)| {
            position = position.checked_add(*further)?;
            line = line.wrapping_add(*more as u32);
            Some((position, line))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_python_have_their_modules() {
        let of = |file| qualified_name("Shop.run", PYTHON, file).into_owned();
        assert_eq!(of("/srv/app/store.py"), "store.Shop.run");
        assert_eq!(of("/srv/app/store/__init__.py"), "store.Shop.run");
        assert_eq!(of("store.py"), "store.Shop.run");
        assert_eq!(
            of("/usr/lib/python3.11/json/decoder.py"),
            "json.decoder.Shop.run"
        );
        assert_eq!(
            of("/srv/venv/lib/python3.12/site-packages/flask/app.py"),
            "flask.app.Shop.run"
        );
        assert_eq!(
            of("<frozen importlib._bootstrap>"),
            "importlib._bootstrap.Shop.run"
        );
        assert_eq!(of("<string>"), "Shop.run");
        assert_eq!(of(""), "Shop.run");
        let native = qualified_name("run", "/srv/shop", "store.py");
        assert_eq!(native, "run");
    }
}
