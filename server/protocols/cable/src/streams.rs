//! Streams: the messages of each broadcasting, numbered, with a history in memory.
//!
//! Why: a client that was away for a moment must get what it has missed, or learn that it cannot. So each message has an
//! offset in its stream, and the last messages are kept, bounded by time, by number for each stream, and by bytes for all.
//!
//! Contract:
//! 1. Offsets of a stream increase. Those that the table assigns are consecutive within an epoch, and a stream that was forgotten
//!    begins again above each offset that any forgotten stream has had, so no old position is mistaken for a new one.
//!    Offsets that several servers share come from outside ([`StreamTable::insert`]); they increase over all streams and epochs.
//! 2. [`StreamTable::resume`] returns all messages after a position, in order, or `None` if one of them may be missing.
//! 3. A stream is forgotten when it has no listeners and no kept messages, and that has been so for the time of the history.
//! 4. The bytes count messages, bookkeeping, and streams without listeners. The oldest messages go first.

mod record;

pub use record::TableRecord;

use crate::command::StreamPosition;
use crate::exclusion::{self, SessionId};
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// The bookkeeping of a message, and of its entry in the log, in bytes.
const MESSAGE: usize = 104;
const ENTRY: usize = 32;
/// The bookkeeping of a stream in bytes.
const STREAM: usize = 192;

/// The bounds of the history.
#[derive(Debug, Clone, Copy)]
pub struct HistoryBounds {
    /// Milliseconds.
    pub time: u64,
    /// Messages of one stream.
    pub messages: usize,
    /// Bytes of all streams.
    pub bytes: usize,
}

/// A message of a stream.
#[derive(Debug, PartialEq, Eq)]
pub struct StreamMessage {
    pub stream: Arc<str>,
    /// The epoch in which the offset is valid.
    pub epoch: Arc<str>,
    pub offset: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// The number of messages of all streams before it: their order, which times of a millisecond do not tell.
    pub number: u64,
    /// JSON, with the marks of [`crate::presence_event`] and [`crate::exclusion`].
    pub payload: Box<str>,
}

impl StreamMessage {
    /// Returns the client that does not get the message, and what the others get.
    pub fn parts(&self) -> (Option<SessionId>, &str) {
        exclusion::parts(&self.payload)
    }

    fn cost(&self) -> usize {
        self.payload.len() + MESSAGE
    }
}

/// A front thread, by its index.
pub type ThreadIndex = u16;

#[derive(Debug)]
struct NumberedStream {
    name: Arc<str>,
    /// The offset of the last message.
    offset: u64,
    /// The last messages without a gap.
    history: VecDeque<Arc<StreamMessage>>,
    /// The newest message that is no longer kept: its offset, and when it was sent.
    lost: u64,
    lost_at: u64,
    /// Since when it has no listeners.
    idle_at: u64,
    /// Whether it is in [`StreamTable::idle`].
    queued: bool,
    /// The threads with listeners, and the number of each.
    listeners: SmallVec<[(ThreadIndex, u32); 2]>,
    published: u64,
}

/// The figures of a stream, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamSummary {
    pub name: Arc<str>,
    pub listeners: u64,
    /// Messages since it is known.
    pub published: u64,
    pub kept: usize,
    pub kept_bytes: usize,
}

/// All streams.
#[derive(Debug)]
pub struct StreamTable {
    epoch: Arc<str>,
    bounds: HistoryBounds,
    streams: HashMap<Arc<str>, NumberedStream>,
    /// The kept messages of all streams from the oldest to the newest: time, offset, stream. A message that its stream has
    /// dropped stays here until its time.
    log: VecDeque<(u64, u64, Arc<str>)>,
    /// Streams without listeners, and since when.
    idle: VecDeque<(u64, Arc<str>)>,
    bytes: usize,
    /// The largest offset of a forgotten stream.
    floor: u64,
    /// The number of messages so far.
    messages: u64,
    /// Whether offsets come from outside, and the largest that came.
    is_shared: bool,
    last: u64,
    /// When the newest message of a forgotten stream was sent; at first, when the table was created.
    forgotten_at: u64,
}

