//! Student's t: how likely is a difference of means this large between samples of one normal distribution?

/// ln Γ(x) for x > 0: Lanczos' approximation with g = 7 and nine terms (Godfrey's coefficients, relative
/// error below 1e-13).
fn ln_gamma(x: f64) -> f64 {
    const G: f64 = 7.0;
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let sum = (1..C.len()).fold(C[0], |sum, i| sum + C[i] / (x + i as f64));
    let t = x + G + 0.5;
    0.5 * std::f64::consts::TAU.ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

/// The regularized incomplete beta function I_x(a, b): its continued fraction (Abramowitz and Stegun
/// 26.5.8), evaluated by Lentz's method.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    // The fraction converges fast below the mean; beyond it the other tail is computed.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    const TINY: f64 = 1e-300;
    let away = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut fraction = d;
    for m in 1..500 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let before = fraction;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= d * c;
        }
        if (fraction / before - 1.0).abs() < 1e-15 {
            break;
        }
    }
    let front = a * x.ln() + b * (-x).ln_1p() + ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b);
    front.exp() * fraction / a
}

/// P(|T| ≥ |t|) of Student's distribution: I_x(f/2, 1/2) with x = f / (f + t²).
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    if freedom <= 0.0 || t.is_nan() {
        return 1.0;
    }
    if t.is_infinite() {
        return 0.0;
    }
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// Student's two-sided test of equal means with a common variance (1908). Samples without any variance
/// differ with certainty or not at all; fewer than three values in all say nothing.
pub fn test(x: &[f64], y: &[f64]) -> f64 {
    let (n, m) = (x.len() as f64, y.len() as f64);
    if x.is_empty() || y.is_empty() || x.len() + y.len() < 3 {
        return 1.0;
    }
    let freedom = n + m - 2.0;
    let squares = super::variance(x) * (n - 1.0) + super::variance(y) * (m - 1.0);
    let difference = super::mean(y) - super::mean(x);
    if difference == 0.0 {
        return 1.0;
    }
    let error = (squares / freedom * (1.0 / n + 1.0 / m)).sqrt();
    two_sided(difference / error, freedom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!(
            (found / expected - 1.0).abs() < 1e-9,
            "{found} is not {expected}"
        );
    }

    #[test]
    fn tails_are_those_of_scipy() {
        // 2 * scipy.stats.t.sf(t, f), scipy 1.16.
        for (t, freedom, p) in [
            (0.5, 1.0, 0.704_832_764_699_133_6),
            (2.0, 2.0, 0.183_503_419_072_273_9),
            (3.2, 5.0, 0.023_995_176_803_300_48),
            (1.0, 17.0, 0.331_332_762_038_679),
            (6.0, 13.0, 4.446_004_447_004_746e-5),
            (12.5, 40.0, 2.138_392_168_103_941_3e-15),
            (30.0, 9.0, 2.483_704_704_158_263e-10),
            (0.1, 200.0, 0.920_444_492_504_320_9),
        ] {
            close(two_sided(t, freedom), p);
            close(two_sided(-t, freedom), p);
        }
        assert_eq!(two_sided(f64::INFINITY, 3.0), 0.0);
        close(two_sided(0.0, 3.0), 1.0);
    }

    #[test]
    fn the_test_of_published_data() {
        // Student's sleep data (Cushny and Peebles 1905), both drugs as independent samples;
        // scipy.stats.ttest_ind.
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        close(test(&a, &b), 0.079_186_714_215_938_29);
        assert_eq!(test(&[1.0, 1.0], &[2.0]), 0.0);
        assert_eq!(test(&[1.0, 1.0], &[1.0]), 1.0);
        assert_eq!(test(&[1.0], &[2.0]), 1.0);
    }
}
