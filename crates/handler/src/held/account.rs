//! What the responses of one connection hold together, and its requests that wait until it is less: [`Account`].

use super::Amount;
use super::ledger::{Ledger, current};
use super::pace::Pace;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// What a connection makes the server hold.
#[derive(Debug)]
pub struct Account {
    pub(super) ledger: Rc<Ledger>,
    pub(super) held: Cell<Amount>,
    pub(super) pace: Pace,
    pub(super) uploads: Cell<u32>,
    /// Requests that wait for their turn, in order.
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    next: Cell<u64>,
}

impl Account {
    /// Of a connection of this thread.
    #[expect(clippy::new_without_default, reason = "it belongs to the thread that makes it")]
    pub fn new() -> Account {
        Account::of(current())
    }

    pub(super) fn of(ledger: Rc<Ledger>) -> Account {
        Account {
            ledger,
            held: Cell::default(),
            pace: Pace::new(Instant::now()),
            uploads: Cell::default(),
            waiting: RefCell::default(),
            next: Cell::default(),
        }
    }

    /// What is held.
    pub fn held(&self) -> Amount {
        self.held.get()
    }

    /// Whether its responses hold their share: its next request is to wait for its turn.
    pub fn is_full(&self) -> bool {
        self.ledger.is_share(self.held.get())
    }

    /// Whether a request that comes now has to wait.
    pub fn must_wait(&self) -> bool {
        self.is_full() || !self.waiting.borrow().is_empty()
    }

    /// Waits for the turn of another request.
    pub fn turn(self: &Rc<Account>) -> Waiting {
        Waiting { account: self.clone(), number: None }
    }

    /// The next one that waits has its turn, if there is room.
    pub(super) fn call(&self) {
        if self.waiting.borrow().is_empty() || self.is_full() {
            return;
        }
        let called = self.waiting.borrow_mut().pop_front();
        if let Some((_, waker)) = called {
            waker.wake();
        }
    }
}

/// Waits for a turn; see [`Account::turn`].
#[derive(Debug)]
pub struct Waiting {
    account: Rc<Account>,
    number: Option<u64>,
}

/// A request has its turn. Dropped when it is known what its response holds; then the next one has its turn.
#[derive(Debug)]
pub struct Turn(Rc<Account>);

impl Future for Waiting {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        let account = self.account.clone();
        let mut waiting = account.waiting.borrow_mut();
        let number = match self.number {
            Some(number) => {
                if let Some((_, waker)) = waiting.iter_mut().find(|(other, _)| *other == number) {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                // It was called.
                if !account.is_full() {
                    self.number = None;
                    return Poll::Ready(Turn(account.clone()));
                }
                // Another response has come first.
                waiting.push_front((number, cx.waker().clone()));
                return Poll::Pending;
            }
            None if waiting.is_empty() && !account.is_full() => return Poll::Ready(Turn(account.clone())),
            None => account.next.replace(account.next.get() + 1),
        };
        self.number = Some(number);
        waiting.push_back((number, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut waiting = self.account.waiting.borrow_mut();
        match waiting.iter().position(|(other, _)| *other == number) {
            Some(at) => drop(waiting.remove(at)),
            // It was called, and does not come.
            None => {
                drop(waiting);
                self.account.call();
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.call();
    }
}