impl StreamTable {
    /// Creates an empty table. `epoch` must differ from that of earlier tables. `now`: milliseconds since 1970.
    pub fn new(epoch: &str, bounds: HistoryBounds, now: u64) -> StreamTable {
        StreamTable {
            epoch: epoch.into(),
            bounds,
            streams: HashMap::new(),
            log: VecDeque::new(),
            idle: VecDeque::new(),
            bytes: 0,
            floor: 0,
            messages: 0,
            is_shared: false,
            last: 0,
            forgotten_at: now,
        }
    }

    pub fn epoch(&self) -> &Arc<str> {
        &self.epoch
    }

    /// Returns the largest offset that came from outside.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of known streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Returns the bytes that count for the limit.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a message with the next offset, and passes it with each thread that has listeners to `deliver`. Returns the offset.
    pub fn publish(
        &mut self,
        name: &str,
        payload: Box<str>,
        now: u64,
        deliver: &mut dyn FnMut(ThreadIndex, &Arc<StreamMessage>),
    ) -> u64 {
        let offset = self.stream(name, now).offset + 1;
        self.append(name, payload, (offset, now), deliver);
        self.expire(now);
        offset
    }

    /// Adds a message with an offset from outside. Returns false, and changes nothing, if the offset is not above all earlier ones.
    /// `at`: milliseconds since 1970.
    pub fn insert(
        &mut self,
        name: &str,
        payload: Box<str>,
        (offset, at): (u64, u64),
        now: u64,
        deliver: &mut dyn FnMut(ThreadIndex, &Arc<StreamMessage>),
    ) -> bool {
        if offset <= self.last {
            return false;
        }
        self.stream(name, now);
        self.last = offset;
        self.append(name, payload, (offset, at), deliver);
        self.expire(now);
        true
    }

    /// Adds a message to a known stream.
    fn append(
        &mut self,
        name: &str,
        payload: Box<str>,
        (offset, at): (u64, u64),
        deliver: &mut dyn FnMut(ThreadIndex, &Arc<StreamMessage>),
    ) {
        let (messages, epoch, number) = (self.bounds.messages, self.epoch.clone(), self.messages);
        let Some(stream) = self.streams.get_mut(name) else { return };
        self.messages += 1;
        stream.offset = offset;
        stream.published += 1;
        let message =
            Arc::new(StreamMessage { stream: stream.name.clone(), epoch, offset, at, number, payload });
        stream.listeners.iter().for_each(|(thread, _)| deliver(*thread, &message));
        let grown = message.cost() + ENTRY;
        let mut freed = 0;
        let entry = (at, offset, stream.name.clone());
        stream.history.push_back(message);
        while stream.history.len() > messages
            && let Some(oldest) = stream.history.pop_front()
        {
            (stream.lost, stream.lost_at) = (oldest.offset, oldest.at);
            freed += oldest.cost();
        }
        self.log.push_back(entry);
        self.bytes = self.bytes + grown - freed;
    }

    /// Begins an epoch whose offsets come from outside: drops all messages, and keeps the listeners. Messages up to the offset
    /// `floor`, and up to the time `lost_at` in milliseconds since 1970, are not known here.
    pub fn begin_epoch(&mut self, epoch: &str, floor: u64, lost_at: u64, now: u64) {
        while self.drop_oldest() {}
        self.expire(now);
        self.epoch = epoch.into();
        self.is_shared = true;
        self.floor = self.floor.max(floor);
        self.last = self.last.max(floor);
        self.forgotten_at = lost_at;
        for stream in self.streams.values_mut() {
            (stream.offset, stream.lost) = (stream.offset.max(floor), stream.lost.max(floor));
            stream.lost_at = lost_at;
        }
    }

