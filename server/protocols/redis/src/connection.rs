//! Implements one connection to Redis and the queue of expected replies: [`RedisConnection`].
//!
//! Contract:
//! 1. Commands are sent in the order of [`RedisConnection::send`]. All commands of one turn of the event loop
//!    leave in one write.
//! 2. Replies are matched by order alone. A dropped [`Reply`] keeps its position in the queue, and its bytes
//!    are discarded: no caller ever gets another's reply.
//! 3. After anything that puts the order in doubt (end of stream, I/O error, bytes that are not RESP, an
//!    overdue reply) the connection is closed and all waiting callers get an error. The next command connects
//!    again: at once the first time, then after a pause of 10 ms to 1 s; commands sent during the pause fail
//!    at once. No command is ever sent twice.
//! 4. After [`RedisConnection::forbid_reconnect`] the end of the connection is final, because its state
//!    (WATCH) is lost with it.

mod driver;

use crate::config::RedisConfig;
use crate::error::{Error, ErrorKind};
use crate::resp::ReplySink;
use slab::Slab;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// The most bytes that may wait to be written: a server that stops reading must not use up all memory.
const MAX_UNSENT: usize = 64 << 20;
/// The most buffered messages of a subscription; while the buffer is full, or has [`Config::max_reply`] bytes, the socket is not read.
const MAX_MESSAGES: usize = 1024;

/// A connection; it is opened when the first command is sent.
pub struct RedisConnection<S: ReplySink> {
    config: Rc<RedisConfig>,
    inner: RefCell<Inner<S>>,
}

struct Inner<S> {
    /// Bytes to send; those before `written` have been sent.
    out: Vec<u8>,
    written: usize,
    /// Requests whose replies have not arrived, in order.
    expected: VecDeque<Expected>,
    slots: Slab<Slot<S>>,
    /// A driver task runs: it is connecting, or connected.
    running: bool,
    connected: bool,
    driver: Option<Waker>,
    /// The driver must close the connection.
    closing: bool,
    /// The end of the connection is final.
    no_reconnect: bool,
    /// Why the connection ended for good.
    ended: Option<Error>,
    /// The pause after a failure to connect.
    pause: Option<Pause>,
    subscription: Option<Subscription<S>>,
    /// A RESP3 push message that is being received. It is discarded, because no command asks for one.
    push: Option<S>,
}

/// No connecting before `until`.
struct Pause {
    until: Instant,
    /// The number of failures before the last one.
    earlier: u32,
    error: Error,
}

struct Expected {
    slot: usize,
    deadline: Option<Instant>,
}

/// Collects the replies to one request.
struct Slot<S> {
    missing: usize,
    reply: S,
    waker: Option<Waker>,
    abandoned: bool,
}

/// Messages instead of replies.
struct Subscription<S> {
    messages: VecDeque<S>,
    /// The bytes of the messages.
    held: usize,
    /// The most of them, beside the last one.
    most: usize,
    /// The message that is being received.
    partial: S,
    waker: Option<Waker>,
    /// When the server's confirmation of a (un)subscribe is overdue.
    confirmation: Option<Instant>,
    /// When a message was last taken, or the buffer was last empty.
    last_taken: Option<Instant>,
    /// Why no more messages arrive.
    ended: Option<Error>,
}

impl<S> Subscription<S> {
    /// Returns whether the socket must not be read.
    fn is_full(&self) -> bool {
        self.messages.len() >= MAX_MESSAGES || self.held >= self.most
    }
}

impl<S> Default for Inner<S> {
    fn default() -> Inner<S> {
        Inner {
            out: Vec::new(),
            written: 0,
            expected: VecDeque::new(),
            slots: Slab::new(),
            running: false,
            connected: false,
            driver: None,
            closing: false,
            no_reconnect: false,
            ended: None,
            pause: None,
            subscription: None,
            push: None,
        }
    }
}

