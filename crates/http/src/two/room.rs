//! What a connection waits for, and how it makes room for another one (`crate::room`).
//!
//! Contract:
//! 1. A connection waits for its client when all its requests do: for their bodies, or until the client takes more of their responses. That
//!    is looked at [`LOOK`] after the last bytes of a request or response, not for each of them.
//! 2. A connection that makes room ends with GOAWAY where it was idle; otherwise without a word, because its client does not read, or has
//!    said nothing.

use super::connection::Conn;
use crate::room::State;
use handler::Handler;
use net::Transport;
use std::time::{Duration, Instant};

/// How long after its last bytes it is looked whether a connection with requests waits for its client.
pub(super) const LOOK: Duration = Duration::from_millis(250);

impl<S: Transport, H: Handler + 'static> Conn<S, H> {
    /// The connection makes room for another one.
    pub(super) fn make_room(&mut self) {
        let hub = self.hub.clone();
        if self.open > 0 && self.delivery.has_advanced(&self.stream, &hub.timer, &hub.shared) {
            // Its client reads: another one makes room in its place.
            let now = hub.shared.timers.now();
            hub.shared.room.busy(hub.timer.key());
            self.wait(State::Stalled, now);
            hub.shared.displace_another();
        } else if self.open > 0 || self.served == 0 || self.blocked {
            self.stream.abort_on_drop();
            self.gone = true;
        } else {
            self.end();
        }
    }

    /// The connection waits for its client, since then unless it did before.
    pub(super) fn wait(&self, state: State, since: Instant) {
        self.hub.shared.room.wait(self.hub.timer.key(), state, since);
    }

    /// Bytes of a request or a response have been taken.
    pub(super) fn moved(&mut self) {
        self.moved = self.hub.shared.timers.recent();
        if self.open > 0 {
            self.wait(State::Moving, self.moved);
            let hub = &self.hub;
            if hub.check_at.get().is_none() {
                hub.check_at.set(Some(self.moved + LOOK));
            }
        }
    }

    /// Looks whether all requests wait for the client: for their bodies, or until it takes more of their responses.
    pub(super) fn follow(&self, now: Instant) {
        if self.open == 0 {
            return;
        }
        let hub = &self.hub;
        if now < self.moved + LOOK {
            return hub.look_at(self.moved + LOOK);
        }
        let engine = hub.engine.borrow();
        if self.slots.iter().flatten().all(|slot| slot.waits_for_client(&engine, self.blocked)) {
            self.wait(State::Stalled, self.moved);
        } else {
            hub.shared.room.busy(hub.timer.key());
        }
    }
}
