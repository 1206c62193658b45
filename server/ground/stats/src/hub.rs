//! Statistics of the hub of live pages.

use crate::figures::figures;
use serde::{Deserialize, Serialize};

figures! {
    #[derive(Eq)]
    pub struct HubSnapshot {
        /// Open WebSockets of the hub.
        clients: u64 = gauge("firebrick_hub_clients"; "Open WebSockets of the hub"),
        /// Open responses with Server-Sent Events.
        event_listeners: u64 = gauge("firebrick_hub_listeners", transport = "events"; "Clients that only listen: by Server-Sent Events, by polls that wait, by Mercure"),
        /// Polls that wait for a message.
        polls: u64 = gauge("firebrick_hub_listeners", transport = "poll"),
        /// Subscribers of Mercure.
        mercure: u64 = gauge("firebrick_hub_listeners", transport = "mercure"),
        /// WebSockets opened since the start.
        accepted: u64 = counter("firebrick_hub_accepted"; "WebSockets that the hub has opened"),
        /// Subscriptions in force.
        subscriptions: u64 = gauge("firebrick_hub_subscriptions"; "Subscriptions in force"),
        /// Streams with listeners or kept messages.
        streams: u64 = gauge("firebrick_hub_streams"; "Streams with listeners or kept messages"),
        /// Members who are present in streams.
        members: u64 = gauge("firebrick_hub_members"; "Members of streams; with hub.redis those of this server's clients"),
        /// Memory of kept messages, including bookkeeping.
        history_bytes: u64 = gauge("firebrick_hub_history_bytes"; "Memory of kept messages of streams"),
        /// Messages that the app has published.
        published: u64 = counter("firebrick_hub_published"; "Messages that the app has published"),
        /// Messages put into the queues of clients.
        sent: u64 = counter("firebrick_hub_sent"; "Messages of streams put into the queues of clients"),
        /// Whispers of clients that were passed on.
        whispers: u64 = counter("firebrick_hub_whispers"; "Whispers of clients that were passed on"),
        /// Published messages that front threads have not passed on yet.
        backlog: u64 = gauge("firebrick_hub_backlog"; "Published messages that front threads have not passed on yet"),
        /// Clients closed because they read too slowly.
        slow: u64 = counter("firebrick_hub_slow_clients"; "Clients closed because they read too slowly"),
        /// Frames and commands that violate the protocol.
        violations: u64 = counter("firebrick_hub_violations"; "Frames and commands that violate the protocol"),
        /// Rejected subscriptions.
        rejected: u64 = counter("firebrick_hub_rejected"; "Rejected subscriptions"),
        /// Subscriptions that have resumed with all missed messages.
        resumed: u64 = counter("firebrick_hub_resumed", result = "complete"; "Subscriptions that have asked for missed messages"),
        /// Subscriptions whose missed messages were no longer all kept.
        gaps: u64 = counter("firebrick_hub_resumed", result = "gap"),
        /// 1 while the app serves new WebSockets itself.
        handed_back: u64 = gauge("firebrick_hub_handed_back"; "1 while the app serves new WebSockets itself, because a channel needs its own; else 0"),
        /// Calls to the app.
        calls: u64 = counter("firebrick_hub_calls"; "Calls of the hub to the app"),
        /// Calls without a usable answer.
        failed_calls: u64 = counter("firebrick_hub_failed_calls"; "Calls of the hub without a usable answer"),
        /// 1 while Redis cannot be reached.
        redis_away: u64 = gauge("firebrick_hub_redis_away"; "1 while the Redis of hub.redis cannot be reached, so that nothing is published; else 0"),
        /// How often Redis could not be reached any more.
        redis_losses: u64 = counter("firebrick_hub_redis_losses"; "How often the Redis of hub.redis could not be reached any more"),
        /// Messages whose publishers got an error.
        unpublished: u64 = counter("firebrick_hub_unpublished"; "Messages that hub.redis did not take, whose publishers got an error"),
    }
}

/// The output of `firebrick hub`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HubReport {
    pub hub: HubSnapshot,
    /// The streams with the most listeners.
    pub streams: Vec<HubStream>,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HubStream {
    pub name: String,
    pub listeners: u64,
    /// Members who are present.
    #[serde(default)]
    pub members: u64,
    /// Messages since it is known.
    pub published: u64,
    /// Messages that are kept, and their bytes.
    pub kept: u64,
    pub kept_bytes: u64,
}