    /// Returns the threads with listeners of a stream, and the number of each.
    pub fn listeners(&self, name: &str) -> &[(ThreadIndex, u32)] {
        self.streams.get(name).map_or(&[], |stream| &stream.listeners)
    }

    /// Adds a listener of a thread. Returns the offset of the last message: the listener gets those after it.
    pub fn listen(&mut self, name: &str, thread: ThreadIndex, now: u64) -> u64 {
        let stream = self.stream(name, now);
        let was_idle = stream.listeners.is_empty();
        match stream.listeners.iter_mut().find(|(known, _)| *known == thread) {
            Some((_, count)) => *count += 1,
            None => stream.listeners.push((thread, 1)),
        }
        let offset = stream.offset;
        if was_idle {
            self.bytes -= STREAM;
        }
        offset
    }

    /// Returns the offset of the last message, for a page that will listen from there within the time of the history.
    pub fn position(&mut self, name: &str, now: u64) -> u64 {
        let stream = self.stream(name, now);
        let offset = stream.offset;
        if stream.listeners.is_empty() {
            stream.idle_at = now;
            if !std::mem::replace(&mut stream.queued, true) {
                let name = stream.name.clone();
                self.idle.push_back((now, name));
            }
        }
        offset
    }

    /// Removes a listener of a thread.
    pub fn unlisten(&mut self, name: &str, thread: ThreadIndex, now: u64) {
        let Some(stream) = self.streams.get_mut(name) else { return };
        let Some(at) = stream.listeners.iter().position(|(known, _)| *known == thread) else { return };
        stream.listeners[at].1 -= 1;
        if stream.listeners[at].1 > 0 {
            return;
        }
        stream.listeners.swap_remove(at);
        if stream.listeners.is_empty() {
            stream.idle_at = now;
            self.bytes += STREAM;
            if !std::mem::replace(&mut stream.queued, true) {
                self.idle.push_back((now, stream.name.clone()));
            }
        }
    }

    /// Whether another server that shares the offsets has got farther than this one.
    pub fn is_ahead(&self, position: &StreamPosition) -> bool {
        self.is_shared && position.offset > self.last && *position.epoch == *self.epoch
    }

    /// Returns the messages after a position, or without one those since a time in seconds since 1970. `None`: some may be missing.
    pub fn resume(
        &self,
        name: &str,
        position: Option<&StreamPosition>,
        since: Option<u64>,
    ) -> Option<Vec<Arc<StreamMessage>>> {
        let stream = self.streams.get(name);
        let Some(position) = position else {
            let Some(since) = since.map(|since| since.saturating_mul(1000)) else { return Some(Vec::new()) };
            let lost_at = stream.map_or(self.forgotten_at, |stream| stream.lost_at);
            let kept = stream.map(|stream| &stream.history).into_iter().flatten();
            return (lost_at < since).then(|| kept.filter(|message| message.at >= since).cloned().collect());
        };
        if *position.epoch != *self.epoch {
            return None;
        }
        let Some(stream) = stream else {
            // Only offsets from outside say something about streams that are not known.
            return (self.is_shared && position.offset >= self.floor).then(Vec::new);
        };
        // A message from outside may have been read elsewhere and not have arrived here yet.
        let is_known = position.offset <= stream.offset || self.is_shared;
        if position.offset < stream.lost || !is_known {
            return None;
        }
        let from = stream.history.partition_point(|message| message.offset <= position.offset);
        Some(stream.history.range(from..).cloned().collect())
    }

    /// Returns all kept messages of a stream.
    pub fn kept(&self, name: &str) -> Vec<Arc<StreamMessage>> {
        let stream = self.streams.get(name);
        stream.map(|stream| stream.history.iter().cloned().collect()).unwrap_or_default()
    }

