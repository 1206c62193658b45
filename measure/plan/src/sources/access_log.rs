//! Facts from an access log: the busiest minute, the average rate, and response times.

use std::collections::HashMap;
use std::io::BufRead;

use jiff::Timestamp;
use jiff::fmt::strtime;
use planner::format::{figure, millis, percent};

use super::line::{self, Line};
use crate::sourced::{SourceFacts, Sourced};

/// The longest line in bytes; the rest counts as another line.
const LONGEST_LINE: usize = 64 << 10;

/// Reads a log; messages call it `name`.
pub(super) fn read(name: &str, log: &mut dyn BufRead) -> Result<SourceFacts, String> {
    let mut stats = LogStats::default();
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let mut part = std::io::Read::take(&mut *log, LONGEST_LINE as u64);
        if part.read_until(b'\n', &mut bytes).map_err(|why| format!("{name}: {why}"))? == 0 {
            break;
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.trim().is_empty() {
            continue;
        }
        match line::read(&text) {
            Some(line) => stats.take(&line),
            None => stats.add_unreadable(text.trim()),
        }
    }
    stats.facts(name)
}

/// Running mean and variance (Welford 1962).
#[derive(Debug, Default)]
struct Moments {
    count: u64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn take(&mut self, value: f64) {
        self.count += 1;
        let off = value - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (value - self.mean);
    }

    fn cv(&self) -> f64 {
        (self.squares / self.count.max(1) as f64).sqrt() / self.mean
    }
}

#[derive(Debug, Default)]
struct Minute {
    requests: u64,
    to_app: u64,
    first: u32,
    last: u32,
}

#[derive(Debug, Default)]
struct LogStats {
    /// By minute and time zone, as written in the log.
    minutes: HashMap<String, Minute>,
    requests: u64,
    app: Moments,
    /// Requests that did not reach the app.
    without_app: u64,
    total: Moments,
    unreadable: u64,
    first_unreadable: Option<String>,
}

impl LogStats {
    fn take(&mut self, line: &Line<'_>) {
        self.requests += 1;
        let reached_app = line.app_ms.is_none_or(|ms| ms > 0.0);
        match line.app_ms {
            Some(ms) if ms > 0.0 => self.app.take(ms),
            Some(_) => self.without_app += 1,
            None => {}
        }
        if let Some(ms) = line.total_ms.filter(|_| reached_app) {
            self.total.take(ms);
        }
        let key = format!("{} {}", line.minute, line.zone);
        let minute = self.minutes.entry(key).or_insert(Minute { first: line.second, ..Minute::default() });
        minute.requests += 1;
        minute.to_app += u64::from(reached_app);
        minute.first = minute.first.min(line.second);
        minute.last = minute.last.max(line.second);
    }

    fn add_unreadable(&mut self, text: &str) {
        self.unreadable += 1;
        let start = || text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(80).collect();
        self.first_unreadable.get_or_insert_with(start);
    }

    fn facts(self, name: &str) -> Result<SourceFacts, String> {
        if self.requests == 0 {
            return Err(match &self.first_unreadable {
                None => format!("{name} is empty; expected the JSON of bench or tune, or an access log"),
                Some(text) => format!(
                    "{name} is neither the JSON of bench or tune nor an access log in a known format (common, combined, Firebrick's JSON); it begins with: {text}"
                ),
            });
        }
        let source = format!("the access log {name}");
        let mut found = SourceFacts { source: source.clone(), ..SourceFacts::default() };
        self.rates(&source, &mut found);
        self.times(&source, &mut found);
        if self.unreadable > 0 {
            let example = self.first_unreadable.as_deref().unwrap_or_default();
            found.notes.push(format!(
                "{} of {} lines of the log could not be parsed and are ignored, such as: {example}",
                figure(self.unreadable as f64),
                figure((self.unreadable + self.requests) as f64)
            ));
        }
        Ok(found)
    }

    fn rates(&self, source: &str, found: &mut SourceFacts) {
        let mut dated: Vec<(i64, &Minute, &str)> = self
            .minutes
            .iter()
            .filter_map(|(key, minute)| Some((seconds(key)?, minute, key.as_str())))
            .collect();
        dated.sort_by_key(|(at, ..)| *at);
        let (Some((from, first, _)), Some((to, last, _))) = (dated.first(), dated.last()) else { return };
        let span = (to - from + i64::from(last.last) - i64::from(first.first) + 1).max(1) as f64;
        // Requests that did not reach the app need no worker.
        let to_app: u64 = dated.iter().map(|(_, minute, _)| minute.to_app).sum();
        if span < 60.0 {
            let from = format!("{source}: {} requests in {}", figure(to_app as f64), millis(span * 1_000.0));
            found.rate = (to_app > 0).then(|| Sourced::new(to_app as f64 / span, from));
            found.notes.push(
                "The log covers less than a minute: its rate may differ much from your busiest minute's."
                    .to_owned(),
            );
            return;
        }
        let Some((_, busiest, when)) = dated.iter().max_by_key(|(_, minute, _)| minute.to_app) else {
            return;
        };
        if busiest.to_app == 0 {
            return;
        }
        found.rate = Some(Sourced::new(
            busiest.to_app as f64 / 60.0,
            format!("{source}: the busiest minute, {when}, with {} requests", figure(busiest.to_app as f64)),
        ));
        found.average_rate = Some(Sourced::new(
            to_app as f64 / span,
            format!("{source}: {} requests in {}", figure(to_app as f64), millis(span * 1_000.0)),
        ));
    }

