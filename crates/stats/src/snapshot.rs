//! A snapshot of the counters of all front threads.

use crate::durations::DurationSummary;
use crate::recorder::{Counted, Recorder};
use serde::{Deserialize, Serialize};

/// The sums of all front threads since the start of the server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub requests: RequestCounts,
    /// Failures by the party that caused them.
    pub failures: FaultCounts,
    pub connections: ConnectionCounts,
    /// Response body bytes sent.
    pub sent_body_bytes: u64,
    /// The wait for a worker of requests that went to the app, in milliseconds.
    pub queue_ms: DurationSummary,
    /// The time in the app, in milliseconds.
    pub app_ms: DurationSummary,
    /// The time from the first byte of a request to the last of its response, in milliseconds.
    pub total_ms: DurationSummary,
    /// The processor time of the app's threads, for the measured requests, in milliseconds.
    #[serde(default)]
    pub app_cpu_ms: DurationSummary,
    /// The wait for Ruby's global lock (GVL), for the measured requests, in milliseconds. Empty before Ruby
    /// 3.2.
    #[serde(default)]
    pub gvl_ms: DurationSummary,
}

/// Requests by outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    pub total: u64,
    /// Final status 101.
    #[serde(rename = "1xx")]
    pub informational: u64,
    /// Status 200 to 299.
    #[serde(rename = "2xx")]
    pub successful: u64,
    /// Status 300 to 399.
    #[serde(rename = "3xx")]
    pub redirected: u64,
    /// Status 400 to 499.
    #[serde(rename = "4xx")]
    pub client_errors: u64,
    /// Status 500 to 599.
    #[serde(rename = "5xx")]
    pub server_errors: u64,
    /// The client left before there was a response (499 in the access log). Not part of `4xx`.
    pub client_gone: u64,
    /// Connections that the app took over. Those that began with a response also count in its class.
    pub hijacked: u64,
}

/// Failures by the party that caused them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// The request was invalid.
    pub client: u64,
    /// The app or its worker failed.
    pub app: u64,
    /// The server has reached one of its limits.
    pub server: u64,
}

/// Client connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Accepted since the start.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Closed since the start to make room for others.
    #[serde(default)]
    pub displaced: u64,
    /// Refused since the start because their addresses had too many.
    #[serde(default)]
    pub refused_of_address: u64,
}

impl ConnectionCounts {
    fn add(&mut self, other: &ConnectionCounts) {
        self.accepted += other.accepted;
        self.open += other.open;
        self.displaced += other.displaced;
        self.refused_of_address += other.refused_of_address;
    }
}

impl Snapshot {
    /// Returns the sum of the counters of `recorders`. Each is locked for some microseconds.
    pub fn of<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Snapshot {
        let (mut sum, mut connections) = (Counted::default(), ConnectionCounts::default());
        for recorder in recorders {
            sum.add(&recorder.counted());
            connections.add(&recorder.connections());
        }
        sum.snapshot(connections)
    }

    /// Removes the buckets of the histograms.
    pub fn without_buckets(mut self) -> Snapshot {
        self.summaries().for_each(|summary| summary.buckets.clear());
        self
    }

    /// Replaces the fine buckets by a few coarse ones.
    pub fn with_coarse_buckets(mut self) -> Snapshot {
        self.summaries().for_each(|summary| *summary = std::mem::take(summary).coarse());
        self
    }

    fn summaries(&mut self) -> impl Iterator<Item = &mut DurationSummary> {
        let times = [&mut self.queue_ms, &mut self.app_ms, &mut self.total_ms];
        times.into_iter().chain([&mut self.app_cpu_ms, &mut self.gvl_ms])
    }
}

