//! Responses that handlers have requested. Ruby refers to them by number until their body has been read.
//!
//! Contract:
//! 1. A response belongs to the task that requested it. When a request ends, its responses are dropped. A
//!    request to another server is still sent if the handler did not wait for it, unless the handler was
//!    cancelled.
//! 2. Blocks given to `task` may hand their responses to other tasks. Such a response is dropped a minute
//!    after the block ended or after its last use.

mod body;

pub(crate) use body::Source;

use handler::{Failure, Response};
use net::task::spawn_local;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub(crate) type Number = i64;

/// How long responses of a block are kept after the block has ended.
const MAX_UNUSED: Duration = Duration::from_secs(60);

/// A response that has arrived: its head, and its body until the body is taken.
pub(crate) struct Arrived {
    pub(crate) response: Result<HeldHead, Failure>,
    pub(crate) body: Option<Source>,
}

#[derive(Clone)]
pub(crate) struct HeldHead {
    pub(crate) status: u16,
    pub(crate) fields: handler::Fields,
    pub(crate) has_body: bool,
}

pub(crate) struct HeldResponse {
    arrived: RefCell<Option<Arrived>>,
    arrival: Notify,
    last_used: Cell<Instant>,
    /// Whether the request goes to another server. It is sent even if no task waits for the response.
    outbound: bool,
    work: RefCell<Option<AbortHandle>>,
}

impl HeldResponse {
    pub(crate) async fn head(&self) -> Result<HeldHead, Failure> {
        loop {
            self.last_used.set(Instant::now());
            if let Some(arrived) = &*self.arrived.borrow() {
                return arrived.response.clone();
            }
            self.arrival.notified().await;
        }
    }

    /// Returns the fields, if they have arrived.
    pub(crate) fn fields(&self) -> Option<handler::Fields> {
        let arrived = self.arrived.borrow();
        Some(arrived.as_ref()?.response.as_ref().ok()?.fields.clone())
    }

    pub(crate) fn take_body(&self) -> Option<Source> {
        self.last_used.set(Instant::now());
        self.arrived.borrow_mut().as_mut()?.body.take()
    }

    /// Returns a partly read body to the response.
    pub(crate) fn put_body(&self, body: Source) {
        self.last_used.set(Instant::now());
        if let Some(arrived) = &mut *self.arrived.borrow_mut() {
            arrived.body = Some(body);
        }
    }

    /// Returns whether the request went to another server.
    pub(crate) fn is_outbound(&self) -> bool {
        self.outbound
    }

    fn arrive(&self, response: Result<Response, Failure>) {
        let arrived = match response {
            Ok(Response { status, fields, body, .. }) => {
                let body = Source::of(body);
                let head = HeldHead { status, fields, has_body: body.is_some() };
                Arrived { response: Ok(head), body }
            }
            Err(failure) => Arrived { response: Err(failure), body: None },
        };
        self.arrived.replace(Some(arrived));
        self.arrival.notify_waiters();
    }
}

#[derive(Default)]
pub(crate) struct Table {
    last: Cell<Number>,
    held: RefCell<HashMap<Number, Rc<HeldResponse>>>,
    /// Responses of ended blocks, with the times when the blocks ended.
    orphaned: RefCell<VecDeque<(Instant, Number)>>,
}

impl Table {
    /// Starts to produce a response.
    pub(crate) fn begin(
        self: &Rc<Table>,
        owner: &Owned,
        outbound: bool,
        work: impl Future<Output = Result<Response, Failure>> + 'static,
    ) -> Number {
        self.sweep();
        let number = self.last.get() + 1;
        self.last.set(number);
        let held = Rc::new(HeldResponse {
            arrived: RefCell::default(),
            arrival: Notify::new(),
            last_used: Cell::new(Instant::now()),
            outbound,
            work: RefCell::default(),
        });
        let to = held.clone();
        let work = spawn_local(async move { to.arrive(work.await) });
        held.work.replace(Some(work.abort_handle()));
        self.held.borrow_mut().insert(number, held);
        owner.add(self, number);
        number
    }

    pub(crate) fn get(&self, number: Number) -> Option<Rc<HeldResponse>> {
        self.held.borrow().get(&number).cloned()
    }

