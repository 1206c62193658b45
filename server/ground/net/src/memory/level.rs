//! How near the limit the used memory is. Pure.

/// How scarce memory is. A level is left at five hundredths of the limit below the point where it is reached,
/// so that it does not change with each response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(u8)]
pub enum Level {
    /// Less than 75 %: each buffer has its own limit only.
    #[default]
    Normal,
    /// From 75 %: bodies go to files, windows are not opened further, no encoder begins, the cache adds
    /// nothing.
    Files,
    /// From 90 %: senders wait. Responses whose clients hardly read are dropped, the cache shrinks.
    Waiting,
    /// From 100 %: new requests are refused.
    Full,
}

/// Hundredths of the limit at which each level above [`Level::Normal`] is reached.
const REACHED: [(u64, Level); 3] = [(100, Level::Full), (90, Level::Waiting), (75, Level::Files)];
/// A level is left that many hundredths below.
const SLACK: u64 = 5;

impl Level {
    /// All levels, in order.
    pub const ALL: [Level; 4] = [Level::Normal, Level::Files, Level::Waiting, Level::Full];

    /// Returns the next level when `used` of `limit` bytes are used.
    pub(super) fn next(self, used: u64, limit: u64) -> Level {
        let percent = u128::from(used) * 100;
        let is_at = |hundredths: u64| percent >= u128::from(limit) * u128::from(hundredths);
        let stays = |(at, level): &(u64, Level)| is_at(if *level <= self { at - SLACK } else { *at });
        REACHED.iter().find(|one| stays(one)).map_or(Level::Normal, |(_, level)| *level)
    }

    /// Returns the name in figures and messages.
    pub fn name(self) -> &'static str {
        match self {
            Level::Normal => "normal",
            Level::Files => "files",
            Level::Waiting => "waiting",
            Level::Full => "full",
        }
    }

    pub(super) fn from_number(number: u8) -> Level {
        Level::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn levels_are_reached_and_left_at_different_points() {
        use Level::*;
        for (before, used, after) in [
            (Normal, 0, Normal),
            (Normal, 749, Normal),
            (Normal, 750, Files),
            (Normal, 900, Waiting),
            (Normal, 5000, Full),
            (Files, 700, Files),
            (Files, 699, Normal),
            (Waiting, 850, Waiting),
            (Waiting, 849, Files),
            (Full, 950, Full),
            (Full, 949, Waiting),
            (Full, 849, Files),
            (Full, 10, Normal),
        ] {
            assert_eq!(before.next(used, 1000), after, "{used} after {before:?}");
        }
        assert_eq!(Full.next(u64::MAX, u64::MAX), Full);
    }

    proptest! {
        #[test]
        fn more_memory_is_never_a_lower_level(at in 0u8..4, used in 0u64..2000, more in 0u64..2000) {
            let level = Level::from_number(at);
            prop_assert!(level.next(used, 1000) <= level.next(used + more, 1000));
            let next = level.next(used, 1000);
            prop_assert_eq!(next.next(used, 1000), next, "it does not swing");
        }
    }
}
