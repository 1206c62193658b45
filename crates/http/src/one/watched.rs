//! When a connection waits for its client, and what ends that: the client has stalled, or the connection has to make room for another one.

use super::link::Link;
use crate::room::State;
use net::Transport;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<S: Transport> Link<S> {
    /// Cuts the connection when its client has stalled, or when it or its response has to make room: whoever waits for it finds out by reading
    /// or writing. Whether it was cut.
    #[inline]
    pub(crate) fn attend(&self) -> bool {
        if self.is_response_displaced() {
            self.cut();
            return true;
        }
        if self.is_displaced() {
            return self.make_room();
        }
        self.delivery.is_stalled(&self.stream, &self.timer, &self.shared)
    }

    /// Cuts the connection, unless its client has taken more of a response than it was known to have: then another one makes room.
    #[cold]
    fn make_room(&self) -> bool {
        if self.delivery.has_advanced(&self.stream, &self.timer, &self.shared) {
            self.busy();
            self.wait(State::Stalled);
            self.shared.displace_another();
            return false;
        }
        self.cut();
        true
    }

    #[cold]
    fn cut(&self) {
        self.delivery.give_up();
        self.stream.cut();
    }

    /// Whether the connection has to make room.
    #[inline]
    pub(crate) fn is_displaced(&self) -> bool {
        self.shared.room.is_chosen(self.timer.key())
    }

    /// The connection waits for its client, since now unless it did before.
    #[inline]
    pub(crate) fn wait(&self, state: State) {
        self.shared.room.wait(self.timer.key(), state, self.shared.timers.recent());
    }

    /// The server has something to do for the client.
    #[inline]
    pub(crate) fn busy(&self) {
        self.shared.room.busy(self.timer.key());
    }

    /// Whether a write waits for the client now.
    pub(super) fn block(&self, blocked: bool) {
        if self.delivery.block(blocked, &self.stream, &self.timer, &self.shared) {
            if blocked { self.wait(State::Stalled) } else { self.busy() }
        }
    }
}

/// The work of a connection, which ends early when its client takes nothing of what it is sent, or when it has to make room.
pub(super) struct Watched<'a, S, F> {
    link: &'a Link<S>,
    work: Pin<Box<F>>,
}

impl<'a, S, F> Watched<'a, S, F> {
    pub(super) fn new(link: &'a Link<S>, work: Pin<Box<F>>) -> Watched<'a, S, F> {
        Watched { link, work }
    }
}

impl<S: Transport, F: Future> Future for Watched<'_, S, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // The work finds out by itself: what it reads or writes next fails.
        self.link.attend();
        self.work.as_mut().poll(cx)
    }
}
