//! The members of each stream: which people are there, however many tabs each of them has, and for how long after their connection broke.
//!
//! Why: a page shows who else looks at it. A connection that breaks and comes back a moment later must not be seen by others, and a member
//! with two tabs is one member.
//!
//! Contract:
//! 1. A member has one or more sessions. The first of them is an event `join`, and the end of the last an event `leave`; there are no others.
//! 2. A session that ends by itself has gone at once. A lost session stays for [`PresenceBounds::expiry`], or until a session of the same
//!    member joins, which takes its place.
//! 3. A session is at most one member of a stream. If it joins as another, it leaves the first.
//! 4. Members that the app vouches for keep their info and their id: a session that only claims to be one is refused.
//! 5. Members of a stream, bytes of all members, ids and infos are bounded; beyond that there is a [`JoinRefusal`], and nothing has changed.

mod record;

pub use record::PresenceRecord;

use crate::presence_event;
use crate::publication::LONGEST_NAME;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// The most bytes of a member's id.
pub const LONGEST_ID: usize = 256;
/// The most bytes of a member's info, as JSON.
pub const LONGEST_INFO: usize = 4 << 10;
/// The most lost sessions of a member. Of more, the oldest are forgotten.
const MOST_LOST: usize = 16;
/// The bookkeeping of a stream with members, of a member, and of a session, in bytes.
const STREAM: usize = 192;
const MEMBER: usize = 128;
const SESSION: usize = 112;

/// A number for a client's subscription that no other has, also on other servers.
pub type SessionKey = u64;

/// The bounds of all members.
#[derive(Debug, Clone, Copy)]
pub struct PresenceBounds {
    /// Milliseconds for which a lost session stays.
    pub expiry: u64,
    /// Members of one stream.
    pub members: usize,
    /// Bytes of all members, bookkeeping included.
    pub bytes: usize,
}

/// A session that joins. Upgrades hand it over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresenceJoin {
    pub stream: Arc<str>,
    pub id: Box<str>,
    /// JSON.
    pub info: Box<str>,
    pub session: SessionKey,
    /// Whether the app says so, and not the client alone.
    pub is_vouched: bool,
}

/// The reason why a session may not join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JoinRefusal {
    Name,
    Id,
    Info,
    /// The member is one that the app vouches for.
    Taken,
    /// The stream has so many members.
    Full(usize),
    Memory,
}

impl Display for JoinRefusal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            JoinRefusal::Name => {
                write!(formatter, "the name of the stream is empty or longer than {LONGEST_NAME} bytes")
            }
            JoinRefusal::Id => {
                write!(formatter, "the id of the member is empty or longer than {LONGEST_ID} bytes")
            }
            JoinRefusal::Info => {
                write!(formatter, "the info of the member is longer than {LONGEST_INFO} bytes")
            }
            JoinRefusal::Taken => formatter.write_str("the id is that of a member for whom the app vouches"),
            JoinRefusal::Full(most) => {
                write!(formatter, "the stream has {most} members; hub.presence_members is the limit")
            }
            JoinRefusal::Memory => formatter
                .write_str("there is no memory for further members; hub.presence_memory is the limit"),
        }
    }
}

/// A session of a member.
#[derive(Debug)]
struct MemberSession {
    key: SessionKey,
    /// When a lost session has gone, in milliseconds; `None` while it is there.
    until: Option<u64>,
}

#[derive(Debug)]
struct StreamMember {
    info: Box<str>,
    is_vouched: bool,
    sessions: Vec<MemberSession>,
}

#[derive(Debug, Default)]
struct PresentStream {
    members: BTreeMap<Arc<str>, StreamMember>,
    /// The id of each session.
    ids: HashMap<SessionKey, Arc<str>>,
}

/// Takes the payload of an event and the stream that gets it.
pub type TellPresence<'a> = &'a mut dyn FnMut(&str, String);

/// The members of all streams.
#[derive(Debug)]
pub struct PresenceTable {
    bounds: PresenceBounds,
    streams: HashMap<Arc<str>, PresentStream>,
    /// Lost sessions by the time at which they have gone. Some may have come back.
    due: VecDeque<(u64, Arc<str>, SessionKey)>,
    bytes: usize,
    members: usize,
}

