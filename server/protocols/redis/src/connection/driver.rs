//! Runs a connection's task: connects, reads, hands out replies in order, writes, and watches deadlines.

use super::{Inner, Pause, RedisConnection, Subscription};
use crate::error::{Error, ErrorKind};
use crate::resp::{MalformedReply, Parser, ReplySink};
use crate::stream::{self, Duplex};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep_until};

/// The pause after a failure to connect; it doubles with each failure.
const MIN_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// A subscription whose messages are not taken for this long is closed: its task may have ended without unsubscribing.
const MAX_UNTAKEN: Duration = Duration::from_secs(120);
/// A larger output buffer is shrunk when it is empty, in bytes.
const MAX_KEPT_BUFFER: usize = 1 << 20;

/// Why a connection ended.
enum End {
    /// [`RedisConnection::close`]
    Closed,
    Lost(String),
    Overdue,
}

impl<S: ReplySink> RedisConnection<S> {
    /// Reads and writes until it would block.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        stream: &mut dyn Duplex,
        parser: &mut Parser,
        timer: &mut Timer,
    ) -> Poll<End> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            inner.driver = Some(cx.waker().clone());
        }
        if inner.closing {
            return Poll::Ready(End::Closed);
        }
        let end = inner
            .read(cx, stream, parser)
            .or_else(|| inner.write(cx, stream))
            .or_else(|| timer.overdue(cx, inner));
        end.map_or(Poll::Pending, Poll::Ready)
    }

    fn end(&self, end: End) {
        let address = &self.config.address;
        let (why, overdue) = match end {
            End::Closed => (format!("the connection to Redis on {address} was closed"), false),
            End::Lost(why) => (format!("the connection to Redis on {address} was lost: {why}"), false),
            End::Overdue => (
                format!("the connection to Redis on {address} was closed: an earlier reply was overdue"),
                true,
            ),
        };
        let timeout = self.config.command_timeout.as_secs_f64();
        let late = format!("no reply from Redis on {address} within command_timeout ({timeout} s)");
        self.fail(
            &Error::new(ErrorKind::ConnectionLost, why),
            overdue.then(|| Error::new(ErrorKind::CommandTimeout, late)),
        );
    }
}

impl<S: ReplySink> Inner<S> {
    fn read(&mut self, cx: &mut Context<'_>, stream: &mut dyn Duplex, parser: &mut Parser) -> Option<End> {
        loop {
            if let Err(malformed) = self.deliver(parser) {
                return Some(End::Lost(format!("it sent {}", malformed.0)));
            }
            if self.subscription.as_ref().is_some_and(Subscription::is_full) {
                return None;
            }
            let mut room = ReadBuf::new(parser.room());
            match Pin::new(&mut *stream).poll_read(cx, &mut room) {
                Poll::Pending => return None,
                Poll::Ready(Err(error)) => return Some(End::Lost(error.to_string())),
                Poll::Ready(Ok(())) => {
                    let count = room.filled().len();
                    if count == 0 {
                        return Some(End::Lost("Redis closed it".to_owned()));
                    }
                    parser.filled(count);
                }
            }
        }
    }

    /// Hands out the replies that have arrived.
    fn deliver(&mut self, parser: &mut Parser) -> Result<(), MalformedReply> {
        while let Some(is_push) = parser.next_is_push() {
            if let Some(subscription) = &mut self.subscription {
                if subscription.is_full() || !parser.next(&mut subscription.partial)? {
                    return Ok(());
                }
                subscription.confirmation = None;
                if subscription.messages.is_empty() {
                    subscription.last_taken = Some(Instant::now());
                }
                subscription.held += subscription.partial.size();
                subscription.messages.push_back(std::mem::take(&mut subscription.partial));
                if let Some(waker) = subscription.waker.take() {
                    waker.wake();
                }
            } else if is_push || self.push.is_some() {
                if !parser.next(self.push.get_or_insert_default())? {
                    return Ok(());
                }
                self.push = None;
            } else {
                let Some(expected) = self.expected.front() else {
                    return Err(MalformedReply("a reply to no command".to_owned()));
                };
                let (number, slot) = (expected.slot, &mut self.slots[expected.slot]);
                if !parser.next(&mut slot.reply)? {
                    return Ok(());
                }
                slot.missing -= 1;
                if slot.missing == 0 {
                    self.expected.pop_front();
                    self.complete(number);
                }
            }
        }
        Ok(())
    }

