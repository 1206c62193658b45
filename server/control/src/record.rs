//! `POST /record`: the requests that a server gets, line by line, and `firebrick record`, which writes them to a file.
//!
//! The first line describes the recording, each further one a request with a summary of its response
//! (`server/front/src/recording`), and the last one how it ended. Blank lines in between show that the server is alive.
//!
//! Contract: the client owns the file and the disk. If it is slow, the server drops lines and counts them; if it has
//! gone, the recording ends. A request never waits.

use crate::client::{ControlClient, Error, explain, reason, show};
use serde::Deserialize;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use text::people::grouped;
use text::size::{Letter, parse as size};

/// The longest recording.
pub const LONGEST: Duration = Duration::from_secs(24 * 3_600);
/// The most bytes of a request body that can be kept.
pub const MOST_BODY: usize = 256 << 10;
/// The most bytes of a recording.
const MOST_BYTES: u64 = 1 << 40;

/// An order to record.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordOrder {
    /// At most [`LONGEST`].
    pub time: Duration,
    /// The bytes after which the recording ends.
    pub most: u64,
    /// Of so many requests one is recorded; at least 1.
    pub one_in: u32,
    /// Bytes of each request body that are kept, at most [`MOST_BODY`]; 0: none.
    pub body: usize,
}

impl Default for RecordOrder {
    fn default() -> RecordOrder {
        RecordOrder { time: Duration::from_secs(60), most: 100 << 20, one_in: 1, body: 16 << 10 }
    }
}

impl RecordOrder {
    /// Reads the parameters of the order; those left out have their defaults.
    ///
    /// # Errors
    /// Which parameter is wrong, and what it may be.
    pub fn read<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<RecordOrder, String> {
        let mut order = RecordOrder::default();
        if let Some(text) = given("seconds") {
            let seconds = text.parse().ok().filter(|s: &f64| (0.1..=LONGEST.as_secs_f64()).contains(s));
            order.time = seconds.map(Duration::from_secs_f64).ok_or_else(|| {
                format!("seconds is a number from 0.1 to {}, not {text:?}", LONGEST.as_secs())
            })?;
        }
        if let Some(text) = given("bytes") {
            let bytes = text.parse().ok().filter(|bytes| (1..=MOST_BYTES).contains(bytes));
            order.most =
                bytes.ok_or_else(|| format!("bytes is a number from 1 to {MOST_BYTES}, not {text:?}"))?;
        }
        if let Some(text) = given("one_in") {
            let one_in = text.parse().ok().filter(|one_in| *one_in > 0);
            order.one_in = one_in.ok_or_else(|| format!("one_in is a number from 1, not {text:?}"))?;
        }
        if let Some(text) = given("body") {
            let body = text.parse().ok().filter(|body| *body <= MOST_BODY);
            order.body =
                body.ok_or_else(|| format!("body is a number from 0 to {MOST_BODY}, not {text:?}"))?;
        }
        Ok(order)
    }

    fn target(&self) -> String {
        let RecordOrder { time, most, one_in, body } = self;
        format!("/record?seconds={}&bytes={most}&one_in={one_in}&body={body}", time.as_secs_f64())
    }
}

/// Reads the options of the command line.
///
/// # Errors
/// Which option is wrong, and what it may be.
pub fn options<'a>(given: impl Fn(&str) -> Option<&'a str>) -> Result<RecordOrder, String> {
    let mut order = RecordOrder::default();
    if let Some(text) = given("for") {
        let time =
            settings::period(text).ok().filter(|time| (Duration::from_secs(1)..=LONGEST).contains(time));
        order.time =
            time.ok_or_else(|| format!("--for {text}: expected a time from 1s to 24h, such as 5m"))?;
    }
    if let Some(text) = given("max") {
        let most = size(text, Letter::Binary).ok().filter(|most| (1..=MOST_BYTES).contains(most));
        order.most = most.ok_or_else(|| format!("--max {text}: expected a size, such as 500MB"))?;
    }
    if let Some(text) = given("one-in") {
        let one_in = text.parse().ok().filter(|one_in| *one_in > 0);
        order.one_in =
            one_in.ok_or_else(|| format!("--one-in {text}: expected a number from 1, such as 10"))?;
    }
    if let Some(text) = given("body") {
        let body = size(text, Letter::Binary).ok().and_then(|body| usize::try_from(body).ok());
        order.body = body
            .filter(|body| *body <= MOST_BODY)
            .ok_or_else(|| format!("--body {text}: expected a size up to 256KiB; 0 keeps none"))?;
    }
    Ok(order)
}

/// A line on its way to the client. It counts in the bytes under way until it is dropped.
#[derive(Debug)]
pub struct RecordedLine {
    text: Vec<u8>,
    under_way: Arc<AtomicUsize>,
}