impl<S: ReplySink> RedisConnection<S> {
    pub(crate) fn new(config: Rc<RedisConfig>) -> Rc<RedisConnection<S>> {
        Rc::new(RedisConnection { config, inner: RefCell::default() })
    }

    /// Creates a connection for subscriptions, whose messages [`RedisConnection::poll_message`] returns.
    pub(crate) fn subscriber(config: Rc<RedisConfig>) -> Rc<RedisConnection<S>> {
        let subscription = Subscription {
            messages: VecDeque::new(),
            held: 0,
            most: config.max_reply,
            partial: S::default(),
            waker: None,
            confirmation: None,
            last_taken: None,
            ended: None,
        };
        let inner = Inner { subscription: Some(subscription), no_reconnect: true, ..Inner::default() };
        Rc::new(RedisConnection { config, inner: RefCell::new(inner) })
    }

    /// Makes all further commands fail once the connection ends.
    pub fn forbid_reconnect(&self) {
        self.inner.borrow_mut().no_reconnect = true;
    }

    /// Undoes [`RedisConnection::forbid_reconnect`]. Returns whether another user may take over the
    /// connection: it has not ended, no reply is missing and nothing is unsent.
    pub fn allow_reconnect(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        inner.no_reconnect = false;
        inner.ended.is_none() && inner.is_idle()
    }

