//! Connections that do not speak HTTP yet: TLS and QUIC handshakes, PROXY headers. They take part in the same
//! eviction order as all other connections.
//!
//! Contract:
//! 1. An arrival counts as waiting for its client whenever its work is pending, except within [`Arrival::by_server`].
//! 2. An arrival that is chosen to make room ends, whatever it waits for. After [`Context::end_arrivals`],
//!    all arrivals end.

use crate::context::{Context, ThreadShared};
use crate::room::{RoomState, Stage};
use net::{Subnet, Timer};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A connection before HTTP. Dropping this ends the arrival.
pub struct Arrival {
    shared: Rc<ThreadShared>,
    timer: Timer,
    /// The server is working; the arrival does not wait for its client.
    by_server: Cell<bool>,
}

impl<H> Context<H> {
    /// Registers a connection from `address` that begins with a TLS handshake or a PROXY header.
    pub fn arrive(&self, address: Subnet) -> Arrival {
        Arrival::new(&self.shared, address, Stage::Handshake)
    }

    /// Registers a QUIC handshake. `proved`: the client has proved that it receives packets at its address.
    /// Unproved handshakes make room before all others.
    pub fn arrive_by_quic(&self, address: Subnet, proved: bool) -> Arrival {
        Arrival::new(&self.shared, address, Stage::Quic { proved })
    }

    /// Returns the number of connections that do not speak HTTP yet.
    pub fn arrivals(&self) -> usize {
        self.shared.arrivals.get()
    }

    /// Ends all arrivals, and every arrival that begins from now on.
    pub fn end_arrivals(&self) {
        self.shared.arrivals_end.set(true);
        self.shared.timers.wake_all();
    }

    /// Ends the oldest QUIC handshake of the address that has the most of them. Returns `false` if no QUIC
    /// handshake waits for its client.
    pub fn displace_quic_handshake(&self) -> bool {
        self.shared.wake(self.shared.room.choose_quic())
    }
}

impl Arrival {
    fn new(shared: &Rc<ThreadShared>, address: Subnet, stage: Stage) -> Arrival {
        let timer = shared.timers.register();
        shared.room.open(timer.key(), address, stage);
        shared.arrivals.update(|n| n + 1);
        Arrival { shared: shared.clone(), timer, by_server: Cell::new(false) }
    }

    /// Runs `work`. Returns `None` if the arrival has to make room before `work` is done.
    pub async fn perform<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let (room, key) = (&self.shared.room, self.timer.key());
        poll_fn(|cx| {
            self.timer.wakes(cx.waker());
            if room.is_chosen(key) || self.shared.arrivals_end.get() {
                return Poll::Ready(None);
            }
            if let Poll::Ready(output) = work.as_mut().poll(cx) {
                room.busy(key);
                return Poll::Ready(Some(output));
            }
            if !self.by_server.get() {
                room.wait(key, RoomState::Unproved, self.shared.timers.recent());
            }
            Poll::Pending
        })
        .await
    }

    /// Runs a part of the work that needs nothing from the client.
    pub async fn by_server<F: Future>(&self, work: F) -> F::Output {
        self.by_server.set(true);
        self.shared.room.busy(self.timer.key());
        let output = work.await;
        self.by_server.set(false);
        output
    }
}

impl Drop for Arrival {
    fn drop(&mut self) {
        self.shared.arrivals.update(|n| n - 1);
        self.shared.room.close(self.timer.key());
    }
}