impl RecordedLine {
    /// `text`: a line with its end.
    pub fn new(text: Vec<u8>, under_way: &Arc<AtomicUsize>) -> RecordedLine {
        under_way.fetch_add(text.len(), Relaxed);
        RecordedLine { text, under_way: under_way.clone() }
    }

    pub(crate) fn text(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.text);
        self.under_way.fetch_sub(text.len(), Relaxed);
        text
    }
}

impl Drop for RecordedLine {
    fn drop(&mut self) {
        self.under_way.fetch_sub(self.text.len(), Relaxed);
    }
}

/// The last line.
#[derive(Debug, Deserialize)]
struct Last {
    done: Done,
}

#[derive(Debug, Deserialize)]
struct Done {
    recorded: u64,
    lost: u64,
    ended: String,
}

/// Runs `firebrick record` for the server in `dir`: writes its requests to a new file.
pub fn record_command(dir: &Path, client: &ControlClient, order: &RecordOrder, file: &Path) -> ExitCode {
    show(record(dir, client, order, file))
}

fn record(dir: &Path, client: &ControlClient, order: &RecordOrder, path: &Path) -> Result<String, String> {
    let named = |why: &std::io::Error| format!("{}: {why}", path.display());
    let lines = client.post(&order.target()).map_err(|error| match error {
        Error::Refused(..) => reason(&error, dir),
        error => explain(&error, dir),
    })?;
    // Requests have secrets that no rule knows, so only its owner reads the file.
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file: File = opened.map_err(|why| match why.kind() {
        std::io::ErrorKind::AlreadyExists => {
            format!("{} exists: expected the name of a new file", path.display())
        }
        _ => named(&why),
    })?;
    output::complain(format_args!(
        "recording to {} for {} s, up to {} bytes; Ctrl-C ends it",
        path.display(),
        order.time.as_secs(),
        grouped(order.most)
    ));
    for line in lines.split(b'\n') {
        let mut line = line.map_err(|error| {
            format!(
                "{}; what came until then is in {}",
                Error::Io(client.address().clone(), error),
                path.display()
            )
        })?;
        if line.is_empty() {
            continue;
        }
        let last = line.starts_with(b"{\"done\"").then(|| serde_json::from_slice::<Last>(&line));
        line.push(b'\n');
        // In one write, so that an interruption leaves whole lines.
        file.write_all(&line).map_err(|why| named(&why))?;
        if let Some(Ok(Last { done })) = last {
            return Ok(summary(&done, path));
        }
    }
    Err(format!("the server ended before the recording did; what came until then is in {}", path.display()))
}

fn summary(done: &Done, path: &Path) -> String {
    let Done { recorded, lost, ended } = done;
    let lost = match lost {
        0 => String::new(),
        lost => {
            format!("; {} more were lost, because this command was slower than the requests", grouped(*lost))
        }
    };
    format!("{} requests in {}, until {ended}{lost}\n", grouped(*recorded), path.display())
}

/// Returns the file that the words of the command line name.
///
/// # Errors
/// There is none, or more than one.
pub fn file(words: &[&str]) -> Result<PathBuf, String> {
    match words {
        [file] => Ok(PathBuf::from(file)),
        [] => Err("expected the name of a new file, such as requests.jsonl".to_owned()),
        _ => Err(format!("{}: expected one file; the directory goes with --dir", words.join(" "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &'static str) -> Result<RecordOrder, String> {
        let pairs: Vec<(&str, &str)> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        RecordOrder::read(|name| pairs.iter().find(|(given, _)| *given == name).map(|(_, value)| *value))
    }

    #[test]
    fn parameters_are_read_or_named() {
        assert_eq!(read(""), Ok(RecordOrder::default()));
        let order = RecordOrder { time: Duration::from_millis(2_500), most: 9, one_in: 7, body: 0 };
        assert_eq!(order.target(), "/record?seconds=2.5&bytes=9&one_in=7&body=0");
        assert_eq!(read("seconds=2.5&bytes=9&one_in=7&body=0"), Ok(order));
        for wrong in ["seconds=0", "seconds=x", "bytes=0", "one_in=0", "body=262145", "body=-1"] {
            let name = wrong.split('=').next().unwrap_or_default();
            assert!(read(wrong).unwrap_err().starts_with(name), "{wrong}");
        }
    }

    #[test]
    fn lines_count_until_they_are_sent_or_dropped() {
        let under_way = Arc::new(AtomicUsize::new(0));
        let mut first = RecordedLine::new(vec![0; 7], &under_way);
        let second = RecordedLine::new(vec![0; 5], &under_way);
        assert_eq!(under_way.load(Relaxed), 12);
        assert_eq!(first.text().len(), 7);
        drop((first, second));
        assert_eq!(under_way.load(Relaxed), 0);
    }
}
