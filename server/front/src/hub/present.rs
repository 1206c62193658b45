//! The members of all streams ([`cable::presence`]), shared by the threads of the front.
//!
//! Why: a member is present on any thread, and its events get their offsets where all messages do.
//!
//! Contract:
//! 1. Changes are made by the task that publishes, in the order in which a thread has sent them. A change and its event are one step under
//!    the lock of the members, so a reader of the members gets each later event as well.
//! 2. A program that has given its streams away changes nothing more: the new one has the members.
//! 3. With `hub.redis` there are no members: members are not shared between servers yet.

use super::{DeskOrder, SharedHub, now_ms};
use cable::presence::{JoinRefusal, PresenceBounds, PresenceJoin, PresenceRecord, PresenceTable, SessionKey};
use cable::presence_query;
use settings::Settings;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The answer to all that concerns members while streams are shared.
pub(super) const NOT_SHARED: &str =
    "there is no presence with hub.redis: members are not shared between servers yet";

/// A change of the members, and where a client waits for it.
pub(super) struct PresenceOrder {
    change: PresenceChange,
    answer: Option<oneshot::Sender<Result<(), JoinRefusal>>>,
}

/// A change of the members.
pub(super) enum PresenceChange {
    Join(PresenceJoin),
    Leave(Arc<str>, SessionKey),
    /// The connection of the session is gone.
    Lose(Arc<str>, SessionKey),
    Expire,
}

/// The members of all streams.
pub(super) struct PresentStreams {
    table: Mutex<PresenceTable>,
    /// The beginning of the time of the table.
    start: Instant,
}

impl PresentStreams {
    pub(super) fn new(settings: &Settings) -> PresentStreams {
        let bounds = PresenceBounds {
            expiry: u64::try_from(settings.hub.presence_expiry.as_millis()).unwrap_or(u64::MAX),
            members: settings.hub.presence_members as usize,
            bytes: usize::try_from(settings.hub.presence_memory).unwrap_or(usize::MAX),
        };
        PresentStreams { table: Mutex::new(PresenceTable::new(bounds)), start: Instant::now() }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, PresenceTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns milliseconds that do not go back when the clock is set.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn members(&self) -> usize {
        self.table().len()
    }

    pub(super) fn total(&self, stream: &str) -> usize {
        self.table().total(stream)
    }

    pub(super) fn record(&self) -> PresenceRecord {
        self.table().record()
    }

    pub(super) fn adopt(&self, record: PresenceRecord) {
        self.table().adopt(record, self.now());
    }
}

/// A new number for a subscription.
pub(super) fn new_session() -> SessionKey {
    fastrand::u64(1..)
}

impl SharedHub {
    /// Makes a change, unless another program has the members.
    pub(super) fn attend(&self, order: PresenceOrder, is_closing: bool) {
        let PresenceOrder { change, answer } = order;
        let changed = if is_closing { Ok(()) } else { self.change_members(change) };
        if let Some(answer) = answer {
            // A client that has gone needs no answer.
            let _ = answer.send(changed);
        }
    }

    fn change_members(&self, change: PresenceChange) -> Result<(), JoinRefusal> {
        let mut table = self.present.table();
        let tell = &mut |stream: &str, payload: String| _ = self.publish(stream, &payload);
        match change {
            PresenceChange::Join(join) => return table.join(&join, tell),
            PresenceChange::Leave(stream, session) => _ = table.leave(&stream, session, tell),
            PresenceChange::Lose(stream, session) => table.lose(&stream, session, self.present.now(), tell),
            PresenceChange::Expire => table.expire(self.present.now(), tell),
        }
        Ok(())
    }

    /// Lets a member join.
    ///
    /// # Errors
    /// It may not. The text is for the client.
    pub(super) async fn join_member(&self, join: PresenceJoin) -> Result<(), String> {
        if self.is_shared {
            return Err(NOT_SHARED.to_owned());
        }
        let (answer, answered) = oneshot::channel();
        self.send_change(PresenceChange::Join(join), Some(answer));
        // The task that publishes ends with the server.
        answered.await.unwrap_or(Ok(())).map_err(|refusal| refusal.to_string())
    }

    /// Changes the members without an answer.
    pub(super) fn change_member(&self, change: PresenceChange) {
        self.send_change(change, None);
    }

    fn send_change(&self, change: PresenceChange, answer: Option<oneshot::Sender<Result<(), JoinRefusal>>>) {
        // Fails only when the server has ended.
        let _ = self.orders.send(DeskOrder::Presence(PresenceOrder { change, answer }));
    }

    /// Lets the members go whose clients did not come back.
    pub(super) fn let_members_expire(&self) {
        if self.present.table().is_due(self.present.now()) {
            self.change_member(PresenceChange::Expire);
        }
    }

    /// Returns the answer about the members of a stream for a process of the app.
    ///
    /// # Errors
    /// There is no presence.
    pub(super) fn present_in(&self, stream: &str) -> Result<String, String> {
        if self.is_shared {
            return Err(NOT_SHARED.to_owned());
        }
        Ok(presence_query::answer(self.present.table().members(stream)))
    }

    /// Returns epoch and offset of the last message of a stream.
    pub(super) fn place_of(&self, stream: &str) -> (Arc<str>, u64) {
        let mut streams = self.streams();
        let offset = streams.position(stream, now_ms());
        (streams.epoch().clone(), offset)
    }
}
