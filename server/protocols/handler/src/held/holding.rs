//! Counts the resources that one response holds ([`Holding`]), in parts that are counted separately
//! ([`Hold`]), and decides which responses of the thread are displaced when there is no room ([`Responses`]).

use super::Amount;
use super::account::Account;
use super::ledger::{CONNECTION_MEMORY, Limits, current};
use net::descriptors;
use net::memory::{self, Level};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// The rate in bytes per second below which a client hardly moves.
const HARDLY: u64 = 1 << 10;
/// A client that hardly moves has stalled if it has not taken any bytes for this long.
const STALLED: Duration = Duration::from_secs(2);
/// A client that has neither taken nor acknowledged a byte for this long has stalled, whatever its rate was: the buffers of the kernels take the
/// beginning of every response at once, and a megabyte in a moment would count as a rate for minutes. A steady reader of 5 kB/s opens its window
/// by 64 KiB, the largest segment, every 13 s.
const SILENT: Duration = Duration::from_secs(15);
/// Acknowledged bytes are compared over at least this time, because connections ask the system for them only
/// now and then.
const COMPARED: Duration = Duration::from_secs(3);
/// A response moves if its client has taken bytes within this time.
const PAUSE: Duration = Duration::from_millis(500);
/// When memory is scarce, responses that hold this part of it are displaced at a time.
const PART: u64 = 8;
/// The interval at which responses that move are checked again for memory.
const AGAIN: Duration = Duration::from_millis(250);

