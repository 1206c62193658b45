//! Points in time as text: RFC 3339, UTC.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::time::SystemTime;

/// Writes the time to the millisecond: `2026-01-31T12:00:00.000Z`.
pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:.3}", timestamp(*time)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<Timestamp>().map(SystemTime::from).map_err(D::Error::custom)
}

/// The same for a time that may be unknown: `null`.
pub(crate) mod maybe {
    use super::{Deserialize, Deserializer, Error, Serializer, SystemTime, Timestamp, timestamp};

    pub(crate) fn serialize<S: Serializer>(
        time: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(&format_args!("{:.3}", timestamp(*time))),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse::<Timestamp>().map(SystemTime::from).map_err(D::Error::custom)).transpose()
    }
}

/// Returns the time to the second, as Puma writes it: `2026-01-31T12:00:00Z`.
pub(crate) fn seconds(time: SystemTime) -> String {
    format!("{:.0}", timestamp(time))
}

/// Returns the seconds from `earlier` to `later`; 0 if the clock went backwards.
pub(crate) fn between(earlier: SystemTime, later: SystemTime) -> f64 {
    later.duration_since(earlier).unwrap_or_default().as_millis() as f64 / 1_000.0
}

pub(crate) fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_769_860_800_999);
        assert_eq!(seconds(time), "2026-01-31T12:00:00Z");
        let json = serialize(&time, serde_json::value::Serializer).unwrap();
        assert_eq!(json, "2026-01-31T12:00:00.999Z");
        assert_eq!(deserialize(json).unwrap(), time);
    }

    #[test]
    fn a_clock_that_went_backwards_gives_zero() {
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(between(epoch + Duration::from_secs(9), epoch), 0.0);
        assert_eq!(between(epoch, epoch + Duration::from_millis(1_500)), 1.5);
    }
}
