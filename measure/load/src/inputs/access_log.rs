//! Reads an access log as traffic: requests with their times.
//!
//! A server writes a line when a request ends. If the line has the duration, the request is sent that much
//! earlier. Times in whole seconds are spread evenly over the second, in file order. That keeps the rate of
//! each second without inventing bursts.

use std::collections::HashMap;
use std::io::BufRead;
use std::time::Duration;

use crate::inputs::log_line::{LineReader, LogLine};

/// The number of unreadable lines that are shown.
const SHOWN: usize = 3;
/// The most bytes of a line that are read.
const LONGEST_LINE: usize = 64 * 1024;
/// The first bytes of a gzip file.
const GZIP: &[u8] = &[0x1f, 0x8b];

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// The time (relative to the first, not decreasing) and the index into `requests`.
    pub arrivals: Vec<(Duration, usize)>,
    /// Each combination of method and target once.
    pub requests: Vec<LoggedRequest>,
    /// Requests skipped because their methods are not safe.
    pub skipped: u64,
    /// Lines that could not be parsed.
    pub unreadable: u64,
    /// The first few of these, as `name:line: text`.
    pub unreadable_first: Vec<String>,
    /// Whether any time was in whole seconds.
    pub coarse: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LoggedRequest {
    /// A method such as `GET`.
    pub method: String,
    /// Path and query.
    pub target: String,
}

impl Recording {
    /// Returns the time from the first request to the last.
    pub fn duration(&self) -> Duration {
        self.arrivals.last().map_or(Duration::ZERO, |(at, _)| *at)
    }
}

/// Returns whether a method is read-only (RFC 9110, 9.2.1).
pub fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE")
}

/// Reads a log; messages call it `name`. Unsafe methods are skipped unless `all_methods`.
///
/// # Errors
/// If the log cannot be read, is compressed, or has no request to send.
pub fn access_log(name: &str, log: &mut dyn BufRead, all_methods: bool) -> Result<Recording, String> {
    let mut reader = LogReader { name, all_methods, ..LogReader::default() };
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        let length = log.read_until(b'\n', &mut line).map_err(|why| format!("{name}: {why}"))?;
        if length == 0 {
            break;
        }
        number += 1;
        if number == 1 && line.starts_with(GZIP) {
            return Err(format!(
                "{name} is compressed with gzip; decompress it: zcat {name} | firebrick bench --replay - …"
            ));
        }
        reader.line(number, &line);
    }
    reader.finish(number)
}

#[derive(Default)]
struct LogReader<'a> {
    name: &'a str,
    all_methods: bool,
    reader: LineReader,
    known: HashMap<LoggedRequest, usize>,
    entries: Vec<Entry>,
    in_second: HashMap<i64, u32>,
    recording: Recording,
}

struct Entry {
    at_us: i64,
    fine: bool,
    took_us: i64,
    /// For times in whole seconds: the position among the requests of that second.
    index_in_second: u32,
    request: usize,
}

impl LogReader<'_> {
    fn line(&mut self, number: u64, line: &[u8]) {
        let text = String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]);
        if text.trim().is_empty() {
            return;
        }
        match self.reader.read(&text) {
            Some(line) => self.take(line),
            None => self.unreadable(number, text.trim()),
        }
    }

    fn unreadable(&mut self, number: u64, text: &str) {
        self.recording.unreadable += 1;
        if self.recording.unreadable_first.len() < SHOWN {
            let start: String =
                text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(100).collect();
            self.recording.unreadable_first.push(format!("{}:{number}: {start}", self.name));
        }
    }

    fn take(&mut self, line: LogLine) {
        if !self.all_methods && !is_safe(&line.method) {
            self.recording.skipped += 1;
            return;
        }
        let next = self.known.len();
        let request = LoggedRequest { method: line.method, target: line.target };
        let number = *self.known.entry(request).or_insert(next);
        let mut index_in_second = 0;
        if !line.fine {
            let count = self.in_second.entry(line.at_us).or_default();
            index_in_second = *count;
            *count = count.saturating_add(1);
        }
        self.entries.push(Entry {
            at_us: line.at_us,
            fine: line.fine,
            took_us: line.took_us,
            index_in_second,
            request: number,
        });
    }

    fn finish(self, lines: u64) -> Result<Recording, String> {
        let name = self.name;
        if self.entries.is_empty() {
            return Err(nothing(name, lines, &self.recording));
        }
        let begun = |entry: &Entry| {
            let spread = match self.in_second.get(&entry.at_us) {
                Some(count) if !entry.fine => {
                    1_000_000 * i64::from(entry.index_in_second) / i64::from(*count)
                }
                _ => 0,
            };
            entry.at_us.saturating_add(spread).saturating_sub(entry.took_us)
        };
        let mut arrivals: Vec<(i64, usize)> =
            self.entries.iter().map(|entry| (begun(entry), entry.request)).collect();
        arrivals.sort_by_key(|(at, _)| *at);
        let first = arrivals.first().map_or(0, |(at, _)| *at);
        let since = |at: i64| Duration::from_micros(at.abs_diff(first));
        let mut requests: Vec<(usize, LoggedRequest)> =
            self.known.into_iter().map(|(request, index)| (index, request)).collect();
        requests.sort_by_key(|(index, _)| *index);
        Ok(Recording {
            arrivals: arrivals.into_iter().map(|(at, request)| (since(at), request)).collect(),
            requests: requests.into_iter().map(|(_, request)| request).collect(),
            coarse: self.entries.iter().any(|entry| !entry.fine),
            ..self.recording
        })
    }
}