/// The resources that a response holds until its client takes it.
pub struct Holding {
    account: Rc<Account>,
    responses: Rc<Responses>,
    held: Cell<Amount>,
    /// When the client last took some of it, or when it began.
    moved: Cell<Instant>,
    displaced: Cell<bool>,
    wake: Box<dyn Fn()>,
    acknowledged: Box<dyn Fn() -> Option<u64>>,
    /// The number of bytes that the client had acknowledged at the last comparison, and its time.
    compared: Cell<Option<(u64, Instant)>>,
    /// The same number at the last look that found a change, and the time of that look.
    seen: Cell<Option<(Option<u64>, Instant)>>,
    /// Its index in the list of responses, and the number of holdings before it.
    place: Cell<usize>,
    number: Cell<u64>,
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Holding {
    /// Creates the holding of a response on the connection of `account`. `wake` must only make the protocol
    /// check [`Holding::is_displaced`] soon. `acknowledged` returns the number of bytes that the client has
    /// acknowledged on its connection; `None` if that is unknown, or if its window for this response is closed.
    /// A slow client makes room for a write only now and then, although it never stops reading.
    pub fn new(
        account: Rc<Account>,
        wake: impl Fn() + 'static,
        acknowledged: impl Fn() -> Option<u64> + 'static,
    ) -> Rc<Holding> {
        let now = Instant::now();
        let holding = Rc::new(Holding {
            account,
            held: Cell::default(),
            moved: Cell::new(now),
            displaced: Cell::new(false),
            wake: Box::new(wake),
            compared: Cell::new(acknowledged().map(|bytes| (bytes, now))),
            acknowledged: Box::new(acknowledged),
            seen: Cell::new(None),
            place: Cell::new(0),
            number: Cell::new(0),
            responses: of_thread(),
        });
        holding.responses.enter(&holding);
        holding
    }

    /// Holds `amount` until the result is dropped. Another response may be displaced to make room.
    pub fn hold(self: &Rc<Holding>, amount: Amount) -> Hold {
        let hold = Hold { holding: self.clone(), amount: Cell::default() };
        hold.set(amount);
        hold
    }

    /// Records that the client has taken `bytes` bytes.
    pub fn took(&self, bytes: usize, now: Instant) {
        if bytes > 0 {
            self.moved.set(now);
            self.account.pace.took(bytes as u64, now);
        }
    }

    /// Returns whether the response has to end, because the server needs its resources.
    pub fn is_displaced(&self) -> bool {
        self.displaced.get()
    }

    /// Returns the time since which the client has taken nothing, if it hardly reads at all.
    pub fn stalled_since(&self, now: Instant) -> Option<Instant> {
        let moved = self.moved.get();
        let still = now.saturating_duration_since(moved);
        let stalled = still >= STALLED
            && (self.is_silent(now) || self.account.pace.rate(now) < HARDLY && !self.acknowledges(now));
        stalled.then_some(moved)
    }

    /// Returns whether looks over [`SILENT`] have seen the client neither take nor acknowledge a byte.
    fn is_silent(&self, now: Instant) -> bool {
        let acknowledged = (self.acknowledged)();
        let begun = self.seen.get().filter(|(before, _)| *before == acknowledged).map(|(_, at)| at);
        let since = begun.unwrap_or(now).max(self.moved.get());
        self.seen.set(Some((acknowledged, since)));
        now.saturating_duration_since(since) >= SILENT
    }

    /// Returns whether the client acknowledges bytes, as far as known.
    fn acknowledges(&self, now: Instant) -> bool {
        let Some(bytes) = (self.acknowledged)() else { return false };
        let (before, at) = self.compared.get().unwrap_or((bytes, now));
        let time = now.saturating_duration_since(at);
        if time < COMPARED && self.compared.get().is_some() {
            return true;
        }
        self.compared.set(Some((bytes, now)));
        time.is_zero() || bytes.saturating_sub(before) as f64 >= HARDLY as f64 * time.as_secs_f64()
    }

    /// Makes the response end, because the server needs its resources.
    pub fn displace(&self) {
        if !self.displaced.replace(true) {
            self.account.ledger.leaving.update(|leaving| leaving + self.held.get());
            (self.wake)();
        }
    }

    fn change(&self, from: Amount, to: Amount) {
        let ledger = &self.account.ledger;
        self.held.update(|held| held - from + to);
        self.account.held.update(|held| held - from + to);
        ledger.change(from, to);
        if self.displaced.get() {
            ledger.leaving.update(|leaving| leaving - from + to);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.responses.leave(self.place.get());
    }
}

/// A part of the resources that a response holds.
#[derive(Debug)]
pub struct Hold {
    holding: Rc<Holding>,
    amount: Cell<Amount>,
}

impl Hold {
    /// Changes the amount.
    pub fn set(&self, amount: Amount) {
        let before = self.amount.replace(amount);
        if before == amount {
            return;
        }
        self.holding.change(before, amount);
        if amount.descriptors > before.descriptors || amount.memory > before.memory {
            self.holding.responses.make_room(&self.holding);
        } else {
            self.holding.account.call();
        }
    }

    pub fn amount(&self) -> Amount {
        self.amount.get()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.holding.change(self.amount.take(), Amount::default());
        self.holding.account.call();
    }
}

thread_local! {
    static RESPONSES: Rc<Responses> = Rc::default();
}

fn of_thread() -> Rc<Responses> {
    RESPONSES.with(Rc::clone)
}

/// Displaces some responses of this thread, because the process has no descriptor left.
#[cold]
pub fn relieve() {
    let limits = current().limits();
    of_thread().displace(None, limits, limits.descriptors / 64 + 1);
}

/// Displaces some of the responses of this thread that hardly move, because memory is scarce.
#[cold]
pub fn relieve_memory() {
    let ledger = current();
    let held = ledger.held.get() - ledger.leaving.get();
    of_thread().displace_stalled(None, held.memory / PART);
}

/// The responses of a thread that hold something.
#[derive(Debug, Default)]
struct Responses {
    holdings: RefCell<Vec<Weak<Holding>>>,
    /// The number of holdings so far.
    begun: Cell<u64>,
    /// When no response was found that could be displaced for memory.
    vain: Cell<Option<Instant>>,
}

/// How well a response moves; the lowest rank is displaced first. Recent movement counts more than the rate
/// of the connection, because the windows that a client opens at the beginning are filled at once and look
/// like a fast client for a while.
type Rank = (bool, u64, Instant);

impl Responses {
    fn enter(&self, holding: &Rc<Holding>) {
        let mut holdings = self.holdings.borrow_mut();
        holding.place.set(holdings.len());
        holding.number.set(self.begun.replace(self.begun.get() + 1));
        holdings.push(Rc::downgrade(holding));
    }

    fn leave(&self, place: usize) {
        let mut holdings = self.holdings.borrow_mut();
        if place < holdings.len() {
            holdings.swap_remove(place);
        }
        // The last entry has been moved to this index.
        if let Some(moved) = holdings.get(place).and_then(Weak::upgrade) {
            moved.place.set(place);
        }
    }

    /// Displaces responses if more is held than allowed; `newcomer` stays.
    fn make_room(&self, newcomer: &Rc<Holding>) {
        let ledger = &newcomer.account.ledger;
        let (limits, held) = (ledger.limits(), ledger.held.get() - ledger.leaving.get());
        if held.descriptors > limits.descriptors {
            // A few more at a time, because each round examines all of them.
            let files = held.descriptors - limits.descriptors + limits.descriptors / 64;
            self.displace(Some(newcomer), limits, files);
        } else if descriptors::are_short() {
            self.displace(Some(newcomer), limits, 1);
        }
        if held.memory > limits.memory {
            self.displace_stalled(Some(newcomer), held.memory - limits.memory);
        } else if memory::level() >= Level::Waiting {
            self.displace_stalled(Some(newcomer), held.memory / PART);
        }
    }

    /// Returns the responses that hold some of this kind of resource, the lowest rank first.
    fn ranked(
        &self,
        newcomer: Option<&Rc<Holding>>,
        now: Instant,
        kind: impl Fn(Amount) -> u64,
    ) -> Vec<(Rank, Rc<Holding>)> {
        let holdings = self.holdings.borrow();
        let mut ranked: Vec<(Rank, Rc<Holding>)> = holdings
            .iter()
            .filter_map(Weak::upgrade)
            .filter(|one| !one.is_displaced() && kind(one.held.get()) > 0)
            .filter(|one| newcomer.is_none_or(|newcomer| !Rc::ptr_eq(one, newcomer)))
            .map(|one| {
                // The rate of a connection per unit that it holds, because the others of its responses wait
                // for this one.
                let share = one.account.pace.rate(now) / kind(one.account.held.get()).max(1);
                let moves = now.saturating_duration_since(one.moved.get()) < PAUSE;
                ((moves, share, one.moved.get()), one)
            })
            .collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked
    }

    #[cold]
    fn displace(&self, newcomer: Option<&Rc<Holding>>, limits: Limits, files: u32) {
        // The newest have not had time to show whether their clients take them.
        let newest = self.begun.get().saturating_sub(u64::from(limits.descriptors / 8));
        let mut left = files;
        for (_, holding) in self.ranked(newcomer, Instant::now(), |held| held.descriptors.into()) {
            if left == 0 {
                return;
            }
            if holding.number.get() >= newest {
                continue;
            }
            left = left.saturating_sub(holding.held.get().descriptors);
            holding.displace();
        }
    }

    #[cold]
    fn displace_stalled(&self, newcomer: Option<&Rc<Holding>>, bytes: u64) {
        let now = Instant::now();
        if bytes == 0 {
            return;
        }
        if self.vain.get().is_some_and(|vain| now.duration_since(vain) < AGAIN) {
            return;
        }
        let mut left = bytes;
        for (_, holding) in self.ranked(newcomer, now, |held| held.memory.div_ceil(CONNECTION_MEMORY)) {
            if left == 0 {
                return;
            }
            if holding.stalled_since(now).is_some() {
                left = left.saturating_sub(holding.held.get().memory);
                holding.displace();
            }
        }
        if left > 0 {
            self.vain.set(Some(now));
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
