//! Formats the `Date` header field (RFC 9110 section 5.6.7), once a second.

use std::cell::{Cell, RefCell};
use std::time::{SystemTime, UNIX_EPOCH};

/// The length of an IMF-fixdate.
pub(crate) const DATE_LEN: usize = 29;

/// The formatted text of the current second.
#[derive(Debug)]
pub(crate) struct DateCache {
    second: Cell<u64>,
    text: RefCell<[u8; DATE_LEN]>,
}

impl DateCache {
    pub(crate) fn new() -> DateCache {
        DateCache { second: Cell::new(0), text: RefCell::new(format(0)) }
    }

    /// Appends the date at `now`.
    #[inline]
    pub(crate) fn append(&self, now: SystemTime, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.at(now));
    }

    /// Returns the date at `now`.
    #[inline]
    pub(crate) fn at(&self, now: SystemTime) -> [u8; DATE_LEN] {
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if second != self.second.get() {
            self.second.set(second);
            *self.text.borrow_mut() = format(second);
        }
        *self.text.borrow()
    }
}

/// Formats seconds since 1970 as `Sun, 06 Nov 1994 08:49:37 GMT`; years above 9999 wrap.
fn format(seconds: u64) -> [u8; DATE_LEN] {
    const DAYS: &[u8; 21] = b"ThuFriSatSunMonTueWed";
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut text = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let weekday = (days % 7) as usize * 3;
    text[..3].copy_from_slice(&DAYS[weekday..weekday + 3]);
    two(&mut text[5..7], day);
    let name = (month as usize - 1) * 3;
    text[8..11].copy_from_slice(&MONTHS[name..name + 3]);
    two(&mut text[12..14], year / 100 % 100);
    two(&mut text[14..16], year % 100);
    two(&mut text[17..19], rest / 3600);
    two(&mut text[20..22], rest / 60 % 60);
    two(&mut text[23..25], rest % 60);
    text
}

fn two(digits: &mut [u8], number: u64) {
    digits[0] = b'0' + (number / 10) as u8;
    digits[1] = b'0' + (number % 10) as u8;
}

/// Converts days since 1970-01-01 to year, month and day. Counts 400-year cycles from 1 March of year 0, so
/// that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (cycle, day_of_cycle) = (shifted / 146_097, shifted % 146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = cycle * 400 + year_of_cycle + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn known_dates() {
        for (second, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (1_709_251_199, "Thu, 29 Feb 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&format(second)), Ok(text));
        }
    }

    #[test]
    fn the_cache_follows_the_clock() {
        let cache = DateCache::new();
        let mut text = Vec::new();
        cache.append(UNIX_EPOCH + Duration::from_secs(784_111_777), &mut text);
        cache.append(UNIX_EPOCH + Duration::from_secs(784_111_778), &mut text);
        assert_eq!(text, b"Sun, 06 Nov 1994 08:49:37 GMTSun, 06 Nov 1994 08:49:38 GMT");
    }
}