    /// Drops a response. With `finish` a request to another server continues if it has no response yet.
    pub(crate) fn forget(&self, number: Number, finish: bool) {
        let Some(held) = self.held.borrow_mut().remove(&number) else { return };
        let continues = finish && held.outbound;
        if let Some(work) = held.work.take().filter(|_| !continues) {
            work.abort();
        }
    }

    /// Drops unused responses of ended blocks.
    fn sweep(&self) {
        let Some(before) = Instant::now().checked_sub(MAX_UNUSED) else { return };
        let mut orphaned = self.orphaned.borrow_mut();
        while let Some((_, number)) = orphaned.pop_front_if(|(since, _)| *since < before) {
            let last_used = self.get(number).map(|held| held.last_used.get());
            match last_used {
                Some(last_used) if last_used >= before => orphaned.push_back((last_used, number)),
                _ => self.forget(number, true),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.borrow().len()
    }
}

#[derive(Default)]
pub(crate) struct Owned {
    table: RefCell<Option<Rc<Table>>>,
    numbers: RefCell<Vec<Number>>,
    /// Whether the responses end with the task, because it serves a request.
    of_request: bool,
    /// Whether the task has ended without being cancelled.
    ended: Cell<bool>,
}

impl Owned {
    fn add(&self, table: &Rc<Table>, number: Number) {
        self.table.borrow_mut().get_or_insert_with(|| table.clone());
        let mut numbers = self.numbers.borrow_mut();
        // Forgets dropped numbers, because a task may run forever and request one response after the other.
        if numbers.len() >= 64 && numbers.len().is_power_of_two() {
            numbers.retain(|number| table.get(*number).is_some());
        }
        numbers.push(number);
    }

    /// Creates the list for a request, whose responses are dropped when it ends.
    pub(crate) fn of_request() -> Owned {
        Owned {
            table: RefCell::default(),
            numbers: RefCell::default(),
            of_request: true,
            ended: Cell::default(),
        }
    }

    /// Notes that the task has ended without being cancelled.
    pub(crate) fn end(&self) {
        self.ended.set(true);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else { return };
        for number in self.numbers.take() {
            if self.of_request {
                table.forget(number, self.ended.get());
            } else if table.get(number).is_some() {
                table.orphaned.borrow_mut().push_back((Instant::now(), number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_event_loop<T>(work: impl Future<Output = T>) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn a_response_can_be_joined_by_several_tasks() {
        on_event_loop(async {
            let (table, owner) = (Rc::new(Table::default()), Owned::of_request());
            let number = table.begin(&owner, false, async {
                tokio::task::yield_now().await;
                Ok(Response::text(201, "text/plain", "body"))
            });
            let held = table.get(number).unwrap();
            let (one, other) = tokio::join!(held.head(), held.head());
            assert_eq!((one.unwrap().status, other.unwrap().status), (201, 201));
            assert!(held.take_body().is_some() && held.take_body().is_none());
            drop(owner);
            assert_eq!(table.len(), 0);
        });
    }

    #[test]
    fn only_outbound_requests_of_tasks_that_ended_continue() {
        for (outbound, end, continues) in [(true, true, true), (true, false, false), (false, true, false)] {
            on_event_loop(async {
                let (table, owner) = (Rc::new(Table::default()), Owned::of_request());
                let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
                table.begin(&owner, outbound, async move {
                    tokio::task::yield_now().await;
                    sender.send(()).unwrap();
                    Ok(Response::empty(200))
                });
                if end {
                    owner.end();
                }
                drop(owner);
                assert_eq!(receiver.recv().await.is_some(), continues);
            });
        }
    }

    #[test]
    fn responses_of_blocks_are_kept_for_a_while() {
        on_event_loop(async {
            let (table, owner) = (Rc::new(Table::default()), Owned::default());
            let number = table.begin(&owner, true, async { Ok(Response::empty(200)) });
            drop(owner);
            assert!(table.get(number).unwrap().head().await.is_ok());
            let long_ago = Instant::now().checked_sub(2 * MAX_UNUSED).unwrap();
            table.get(number).unwrap().last_used.set(long_ago);
            table.orphaned.borrow_mut()[0].0 = long_ago;
            table.sweep();
            assert_eq!(table.len(), 0);
        });
    }
}
