//! Shares the members of streams with the other servers of a group through Redis.
//!
//! Why in Redis itself: a member with a tab on each of two servers is one member, its events need one order, and the members of a server that has
//! died must go as well. A script makes each change and appends its event to the log in one step.
//!
//! Contract:
//! 1. The table of this server ([`super::super::present`]) has the sessions of its own clients. Redis has those of all servers, and says who may
//!    join.
//! 2. A session in Redis lasts for the time of a lease, which its server renews. So the members of a server that has died, or that Redis does not
//!    hear, are gone after `hub.presence_expiry` and [`RENEWALS`] intervals.
//! 3. Without Redis members come and go here, and the others see it when Redis is back. If Redis has lost its memory, all servers bring their
//!    sessions again.
//! 4. Orders are carried out in the order in which they came, up to [`MOST`] at a time.

use super::super::SharedHub;
use super::super::present::{JoinAnswer, PresenceChange, PresenceOrder, PresentMembers, answer_join};
use super::{LogHead, SharedStreams, text_of, wrong_reply};
use cable::presence::{JoinRefusal, PresenceBounds, PresenceJoin, SessionKey};
use redis::{Error, RedisScript, Value};
use serde::Serialize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

const SCRIPT: &str = concat!(include_str!("log.lua"), include_str!("members.lua"));
/// The most orders of a call. Redis does nothing else meanwhile.
const MOST: usize = 128;
/// The times that a session is renewed in its lease, beyond the time of the expiry.
const RENEWALS: u32 = 3;
/// The bounds of the interval between renewals, which is a third of the expiry.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(10);

/// Carries out the orders of all threads.
pub(crate) struct SharedMembers {
    streams: Rc<SharedStreams>,
    hub: Arc<SharedHub>,
    script: RedisScript,
    keys: [String; 2],
    prefix: String,
    /// JSON.
    bounds: String,
    limits: PresenceBounds,
    interval: Duration,
}

/// An order as the script reads it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum ScriptOrder {
    Join(SessionOrder),
    Renew(SessionOrder),
    Leave(Arc<str>, String),
    Lose(Arc<str>, String),
    Show { stream: Arc<str>, records: bool },
}

/// A session for the script. Its number is a text: those of JSON are not exact in Lua.
#[derive(Debug, Serialize)]
struct SessionOrder {
    stream: Arc<str>,
    id: Box<str>,
    info: Box<str>,
    session: String,
    is_vouched: bool,
}

/// The party that the answer to an order is for.
enum Waiting {
    Session(Arc<str>, SessionKey, Option<JoinAnswer>),
    Members(oneshot::Sender<Result<PresentMembers, String>>),
    Nothing,
}

impl From<PresenceJoin> for SessionOrder {
    fn from(join: PresenceJoin) -> SessionOrder {
        let PresenceJoin { stream, id, info, session, is_vouched } = join;
        SessionOrder { stream, id, info, session: session.to_string(), is_vouched }
    }
}

impl SharedMembers {
    pub(crate) fn new(hub: &Arc<SharedHub>, streams: &Rc<SharedStreams>) -> SharedMembers {
        let limits = hub.present.bounds();
        let interval = (Duration::from_millis(limits.expiry) / RENEWALS).clamp(SHORTEST, LONGEST);
        let lease = limits.expiry + (interval * RENEWALS).as_millis() as u64;
        let bounds = serde_json::json!({
            "expiry": limits.expiry, "lease": lease, "members": limits.members, "bytes": limits.bytes
        });
        let key = |name: &str| format!("{}:{name}", streams.prefix);
        SharedMembers {
            streams: streams.clone(),
            hub: hub.clone(),
            script: RedisScript::new(SCRIPT),
            keys: [key("sessions"), key("members")],
            prefix: key(""),
            bounds: bounds.to_string(),
            limits,
            interval,
        }
    }

