//! The Mercure protocol (draft-dunglas-mercure): queries of subscribers, updates of publishers, and which subscriber gets which update.
//!
//! Contract:
//! 1. A selector is a topic, compared byte for byte, or `*`. Templates are not supported: one with `{` matches only itself.
//! 2. An update is a message of the stream [`STREAM`], so its order, history and bounds are those of [`crate::streams`].
//! 3. A private update goes to a subscriber only if a selector of its token covers one of the topics.

use crate::event;
use crate::event_query;
use crate::streams::StreamMessage;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;
use text::percent;

/// The stream of all updates.
pub const STREAM: &str = "firebrick:mercure";
/// The reserved id before the first update that is kept.
pub const EARLIEST: &str = "earliest";
/// The path of topics that only a hub itself may publish.
const RESERVED: &str = "/.well-known/mercure";
/// The most topics of an update.
const MOST_TOPICS: usize = 100;

/// Returns whether one of the selectors covers a topic.
pub fn covers(selectors: &[String], topic: &str) -> bool {
    selectors.iter().any(|selector| selector == "*" || selector == topic)
}

/// The query of a subscriber.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MercureQuery {
    pub topics: Vec<String>,
    pub last_event_id: Option<String>,
    /// The token, for clients that can send no fields.
    pub authorization: Option<String>,
}

impl MercureQuery {
    /// Reads the query of a subscriber, with at most `most` topics.
    ///
    /// # Errors
    /// The text for the client names the parameter.
    pub fn parse(query: &[u8], most: usize) -> Result<MercureQuery, String> {
        let read = MercureQuery::read(query, most)?;
        match read.topics.is_empty() {
            true => Err("no topic: expected ?topic=TOPIC, once for each topic".to_owned()),
            false => Ok(read),
        }
    }

    /// Does the same with a query that needs no topic.
    ///
    /// # Errors
    /// The text for the client names the parameter.
    pub fn read(query: &[u8], most: usize) -> Result<MercureQuery, String> {
        let mut read = MercureQuery::default();
        for pair in pairs(query) {
            let (name, value) = pair?;
            match name.as_str() {
                "topic" | "match" | "matchExact" if read.topics.len() == most => {
                    return Err(format!("more than {most} topics; hub.max_subscriptions is the limit"));
                }
                "topic" | "match" | "matchExact" => read.topics.push(value),
                "lastEventID" | "last_event_id" | "Last-Event-ID" => {
                    read.last_event_id = Some(value).filter(|id| !id.is_empty());
                }
                "authorization" => read.authorization = Some(value),
                name if name.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("match")) => {
                    return Err(format!("the parameter {name} is not supported; match and topic are"));
                }
                _ => {}
            }
        }
        Ok(read)
    }
}

/// An update. Its JSON is the payload of a message of the stream; the id comes first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MercureUpdate {
    pub id: String,
    /// The first is the canonical one.
    pub topics: Vec<String>,
    #[serde(default)]
    pub data: String,
    #[serde(default)]
    pub private: bool,
    /// The type of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Milliseconds until a client connects again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<u64>,
}

impl MercureUpdate {
    /// Reads the form of a publisher. `id`: of an update for which it names none.
    ///
    /// # Errors
    /// The text for the client names the field.
    pub fn parse(form: &[u8], id: &str) -> Result<MercureUpdate, String> {
        let mut update = MercureUpdate {
            id: id.to_owned(),
            topics: Vec::new(),
            data: String::new(),
            private: false,
            kind: None,
            retry: None,
        };
        for pair in pairs(form) {
            let (name, value) = pair?;
            let is_line = !value.contains(['\r', '\n', '\0']);
            match name.as_str() {
                "topic" if value.is_empty() || value.chars().any(char::is_control) => {
                    return Err("a topic is empty, or has control characters".to_owned());
                }
                "topic" if update.topics.len() == MOST_TOPICS => {
                    return Err(format!("more than {MOST_TOPICS} topics"));
                }
                "topic" => update.topics.push(value),
                "data" => update.data = value,
                "private" => update.private = true,
                "id" if value.is_empty() => {}
                "id" if value.starts_with('#') || value == EARLIEST || !is_line => {
                    return Err("the id begins with #, is reserved, or has more than one line".to_owned());
                }
                "id" => update.id = value,
                "type" if !is_line => return Err("the type has more than one line".to_owned()),
                "type" => update.kind = Some(value).filter(|kind| !kind.is_empty()),
                "retry" if value.is_empty() => {}
                "retry" => {
                    let retry = text::digits(&value).ok_or("retry is no number of milliseconds")?;
                    update.retry = Some(retry);
                }
                _ => {}
            }
        }
        match update.topics.is_empty() {
            true => Err("no topic".to_owned()),
            false => Ok(update),
        }
    }