impl Counted {
    fn add(&mut self, other: &Counted) {
        let pairs = self.classes.iter_mut().zip(other.classes);
        for (sum, count) in pairs.chain(self.faults.iter_mut().zip(other.faults)) {
            *sum += count;
        }
        self.client_gone += other.client_gone;
        self.hijacked += other.hijacked;
        self.requests += other.requests;
        self.body_bytes = self.body_bytes.saturating_add(other.body_bytes);
        self.queue.add(&other.queue);
        self.app.add(&other.app);
        self.total.add(&other.total);
        self.cpu.add(&other.cpu);
        self.gvl.add(&other.gvl);
    }

    fn snapshot(&self, connections: ConnectionCounts) -> Snapshot {
        let [_, informational, successful, redirected, client_errors, server_errors] = self.classes;
        let [client, app, server] = self.faults;
        Snapshot {
            requests: RequestCounts {
                total: self.requests,
                informational,
                successful,
                redirected,
                client_errors,
                server_errors,
                client_gone: self.client_gone,
                hijacked: self.hijacked,
            },
            failures: FaultCounts { client, app, server },
            connections,
            sent_body_bytes: self.body_bytes,
            queue_ms: self.queue.summary(),
            app_ms: self.app.summary(),
            total_ms: self.total.summary(),
            app_cpu_ms: self.cpu.summary(),
            gvl_ms: self.gvl.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::{Fault, Finished};

    #[test]
    fn recorders_add_up() {
        let recorders = [Recorder::new(), Recorder::new()];
        let page = Finished {
            status: 200,
            body_bytes: 10,
            queue_us: Some(5),
            app_us: Some(900),
            cpu_us: Some(100),
            gvl_us: None,
            total_us: 1_000,
            hijacked: false,
        };
        recorders[0].finished(&page);
        recorders[1].finished(&page);
        recorders[1].finished(&Finished { status: 404, total_us: 70, ..Finished::default() });
        recorders[1].failed(Fault::App);
        let snapshot = Snapshot::of(&recorders);
        let requests =
            RequestCounts { total: 3, successful: 2, client_errors: 1, ..RequestCounts::default() };
        assert_eq!(snapshot.requests, requests);
        assert_eq!(snapshot.failures, FaultCounts { client: 0, app: 1, server: 0 });
        assert_eq!(snapshot.sent_body_bytes, 20);
        assert_eq!((snapshot.queue_ms.count, snapshot.app_ms.count, snapshot.total_ms.count), (2, 2, 3));
        assert_eq!((snapshot.app_cpu_ms.count, snapshot.app_cpu_ms.max, snapshot.gvl_ms.count), (2, 0.1, 0));
        assert!(!snapshot.app_ms.buckets.is_empty());
        assert!(snapshot.without_buckets().app_ms.buckets.is_empty());
    }

    #[test]
    fn a_session_has_no_place_among_the_times() {
        let recorder = Recorder::new();
        recorder.finished(&Finished { hijacked: true, total_us: 9_000_000, ..Finished::default() });
        recorder.finished(&Finished {
            hijacked: true,
            status: 101,
            total_us: 9_000_000,
            ..Finished::default()
        });
        recorder.finished(&Finished { total_us: 10, ..Finished::default() });
        let snapshot = Snapshot::of([&recorder]);
        let requests = RequestCounts {
            total: 3,
            informational: 1,
            client_gone: 1,
            hijacked: 2,
            ..RequestCounts::default()
        };
        assert_eq!(snapshot.requests, requests);
        assert_eq!(snapshot.total_ms.count, 1);
    }

    #[test]
    fn connections_close_by_themselves() {
        let recorder = Recorder::new();
        let first = recorder.connection();
        let second = recorder.clone().connection();
        let counts = ConnectionCounts { accepted: 2, open: 2, ..ConnectionCounts::default() };
        assert_eq!(Snapshot::of([&recorder]).connections, counts);
        drop((first, second));
        recorder.displaced();
        recorder.refused_address();
        let counts = ConnectionCounts { accepted: 2, open: 0, displaced: 1, refused_of_address: 1 };
        assert_eq!(Snapshot::of([&recorder]).connections, counts);
    }
}
