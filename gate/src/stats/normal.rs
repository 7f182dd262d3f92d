//! The normal distribution.

/// Φ(z): the share of a standard normal distribution below z. Error below 1.2e-7
/// (Abramowitz and Stegun's erfc by Chebyshev fitting, Numerical Recipes, 2nd ed., 6.2).
pub fn cdf(z: f64) -> f64 {
    let x = z.abs() / std::f64::consts::SQRT_2;
    let t = 1.0 / (1.0 + 0.5 * x);
    const C: [f64; 10] = [
        -1.265_512_23,
        1.000_023_68,
        0.374_091_96,
        0.096_784_18,
        -0.186_288_06,
        0.278_868_07,
        -1.135_203_98,
        1.488_515_87,
        -0.822_152_23,
        0.170_872_77,
    ];
    let series = C.iter().rev().fold(0.0, |sum, c| sum * t + c);
    let erfc = t * (-x * x + series).exp();
    if z > 0.0 {
        1.0 - erfc / 2.0
    } else {
        erfc / 2.0
    }
}

/// The z below which a share `p` lies. Inverts `cdf` by bisection: it is not called often.
pub fn quantile(p: f64) -> f64 {
    let (mut low, mut high) = (-8.0, 8.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if cdf(middle) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    (low + high) / 2.0
}

/// The t that a Student distribution exceeds in either direction with probability `p` (Hill, Algorithm 396,
/// CACM 1970; six digits).
pub fn student_two_sided(p: f64, freedom: usize) -> f64 {
    let n = freedom as f64;
    match freedom {
        0 => return f64::INFINITY,
        1 => return 1.0 / (p * std::f64::consts::FRAC_PI_2).tan(),
        2 => return (2.0 / (p * (2.0 - p)) - 2.0).sqrt(),
        _ => {}
    }
    let a = 1.0 / (n - 0.5);
    let b = 48.0 / (a * a);
    let mut c = ((20700.0 * a / b - 98.0) * a - 16.0) * a + 96.36;
    let d = ((94.5 / (b + c) - 3.0) / b + 1.0) * (a * std::f64::consts::FRAC_PI_2).sqrt() * n;
    let mut y = (d * p).powf(2.0 / n);
    if y > 0.05 + a {
        let x = quantile(p / 2.0);
        y = x * x;
        if freedom < 5 {
            c += 0.3 * (n - 4.5) * (x + 0.6);
        }
        c += (((0.05 * d * x - 5.0) * x - 7.0) * x - 2.0) * x + b;
        y = (((((0.4 * y + 6.3) * y + 36.0) * y + 94.5) / c - y - 3.0) / b + 1.0) * x;
        y = (a * y * y).exp_m1();
    } else {
        let inner = ((n + 6.0) / (n * y) - 0.089 * d - 0.822) * (n + 2.0) * 3.0;
        y = ((1.0 / inner + 0.5 / (n + 4.0)) * y - 1.0) * (n + 1.0) / (n + 2.0) + 1.0 / y;
    }
    (n * y).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_quantiles() {
        for (p, z) in [
            (0.5, 0.0),
            (0.8, 0.841_621_2),
            (0.975, 1.959_964_0),
            (0.99, 2.326_347_9),
            (0.0005, -3.290_526_7),
        ] {
            assert!((quantile(p) - z).abs() < 1e-4, "{p}: {}", quantile(p));
            assert!((cdf(z) - p).abs() < 1e-6, "{z}: {}", cdf(z));
        }
    }

    #[test]
    fn known_quantiles_of_student() {
        // Any table of t.
        for (p, freedom, t) in [
            (0.05, 1, 12.706),
            (0.05, 2, 4.3027),
            (0.05, 4, 2.7764),
            (0.05, 9, 2.2622),
            (0.01, 7, 3.4995),
            (0.05, 60, 2.0003),
        ] {
            let found = student_two_sided(p, freedom);
            assert!((found - t).abs() < 2e-3, "{p}, {freedom}: {found}");
        }
    }
}