    fn times(&self, source: &str, found: &mut SourceFacts) {
        let (moments, what) =
            if self.app.count > 0 { (&self.app, "in the app") } else { (&self.total, "in all") };
        if moments.count == 0 || moments.mean <= 0.0 {
            found.notes.push("The log does not contain response times (all of Firebrick's formats do; with nginx add $request_time to log_format).".to_owned());
            return;
        }
        let from = format!("{source}: mean of {} requests, {what}", figure(moments.count as f64));
        found.response_ms = Some(Sourced::new(moments.mean, from));
        found.cv = Some(Sourced::new(moments.cv(), format!("{source}: standard deviation over mean")));
        if self.app.count == 0 {
            found.notes.push("The log contains total response times, including waiting and slow clients: the time in the app is shorter (Firebrick's combined and JSON logs contain it).".to_owned());
        }
        if self.without_app > 0 {
            let share = self.without_app as f64 / self.requests as f64;
            found.notes.push(format!(
                "{} of the requests did not reach the app (files, rejected requests) and are ignored.",
                percent(share)
            ));
        }
    }
}

/// Returns the seconds since 1970 at the start of a minute, as written in the log, with time zone.
fn seconds(key: &str) -> Option<i64> {
    let (minute, zone) = key.split_once(' ')?;
    if minute.contains('T') {
        let zone = if zone.is_empty() { "Z" } else { zone };
        return format!("{minute}:00{zone}").parse::<Timestamp>().ok().map(Timestamp::as_second);
    }
    let time = strtime::parse("%d/%b/%Y:%H:%M %z", format!("{minute} {zone}")).ok()?;
    time.to_timestamp().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: impl Iterator<Item = String>) -> SourceFacts {
        let text: String = lines.map(|line| line + "\n").collect();
        read("x.log", &mut text.as_bytes()).unwrap()
    }

    fn line(minute: u32, second: u32, tail: &str) -> String {
        format!(
            r#"1.2.3.4 - - [20/Nov/2026:16:{minute:02}:{second:02} +0100] "GET / HTTP/1.1" 200 5 "-" "x"{tail}"#
        )
    }

    fn near(found: Option<Sourced<f64>>, wanted: f64) {
        let found = found.expect("it is known").value;
        assert!((found / wanted - 1.0).abs() < 0.01, "{found} is not {wanted}");
    }

    #[test]
    fn the_busiest_minute_counts() {
        // 10 a minute for ten minutes, and 60 more in one of them.
        let usual = (0..100).map(|i| line(i / 10, i % 10 * 6, " 0.0200 0.0100 0.0100"));
        let more = (0..60).map(|second| line(5, second, " 0.0400 0.0100 0.0300"));
        let found = log(usual.chain(more));
        near(found.rate.clone(), 70.0 / 60.0);
        near(found.average_rate, 160.0 / 595.0);
        near(found.response_ms, (100.0 * 10.0 + 60.0 * 30.0) / 160.0);
        assert!(found.rate.unwrap().from.contains("16:05"));
        assert!(found.cv.unwrap().value > 0.3 && found.notes.is_empty(), "{:?}", found.notes);
    }

    #[test]
    fn files_are_ignored_and_unreadable_lines_are_shown() {
        let mut lines: Vec<String> = (0..120)
            .map(|i| {
                line(
                    i / 60,
                    i % 60,
                    if i % 2 == 0 { " 0.0010 0.0000 0.0000" } else { " 0.0100 0.0000 0.0100" },
                )
            })
            .collect();
        lines.push("what is this?".to_owned());
        let found = log(lines.into_iter());
        near(found.rate, 0.5);
        near(found.response_ms, 10.0);
        assert!(
            found.notes.iter().any(|note| note.contains("50 %"))
                && found.notes.iter().any(|note| note.contains("what is this?")),
            "{:?}",
            found.notes
        );
    }

    #[test]
    fn short_logs_and_logs_without_times_are_remarked() {
        let found = log((0..30).map(|second| line(0, second, "")));
        near(found.rate, 1.0);
        assert!(found.response_ms.is_none() && found.notes.len() == 2, "{:?}", found.notes);
        let json = |second: u32| {
            format!(r#"{{"time":"2026-11-20T16:09:{second:02}.000Z","app_ms":5.0,"total_ms":6.0}}"#)
        };
        let found = log((0..60).map(json));
        near(found.rate, 1.0);
        near(found.response_ms, 5.0);
    }

    #[test]
    fn time_zones_are_respected() {
        assert_eq!(seconds("20/Nov/2026:16:09 +0100"), seconds("2026-11-20T15:09 Z"));
        assert_eq!(seconds("20/Nov/2026:16:09 +0100"), Some(1_795_187_340));
        assert_eq!(seconds("99/Foo/2026:16:09 +0100"), None);
    }
}
