//! Connections before HTTP: handshakes and PROXY headers. They are in the same order as all others when one has to make room.
//!
//! Contract:
//! 1. The client is waited for whenever the work of an arrival is pending, except within [`Arrival::by_server`].
//! 2. An arrival that has to make room ends, whatever it waits for. So does every one after [`Context::end_arrivals`].

use crate::context::{Context, Shared};
use crate::room::{Stage, State};
use net::{Subnet, Timer};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

/// A connection before HTTP, until this is dropped.
pub struct Arrival {
    shared: Rc<Shared>,
    timer: Timer,
    /// The server is waited for.
    by_server: Cell<bool>,
}

impl<H> Context<H> {
    /// A connection of a client at this address that begins with a handshake of TLS, or a PROXY header.
    pub fn arrive(&self, address: Subnet) -> Arrival {
        Arrival::new(&self.shared, address, Stage::Handshake)
    }

    /// One that begins with a handshake of QUIC; `proved`: the client receives what is sent to its address. Otherwise it leaves before all
    /// others.
    pub fn arrive_by_quic(&self, address: Subnet, proved: bool) -> Arrival {
        Arrival::new(&self.shared, address, Stage::Quic { proved })
    }

    /// How many connections have not come as far as HTTP.
    pub fn arrivals(&self) -> usize {
        self.shared.arrivals.get()
    }

    /// Ends them, and those that begin from now on.
    pub fn end_arrivals(&self) {
        self.shared.arrivals_end.set(true);
        self.shared.timers.wake_all();
    }

    /// Ends the oldest handshake of QUIC of the address that has the most of them; `false` if none waits for its client.
    pub fn displace_quic_handshake(&self) -> bool {
        self.shared.wake(self.shared.room.choose_quic())
    }
}

impl Arrival {
    fn new(shared: &Rc<Shared>, address: Subnet, stage: Stage) -> Arrival {
        let timer = shared.timers.register();
        shared.room.open(timer.key(), address, stage);
        shared.arrivals.update(|n| n + 1);
        Arrival { shared: shared.clone(), timer, by_server: Cell::new(false) }
    }

    /// Does `work`; `None` when the connection has to make room before it is done.
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
                room.wait(key, State::Unproved, self.shared.timers.recent());
            }
            Poll::Pending
        })
        .await
    }

    /// Does a part of the work for which the client does not have to do anything.
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
