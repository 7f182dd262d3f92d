//! Many comparisons at once: step-down maxT of Westfall and Young (1993), algorithm of Ge, Dudoit and
//! Speed (2003).
//!
//! Sides are exchanged in the same way for all members of the family, so what belongs together (a
//! function and its thread) moves together, and the price for looking at many is what their dependence
//! asks for, not their number. With few runs ranks would be useless here: half of all functions would
//! tie at the highest rank sum by chance. So the statistic is the studentized difference of means,
//! its error raised by a floor (Tusher, Tibshirani and Chu 2001), which a true effect lifts over all
//! that exchanging sides can produce.
//!
//! A run that stalled (another virtual machine, a neighbour) would hide a true effect: it raises the error by
//! as much as it raises the mean. So the most extreme values are pulled in to their neighbours first
//! (Winsor's way, Tukey 1962), those of both sides taken together: which side they belong to plays no part in
//! it, so exchanging sides stays exact.

use super::mean;
use crate::random::Random;

/// Exchanges to look at when there are more.
const EXCHANGES: usize = 10_000;

/// One member of a family.
#[derive(Clone, Debug)]
pub struct Member {
    /// Values of the baseline, by run.
    pub(crate) baseline: Vec<f64>,
    /// Values of the candidate, by run.
    pub(crate) candidate: Vec<f64>,
    /// Least standard error that is believed. It is added to the observed one, so that small changes of
    /// steady values stay small.
    pub(crate) least_error: f64,
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
    let pooled: Vec<Pooled> = members
        .iter()
        .map(|member| Pooled::new(member, exchange))
        .collect();
    let own: Vec<usize> = (n..n + m).collect();
    let sum_of = |member: &Pooled| own.iter().map(|run| member.values[*run]).sum();
    let observed: Vec<f64> = pooled.iter().map(|x| x.studentized(sum_of(x), m)).collect();
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by(|a, b| observed[*b].total_cmp(&observed[*a]).then(a.cmp(b)));
    // By run, members in this order: sums over runs are then made for all members at once.
    let by_run: Vec<Vec<f64>> = (0..n + m)
        .map(|run| order.iter().map(|at| pooled[*at].values[run]).collect())
        .collect();
    let mut sums = vec![0.0; members.len()];
    let mut reached = vec![0usize; members.len()];
    let mut total = 0usize;
    each_exchange(n, m, exchange, random, &mut |candidate| {
        total += 1;
        sums.fill(0.0);
        for run in candidate {
            for (sum, value) in sums.iter_mut().zip(&by_run[*run]) {
                *sum += value;
            }
        }
        let mut highest = f64::NEG_INFINITY;
        for at in (0..order.len()).rev() {
            highest = highest.max(pooled[order[at]].studentized(sums[at], m));
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

/// For each so many runs of the smaller side, one value at each end may be a stalled run's.
const WINSOR: usize = 5;

/// The `count` highest values become as the next one below them, and the lowest likewise.
fn pulled_in(mut values: Vec<f64>, count: usize) -> Vec<f64> {
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[count], sorted[sorted.len() - 1 - count]);
    for value in &mut values {
        *value = value.clamp(low, high);
    }
    values
}

/// A member's runs of both sides, around their common mean, so that squares stay small. Of pairs, each has
/// half of its difference on either side: what both have in common is no noise.
struct Pooled {
    values: Vec<f64>,
    squares: f64,
    least_error: f64,
    exchange: Exchange,
}

impl Pooled {
    fn new(member: &Member, exchange: Exchange) -> Pooled {
        let sides = member.baseline.len().min(member.candidate.len());
        let all: Vec<f64> = match exchange {
            Exchange::Runs => [member.baseline.as_slice(), &member.candidate].concat(),
            Exchange::Pairs => {
                let pairs = member.baseline.iter().zip(&member.candidate);
                let halves: Vec<f64> = pairs.map(|(x, y)| (y - x) / 2.0).collect();
                let mirrored = halves.iter().map(|half| -half);
                mirrored.chain(halves.iter().copied()).collect()
            }
        };
        // A pair's values stand at both ends.
        let all = pulled_in(all, sides / WINSOR);
        let middle = mean(&all);
        let values: Vec<f64> = all.iter().map(|v| v - middle).collect();
        Pooled {
            squares: values.iter().map(|v| v * v).sum(),
            values,
            least_error: member.least_error.max(f64::MIN_POSITIVE),
            exchange,
        }
    }

    /// The statistic when the candidate has `count` runs with this sum. All values sum to 0, so the
    /// baseline's sum is what the candidate's lacks.
    fn studentized(&self, sum: f64, count: usize) -> f64 {
        let m = count as f64;
        let n = self.values.len() as f64 - m;
        let within = (self.squares - sum * sum * (1.0 / n + 1.0 / m)).max(0.0);
        let (freedom, variance) = match self.exchange {
            Exchange::Runs => (n + m - 2.0, within * (1.0 / n + 1.0 / m)),
            // Of differences, which are twice the values; each is on both sides.
            Exchange::Pairs => (m - 1.0, within * 2.0 / m),
        };
        let error = (variance / freedom.max(1.0)).sqrt();
        sum * (1.0 / m + 1.0 / n) / (error + self.least_error)
    }
}

/// Calls `visit` with every way to exchange sides, or with the observed one and many random ones
/// (Phipson and Smyth 2010: the observed one is among them, so no p is 0).
fn each_exchange(
    n: usize,
    m: usize,
    exchange: Exchange,
    random: &mut Random,
    visit: &mut dyn FnMut(&[usize]),
) {
    let mut candidate: Vec<usize> = (n..n + m).collect();
    match exchange {
        Exchange::Pairs => {
            let pairs = n.min(m);
            let all = 1usize.checked_shl(pairs as u32).unwrap_or(usize::MAX);
            for count in 0..all.min(EXCHANGES) {
                for (pair, place) in candidate.iter_mut().enumerate().take(pairs) {
                    let is_swapped = match all <= EXCHANGES {
                        true => count >> pair & 1 == 1,
                        false => count != 0 && random.below(2) == 1,
                    };
                    *place = if is_swapped { pair } else { n + pair };
                }
                visit(&candidate);
            }
        }
        Exchange::Runs if ways(n + m, m) > EXCHANGES as f64 => {
            visit(&candidate);
            let mut all: Vec<usize> = (0..n + m).collect();
            for _ in 1..EXCHANGES {
                random.shuffle(&mut all);
                visit(&all[..m]);
            }
        }
        Exchange::Runs => {
            // Combinations in lexical order.
            candidate = (0..m).collect();
            loop {
                visit(&candidate);
                let Some(at) = (0..m).rev().find(|i| candidate[*i] < n + i) else {
                    return;
                };
                let from = candidate[at] + 1;
                for (step, place) in candidate[at..].iter_mut().enumerate() {
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
    fn a_stalled_run_hides_no_true_change() {
        // Seconds that a real program slept in six runs a side; the machine stood still in one.
        let slept = [4.91, 0.48, 0.5, 0.48, 0.63, 0.49];
        let members = [
            member(&[0.0; 6], &slept, 0.001),
            member(
                &[9.0, 9.1, 9.2, 8.9, 9.0, 8.8],
                &[9.1, 8.9, 9.0, 9.2, 8.8, 9.1],
                0.05,
            ),
        ];
        for (exchange, all) in [(Exchange::Runs, 924.0), (Exchange::Pairs, 64.0)] {
            let p = adjusted(&members, exchange, &mut Random::new(1));
            assert!((p[0] - 1.0 / all).abs() < 1e-12, "{exchange:?}: {}", p[0]);
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
