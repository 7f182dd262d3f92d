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
}
