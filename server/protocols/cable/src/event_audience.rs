//! The listeners of one thread that get messages as events or by long polling: which of them get a message, in which form, and at
//! which place they are then.
//!
//! Contract:
//! 1. A message is encoded once for all listeners with the same streams and the same form; its id with it, because after a message all
//!    of them are at the same place.
//! 2. Each listener gets only messages after the offsets with which it has joined. The ids that it gets never go back.

use crate::event;
use crate::event_id::{EventId, StreamSet};
use crate::streams::StreamMessage;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

/// The form in which a listener gets messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventForm {
    /// A Server-Sent Event.
    Event,
    /// An object of JSON.
    Object,
}

/// A message in the form of its listeners.
#[derive(Debug, Clone)]
pub struct FormedMessage {
    pub bytes: Bytes,
    /// The id after it.
    pub id: Rc<str>,
}

/// Listeners with the same streams and form.
type GroupKey = (Rc<StreamSet>, EventForm);

#[derive(Debug)]
struct EventGroup<K> {
    /// The offsets of the last messages that have been delivered, or were behind the first listener.
    offsets: Box<[u64]>,
    /// By listener, the offsets with which it has joined, as long as the group may not have reached them.
    listeners: FxHashMap<K, Option<Box<[u64]>>>,
}

/// All groups of a thread. `K` names a listener.
#[derive(Debug)]
pub struct EventAudiences<K> {
    groups: HashMap<GroupKey, EventGroup<K>>,
    by_stream: HashMap<Arc<str>, SmallVec<[GroupKey; 1]>>,
}

