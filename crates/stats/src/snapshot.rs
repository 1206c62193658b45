//! One snapshot of all front threads' counters.

use crate::durations::DurationSummary;
use crate::recorder::{Counted, Recorder};
use serde::{Deserialize, Serialize};

/// What the front threads have counted together since the server started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Requests that are over.
    pub requests: RequestCounts,
    /// Failures by whose fault they were.
    pub failures: FaultCounts,
    /// Connections.
    pub connections: ConnectionCounts,
    /// Response body bytes sent.
    pub sent_body_bytes: u64,
    /// Waiting for a worker, of requests that went to the app; milliseconds.
    pub queue_ms: DurationSummary,
    /// In the app; milliseconds.
    pub app_ms: DurationSummary,
    /// From the first byte of a request to the last of its response; milliseconds.
    pub total_ms: DurationSummary,
    /// Processor time of the app's threads, of the requests that were measured; milliseconds.
    #[serde(default)]
    pub app_cpu_ms: DurationSummary,
    /// Waiting for Ruby's global lock (GVL), of the requests that were measured; milliseconds. Nothing before Ruby 3.2.
    #[serde(default)]
    pub gvl_ms: DurationSummary,
}

/// Requests by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCounts {
    /// All of them.
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
    /// The client left before there was a response (499 in the access log); not part of `4xx`.
    pub client_gone: u64,
    /// Connections taken over by the app; those that began with a response are in its class, too.
    pub hijacked: u64,
}

/// Failures by whose fault they were.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultCounts {
    /// The request was wrong.
    pub client: u64,
    /// The app or its worker broke.
    pub app: u64,
    /// A limit of our own.
    pub server: u64,
}

/// Connections of clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounts {
    /// Accepted since the start.
    pub accepted: u64,
    /// Open now.
    pub open: u64,
    /// Closed to make room for others, since the start.
    #[serde(default)]
    pub displaced: u64,
    /// Refused because their addresses had too many, since the start.
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
    /// The sum of what `recorders` have counted so far. Each is locked for some microseconds.
    pub fn of<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Snapshot {
        let (mut sum, mut connections) = (Counted::default(), ConnectionCounts::default());
        for recorder in recorders {
            sum.add(&recorder.counted());
            connections.add(&recorder.connections());
        }
        sum.snapshot(connections)
    }

    /// The same without the histograms' buckets.
    pub fn without_buckets(mut self) -> Snapshot {
        self.summaries().for_each(|summary| summary.buckets.clear());
        self
    }

    /// The same with few buckets instead of fine ones.
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
