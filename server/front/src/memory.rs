//! The front's memory for clients: its limit, the log lines about shortages, and the figures.
//!
//! Contract: reaching and leaving a level is logged once each. If memory hovers about a level, the log does
//! not fill up: a level reached again within a second of the last line is not logged. The figures count each
//! time.

use crate::content::Content;
use crate::error_log::ErrorLog;
use crate::log_file;
use handler::held::relieve_memory;
use net::memory::{self, Level, LevelChange, MemoryClass};
use settings::Settings;
use stats::{MemoryLevel, MemorySnapshot};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines, unless the second reports a worse level.
const QUIET: Duration = Duration::from_secs(1);

/// Puts the limit into force, and writes to `log` when memory becomes scarce.
pub(crate) fn begin(settings: &Settings, log: &Arc<ErrorLog>) {
    let temp_dir = &settings.process.temp_dir;
    if let Err(why) = log_file::writable_folder(Some(temp_dir)) {
        memory::files_are_in_memory(true);
        sys::file::keep_in_memory();
        log.write(&format!(
            "warning: temporary files cannot be written: {why}; large bodies stay in memory and count against limits.memory: set TMPDIR \
             to a folder that this user can write"
        ));
    } else if sys::file::is_in_memory(temp_dir) {
        memory::files_are_in_memory(true);
        // /tmp is in memory on many machines; there a server of a developer or of tests would say so at each start.
        if !matches!(settings.process.environment.as_str(), "development" | "test") {
            log.write(&format!(
                "warning: temp_dir ({}) is in memory (tmpfs): the files of large bodies count against limits.memory, and senders wait sooner",
                temp_dir.display()
            ));
        }
    }
    let (log, last) = (log.clone(), Mutex::new(Reported { level: Level::Normal, at: None }));
    memory::observe(move |change| {
        // Not locked while the line is written.
        let line = last.lock().unwrap_or_else(PoisonError::into_inner).line(change, Instant::now());
        line.into_iter().for_each(|line| log.write(&line));
    });
    follow(settings);
}

/// Makes what a thread keeps only to save work give way before any client waits for memory, and responses of
/// stalled clients.
pub(crate) async fn give_back(content: Rc<RefCell<Rc<Content>>>) {
    let mut scarcity = memory::scarcity();
    while scarcity.changed().await.is_ok() {
        let content = content.borrow().clone();
        content.give_back();
        relieve_memory();
        // While memory is scarce, the figures of each thread are exact, so that no request waits for a thread that has nothing to count.
        memory::settle();
    }
}

/// Puts the limit of these settings into force.
pub(crate) fn follow(settings: &Settings) {
    memory::set_limit(settings.limits.memory.unwrap_or(u64::MAX));
}

/// The last level that the log has.
struct Reported {
    level: Level,
    at: Option<Instant>,
}

impl Reported {
    /// Returns the line for a change, if it is due.
    fn line(&mut self, change: LevelChange, now: Instant) -> Option<String> {
        let is_soon = self.at.is_some_and(|at| now.saturating_duration_since(at) < QUIET);
        let is_known = change.to <= self.level || (self.level == Level::Normal && change.to == Level::Files);
        // If the beginning of a shortage was logged, so is its end.
        if change.to == self.level || (is_soon && is_known && change.to != Level::Normal) {
            return None;
        }
        let before = std::mem::replace(&mut self.level, change.to);
        self.at = Some(now);
        let usage = memory::figures().describe();
        Some(match change.to {
            Level::Normal => format!("memory is no longer scarce: {usage}"),
            level if level < before => format!("memory is less scarce: {usage}; {}", means(level)),
            level => format!("memory is scarce: {usage}; {}", means(level)),
        })
    }
}

/// Returns what the server does at a level.
fn means(level: Level) -> &'static str {
    match level {
        Level::Normal => "all is as usual",
        Level::Files => "bodies go to files",
        Level::Waiting => "senders wait, and responses to stalled clients are dropped",
        Level::Full => "new requests get 503, and queued ones wait",
    }
}

/// Returns the figures for `/stats`.
pub(crate) fn snapshot() -> MemorySnapshot {
    let usage = memory::usage();
    MemorySnapshot {
        limit_bytes: memory::limit().unwrap_or(0),
        used_bytes: usage.total,
        level: match usage.level {
            Level::Normal => MemoryLevel::Normal,
            Level::Files => MemoryLevel::Files,
            Level::Waiting => MemoryLevel::Waiting,
            Level::Full => MemoryLevel::Full,
        },
        connections_bytes: usage.of(MemoryClass::Connections),
        requests_bytes: usage.of(MemoryClass::Requests),
        responses_bytes: usage.of(MemoryClass::Responses),
        streams_bytes: usage.of(MemoryClass::Streams),
        quic_bytes: usage.of(MemoryClass::Quic),
        files_bytes: usage.of(MemoryClass::Files),
        cache_bytes: usage.of(MemoryClass::Cache),
        sites_bytes: usage.of(MemoryClass::Sites),
        handlers_bytes: usage.of(MemoryClass::Handlers),
        encoders_bytes: usage.of(MemoryClass::Encoders),
        other_bytes: usage.of(MemoryClass::Other),
        reached_files: usage.reached(Level::Files),
        reached_waiting: usage.reached(Level::Waiting),
        reached_full: usage.reached(Level::Full),
        refused: memory::refused(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_has_a_line_when_it_is_reached_and_when_it_is_left() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut reported = Reported { level: Level::Normal, at: None };
        let mut line = |from, to, when| reported.line(LevelChange { from, to }, at(when)).unwrap_or_default();
        assert!(line(Level::Normal, Level::Files, 0).starts_with("memory is scarce: "));
        assert!(line(Level::Files, Level::Waiting, 0).starts_with("memory is scarce: "), "it becomes worse");
        assert_eq!(line(Level::Waiting, Level::Files, 0), "", "at most one in a second");
        assert_eq!(line(Level::Files, Level::Waiting, 5), "", "as it was");
        assert!(
            line(Level::Waiting, Level::Full, 5).ends_with("; new requests get 503, and queued ones wait")
        );
        assert!(line(Level::Full, Level::Waiting, 7).starts_with("memory is less scarce: "));
        assert!(line(Level::Waiting, Level::Normal, 7).starts_with("memory is no longer scarce: "));
        assert_eq!(line(Level::Normal, Level::Files, 7), "", "it swings");
        assert_eq!(line(Level::Files, Level::Normal, 7), "");
    }
}
