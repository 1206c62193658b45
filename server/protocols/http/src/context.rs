//! The state that all connections of a thread share: handler, limits, clocks, buffers, and the drain flags.

use crate::date::DateCache;
use crate::room::{Rank, Room, Stage};
use crate::uploads::Uploads;
use h1::HeadLimits;
use net::memory::{self, Level, MemoryClass};
use net::{Output, Subnet, Timers};
use settings::{Current, Settings};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

/// Bytes per read from a socket. Large enough for a body of 64 KiB together with its head.
const SCRATCH: usize = 128 << 10;
/// Bytes per read while memory is scarce: what has been read of a body is held.
const SCARCE_READ: usize = 8 << 10;
/// The minimum memory of an idle connection, in bytes. Memory beyond that (encryption, HTTP/2, HTTP/3) is
/// measured.
const CONNECTION: u64 = 2 << 10;
/// Larger write buffers are not pooled; only one of them is kept.
const KEPT_OUTPUT: usize = 32 << 10;
/// Write buffers beyond this size are freed.
const LARGEST_OUTPUT: usize = 512 << 10;
/// The most pooled write buffers: as many as responses are sent together.
const KEPT_OUTPUTS: usize = 64;
/// While requests arrive one by one, `gather` yields once per 16 responses as a probe.
const PROBE_EVERY: u32 = 16;
/// `gather` stops yielding after 8 responses that were alone.
const GIVE_UP_AFTER: u32 = 8;

/// Counts of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// All open connections.
    pub open: usize,
    /// Connections without a request in progress.
    pub idle: usize,
    /// Connections with a request in progress, tunnels included.
    pub active: usize,
    /// Hijacked or upgraded connections, and connections of HTTP/2 and HTTP/3 that carry nothing but tunnels:
    /// they do not end with a response.
    pub tunnels: usize,
}

/// The shared state of the connections of one thread.
pub struct Context<H> {
    pub handler: H,
    pub(crate) shared: Rc<ThreadShared>,
}

impl<H> Context<H> {
    /// Creates a context. The caller runs `timers` on the same thread. Connections read `settings` for every
    /// request and deadline, so they follow a replacement.
    pub fn new(handler: H, settings: impl Into<Current>, timers: Rc<Timers>) -> Rc<Context<H>> {
        let shared = ThreadShared {
            settings: settings.into(),
            room: Room::new(timers.now()),
            timers,
            date: DateCache::new(),
            uploads: Uploads::default(),
            leaving: Cell::new(false),
            draining: Cell::new(false),
            open: Cell::new(0),
            active: Cell::new(0),
            tunnels: Cell::new(0),
            arrivals: Cell::new(0),
            arrivals_end: Cell::new(false),
            scratch: RefCell::new(vec![0; SCRATCH]),
            outputs: RefCell::default(),
            large_output: Cell::default(),
            answered: Cell::new(0),
            yielding: Cell::new(0),
        };
        Rc::new(Context { handler, shared: Rc::new(shared) })
    }

    /// Makes each HTTP/1 connection end with its next response (`Connection: close`). Idle connections stay
    /// open for that response, because a client whose request crosses a close would lose it. HTTP/2 and
    /// HTTP/3 announce their end without losing requests; they do that on [`Context::drain`].
    pub fn leave(&self) {
        self.shared.leaving.set(true);
    }

    pub fn is_leaving(&self) -> bool {
        self.shared.leaving.get()
    }

    /// Closes idle connections now, and the others after their current response.
    pub fn drain(&self) {
        self.shared.draining.set(true);
        self.shared.timers.wake_all();
    }

    /// Closes the connection of this rank that is first to make room. Returns `false` if there is none. A
    /// connection that waits for the server has no rank.
    pub fn displace(&self, rank: Rank) -> bool {
        self.shared.displace(rank)
    }

    /// Returns whether room may become free soon: a transfer has paused only a moment ago, or a handshake is
    /// still running.
    pub fn room_changes_soon(&self) -> bool {
        self.shared.room.changes_soon()
    }

    pub fn connections(&self) -> Connections {
        let (open, active) = (self.shared.open.get(), self.shared.active.get());
        Connections { open, idle: open - active, active, tunnels: self.shared.tunnels.get() }
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Rc<Settings> {
        self.shared.settings()
    }
}

/// The part of a [`Context`] that does not depend on the handler.
pub(crate) struct ThreadShared {
    settings: Current,
    pub(crate) timers: Rc<Timers>,
    pub(crate) date: DateCache,
    /// Each connection's state, for choosing the one that makes room.
    pub(crate) room: Room,
    /// Counts the buffered bytes of HTTP/2 bodies, and the wide windows of HTTP/3.
    pub(crate) uploads: Uploads,
    /// HTTP/1 connections end with their next response.
    pub(crate) leaving: Cell<bool>,
    pub(crate) draining: Cell<bool>,
    open: Cell<usize>,
    active: Cell<usize>,
    tunnels: Cell<usize>,
    /// The number of connections before HTTP, and whether they must end.
    pub(crate) arrivals: Cell<usize>,
    pub(crate) arrivals_end: Cell<bool>,
    /// The read buffer; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Write buffers for reuse.
    outputs: RefCell<Vec<Output>>,
    /// A large write buffer that connections use in turn.
    large_output: Cell<Option<Output>>,
    /// Responses so far; see [`ThreadShared::gather`].
    answered: Cell<u32>,
    /// How many more responses yield; see [`ThreadShared::gather`].
    yielding: Cell<u32>,
}

impl ThreadShared {
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.settings.get()
    }

