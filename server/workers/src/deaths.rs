//! Records why workers ended, and writes a sentence about each for the log. Pure except for the lock.
//!
//! Contract:
//! 1. Each worker whose fork was ordered gets one record, when all front threads have reported the requests
//!    that it was serving.
//! 2. A death by signal 9 is attributed to the kernel (out of memory) if the kernel's counter says so
//!    ([`crate::oom`]), and to a `kill -9` otherwise.
//! 3. The ring keeps [`KEPT`] records. The counts by cause are never reset.

use crate::in_flight::Served;
use crate::kept::KeptRequests;
use crate::memory::Memory;
use crate::oom::OomCount;
use crate::process::{ExitStatus, Generation};
use queue::Serial;
use stats::{Death, DeathCause, DeathCounts, DeathRequest, FlightEvent, FlightSecond, KeptRequest};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use text::people::shortened;
use wire::recorder::{self, EventKind, Flight};
use wire::traces::Trace;

/// The number of records that are kept.
pub const KEPT: usize = 256;
/// The largest number of requests in a record or log line. A worker may have as many as it has threads.
const SHOWN: usize = 10;
/// The most backtrace lines in a record, and the longest line. All records together fit into one response of
/// the control server.
const LINES: usize = 20;
const LONGEST_LINE: usize = 200;
/// The most events of a record, and the seconds that it covers.
const EVENTS: usize = 40;
const MINUTE_S: u64 = 60;
/// The longest path that is shown, in characters.
const LONGEST_PATH: usize = 500;

/// The records of the last deaths, and the counts of all.
#[derive(Debug, Default)]
pub struct Deaths(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    ring: VecDeque<Death>,
    /// The number of the newest record.
    last: u64,
    counts: DeathCounts,
    requests: KeptRequests,
}

impl Deaths {
    /// Adds a record, and the requests to keep of it, so that at most `most` requests are kept.
    pub(crate) fn add(&self, mut death: Death, requests: Vec<KeptRequest>, most: usize) {
        let mut kept = self.kept();
        kept.counts.count(death.cause);
        kept.last += 1;
        death.number = kept.last;
        requests.into_iter().for_each(|request| kept.requests.add(death.number, request, most));
        kept.requests.limit(most);
        if kept.ring.len() == KEPT {
            kept.ring.pop_front();
        }
        kept.ring.push_back(death);
    }

    /// Returns the last [`KEPT`] records, the newest first.
    pub fn list(&self) -> Vec<Death> {
        let kept = self.kept();
        let listed = kept.ring.iter().rev().cloned();
        listed.map(|death| Death { kept: kept.requests.of(death.number).count() as u64, ..death }).collect()
    }

    /// Returns the requests that are kept of a death.
    pub fn requests(&self, death: u64) -> Vec<KeptRequest> {
        self.kept().requests.of(death).cloned().collect()
    }

