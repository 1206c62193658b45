//! One connection to Redis, and who waits for what on it.
//!
//! Contract:
//! 1. Commands go out in the order of [`Line::send`]; all of a turn of the event loop leave in one write.
//! 2. Replies are matched by order alone. Who gives up leaves its place in the queue, and the reply that comes for it is
//!    dropped: nobody ever gets another's.
//! 3. After anything that leaves the order in doubt (an end, an error, bytes that are not RESP, a reply that is overdue) the
//!    connection is closed and all who wait get an exception. The next command connects anew, at once the first time, then
//!    not before a pause of 10 ms to 1 s; commands that come in the pause fail at once. No command is ever sent twice.
//! 4. A line that is held ([`Line::hold`]) has one connection and no other after it: what was said on it (WATCH) counts for
//!    what follows.

mod driver;

use super::config::Config;
use mruby::Tape;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// What may wait to be written, bytes: a Redis that takes nothing must not cost all memory.
const MAX_UNSENT: usize = 64 << 20;
/// Messages of subscriptions that nobody has taken yet; while there are more, nothing is read.
const MAX_FED: usize = 1024;

/// An exception to be.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    class: String,
    message: Vec<u8>,
}

impl Fault {
    pub(crate) fn new(class: &str, message: impl AsRef<[u8]>) -> Fault {
        Fault { class: class.to_owned(), message: message.as_ref().to_vec() }
    }

    pub(crate) fn onto(&self, tape: &mut Tape) {
        tape.fault(&self.class, &self.message);
    }

    /// The exception that a tape consists of.
    pub(crate) fn on(tape: &Tape) -> Option<Fault> {
        let rest = tape.as_bytes().strip_prefix(b"!")?;
        // A String is a tag, four bytes of length, and its text: as in the contract of tapes.
        let length = u32::from_ne_bytes(rest.get(1..5)?.try_into().ok()?) as usize;
        let message = rest.get(5 + length + 5..)?;
        let class = String::from_utf8_lossy(rest.get(5..5 + length)?).into_owned();
        Some(Fault { class, message: message.to_vec() })
    }
}

/// A connection, made when it is first needed.
pub(crate) struct Line {
    config: Rc<Config>,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Bytes to be written, from `written` on.
    out: Vec<u8>,
    written: usize,
    /// Whose replies come, in order.
    queue: VecDeque<Place>,
    slots: Slab<Slot>,
    /// There is a driver: it connects, or it is connected.
    driven: bool,
    connected: bool,
    driver: Option<Waker>,
    /// Nobody has the line any more.
    left: bool,
    /// One connection must do for all, and why it is over.
    held: bool,
    over: Option<Fault>,
    /// Not before this time, because of this.
    pause: Option<(Instant, Duration, Fault)>,
    feed: Option<Feed>,
    /// A push message of RESP3 that is under way; nobody has asked for any.
    push: Option<Tape>,
}

struct Place {
    slot: usize,
    deadline: Option<Instant>,
}

/// Where the replies to one request gather.
struct Slot {
    missing: usize,
    tape: Tape,
    waker: Option<Waker>,
    given_up: bool,
}

/// Messages instead of replies.
#[derive(Default)]
struct Feed {
    messages: VecDeque<Tape>,
    /// The message under way.
    partial: Tape,
    waker: Option<Waker>,
    /// Until when Redis has to say something: it answers to every subscription.
    asked: Option<Instant>,
    /// When there was nothing to be taken, or something was taken, for the last time.
    touched: Option<Instant>,
    /// Why no more come.
    ended: Option<Fault>,
}

impl Line {
    pub(crate) fn new(config: Rc<Config>) -> Rc<Line> {
        Rc::new(Line { config, inner: RefCell::default() })
    }

    /// A line for subscriptions: what comes is given by [`Line::poll_message`].
    pub(crate) fn with_feed(config: Rc<Config>) -> Rc<Line> {
        let inner = Inner { feed: Some(Feed::default()), held: true, ..Inner::default() };
        Rc::new(Line { config, inner: RefCell::new(inner) })
    }

    /// From now on there is one connection, and when that ends the line is over.
    pub(crate) fn hold(&self) {
        self.inner.borrow_mut().held = true;
    }

    /// Undoes [`Line::hold`]; whether the next user finds the line as new: nobody waits and nothing is to be written.
    pub(crate) fn release(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.held = false;
        inner.over.is_none() && inner.is_idle()
    }

    /// Sends what `write` writes: `count` commands in one piece. With `listed` the answer is the Array of all replies, else
    /// the one reply. `patience` is from now to the last reply; `None` waits for ever.
    ///
    /// # Errors
    /// What `write` says, and that there is no connection.
    pub(crate) fn send(
        self: &Rc<Self>,
        count: usize,
        listed: bool,
        patience: Option<Duration>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>,
    ) -> Result<Reply, Fault> {
        let mut inner = self.inner.borrow_mut();
        let deadline = self.put(&mut inner, patience, write)?;
        let mut tape = Tape::new();
        if listed {
            tape.array(count as u32);
        }
        let slot = inner.slots.insert(Slot { missing: count, tape, waker: None, given_up: false });
        if count > 0 {
            inner.queue.push_back(Place { slot, deadline });
        }
        Ok(Reply { line: self.clone(), slot })
    }

