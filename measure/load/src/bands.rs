//! Durations in bands of similar relative width: whole microseconds when short, then `2^STEPS` bands per doubling.
//!
//! Why not [`crate::Histogram`]: a run keeps one distribution per second, so each must be small. With 32 bands per
//! doubling the error is at most 1.6 %, with 64 at most 0.8 %.

/// Returns the band of a duration in microseconds. `STEPS` is the base-2 logarithm of the number of bands per doubling.
pub fn index<const STEPS: u32>(us: u64) -> usize {
    let linear = 2u64 << STEPS;
    if us < linear {
        return usize::try_from(us).unwrap_or(usize::MAX);
    }
    let shift = 63 - us.leading_zeros() - STEPS;
    ((shift as usize) << STEPS) + usize::try_from(us >> shift).unwrap_or(usize::MAX)
}

/// Returns the longest duration of a band, in microseconds.
pub fn upto<const STEPS: u32>(index: usize) -> u64 {
    let step = 1usize << STEPS;
    if index < 2 * step {
        return index as u64;
    }
    let shift = index / step - 1;
    let base = (index % step + step) as u64;
    ((base + 1) << shift) - 1
}

/// Returns the quantile `share` (0 to 1) of a distribution: the middle of its band. `spread` lists, in order,
/// the longest duration of each band and its count. Returns 0 if nothing was counted.
pub fn quantile<const STEPS: u32>(spread: &[(u64, u64)], share: f64) -> u64 {
    let total: u64 = spread.iter().map(|(_, count)| count).sum();
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let rank = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    for (upto, count) in spread {
        seen += count;
        if seen >= rank {
            return middle::<STEPS>(*upto);
        }
    }
    0
}

/// Returns the middle of a band, by its longest duration.
pub(crate) fn middle<const STEPS: u32>(longest: u64) -> u64 {
    let band = index::<STEPS>(longest);
    let before = band.checked_sub(1).map_or(0, |before| upto::<STEPS>(before) + 1);
    before.midpoint(longest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_value_lies_within_its_band(us in 0u64..3_600_000_000) {
            let band = index::<5>(us);
            prop_assert!(us <= upto::<5>(band));
            prop_assert!(band == 0 || us > upto::<5>(band - 1));
            prop_assert!(upto::<6>(index::<6>(us)) - us <= us / 64);
        }
    }

    #[test]
    fn bands_follow_each_other_without_gaps() {
        for band in 0..1200 {
            assert_eq!(index::<5>(upto::<5>(band)), band);
            assert_eq!(index::<5>(upto::<5>(band) + 1), band + 1);
        }
    }

    #[test]
    fn quantiles() {
        assert_eq!(quantile::<5>(&[], 0.5), 0);
        assert_eq!(quantile::<5>(&[(10, 1), (20, 1)], 0.5), 10);
        assert_eq!(quantile::<5>(&[(10, 1), (20, 1)], 0.51), 20);
        assert_eq!(quantile::<5>(&[(10, 99), (20, 1)], 0.99), 10);
        assert_eq!(quantile::<5>(&[(10, 99), (20, 1)], 1.0), 20);
    }
}
