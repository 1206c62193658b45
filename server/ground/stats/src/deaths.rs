//! Statistics of the deaths of workers: the response to `GET /deaths`, and the counts by cause.

use crate::counts::{Counts, kinds};
use crate::figures::figures;
use crate::when;
use std::time::SystemTime;

kinds! {
    pub enum DeathCause {
        /// It exited by itself.
        Exit = "exit",
        /// A signal ended it that the server did not send: `kill -9`, or a crash (SEGV, ABRT).
        Signal = "signal",
        /// The kernel killed it because memory ran out: signal 9, and the kernel's counter has grown.
        OutOfMemory = "out_of_memory",
        /// It could not be forked, or ended after its template had died.
        Unknown = "unknown",
        /// A request held it for longer than `timeouts.worker`.
        Timeout = "timeout",
        /// It took up no requests.
        Frozen = "frozen",
        /// It was not ready within `timeouts.worker_boot`.
        BootTimeout = "boot_timeout",
        /// It was ordered to finish and did not within `timeouts.shutdown`.
        DrainTimeout = "drain_timeout",
        /// It exceeded `limits.worker_memory`: replaced, or killed at one and a half times as much
        /// ([workers](workers.md)).
        Memory = "memory",
        /// It had served `limits.max_requests` and was replaced.
        MaxRequests = "max_requests",
        /// It was older than `limits.max_age` and was replaced.
        MaxAge = "max_age",
        /// It finished on request: TERM, TTOU, shutdown of the server, a newer worker.
        Drain = "drain",
    }
}

/// The number of deaths since the start of the server, by cause.
pub type DeathCounts = Counts<DeathCause>;

/// A request that a worker was serving when it died, as the server keeps it for `firebrick deaths --replay`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct KeptRequest {
    /// As sent.
    pub method: String,
    /// The path and query; secrets are masked, bytes that are not ASCII text are escaped.
    pub target: String,
    /// Where secrets are masked: names of fields in lower case, `query`, `body`.
    pub masked: Vec<String>,
    /// The length of the body.
    pub body_bytes: u64,
    /// Whether the body is kept: it is left out if it is too long.
    pub body_kept: bool,
    /// The payload of a REQUEST frame with its body (docs/internals/wire.md), in hexadecimal digits.
    pub payload: String,
}

figures! {
    /// The record of a worker's end.
    pub struct Death {
        /// The number of the record, counted from 1 since the start of the server: the `N` of `--replay N`.
        #[serde(default)]
        number: u64,
        /// When its end was noticed.
        #[serde(with = "when")]
        at: SystemTime,
        /// The number of the worker.
        worker: u32,
        /// Its process id; 0 when it could not be forked.
        pid: u32,
        /// The template that it was forked from; 1 is the first.
        generation: u32,
        /// Seconds since its fork.
        age_s: f64,
        /// Requests that it had finished.
        requests: u64,
        /// See below.
        cause: DeathCause,
        /// The exit status of the process; null if a signal ended it, or if it is unknown.
        exit_code: Option<i32>,
        /// The signal that ended the process, or null.
        signal: Option<i32>,
        /// Its peak resident memory; 0 when unknown.
        peak_rss_bytes: u64,
        /// The last measurement of its resident memory, which is taken every 2 s. Null if the worker ended
        /// before the first.
        rss_bytes: Option<u64>,
        /// The last measurement of its PSS, which is taken once a minute and when it may have crossed
        /// `limits.worker_memory`; or null.
        pss_bytes: Option<u64>,
        /// The kernel's earlier counter of processes that it has killed in the control group because memory
        /// ran out (`oom_kill` in `memory.events`, or `memory.oom_control` of version 1; of the machine if
        /// the group has none). Null if the kernel does not count.
        oom_kills_before: Option<u64>,
        /// The same counter when the worker's end was noticed.
        oom_kills_after: Option<u64>,
        /// Requests that it had started, the oldest first: at most the 5 oldest and the 5 newest.
        in_flight: Vec<DeathRequest> = part,
        /// How many of them are kept for `--replay` ([replay](replay.md)).
        #[serde(default)]
        kept: u64,
        /// Its last minute, by seconds in which it did something, the oldest first. Empty for
        /// workers that do not write the [scoreboard](internals/wire.md#the-flight-recorder).
        #[serde(default)]
        seconds: Vec<FlightSecond> = part,
        /// The last that it did, at most 40 events of its last minute, the oldest first.
        #[serde(default)]
        events: Vec<FlightEvent> = part,
        /// The sentence of the error log.
        text: String,
    }

    /// A second of a worker.
    pub struct FlightSecond {
        /// Seconds before its end was noticed.
        ago_s: u64,
        /// Requests that it began.
        begun: u32,
        /// Requests that it finished.
        ended: u32,
        /// Ended requests in which the app raised.
        failed: u32,
        /// Garbage collections.
        collections: u32,
        /// Its resident memory at the first event of the second; 0 if the system does not tell.
        rss_bytes: u64,
        /// The durations of the finished requests together.
        busy_ms: u32,
    }

    /// An event in the life of a worker.
    pub struct FlightEvent {
        /// Milliseconds before its end was noticed.
        ago_ms: f64,
        /// `begin` or `end` of a request, `fail`: it ended and the app had raised, `raised`: the app raises an exception, or Rails
        /// made an error page of one, `told`: a signal or an order has reached the worker.
        event: String,
        /// The number of the thread.
        thread: u32,
        /// Method and path of a request that begins, without the query, at most 80 bytes; the app's name for the route of
        /// one that ends, or nothing; the class of the exception and the app's line; the signal or the order.
        text: String,
        /// The duration of a request that ends; else null.
        took_ms: Option<f64>,
        /// The time in the queue of a request that begins; else null.
        queued_ms: Option<f64>,
        /// The status of the response to a request that ends, if there was one; else null.
        status: Option<u16>,
        /// Garbage collections of the process since the last request that ended.
        collections: u64,
    }

    /// A request that a worker was serving when it ended.
    pub struct DeathRequest {
        /// As sent.
        method: String,
        /// As sent, without the query. Bytes that are not ASCII text are escaped.
        path: String,
        /// The time since the request was ready for a worker.
        age_ms: f64,
        /// The client had its 504, or the head of the response.
        answered: bool,
        /// The last one that was taken of the request, innermost call first; null when there is none.
        backtrace: Option<Vec<String>>,
    }
}

impl Death {
    /// Returns whether the death was neither ordered nor caused by a limit that replaces workers regularly.
    pub fn is_unexpected(&self) -> bool {
        !matches!(self.cause, DeathCause::Drain | DeathCause::MaxRequests | DeathCause::MaxAge)
    }

    /// Returns the time at which its end was noticed, such as `2026-01-31 12:00:00`, in UTC.
    pub fn when(&self) -> String {
        when::seconds(self.at).replace('T', " ").trim_end_matches('Z').to_owned()
    }
}
