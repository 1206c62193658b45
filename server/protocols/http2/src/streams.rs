//! Holds the streams of a connection: their states (RFC 9113 section 5.1), and their lookup by number.

use crate::{ErrorCode, StreamId};
use fieldcode::Priority;
use net::Unread;
use slab::Slab;
use std::collections::VecDeque;
use std::time::Instant;

/// How many closed streams are remembered: frames for them may still be in flight.
const REMEMBERED: usize = 64;
/// Streams whose memory is kept.
const FEW: usize = 4;
/// The value of `left` without a declared length.
pub(crate) const NO_LENGTH: u64 = u64::MAX;

/// The state of the server's half of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    /// No head yet.
    Nothing,
    /// The head has been sent.
    Body,
    Done,
}

/// How a stream was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Both sides ended it.
    Ended,
    /// The client reset it.
    ByClient,
    /// The server reset it.
    ByServer,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    /// The client's half is open.
    pub(crate) receiving: bool,
    /// An Extended CONNECT: only DATA may follow its head.
    pub(crate) connect: bool,
    pub(crate) sending: Sending,
    pub(crate) priority: Priority,
    /// The stream is ready to send.
    pub(crate) wants: bool,
    /// The stream is in the schedule.
    pub(crate) queued: bool,
    /// The request was refused, or its response has been sent: nothing more of it is reported. After a
    /// response the stream is reset with this code; with `NO_ERROR` the rest is dropped first.
    pub(crate) refused: Option<ErrorCode>,
    /// Bytes of the request's head, which its handler holds.
    pub(crate) head: u32,
    /// The bytes that may be sent; negative after a change of SETTINGS_INITIAL_WINDOW_SIZE.
    pub(crate) send_window: i32,
    /// The bytes that the client may send.
    pub(crate) receive_window: u32,
    /// Received and not credited yet.
    pub(crate) unconsumed: u32,
    /// Credited and not announced yet.
    pub(crate) credit: u32,
    /// The missing part of the declared length, or `NO_LENGTH`.
    pub(crate) left: u64,
    /// Since when its window has been too small, and the bytes sent since.
    pub(crate) stalled: Option<Instant>,
    pub(crate) sent: u32,
    /// Bytes sent since the last check of deadlines, and the estimate of those before that the client has not read.
    pub(crate) unlooked: u32,
    pub(crate) unread: Unread,
    /// When its window became too small, the client had not received all data that filled it.
    pub(crate) owed: bool,
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    slab: Slab<Stream>,
    /// Slots plus one by number, with open addressing; 0 is empty. Its length is a power of two, and half of
    /// it stays empty.
    index: Vec<u32>,
    /// Streams that have ended or that the client has reset.
    closed: VecDeque<(u32, Closed)>,
    /// Streams that the server has reset; kept apart, so that many others do not push them out.
    reset: VecDeque<u32>,
    /// The highest number that the client has used.
    pub(crate) seen: u32,
    /// The highest accepted number, which GOAWAY names.
    pub(crate) last: u32,
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    #[inline]
    pub(crate) fn get(&self, stream: StreamId) -> Option<&Stream> {
        self.slab.get(stream.slot as usize).filter(|found| found.id == stream.id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, stream: StreamId) -> Option<&mut Stream> {
        self.slab.get_mut(stream.slot as usize).filter(|found| found.id == stream.id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.slab.iter().map(|(_, stream)| stream)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.slab.iter_mut().map(|(slot, stream)| (StreamId { id: stream.id, slot: slot as u32 }, stream))
    }

    #[inline]
    fn place(&self, id: u32) -> usize {
        // Spread, because numbers follow each other: a long run of used places would make removal slow.
        ((id >> 1).wrapping_mul(0x9e37_79b1) >> (32 - self.index.len().trailing_zeros())) as usize
    }

    /// Returns the position of the number in the index.
    #[inline]
    fn position(&self, id: u32) -> Option<(usize, u32)> {
        if self.index.is_empty() {
            return None;
        }
        let mut at = self.place(id);
        loop {
            let slot = self.index[at].checked_sub(1)?;
            if self.slab[slot as usize].id == id {
                return Some((at, slot));
            }
            at = (at + 1) & (self.index.len() - 1);
        }
    }

    /// Returns the open stream of that number.
    #[inline]
    pub(crate) fn find(&self, id: u32) -> Option<StreamId> {
        self.position(id).map(|(_, slot)| StreamId { id, slot })
    }

    pub(crate) fn insert(&mut self, stream: Stream) -> StreamId {
        if (self.slab.len() + 1) * 2 > self.index.len() {
            self.grow();
        }
        let id = stream.id;
        let slot = self.slab.insert(stream) as u32;
        self.put(id, slot);
        StreamId { id, slot }
    }

    fn put(&mut self, id: u32, slot: u32) {
        let mut at = self.place(id);
        while self.index[at] != 0 {
            at = (at + 1) & (self.index.len() - 1);
        }
        self.index[at] = slot + 1;
    }

    #[cold]
    fn grow(&mut self) {
        self.index = vec![0; (self.index.len() * 2).max(16)];
        let all: Vec<(u32, u32)> = self.slab.iter().map(|(slot, stream)| (stream.id, slot as u32)).collect();
        all.into_iter().for_each(|(id, slot)| self.put(id, slot));
    }

    /// Removes a stream and remembers how it was closed.
    pub(crate) fn remove(&mut self, stream: StreamId, how: Closed) -> Option<Stream> {
        let (mut hole, slot) = self.position(stream.id).filter(|&(_, slot)| slot == stream.slot)?;
        // Streams behind the hole move forward, as far as their own places.
        let mask = self.index.len() - 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let Some(other) = self.index[at].checked_sub(1) else { break };
            let home = self.place(self.slab[other as usize].id);
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.index[hole] = self.index[at];
                hole = at;
            }
        }
        self.index[hole] = 0;
        if how == Closed::ByServer {
            self.remember_reset(stream.id);
        } else {
            self.remember_closed(stream.id, how);
        }
        Some(self.slab.remove(slot as usize))
    }

    fn remember_closed(&mut self, id: u32, how: Closed) {
        if self.closed.len() == REMEMBERED {
            self.closed.pop_front();
        }
        self.closed.push_back((id, how));
    }

    /// Returns how a stream was closed, if that is remembered.
    pub(crate) fn how_closed(&self, id: u32) -> Option<Closed> {
        let closed = self.closed.iter().find(|(closed, _)| *closed == id).map(|(_, how)| *how);
        closed.or_else(|| self.reset.contains(&id).then_some(Closed::ByServer))
    }

    /// Records that the client has reset a stream that the server had reset too.
    pub(crate) fn reset_by_client(&mut self, id: u32) {
        if let Some(at) = self.reset.iter().position(|&reset| reset == id) {
            self.reset.remove(at);
            self.remember_closed(id, Closed::ByClient);
        }
    }

    /// Remembers a stream that the server has reset or refused.
    pub(crate) fn remember_reset(&mut self, id: u32) {
        if self.reset.len() == REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(id);
    }

    /// Returns whether there is memory for more than [`FEW`] streams.
    pub(crate) fn has_spare_memory(&self) -> bool {
        self.slab.capacity() > FEW
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        if self.slab.is_empty() {
            self.slab = Slab::new();
            self.index = Vec::new();
            self.closed.shrink_to_fit();
            self.reset.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    pub(crate) fn stream(id: u32) -> Stream {
        Stream {
            id,
            receiving: true,
            connect: false,
            sending: Sending::Nothing,
            priority: Priority::default(),
            wants: false,
            queued: false,
            refused: None,
            head: 0,
            send_window: 0,
            receive_window: 0,
            unconsumed: 0,
            credit: 0,
            left: NO_LENGTH,
            stalled: None,
            sent: 0,
            unlooked: 0,
            unread: Unread::of_stream(),
            owed: false,
        }
    }

    proptest! {
        #[test]
        fn streams_are_found_by_number(steps in prop::collection::vec((any::<bool>(), 0u32..400), 0..300)) {
            let (mut streams, mut model) = (Streams::default(), BTreeMap::new());
            for (open, number) in steps {
                let id = number * 2 + 1;
                match model.remove(&id) {
                    None if open => { model.insert(id, streams.insert(stream(id))); }
                    None => prop_assert_eq!(streams.find(id), None),
                    Some(name) => {
                        prop_assert_eq!(streams.remove(name, Closed::Ended).map(|stream| stream.id), Some(id));
                        prop_assert!(streams.remove(name, Closed::Ended).is_none() && streams.get(name).is_none());
                        prop_assert_eq!(streams.how_closed(id), Some(Closed::Ended));
                    }
                }
                prop_assert_eq!(streams.len(), model.len());
                for (&id, &name) in &model {
                    prop_assert_eq!(streams.find(id), Some(name));
                    prop_assert_eq!(streams.get(name).map(|stream| stream.id), Some(id));
                }
            }
        }
    }
}
