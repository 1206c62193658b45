//! Limits the handshakes of a thread: how many compute per turn of the event loop, and how many clients are
//! refused at a time.
//!
//! Why: a handshake takes 0.1 to 0.5 ms of CPU time, a request a few microseconds. A flood of new clients
//! must not delay the connected ones.
//!
//! Contract:
//! 1. In one turn of the event loop at most [`PER_TURN`] handshakes compute; the others wait in order.
//!    Between two turns everything else that is ready runs.
//! 2. Clients beyond the limit of connections complete a handshake and get a refusal, at most [`REFUSED`] at a time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use tokio::sync::{Notify, oneshot};

/// Handshakes that compute in one turn, about a millisecond together.
const PER_TURN: u32 = 4;
/// The largest number of clients at a time that complete a handshake only to be refused. Each has a socket
/// beyond `max_connections`.
const REFUSED: usize = 64;

#[derive(Default)]
pub(crate) struct Handshakes {
    /// How many handshakes may still compute in this turn.
    left: Cell<u32>,
    waiting: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// Clients that are being refused.
    refused: Cell<usize>,
    /// Wakes [`Handshakes::run`]: a handshake is waiting, or the turn has to be renewed.
    pump: Notify,
}

/// Counts a client as refused until dropped.
pub(crate) struct Refused(Rc<Handshakes>);

impl Handshakes {
    /// Creates the queue. [`Handshakes::run`] must be polled on the same thread.
    pub(crate) fn new() -> Rc<Handshakes> {
        let handshakes = Handshakes::default();
        handshakes.left.set(PER_TURN);
        Rc::new(handshakes)
    }

    /// Lets waiting handshakes compute, a few in each turn. Never returns.
    pub(crate) async fn run(&self) {
        loop {
            self.pump.notified().await;
            loop {
                // The event loop polls the kernel before it resumes this task.
                tokio::task::yield_now().await;
                self.left.set(PER_TURN);
                while self.left.get() > 0 {
                    let Some(next) = self.waiting.borrow_mut().pop_front() else { break };
                    if next.send(()).is_ok() {
                        self.left.update(|left| left - 1);
                    }
                }
                if self.left.get() == PER_TURN {
                    break;
                }
            }
        }
    }

    /// Waits until a handshake may compute.
    pub(crate) async fn turn(&self) {
        if self.left.get() > 0 && self.waiting.borrow().is_empty() {
            self.left.update(|left| left - 1);
            self.pump.notify_one();
            return;
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().push_back(sender);
        self.pump.notify_one();
        // The sender is dropped only when the thread ends.
        let _ = receiver.await;
    }

    /// Counts a client to refuse. `None`: too many are being refused already.
    pub(crate) fn refuse(self: &Rc<Handshakes>) -> Option<Refused> {
        let refused = self.refused.get();
        (refused < REFUSED).then(|| {
            self.refused.set(refused + 1);
            Refused(self.clone())
        })
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.0.refused.update(|refused| refused - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::task::spawn_local;

    fn run(work: impl Future<Output = ()>) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(work);
    }

    #[test]
    fn others_run_between_a_few_handshakes() {
        run(async {
            let handshakes = Handshakes::new();
            let pumping = handshakes.clone();
            spawn_local(async move { pumping.run().await });
            let done = Rc::new(Cell::new(0));
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    let (handshakes, done) = (handshakes.clone(), done.clone());
                    spawn_local(async move {
                        handshakes.turn().await;
                        done.update(|n| n + 1);
                    })
                })
                .collect();
            let (mut turns, mut before) = (0, 0);
            while done.get() < 100 {
                tokio::task::yield_now().await;
                assert!(done.get() - before <= 2 * PER_TURN, "{} in one turn", done.get() - before);
                before = done.get();
                turns += 1;
                assert!(turns < 1000, "{} of 100 after {turns} turns", done.get());
            }
            assert!(turns >= 10, "{turns}");
            for task in tasks {
                task.await.unwrap();
            }
        });
    }

    #[test]
    fn those_that_gave_up_take_no_turn() {
        run(async {
            let handshakes = Handshakes::new();
            let pumping = handshakes.clone();
            spawn_local(async move { pumping.run().await });
            let waits = |handshakes: Rc<Handshakes>| spawn_local(async move { handshakes.turn().await });
            let gone: Vec<_> = (0..50).map(|_| waits(handshakes.clone())).collect();
            tokio::task::yield_now().await;
            gone.iter().for_each(tokio::task::JoinHandle::abort);
            let last = waits(handshakes.clone());
            tokio::time::timeout(std::time::Duration::from_secs(10), last).await.unwrap().unwrap();
        });
    }

    #[test]
    fn few_are_refused_at_a_time() {
        let handshakes = Handshakes::new();
        let mut refused: Vec<_> = (0..REFUSED).map(|_| handshakes.refuse()).collect();
        assert!(refused.iter().all(Option::is_some) && handshakes.refuse().is_none());
        refused.pop();
        assert!(handshakes.refuse().is_some());
    }
}