impl<K> Default for EventAudiences<K> {
    fn default() -> EventAudiences<K> {
        EventAudiences { groups: HashMap::new(), by_stream: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> EventAudiences<K> {
    /// Adds a listener, which gets the messages after these offsets. Returns the set that it shares with others.
    pub fn join(&mut self, set: StreamSet, form: EventForm, listener: K, offsets: &[u64]) -> Rc<StreamSet> {
        let key = (Rc::new(set), form);
        if let Some((key, _)) = self.groups.get_key_value(&key) {
            let key = key.clone();
            let group = self.groups.get_mut(&key).expect("it was there");
            let is_ahead = *group.offsets != *offsets;
            group.listeners.insert(listener, is_ahead.then(|| offsets.into()));
            return key.0;
        }
        let listeners = std::iter::once((listener, None)).collect();
        self.groups.insert(key.clone(), EventGroup { offsets: offsets.into(), listeners });
        for name in key.0.names() {
            self.by_stream.entry(name.clone()).or_default().push(key.clone());
        }
        key.0
    }

    /// Removes a listener.
    pub fn leave(&mut self, set: &Rc<StreamSet>, form: EventForm, listener: K) {
        let key = (set.clone(), form);
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.listeners.remove(&listener);
        if !group.listeners.is_empty() {
            return;
        }
        self.groups.remove(&key);
        for name in set.names() {
            let Some(keys) = self.by_stream.get_mut(name) else { continue };
            keys.retain(|known| *known != key);
            if keys.is_empty() {
                self.by_stream.remove(name);
            }
        }
    }

    /// Passes a message to `send` with each listener.
    pub fn deliver(&mut self, message: &Arc<StreamMessage>, send: &mut dyn FnMut(K, &FormedMessage)) {
        let Some(keys) = self.by_stream.get(&*message.stream) else { return };
        for key in keys {
            let (set, form) = key;
            let Some((group, at)) = self.groups.get_mut(key).zip(set.place(&message.stream)) else {
                continue;
            };
            if message.offset <= group.offsets[at] {
                continue;
            }
            group.offsets[at] = message.offset;
            let id: Rc<str> = EventId::text(&message.epoch, set, &group.offsets).into();
            let formed = FormedMessage { bytes: formed(message, *form, &id), id };
            for (listener, joined) in &mut group.listeners {
                if let Some(offsets) = joined {
                    let gets = message.offset > offsets[at];
                    if offsets.iter().zip(&group.offsets).all(|(joined, delivered)| joined <= delivered) {
                        *joined = None;
                    }
                    if !gets {
                        continue;
                    }
                }
                send(*listener, &formed);
            }
        }
    }
}

/// Returns a message in a form, with the id after it.
pub fn formed(message: &StreamMessage, form: EventForm, id: &str) -> Bytes {
    match form {
        EventForm::Event => event::of_message(message, id),
        EventForm::Object => event::object(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(names: &[&str]) -> StreamSet {
        StreamSet::new(names.iter().map(|name| (*name).into()))
    }

    fn message(stream: &str, offset: u64) -> Arc<StreamMessage> {
        Arc::new(StreamMessage {
            stream: stream.into(),
            offset,
            at: 0,
            number: 0,
            epoch: "e".into(),
            payload: "1".into(),
        })
    }

    #[test]
    fn listeners_of_the_same_streams_share_an_encoding() {
        let mut audiences = EventAudiences::default();
        let both = audiences.join(set(&["a", "b"]), EventForm::Event, 1, &[0, 4]);
        assert!(Rc::ptr_eq(&both, &audiences.join(set(&["b", "a"]), EventForm::Event, 2, &[1, 4])));
        let polled = audiences.join(set(&["a", "b"]), EventForm::Object, 3, &[0, 4]);
        let other = audiences.join(set(&["a"]), EventForm::Event, 4, &[0]);
        let deliver = |audiences: &mut EventAudiences<i32>, stream, offset| {
            let mut sent = Vec::new();
            audiences.deliver(&message(stream, offset), &mut |listener, formed| {
                sent.push((listener, formed.clone()));
            });
            sent.sort_by_key(|(listener, _)| *listener);
            sent
        };
        let first = deliver(&mut audiences, "a", 1);
        assert_eq!(
            first.iter().map(|(listener, _)| *listener).collect::<Vec<_>>(),
            [1, 3, 4],
            "2 has joined after it"
        );
        let second = deliver(&mut audiences, "a", 2);
        assert_eq!(second.iter().map(|(listener, _)| *listener).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(second[0].1.bytes.as_ptr(), second[1].1.bytes.as_ptr());
        assert_eq!(*second[0].1.id, EventId::text("e", &both, &[2, 4]));
        assert!(second[2].1.bytes.starts_with(b"{\"stream\":\"a\",\"offset\":2"));
        assert!(deliver(&mut audiences, "b", 4).is_empty(), "all have joined after it");
        for (set, form, listener) in [
            (&both, EventForm::Event, 1),
            (&both, EventForm::Event, 2),
            (&polled, EventForm::Object, 3),
            (&other, EventForm::Event, 4),
        ] {
            audiences.leave(set, form, listener);
        }
        assert!(audiences.groups.is_empty() && audiences.by_stream.is_empty());
    }

    proptest! {
        /// Listeners join while published messages have not been delivered yet. Each gets all later ones once, with ids that name
        /// exactly what it has.
        #[test]
        fn ids_say_what_a_listener_has(steps in prop::collection::vec((0usize..4, 0usize..2), 0..60)) {
            let names = ["a", "b"];
            let (mut table, mut mailbox) = ([0u64; 2], std::collections::VecDeque::new());
            let mut audiences = EventAudiences::default();
            let mut known: Vec<[u64; 2]> = Vec::new();
            for (step, stream) in steps.into_iter().chain(std::iter::repeat_n((3, 0), 60)) {
                match step {
                    0 | 1 => {
                        table[stream] += 1;
                        mailbox.push_back(message(names[stream], table[stream]));
                    }
                    2 => {
                        audiences.join(set(&names), EventForm::Event, known.len(), &table);
                        known.push(table);
                    }
                    _ => if let Some(message) = mailbox.pop_front() {
                        let at = usize::from(&*message.stream == "b");
                        let mut sent = Vec::new();
                        audiences.deliver(&message, &mut |listener, formed| sent.push((listener, formed.id.clone())));
                        for (listener, id) in sent {
                            prop_assert_eq!(known[listener][at] + 1, message.offset);
                            known[listener][at] += 1;
                            let expected = EventId::text("e", &set(&names), &known[listener]);
                            prop_assert_eq!(&*id, &*expected);
                        }
                    },
                }
            }
            for listener in known {
                prop_assert_eq!(listener, table);
            }
        }
    }
}
