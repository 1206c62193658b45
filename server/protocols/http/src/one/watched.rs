//! Ends connections that wait for their client, if the client has stalled or the connection must make room
//! for another one.

use super::link::Link;
use crate::room::RoomState;
use net::Transport;
use std::pin::Pin;
use std::task::{Context, Poll};

impl<S: Transport> Link<S> {
    /// Cuts the connection if its client has stalled, or if the connection or its response must make room.
    /// The next read or write then fails. Returns whether the connection was cut.
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

    /// Cuts the connection, unless its client has read more of the response since the last check: then
    /// another connection makes room.
    #[cold]
    fn make_room(&self) -> bool {
        if self.delivery.has_advanced(&self.stream, &self.timer, &self.shared) {
            self.busy();
            self.wait(RoomState::Stalled);
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

    /// Returns whether the connection has to make room.
    #[inline]
    pub(crate) fn is_displaced(&self) -> bool {
        self.shared.room.is_chosen(self.timer.key())
    }

    /// Records that the connection waits for its client, from now on unless it already did.
    #[inline]
    pub(crate) fn wait(&self, state: RoomState) {
        self.shared.room.wait(self.timer.key(), state, self.shared.timers.recent());
    }

    /// Records that the server is working for the client.
    #[inline]
    pub(crate) fn busy(&self) {
        self.shared.room.busy(self.timer.key());
    }

    /// Records whether a write waits for the client.
    pub(super) fn block(&self, blocked: bool) {
        if self.delivery.block(blocked, &self.stream, &self.timer, &self.shared) {
            if blocked { self.wait(RoomState::Stalled) } else { self.busy() }
        }
    }
}

/// A connection's future, which is cut short when the client does not read or the connection has to make room.
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
        // If the connection was cut, the next read or write of the work fails.
        self.link.attend();
        self.work.as_mut().poll(cx)
    }
}
