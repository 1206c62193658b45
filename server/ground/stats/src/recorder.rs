//! The counters of one front thread.

use crate::durations::Durations;
use crate::figures::Merged;
use crate::handshakes::{Handshake, Handshakes};
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

/// A request that has ended. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished {
    /// The status of the final response; 0 if none was sent because the client had left (counted as 499).
    pub status: u16,
    /// The body bytes sent.
    pub body_bytes: u64,
    /// The wait for a worker; `None` if none was needed (a file, an invalid request).
    pub queue_us: Option<u32>,
    /// The time in the app; `None` if the app was not involved.
    pub app_us: Option<u32>,
    /// The processor time within the app's time; `None` if it was not measured.
    pub cpu_us: Option<u32>,
    /// The app's wait for Ruby's global lock; `None` if it was not measured, or cannot be.
    pub gvl_us: Option<u32>,
    /// The time from the first byte of the request to the last of the response.
    pub total_us: u64,
    /// Set if the connection was taken over. The request is counted as such; its total time, which is that of
    /// a session, is not recorded.
    pub hijacked: bool,
}

/// The counters of one thread. Clones share the same counters: the thread keeps one, and snapshots are taken
/// of another.
#[derive(Debug, Clone, Default)]
pub struct Recorder(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    connections: ConnectionCells,
    counted: Mutex<Counted>,
    handshakes: Mutex<Handshakes>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub requests: RequestCounts,
    pub failures: FaultCounts,
    pub body_bytes: u64,
    /// Queue, app, total, processor time, GVL.
    pub times: [Durations; 5],
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub struct Connection(Recorder);

impl Drop for Connection {
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
    pub fn connection(&self) -> Connection {
        self.0.connections.accepted.fetch_add(1, Relaxed);
        self.0.connections.open.fetch_add(1, Relaxed);
        Connection(self.clone())
    }

    /// Counts a connection that is closed to make room for another one.
    pub fn displaced(&self) {
        self.0.connections.displaced.fetch_add(1, Relaxed);
    }

    /// Counts a connection that is refused because its address has too many.
    pub fn refused_address(&self) {
        self.0.connections.refused_of_address.fetch_add(1, Relaxed);
    }

    /// Counts a request that has ended.
    #[inline]
    pub fn finished(&self, request: &Finished) {
        self.counted().finished(request);
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
    pub(crate) fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    pub(crate) fn add(&mut self, other: &Counted) {
        self.requests.add(&other.requests);
        self.failures.add(&other.failures);
        self.body_bytes = self.body_bytes.saturating_add(other.body_bytes);
        self.times.iter_mut().zip(&other.times).for_each(|(sum, times)| sum.add(times));
    }

    #[inline]
    fn finished(&mut self, request: &Finished) {
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
        let [queue, app, cpu, gvl] = [request.queue_us, request.app_us, request.cpu_us, request.gvl_us];
        let total = (!request.hijacked).then_some(request.total_us);
        let times = [queue.map(u64::from), app.map(u64::from), total, cpu.map(u64::from), gvl.map(u64::from)];
        for (durations, us) in self.times.iter_mut().zip(times) {
            us.into_iter().for_each(|us| durations.record(us));
        }
    }
}