    /// Sends a command whose answers are messages.
    ///
    /// # Errors
    /// As [`Line::send`].
    pub(crate) fn push(
        self: &Rc<Self>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let inner = &mut *self.inner.borrow_mut();
        let deadline = self.put(inner, Some(self.config.command_timeout), write)?;
        if let Some(feed) = &mut inner.feed {
            feed.asked = deadline;
        }
        Ok(())
    }

    fn put(
        self: &Rc<Self>,
        inner: &mut Inner,
        patience: Option<Duration>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), Fault>,
    ) -> Result<Option<Instant>, Fault> {
        if let Some(fault) = &inner.over {
            return Err(fault.clone());
        }
        let now = Instant::now();
        if let Some((until, _, fault)) = &inner.pause
            && *until > now
        {
            return Err(fault.clone());
        }
        if inner.out.len() - inner.written > MAX_UNSENT {
            let why = format!("Redis on {} takes no commands: {MAX_UNSENT} bytes wait", self.config.place);
            return Err(Fault::new("Redis::ConnectionError", why));
        }
        // Who was about to close it did so because nobody needed it.
        inner.left = false;
        let before = inner.out.len();
        write(&mut inner.out).inspect_err(|_| inner.out.truncate(before))?;
        if !inner.driven {
            inner.driven = true;
            tokio::task::spawn_local(driver::drive(self.clone()));
        } else if before == inner.written
            && let Some(driver) = &inner.driver
        {
            driver.wake_by_ref();
        }
        Ok(patience.map(|patience| now + patience))
    }

    /// The next message of a subscription.
    pub(crate) fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Result<Tape, Fault>> {
        let inner = &mut *self.inner.borrow_mut();
        let Some(feed) = &mut inner.feed else {
            return Poll::Ready(Err(Fault::new(
                "Redis::ProtocolError",
                "this connection has no subscriptions",
            )));
        };
        if let Some(message) = feed.messages.pop_front() {
            feed.touched = Some(Instant::now());
            if feed.messages.len() + 1 == MAX_FED
                && let Some(driver) = &inner.driver
            {
                driver.wake_by_ref();
            }
            return Poll::Ready(Ok(message));
        }
        if let Some(fault) = &feed.ended {
            return Poll::Ready(Err(fault.clone()));
        }
        feed.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(crate) fn config(&self) -> &Rc<Config> {
        &self.config
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.borrow().connected
    }

    /// Whether nobody waits and nothing is to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.inner.borrow().is_idle()
    }

    /// Closes the connection; who waits gets an exception.
    pub(crate) fn leave(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.left = inner.driven;
        if let Some(driver) = &inner.driver {
            driver.wake_by_ref();
        }
    }

    /// All who wait get an exception; those whose time is over the second one.
    fn fail(&self, fault: &Fault, overdue: Option<Fault>) {
        let inner = &mut *self.inner.borrow_mut();
        let now = Instant::now();
        (inner.driven, inner.connected, inner.left, inner.driver, inner.push) =
            (false, false, false, None, None);
        (inner.out, inner.written) = (Vec::new(), 0);
        inner.over = inner.held.then(|| fault.clone());
        for place in std::mem::take(&mut inner.queue) {
            let late = overdue.as_ref().filter(|_| place.deadline.is_some_and(|deadline| deadline <= now));
            inner.slots[place.slot].tape.clear();
            late.unwrap_or(fault).onto(&mut inner.slots[place.slot].tape);
            inner.settle(place.slot);
        }
        if let Some(feed) = &mut inner.feed {
            feed.ended = Some(overdue.as_ref().unwrap_or(fault).clone());
            if let Some(waker) = feed.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Inner {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.out.len() == self.written
    }
}

/// The answer to one request. Dropped, it is given up.
pub(crate) struct Reply {
    line: Rc<Line>,
    slot: usize,
}

impl Reply {
    /// Bytes that are kept for it, when it is there.
    pub(crate) fn kept(&self) -> Option<usize> {
        let slot = &self.line.inner.borrow().slots[self.slot];
        (slot.missing == 0).then(|| slot.tape.as_bytes().len())
    }
}

impl Future for Reply {
    type Output = Tape;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Tape> {
        let slot = &mut self.line.inner.borrow_mut().slots[self.slot];
        if slot.missing == 0 {
            return Poll::Ready(std::mem::take(&mut slot.tape));
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let inner = &mut *self.line.inner.borrow_mut();
        let slot = &mut inner.slots[self.slot];
        if slot.missing == 0 {
            inner.slots.remove(self.slot);
        } else {
            slot.given_up = true;
            slot.waker = None;
        }
    }
}

#[cfg(test)]
mod tests;
