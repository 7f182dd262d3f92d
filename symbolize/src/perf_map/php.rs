//! What PHP's JIT compiler calls its code in a map: `JIT$Shop::price` for a function,
//! `TRACE-7$Shop::price$12` for a trace that begins on a line of one (`zend_jit_func_name` and
//! `zend_jit_trace_name` of ext/opcache/jit, PHP 8.0 to 8.5). A function that is compiled in several traces
//! is one function all the same.

use stackbeat_proto::v1::methods::Runtime;

use super::Method;

/// The function that a line of a map names; code of a script outside of functions has its file's name.
/// `None`: PHP's compiler did not write it, or it is a helper of its own (`JIT$$trace_exit`).
pub(crate) fn method(text: &str) -> Option<Method> {
    let name = match text.strip_prefix("JIT$") {
        Some(name) => name,
        None => {
            let (number, rest) = text.strip_prefix("TRACE-")?.split_once('$')?;
            let (name, line) = rest.rsplit_once('$')?;
            let is_number =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            (is_number(number) && is_number(line)).then_some(name)?
        }
    };
    (!name.is_empty() && !name.starts_with('$')).then(|| Method::of(Runtime::Php, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_traces_of_them_have_one_name() {
        for (text, name) in [
            ("JIT$Shop::price", Some("Shop::price")),
            ("TRACE-7$Shop::price$12", Some("Shop::price")),
            (
                "TRACE-8$App\\Cart::{closure}$3",
                Some("App\\Cart::{closure}"),
            ),
            ("TRACE-5$/srv/shop/index.php$6", Some("/srv/shop/index.php")),
            ("JIT$$trace_exit", None),
            ("jit$$trace_exit_0", None),
            ("TRACE-$x$1", None),
            ("TRACE-1$x$", None),
            ("TRACE-1", None),
            ("JIT$", None),
            ("price", None),
        ] {
            assert_eq!(method(text).map(|m| m.name).as_deref(), name, "{text}");
        }
    }
}