    /// Whether a topic is one that only the hub itself may publish.
    pub fn is_reserved(&self) -> bool {
        self.topics.iter().any(|topic| {
            let path = match topic.split_once("://") {
                Some((_, rest)) => rest.find('/').map_or("", |at| &rest[at..]),
                None => topic,
            };
            let end = path.find(['?', '#']).unwrap_or(path.len());
            path[..end].strip_prefix(RESERVED).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    pub fn payload(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers can be written")
    }

    pub fn of_payload(payload: &str) -> Option<MercureUpdate> {
        serde_json::from_str(payload).ok()
    }

    /// Returns the update that a message is; `None` of other streams.
    pub fn of_message(message: &StreamMessage) -> Option<MercureUpdate> {
        (&*message.stream == STREAM).then(|| MercureUpdate::of_payload(&message.payload))?
    }

    /// Whether a payload is that of an update with this id.
    pub fn has_id(payload: &str, id: &str) -> bool {
        let id = serde_json::to_string(id).expect("a text can be written");
        payload
            .strip_prefix("{\"id\":")
            .and_then(|rest| rest.strip_prefix(&*id))
            .is_some_and(|rest| rest.starts_with(','))
    }

    /// Returns the update as an event.
    pub fn event(&self) -> Bytes {
        let event = event::event(&self.id, self.kind.as_deref(), &self.data);
        match self.retry {
            None => event,
            Some(retry) => [format!("retry: {retry}\n").as_bytes(), &event].concat().into(),
        }
    }

    /// Whether a subscriber to `topics` whose token has `rights` gets the update.
    pub fn is_for(&self, topics: &[String], rights: &[String]) -> bool {
        self.topics.iter().any(|topic| covers(topics, topic) && (!self.private || covers(rights, topic)))
    }
}

/// A subscriber of a thread.
#[derive(Debug)]
pub struct MercureSubscriber {
    pub topics: Box<[String]>,
    /// The selectors of its token.
    pub rights: Box<[String]>,
    /// The offset after which it gets updates.
    pub offset: u64,
}

/// The subscribers of a thread. `K` names one.
#[derive(Debug)]
pub struct MercureAudience<K> {
    subscribers: FxHashMap<K, MercureSubscriber>,
    /// By topic, or `*`.
    by_topic: HashMap<Box<str>, Vec<K>>,
}

impl<K> Default for MercureAudience<K> {
    fn default() -> MercureAudience<K> {
        MercureAudience { subscribers: FxHashMap::default(), by_topic: HashMap::new() }
    }
}

impl<K: Copy + Ord + Hash> MercureAudience<K> {
    /// Adds a subscriber.
    pub fn join(&mut self, key: K, subscriber: MercureSubscriber) {
        for topic in &subscriber.topics {
            self.by_topic.entry(topic.as_str().into()).or_default().push(key);
        }
        self.subscribers.insert(key, subscriber);
    }

    /// Removes a subscriber.
    pub fn leave(&mut self, key: K) {
        let Some(subscriber) = self.subscribers.remove(&key) else { return };
        for topic in &subscriber.topics {
            let Some(keys) = self.by_topic.get_mut(topic.as_str()) else { continue };
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                self.by_topic.remove(topic.as_str());
            }
        }
    }

    /// Passes an update to `send` with each subscriber that gets it.
    pub fn deliver(&self, update: &MercureUpdate, offset: u64, send: &mut dyn FnMut(K, &Bytes)) {
        let topics = update.topics.iter().map(String::as_str).chain(["*"]);
        let mut keys: Vec<K> =
            topics.filter_map(|topic| self.by_topic.get(topic)).flatten().copied().collect();
        if keys.is_empty() {
            return;
        }
        keys.sort_unstable();
        keys.dedup();
        let event = update.event();
        for key in keys {
            let Some(one) = self.subscribers.get(&key) else { continue };
            if one.offset < offset && update.is_for(&one.topics, &one.rights) {
                send(key, &event);
            }
        }
    }
}

/// Reads a query or form (URL Standard, section 5.1).
fn pairs(form: &[u8]) -> impl Iterator<Item = Result<(String, String), String>> {
    event_query::pairs(form).map(|(name, value)| {
        let decode = |part: &[u8]| {
            let spaced: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
            percent::decode_strict(&spaced).and_then(|text| String::from_utf8(text.into_owned()).ok())
        };
        let both = decode(name).zip(decode(value));
        both.ok_or_else(|| format!("the parameter {} is not percent-encoded UTF-8", name.escape_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn update(form: &str) -> Result<MercureUpdate, String> {
        MercureUpdate::parse(form.as_bytes(), "urn:uuid:1")
    }

    #[test]
    fn queries_are_read() {
        let query =
            MercureQuery::parse(b"topic=https%3A%2F%2Fa%2F1&match=b+c&lastEventID=x&authorization=t&y=%", 2);
        assert!(query.unwrap_err().contains("parameter y"));
        let query =
            MercureQuery::parse(b"topic=https%3A%2F%2Fa%2F1&match=b+c&lastEventID=x&authorization=t", 2)
                .unwrap();
        assert_eq!(query.topics, ["https://a/1", "b c"]);
        assert_eq!((query.last_event_id.as_deref(), query.authorization.as_deref()), (Some("x"), Some("t")));
        for (query, expected) in [
            ("", "no topic"),
            ("topic=a&topic=b&topic=c", "more than 2"),
            ("matchURLPattern=x", "matchURLPattern is not"),
        ] {
            let error = MercureQuery::parse(query.as_bytes(), 2).unwrap_err();
            assert!(error.contains(expected), "{query}: {error}");
        }
    }

    #[test]
    fn updates_are_read_and_written() {
        let read = update("topic=a&topic=b&data=x%0Ay+z&private=&id=7&type=t&retry=500").unwrap();
        assert_eq!(&read.event()[..], b"retry: 500\nid: 7\nevent: t\ndata: x\ndata: y z\n\n");
        assert!(read.private && MercureUpdate::has_id(&read.payload(), "7"));
        assert!(!MercureUpdate::has_id(&read.payload(), "") && !MercureUpdate::has_id(&read.payload(), "77"));
        assert_eq!(MercureUpdate::of_payload(&read.payload()), Some(read));
        assert_eq!(update("topic=a").unwrap().id, "urn:uuid:1");
        for (form, expected) in [
            ("data=x", "no topic"),
            ("topic=", "a topic is empty"),
            ("topic=a%00", "control characters"),
            ("topic=a&id=%23x", "begins with #"),
            ("topic=a&id=x%0Ay", "more than one line"),
            ("topic=a&id=earliest", "reserved"),
            ("topic=a&type=x%0Dy", "more than one line"),
            ("topic=a&retry=-1", "milliseconds"),
            ("topic=a&data=%ff", "data is not"),
        ] {
            let error = update(form).unwrap_err();
            assert!(error.contains(expected), "{form}: {error}");
        }
        for (topic, reserved) in [
            ("https://x.test/.well-known/mercure/subscriptions", true),
            ("/.well-known/mercure", true),
            ("/.well-known/mercurial", false),
            ("https://x.test", false),
        ] {
            assert_eq!(update(&format!("topic={topic}")).unwrap().is_reserved(), reserved, "{topic}");
        }
    }

    #[test]
    fn each_subscriber_gets_what_it_may() {
        let mut audience = MercureAudience::default();
        let texts =
            |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>().into_boxed_slice();
        let join = |audience: &mut MercureAudience<u32>, key, topics: &[&str], rights: &[&str], offset| {
            let subscriber = MercureSubscriber { topics: texts(topics), rights: texts(rights), offset };
            audience.join(key, subscriber);
        };
        join(&mut audience, 1, &["a", "b"], &[], 0);
        join(&mut audience, 2, &["*"], &["a"], 0);
        join(&mut audience, 3, &["b"], &["*"], 5);
        let sent = |audience: &MercureAudience<u32>, form: &str, offset| {
            let mut sent = Vec::new();
            audience.deliver(&update(form).unwrap(), offset, &mut |key, _| sent.push(key));
            sent
        };
        assert_eq!(
            sent(&audience, "topic=a&topic=b", 5),
            [1, 2],
            "3 has joined after it, and 1 gets it once"
        );
        assert_eq!(sent(&audience, "topic=b", 6), [1, 2, 3]);
        assert_eq!(sent(&audience, "topic=b&private=on", 7), [3]);
        assert_eq!(sent(&audience, "topic=a&private=on", 8), [2]);
        (1..=3).for_each(|key| audience.leave(key));
        assert!(audience.by_topic.is_empty() && audience.subscribers.is_empty());
    }

    proptest! {
        #[test]
        fn any_form_is_safe(form in "(topic|data|id|type|retry|[a&=%+]){0,10}[\\x00-\\x7f]{0,20}") {
            let _ = MercureQuery::parse(form.as_bytes(), 3);
            if let Ok(update) = update(&form) {
                let payload = update.payload();
                prop_assert!(MercureUpdate::has_id(&payload, &update.id));
                prop_assert_eq!(crate::event::tests::seen(std::str::from_utf8(&update.event()).unwrap()).len(), 1);
                prop_assert_eq!(MercureUpdate::of_payload(&payload), Some(update));
            }
        }
    }
}