/// Returns why there is nothing to send.
fn nothing(name: &str, lines: u64, recording: &Recording) -> String {
    if lines == 0 {
        return format!("{name} is empty");
    }
    if recording.skipped > 0 {
        return format!(
            "{name}: all {} requests in it have unsafe methods (such as POST); to send them again, without their bodies, use \
             --replay-unsafe",
            recording.skipped
        );
    }
    let shown = recording.unreadable_first.iter().map(|line| format!("\n  {line}")).collect::<String>();
    format!(
        "{name}: no line is in a known access log format: expected Apache's common or combined format, nginx's, Firebrick's JSON or \
         Heroku's router; entry{shown}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str, all: bool) -> Result<Recording, String> {
        access_log("a.log", &mut text.as_bytes(), all)
    }

    fn line(second: u32, request: &str) -> String {
        format!("h - - [31/Jan/2026:12:00:{second:02} +0000] \"{request} HTTP/1.1\" 200 1\n")
    }

    fn json(ms: u32, took: u32) -> String {
        format!(
            "{{\"time\":\"2026-01-31T12:00:{:02}.{:03}Z\",\"method\":\"GET\",\"path\":\"/\",\"total_ms\":{took}}}\n",
            ms / 1000,
            ms % 1000
        )
    }

    fn times(recording: &Recording) -> Vec<u128> {
        recording.arrivals.iter().map(|(at, _)| at.as_millis()).collect()
    }

    #[test]
    fn whole_seconds_are_spread_evenly() {
        let log =
            [line(1, "GET /a"), line(1, "GET /b"), line(3, "GET /a"), line(1, "GET /a"), line(1, "POST /a")]
                .concat();
        let found = read(&log, false).unwrap();
        assert_eq!(times(&found), vec![0, 333, 666, 2_000]);
        assert_eq!(found.arrivals.iter().map(|(_, which)| *which).collect::<Vec<_>>(), vec![0, 1, 0, 0]);
        assert_eq!((found.requests.len(), found.skipped, found.unreadable, found.coarse), (2, 1, 0, true));
        let all = read(&log, true).unwrap();
        assert_eq!(times(&all), vec![0, 250, 500, 750, 2_000]);
        assert_eq!((all.requests.len(), all.skipped), (3, 0));
    }

    #[test]
    fn a_request_began_before_its_line_was_written() {
        let found = read(&[json(100, 0), json(2_000, 1_500), json(2_100, 0)].concat(), false).unwrap();
        assert_eq!(times(&found), vec![0, 400, 2_000]);
        assert!(!found.coarse);
        // The slow request began first.
        let found = read(&[json(1_000, 0), json(1_500, 1_400)].concat(), false).unwrap();
        assert_eq!(times(&found), vec![0, 900]);
    }

    #[test]
    fn unreadable_lines_are_counted_and_shown() {
        let log = format!("\nnonsense\u{7}\n{}more\nand more\nand more\n", line(1, "GET /"));
        let found = read(&log, false).unwrap();
        assert_eq!((found.arrivals.len(), found.unreadable), (1, 4));
        assert_eq!(
            found.unreadable_first,
            vec!["a.log:2: nonsense\u{fffd}", "a.log:4: more", "a.log:5: and more"]
        );
        assert!(read("x\n", false).unwrap_err().contains("a.log:1: x"));
        assert!(read("", false).unwrap_err().contains("empty"));
        assert!(read(&line(1, "POST /"), false).unwrap_err().contains("--replay-unsafe"));
        let packed = access_log("a.gz", &mut &[0x1f, 0x8b, 8, 0][..], false).unwrap_err();
        assert!(packed.contains("zcat a.gz"), "{packed}");
    }

    proptest! {
        #[test]
        fn arrivals_never_decrease(entries in proptest::collection::vec((0u32..60_000, 0u32..5_000, any::<bool>()), 1..40)) {
            let log: String = entries
                .iter()
                .map(|(ms, took, fine)| if *fine { json(*ms, *took) } else { line(ms / 1000, "GET /x") })
                .collect();
            let found = read(&log, false).unwrap();
            prop_assert_eq!(found.arrivals.len(), entries.len());
            prop_assert!(found.arrivals.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            prop_assert!(found.arrivals.iter().all(|(_, which)| *which < found.requests.len()));
            prop_assert_eq!(found.arrivals[0].0, Duration::ZERO);
        }
    }
}
