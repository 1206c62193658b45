//! Waiting for another task: what channels and joins are made of.
//!
//! A task that parks waits until somebody who knows its [`Ticket`] wakes it. Tickets of tasks that are over wake nobody. One
//! that passes lets those go first whom it has just started or woken, and goes on when these wait.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tokio::sync::oneshot;

/// Names one wait of one task.
pub(crate) type Ticket = i64;

#[derive(Default)]
pub(crate) struct Park {
    last: Cell<Ticket>,
    parked: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
}

impl Park {
    /// A ticket that nobody has yet.
    pub(crate) fn ticket(&self) -> Ticket {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Ready when the ticket is woken. Dropping it gives the ticket back.
    pub(crate) async fn wait(&self, ticket: Ticket) {
        let (wake, woken) = oneshot::channel();
        self.parked.borrow_mut().insert(ticket, wake);
        let _leave = Leave(self, ticket);
        // The sender is dropped only together with us.
        let _ = woken.await;
    }

    /// Whether anybody waited for it.
    pub(crate) fn wake(&self, ticket: Ticket) -> bool {
        self.parked.borrow_mut().remove(&ticket).is_some_and(|wake| wake.send(()).is_ok())
    }
}

struct Leave<'a>(&'a Park, Ticket);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.parked.borrow_mut().remove(&self.1);
    }
}

/// Tasks that let others go first. The last who did so goes on first, as callers do when what they called has returned:
/// a task that starts another and is passed on by it goes on after it.
#[derive(Default)]
pub(crate) struct Passing {
    last: Cell<u64>,
    waiting: RefCell<Vec<u64>>,
}

/// How often others may go first: for ever would be too long where many pass.
const TURNS: usize = 16;

impl Passing {
    /// Ready when whoever was ready at the call has had a turn.
    pub(crate) async fn wait(&self) {
        self.last.set(self.last.get() + 1);
        let own = self.last.get();
        self.waiting.borrow_mut().push(own);
        let _gone = Gone(self, own);
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            if self.waiting.borrow().last() == Some(&own) {
                return;
            }
        }
    }
}

struct Gone<'a>(&'a Passing, u64);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        self.0.waiting.borrow_mut().retain(|other| *other != self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Tasks that note their names, pass, and note them again; each starts the next before it passes.
    async fn nested(passing: Rc<Passing>, notes: Rc<RefCell<Vec<i32>>>, depth: i32, most: i32) {
        notes.borrow_mut().push(depth);
        if depth < most {
            let next = nested(passing.clone(), notes.clone(), depth + 1, most);
            let next: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(next);
            tokio::task::spawn_local(next);
            passing.wait().await;
        }
        notes.borrow_mut().push(-depth);
    }

    #[test]
    fn who_passes_goes_on_when_those_before_it_wait_or_have_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (passing, notes) = (Rc::new(Passing::default()), Rc::default());
            nested(passing.clone(), Rc::clone(&notes), 1, 4).await;
            assert_eq!(*notes.borrow(), [1, 2, 3, 4, -4, -3, -2, -1]);
            assert!(passing.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn nobody_passes_for_ever() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let passing = Rc::new(Passing::default());
            let others = passing.clone();
            let busy = tokio::task::spawn_local(async move {
                loop {
                    let one = others.clone();
                    tokio::task::spawn_local(async move { one.wait().await });
                    tokio::task::yield_now().await;
                }
            });
            passing.wait().await;
            busy.abort();
        });
    }
}
