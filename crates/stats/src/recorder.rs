//! What one front thread counts.

use crate::durations::Durations;
use crate::gauge::{Gauge, Held};
use crate::snapshot::ConnectionCounts;
use crate::tls::{Handshake, Handshakes};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Whose fault a failure was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The request was wrong.
    Client,
    /// The app or its worker broke.
    App,
    /// A limit of our own.
    Server,
}

/// A request that is over. Times are microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Finished {
    /// Status of the final response; 0 when none was sent because the client had left (counted as 499).
    pub status: u16,
    /// Body bytes sent.
    pub body_bytes: u64,
    /// How long it waited for a worker; `None` when it needed none (a file, a bad request).
    pub queue_us: Option<u32>,
    /// How long the app took; `None` when no app was involved.
    pub app_us: Option<u32>,
    /// Processor time that the app took of that; `None` when it was not measured.
    pub cpu_us: Option<u32>,
    /// How long the app waited for Ruby's global lock; `None` when it was not measured, or cannot be.
    pub gvl_us: Option<u32>,
    /// From its first byte to the last of the response.
    pub total_us: u64,
    /// The connection was taken over: counted as such; its total, the life of a session, is not.
    pub hijacked: bool,
}

/// One thread's counters. Clones are the same recorder: the thread keeps one, snapshots are taken of another.
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
    /// By the first digit of the status, 1 to 5; what is out of range is in slot 0.
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

/// An open connection: counted until it is dropped.
#[derive(Debug)]
pub struct Connection {
    _open: Held,
}

impl Recorder {
    /// A recorder that has counted nothing.
    pub fn new() -> Recorder {
        Recorder::default()
    }

    /// Counts an accepted connection, as open until the guard is dropped.
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

    /// Connections open now.
    pub fn open_connections(&self) -> u64 {
        self.0.open.get()
    }

    /// Counts a request that is over.
    #[inline]
    pub fn finished(&self, request: &Finished) {
        self.counted().finished(request);
    }

    /// Counts a failure.
    pub fn failed(&self, fault: Fault) {
        self.counted().faults[fault as usize] += 1;
    }

    /// Counts a handshake of TLS that is complete.
    pub fn handshake(&self, handshake: &Handshake) {
        self.with_handshakes(|counted| counted.complete(handshake));
    }

    /// Counts a handshake of TLS that came to nothing.
    pub fn handshake_failed(&self, reason: &'static str) {
        self.with_handshakes(|counted| counted.failed(reason));
    }

    pub(crate) fn handshakes(&self) -> Handshakes {
        self.with_handshakes(|counted| counted.clone())
    }

    fn with_handshakes<T>(&self, work: impl FnOnce(&mut Handshakes) -> T) -> T {
        work(&mut self.0.handshakes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What it has counted of connections.
    pub(crate) fn connections(&self) -> ConnectionCounts {
        ConnectionCounts {
            accepted: self.0.accepted.load(Relaxed),
            open: self.open_connections(),
            displaced: self.0.displaced.load(Relaxed),
            refused_of_address: self.0.refused_of_address.load(Relaxed),
        }
    }

    /// The counters, locked. Each is whole by itself, so that a panic elsewhere spoils none of them.
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
