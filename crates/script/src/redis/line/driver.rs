//! What runs a connection: it connects, reads, hands replies out in their order, writes, and looks at the time.

use super::super::resp::{Malformed, Parser};
use super::super::wire::{self, Duplex};
use super::{Fault, Inner, Line, MAX_FED};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::time::{Instant, Sleep, sleep_until};

/// Pause after a connection that could not be made: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));
/// A subscription whose messages nobody takes for so long is over: a task may end without saying so.
const UNTAKEN: Duration = Duration::from_secs(120);
/// Buffers that grew beyond are given back, bytes.
const KEPT: usize = 1 << 20;

/// Why a connection ended.
enum End {
    /// The line was left.
    Left,
    Lost(String),
    Overdue,
}

impl Line {
    /// Runs a connection as far as it goes for now.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        wire: &mut dyn Duplex,
        parser: &mut Parser,
        timer: &mut Timer,
    ) -> Poll<End> {
        let inner = &mut *self.inner.borrow_mut();
        if !inner.driver.as_ref().is_some_and(|driver| driver.will_wake(cx.waker())) {
            inner.driver = Some(cx.waker().clone());
        }
        if inner.left {
            return Poll::Ready(End::Left);
        }
        let end = inner
            .read(cx, wire, parser)
            .or_else(|| inner.write(cx, wire))
            .or_else(|| timer.overdue(cx, inner));
        end.map_or(Poll::Pending, Poll::Ready)
    }

    fn ended(&self, end: End) {
        let place = &self.config.place;
        let (why, overdue) = match end {
            End::Left => (format!("the connection to Redis on {place} was closed"), false),
            End::Lost(why) => (format!("the connection to Redis on {place} was lost: {why}"), false),
            End::Overdue => (
                format!("the connection to Redis on {place} was closed: a reply before this one was overdue"),
                true,
            ),
        };
        let span = self.config.command_timeout.as_secs_f64();
        let late = format!("no reply from Redis on {place} within command_timeout ({span} s)");
        self.fail(
            &Fault::new("Redis::ConnectionError", why),
            overdue.then(|| Fault::new("Redis::CommandTimeoutError", late)),
        );
    }
}

impl Inner {
    fn read(&mut self, cx: &mut Context<'_>, wire: &mut dyn Duplex, parser: &mut Parser) -> Option<End> {
        loop {
            if let Err(malformed) = self.deliver(parser) {
                return Some(End::Lost(format!("it sent {}", malformed.0)));
            }
            if self.feed.as_ref().is_some_and(|feed| feed.messages.len() >= MAX_FED) {
                return None;
            }
            let mut room = ReadBuf::new(parser.room());
            match Pin::new(&mut *wire).poll_read(cx, &mut room) {
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

    /// Hands out the replies that are there.
    fn deliver(&mut self, parser: &mut Parser) -> Result<(), Malformed> {
        while let Some(is_push) = parser.next_is_push() {
            if let Some(feed) = &mut self.feed {
                if feed.messages.len() >= MAX_FED || !parser.next(&mut feed.partial)? {
                    return Ok(());
                }
                feed.asked = None;
                if feed.messages.is_empty() {
                    feed.touched = Some(Instant::now());
                }
                feed.messages.push_back(std::mem::take(&mut feed.partial));
                if let Some(waker) = feed.waker.take() {
                    waker.wake();
                }
            } else if is_push || self.push.is_some() {
                if !parser.next(self.push.get_or_insert_default())? {
                    return Ok(());
                }
                self.push = None;
            } else {
                let Some(place) = self.queue.front() else {
                    return Err(Malformed("a reply that nobody has asked for".to_owned()));
                };
                let (number, slot) = (place.slot, &mut self.slots[place.slot]);
                if !parser.next(&mut slot.tape)? {
                    return Ok(());
                }
                slot.missing -= 1;
                if slot.missing == 0 {
                    self.queue.pop_front();
                    self.settle(number);
                }
            }
        }
        Ok(())
    }

    /// When the connection has to be given up.
    fn deadline(&self) -> Option<Instant> {
        match &self.feed {
            Some(feed) if feed.asked.is_some() => feed.asked,
            Some(feed) if !feed.messages.is_empty() => feed.touched.map(|touched| touched + UNTAKEN),
            _ => self.queue.front().and_then(|place| place.deadline),
        }
    }

    /// The answer of a slot is whole.
    pub(super) fn settle(&mut self, number: usize) {
        let slot = &mut self.slots[number];
        slot.missing = 0;
        if slot.given_up {
            self.slots.remove(number);
        } else if let Some(waker) = slot.waker.take() {
            waker.wake();
        }
    }

    fn write(&mut self, cx: &mut Context<'_>, wire: &mut dyn Duplex) -> Option<End> {
        while self.written < self.out.len() {
            match Pin::new(&mut *wire).poll_write(cx, &self.out[self.written..]) {
                Poll::Pending => return None,
                Poll::Ready(Ok(0)) => return Some(End::Lost("it takes no bytes".to_owned())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Some(End::Lost(error.to_string())),
            }
        }
        if self.written > 0 {
            self.out.clear();
            self.out.shrink_to(KEPT);
            self.written = 0;
        }
        match Pin::new(wire).poll_flush(cx) {
            Poll::Ready(Err(error)) => Some(End::Lost(error.to_string())),
            _ => None,
        }
    }
}

/// Wakes the driver when a reply may be overdue. One timer for all: it is set anew only when it has run out, or is too late.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    until: Option<Instant>,
}

impl Timer {
    fn new() -> Timer {
        Timer { sleep: Box::pin(sleep_until(Instant::now())), until: None }
    }

    /// Deadlines on a line are in its order: all have the same patience, or there is but one.
    fn overdue(&mut self, cx: &mut Context<'_>, inner: &Inner) -> Option<End> {
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
                return Some(match &inner.feed {
                    Some(feed) if feed.asked.is_none() => End::Lost("nobody took its messages".to_owned()),
                    _ => End::Overdue,
                });
            }
            self.sleep.as_mut().reset(deadline);
            self.until = Some(deadline);
        }
    }
}

/// Connects, and serves the line until its connection ends.
pub(super) async fn drive(line: Rc<Line>) {
    let opened = {
        let mut opening = pin!(wire::open(&line.config));
        poll_fn(|cx| {
            let mut inner = line.inner.borrow_mut();
            if inner.left {
                return Poll::Ready(None);
            }
            inner.driver = Some(cx.waker().clone());
            drop(inner);
            opening.as_mut().poll(cx).map(Some)
        })
        .await
    };
    let (mut wire, mut parser) = match opened {
        Some(Ok(opened)) => opened,
        Some(Err(fault)) => {
            let last = line.inner.borrow().pause.as_ref().map(|(_, pause, _)| *pause);
            let pause = last.map_or(PAUSES.0, |pause| (pause * 2).min(PAUSES.1));
            line.inner.borrow_mut().pause = Some((Instant::now() + pause, pause, fault.clone()));
            return line.fail(&fault, None);
        }
        None => return line.ended(End::Left),
    };
    {
        let mut inner = line.inner.borrow_mut();
        (inner.connected, inner.pause) = (true, None);
    }
    let mut timer = Timer::new();
    let end = poll_fn(|cx| line.poll(cx, &mut *wire, &mut parser, &mut timer)).await;
    line.ended(end);
}
