//! Counts the resources that one response holds ([`Holding`]), in parts that are counted separately
//! ([`Hold`]).

use super::Amount;
use super::account::Account;
use super::ledger::Ledger;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// The resources that a response holds until its client takes it.
pub struct Holding {
    account: Rc<Account>,
    ledger: Rc<Ledger>,
    held: Cell<Amount>,
    /// When the client last took some of it, or when it began.
    moved: Cell<Instant>,
    displaced: Cell<bool>,
    wake: Box<dyn Fn()>,
    /// Its index in the ledger, and the number of holdings before it.
    pub(super) place: Cell<usize>,
    pub(super) number: Cell<u64>,
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Holding {
    /// Creates the holding of a response on the connection of `account`. `wake` must only make the protocol
    /// check [`Holding::is_displaced`] soon.
    pub fn new(account: Rc<Account>, wake: impl Fn() + 'static) -> Rc<Holding> {
        let ledger = account.ledger.clone();
        let holding = Rc::new(Holding {
            account,
            held: Cell::default(),
            moved: Cell::new(Instant::now()),
            displaced: Cell::new(false),
            wake: Box::new(wake),
            place: Cell::new(0),
            number: Cell::new(0),
            ledger: ledger.clone(),
        });
        ledger.enter(&holding);
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

    pub(super) fn displace(&self) {
        if !self.displaced.replace(true) {
            self.ledger.leaving.update(|leaving| leaving + self.held.get());
            (self.wake)();
        }
    }

    pub(super) fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn held(&self) -> Amount {
        self.held.get()
    }

    pub(super) fn moved(&self) -> Instant {
        self.moved.get()
    }

    fn change(&self, from: Amount, to: Amount) {
        self.held.update(|held| held - from + to);
        self.account.held.update(|held| held - from + to);
        self.ledger.change(from, to);
        if self.displaced.get() {
            self.ledger.leaving.update(|leaving| leaving - from + to);
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.ledger.leave(self.place.get());
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
            self.holding.ledger.make_room(&self.holding);
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
