//! The members that a client is by its subscriptions, and its commands about members.
//!
//! Contract:
//! 1. The app says who a client is: in the channel (`join_presence`), or by a token that it has signed. With `hub.presence_claims` a client of
//!    the app's channels says so itself, and cannot take the place of a member of whom the app has said it. Streams without Ruby need a token.
//! 2. A client that unsubscribes or leaves is gone at once. One whose connection ends, however it ends, stays for `hub.presence_expiry`.
//! 3. A refusal is a `presence` message with the type `error` and the reason.

use super::call::AnsweredPresence;
use super::now_ms;
use super::present::{PresenceChange, new_session};
use super::session::HubSubscription;
use super::socket::CableSocket;
use super::{count, local::HubClient};
use cable::command::PresenceRequest;
use cable::message::{self, PresenceState};
use cable::presence::PresenceJoin;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The most streams in which a client is a member by one subscription.
const MOST: usize = 64;
/// The pause after a command that others may have noticed: a client that comes and goes in a loop is not a flood for them.
const PAUSE: Duration = Duration::from_millis(20);

/// A member as it is to join.
struct WantedMember {
    stream: Arc<str>,
    id: Box<str>,
    info: Box<str>,
    is_vouched: bool,
}

impl CableSocket {
    /// Carries out a client's command to join.
    pub(super) async fn join_presence(&self, identifier: &str, request: PresenceRequest) {
        let joined = match self.wanted(identifier, request) {
            Ok(wanted) => self.become_member(identifier, wanted).await,
            Err(why) => Err(why),
        };
        match joined {
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(why) => self.refuse_presence(identifier, &why),
        }
    }

