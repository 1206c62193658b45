//! The figures of the hub.

use super::SharedHub;
use stats::{HubReport, HubSnapshot, HubStream};
use std::sync::atomic::{AtomicU64, Ordering};

impl SharedHub {
    /// Returns the figures of all threads.
    pub(crate) fn snapshot(&self) -> HubSnapshot {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (streams, history_bytes) = {
            let streams = self.streams();
            (streams.len() as u64, streams.bytes() as u64)
        };
        let members = self.present.members() as u64;
        let handed_back = self.is_handed_back.load(Ordering::Relaxed).into();
        let counts = &self.counts;
        HubSnapshot {
            clients: of(&counts.clients),
            event_listeners: of(&counts.event_listeners),
            mercure: of(&counts.mercure),
            polls: of(&counts.polls),
            accepted: of(&counts.accepted),
            subscriptions: of(&counts.subscriptions),
            streams,
            members,
            history_bytes,
            published: of(&counts.published),
            sent: of(&counts.sent),
            whispers: of(&counts.whispers),
            backlog: of(&counts.backlog),
            slow: of(&counts.slow),
            violations: of(&counts.violations),
            rejected: of(&counts.rejected),
            resumed: of(&counts.resumed),
            gaps: of(&counts.gaps),
            handed_back,
            calls: of(&counts.calls),
            failed_calls: of(&counts.failed_calls),
            redis_away: of(&counts.redis_away),
            redis_losses: of(&counts.redis_losses),
            unpublished: of(&counts.unpublished),
        }
    }

    /// Returns the figures, and those of at most `limit` streams.
    pub(crate) fn report(&self, limit: usize) -> HubReport {
        let streams = self.streams().busiest(limit);
        let streams = streams.into_iter().map(|stream| HubStream {
            members: self.present.total(&stream.name) as u64,
            name: stream.name.to_string(),
            listeners: stream.listeners,
            published: stream.published,
            kept: stream.kept as u64,
            kept_bytes: stream.kept_bytes as u64,
        });
        HubReport { streams: streams.collect(), hub: self.snapshot() }
    }
}
