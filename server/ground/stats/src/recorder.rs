//! The counters of one front thread.

use crate::durations::Durations;
use crate::figures::Merged;
use crate::finished::Finished;
use crate::handshakes::{Handshake, Handshakes};
use crate::route::RoutesSnapshot;
use crate::routes::{Routes, merged};
use crate::totals::{ConnectionCells, ConnectionCounts, FaultCounts, RequestCounts};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request was invalid.
    Client,
    /// The app or its worker failed.
    App,
    /// The server has reached one of its limits.
    Server,
}

/// The counters of one thread. Clones share the same counters: the thread keeps one, and snapshots are taken
/// of another.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    connections: ConnectionCells,
    counted: Mutex<RequestTotals>,
    handshakes: Mutex<Handshakes>,
}

#[derive(Debug, Default)]
pub(crate) struct RequestTotals {
    pub requests: RequestCounts,
    pub failures: FaultCounts,
    pub body_bytes: u64,
    /// Queue, app, total, processor time, GVL.
    pub times: [Durations; 5],
    pub routes: Routes,
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Recorder);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.0.connections.open.fetch_sub(1, Relaxed);
    }
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Counts an accepted connection. It counts as open until the guard is dropped.
    #[must_use = "the connection counts as closed as soon as the guard is dropped"]
    pub fn connection(&self) -> OpenConnection {
        self.0.connections.accepted.fetch_add(1, Relaxed);
        self.0.connections.open.fetch_add(1, Relaxed);
        OpenConnection(self.clone())
    }

    /// Counts a connection that is closed to make room for another one.
    pub fn displaced(&self) {
        self.0.connections.displaced.fetch_add(1, Relaxed);
    }

    /// Counts a connection that is refused because its address has too many.
    pub fn refused_address(&self) {
        self.0.connections.refused_of_address.fetch_add(1, Relaxed);
    }

    /// Counts a request that has ended. Returns whether it is an example of its route, one of a few.
    #[inline]
    pub fn finished(&self, request: &Finished<'_>) -> bool {
        self.counted().finished(request)
    }

    /// Sets the most routes that are counted by themselves (`stats.routes`); 0: none is.
    pub fn count_routes(&self, most: usize) {
        self.counted().routes.set_limit(most);
    }

    /// Returns the figures by route, of all threads. Each is locked while its routes are copied: up to 2.5 KiB each.
    pub fn routes<'a>(all: impl IntoIterator<Item = &'a Recorder>) -> RoutesSnapshot {
        merged(all.into_iter().map(|one| one.counted().routes.clone()))
    }

    /// Forgets the figures by route.
    pub fn reset_routes(&self) {
        self.counted().routes.reset();
    }

    pub fn failed(&self, fault: Fault) {
        let failures = &mut self.counted().failures;
        *match fault {
            Fault::Client => &mut failures.client,
            Fault::App => &mut failures.app,
            Fault::Server => &mut failures.server,
        } += 1;
    }

    /// Counts a complete TLS handshake.
    pub fn handshake(&self, handshake: &Handshake) {
        self.with_handshakes(|counted| counted.complete(handshake));
    }

    /// Counts a failed TLS handshake.
    pub fn handshake_failed(&self, reason: &'static str) {
        self.with_handshakes(|counted| counted.fail(reason));
    }

    pub(crate) fn handshakes(&self) -> Handshakes {
        self.with_handshakes(|counted| counted.clone())
    }

    fn with_handshakes<T>(&self, work: impl FnOnce(&mut Handshakes) -> T) -> T {
        work(&mut self.0.handshakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the counts of connections.
    pub(crate) fn connections(&self) -> ConnectionCounts {
        self.0.connections.load()
    }

    /// Locks the counters. Each counter is valid by itself, so a panic elsewhere leaves them usable.
    pub(crate) fn counted(&self) -> MutexGuard<'_, RequestTotals> {
        self.0.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RequestTotals {
    pub(crate) fn add(&mut self, other: &RequestTotals) {
        self.requests.add(&other.requests);
        self.failures.add(&other.failures);
        self.body_bytes = self.body_bytes.saturating_add(other.body_bytes);
        self.times.iter_mut().zip(&other.times).for_each(|(sum, times)| sum.add(times));
    }

    #[inline]
    fn finished(&mut self, request: &Finished<'_>) -> bool {
        let counts = &mut self.requests;
        counts.total += 1;
        counts.hijacked += u64::from(request.hijacked);
        match request.status {
            0 if request.hijacked => {}
            0 => counts.client_gone += 1,
            100..200 => counts.informational += 1,
            200..300 => counts.successful += 1,
            300..400 => counts.redirected += 1,
            400..500 => counts.client_errors += 1,
            500..600 => counts.server_errors += 1,
            _ => {}
        }
        self.body_bytes = self.body_bytes.saturating_add(request.body_bytes);
        let is_example = self.routes.finished(request);
        // The slow ones that are measured, too, would bias the histograms.
        let sampled = |us: Option<u32>| us.filter(|_| request.sampled);
        let (queue, app) = (request.queue_us, request.app_us);
        let [cpu, gvl] = [request.cpu_us, request.gvl_us].map(sampled);
        let total = (!request.hijacked).then_some(request.total_us);
        let times = [queue.map(u64::from), app.map(u64::from), total, cpu.map(u64::from), gvl.map(u64::from)];
        for (durations, us) in self.times.iter_mut().zip(times) {
            us.into_iter().for_each(|us| durations.record(us));
        }
        is_example
    }
}
