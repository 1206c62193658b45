//! The front's record of one client between calls to the app: its state and its subscriptions.

use super::call::{self, HubOrder};
use super::local::LocalHub;
use super::timers::ChannelTimers;
use super::{count, uncount};
use cable::exclusion::SessionId;
use cable::presence::{PresenceJoin, SessionKey};
use handler::Request;
use std::rc::Rc;

/// The front's record of a client between calls to the app.
#[derive(Default)]
pub(super) struct Session {
    /// The identifiers and variables of the connection, as the app has written them.
    pub(super) connection: Box<str>,
    /// The stream on which the app ends connections like this one.
    pub(super) remote: Option<Box<str>>,
    pub(super) subscriptions: Vec<HubSubscription>,
    /// The client has connected by a token, so the app knows only of its channels.
    pub(super) by_token: bool,
    /// The app knows of the end, or has refused the connection.
    pub(super) left: bool,
}

impl Session {
    pub(super) fn subscription(&mut self, identifier: &str) -> Option<&mut HubSubscription> {
        self.subscriptions.iter_mut().find(|known| *known.identifier == *identifier)
    }
}

/// A subscription in force.
pub(super) struct HubSubscription {
    pub(super) identifier: Rc<str>,
    /// The variables of the channel; `None` for one that the app does not know of.
    pub(super) channel: Option<Box<str>>,
    pub(super) streams: Vec<JoinedStream>,
    /// The members that the client is by this subscription, at most one of a stream.
    pub(super) presence: SubscriptionPresence,
    /// `None` for most, which have none.
    pub(super) timers: Option<Box<ChannelTimers>>,
    pub(super) _counted: CountedSubscription,
}

/// The members that a client is by a subscription. It takes little room for the many that are none.
#[derive(Default)]
pub(super) struct SubscriptionPresence {
    /// A number that no other subscription has; 0 as long as it has been no member.
    pub(super) session: SessionKey,
    pub(super) joins: Vec<PresenceJoin>,
}

/// A stream of a subscription, and the offset after which its messages come by themselves.
pub(super) struct JoinedStream {
    pub(super) name: Box<str>,
    pub(super) offset: u64,
    /// Whether the client may whisper to it, and gets whispers.
    pub(super) takes_whispers: bool,
}

/// The order about the end of a client.
pub(super) struct LastOrder {
    pub(super) session: SessionId,
    pub(super) connection: Box<str>,
    pub(super) channels: Vec<(Rc<str>, Box<str>)>,
}

impl LastOrder {
    pub(super) async fn tell(self, local: &LocalHub, template: &Request) {
        let channels =
            self.channels.iter().map(|(identifier, channel)| (&**identifier, &**channel)).collect();
        let order = HubOrder {
            command: "disconnect",
            session: self.session,
            identifier: None,
            data: None,
            connection: &self.connection,
            channels,
        };
        if let Err(why) = call::ask_again(&local.hub, &local.app, template, &order, false).await {
            (local.log)(&why);
        }
    }
}

/// Counts a subscription as long as it lives.
pub(super) struct CountedSubscription(Rc<LocalHub>);

impl CountedSubscription {
    pub(super) fn new(local: &Rc<LocalHub>) -> CountedSubscription {
        count(&local.hub.counts.subscriptions);
        CountedSubscription(local.clone())
    }
}

impl Drop for CountedSubscription {
    fn drop(&mut self) {
        uncount(&self.0.hub.counts.subscriptions);
    }
}