    /// Returns when the connection has to be closed.
    fn deadline(&self) -> Option<Instant> {
        match &self.subscription {
            Some(it) if it.confirmation.is_some() => it.confirmation,
            Some(it) if !it.messages.is_empty() => it.last_taken.map(|taken| taken + MAX_UNTAKEN),
            _ => self.expected.front().and_then(|expected| expected.deadline),
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, stream: &mut dyn Duplex) -> Option<End> {
        while self.written < self.out.len() {
            match Pin::new(&mut *stream).poll_write(cx, &self.out[self.written..]) {
                Poll::Pending => return None,
                Poll::Ready(Ok(0)) => return Some(End::Lost("it accepts no bytes".to_owned())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Some(End::Lost(error.to_string())),
            }
        }
        if self.written > 0 {
            self.out.clear();
            self.out.shrink_to(MAX_KEPT_BUFFER);
            self.written = 0;
        }
        match Pin::new(stream).poll_flush(cx) {
            Poll::Ready(Err(error)) => Some(End::Lost(error.to_string())),
            _ => None,
        }
    }
}

/// Wakes the driver when a reply may be overdue. One timer serves all replies: it is reset only after it
/// fired, or when it would fire too late.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    until: Option<Instant>,
}

impl Timer {
    fn new() -> Timer {
        Timer { sleep: Box::pin(sleep_until(Instant::now())), until: None }
    }

    /// Returns the end of the connection if a reply is overdue. Deadlines on a connection are in its order:
    /// all requests have the same time-out, or there is only one.
    fn overdue<S: ReplySink>(&mut self, cx: &mut Context<'_>, inner: &Inner<S>) -> Option<End> {
        loop {
            let deadline = inner.deadline();
            if let Some(until) = self.until
                && deadline.is_none_or(|deadline| until <= deadline)
            {
                if self.sleep.as_mut().poll(cx).is_pending() {
                    return None;
                }
                self.until = None;
            }
            let deadline = deadline?;
            if deadline <= Instant::now() {
                return Some(match &inner.subscription {
                    Some(it) if it.confirmation.is_none() => {
                        End::Lost("its messages were not taken".to_owned())
                    }
                    _ => End::Overdue,
                });
            }
            self.sleep.as_mut().reset(deadline);
            self.until = Some(deadline);
        }
    }
}

/// Connects, and runs the connection until it ends.
pub(super) async fn drive<S: ReplySink>(connection: Rc<RedisConnection<S>>) {
    let opened = {
        let mut opening = pin!(stream::open(&connection.config));
        poll_fn(|cx| {
            let mut inner = connection.inner.borrow_mut();
            if inner.closing {
                return Poll::Ready(None);
            }
            inner.driver = Some(cx.waker().clone());
            drop(inner);
            opening.as_mut().poll(cx).map(Some)
        })
        .await
    };
    let (mut stream, mut parser) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(error)) => {
            let earlier =
                connection.inner.borrow().pause.as_ref().map_or(0, |last| last.earlier.saturating_add(1));
            let until = Instant::now() + net::backoff(MIN_PAUSE, earlier, MAX_PAUSE);
            let pause = Pause { until, earlier, error: error.clone() };
            connection.inner.borrow_mut().pause = Some(pause);
            return connection.fail(&error, None);
        }
        None => return connection.end(End::Closed),
    };
    {
        let mut inner = connection.inner.borrow_mut();
        (inner.connected, inner.pause) = (true, None);
    }
    let mut timer = Timer::new();
    let end = poll_fn(|cx| connection.poll(cx, &mut *stream, &mut parser, &mut timer)).await;
    connection.end(end);
}
