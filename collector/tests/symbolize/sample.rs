//! Code with inlined closures and generics, for symbol tests.
use std::collections::BTreeMap;

#[inline(never)]
fn histogram(words: &[String]) -> BTreeMap<usize, usize> {
    let mut map = BTreeMap::new();
    for word in words.iter().filter(|word| !word.is_empty()) {
        *map.entry(measure(word)).or_insert(0) += 1;
    }
    map
}

#[inline(always)]
fn measure(word: &str) -> usize {
    word.chars().filter(|c| c.is_alphanumeric()).count()
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    println!("{:?}", histogram(&words));
}
