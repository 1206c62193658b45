//! Counts the resources that all responses of one connection hold, and makes further requests wait.

use super::Amount;
use super::ledger::{Ledger, current};
use super::pace::Pace;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The resources that the server holds for one connection.
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
    /// Creates the account of a connection of this thread.
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

    pub fn held(&self) -> Amount {
        self.held.get()
    }

    /// Returns whether the responses hold the connection's share, so that its next request must wait for its
    /// turn.
    pub fn is_full(&self) -> bool {
        self.ledger.is_share(self.held.get())
    }

    /// Returns whether a new request has to wait.
    pub fn must_wait(&self) -> bool {
        self.is_full() || !self.waiting.borrow().is_empty()
    }

    /// Waits for the turn of another request.
    pub fn turn(self: &Rc<Account>) -> TurnFuture {
        TurnFuture { account: self.clone(), number: None }
    }

    /// Wakes the next waiting request if there is room.
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

/// The future of a turn; see [`Account::turn`].
#[derive(Debug)]
pub struct TurnFuture {
    account: Rc<Account>,
    number: Option<u64>,
}

/// The turn of a request. Dropped when the resources of its response are known; then the next request has its
/// turn.
#[derive(Debug)]
pub struct ResponseTurn(Rc<Account>);

impl Future for TurnFuture {
    type Output = ResponseTurn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ResponseTurn> {
        let account = self.account.clone();
        let mut waiting = account.waiting.borrow_mut();
        let number = match self.number {
            Some(number) => {
                if let Some((_, waker)) = waiting.iter_mut().find(|(other, _)| *other == number) {
                    waker.clone_from(cx.waker());
                    return Poll::Pending;
                }
                // The request was woken.
                if !account.is_full() {
                    self.number = None;
                    return Poll::Ready(ResponseTurn(account.clone()));
                }
                // Another response has taken the room first.
                waiting.push_front((number, cx.waker().clone()));
                return Poll::Pending;
            }
            None if waiting.is_empty() && !account.is_full() => {
                return Poll::Ready(ResponseTurn(account.clone()));
            }
            None => account.next.replace(account.next.get() + 1),
        };
        self.number = Some(number);
        waiting.push_back((number, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for TurnFuture {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut waiting = self.account.waiting.borrow_mut();
        match waiting.iter().position(|(other, _)| *other == number) {
            Some(at) => drop(waiting.remove(at)),
            // The request was woken, but is being dropped.
            None => {
                drop(waiting);
                self.account.call();
            }
        }
    }
}

impl Drop for ResponseTurn {
    fn drop(&mut self) {
        self.0.call();
    }
}