    /// Returns the counts by cause since the start.
    pub fn counts(&self) -> DeathCounts {
        self.kept().counts.clone()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerExit {
    pub serial: Serial,
    /// The scoreboard slot of the worker.
    pub index: u32,
    /// The template that forked it.
    pub generation: Generation,
    /// Its process id; 0 if it was never forked.
    pub pid: u32,
    /// When it was forked, or when its fork was ordered.
    pub forked: Instant,
    /// Whether it was sent KILL.
    pub killed: bool,
    /// The exit status; `None` if no template was left to report it and no other source had it.
    pub status: Option<ExitStatus>,
    /// Peak memory in KiB.
    pub peak_kib: u64,
    pub cause: Cause,
    /// The delay before the next fork, if any.
    pub wait: Option<Duration>,
}

/// Why a worker exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The front ordered it to exit.
    Ordered,
    Crashed,
    /// A request was stuck in it.
    Stuck,
    /// It took up no requests and was killed.
    Frozen,
    /// It did not become ready in time and was killed.
    SlowBoot,
    /// It did not finish in time and was killed.
    SlowDrain,
}

/// The facts about a worker's end.
pub(crate) struct DeathFacts<'a> {
    pub(crate) exit: &'a WorkerExit,
    /// Why the worker was stopped or killed, if its limits were the reason.
    pub(crate) recycled: Option<(DeathCause, &'a str)>,
    pub(crate) requests: u64,
    pub(crate) memory: Memory,
    pub(crate) oom: OomCount,
    /// Descriptions of the stuck requests.
    pub(crate) stuck: &'a [String],
    pub(crate) served: Vec<Served>,
    pub(crate) traces: &'a [Trace],
    pub(crate) worker_timeout: Option<Duration>,
    pub(crate) noticed: Instant,
    /// The record of the worker, and when that was read, in microseconds of the monotonic clock.
    pub(crate) flight: (Flight, u64),
}

/// Returns whether the worker exited as ordered. If its template ended first (a reload in place), the exit
/// code is unknown, and closed links are the only sign.
pub(crate) fn finished(exit: &WorkerExit) -> bool {
    exit.cause == Cause::Ordered && !exit.killed && matches!(exit.status, None | Some(ExitStatus::Exit(0)))
}

/// Returns whether the kernel may have killed the worker, because the server did not.
pub(crate) fn may_be_the_kernels(exit: &WorkerExit) -> bool {
    matches!(exit.cause, Cause::Crashed | Cause::Ordered)
        && !exit.killed
        && matches!(exit.status, None | Some(ExitStatus::Signal(9)))
}

/// Describes how a worker ended, before the requests that it was serving are known.
pub(crate) fn describe(exit: &WorkerExit, worker_timeout: Option<Duration>) -> String {
    let facts = DeathFacts {
        exit,
        recycled: None,
        requests: 0,
        memory: Memory::default(),
        oom: OomCount::default(),
        stuck: &[],
        served: Vec::new(),
        traces: &[],
        worker_timeout,
        noticed: exit.forked,
        flight: (Flight::default(), 0),
    };
    format!("worker {} (pid {}) {}", exit.index, exit.pid, facts.how())
}

impl DeathFacts<'_> {
    pub(crate) fn record(mut self, at: SystemTime) -> Death {
        self.served.sort_by_key(|request| std::cmp::Reverse(request.age));
        let text = self.sentence();
        let cause = self.cause();
        // The oldest may have held the worker up, and the newest may have killed it.
        let ends = |at: &usize| *at < SHOWN / 2 || *at + SHOWN / 2 >= self.served.len();
        let in_flight =
            (0..self.served.len()).filter(ends).map(|at| self.request(&self.served[at])).collect();
        let WorkerExit { index, pid, generation, status, peak_kib, .. } = *self.exit;
        Death {
            // Known when it is added.
            number: 0,
            at,
            worker: index,
            pid,
            generation,
            age_s: (self.age().as_secs_f64() * 1e3).round() / 1e3,
            requests: self.requests,
            cause,
            exit_code: status
                .and_then(|status| if let ExitStatus::Exit(code) = status { Some(code) } else { None }),
            signal: status.and_then(|status| if let ExitStatus::Signal(n) = status { Some(n) } else { None }),
            peak_rss_bytes: peak_kib * 1024,
            rss_bytes: self.memory.rss(),
            pss_bytes: self.memory.pss(),
            oom_kills_before: self.oom.before,
            oom_kills_after: self.oom.after,
            in_flight,
            // Known when it is listed.
            kept: 0,
            seconds: self.seconds(),
            events: self.events(),
            text,
        }
    }

    fn seconds(&self) -> Vec<FlightSecond> {
        let (flight, now_us) = &self.flight;
        let second = |one: &recorder::Second| {
            Some(FlightSecond {
                ago_s: (now_us / 1_000_000).checked_sub(one.second)?,
                begun: one.begun,
                ended: one.ended,
                failed: one.failed,
                collections: one.collections,
                rss_bytes: u64::from(one.rss_kib) * 1024,
                busy_ms: one.busy_ms,
            })
        };
        flight.seconds.iter().filter_map(second).filter(|one| one.ago_s <= MINUTE_S).collect()
    }

    fn events(&self) -> Vec<FlightEvent> {
        let (flight, now_us) = &self.flight;
        let event = |one: &recorder::Event| {
            // A time to come cannot be that of an event.
            let ago_us = now_us.checked_sub(one.at_us)?;
            let ends = matches!(one.kind, EventKind::End | EventKind::Fail);
            let name = match one.kind {
                EventKind::Begin => "begin",
                EventKind::End => "end",
                EventKind::Fail => "fail",
                EventKind::Told => "told",
                EventKind::Raised => "raised",
            };
            let begins = one.kind == EventKind::Begin;
            Some(FlightEvent {
                ago_ms: ago_us as f64 / 1e3,
                event: name.to_owned(),
                thread: one.thread,
                // Paths come from clients.
                text: printable(&one.text),
                took_ms: ends.then_some(one.values[0] as f64 / 1e3),
                queued_ms: begins.then_some(one.values[0] as f64 / 1e3),
                status: (one.status > 0).then_some(one.status),
                collections: if ends { one.values[1] } else { 0 },
            })
        };
        let last = flight.events.len().saturating_sub(EVENTS);
        let recent = |one: &FlightEvent| one.ago_ms <= MINUTE_S as f64 * 1e3;
        flight.events[last..].iter().filter_map(event).filter(recent).collect()
    }

    fn age(&self) -> Duration {
        self.noticed.saturating_duration_since(self.exit.forked)
    }

    fn cause(&self) -> DeathCause {
        let kernel = may_be_the_kernels(self.exit) && self.oom.is_kill();
        let told = self.recycled.map_or(DeathCause::Drain, |(cause, _)| cause);
        match (self.exit.cause, self.exit.status) {
            _ if kernel => DeathCause::OutOfMemory,
            (Cause::Ordered, Some(ExitStatus::Signal(_))) if !self.exit.killed => DeathCause::Signal,
            (Cause::Ordered, _) => told,
            (Cause::Crashed, Some(ExitStatus::Exit(_))) => DeathCause::Exit,
            (Cause::Crashed, Some(ExitStatus::Signal(_))) => DeathCause::Signal,
            (Cause::Crashed, None) => DeathCause::Unknown,
            (Cause::Stuck, _) => DeathCause::Timeout,
            (Cause::Frozen, _) => DeathCause::Frozen,
            (Cause::SlowBoot, _) => DeathCause::BootTimeout,
            (Cause::SlowDrain, _) => DeathCause::DrainTimeout,
        }
    }

