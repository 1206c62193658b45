//! Pauses between attempts.

use std::time::Duration;

/// Returns the pause before an attempt that follows a failed one, after `earlier` failures before that:
/// `first`, and twice as long after each further failure, up to `longest`.
pub fn backoff(first: Duration, earlier: u32, longest: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(earlier)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let [first, longest] = [10, 85].map(Duration::from_millis);
        let pauses = [0, 1, 2, 3, 4, 31, 32, u32::MAX].map(|earlier| backoff(first, earlier, longest));
        assert_eq!(pauses, [10, 20, 40, 80, 85, 85, 85, 85].map(Duration::from_millis));
        assert_eq!(backoff(Duration::MAX, 9, longest), longest);
    }
}
