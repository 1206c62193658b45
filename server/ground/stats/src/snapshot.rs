//! A snapshot of the counters of all front threads.

use crate::durations::{DurationSummary, Durations};
use crate::figures::{Merged, figures};
use crate::recorder::{Recorder, RequestTotals};
use crate::totals::{ConnectionCounts, FaultCounts, RequestCounts};

figures! {
    /// The sums of all front threads since the start of the server.
    #[derive(Default)]
    #[serde(default)]
    pub struct Snapshot {
        /// Requests by outcome.
        requests: RequestCounts = part,
        /// Failures by the party that caused them.
        failures: FaultCounts = part,
        /// Client connections.
        connections: ConnectionCounts = part,
        /// Bytes of response bodies, without framing.
        sent_body_bytes: u64 = counter("firebrick_response_body_bytes"; "Bytes of response bodies sent"),
        /// Waiting for a worker; requests that went to one.
        queue_ms: DurationSummary = histogram("firebrick_queue_seconds"; "Waiting for a worker, of requests for the app"),
        /// In the app, as its worker measured it; requests that went to a worker.
        app_ms: DurationSummary = histogram("firebrick_app_seconds"; "In the app"),
        /// From the first byte of the request to the last of the response; all but connections that the app took over.
        total_ms: DurationSummary =
            histogram("firebrick_request_seconds"; "From the first byte of a request to the last of its response"),
        /// CPU time of the thread that served the request; measured requests.
        app_cpu_ms: DurationSummary = histogram(
            "firebrick_app_cpu_seconds"; "Processor time in the app, of the requests that were measured (one in 16)"
        ),
        /// Waiting for Ruby's global lock (GVL) while ready to run; measured requests. None before Ruby 3.2.
        gvl_ms: DurationSummary = histogram(
            "firebrick_gvl_wait_seconds";
            "Waiting for Ruby's global lock, of the requests that were measured; needs Ruby 3.2"
        ),
    }
}

impl Snapshot {
    /// Returns the sum of the counters of `recorders`. Each is locked for some microseconds.
    pub fn of<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Snapshot {
        let (mut sum, mut connections) = (RequestTotals::default(), ConnectionCounts::default());
        for recorder in recorders {
            sum.add(&recorder.counted());
            connections.add(&recorder.connections());
        }
        let [queue_ms, app_ms, total_ms, app_cpu_ms, gvl_ms] = sum.times.each_ref().map(Durations::summary);
        Snapshot {
            requests: sum.requests,
            failures: sum.failures,
            connections,
            sent_body_bytes: sum.body_bytes,
            queue_ms,
            app_ms,
            total_ms,
            app_cpu_ms,
            gvl_ms,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finished::Finished;
    use crate::recorder::Fault;

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
            sampled: true,
            ..Finished::default()
        };
        recorders[0].finished(&page);
        recorders[1].finished(&page);
        recorders[1].finished(&Finished { sampled: false, ..page });
        recorders[1].finished(&Finished { status: 404, total_us: 70, ..Finished::default() });
        recorders[1].failed(Fault::App);
        let snapshot = Snapshot::of(&recorders);
        let requests =
            RequestCounts { total: 4, successful: 3, client_errors: 1, ..RequestCounts::default() };
        assert_eq!(snapshot.requests, requests);
        assert_eq!(snapshot.failures, FaultCounts { client: 0, app: 1, server: 0 });
        assert_eq!(snapshot.sent_body_bytes, 30);
        assert_eq!((snapshot.queue_ms.count, snapshot.app_ms.count, snapshot.total_ms.count), (3, 3, 4));
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
