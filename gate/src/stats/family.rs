//! Many comparisons at once: step-down maxT of Westfall and Young (1993), algorithm of Ge, Dudoit and
//! Speed (2003).
//!
//! Sides are exchanged in the same way for all members of the family, so what belongs together (a
//! function and its thread) moves together, and the price for looking at many is what their dependence
//! asks for, not their number. With few runs ranks would be useless here: half of all functions would
//! tie at the highest rank sum by chance. So the statistic is the studentized difference of means,
//! its error raised by a floor (Tusher, Tibshirani and Chu 2001), which a true effect lifts over all
//! that exchanging sides can produce.

use super::mean;
use crate::random::Random;

/// Exchanges to look at when there are more.
const EXCHANGES: usize = 10_000;

/// One member: its values by run, and the least standard error that is believed.
#[derive(Clone, Debug)]
pub struct Member {
    pub baseline: Vec<f64>,
    pub candidate: Vec<f64>,
    pub least_error: f64,
}

/// How sides are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// Any run may be of any side.
    Runs,
    /// Within pairs.
    Pairs,
}

/// One-sided p values (is the candidate higher?), adjusted for the family, in the order of `members`.
/// All members have the same runs.
pub fn adjusted(members: &[Member], exchange: Exchange, random: &mut Random) -> Vec<f64> {
    let Some(first) = members.first() else {
        return Vec::new();
    };
    let (n, m) = (first.baseline.len(), first.candidate.len());
    if n == 0 || m == 0 {
        return vec![1.0; members.len()];
    }
    let pooled: Vec<Vec<f64>> = members
        .iter()
        .map(|x| x.baseline.iter().chain(&x.candidate).copied().collect())
        .collect();
    let own: Vec<bool> = (0..n + m).map(|i| i >= n).collect();
    let statistic = |i: usize, is_candidate: &[bool]| {
        studentized(&pooled[i], is_candidate, members[i].least_error)
    };
    let observed: Vec<f64> = (0..members.len()).map(|i| statistic(i, &own)).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| observed[*b].total_cmp(&observed[*a]).then(a.cmp(b)));
    let mut reached = vec![0usize; members.len()];
    let mut total = 0usize;
    each_exchange(n, m, exchange, random, &mut |sides| {
        total += 1;
        let mut highest = f64::NEG_INFINITY;
        for at in (0..order.len()).rev() {
            highest = highest.max(statistic(order[at], sides));
            // Equal up to rounding is equal.
            if highest >= observed[order[at]] - 1e-9 * observed[order[at]].abs() {
                reached[at] += 1;
            }
        }
    });
    let mut p = vec![1.0; members.len()];
    let mut least = 0f64;
    for (at, member) in order.iter().enumerate() {
        least = least.max(reached[at] as f64 / total as f64);
        p[*member] = least;
    }
    p
}

fn studentized(values: &[f64], is_candidate: &[bool], least_error: f64) -> f64 {
    let side = |wanted: bool| -> (f64, f64, f64) {
        let of_side = || {
            values
                .iter()
                .zip(is_candidate)
                .filter(move |(_, c)| **c == wanted)
        };
        let count = of_side().count() as f64;
        let mean = of_side().map(|(v, _)| v).sum::<f64>() / count;
        let squares: f64 = of_side().map(|(v, _)| (v - mean).powi(2)).sum();
        (mean, squares, count)
    };
    let (a, a_squares, a_count) = side(false);
    let (b, b_squares, b_count) = side(true);
    let freedom = (a_count + b_count - 2.0).max(1.0);
    let error = ((a_squares + b_squares) / freedom * (1.0 / a_count + 1.0 / b_count)).sqrt();
    (b - a) / (error + least_error.max(f64::MIN_POSITIVE))
}

