//! The subscribers of one thread: which of its clients get a message, and in which form.
//!
//! Contract: a message is encoded once for all clients with the same identifier and protocol. Each client gets only messages
//! after the offset with which it has joined.

use crate::command::CableProtocol;
use crate::message;
use crate::streams::StreamMessage;
use bytes::Bytes;
use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;
use std::sync::Arc;

/// Clients that get the same bytes: by client, the offset after which.
type Listeners<K> = FxHashMap<K, u64>;

/// The subscribers of a stream, by the form in which they get its messages.
type Audience<K> = HashMap<(Rc<str>, CableProtocol), Listeners<K>>;

/// The subscribers of a thread by stream. `K` names a client.
#[derive(Debug)]
pub struct Audiences<K> {
    streams: HashMap<Box<str>, Audience<K>>,
}

impl<K> Default for Audiences<K> {
    fn default() -> Audiences<K> {
        Audiences { streams: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Audiences<K> {
    /// Adds a subscriber, which gets the messages after `offset`. Returns false, and changes nothing, if it is one already.
    pub fn join(
        &mut self,
        stream: &str,
        identifier: &Rc<str>,
        protocol: CableProtocol,
        client: K,
        offset: impl FnOnce() -> u64,
    ) -> bool {
        if !self.streams.contains_key(stream) {
            self.streams.insert(stream.into(), HashMap::new());
        }
        let audience = self.streams.get_mut(stream).expect("it was there, or has been added");
        let listeners = audience.entry((identifier.clone(), protocol)).or_default();
        if listeners.contains_key(&client) {
            return false;
        }
        listeners.insert(client, offset());
        true
    }

    /// Removes a subscriber. Returns whether it was one.
    pub fn leave(&mut self, stream: &str, identifier: &Rc<str>, protocol: CableProtocol, client: K) -> bool {
        let Some(audience) = self.streams.get_mut(stream) else { return false };
        let key = (identifier.clone(), protocol);
        let Some(listeners) = audience.get_mut(&key) else { return false };
        let was = listeners.remove(&client).is_some();
        if listeners.is_empty() {
            audience.remove(&key);
        }
        if audience.is_empty() {
            self.streams.remove(stream);
        }
        was
    }

    /// Passes a message, encoded, to `send` with each subscriber.
    pub fn deliver(&self, message: &Arc<StreamMessage>, epoch: &str, send: &mut dyn FnMut(K, &Bytes)) {
        let Some(audience) = self.streams.get(&*message.stream) else { return };
        for ((identifier, protocol), listeners) in audience {
            let frame = message::streamed(identifier, message, *protocol, epoch);
            for (client, offset) in listeners {
                if *offset < message.offset {
                    send(*client, &frame);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_encoding_for_all_with_the_same_identifier() {
        let mut audiences = Audiences::default();
        let (one, other): (Rc<str>, Rc<str>) = ("1".into(), "2".into());
        assert!(audiences.join("room", &one, CableProtocol::Basic, 1, || 0));
        assert!(!audiences.join("room", &one, CableProtocol::Basic, 1, || panic!("it listens already")));
        assert!(audiences.join("room", &one, CableProtocol::Basic, 2, || 0));
        assert!(audiences.join("room", &one, CableProtocol::Basic, 3, || 5));
        assert!(audiences.join("room", &other, CableProtocol::Extended, 1, || 0));
        let message =
            |offset| Arc::new(StreamMessage { stream: "room".into(), offset, at: 0, payload: "1".into() });
        let deliver = |audiences: &Audiences<i32>, offset| {
            let mut sent = Vec::new();
            audiences
                .deliver(&message(offset), "e", &mut |client, frame| sent.push((client, frame.as_ptr())));
            sent.sort();
            sent
        };
        let sent = deliver(&audiences, 5);
        assert_eq!(sent.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1, 1, 2]);
        let of_two = sent[2].1;
        assert_eq!(sent.iter().filter(|(_, frame)| *frame == of_two).count(), 2);
        assert_eq!(deliver(&audiences, 6).len(), 4);
        assert!(audiences.leave("room", &one, CableProtocol::Basic, 1));
        assert!(!audiences.leave("room", &one, CableProtocol::Basic, 1));
        for client in [2, 3] {
            assert!(audiences.leave("room", &one, CableProtocol::Basic, client));
        }
        assert!(audiences.leave("room", &other, CableProtocol::Extended, 1));
        assert!(audiences.streams.is_empty());
    }
}
