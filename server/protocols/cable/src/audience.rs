//! The subscribers of one thread: which of its clients get a message or a whisper, and in which form.
//!
//! Contract:
//! 1. A message is encoded once for all clients with the same identifier and protocol. Each client gets only messages
//!    after the offset with which it has joined. A whisper has no offset, and all get it.
//! 2. A delivery can be made in turns, and subscribers may come and go between two turns. Each that was there at the
//!    beginning, and still is, gets the message once.

use crate::command::CableProtocol;
use crate::exclusion::SessionId;
use crate::message;
use crate::streams::StreamMessage;
use crate::whisper::Whisper;
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

/// Something for the subscribers of a stream.
#[derive(Debug, Clone)]
pub enum Delivered {
    Message(Arc<StreamMessage>),
    Whisper(Arc<Whisper>),
}

impl Delivered {
    fn stream(&self) -> &str {
        match self {
            Delivered::Message(message) => &message.stream,
            Delivered::Whisper(whisper) => &whisper.stream,
        }
    }

    /// Whether a client that has joined after the message at `offset` gets it.
    fn is_after(&self, offset: u64) -> bool {
        match self {
            Delivered::Message(message) => offset < message.offset,
            Delivered::Whisper(_) => true,
        }
    }

    fn encode(&self, identifier: &str, protocol: CableProtocol) -> Bytes {
        match self {
            Delivered::Message(message) => message::streamed(identifier, message, protocol),
            Delivered::Whisper(whisper) => message::whispered(identifier, &whisper.message),
        }
    }

