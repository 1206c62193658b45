//! The members as a record, by which a program passes them on to the one that takes over from it.
//!
//! Contract: in the table that has adopted a record all sessions are lost ones. The clients that have come along join again with the same
//! sessions, and the others have the time of the expiry, at least [`LEAST`], to connect again. There are no events.

use super::{PresenceJoin, PresenceTable, SessionKey};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The least time in milliseconds for clients to come along.
const LEAST: u64 = 10_000;

/// The members of all streams.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct PresenceRecord {
    streams: Vec<(String, Vec<MemberRecord>)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct MemberRecord {
    id: String,
    info: String,
    is_vouched: bool,
    sessions: Vec<SessionKey>,
}

impl PresenceTable {
    /// Returns a record of all members.
    pub fn record(&self) -> PresenceRecord {
        let streams = self.streams.iter().map(|(name, known)| {
            let members = known.members.iter().map(|(id, member)| MemberRecord {
                id: id.to_string(),
                info: member.info.to_string(),
                is_vouched: member.is_vouched,
                sessions: member.sessions.iter().map(|own| own.key).collect(),
            });
            (name.to_string(), members.collect())
        });
        PresenceRecord { streams: streams.collect() }
    }

    /// Goes on with the members of a record, as far as the bounds allow. `now`: milliseconds.
    pub fn adopt(&mut self, record: PresenceRecord, now: u64) {
        let until = now.saturating_add(self.bounds.expiry.max(LEAST));
        for (name, members) in record.streams {
            let stream: Arc<str> = name.into();
            for member in members {
                let MemberRecord { id, info, is_vouched, sessions } = member;
                let (id, info): (Box<str>, Box<str>) = (id.into(), info.into());
                for session in sessions {
                    let (stream, id, info) = (stream.clone(), id.clone(), info.clone());
                    let join = PresenceJoin { stream, id, info, session, is_vouched };
                    // Beyond the bounds of the new table they join again by themselves, or are refused.
                    let _ = self.join(&join, &mut |_, _| {});
                }
            }
        }
        for (name, known) in &mut self.streams {
            for own in known.members.values_mut().flat_map(|member| &mut member.sessions) {
                own.until = Some(until);
                self.due.push_back((until, name.clone(), own.key));
            }
        }
    }
}
