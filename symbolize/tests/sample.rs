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

mod shapes {
    pub trait Area {
        fn area(&self) -> f64;
    }

    impl Area for f64 {
        fn area(&self) -> f64 {
            self * self
        }
    }

    /// Generic and inlined: its debug information has no linkage name, only the namespace it stands in.
    #[inline(always)]
    pub fn total<T: Area>(shapes: &[T]) -> f64 {
        shapes.iter().map(|shape| shape.area().sqrt().sin()).sum()
    }
}

fn main() {
    let sides: Vec<f64> = (0..std::env::args().count()).map(|side| side as f64).collect();
    println!("{}", shapes::total(&sides));
    let words: Vec<String> = std::env::args().collect();
    println!("{:?}", histogram(&words));
}
