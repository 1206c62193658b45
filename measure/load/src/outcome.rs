//! The result of a run: counts, histograms, one record per second. Plain data that can be serialized and merged.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;
use crate::recorded::Compared;

/// The result of a run, without the warm-up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The start of the counted part, RFC 3339 in UTC.
    pub started_at: String,
    /// The length of the counted part in seconds: the time in which requests could be started, or the time up
    /// to the last response or error if that came later or there was no time limit.
    pub seconds: f64,
    /// Started requests.
    pub sent: u64,
    /// Complete responses that passed the checks.
    pub ok: u64,
    /// Complete responses by status, whether or not they passed the checks.
    pub statuses: BTreeMap<u16, u64>,
    /// Errors; each request counts once.
    pub errors: Errors,
    /// Opened connections.
    pub connections: u64,
    /// Open models: requests that were due while all connections were in use.
    #[serde(default)]
    pub crowded: u64,
    /// Bytes on the wire.
    pub bytes: Bytes,
    /// Time from the intended send time to the end of the response; microseconds; successful responses only.
    pub latency: Histogram,
    /// Time from the actual send time; differs from `latency` only in open models that fell behind.
    pub service: Histogram,
    /// Closed models: `latency` corrected for coordinated omission, as users who do not wait for each other would have
    /// seen it (requests that a stall delayed are filled in at intervals of `expected_interval_us`).
    pub corrected: Option<Histogram>,
    /// The interval that `corrected` assumes.
    pub expected_interval_us: u64,
    /// Time to open a connection, including TLS.
    pub connect: Histogram,
    /// TLS handshakes; `None` without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handshakes: Option<Handshakes>,
    /// Time from the actual send time to the first byte of the response.
    pub first_byte: Histogram,
    /// One record per second.
    pub course: Vec<Second>,
    /// The server's own timings; `None` if no response reported them.
    pub stages: Option<Stages>,
    /// CPU time of the load generator.
    pub cpu_seconds: f64,
    /// `cpu_seconds` divided by the CPU time available to its threads. Near 1, the load generator was the bottleneck.
    pub busy: f64,
    /// One entry per kind of request, if there is more than one.
    pub requests: Vec<RequestOutcome>,
    /// Journeys, if the run has them; `requests` are then their steps, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journeys: Option<RequestOutcome>,
    /// A replay of a recording: comparisons with the recorded responses, by route or path; `requests` has the same groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<Compared>,
    /// Facts about the server from the first successful response.
    pub server: ServerInfo,
}

/// TLS handshakes of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Handshakes {
    /// Handshakes with a certificate.
    pub full: u64,
    /// Handshakes that used a ticket or session of an earlier connection.
    pub resumed: u64,
    /// Handshakes of both kinds that ended in the counted part; connections may be opened before it.
    pub counted: u64,
    /// Time from the client's first message until requests can be sent; microseconds; without the TCP connection.
    pub took: Histogram,
    /// Version and cipher suite, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`, with their counts.
    pub suites: BTreeMap<String, u64>,
    /// Failed handshakes by reason; the first distinct reasons only.
    pub failed: BTreeMap<String, u64>,
}

impl Handshakes {
    /// Returns the number of successful handshakes.
    pub fn complete(&self) -> u64 {
        self.full + self.resumed
    }

    /// Returns the number of failed handshakes.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    /// No connection (refused, unreachable, name unknown, TLS failed).
    pub connect: u64,
    /// No connection in time.
    pub connect_timeout: u64,
    /// The connection broke while a request was sent.
    pub write: u64,
    /// The connection broke, or sent invalid data, before the response was complete.
    pub read: u64,
    /// No complete response in time.
    pub timeout: u64,
    /// Complete response, unexpected status.
    pub status: u64,
    /// Complete response, unexpected length.
    pub length: u64,
    /// Complete response, unexpected body (hash, regular expression).
    pub body: u64,
    /// In flight when the run ended, and not completed within the grace period.
    pub cut_off: u64,
    /// Due in an open model and never sent, because no connection was free before the end.
    pub unsent: u64,
    /// The first distinct error texts, with their counts.
    pub texts: BTreeMap<String, u64>,
}

/// Bytes on the wire: inside TLS; with HTTP/3 the payload of UDP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bytes {
    pub sent: u64,
    pub received: u64,
    /// Received as bodies, without transfer coding.
    pub bodies: u64,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Second {
    /// Requests that were due or started.
    pub sent: u64,
    /// Successful responses.
    pub ok: u64,
    /// Failed requests.
    pub errors: u64,
    /// Percentiles and maximum of `latency`, microseconds; 0 without responses.
    pub p50: u64,
    pub p95: u64,
    pub p99: u64,
    pub max: u64,
    /// Distribution of `latency`: the longest duration of a band (see [`crate::bands`]) in microseconds and its count,
    /// in order, without empty bands. The percentiles above are computed from it, to within 1.6 %.
    #[serde(default)]
    pub spread: Vec<(u64, u64)>,
}

/// One kind of request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RequestOutcome {
    /// A name such as `GET http://127.0.0.1:9292/a`.
    pub name: String,
    /// Successful responses.
    pub ok: u64,
    /// Failed requests.
    pub errors: u64,
    /// Latency of successful responses.
    pub latency: Histogram,
}

/// The server's own timings, joined with the latencies request by request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stages {
    /// Responses with timings.
    #[serde(rename = "told")]
    pub reported: u64,
    /// Sums over responses of similar latency, by increasing `upto_us`. Fine enough to compute any percentile.
    pub bands: Vec<Band>,
}

/// Responses of similar latency; sums in microseconds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Band {
    /// The highest latency of the band.
    pub upto_us: u64,
    /// Responses with timings.
    pub count: u64,
    /// Latency at the client.
    pub latency: u64,
    /// Part of `latency`: waiting to be sent (in an open model that fell behind).
    pub unsent: u64,
    /// Part of `latency`: waiting for a worker.
    pub queue: u64,
    /// Part of `latency`: in the app (CPU and waits).
    pub app: u64,
    /// Part of `app`: on a CPU; and the number of responses that reported it.
    pub cpu: (u64, u64),
    /// Part of `app`: waiting for the GVL; and the number of responses that reported it.
    pub gvl: (u64, u64),
}

/// Facts about the server from a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServerInfo {
    /// The `Server` field.
    pub software: Option<String>,
    /// `HTTP/1.1`, `HTTP/2`, `HTTP/3`.
    pub protocol: String,
    /// Version and cipher, such as `TLSv1.3 TLS13_AES_256_GCM_SHA384`.
    pub tls: Option<String>,
    /// Body length of the first successful response.
    pub length: u64,
}
