//! What came back: counts, histograms, the course of time. Plain data that can be written, read again and merged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// Everything that was seen during a run (the warm-up left out).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// When the counted part began, RFC 3339 in UTC.
    pub started_at: String,
    /// Length of the counted part in seconds: as long as requests could begin, or up to the last answer or error when that
    /// came later or there was no such limit.
    pub seconds: f64,
    /// Requests begun.
    pub sent: u64,
    /// Whole answers that passed the checks.
    pub ok: u64,
    /// Whole answers by status, right or wrong.
    pub statuses: BTreeMap<u16, u64>,
    /// What went wrong; a request counts once.
    pub errors: Errors,
    /// Connections opened.
    pub connections: u64,
    /// Bytes.
    pub bytes: Bytes,
    /// From the intended send time to the end of the answer; microseconds; of right answers.
    pub latency: Histogram,
    /// From the actual send time; the same as `latency` but for open models that fell behind.
    pub service: Histogram,
    /// Closed models: `latency` as users would have seen it who do not wait for each other (what a stall kept from being
    /// sent is filled in, at the distance `expected_interval_us`).
    pub corrected: Option<Histogram>,
    /// The distance that `corrected` assumes.
    pub expected_interval_us: u64,
    /// Opening a connection, TLS included.
    pub connect: Histogram,
    /// From the actual send time to the first byte of the answer.
    pub first_byte: Histogram,
    /// Second by second.
    pub course: Vec<Second>,
    /// Where the time went, as the server tells it: `None` when no answer told.
    pub stages: Option<Stages>,
    /// CPU time of the load generator.
    pub cpu_seconds: f64,
    /// `cpu_seconds` over what its threads could have used: near 1 the load generator was the limit.
    pub busy: f64,
    /// Each kind of request; as many as the plan's when there is more than one.
    pub requests: Vec<RequestOutcome>,
    /// First bytes of the first answer, for those who print what they talked to.
    pub server: Seen,
}

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// No connection (refused, unreachable, name unknown, TLS failed).
    pub connect: u64,
    /// No connection in time.
    pub connect_timeout: u64,
    /// The connection broke while a request was sent.
    pub write: u64,
    /// It broke, or nonsense came, before the answer was whole.
    pub read: u64,
    /// No whole answer in time.
    pub timeout: u64,
    /// Whole, but a wrong status.
    pub status: u64,
    /// Whole, but a wrong length.
    pub length: u64,
    /// Whole, but a wrong body (hash, regular expression).
    pub body: u64,
    /// Under way when the run ended and not answered within the grace.
    pub cut_off: u64,
    /// Due in an open model and never sent, because no connection was free before the end.
    pub unsent: u64,
    /// The first few texts of errors, with how often each came.
    pub texts: BTreeMap<String, u64>,
}

/// Bytes as the sockets saw them (inside TLS).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    /// Sent.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// Received as bodies, transfer coding not counted.
    pub bodies: u64,
}

/// One second of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Second {
    /// Requests that were due or begun.
    pub sent: u64,
    /// Right answers.
    pub ok: u64,
    /// Wrong or missing ones.
    pub errors: u64,
    /// Percentiles and maximum of `latency`, microseconds; 0 without answers.
    pub p50: u64,
    /// 95th.
    pub p95: u64,
    /// 99th.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// How `latency` was spread: the longest of a band (see [`crate::bands`]) in microseconds and how many were in it, in
    /// order, bands without any left out. The percentiles above come from it, to within 1.6 %.
    #[serde(default)]
    pub spread: Vec<(u64, u64)>,
}

/// One kind of request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// Such as `GET http://127.0.0.1:9292/a`.
    pub name: String,
    /// Right answers.
    pub ok: u64,
    /// Wrong or missing ones.
    pub errors: u64,
    /// Of right answers.
    pub latency: Histogram,
}

/// The server's own account, joined request by request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stages {
    /// Answers that told.
    pub told: u64,
    /// Sums over answers of like latency; their `upto_us` increases. Fine enough to read any percentile from.
    pub bands: Vec<Band>,
}

/// Answers of like latency. Sums in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Band {
    /// Latencies up to this one, above that of the band before.
    pub upto_us: u64,
    /// How many told.
    pub count: u64,
    /// Latency as the client saw it.
    pub latency: u64,
    /// Of which: waiting to be sent (open model that fell behind).
    pub unsent: u64,
    /// Of which: waiting for a worker.
    pub queue: u64,
    /// Of which: in the app (its CPU and waits included).
    pub app: u64,
    /// Of `app`: running on a CPU; together with how many answers told it.
    pub cpu: (u64, u64),
    /// Of `app`: waiting for the GVL; together with how many answers told it.
    pub gvl: (u64, u64),
}

/// What the server looks like.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seen {
    /// Its `Server` field.
    pub software: Option<String>,
    /// `HTTP/1.1`, `HTTP/2`.
    pub protocol: String,
    /// Cipher and version, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<String>,
    /// Body length of the first right answer.
    pub length: u64,
}
