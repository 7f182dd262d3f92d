//! Looking several times while runs come in, with the error rate of the whole sequence fixed in advance.
//!
//! The looks and what each may spend are laid down before the first run. The sum of what is spent is
//! `alpha`, and by Boole's inequality the chance of any false alarm is at most that sum, however the
//! looks depend on each other (Lan and DeMets 1983 spend in the same way but use their dependence; this
//! is the conservative form).

/// One look: after so many runs a side, with this much of the error rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Runs a side at this look.
    pub runs: usize,
    /// Part of the error rate that this look uses up.
    pub alpha: f64,
}

/// Looks for at most `most` runs a side, the first at `first`. Later looks get more of `alpha`: what is
/// spent up to a share t of the runs is alpha · t², so that a large effect ends the sequence early and the
/// last look keeps most of its power.
pub fn looks(first: usize, most: usize, alpha: f64) -> Vec<Look> {
    let mut at = first.min(most).max(1);
    let mut looks = Vec::new();
    let mut spent = 0.0;
    loop {
        let share = at as f64 / most.max(1) as f64;
        let up_to_here = alpha * share.min(1.0).powi(2);
        looks.push(Look {
            runs: at,
            alpha: up_to_here - spent,
        });
        spent = up_to_here;
        if at >= most {
            return looks;
        }
        // Half as many again: looks are few, and no more than a third of the runs comes too late.
        at = (at + (at / 2).max(1)).min(most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::stats::rank::rank_sum;

    #[test]
    fn all_of_alpha_is_spent_and_no_more() {
        for most in [1, 5, 10, 30] {
            let looks = looks(5, most, 0.01);
            let spent: f64 = looks.iter().map(|l| l.alpha).sum();
            assert!((spent - 0.01).abs() < 1e-12);
            assert_eq!(looks.last().map(|l| l.runs), Some(most));
            assert!(looks.windows(2).all(|w| w[0].runs < w[1].runs));
        }
    }

    #[test]
    fn looking_often_at_noise_keeps_the_promised_rate() {
        let mut random = Random::new(8);
        let plan = looks(5, 20, 0.05);
        let mut alarms = 0;
        for _ in 0..2000 {
            let mut draw = || -> Vec<f64> { (0..20).map(|_| random.normal().exp()).collect() };
            let (a, b) = (draw(), draw());
            let alarm = |l: &Look| rank_sum(&a[..l.runs], &b[..l.runs]) <= l.alpha;
            alarms += usize::from(plan.iter().any(alarm));
        }
        assert!(alarms <= 120, "{alarms} of 2000, 100 at most are expected");
    }
}