    /// Returns the limits on request heads in force.
    pub(crate) fn head_limits(&self) -> HeadLimits {
        let settings = self.settings();
        let limits = &settings.limits;
        HeadLimits {
            max_header_bytes: limits.max_header_bytes,
            max_headers: limits.max_headers,
            max_uri: limits.max_uri,
            allow_underscore_headers: limits.allow_underscore_headers,
        }
    }

    /// See [`Context::displace`].
    pub(crate) fn displace(&self, rank: Rank) -> bool {
        self.wake(self.room.choose(rank, self.timers.now()))
    }

    /// Chooses another connection to make room, in place of a chosen one that stays open.
    pub(crate) fn displace_another(&self) {
        let _ = Rank::ALL.into_iter().any(|rank| self.displace(rank));
    }

    /// Wakes the chosen connection. Returns `false` if none was chosen.
    pub(crate) fn wake(&self, chosen: Option<usize>) -> bool {
        chosen.into_iter().for_each(|key| self.timers.wake(key));
        chosen.is_some()
    }

    /// Returns the bytes that one read may take.
    pub(crate) fn read_size(&self) -> usize {
        if memory::level() >= Level::Waiting { SCARCE_READ } else { SCRATCH }
    }

    /// Returns a write buffer, a used one if possible.
    pub(crate) fn take_output(&self) -> Output {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Returns the large write buffer if it is free, else any other. Connections use the large buffer in
    /// turn, so it stays in the processor's caches.
    pub(crate) fn take_large_output(&self) -> Output {
        self.large_output.take().unwrap_or_else(|| self.take_output())
    }

    /// Returns a write buffer to the pool.
    pub(crate) fn keep_output(&self, mut output: Output) {
        output.clear();
        if output.capacity() <= KEPT_OUTPUT {
            let mut outputs = self.outputs.borrow_mut();
            if outputs.len() < KEPT_OUTPUTS {
                outputs.push(output);
            }
        } else if output.capacity() <= LARGEST_OUTPUT {
            self.large_output.set(Some(output));
        }
    }

    /// Yields once, so that requests that arrived together are all answered before their responses are sent.
    ///
    /// Why: a sleeping client is then woken once and finds all responses, instead of being woken for each;
    /// and the answering code stays in the processor's caches. A lone request does not yield, except for an
    /// occasional probe.
    pub(crate) async fn gather(&self) {
        let before = self.answered.get();
        self.answered.set(before.wrapping_add(1));
        if self.yielding.get() == 0 && !before.is_multiple_of(PROBE_EVERY) {
            return;
        }
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let alone = self.answered.get() == before.wrapping_add(1);
        // The last request of a group looks alone too.
        self.yielding.set(if alone { self.yielding.get().saturating_sub(1) } else { GIVE_UP_AFTER });
    }

    pub(crate) fn wall(&self, now: Instant) -> SystemTime {
        self.timers.wall(now)
    }

    /// Counts a connection from `address` as open until the guard is dropped. `key`: the key of its timer.
    pub(crate) fn open(self: &Rc<ThreadShared>, key: usize, address: Subnet) -> Open {
        self.open.update(|n| n + 1);
        self.room.open(key, address, Stage::Http);
        memory::change(MemoryClass::Connections, 0, CONNECTION);
        Open { shared: self.clone(), key }
    }

    /// Counts a connection as a tunnel until the guard is dropped.
    pub(crate) fn count_tunnel(self: &Rc<ThreadShared>) -> CounterGuard {
        CounterGuard::new(self.clone(), |shared| &shared.tunnels)
    }

    /// Counts a connection as active until the guard is dropped.
    pub(crate) fn count_active(self: &Rc<ThreadShared>) -> CounterGuard {
        CounterGuard::new(self.clone(), |shared| &shared.active)
    }
}

/// A guard: its connection counts as open until it is dropped.
pub(crate) struct Open {
    shared: Rc<ThreadShared>,
    key: usize,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.open.update(|n| n - 1);
        memory::change(MemoryClass::Connections, CONNECTION, 0);
        self.shared.room.close(self.key);
    }
}

/// A guard that adds one to a counter until it is dropped.
pub(crate) struct CounterGuard {
    shared: Rc<ThreadShared>,
    of: fn(&ThreadShared) -> &Cell<usize>,
}

impl CounterGuard {
    fn new(shared: Rc<ThreadShared>, of: fn(&ThreadShared) -> &Cell<usize>) -> CounterGuard {
        of(&shared).update(|n| n + 1);
        CounterGuard { shared, of }
    }
}

impl Drop for CounterGuard {
    fn drop(&mut self) {
        (self.of)(&self.shared).update(|n| n - 1);
    }
}