    /// Carries out orders until the sender has gone, or `is_closing`: then another program has the members.
    pub(crate) async fn follow(
        self,
        mut orders: mpsc::UnboundedReceiver<PresenceOrder>,
        is_closing: impl Fn() -> bool,
    ) {
        let mut renewed = Instant::now();
        let mut is_away = false;
        loop {
            let mut some = Vec::new();
            let received = timeout_at(renewed + self.interval, orders.recv_many(&mut some, MOST)).await;
            if received == Ok(0) || is_closing() {
                return;
            }
            if some.is_empty() || is_away {
                is_away = self.renew().await.is_err();
                renewed = Instant::now();
            }
            if !some.is_empty() {
                is_away |= self.carry_out(some).await.is_err();
            }
        }
    }

    /// Renews the sessions of this server, and lets those of other servers end whose time is over.
    async fn renew(&self) -> Result<(), Error> {
        let sessions: Vec<PresenceJoin> = self.hub.present.table().sessions().collect();
        let mut sessions = sessions.into_iter().peekable();
        loop {
            let some = sessions.by_ref().take(MOST).map(|join| {
                let waiting = Waiting::Session(join.stream.clone(), join.session, None);
                (ScriptOrder::Renew(join.into()), waiting)
            });
            self.run(some.collect()).await?;
            if sessions.peek().is_none() {
                return Ok(());
            }
        }
    }

    async fn carry_out(&self, orders: Vec<PresenceOrder>) -> Result<(), Error> {
        let mut some = Vec::new();
        for order in orders {
            let (change, answer) = match order {
                PresenceOrder::Change(change, answer) => (change, answer),
                PresenceOrder::Show { stream, records, answer } => {
                    some.push((ScriptOrder::Show { stream, records }, Waiting::Members(answer)));
                    continue;
                }
            };
            let order = match &change {
                PresenceChange::Join(join) => {
                    let waiting = Waiting::Session(join.stream.clone(), join.session, answer);
                    Some((ScriptOrder::Join(join.clone().into()), waiting))
                }
                PresenceChange::Leave(stream, session) => {
                    Some((ScriptOrder::Leave(stream.clone(), session.to_string()), Waiting::Nothing))
                }
                PresenceChange::Lose(stream, session) => {
                    Some((ScriptOrder::Lose(stream.clone(), session.to_string()), Waiting::Nothing))
                }
                // Redis knows itself when the time of a session is over.
                PresenceChange::Expire => None,
            };
            match (self.change_own(change), order) {
                (Ok(()), order) => some.extend(order),
                // Redis would refuse it, too: it has no fewer members.
                (Err(refusal), Some((_, Waiting::Session(_, _, answer)))) => {
                    answer_join(answer, Err(refusal))
                }
                (Err(_), _) => {}
            }
        }
        self.run(some).await
    }

    /// Runs the script, and passes its answers on. Without Redis all sessions may join for the time being.
    async fn run(&self, orders: Vec<(ScriptOrder, Waiting)>) -> Result<(), Error> {
        let (orders, waiting): (Vec<ScriptOrder>, Vec<Waiting>) = orders.into_iter().unzip();
        let text = serde_json::to_string(&orders).unwrap_or_default();
        let keys = self.keys.each_ref().map(String::as_str);
        let reply = self.streams.call(&self.script, &keys, &[&self.prefix, &self.bounds, &text]).await;
        let answers = reply.and_then(LogHead::of).map(|(head, answers)| (head, answers.collect::<Vec<_>>()));
        match answers {
            Ok((head, answers)) => {
                for (waiting, answer) in waiting.into_iter().zip(answers) {
                    self.pass_on(waiting, &head, answer)?;
                }
                Ok(())
            }
            Err(error) => {
                let address = &self.streams.client.config().address;
                for waiting in waiting {
                    match waiting {
                        Waiting::Members(answer) => {
                            let why = format!("the members are not known: Redis on {address}: {error}");
                            // A client that has gone needs no answer.
                            _ = answer.send(Err(why));
                        }
                        Waiting::Session(_, _, answer) => answer_join(answer, Ok(())),
                        Waiting::Nothing => {}
                    }
                }
                Err(error)
            }
        }
    }

