//! What the connections of a thread share: handler, limits, clocks, buffers, and whether they are to end.

use crate::date::DateCache;
use crate::h1::Output;
use crate::{Limits, Timers};
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Instant, SystemTime};

/// Bytes taken from a socket at a time.
const SCRATCH: usize = 64 << 10;
/// A write buffer that has grown beyond this is not kept.
const KEPT_OUTPUT: usize = 32 << 10;
/// So many write buffers are kept: as many as responses leave together.
const KEPT_OUTPUTS: usize = 64;
/// One in so many responses looks for others while there are none.
const ALONE: u32 = 16;
/// So many meet nobody before it is believed that there are none.
const COMPANY: u32 = 8;

/// How many connections there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Connections {
    /// All that are open.
    pub open: usize,
    /// Those that wait for a request, or for their end.
    pub idle: usize,
    /// Those with a request under way, tunnels among them.
    pub active: usize,
    /// Those that were taken over or upgraded: they end when their ends do, not after a response.
    pub tunnels: usize,
}

/// What the connections of one thread share.
pub struct Context<H> {
    /// Who answers.
    pub handler: H,
    pub(crate) shared: Rc<Shared>,
}

impl<H> Context<H> {
    /// A context whose `timers` are run by the caller on the same thread.
    pub fn new(handler: H, limits: Limits, timers: Rc<Timers>) -> Rc<Context<H>> {
        let shared = Shared {
            limits,
            timers,
            date: DateCache::new(),
            draining: Cell::new(false),
            open: Cell::new(0),
            active: Cell::new(0),
            tunnels: Cell::new(0),
            scratch: RefCell::new(vec![0; SCRATCH]),
            outputs: RefCell::default(),
            answered: Cell::new(0),
            company: Cell::new(0),
        };
        Rc::new(Context { handler, shared: Rc::new(shared) })
    }

    /// From now on idle connections close, and the others after the response they are at.
    pub fn drain(&self) {
        self.shared.draining.set(true);
        self.shared.timers.wake_all();
    }

    /// Whether [`Context::drain`] was called.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.get()
    }

    /// How many connections there are now.
    pub fn connections(&self) -> Connections {
        let (open, active) = (self.shared.open.get(), self.shared.active.get());
        Connections { open, idle: open - active, active, tunnels: self.shared.tunnels.get() }
    }

    /// The limits in force.
    pub fn limits(&self) -> &Limits {
        &self.shared.limits
    }
}

/// The part that does not depend on the handler.
pub(crate) struct Shared {
    pub(crate) limits: Limits,
    pub(crate) timers: Rc<Timers>,
    pub(crate) date: DateCache,
    pub(crate) draining: Cell<bool>,
    open: Cell<usize>,
    active: Cell<usize>,
    tunnels: Cell<usize>,
    /// Where bytes from sockets land; borrowed only between two awaits.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Write buffers at rest.
    outputs: RefCell<Vec<Output>>,
    /// Responses so far, and for how many more of them others are believed to be on their way: see [`Shared::gather`].
    answered: Cell<u32>,
    company: Cell<u32>,
}

impl Shared {
    /// A write buffer, warm if there is one.
    pub(crate) fn take_output(&self) -> Output {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives a write buffer back.
    pub(crate) fn keep_output(&self, mut output: Output) {
        let mut outputs = self.outputs.borrow_mut();
        if output.capacity() <= KEPT_OUTPUT && outputs.len() < KEPT_OUTPUTS {
            output.clear();
            outputs.push(output);
        }
    }

    /// Lets the requests that have come together with this one go first, so that their responses leave together.
    ///
    /// Why: a client that sleeps is woken by the first response and finds the others when it looks for them, where each one by
    /// itself would find it asleep again; and the code that answers is not driven out of the caches between two of them. Who is
    /// alone does not wait; whether others are about is tried now and then.
    pub(crate) async fn gather(&self) {
        let before = self.answered.get();
        self.answered.set(before.wrapping_add(1));
        if self.company.get() == 0 && !before.is_multiple_of(ALONE) {
            return;
        }
        let mut others_were_asked = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut others_were_asked, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        let alone = self.answered.get() == before.wrapping_add(1);
        // The last one of many meets nobody either.
        self.company.set(if alone { self.company.get().saturating_sub(1) } else { COMPANY });
    }

    pub(crate) fn wall(&self, now: Instant) -> SystemTime {
        self.timers.wall(now)
    }

    /// Counts a connection as open until the guard is dropped.
    pub(crate) fn count_open(self: &Rc<Shared>) -> Counted {
        Counted::new(self.clone(), |shared| &shared.open)
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

/// One more in a count, for as long as it lives.
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
