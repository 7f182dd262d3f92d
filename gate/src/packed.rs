//! Lists of numbers without the bytes that small ones do not need. What stays of a trace are tens of
//! thousands of amounts, and hundreds of traces are compared.

/// Whole numbers in LEB128: seven bits a byte, the lowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packed(Box<[u8]>);

impl Packed {
    pub(crate) fn new(numbers: impl Iterator<Item = u64>) -> Packed {
        let mut bytes = Vec::new();
        for mut number in numbers {
            while number >= 0x80 {
                bytes.push(number as u8 | 0x80);
                number >>= 7;
            }
            bytes.push(number as u8);
        }
        Packed(bytes.into_boxed_slice())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut bytes = self.0.iter();
        std::iter::from_fn(move || {
            let mut number = 0;
            for place in 0.. {
                let byte = *bytes.next()?;
                number |= u64::from(byte & 0x7f) << (7 * place);
                if byte < 0x80 {
                    break;
                }
            }
            Some(number)
        })
    }
}

/// Amounts by a key, in ascending order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metrics(Packed);

impl Metrics {
    /// Keys that occur more than once get the sum.
    pub(crate) fn new(mut metrics: Vec<(u64, u64)>) -> Metrics {
        metrics.sort_unstable();
        metrics.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
        let mut last = 0;
        Metrics(Packed::new(metrics.into_iter().flat_map(
            |(key, amount)| {
                let step = key - last;
                last = key;
                [step, amount]
            },
        )))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut numbers = self.0.iter();
        let mut key = 0;
        std::iter::from_fn(move || {
            key += numbers.next()?;
            Some((key, numbers.next()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, u64::MAX];
        let packed = Packed::new(numbers.into_iter());
        assert!(packed.iter().eq(numbers));
        assert_eq!(packed.0.len(), 1 + 1 + 1 + 2 + 2 + 6 + 10);
    }

    #[test]
    fn amounts_come_back_in_order_and_summed() {
        let metrics = Metrics::new(vec![(900, 3), (2, u64::MAX), (900, 4), (0, 5)]);
        assert!(metrics.iter().eq([(0, 5), (2, u64::MAX), (900, 7)]));
        assert_eq!(Metrics::default().iter().count(), 0);
    }
}