    /// Returns the client that does not get it.
    pub fn excluded(&self) -> Option<SessionId> {
        match self {
            Delivered::Message(message) => message.parts().0,
            Delivered::Whisper(whisper) => Some(whisper.sender),
        }
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

    /// Lets a subscriber get only messages after a later offset.
    pub fn raise(
        &mut self,
        stream: &str,
        identifier: &Rc<str>,
        protocol: CableProtocol,
        client: K,
        offset: u64,
    ) {
        let audience = self.streams.get_mut(stream);
        let listeners = audience.and_then(|audience| audience.get_mut(&(identifier.clone(), protocol)));
        if let Some(from) = listeners.and_then(|listeners| listeners.get_mut(&client)) {
            *from = offset.max(*from);
        }
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

    /// Begins a delivery to all subscribers of the stream.
    pub fn begin(&self, delivered: Delivered) -> StreamDelivery<K> {
        let audience = self.streams.get(delivered.stream());
        let due = audience.into_iter().flatten().map(|(key, listeners)| DueForm {
            key: key.clone(),
            frame: None,
            clients: listeners.keys().copied().collect(),
        });
        StreamDelivery { due: due.collect(), delivered }
    }

    /// Passes what is delivered, encoded, to `send` with at most `most` subscribers. Returns whether there are more.
    pub fn advance(
        &self,
        delivery: &mut StreamDelivery<K>,
        most: usize,
        send: &mut dyn FnMut(K, &Bytes),
    ) -> bool {
        let StreamDelivery { delivered, due } = delivery;
        let audience = self.streams.get(delivered.stream());
        let mut room = most;
        while room > 0
            && let Some(form) = due.last_mut()
        {
            let Some(client) = form.clients.pop() else {
                due.pop();
                continue;
            };
            room -= 1;
            // Another client may have the same number by now: it has joined after the message.
            let joined = audience.and_then(|audience| audience.get(&form.key)?.get(&client));
            if joined.is_some_and(|offset| delivered.is_after(*offset)) {
                let encode = || delivered.encode(&form.key.0, form.key.1);
                send(client, form.frame.get_or_insert_with(encode));
            }
        }
        due.iter().any(|form| !form.clients.is_empty())
    }
}

/// A message or whisper on its way to the subscribers of a thread.
#[derive(Debug)]
pub struct StreamDelivery<K> {
    delivered: Delivered,
    due: Vec<DueForm<K>>,
}

/// The clients that have yet to get it in one form, and that form.
#[derive(Debug)]
struct DueForm<K> {
    key: (Rc<str>, CableProtocol),
    frame: Option<Bytes>,
    clients: Vec<K>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(offset: u64) -> Arc<StreamMessage> {
        Arc::new(StreamMessage {
            stream: "room".into(),
            epoch: "e".into(),
            offset,
            at: 0,
            number: 0,
            payload: "1".into(),
        })
    }

    #[test]
    fn one_encoding_for_all_with_the_same_identifier() {
        let mut audiences = Audiences::default();
        let (one, other): (Rc<str>, Rc<str>) = ("1".into(), "2".into());
        assert!(audiences.join("room", &one, CableProtocol::Basic, 1, || 0));
        assert!(!audiences.join("room", &one, CableProtocol::Basic, 1, || panic!("it listens already")));
        assert!(audiences.join("room", &one, CableProtocol::Basic, 2, || 0));
        assert!(audiences.join("room", &one, CableProtocol::Basic, 3, || 5));
        assert!(audiences.join("room", &other, CableProtocol::Extended, 1, || 0));
        let deliver = |audiences: &Audiences<i32>, offset| {
            let (mut sent, mut delivery) = (Vec::new(), audiences.begin(Delivered::Message(message(offset))));
            while audiences
                .advance(&mut delivery, 1, &mut |client, frame| sent.push((client, frame.as_ptr())))
            {
            }
            sent.sort();
            sent
        };
        let sent = deliver(&audiences, 5);
        assert_eq!(sent.iter().map(|(client, _)| *client).collect::<Vec<_>>(), [1, 1, 2]);
        let of_two = sent[2].1;
        assert_eq!(sent.iter().filter(|(_, frame)| *frame == of_two).count(), 2);
        assert_eq!(deliver(&audiences, 6).len(), 4);
        audiences.raise("room", &one, CableProtocol::Basic, 3, 7);
        audiences.raise("room", &one, CableProtocol::Basic, 3, 6);
        assert_eq!((deliver(&audiences, 7).len(), deliver(&audiences, 8).len()), (3, 4));
        assert!(audiences.leave("room", &one, CableProtocol::Basic, 1));
        assert!(!audiences.leave("room", &one, CableProtocol::Basic, 1));
        for client in [2, 3] {
            assert!(audiences.leave("room", &one, CableProtocol::Basic, client));
        }
        assert!(audiences.leave("room", &other, CableProtocol::Extended, 1));
        assert!(audiences.streams.is_empty());
    }

    #[test]
    fn a_whisper_reaches_all_without_a_place() {
        let mut audiences = Audiences::default();
        let identifier: Rc<str> = "1".into();
        for (client, protocol) in [(1, CableProtocol::Basic), (2, CableProtocol::Extended)] {
            assert!(audiences.join("room", &identifier, protocol, client, || 7));
        }
        let whisper = Whisper::new("room", 255, "{\"typing\": true}").unwrap();
        let whisper = Delivered::Whisper(Arc::new(whisper));
        assert_eq!(whisper.excluded(), Some(255));
        let (mut sent, mut delivery) = (Vec::new(), audiences.begin(whisper));
        assert!(
            !audiences.advance(&mut delivery, 9, &mut |client, frame| sent.push((client, frame.clone())))
        );
        sent.sort();
        let frame = crate::frame::text(br#"{"identifier":"1","message":{"typing": true}}"#);
        assert_eq!(sent, [(1, frame.clone()), (2, frame)]);
    }

    #[test]
    fn subscribers_come_and_go_between_turns() {
        let mut audiences = Audiences::default();
        let identifier: Rc<str> = "1".into();
        let join = |audiences: &mut Audiences<i32>, client, offset| {
            assert!(audiences.join("room", &identifier, CableProtocol::Basic, client, || offset));
        };
        (0..10).for_each(|client| join(&mut audiences, client, 0));
        let (mut sent, mut delivery) = (Vec::new(), audiences.begin(Delivered::Message(message(1))));
        assert!(audiences.advance(&mut delivery, 4, &mut |client, _| sent.push(client)));
        assert_eq!(sent.len(), 4, "a turn has an end");
        let left: Vec<i32> = (0..10).filter(|client| !sent.contains(client)).collect();
        // One leaves; the number of another goes to a client that has joined after the message; a third comes.
        assert!(audiences.leave("room", &"1".into(), CableProtocol::Basic, left[0]));
        assert!(audiences.leave("room", &"1".into(), CableProtocol::Basic, left[1]));
        join(&mut audiences, left[1], 1);
        join(&mut audiences, 10, 1);
        assert!(!audiences.advance(&mut delivery, 100, &mut |client, _| sent.push(client)));
        sent.sort();
        let expected: Vec<i32> = (0..10).filter(|client| *client != left[0] && *client != left[1]).collect();
        assert_eq!(sent, expected);
        assert!(!audiences.advance(&mut delivery, 100, &mut |_, _| panic!("it has ended")));
    }
}