fn cost(id: &str, info: &str) -> usize {
    MEMBER + 2 * id.len() + info.len()
}

impl PresenceTable {
    pub fn new(bounds: PresenceBounds) -> PresenceTable {
        PresenceTable { bounds, streams: HashMap::new(), due: VecDeque::new(), bytes: 0, members: 0 }
    }

    /// Returns the number of members of all streams.
    pub fn len(&self) -> usize {
        self.members
    }

    pub fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// Returns the number of members of a stream.
    pub fn total(&self, stream: &str) -> usize {
        self.streams.get(stream).map_or(0, |known| known.members.len())
    }

    /// Returns id and info of the members of a stream, by id.
    pub fn members(&self, stream: &str) -> impl Iterator<Item = (&str, &str)> {
        let known = self.streams.get(stream).into_iter();
        known.flat_map(|known| known.members.iter().map(|(id, member)| (&**id, &*member.info)))
    }

    /// Returns the sessions that are there.
    pub fn sessions(&self) -> impl Iterator<Item = PresenceJoin> {
        self.streams.iter().flat_map(|(stream, known)| {
            known.members.iter().flat_map(move |(id, member)| {
                let there = member.sessions.iter().filter(|own| own.until.is_none());
                there.map(move |own| PresenceJoin {
                    stream: stream.clone(),
                    id: (&**id).into(),
                    info: member.info.clone(),
                    session: own.key,
                    is_vouched: member.is_vouched,
                })
            })
        })
    }

    /// Returns why a session could not join now.
    ///
    /// # Errors
    /// It could not.
    pub fn check(&self, join: &PresenceJoin) -> Result<(), JoinRefusal> {
        let PresenceJoin { stream, id, info, session, is_vouched } = join;
        if stream.is_empty() || stream.len() > LONGEST_NAME {
            return Err(JoinRefusal::Name);
        }
        if id.is_empty() || id.len() > LONGEST_ID {
            return Err(JoinRefusal::Id);
        }
        if info.len() > LONGEST_INFO {
            return Err(JoinRefusal::Info);
        }
        let known = self.streams.get(stream);
        let member = known.and_then(|known| known.members.get(&**id));
        let is_own = known.is_some_and(|known| known.ids.get(session).is_some_and(|own| **own == **id));
        if member.is_some_and(|member| member.is_vouched && !is_vouched && !is_own) {
            return Err(JoinRefusal::Taken);
        }
        let mut more = if is_own { 0 } else { SESSION };
        match (known, member) {
            (_, Some(member)) => more += info.len().saturating_sub(member.info.len()),
            (Some(known), None) => {
                let left = known.ids.get(session).and_then(|left| known.members.get(left));
                let frees = left.is_some_and(|left| left.sessions.len() == 1);
                if known.members.len() - usize::from(frees) >= self.bounds.members {
                    return Err(JoinRefusal::Full(self.bounds.members));
                }
                more += cost(id, info);
            }
            (None, None) if self.bounds.members == 0 => return Err(JoinRefusal::Full(0)),
            (None, None) => more += cost(id, info) + STREAM + stream.len(),
        }
        if more > 0 && self.bytes + more > self.bounds.bytes {
            return Err(JoinRefusal::Memory);
        }
        Ok(())
    }

