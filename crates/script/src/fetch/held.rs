//! Responses that Ruby knows by number: those that are on their way, and those whose body has not been read.
//!
//! Contract:
//! 1. A response belongs to the task that asked for it. When a request is over, so are its responses; what was asked of another
//!    server and not waited for is still sent, unless the request was given up.
//! 2. Blocks given to `task` may hand theirs to others: these are forgotten when they have not been touched for a minute
//!    since the block ended.

use crate::fetch::body::Source;
use handler::{Failure, Response};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};

/// Names a response.
pub(crate) type Number = i64;

/// How long the responses of a block are kept after it has ended.
const KEPT: Duration = Duration::from_secs(60);

/// A response that has come: its head, and its body until somebody takes it.
pub(crate) struct Arrived {
    pub(crate) response: Result<Head, Failure>,
    pub(crate) body: Option<Source>,
}

/// What is there before the body.
#[derive(Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) fields: handler::Fields,
    pub(crate) has_body: bool,
}

/// One response.
pub(crate) struct Held {
    arrived: RefCell<Option<Arrived>>,
    news: Notify,
    touched: Cell<Instant>,
    /// A request to another server, which is sent even if nobody waits for the answer.
    outward: bool,
    work: RefCell<Option<AbortHandle>>,
}

impl Held {
    /// Waits for the head.
    pub(crate) async fn head(&self) -> Result<Head, Failure> {
        loop {
            self.touched.set(Instant::now());
            if let Some(arrived) = &*self.arrived.borrow() {
                return arrived.response.clone();
            }
            self.news.notified().await;
        }
    }

    /// The fields, when they are there.
    pub(crate) fn fields(&self) -> Option<handler::Fields> {
        let arrived = self.arrived.borrow();
        Some(arrived.as_ref()?.response.as_ref().ok()?.fields.clone())
    }

    /// The body, which belongs to whoever takes it.
    pub(crate) fn take_body(&self) -> Option<Source> {
        self.touched.set(Instant::now());
        self.arrived.borrow_mut().as_mut()?.body.take()
    }

    /// Gives a body back of which there is more.
    pub(crate) fn put_body(&self, body: Source) {
        self.touched.set(Instant::now());
        if let Some(arrived) = &mut *self.arrived.borrow_mut() {
            arrived.body = Some(body);
        }
    }

    /// Whether another server was asked.
    pub(crate) fn is_outward(&self) -> bool {
        self.outward
    }

    fn arrive(&self, response: Result<Response, Failure>) {
        let arrived = match response {
            Ok(Response { status, fields, body, .. }) => {
                let body = Source::of(body);
                let head = Head { status, fields, has_body: body.is_some() };
                Arrived { response: Ok(head), body }
            }
            Err(failure) => Arrived { response: Err(failure), body: None },
        };
        self.arrived.replace(Some(arrived));
        self.news.notify_waiters();
    }
}

/// All responses of a VM.
#[derive(Default)]
pub(crate) struct Table {
    last: Cell<Number>,
    held: RefCell<HashMap<Number, Rc<Held>>>,
    /// Those whose block has ended, and when.
    left: RefCell<VecDeque<(Instant, Number)>>,
}

impl Table {
    /// Begins to work on a response.
    pub(crate) fn begin(
        self: &Rc<Table>,
        owner: &Owned,
        outward: bool,
        work: impl Future<Output = Result<Response, Failure>> + 'static,
    ) -> Number {
        self.sweep();
        let number = self.last.get() + 1;
        self.last.set(number);
        let held = Rc::new(Held {
            arrived: RefCell::default(),
            news: Notify::new(),
            touched: Cell::new(Instant::now()),
            outward,
            work: RefCell::default(),
        });
        let to = held.clone();
        let work = spawn_local(async move { to.arrive(work.await) });
        held.work.replace(Some(work.abort_handle()));
        self.held.borrow_mut().insert(number, held);
        owner.take(self, number);
        number
    }

