//! The validators of a file: its entity tag and Last-Modified.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the opaque part of the entity tag, with quotes, of a file of `len` bytes modified at `seconds` and
/// `nanos` since 1970.
pub(crate) fn tag(len: u64, seconds: i64, nanos: i64) -> String {
    let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    format!("\"{changed:x}-{len:x}\"")
}

/// Returns Last-Modified of a file modified at `seconds` since 1970, as seen `now`.
pub(crate) fn modified(seconds: i64, now: SystemTime) -> SystemTime {
    let since_epoch = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    UNIX_EPOCH.checked_add(since_epoch).unwrap_or(UNIX_EPOCH).min(whole_seconds(now))
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_change_with_length_and_time() {
        assert_eq!(tag(16, 0, 255), "\"ff-10\"");
        assert_ne!(tag(1, 1, 1), tag(2, 1, 1));
        assert_ne!(tag(1, 1, 1), tag(1, 1, 2));
        assert!(tag(1, i64::MIN, 0).len() > 2 && tag(u64::MAX, i64::MAX, 999_999_999).len() > 2);
    }

    #[test]
    fn last_modified_is_never_in_the_future() {
        let now = UNIX_EPOCH + Duration::from_millis(5_500);
        assert_eq!(modified(1_000_000, now), UNIX_EPOCH + Duration::from_secs(5));
    }
}
