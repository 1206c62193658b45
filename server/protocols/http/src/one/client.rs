//! Implements the handler's view of its client: whether it has disconnected, and informational responses.
//!
//! Registering a socket with the event loop only to notice a disconnect would cost more than it brings,
//! because most responses are sent sooner. The socket is registered when the request is still waiting at the
//! next sweep of the timers.

use super::link::Link;
use handler::held::Holding;
use handler::{Client, Departure, Fields};
use net::{Lane, Transport};
use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

pub(crate) struct ClientView<S> {
    pub(crate) link: Weak<Link<S>>,
    pub(crate) exchange: u32,
    half_closed: Cell<bool>,
    /// A deadline is set; after it the event loop watches the client.
    patient: Cell<bool>,
    dead: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl<S: Transport> ClientView<S> {
    pub(crate) fn new(link: Weak<Link<S>>, exchange: u32) -> ClientView<S> {
        ClientView {
            link,
            exchange,
            half_closed: Cell::new(false),
            patient: Cell::new(false),
            dead: RefCell::new(None),
        }
    }

    /// Returns whether it is too early to register the socket. Uses the read deadline, which is free now: a
    /// read that has to wait registers the socket itself.
    fn may_wait(&self, link: &Link<S>) -> bool {
        if !self.patient.replace(true) {
            link.timer.arm_in(Lane::Read, Duration::ZERO);
        }
        !link.timer.expired(Lane::Read)
    }

    /// Waits for the event loop's error event, the only signal left after the client's end of stream was read.
    fn poll_dead(&self, link: Rc<Link<S>>, cx: &mut Context<'_>) -> Poll<Departure> {
        let mut dead = self.dead.borrow_mut();
        let waiting = dead.get_or_insert_with(|| Box::pin(async move { link.stream.failed().await }));
        waiting.as_mut().poll(cx).map(|()| {
            *dead = None;
            Departure::Gone
        })
    }
}

impl<S: Transport> Client for ClientView<S> {
    fn poll_departure(&self, cx: &mut Context<'_>) -> Poll<Departure> {
        let Some(link) = self.link.upgrade() else { return Poll::Ready(Departure::Gone) };
        if link.exchange.get() != self.exchange {
            return Poll::Ready(Departure::Gone);
        }
        if !link.stream.is_watched() && self.may_wait(&link) {
            return Poll::Pending;
        }
        loop {
            if self.half_closed.get() {
                return if link.stream.has_failed() {
                    Poll::Ready(Departure::Gone)
                } else {
                    self.poll_dead(link, cx)
                };
            }
            if link.stream.poll_readable(cx).is_pending() {
                return Poll::Pending;
            }
            if link.stream.has_failed() {
                return Poll::Ready(Departure::Gone);
            }
            match link.stream.try_peek() {
                Ok(false) => {
                    self.half_closed.set(true);
                    return Poll::Ready(Departure::HalfClosed);
                }
                // Body or pipelined bytes stay in the socket. The end of the stream may be behind them, or
                // comes with the next event.
                Ok(true) => {
                    link.unread.set(true);
                    if link.stream.has_ended() {
                        self.half_closed.set(true);
                        return Poll::Ready(Departure::HalfClosed);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(Departure::Gone),
            }
        }
    }

    fn interim(&self, status: u16, fields: &Fields) {
        if let Some(link) = self.link.upgrade()
            && link.exchange.get() == self.exchange
            && link.interim_allowed.get()
            && let Some(text) = h1::encode_interim(status, fields)
        {
            link.send_interim(&text);
        }
    }

    fn holding(&self) -> Option<Rc<Holding>> {
        self.link.upgrade().filter(|link| link.exchange.get() == self.exchange).map(|link| link.holding())
    }
}
