//! Percentiles of many samples, medians of few rounds.

/// Percentiles of a set of samples, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Percentiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Percentiles {
    pub(crate) fn from_micros(mut samples: Vec<u32>) -> Self {
        samples.sort_unstable();
        let at = |percent: usize| {
            let index = (samples.len() * percent / 100).min(samples.len().saturating_sub(1));
            samples.get(index).map_or(f64::NAN, |us| f64::from(*us) / 1000.0)
        };
        Self { p50_ms: at(50), p99_ms: at(99) }
    }
}

/// The median; for an even number of values the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    let upper = values.len() / 2;
    let lower = values.len().saturating_sub(1) / 2;
    match (values.get(lower), values.get(upper)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// The least and the greatest value.
pub(crate) fn min_max(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    values.into_iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(median([3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]).to_bits(), 2.5_f64.to_bits());
        assert!(median([]).is_nan());
    }

    #[test]
    fn percentiles_of_a_hundred_thousand() {
        let spread = Percentiles::from_micros((0..100_000).rev().collect());
        assert_eq!(spread, Percentiles { p50_ms: 50.0, p99_ms: 99.0 });
    }
}
