//! Tracks the state of a connection, and closes it to make room for another one (`crate::room`).
//!
//! Contract:
//! 1. A connection waits for its client when all its requests do: for their bodies, or for the client to read
//!    their responses. That is checked [`LOOK`] after the last bytes of a request or response, not for each
//!    of them.
//! 2. A connection that makes room ends with GOAWAY if it is idle. Otherwise it is reset, because its client
//!    does not read or has sent no request.

use super::connection::Conn;
use super::hub::LOOK;
use crate::room::RoomState;
use handler::Handler;
use net::Transport;
use std::time::Instant;

impl<S: Transport, H: Handler + 'static> Conn<S, H> {
    /// Makes room for another connection.
    pub(super) fn make_room(&mut self) {
        let hub = self.hub.clone();
        if self.open > 0 && self.delivery.has_advanced(&self.stream, &hub.timer, &hub.shared) {
            // The client reads, so another connection makes room in its place.
            let now = hub.shared.timers.now();
            hub.shared.room.busy(hub.timer.key());
            self.wait(RoomState::Stalled, now);
            hub.shared.displace_another();
        } else if self.open > 0 || self.served == 0 || self.blocked {
            self.stream.abort_on_drop();
            self.gone = true;
        } else {
            self.end();
        }
    }

    /// Records that the connection waits, from `since` on unless it already did.
    pub(super) fn wait(&self, state: RoomState, since: Instant) {
        self.hub.shared.room.wait(self.hub.timer.key(), state, since);
    }

    /// Records that bytes of a request or a response moved.
    pub(super) fn moved(&mut self) {
        self.moved = self.hub.shared.timers.recent();
        if self.open > 0 {
            self.wait(RoomState::Moving, self.moved);
            let hub = &self.hub;
            if hub.check_at.get().is_none() {
                hub.check_at.set(Some(self.moved + LOOK));
            }
        }
    }

    /// Checks whether all requests wait for the client: for their bodies, or for the client to read their responses.
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
            self.wait(RoomState::Stalled, self.moved);
        } else {
            hub.shared.room.busy(hub.timer.key());
        }
    }
}
