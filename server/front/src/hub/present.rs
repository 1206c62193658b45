//! The members of all streams ([`cable::presence`]), shared by the threads of the front.
//!
//! Why: a member is present on any thread, and its events get their offsets where all messages do.
//!
//! Contract:
//! 1. Changes are made by the task that publishes, in the order in which a thread has sent them. A change and its event are one step under
//!    the lock of the members, so a reader of the members gets each later event as well.
//! 2. A program that has given its streams away changes nothing more: the new one has the members.
//! 3. With `hub.redis`, changes and questions go through Redis ([`super::shared::members`]), and the table has the members of this server.

use super::{DeskOrder, SharedHub, now_ms};
use cable::presence::{
    JoinRefusal, PresenceBounds, PresenceJoin, PresenceRecord, PresenceTable, SessionKey, TellPresence,
};
use settings::Settings;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::oneshot;

/// The place where a client waits for its membership.
pub(super) type JoinAnswer = oneshot::Sender<Result<(), JoinRefusal>>;

/// Answers a client that waits.
pub(super) fn answer_join(answer: Option<JoinAnswer>, joined: Result<(), JoinRefusal>) {
    if let Some(answer) = answer {
        // A client that has gone needs no answer.
        let _ = answer.send(joined);
    }
}

/// Work of the task that publishes.
pub(super) enum PresenceOrder {
    /// A change of the members, and where a client waits for it.
    Change(PresenceChange, Option<JoinAnswer>),
    /// A question for the members of all servers; without `records` for their number.
    Show { stream: Arc<str>, records: bool, answer: oneshot::Sender<Result<PresentMembers, String>> },
}

/// The members of a stream, as they are after the message at an offset.
#[derive(Debug)]
pub(super) struct PresentMembers {
    pub(super) epoch: Arc<str>,
    pub(super) offset: u64,
    pub(super) total: usize,
    /// Ids and infos; none if they were not asked for.
    pub(super) members: Vec<(Box<str>, Box<str>)>,
}

impl PresentMembers {
    /// Returns ids and infos.
    pub(super) fn records(&self) -> impl Iterator<Item = (&str, &str)> {
        self.members.iter().map(|(id, info)| (&**id, &**info))
    }
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
    bounds: PresenceBounds,
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
        PresentStreams { table: Mutex::new(PresenceTable::new(bounds)), bounds, start: Instant::now() }
    }

    pub(super) fn bounds(&self) -> PresenceBounds {
        self.bounds
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
    /// Carries an order out, unless another program has the members.
    pub(super) fn attend(&self, order: PresenceOrder, is_closing: bool) {
        match order {
            PresenceOrder::Change(change, answer) => {
                let tell = &mut |stream: &str, payload: String| _ = self.publish(stream, &payload);
                answer_join(answer, if is_closing { Ok(()) } else { self.change_members(change, tell) });
            }
            PresenceOrder::Show { stream, records, answer } => {
                let _ = answer.send(Ok(self.own_members(&stream, records)));
            }
        }
    }

    /// Makes a change in the table.
    ///
    /// # Errors
    /// A session may not join.
    pub(super) fn change_members(
        &self,
        change: PresenceChange,
        tell: TellPresence<'_>,
    ) -> Result<(), JoinRefusal> {
        let mut table = self.present.table();
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
        let (answer, answered) = oneshot::channel();
        self.send_change(PresenceChange::Join(join), Some(answer));
        // The task that publishes ends with the server.
        answered.await.unwrap_or(Ok(())).map_err(|refusal| refusal.to_string())
    }

    /// Changes the members without an answer.
    pub(super) fn change_member(&self, change: PresenceChange) {
        self.send_change(change, None);
    }

    fn send_change(&self, change: PresenceChange, answer: Option<JoinAnswer>) {
        // Fails only when the server has ended.
        let _ = self.orders.send(DeskOrder::Presence(PresenceOrder::Change(change, answer)));
    }

    /// Lets the members go whose clients did not come back.
    pub(super) fn let_members_expire(&self) {
        if self.present.table().is_due(self.present.now()) {
            self.change_member(PresenceChange::Expire);
        }
    }

    /// Returns the members of a stream on all servers; without `records` their number.
    ///
    /// # Errors
    /// Redis cannot be reached, or the server is stopping.
    pub(super) async fn members_of(&self, stream: &str, records: bool) -> Result<PresentMembers, String> {
        if !self.is_shared {
            return Ok(self.own_members(stream, records));
        }
        let (answer, answered) = oneshot::channel();
        let order = PresenceOrder::Show { stream: stream.into(), records, answer };
        let stopping = || "the server is stopping".to_owned();
        self.orders.send(DeskOrder::Presence(order)).map_err(|_| stopping())?;
        answered.await.map_err(|_| stopping())?
    }

    /// Returns the members of a stream in the table.
    fn own_members(&self, stream: &str, records: bool) -> PresentMembers {
        let table = self.present.table();
        let (epoch, offset) = {
            let mut streams = self.streams();
            let offset = streams.position(stream, now_ms());
            (streams.epoch().clone(), offset)
        };
        let members = table.members(stream).map(|(id, info)| (id.into(), info.into()));
        let members = if records { members.collect() } else { Vec::new() };
        PresentMembers { epoch, offset, total: table.total(stream), members }
    }
}