    fn backtrace(&self, request: &Served) -> Option<&[String]> {
        let is_it = |trace: &&Trace| trace.link == u32::from(request.link) && trace.id == request.id;
        self.traces.iter().find(is_it).map(|trace| trace.lines.as_slice())
    }

    fn request(&self, request: &Served) -> DeathRequest {
        DeathRequest {
            method: request.method.clone(),
            path: shortened(&request.path, LONGEST_PATH),
            age_ms: request.age.as_millis() as f64,
            answered: request.answered,
            backtrace: self
                .backtrace(request)
                .map(|lines| lines.iter().take(LINES).map(|line| shortened(line, LONGEST_LINE)).collect()),
        }
    }

    fn sentence(&self) -> String {
        let WorkerExit { index, pid, peak_kib, wait, .. } = self.exit;
        let mut text = format!("worker {index} (pid {pid}) {}", self.how());
        text += &format!("; it was {} old and had finished {} requests", span(self.age()), self.requests);
        if *peak_kib > 0 {
            text += &format!("; peak memory {}", mebibytes(peak_kib * 1024));
        }
        if let (Some(rss), Some(pss)) = (self.memory.rss(), self.memory.pss()) {
            text += &format!(", last measured: RSS {}, PSS {}", mebibytes(rss), mebibytes(pss));
        }
        let failed: Vec<String> = self
            .served
            .iter()
            .filter(|request| request.failed)
            .take(SHOWN)
            .map(|one| self.serving(one))
            .collect();
        if !failed.is_empty() {
            text += &format!("; it was serving {}", failed.join(", "));
        }
        match self.served.iter().filter(|request| request.failed).count() - failed.len() {
            0 => {}
            more => text += &format!(" and {more} more"),
        }
        if let Some(wait) = wait {
            text += &format!("; the next one is tried in {:.1} s", wait.as_secs_f64());
        }
        text
    }

    fn serving(&self, request: &Served) -> String {
        let at = self.backtrace(request).and_then(<[String]>::first);
        let at =
            at.map(|line| format!(", last seen at {}", shortened(line, LONGEST_LINE))).unwrap_or_default();
        format!(
            "{} {} (for {}{at})",
            request.method,
            shortened(&request.target, LONGEST_PATH),
            span(request.age)
        )
    }

    fn how(&self) -> String {
        let exit = self.exit;
        let status = || exit.status.map_or("exit status unknown".to_owned(), |status| status.to_string());
        let told = self.recycled.map(|(_, why)| why);
        match (exit.cause, self.cause()) {
            (_, DeathCause::OutOfMemory) => "was killed by the kernel because memory ran out".to_owned(),
            (_, DeathCause::Signal)
                if exit.status == Some(ExitStatus::Signal(9)) && self.oom.after.is_some() =>
            {
                "died: signal 9 (KILL), sent by a process and not because memory ran out".to_owned()
            }
            (_, DeathCause::Signal) => format!("died: {}", status()),
            (Cause::Ordered, _) => {
                let why = told.map_or(" as ordered".to_owned(), |why| format!(", {why}"));
                if exit.killed {
                    format!("was killed{why}")
                } else if self.served.iter().any(|request| request.failed) {
                    format!("exited{why}, but with unanswered requests: {}", status())
                } else if finished(exit) {
                    told.map_or("exited as ordered".to_owned(), |why| format!("finished, {why}"))
                } else {
                    format!("exited{why}: {}", status())
                }
            }
            (Cause::Crashed, _) => format!("died: {}", status()),
            (Cause::Stuck, _) => {
                let seconds = self.worker_timeout.map_or(0.0, |timeout| timeout.as_secs_f64());
                let stuck = self.stuck;
                let requests =
                    if stuck.is_empty() { String::new() } else { format!(" by {}", stuck.join(", ")) };
                let end = if exit.killed { "killed".to_owned() } else { format!("ended: {}", status()) };
                format!("was stuck for more than timeouts.worker ({seconds} s){requests} and was {end}")
            }
            (Cause::Frozen, _) => "took up no requests and was killed".to_owned(),
            (Cause::SlowBoot, _) => "did not get ready within timeouts.worker_boot and was killed".to_owned(),
            (Cause::SlowDrain, _) => {
                let why = told.map(|why| format!(", {why},")).unwrap_or_default();
                format!("did not finish within timeouts.shutdown{why} and was killed")
            }
        }
    }
}

/// Escapes control characters.
fn printable(text: &str) -> String {
    let escaped = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Formats a number of bytes.
pub(crate) fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Formats a duration, with a decimal if it is short: `0.3 s`, `12 s`, `3 h 20 min`.
pub(crate) fn span(time: Duration) -> String {
    if time.as_secs() < 10 { format!("{:.1} s", time.as_secs_f64()) } else { text::people::span(time) }
}

#[cfg(test)]
#[path = "deaths_tests.rs"]
mod tests;
