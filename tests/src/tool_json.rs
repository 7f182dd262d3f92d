//! What is in the JSON that the tool prints.

use serde_json::Value;

/// The elements of a list.
#[track_caller]
pub fn array<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().expect(key).iter()
}

/// A whole number.
#[track_caller]
pub fn number(value: &Value, key: &str) -> u64 {
    let number = value[key].as_u64();
    number.unwrap_or_else(|| panic!("{key} of {value}"))
}

/// A figure that the recorder keeps about itself, of `info --json`.
#[track_caller]
pub fn figure(info: &Value, name: &str) -> u64 {
    let found = array(info, "recorder_figures").find(|figure| figure["name"] == name);
    number(found.expect(name), "value")
}

/// Every thread's sums come out, says `info --check --json`.
#[track_caller]
pub fn assert_adds_up(info: &Value) {
    for violation in array(info, "violations") {
        // On a busy machine the two clocks of a sample are read some time apart.
        let violation = violation.as_str().expect("text");
        assert!(violation.contains("cpu time of a segment"), "{violation}");
    }
}
