//! The state of one stream, from its request to its end.

use super::body::Source;
use super::client::StreamClient;
use super::hub::Hub;
use crate::message::ExchangeRecord;
use h1::Expect;
use handler::{Failure, Response};
use http2::StreamId;
use std::pin::Pin;
use std::rc::Rc;

/// An open stream, with its exchange.
pub(super) struct StreamSlot {
    pub(super) id: StreamId,
    pub(super) client: Rc<StreamClient>,
    pub(super) outcome: ExchangeRecord,
    pub(super) is_head: bool,
    pub(super) state: StreamState,
}

/// The phase of a stream.
pub(super) enum StreamState {
    /// The request has arrived in this turn.
    New(Result<Expected, Failure>),
    /// The handler is running.
    Handling(Pin<Box<dyn Future<Output = Response>>>),
    /// The response is being sent.
    Sending(Source),
}

/// The facts in a head about its body.
pub(super) struct Expected {
    /// The declared length; `None` if there is no body.
    pub(super) length: Option<u64>,
    pub(super) expect: Expect,
}

impl StreamSlot {
    /// Returns whether the stream waits for the client: for its body, or for the client to read the response.
    /// `blocked`: the connection has no room.
    pub(super) fn waits_for_client(&self, engine: &http2::Connection, blocked: bool) -> bool {
        match &self.state {
            StreamState::New(_) => false,
            StreamState::Handling(_) => self.client.is_awaited(),
            StreamState::Sending(_) => blocked || engine.room(self.id) == 0,
        }
    }

    /// Returns whether the stream has become a tunnel.
    pub(super) fn is_tunnel(&self) -> bool {
        matches!(self.state, StreamState::Sending(Source::Tunnel(_)))
    }

    /// Returns whether the stream is a tunnel whose END_STREAM has been sent.
    pub(super) fn is_closed_tunnel(&self) -> bool {
        matches!(&self.state, StreamState::Sending(source) if source.is_closed_tunnel())
    }

    /// Ends the stream without polling its handler again.
    pub(super) fn cut_off(self, hub: &Hub) -> ExchangeRecord {
        let StreamSlot { client, mut outcome, state, .. } = self;
        client.end(hub);
        // Dropping the handler's future returns the request.
        drop(state);
        outcome.sent.broken = true;
        outcome
    }
}
