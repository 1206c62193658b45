//! Joins listeners that are not WebSockets to their streams.
//!
//! Contract: joining, and the messages that are missed, are one step under the lock of the streams, so a listener gets each message
//! once: as a missed one, or by delivery.

use super::listeners::{ConnectionKey, Listener};
use super::local::LocalHub;
use super::present::PresenceChange;
use super::{count, now_ms, uncount};
use cable::event_audience::EventForm;
use cable::event_id::{EventId, StreamSet};
use cable::presence::{PresenceJoin, SessionKey};
use cable::streams::StreamMessage;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A request that may listen.
pub(super) struct Listening {
    pub(super) set: StreamSet,
    /// The place at which the client is.
    pub(super) id: Option<Claimed>,
    pub(super) refreshes: bool,
    pub(super) connection: ConnectionKey,
    /// The member that the client is in one of the streams.
    pub(super) member: Option<PresenceJoin>,
}

/// The id that a client has sent.
pub(super) enum Claimed {
    Id(EventId),
    /// It is not one of this server, so it cannot be known what the client has.
    Unknown,
}

/// The streams that a listener has joined. Dropping it leaves them.
pub(super) struct JoinedSet {
    local: Rc<LocalHub>,
    set: Rc<StreamSet>,
    form: EventForm,
    number: u32,
    /// The stream in which the listener is a member, and its session.
    member: Option<(Arc<str>, SessionKey)>,
}

/// Messages before a listener has joined, and its place.
pub(super) struct Missed {
    /// The messages in the order in which they were sent, after `from`; `None` if some may be missing.
    pub(super) messages: Option<Vec<Arc<StreamMessage>>>,
    /// The offsets that the client has claimed; those of now if it has claimed none, or has a gap.
    pub(super) from: Vec<u64>,
    /// The offsets of now.
    pub(super) now: Vec<u64>,
    /// The epoch of all these offsets.
    pub(super) epoch: Arc<str>,
}

impl LocalHub {
    /// Lets a listener join its streams.
    pub(super) fn join(
        self: &Rc<Self>,
        listening: Listening,
        form: EventForm,
        listener: Rc<dyn Listener>,
    ) -> (JoinedSet, Missed) {
        let Listening { set, id, connection, member, .. } = listening;
        let missed = {
            let mut streams = self.hub.streams();
            let now = now_ms();
            let offsets: Vec<u64> =
                set.names().iter().map(|name| streams.listen(name, self.index, now)).collect();
            let positions = match &id {
                None => None,
                Some(Claimed::Unknown) => Some(None),
                Some(Claimed::Id(id)) => Some(id.positions(&set)),
            };
            let messages = positions.as_ref().map(|positions| {
                let missed = set.names().iter().zip(positions.as_ref()?);
                let missed = missed.map(|(name, position)| streams.resume(name, Some(position), None));
                let mut missed: Vec<_> = missed.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect();
                missed.sort_by_key(|message| message.number);
                Some(missed)
            });
            let from = match (&messages, positions) {
                (Some(Some(_)), Some(Some(positions))) => positions.iter().map(|one| one.offset).collect(),
                _ => offsets.clone(),
            };
            let epoch = streams.epoch().clone();
            Missed { messages: messages.unwrap_or_else(|| Some(Vec::new())), from, now: offsets, epoch }
        };
        self.hub.counts.subscriptions.fetch_add(set.names().len() as u64, Ordering::Relaxed);
        let (set, number) = self.listeners.join(set, form, listener, connection, &missed.now);
        count(self.counter(form));
        let joins = member.as_ref().map(|join| (join.stream.clone(), join.session));
        if let Some(join) = member {
            self.hub.change_member(PresenceChange::Join(join));
        }
        (JoinedSet { local: self.clone(), set, form, number, member: joins }, missed)
    }

    fn counter(&self, form: EventForm) -> &AtomicU64 {
        match form {
            EventForm::Event => &self.hub.counts.event_listeners,
            EventForm::Object => &self.hub.counts.polls,
        }
    }
}

impl JoinedSet {
    pub(super) fn set(&self) -> &StreamSet {
        &self.set
    }
}

impl Drop for JoinedSet {
    fn drop(&mut self) {
        let local = &self.local;
        local.listeners.leave(&self.set, self.form, self.number);
        if let Some((stream, session)) = self.member.take() {
            local.hub.change_member(PresenceChange::Lose(stream, session));
        }
        let (mut streams, now) = (local.hub.streams(), now_ms());
        self.set.names().iter().for_each(|name| streams.unlisten(name, local.index, now));
        drop(streams);
        local.hub.counts.subscriptions.fetch_sub(self.set.names().len() as u64, Ordering::Relaxed);
        uncount(local.counter(self.form));
    }
}