    /// Carries out a client's command to leave.
    pub(super) async fn leave_presence(&self, identifier: &str) {
        let joins = {
            let mut session = self.session.borrow_mut();
            session.subscription(identifier).map(|known| std::mem::take(&mut known.presence.joins))
        };
        if let Some(joins) = joins.filter(|joins| !joins.is_empty()) {
            joins.iter().for_each(|join| self.leave_member(join));
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Answers a client's question for members.
    pub(super) async fn show_presence(&self, identifier: &str, records: bool) {
        let stream = {
            let mut session = self.session.borrow_mut();
            let Some(known) = session.subscription(identifier) else {
                drop(session);
                return self.refuse_presence(identifier, "there is no such subscription");
            };
            match known.presence.joins.first() {
                Some(join) => Some(join.stream.clone()),
                None => known.streams.first().map(|stream| Arc::from(&*stream.name)),
            }
        };
        let Some(stream) = stream else {
            return self.refuse_presence(identifier, "the subscription has no stream");
        };
        let shown = match self.local.hub.members_of(&stream, records).await {
            Ok(shown) => shown,
            Err(why) => return self.refuse_presence(identifier, &why),
        };
        let state =
            PresenceState { stream: &stream, epoch: &shown.epoch, offset: shown.offset, total: shown.total };
        let frame = message::presence(identifier, &state, records.then(|| shown.records()));
        if !self.send_if_room(frame) {
            let why =
                "the members are more than hub.client_queue has room for; ask with return_records: false";
            self.refuse_presence(identifier, why);
        }
    }

    /// Makes the changes of the app.
    pub(super) async fn change_presence(&self, identifier: &str, changes: Vec<AnsweredPresence>) {
        for AnsweredPresence { stream, id, info } in changes {
            let first = {
                let mut session = self.session.borrow_mut();
                let known = session.subscription(identifier);
                known.and_then(|known| Some(known.streams.first()?.name.clone()))
            };
            let Some(stream) = stream.or(first) else {
                self.refuse_presence(identifier, "the subscription has no stream");
                continue;
            };
            let Some(info) = info else {
                self.leave_as(identifier, &stream, id.as_deref());
                continue;
            };
            let wanted = WantedMember {
                stream: Arc::from(stream),
                id: id.unwrap_or_default(),
                info: info.to_string().into(),
                is_vouched: true,
            };
            if let Err(why) = self.become_member(identifier, wanted).await {
                self.refuse_presence(identifier, &why);
            }
        }
    }

    /// Leaves a stream if the client is this member; with no id, as any member.
    fn leave_as(&self, identifier: &str, stream: &str, id: Option<&str>) {
        let mut session = self.session.borrow_mut();
        let Some(known) = session.subscription(identifier) else { return };
        let is_meant =
            |join: &mut PresenceJoin| *join.stream == *stream && id.is_none_or(|id| *join.id == *id);
        known.presence.joins.extract_if(.., is_meant).for_each(|join| self.leave_member(&join));
    }

    /// Returns the member that a client may join as.
    fn wanted(&self, identifier: &str, request: PresenceRequest) -> Result<WantedMember, String> {
        let hub = &self.local.hub;
        let mut session = self.session.borrow_mut();
        let known = session.subscription(identifier).ok_or("there is no such subscription")?;
        let PresenceRequest { id, info } = request;
        let token = match (&info, &hub.secret) {
            (Value::String(text), Some(secret)) => Some(secret.presence(text, now_ms() / 1000)),
            _ => None,
        };
        // The member of whom the app has said already that it is this client.
        let own = known.presence.joins.iter().find(|join| join.is_vouched && *join.id == *id).cloned();
        match (token, own) {
            (Some(Ok(token)), _) => {
                if !known.streams.iter().any(|stream| *stream.name == *token.stream) {
                    return Err(
                        "the presence token is for a stream that the subscription does not have".to_owned()
                    );
                }
                if token.id != id {
                    return Err("the presence token is for another id".to_owned());
                }
                let info = token.info.to_string().into();
                Ok(WantedMember { stream: token.stream.into(), id: id.into(), info, is_vouched: true })
            }
            _ if hub.presence_claims && known.channel.is_some() => {
                let stream = known.streams.first().ok_or("the subscription has no stream")?;
                let info = if info.is_null() { Value::Object(serde_json::Map::new()) } else { info };
                let (stream, info) = (Arc::from(&*stream.name), info.to_string().into());
                Ok(WantedMember { stream, id: id.into(), info, is_vouched: false })
            }
            (_, Some(PresenceJoin { stream, id, info, .. })) => {
                Ok(WantedMember { stream, id, info, is_vouched: true })
            }
            (Some(Err(why)), None) => Err(why.to_owned()),
            (None, None) => {
                Err("a client joins by join_presence of its channel, or with a presence token as its info; \
                         hub.presence_claims lets clients of channels join with any id"
                    .to_owned())
            }
        }
    }

    async fn become_member(&self, identifier: &str, wanted: WantedMember) -> Result<(), String> {
        let WantedMember { stream, id, info, is_vouched } = wanted;
        let (join, before) = {
            let mut session = self.session.borrow_mut();
            let known = session.subscription(identifier).ok_or("there is no such subscription")?;
            let presence = &mut known.presence;
            if presence.session == 0 {
                presence.session = new_session();
            }
            let join = PresenceJoin { stream, id, info, session: presence.session, is_vouched };
            let at = presence.joins.iter().position(|own| own.stream == join.stream);
            if at.is_none() && presence.joins.len() >= MOST {
                return Err(format!("a subscription is a member in at most {MOST} streams"));
            }
            // Noted first: the client may go to another program, or go, before the answer.
            let before = at.map(|at| presence.joins.swap_remove(at));
            presence.joins.push(join.clone());
            (join, before)
        };
        let joined = self.local.hub.join_member(join.clone()).await;
        if joined.is_err()
            && let Some(known) = self.session.borrow_mut().subscription(identifier)
        {
            known.presence.joins.retain(|own| own.stream != join.stream);
            known.presence.joins.extend(before);
        }
        joined
    }

    /// Joins again as the members that the client was in another program.
    pub(super) fn join_as_before(&self, identifier: &str, members: Vec<PresenceJoin>) {
        let mut session = self.session.borrow_mut();
        let Some(known) = session.subscription(identifier) else { return };
        for join in members {
            known.presence.session = join.session;
            known.presence.joins.push(join.clone());
            self.local.hub.change_member(PresenceChange::Join(join));
        }
    }

    /// Leaves all members of a subscription that ends by itself.
    pub(super) fn leave_members(&self, subscription: &HubSubscription) {
        subscription.presence.joins.iter().for_each(|join| self.leave_member(join));
    }

    /// Marks all members of a subscription whose connection has ended.
    pub(super) fn lose_members(&self, subscription: &HubSubscription) {
        for join in &subscription.presence.joins {
            self.local.hub.change_member(PresenceChange::Lose(join.stream.clone(), join.session));
        }
    }

    pub(super) fn leave_member(&self, join: &PresenceJoin) {
        self.local.hub.change_member(PresenceChange::Leave(join.stream.clone(), join.session));
    }

    fn refuse_presence(&self, identifier: &str, why: &str) {
        count(&self.local.hub.counts.rejected);
        self.send(message::presence_error(identifier, why));
    }
}