    /// Sends `count` commands that `write` writes. With `listed` the result is an array of all replies,
    /// otherwise the one reply. `timeout` covers all replies; `None` waits without limit.
    ///
    /// # Errors
    /// Any error of `write`, or a missing connection.
    pub fn send<E: From<Error>>(
        self: &Rc<Self>,
        count: usize,
        listed: bool,
        timeout: Option<Duration>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Reply<S>, E> {
        let mut inner = self.inner.borrow_mut();
        let deadline = self.enqueue(&mut inner, timeout, write)?;
        let mut reply = S::default();
        if listed {
            reply.array(count as u32);
        }
        let slot = inner.slots.insert(Slot { missing: count, reply, waker: None, abandoned: false });
        if count > 0 {
            inner.expected.push_back(Expected { slot, deadline });
        }
        Ok(Reply { connection: self.clone(), slot })
    }

    /// Sends a command whose reply is a message: SUBSCRIBE and the like.
    ///
    /// # Errors
    /// As [`RedisConnection::send`].
    pub fn send_subscription<E: From<Error>>(
        self: &Rc<Self>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let inner = &mut *self.inner.borrow_mut();
        let deadline = self.enqueue(inner, Some(self.config.command_timeout), write)?;
        if let Some(subscription) = &mut inner.subscription {
            subscription.confirmation = deadline;
        }
        Ok(())
    }

    fn enqueue<E: From<Error>>(
        self: &Rc<Self>,
        inner: &mut Inner<S>,
        timeout: Option<Duration>,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Option<Instant>, E> {
        if let Some(error) = &inner.ended {
            return Err(error.clone().into());
        }
        let now = Instant::now();
        if let Some(pause) = &inner.pause
            && pause.until > now
        {
            return Err(pause.error.clone().into());
        }
        if inner.out.len() - inner.written > MAX_UNSENT {
            let why =
                format!("Redis on {} reads no commands: {MAX_UNSENT} bytes are unsent", self.config.address);
            return Err(Error::new(ErrorKind::ConnectionLost, why).into());
        }
        // The connection was about to be closed because it was idle; now it is used again.
        inner.closing = false;
        let before = inner.out.len();
        write(&mut inner.out).inspect_err(|_| inner.out.truncate(before))?;
        if !inner.running {
            inner.running = true;
            tokio::task::spawn_local(driver::drive(self.clone()));
        } else if before == inner.written
            && let Some(driver) = &inner.driver
        {
            driver.wake_by_ref();
        }
        Ok(timeout.map(|timeout| now + timeout))
    }

    /// Returns the next message of a subscription.
    pub fn poll_message(&self, cx: &mut Context<'_>) -> Poll<Result<S, Error>> {
        let inner = &mut *self.inner.borrow_mut();
        let Some(subscription) = &mut inner.subscription else {
            let why = "this connection has no subscriptions";
            return Poll::Ready(Err(Error::new(ErrorKind::Protocol, why)));
        };
        let was_full = subscription.is_full();
        if let Some(message) = subscription.messages.pop_front() {
            subscription.held -= message.size();
            subscription.last_taken = Some(Instant::now());
            if was_full
                && !subscription.is_full()
                && let Some(driver) = &inner.driver
            {
                driver.wake_by_ref();
            }
            return Poll::Ready(Ok(message));
        }
        if let Some(error) = &subscription.ended {
            return Poll::Ready(Err(error.clone()));
        }
        subscription.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    pub fn config(&self) -> &Rc<RedisConfig> {
        &self.config
    }

    /// Returns whether the connection is open and the server has accepted user and database.
    pub fn is_connected(&self) -> bool {
        self.inner.borrow().connected
    }

    /// Returns whether no reply is missing and nothing is unsent.
    pub fn is_idle(&self) -> bool {
        self.inner.borrow().is_idle()
    }

    /// Closes the connection; waiting callers get an error.
    pub fn close(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.closing = inner.running;
        if let Some(driver) = &inner.driver {
            driver.wake_by_ref();
        }
    }

    /// Completes all requests with an error; those whose deadline has passed with `overdue`.
    fn fail(&self, error: &Error, overdue: Option<Error>) {
        let inner = &mut *self.inner.borrow_mut();
        let now = Instant::now();
        (inner.running, inner.connected, inner.closing, inner.driver, inner.push) =
            (false, false, false, None, None);
        (inner.out, inner.written) = (Vec::new(), 0);
        inner.ended = inner.no_reconnect.then(|| error.clone());
        for expected in std::mem::take(&mut inner.expected) {
            let late = overdue.as_ref().filter(|_| expected.deadline.is_some_and(|deadline| deadline <= now));
            let error = late.unwrap_or(error);
            let reply = &mut inner.slots[expected.slot].reply;
            reply.clear();
            reply.error(error.kind, &error.message);
            inner.complete(expected.slot);
        }
        if let Some(subscription) = &mut inner.subscription {
            subscription.ended = Some(overdue.as_ref().unwrap_or(error).clone());
            if let Some(waker) = subscription.waker.take() {
                waker.wake();
            }
        }
    }
}

impl<S> Inner<S> {
    fn is_idle(&self) -> bool {
        self.expected.is_empty() && self.out.len() == self.written
    }

    /// Completes a slot whose replies have all arrived.
    fn complete(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.missing = 0;
        if slot.abandoned {
            self.slots.remove(number);
        } else if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }
}

/// The reply to one request, or an error in its place. When dropped, the reply is discarded on arrival.
pub struct Reply<S: ReplySink> {
    connection: Rc<RedisConnection<S>>,
    slot: usize,
}

impl<S: ReplySink> Reply<S> {
    /// Returns the bytes that the reply takes; `None` if it has not arrived.
    pub fn size(&self) -> Option<usize> {
        let slot = &self.connection.inner.borrow().slots[self.slot];
        (slot.missing == 0).then(|| slot.reply.size())
    }
}

impl<S: ReplySink> Future for Reply<S> {
    type Output = S;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<S> {
        let slot = &mut self.connection.inner.borrow_mut().slots[self.slot];
        if slot.missing == 0 {
            return Poll::Ready(std::mem::take(&mut slot.reply));
        }
        match &mut slot.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => slot.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl<S: ReplySink> Drop for Reply<S> {
    fn drop(&mut self) {
        let inner = &mut *self.connection.inner.borrow_mut();
        let slot = &mut inner.slots[self.slot];
        if slot.missing == 0 {
            inner.slots.remove(self.slot);
        } else {
            slot.abandoned = true;
            slot.waker = None;
        }
    }
}

#[cfg(test)]
mod tests;
