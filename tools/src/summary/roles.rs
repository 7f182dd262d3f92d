//! What threads are for, by their names.

use stackbeat_gate::comparable_names;

/// `main`, `worker-*`, or `thread` for one that is named as its process.
pub(crate) fn role_of_thread(is_main: bool, name: &str, process: &str) -> String {
    if is_main {
        "main".to_string()
    } else if name == process || name.is_empty() {
        "thread".to_string()
    } else {
        comparable_names::role(name)
    }
}