    /// Lets a session join.
    ///
    /// # Errors
    /// It may not, and nothing has changed.
    pub fn join(&mut self, join: &PresenceJoin, tell: TellPresence<'_>) -> Result<(), JoinRefusal> {
        self.check(join)?;
        let PresenceJoin { stream, id, info, session, is_vouched } = join;
        let before = self.streams.get(stream).and_then(|known| known.ids.get(session)).cloned();
        if before.is_some_and(|before| *before != **id) {
            self.leave(stream, *session, tell);
        }
        if !self.streams.contains_key(stream) {
            self.bytes += STREAM + stream.len();
            self.streams.insert(stream.clone(), PresentStream::default());
        }
        let known = self.streams.get_mut(stream).expect("it was there, or has been added");
        let Some(member) = known.members.get_mut(&**id) else {
            let (key, sessions) =
                (Arc::<str>::from(&**id), vec![MemberSession { key: *session, until: None }]);
            let member = StreamMember { info: info.clone(), is_vouched: *is_vouched, sessions };
            known.ids.insert(*session, key.clone());
            known.members.insert(key, member);
            self.bytes += cost(id, info) + SESSION;
            self.members += 1;
            tell(stream, presence_event::joined(id, info));
            return Ok(());
        };
        if *is_vouched || !member.is_vouched {
            self.bytes = self.bytes - member.info.len() + info.len();
            member.info.clone_from(info);
            member.is_vouched = *is_vouched;
        }
        if let Some(own) = member.sessions.iter_mut().find(|own| own.key == *session) {
            own.until = None;
            return Ok(());
        }
        // A client that has lost its connection comes with a session of its own.
        if let Some(oldest) = oldest_lost(member) {
            known.ids.remove(&member.sessions.remove(oldest).key);
            self.bytes -= SESSION;
        }
        let (key, _) = known.members.get_key_value(&**id).expect("it was there");
        known.ids.insert(*session, key.clone());
        let member = known.members.get_mut(&**id).expect("it was there");
        member.sessions.push(MemberSession { key: *session, until: None });
        self.bytes += SESSION;
        Ok(())
    }

    /// Lets a session go. Returns whether it was there.
    pub fn leave(&mut self, stream: &str, session: SessionKey, tell: TellPresence<'_>) -> bool {
        let Some(known) = self.streams.get_mut(stream) else { return false };
        let Some(id) = known.ids.remove(&session) else { return false };
        let Some(member) = known.members.get_mut(&id) else { return false };
        member.sessions.retain(|own| own.key != session);
        self.bytes -= SESSION;
        if !member.sessions.is_empty() {
            return true;
        }
        self.bytes -= cost(&id, &member.info);
        self.members -= 1;
        known.members.remove(&id);
        if known.members.is_empty() {
            self.streams.remove(stream);
            self.bytes -= STREAM + stream.len();
        }
        tell(stream, presence_event::left(&id));
        true
    }

    /// Marks a session as lost: it stays for the time of the expiry. `now`: milliseconds.
    pub fn lose(&mut self, stream: &str, session: SessionKey, now: u64, tell: TellPresence<'_>) {
        if self.bounds.expiry == 0 {
            self.leave(stream, session, tell);
            return;
        }
        let until = now.saturating_add(self.bounds.expiry);
        let Some((name, known)) = self.streams.get_key_value(stream) else { return };
        let (name, id) = (name.clone(), known.ids.get(&session).cloned());
        let known = self.streams.get_mut(stream).expect("it was there");
        let Some(member) = id.and_then(|id| known.members.get_mut(&id)) else { return };
        let Some(own) = member.sessions.iter_mut().find(|own| own.key == session) else { return };
        own.until = Some(until);
        self.due.push_back((until, name, session));
        if member.sessions.iter().filter(|own| own.until.is_some()).count() > MOST_LOST
            && let Some(oldest) = oldest_lost(member)
        {
            known.ids.remove(&member.sessions.remove(oldest).key);
            self.bytes -= SESSION;
        }
    }

    /// Whether lost sessions have gone by now.
    pub fn is_due(&self, now: u64) -> bool {
        self.due.front().is_some_and(|(until, ..)| *until <= now)
    }

    /// Lets the lost sessions go whose time is over. `now`: milliseconds.
    pub fn expire(&mut self, now: u64, tell: TellPresence<'_>) {
        while self.is_due(now)
            && let Some((_, stream, session)) = self.due.pop_front()
        {
            let known = self.streams.get(&stream);
            let member = known.and_then(|known| known.members.get(known.ids.get(&session)?));
            let own = member.and_then(|member| member.sessions.iter().find(|own| own.key == session));
            // It may have come back, and may have been lost again since.
            if own.and_then(|own| own.until).is_some_and(|until| until <= now) {
                self.leave(&stream, session, tell);
            }
        }
    }
}

/// Returns the place of the lost session that has to go first.
fn oldest_lost(member: &StreamMember) -> Option<usize> {
    let lost = member.sessions.iter().enumerate().filter_map(|(at, own)| Some((own.until?, at)));
    lost.min().map(|(_, at)| at)
}

#[cfg(test)]
mod tests;
