//! The counters of one front thread.

use crate::durations::Durations;
use crate::gauge::{Gauge, Held};
use crate::snapshot::ConnectionCounts;
use crate::tls::{Handshake, Handshakes};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
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
    accepted: AtomicU64,
    open: Gauge,
    displaced: AtomicU64,
    refused_of_address: AtomicU64,
    counted: Mutex<Counted>,
    handshakes: Mutex<Handshakes>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Counted {
    pub requests: u64,
    /// By the first digit of the status, 1 to 5. Slot 0 is for values out of range.
    pub classes: [u64; 6],
    pub client_gone: u64,
    pub hijacked: u64,
    pub body_bytes: u64,
    /// In the order of [`Fault`].
    pub faults: [u64; 3],
    pub queue: Durations,
    pub app: Durations,
    pub total: Durations,
    pub cpu: Durations,
    pub gvl: Durations,
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub struct Connection {
    _open: Held,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Counts an accepted connection. It counts as open until the guard is dropped.
    #[must_use = "the connection counts as closed as soon as the guard is dropped"]
    pub fn connection(&self) -> Connection {
        self.0.accepted.fetch_add(1, Relaxed);
        Connection { _open: self.0.open.hold() }
    }

    /// Counts a connection that is closed to make room for another one.
    pub fn displaced(&self) {
        self.0.displaced.fetch_add(1, Relaxed);
    }

    /// Counts a connection that is refused because its address has too many.
    pub fn refused_address(&self) {
        self.0.refused_of_address.fetch_add(1, Relaxed);
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> u64 {
        self.0.open.get()
    }

    /// Counts a request that has ended.
    #[inline]
    pub fn finished(&self, request: &Finished) {
        self.counted().finished(request);
    }

    pub fn failed(&self, fault: Fault) {
        self.counted().faults[fault as usize] += 1;
    }

    /// Counts a complete TLS handshake.
    pub fn handshake(&self, handshake: &Handshake) {
        self.with_handshakes(|counted| counted.complete(handshake));
    }

    /// Counts a failed TLS handshake.
    pub fn handshake_failed(&self, reason: &'static str) {
        self.with_handshakes(|counted| counted.failed(reason));
    }

    pub(crate) fn handshakes(&self) -> Handshakes {
        self.with_handshakes(|counted| counted.clone())
    }

    fn with_handshakes<T>(&self, work: impl FnOnce(&mut Handshakes) -> T) -> T {
        work(&mut self.0.handshakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the counts of connections.
    pub(crate) fn connections(&self) -> ConnectionCounts {
        ConnectionCounts {
            accepted: self.0.accepted.load(Relaxed),
            open: self.open_connections(),
            displaced: self.0.displaced.load(Relaxed),
            refused_of_address: self.0.refused_of_address.load(Relaxed),
        }
    }

    /// Locks the counters. Each counter is valid by itself, so a panic elsewhere leaves them usable.
    pub(crate) fn counted(&self) -> MutexGuard<'_, Counted> {
        self.0.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    #[inline]
    fn finished(&mut self, request: &Finished) {
        self.requests += 1;
        if request.hijacked {
            self.hijacked += 1;
        } else {
            self.total.record(request.total_us);
        }
        match request.status {
            0 if request.hijacked => {}
            0 => self.client_gone += 1,
            status => {
                let class = usize::from(status / 100);
                self.classes[if class < self.classes.len() { class } else { 0 }] += 1;
            }
        }
        self.body_bytes = self.body_bytes.saturating_add(request.body_bytes);
        if let Some(us) = request.queue_us {
            self.queue.record(us.into());
        }
        if let Some(us) = request.app_us {
            self.app.record(us.into());
        }
        if let Some(us) = request.cpu_us {
            self.cpu.record(us.into());
        }
        if let Some(us) = request.gvl_us {
            self.gvl.record(us.into());
        }
    }
}