/// Calls `visit` with every way to exchange sides, or with the observed one and many random ones
/// (Phipson and Smyth 2010: the observed one is among them, so no p is 0).
fn each_exchange(
    n: usize,
    m: usize,
    exchange: Exchange,
    random: &mut Random,
    visit: &mut dyn FnMut(&[bool]),
) {
    let mut sides: Vec<bool> = (0..n + m).map(|i| i >= n).collect();
    match exchange {
        Exchange::Pairs => {
            let pairs = n.min(m);
            let all = 1usize.checked_shl(pairs as u32).unwrap_or(usize::MAX);
            for count in 0..all.min(EXCHANGES) {
                let swapped = if all <= EXCHANGES {
                    count as u64
                } else if count == 0 {
                    0
                } else {
                    random.bits()
                };
                for pair in 0..pairs {
                    let swap = if pair < 64 {
                        swapped >> pair & 1 == 1
                    } else {
                        random.below(2) == 1
                    };
                    sides[pair] = swap;
                    sides[n + pair] = !swap;
                }
                visit(&sides);
            }
        }
        Exchange::Runs => {
            if ways(n + m, m) > EXCHANGES as f64 {
                visit(&sides);
                for _ in 1..EXCHANGES {
                    random.shuffle(&mut sides);
                    visit(&sides);
                }
                return;
            }
            // Combinations in lexical order; the observed one is the first.
            let mut chosen: Vec<usize> = (n..n + m).collect();
            let reset: Vec<usize> = (0..m).collect();
            chosen.copy_from_slice(&reset);
            loop {
                sides.fill(false);
                for i in &chosen {
                    sides[*i] = true;
                }
                visit(&sides);
                let Some(at) = (0..m).rev().find(|i| chosen[*i] < n + i) else {
                    return;
                };
                let from = chosen[at] + 1;
                for (step, place) in chosen[at..].iter_mut().enumerate() {
                    *place = from + step;
                }
            }
        }
    }
}

/// C(total, chosen).
fn ways(total: usize, chosen: usize) -> f64 {
    (1..=chosen).fold(1.0, |w, i| w * (total - chosen + i) as f64 / i as f64)
}

/// The median of the members' standard errors: a floor for `Member::least_error`.
pub fn pooled_error(baseline: &[f64], candidate: &[f64]) -> f64 {
    let (n, m) = (baseline.len() as f64, candidate.len() as f64);
    if n < 1.0 || m < 1.0 {
        return 0.0;
    }
    let squares = |values: &[f64]| {
        let middle = mean(values);
        values.iter().map(|v| (v - middle).powi(2)).sum::<f64>()
    };
    let freedom = (n + m - 2.0).max(1.0);
    ((squares(baseline) + squares(candidate)) / freedom * (1.0 / n + 1.0 / m)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(baseline: &[f64], candidate: &[f64], least_error: f64) -> Member {
        Member {
            baseline: baseline.to_vec(),
            candidate: candidate.to_vec(),
            least_error,
        }
    }

    #[test]
    fn the_same_as_an_independent_count() {
        // Counted over all 70 exchanges by a few lines of numpy.
        let members = [
            member(&[10.1, 9.9, 10.0, 10.3], &[10.2, 10.0, 10.4, 10.1], 0.05),
            member(&[5.0, 5.2, 4.9, 5.1], &[6.0, 6.3, 5.9, 6.1], 0.05),
            member(&[1.0, 1.4, 0.9, 1.2], &[1.3, 1.2, 1.5, 1.1], 0.05),
        ];
        let p = adjusted(&members, Exchange::Runs, &mut Random::new(1));
        let expected = [22.0 / 70.0, 1.0 / 70.0, 22.0 / 70.0];
        for (p, expected) in p.iter().zip(expected) {
            assert!((p - expected).abs() < 1e-12, "{p} is not {expected}");
        }
    }

    #[test]
    fn one_true_change_among_hundreds_is_found_with_five_runs() {
        let mut random = Random::new(2);
        let mut found = 0;
        for _ in 0..20 {
            let members: Vec<Member> = (0..200)
                .map(|i| {
                    let shift = if i == 77 { 15.0 } else { 0.0 };
                    let mut draw = |shift: f64| -> Vec<f64> {
                        (0..5).map(|_| 100.0 + shift + random.normal()).collect()
                    };
                    member(&draw(0.0), &draw(shift), 0.5)
                })
                .collect();
            let p = adjusted(&members, Exchange::Runs, &mut Random::new(9));
            found += usize::from(p[77] <= 0.01);
        }
        assert!(found >= 18, "{found} of 20");
    }

    #[test]
    fn the_family_error_is_kept_for_both_ways_of_exchange() {
        let mut random = Random::new(3);
        let mut alarms = [0; 2];
        for _ in 0..250 {
            let members: Vec<Member> = (0..30)
                .map(|_| {
                    let mut draw =
                        || -> Vec<f64> { (0..7).map(|_| (random.normal() * 0.4).exp()).collect() };
                    member(&draw(), &draw(), 0.02)
                })
                .collect();
            for (alarm, exchange) in alarms.iter_mut().zip([Exchange::Runs, Exchange::Pairs]) {
                let p = adjusted(&members, exchange, &mut Random::new(4));
                *alarm += usize::from(p.iter().any(|p| *p <= 0.1));
            }
        }
        // 25 expected at most, deviation 4.7.
        assert!(alarms.iter().all(|n| *n <= 40), "{alarms:?}");
    }
}
