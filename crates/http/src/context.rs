//! What the connections of a thread share: handler, limits, clocks, buffers, and whether they drain.

use crate::date::DateCache;
use crate::room::{Rank, Room, Stage};
use crate::uploads::Uploads;
use h1::HeadLimits;
use net::{Output, Subnet, Timers};
use settings::{Current, Settings};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

/// Bytes taken from a socket at a time: a body of 64 KiB comes together with its head.
const SCRATCH: usize = 128 << 10;
/// Of the write buffers that have grown beyond this, one is kept.
const KEPT_OUTPUT: usize = 32 << 10;
/// A write buffer that has grown beyond this is not kept.
const LARGEST_OUTPUT: usize = 512 << 10;
/// Most write buffers that are kept: as many as responses are sent together.
const KEPT_OUTPUTS: usize = 64;
/// While requests arrive one by one, probe for others once per 16 responses.
const PROBE_EVERY: u32 = 16;
/// Stop yielding after 8 responses that were alone.
const GIVE_UP_AFTER: u32 = 8;

/// How many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// All that are open.
    pub open: usize,
    /// Those without a request in progress.
    pub idle: usize,
    /// Those with a request in progress, tunnels included.
    pub active: usize,
    /// Those that were taken over or upgraded: they do not end with a response.
    pub tunnels: usize,
}

/// What the connections of one thread share.
pub struct Context<H> {
    /// The handler of all requests.
    pub handler: H,
    pub(crate) shared: Rc<Shared>,
}

impl<H> Context<H> {
    /// A context whose `timers` are run by the caller on the same thread. Connections read `settings` anew for each
    /// request and deadline, so they follow what is replaced there.
    pub fn new(handler: H, settings: impl Into<Current>, timers: Rc<Timers>) -> Rc<Context<H>> {
        let shared = Shared {
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

    /// From now on each connection of HTTP/1 ends with its next response (`Connection: close`), and idle ones stay open for it: a client
    /// whose request crosses a close would lose it. Other versions can say that they end without losing anything; they do when
    /// [`Context::drain`] is called.
    pub fn leave(&self) {
        self.shared.leaving.set(true);
    }

    /// Whether [`Context::leave`] was called.
    pub fn is_leaving(&self) -> bool {
        self.shared.leaving.get()
    }

    /// Closes idle connections now, and the others after their current response.
    pub fn drain(&self) {
        self.shared.draining.set(true);
        self.shared.timers.wake_all();
    }

    /// Whether [`Context::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.get()
    }

    /// Closes the connection of this rank that is the first to make room; `false` if there is none. A connection that waits for the server
    /// is of no rank.
    pub fn displace(&self, rank: Rank) -> bool {
        self.shared.displace(rank)
    }

    /// Whether a connection that cannot make room now may soon: its client has paused a moment ago, or its handshake goes on.
    pub fn room_changes_soon(&self) -> bool {
        self.shared.room.changes_soon()
    }

    /// How many connections there are now.
    pub fn connections(&self) -> Connections {
        let (open, active) = (self.shared.open.get(), self.shared.active.get());
        Connections { open, idle: open - active, active, tunnels: self.shared.tunnels.get() }
    }

    /// The settings in force.
    pub fn settings(&self) -> Rc<Settings> {
        self.shared.settings()
    }
}

/// The part that does not depend on the handler.
pub(crate) struct Shared {
    settings: Current,
    pub(crate) timers: Rc<Timers>,
    pub(crate) date: DateCache,
    /// What the connections wait for.
    pub(crate) room: Room,
    /// Request bodies of HTTP/2 that have arrived.
    pub(crate) uploads: Uploads,
    /// Whether connections of HTTP/1 end with their next response.
    pub(crate) leaving: Cell<bool>,
    pub(crate) draining: Cell<bool>,
    open: Cell<usize>,
    active: Cell<usize>,
    tunnels: Cell<usize>,
    /// Connections before HTTP, and whether they are to end.
    pub(crate) arrivals: Cell<usize>,
    pub(crate) arrivals_end: Cell<bool>,
    /// The read buffer; never borrowed across an await.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Write buffers for reuse.
    outputs: RefCell<Vec<Output>>,
    /// One for many responses.
    large_output: Cell<Option<Output>>,
    /// Responses so far; see [`Shared::gather`].
    answered: Cell<u32>,
    /// How many more responses yield to others.
    yielding: Cell<u32>,
}

impl Shared {
    /// The settings in force.
    pub(crate) fn settings(&self) -> Rc<Settings> {
        self.settings.get()
    }

    /// The bounds on request heads in force.
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

    /// A connection that was chosen does not leave: another one makes room in its place.
    pub(crate) fn displace_another(&self) {
        let _ = Rank::ALL.into_iter().any(|rank| self.displace(rank));
    }

    /// Wakes the connection that was chosen, if one was.
    pub(crate) fn wake(&self, chosen: Option<usize>) -> bool {
        chosen.into_iter().for_each(|key| self.timers.wake(key));
        chosen.is_some()
    }

    /// A write buffer, a used one if possible.
    pub(crate) fn take_output(&self) -> Output {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// A write buffer for the responses to many requests: the large one, if it is not in use. Connections use it in turn, so it
    /// stays in the processor's caches.
    pub(crate) fn take_large_output(&self) -> Output {
        self.large_output.take().unwrap_or_else(|| self.take_output())
    }

    /// Gives a write buffer back.
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

    /// Yields once, so that requests that have arrived together are answered before their responses are sent.
    ///
    /// Why: a client that sleeps is woken by the first response and finds the others when it reads, instead of being woken
    /// for each; and the code that answers stays in the processor's caches. A lone request does not yield, except for a
    /// probe now and then.
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
        // The last of many is alone too.
        self.yielding.set(if alone { self.yielding.get().saturating_sub(1) } else { GIVE_UP_AFTER });
    }

    pub(crate) fn wall(&self, now: Instant) -> SystemTime {
        self.timers.wall(now)
    }

    /// Counts a connection of a client at this address as open until the guard is dropped. `key`: its timer's.
    pub(crate) fn open(self: &Rc<Shared>, key: usize, address: Subnet) -> Open {
        self.open.update(|n| n + 1);
        self.room.open(key, address, Stage::Http);
        Open { shared: self.clone(), key }
    }

    /// Counts a connection as a tunnel until the guard is dropped.
    pub(crate) fn count_tunnel(self: &Rc<Shared>) -> Counted {
        Counted::new(self.clone(), |shared| &shared.tunnels)
    }

    /// Counts a connection as active until the guard is dropped.
    pub(crate) fn count_active(self: &Rc<Shared>) -> Counted {
        Counted::new(self.clone(), |shared| &shared.active)
    }
}

/// A connection that is open until this is dropped.
pub(crate) struct Open {
    shared: Rc<Shared>,
    key: usize,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.shared.open.update(|n| n - 1);
        self.shared.room.close(self.key);
    }
}

/// Counts one until it is dropped.
pub(crate) struct Counted {
    shared: Rc<Shared>,
    of: fn(&Shared) -> &Cell<usize>,
}

impl Counted {
    fn new(shared: Rc<Shared>, of: fn(&Shared) -> &Cell<usize>) -> Counted {
        of(&shared).update(|n| n + 1);
        Counted { shared, of }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.of)(&self.shared).update(|n| n - 1);
    }
}