    pub(crate) fn get(&self, number: Number) -> Option<Rc<Held>> {
        self.held.borrow().get(&number).cloned()
    }

    /// Forgets a response; `finish` lets a request go on that is not answered.
    pub(crate) fn forget(&self, number: Number, finish: bool) {
        let Some(held) = self.held.borrow_mut().remove(&number) else { return };
        let on_its_way = finish && held.outward;
        if let Some(work) = held.work.take().filter(|_| !on_its_way) {
            work.abort();
        }
    }

    /// Forgets what blocks that have ended have left behind.
    fn sweep(&self) {
        let Some(before) = Instant::now().checked_sub(KEPT) else { return };
        let mut left = self.left.borrow_mut();
        while let Some((_, number)) = left.pop_front_if(|(since, _)| *since < before) {
            let touched = self.get(number).map(|held| held.touched.get());
            match touched {
                Some(touched) if touched >= before => left.push_back((touched, number)),
                _ => self.forget(number, true),
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.held.borrow().len()
    }
}

/// The responses of a task.
#[derive(Default)]
pub(crate) struct Owned {
    table: RefCell<Option<Rc<Table>>>,
    numbers: RefCell<Vec<Number>>,
    /// They are over with the task: it is a request.
    brief: bool,
    /// The task has come to its end by itself.
    ended: Cell<bool>,
}

impl Owned {
    fn take(&self, table: &Rc<Table>, number: Number) {
        self.table.borrow_mut().get_or_insert_with(|| table.clone());
        let mut numbers = self.numbers.borrow_mut();
        // A task that never ends asks again and again.
        if numbers.len() >= 64 && numbers.len().is_power_of_two() {
            numbers.retain(|number| table.get(*number).is_some());
        }
        numbers.push(number);
    }

    /// Those of a request: nobody uses them when it is over.
    pub(crate) fn of_request() -> Owned {
        Owned { table: RefCell::default(), numbers: RefCell::default(), brief: true, ended: Cell::default() }
    }

    /// The task is over, and was not given up.
    pub(crate) fn end(&self) {
        self.ended.set(true);
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(table) = self.table.take() else { return };
        for number in self.numbers.take() {
            if self.brief {
                table.forget(number, self.ended.get());
            } else if table.get(number).is_some() {
                table.left.borrow_mut().push_back((Instant::now(), number));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_a_loop<T>(work: impl Future<Output = T>) -> T {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
        runtime.unwrap().block_on(work)
    }

    #[test]
    fn a_response_waits_for_whoever_joins_it() {
        on_a_loop(async {
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
    fn only_what_was_asked_of_others_by_a_task_that_ended_goes_on() {
        for (outward, end, goes_on) in [(true, true, true), (true, false, false), (false, true, false)] {
            on_a_loop(async {
                let (table, owner) = (Rc::new(Table::default()), Owned::of_request());
                let (told, mut hears) = tokio::sync::mpsc::unbounded_channel();
                table.begin(&owner, outward, async move {
                    tokio::task::yield_now().await;
                    told.send(()).unwrap();
                    Ok(Response::empty(200))
                });
                if end {
                    owner.end();
                }
                drop(owner);
                assert_eq!(hears.recv().await.is_some(), goes_on);
            });
        }
    }

    #[test]
    fn responses_of_blocks_stay_for_a_while() {
        on_a_loop(async {
            let (table, owner) = (Rc::new(Table::default()), Owned::default());
            let number = table.begin(&owner, true, async { Ok(Response::empty(200)) });
            drop(owner);
            assert!(table.get(number).unwrap().head().await.is_ok());
            let long_ago = Instant::now().checked_sub(2 * KEPT).unwrap();
            table.get(number).unwrap().touched.set(long_ago);
            table.left.borrow_mut()[0].0 = long_ago;
            table.sweep();
            assert_eq!(table.len(), 0);
        });
    }
}
