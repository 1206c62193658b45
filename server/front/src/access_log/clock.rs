//! Formats time, once per second.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::{SystemTime, UNIX_EPOCH};

/// A time in the formats of the logs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    /// Local time as Apache writes it, without brackets: `31/Jan/2026:13:00:00 +0100`.
    pub apache: &'a str,
    /// UTC to the second: `2026-01-31T12:00:00`.
    pub utc: &'a str,
    /// Milliseconds, 0 to 999.
    pub millis: u32,
}

/// Caches the text of the last second.
#[derive(Debug)]
pub(super) struct Clock {
    zone: TimeZone,
    second: Option<u64>,
    apache: String,
    utc: String,
}

impl Clock {
    /// Uses the system's time zone (`TZ`, `/etc/localtime`). Its offset is looked up every second, to follow
    /// daylight saving time.
    pub(super) fn local() -> Clock {
        Clock::in_zone(TimeZone::system())
    }

    pub(super) fn in_zone(zone: TimeZone) -> Clock {
        Clock { zone, second: None, apache: String::new(), utc: String::new() }
    }

    /// Formats `time`. Times before 1970 are shown as the start of 1970.
    pub(super) fn at(&mut self, time: SystemTime) -> Moment<'_> {
        let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != Some(since_epoch.as_secs()) {
            self.second = Some(since_epoch.as_secs());
            let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
            let timestamp = Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
            let local = timestamp.to_zoned(self.zone.clone());
            self.apache = local.strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
            self.utc = timestamp.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        }
        Moment { apache: &self.apache, utc: &self.utc, millis: since_epoch.subsec_millis() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::Offset;
    use std::time::Duration;

    #[test]
    fn both_notations_of_a_moment() {
        let mut clock = Clock::in_zone(TimeZone::fixed(Offset::constant(-7)));
        let noon = UNIX_EPOCH + Duration::from_millis(1_769_860_800_250);
        for _ in 0..2 {
            let moment = clock.at(noon);
            assert_eq!(moment.apache, "31/Jan/2026:05:00:00 -0700");
            assert_eq!((moment.utc, moment.millis), ("2026-01-31T12:00:00", 250));
        }
        assert_eq!(clock.at(noon + Duration::from_secs(1)).apache, "31/Jan/2026:05:00:01 -0700");
    }

    #[test]
    fn times_out_of_range_do_not_matter() {
        let mut clock = Clock::in_zone(TimeZone::UTC);
        assert_eq!(clock.at(UNIX_EPOCH - Duration::from_secs(5)).utc, "1970-01-01T00:00:00");
        if let Some(far) = UNIX_EPOCH.checked_add(Duration::from_secs(1 << 50)) {
            assert!(clock.at(far).utc.starts_with("9999-"));
        }
    }
}