    fn pass_on(&self, waiting: Waiting, head: &LogHead, answer: Value) -> Result<(), Error> {
        match waiting {
            Waiting::Nothing => {}
            Waiting::Members(to) => {
                let shown = members(head, answer)?;
                _ = to.send(Ok(shown));
            }
            Waiting::Session(stream, session, to) => {
                let refusal = self.refusal(&text_of(answer)?)?;
                if refusal.is_some() {
                    _ = self.change_own(PresenceChange::Leave(stream, session));
                }
                answer_join(to, refusal.map_or(Ok(()), Err));
            }
        }
        Ok(())
    }

    /// Makes a change in the table of this server. Its event comes from Redis.
    fn change_own(&self, change: PresenceChange) -> Result<(), JoinRefusal> {
        self.hub.change_members(change, &mut |_, _| {})
    }

    /// Returns the refusal that a word of the script means; `None` for no word.
    fn refusal(&self, word: &str) -> Result<Option<JoinRefusal>, Error> {
        match word {
            "" => Ok(None),
            "taken" => Ok(Some(JoinRefusal::Taken)),
            "full" => Ok(Some(JoinRefusal::Full(self.limits.members))),
            "memory" => Ok(Some(JoinRefusal::Memory)),
            _ => Err(wrong_reply()),
        }
    }
}

/// Reads the members: their number, then ids and infos in turn.
fn members(head: &LogHead, answer: Value) -> Result<PresentMembers, Error> {
    let Value::Array(values) = answer else { return Err(wrong_reply()) };
    let mut texts = values.into_iter().map(text_of);
    let total = texts.next().ok_or_else(wrong_reply)??.parse().map_err(|_| wrong_reply())?;
    let mut members = Vec::new();
    while let Some(id) = texts.next() {
        members.push((id?.into(), texts.next().ok_or_else(wrong_reply)??.into()));
    }
    // As in the table of one server.
    members.sort();
    Ok(PresentMembers { epoch: head.epoch.as_str().into(), offset: head.offset, total, members })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_and_mistakes_are_errors() {
        let head = LogHead { epoch: "e".into(), offset: 7, lost: 3, lost_at: 4 };
        let reply = |texts: &[&str]| {
            Value::Array(texts.iter().map(|text| Value::Text(text.as_bytes().to_vec())).collect())
        };
        let shown = members(&head, reply(&["2", "bob", "{}", "ann", "1"])).unwrap();
        assert_eq!((&*shown.epoch, shown.offset, shown.total), ("e", 7, 2));
        assert_eq!(shown.members, [("ann".into(), "1".into()), ("bob".into(), "{}".into())]);
        for wrong in [Value::Null, reply(&[]), reply(&["x"]), reply(&["1", "ann"])] {
            assert!(members(&head, wrong).is_err());
        }
    }

    #[test]
    fn orders_have_the_form_that_the_script_reads() {
        let join = PresenceJoin {
            stream: "room".into(),
            id: "ann".into(),
            info: "{\"n\":1}".into(),
            session: u64::MAX,
            is_vouched: true,
        };
        let orders = [
            ScriptOrder::Renew(join.into()),
            ScriptOrder::Lose("room".into(), "1".to_owned()),
            ScriptOrder::Show { stream: "room".into(), records: true },
        ];
        assert_eq!(
            serde_json::to_value(orders).unwrap(),
            serde_json::json!([
                { "renew": { "stream": "room", "id": "ann", "info": "{\"n\":1}", "session": "18446744073709551615", "is_vouched": true } },
                { "lose": ["room", "1"] },
                { "show": { "stream": "room", "records": true } },
            ])
        );
    }
}
