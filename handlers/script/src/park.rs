//! Waits for another task; the basis of channels and joins.
//!
//! A parked task waits until another task wakes its [`Ticket`]. Waking the ticket of an ended task has no
//! effect. A task that passes lets the tasks that it has just started or woken run first, and continues when
//! they wait.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tokio::sync::oneshot;

/// The number of one wait of one task.
pub(crate) type Ticket = i64;

#[derive(Default)]
pub(crate) struct Park {
    last: Cell<Ticket>,
    parked: RefCell<HashMap<Ticket, oneshot::Sender<()>>>,
}

impl Park {
    pub(crate) fn ticket(&self) -> Ticket {
        self.last.set(self.last.get() + 1);
        self.last.get()
    }

    /// Completes when the ticket is woken. Dropping the future removes the ticket.
    pub(crate) async fn wait(&self, ticket: Ticket) {
        let (wake, woken) = oneshot::channel();
        self.parked.borrow_mut().insert(ticket, wake);
        let _remove = Remove(self, ticket);
        // Cannot fail: the sender is dropped only when the ticket is removed.
        let _ = woken.await;
    }

    /// Wakes a ticket; returns whether a task was waiting for it.
    pub(crate) fn wake(&self, ticket: Ticket) -> bool {
        self.parked.borrow_mut().remove(&ticket).is_some_and(|wake| wake.send(()).is_ok())
    }
}

struct Remove<'a>(&'a Park, Ticket);

impl Drop for Remove<'_> {
    fn drop(&mut self) {
        self.0.parked.borrow_mut().remove(&self.1);
    }
}

/// Tasks that let others run first. They continue in reverse order, like callers when their callees return: a
/// task that starts another passing task continues after it.
#[derive(Default)]
pub(crate) struct Passing {
    last: Cell<u64>,
    waiting: RefCell<Vec<u64>>,
}

/// The most turns of the event loop for which a task passes. With many passing tasks it might otherwise never continue.
const MAX_TURNS: usize = 16;

impl Passing {
    /// Completes when the tasks that were ready at the call have had a turn.
    pub(crate) async fn wait(&self) {
        self.last.set(self.last.get() + 1);
        let own = self.last.get();
        self.waiting.borrow_mut().push(own);
        let _remove = RemovePassing(self, own);
        for _ in 0..MAX_TURNS {
            tokio::task::yield_now().await;
            if self.waiting.borrow().last() == Some(&own) {
                return;
            }
        }
    }
}

struct RemovePassing<'a>(&'a Passing, u64);

impl Drop for RemovePassing<'_> {
    fn drop(&mut self) {
        self.0.waiting.borrow_mut().retain(|other| *other != self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    /// Runs tasks that record their number, pass, and record it again; each starts the next before it passes.
    async fn nested(passing: Rc<Passing>, notes: Rc<RefCell<Vec<i32>>>, depth: i32, most: i32) {
        notes.borrow_mut().push(depth);
        if depth < most {
            let next = nested(passing.clone(), notes.clone(), depth + 1, most);
            let next: std::pin::Pin<Box<dyn Future<Output = ()>>> = Box::pin(next);
            net::task::spawn_local(next);
            passing.wait().await;
        }
        notes.borrow_mut().push(-depth);
    }

    #[test]
    fn passing_tasks_continue_in_reverse_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (passing, notes) = (Rc::new(Passing::default()), Rc::default());
            nested(passing.clone(), Rc::clone(&notes), 1, 4).await;
            assert_eq!(*notes.borrow(), [1, 2, 3, 4, -4, -3, -2, -1]);
            assert!(passing.waiting.borrow().is_empty());
        });
    }

    #[test]
    fn a_task_does_not_pass_forever() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let passing = Rc::new(Passing::default());
            let others = passing.clone();
            let busy = net::task::spawn_local(async move {
                loop {
                    let one = others.clone();
                    net::task::spawn_local(async move { one.wait().await });
                    tokio::task::yield_now().await;
                }
            });
            passing.wait().await;
            busy.abort();
        });
    }
}