    /// Forgets what is older than the history may be, or too much.
    pub fn expire(&mut self, now: u64) {
        let time = self.bounds.time;
        let is_over = |at: u64| at.saturating_add(time) <= now;
        while self.log.front().is_some_and(|(at, ..)| is_over(*at)) {
            self.drop_oldest();
        }
        while self.idle.front().is_some_and(|(at, _)| is_over(*at)) {
            self.drop_idle(now, false);
        }
        while self.bytes > self.bounds.bytes && self.drop_oldest() {}
        while self.bytes > self.bounds.bytes && self.drop_idle(now, true) {}
    }

    /// Returns a stream by name, created if it is unknown.
    fn stream(&mut self, name: &str, now: u64) -> &mut NumberedStream {
        if !self.streams.contains_key(name) {
            let name: Arc<str> = name.into();
            self.bytes += STREAM;
            self.idle.push_back((now, name.clone()));
            let stream = NumberedStream {
                name: name.clone(),
                offset: self.floor,
                history: VecDeque::new(),
                lost: self.floor,
                lost_at: self.forgotten_at,
                idle_at: now,
                queued: true,
                listeners: SmallVec::new(),
                published: 0,
            };
            self.streams.insert(name.clone(), stream);
        }
        self.streams.get_mut(name).expect("it was there, or has been added")
    }

    /// Drops the oldest entry of the log. Returns whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let Some((_, offset, name)) = self.log.pop_front() else { return false };
        self.bytes -= ENTRY;
        let Some(stream) = self.streams.get_mut(&name) else { return true };
        if stream.history.front().is_some_and(|first| first.offset == offset)
            && let Some(oldest) = stream.history.pop_front()
        {
            (stream.lost, stream.lost_at) = (oldest.offset, oldest.at);
            self.bytes -= oldest.cost();
            if !stream.queued {
                // It was idle for long enough, or has never been without listeners.
                self.forget(&name);
            }
        }
        true
    }

    /// Takes the stream that has been idle for longest from its queue, and forgets it if it still is, for long enough or `early`.
    /// Returns whether there was one.
    fn drop_idle(&mut self, now: u64, early: bool) -> bool {
        let Some((_, name)) = self.idle.pop_front() else { return false };
        let Some(stream) = self.streams.get_mut(&name) else { return true };
        stream.queued = false;
        if !stream.listeners.is_empty() {
            return true;
        }
        if early || stream.idle_at.saturating_add(self.bounds.time) <= now {
            // With messages left it is forgotten with the last of them.
            self.forget(&name);
        } else {
            stream.queued = true;
            self.idle.push_back((stream.idle_at, name));
        }
        true
    }

    /// Forgets a stream without listeners and messages.
    fn forget(&mut self, name: &Arc<str>) {
        let is_over = |stream: &NumberedStream| stream.listeners.is_empty() && stream.history.is_empty();
        if self.streams.get(name).is_some_and(is_over)
            && let Some(stream) = self.streams.remove(name)
        {
            self.bytes -= STREAM;
            self.floor = self.floor.max(stream.offset);
            self.forgotten_at = self.forgotten_at.max(stream.lost_at);
        }
    }

    /// Returns the streams with the most listeners, at most `limit`.
    pub fn busiest(&self, limit: usize) -> Vec<StreamSummary> {
        let mut all: Vec<StreamSummary> = self.streams.values().map(NumberedStream::summary).collect();
        all.sort_by(|one, other| {
            (other.listeners, other.published, &one.name).cmp(&(one.listeners, one.published, &other.name))
        });
        all.truncate(limit);
        all
    }
}

impl NumberedStream {
    fn summary(&self) -> StreamSummary {
        StreamSummary {
            name: self.name.clone(),
            listeners: self.listeners.iter().map(|(_, count)| u64::from(*count)).sum(),
            published: self.published,
            kept: self.history.len(),
            kept_bytes: self.history.iter().map(|message| message.cost()).sum(),
        }
    }
}

#[cfg(test)]
mod tests;
