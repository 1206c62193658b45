//! Formatting and parsing of times: `strftime`, ISO 8601, HTTP dates.
//!
//! Contract: directives have the same meanings, flags (`-`, `0`, `_`, `^`, `#`, `:`) and widths as in Ruby.
//! An unknown directive is left unchanged.

use jiff::Timestamp;
use jiff::fmt::rfc2822;
use jiff::tz::TimeZone;
use jiff::{Zoned, civil};
use mruby::{Tape, TapeValue};

/// The largest width of a field.
const MAX_WIDTH: usize = 1024;

/// `seconds, microseconds, utc, format`: returns text.
pub(super) fn format(args: &[TapeValue<'_>], tape: &mut Tape) {
    let int = |index: usize| args.get(index).and_then(TapeValue::int).unwrap_or_default();
    let format = args.get(3).and_then(TapeValue::text).unwrap_or_default();
    let zone = if args.get(2) == Some(&TapeValue::Bool(true)) { TimeZone::UTC } else { TimeZone::system() };
    let nanoseconds = i32::try_from(int(1) * 1000).unwrap_or_default();
    match Timestamp::new(int(0), nanoseconds) {
        Ok(time) => {
            let mut out = Vec::with_capacity(format.len() * 2);
            write(&mut out, format, &time.to_zoned(zone));
            tape.str(out);
        }
        Err(_) => {
            drop_answer(tape.fault("ArgumentError", "time out of range: years -9999 to 9999 can be written"))
        }
    };
}

fn drop_answer(_: &mut Tape) {}

/// `text`: returns `[seconds, microseconds]` since 1970 for an ISO 8601 time or a date as in HTTP or mail.
pub(super) fn parse(args: &[TapeValue<'_>], tape: &mut Tape) {
    let text =
        String::from_utf8_lossy(args.first().and_then(TapeValue::text).unwrap_or_default()).into_owned();
    match read(text.trim()) {
        Some(time) => {
            let nanoseconds = time.as_nanosecond();
            let seconds = nanoseconds.div_euclid(1_000_000_000) as i64;
            let rest = nanoseconds.rem_euclid(1_000_000_000) as i64;
            tape.array(2).int(seconds).int(rest / 1000);
        }
        None => {
            let example = "2024-05-06T07:08:09Z or Mon, 06 May 2024 07:08:09 GMT";
            tape.fault(
                "ArgumentError",
                format!("no time information in {text:?}: expected a time such as {example}"),
            );
        }
    }
}

fn read(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    if let Ok(time) = rfc2822::DateTimeParser::new().parse_timestamp(text) {
        return Some(time);
    }
    // Without a zone it is local time.
    let local = text.parse::<civil::DateTime>().ok()?;
    local.to_zoned(TimeZone::system()).ok().map(|time| time.timestamp())
}

/// The flags and width of a directive.
#[derive(Default)]
struct Style {
    pad: Option<u8>,
    plain: bool,
    upper: bool,
    swap: bool,
    colons: usize,
    width: Option<usize>,
}

fn write(out: &mut Vec<u8>, format: &[u8], time: &Zoned) {
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        let directive = &rest[at..];
        let mut style = Style::default();
        let mut length = 1;
        for &byte in &directive[1..] {
            match byte {
                b'-' => style.plain = true,
                b'0' if style.width.is_none() => style.pad = Some(b'0'),
                b'_' => style.pad = Some(b' '),
                b'^' => style.upper = true,
                b'#' => style.swap = true,
                b':' => style.colons += 1,
                b'0'..=b'9' => {
                    let width = style.width.unwrap_or(0) * 10 + usize::from(byte - b'0');
                    style.width = Some(width.min(MAX_WIDTH));
                }
                _ => break,
            }
            length += 1;
        }
        let done = directive.get(length).and_then(|letter| field(*letter, &style, time));
        match done {
            Some(text) => {
                out.extend_from_slice(text.as_bytes());
                length += 1;
            }
            None => out.extend_from_slice(&directive[..length]),
        }
        rest = &directive[length..];
    }
    out.extend_from_slice(rest);
}

/// Returns the text of a directive; `None` if it is unknown.
fn field(letter: u8, style: &Style, time: &Zoned) -> Option<String> {
    let number = |value: i64, width: usize, pad: u8| Some(padded(value, width, pad, style));
    let inner = |format: &str| {
        let mut out = Vec::new();
        write(&mut out, format.as_bytes(), time);
        Some(word(&String::from_utf8_lossy(&out), style))
    };
    let name = |text: &str| Some(word(text, style));
    let hour12 = match time.hour() % 12 {
        0 => 12,
        hour => i64::from(hour),
    };
    let day_of_year = i64::from(time.day_of_year());
    let sunday = i64::from(time.weekday().to_sunday_zero_offset());
    let monday = i64::from(time.weekday().to_monday_zero_offset());
    let iso = time.date().iso_week_date();
    match letter {
        b'Y' => number(time.year().into(), 4, b'0'),
        b'C' => number(i64::from(time.year()).div_euclid(100), 2, b'0'),
        b'y' => number(i64::from(time.year()).rem_euclid(100), 2, b'0'),
        b'm' => number(time.month().into(), 2, b'0'),
        b'B' => name(MONTHS[time.month() as usize - 1]),
        b'b' | b'h' => name(&MONTHS[time.month() as usize - 1][..3]),
        b'd' => number(time.day().into(), 2, b'0'),
        b'e' => number(time.day().into(), 2, b' '),
        b'j' => number(day_of_year, 3, b'0'),
        b'H' => number(time.hour().into(), 2, b'0'),
        b'k' => number(time.hour().into(), 2, b' '),
        b'I' => number(hour12, 2, b'0'),
        b'l' => number(hour12, 2, b' '),
        b'P' => name(if time.hour() < 12 { "am" } else { "pm" }),
        b'p' if style.swap => Some(String::from(if time.hour() < 12 { "am" } else { "pm" })),
        b'p' => name(if time.hour() < 12 { "AM" } else { "PM" }),
        b'M' => number(time.minute().into(), 2, b'0'),
        b'S' => number(time.second().into(), 2, b'0'),
        b'L' => Some(fraction(time, style.width.unwrap_or(3))),
        b'N' => Some(fraction(time, style.width.unwrap_or(9))),
        b'z' => Some(offset(time, style.colons)),
        b'Z' => name(&zone(time)),
        b'A' => name(DAYS[sunday as usize]),
        b'a' => name(&DAYS[sunday as usize][..3]),
        b'u' => number(monday + 1, 1, b'0'),
        b'w' => number(sunday, 1, b'0'),
        b'G' => number(iso.year().into(), 4, b'0'),
        b'g' => number(i64::from(iso.year()).rem_euclid(100), 2, b'0'),
        b'V' => number(iso.week().into(), 2, b'0'),
        b'U' => number((day_of_year + 6 - sunday) / 7, 2, b'0'),
        b'W' => number((day_of_year + 6 - monday) / 7, 2, b'0'),
        b's' => number(time.timestamp().as_second(), 1, b'0'),
        b'n' => name("\n"),
        b't' => name("\t"),
        b'%' => name("%"),
        b'c' => inner("%a %b %e %H:%M:%S %Y"),
        b'D' | b'x' => inner("%m/%d/%y"),
        b'F' => inner("%Y-%m-%d"),
        b'v' => inner("%e-%^b-%Y"),
        b'r' => inner("%I:%M:%S %p"),
        b'R' => inner("%H:%M"),
        b'T' | b'X' => inner("%H:%M:%S"),
        b'+' => inner("%a %b %e %H:%M:%S %Z %Y"),
        _ => None,
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

fn padded(value: i64, width: usize, pad: u8, style: &Style) -> String {
    if style.plain {
        return value.to_string();
    }
    let width = style.width.unwrap_or(width);
    match style.pad.unwrap_or(pad) {
        b' ' => format!("{value:width$}"),
        _ => format!("{value:0width$}"),
    }
}

fn word(text: &str, style: &Style) -> String {
    let text = if style.upper || style.swap { text.to_uppercase() } else { text.to_owned() };
    let missing = style.width.unwrap_or(0).saturating_sub(text.len());
    let pad = if style.pad == Some(b'0') { "0" } else { " " };
    pad.repeat(missing) + &text
}

/// Returns the first digits of the fraction of a second.
fn fraction(time: &Zoned, digits: usize) -> String {
    let mut text = format!("{:09}", time.subsec_nanosecond());
    while text.len() < digits {
        text.push('0');
    }
    text.truncate(digits);
    text
}

/// Formats `+0100`, `+01:00` or `+01:00:00`.
fn offset(time: &Zoned, colons: usize) -> String {
    let seconds = time.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let (hours, minutes, seconds) = (seconds.abs() / 3600, seconds.abs() / 60 % 60, seconds.abs() % 60);
    match colons {
        0 => format!("{sign}{hours:02}{minutes:02}"),
        1 => format!("{sign}{hours:02}:{minutes:02}"),
        _ => format!("{sign}{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

fn zone(time: &Zoned) -> String {
    time.time_zone().to_offset_info(time.timestamp()).abbreviation().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: &str) -> String {
        let time = Timestamp::new(1_714_979_289, 5_060_000).unwrap().to_zoned(TimeZone::UTC);
        let mut out = Vec::new();
        write(&mut out, format.as_bytes(), &time);
        String::from_utf8(out).unwrap()
    }

    /// The results of CRuby 3.1 for `Time.at(1714979289, 5060).utc.strftime(format)`.
    #[test]
    fn directives_are_those_of_ruby() {
        let table = [
            ("%Y-%m-%dT%H:%M:%S.%L%:z", "2024-05-06T07:08:09.005+00:00"),
            ("%a %A %b %B %^a %#p", "Mon Monday May May MON am"),
            ("%-d/%-m/%y %e|%_H|%3S|%05d", "6/5/24  6| 7|009|00006"),
            ("%I:%M %p %l %k %P", "07:08 AM  7  7 am"),
            ("%j %U %W %V %G %u %w %C", "127 18 19 19 2024 1 1 20"),
            ("%N %3N %6N %L %s", "005060000 005 005060 005 1714979289"),
            ("%z %Z %% %Q %", "+0000 UTC % %Q %"),
            (
                "%c|%D|%F|%T|%R|%r|%v|%10Y|%10A",
                "Mon May  6 07:08:09 2024|05/06/24|2024-05-06|07:08:09|07:08|07:08:09 AM| 6-MAY-2024|0000002024|    Monday",
            ),
        ];
        for (format, expected) in table {
            assert_eq!(text(format), expected, "{format}");
        }
    }

    #[test]
    fn times_are_read() {
        let second = |text: &str| read(text).map(|time| time.as_second());
        assert_eq!(second("2024-05-06T07:08:09Z"), Some(1_714_979_289));
        assert_eq!(second("2024-05-06T09:08:09.5+02:00"), Some(1_714_979_289));
        assert_eq!(second("2024-05-06 07:08:09Z"), Some(1_714_979_289));
        assert_eq!(second("Mon, 06 May 2024 07:08:09 GMT"), Some(1_714_979_289));
        assert_eq!(second("soon"), None);
    }
}
