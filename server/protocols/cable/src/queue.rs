//! The frames that wait until a client reads, bounded in bytes.
//!
//! Contract: frames are shared, so a broadcast to many clients costs each a reference. A full queue takes nothing more; the
//! client is then closed, and can resume by its position. An empty queue holds no memory.

use bytes::{Buf, Bytes};
use std::collections::VecDeque;

/// The bookkeeping of a waiting frame in bytes.
const ENTRY: usize = size_of::<Bytes>();

/// The waiting frames of a client.
#[derive(Debug, Default)]
pub struct ClientQueue {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Whether a part of the first frame has been read.
    is_begun: bool,
}

impl ClientQueue {
    /// Returns the bytes that frames would take.
    pub fn cost(frames: &[Bytes]) -> usize {
        frames.iter().map(|frame| frame.len() + ENTRY).sum()
    }

    /// Adds a frame. Returns whether there was room; an empty queue has room for any frame.
    pub fn push(&mut self, frame: Bytes, limit: usize) -> bool {
        let cost = frame.len() + ENTRY;
        if !self.frames.is_empty() && self.bytes + cost > limit {
            return false;
        }
        self.bytes += cost;
        self.frames.push_back(frame);
        true
    }

    /// Adds a frame beyond the limit: for the few that end a connection.
    pub fn push_last(&mut self, frame: Bytes) {
        self.bytes += frame.len() + ENTRY;
        self.frames.push_back(frame);
    }

    /// Drops all frames, except one of which a part has been read: without its rest, nothing could follow.
    pub fn drop_waiting(&mut self) {
        self.frames.truncate(usize::from(self.is_begun));
        self.bytes = self.frames.iter().map(|frame| frame.len() + ENTRY).sum();
    }

    /// Moves waiting bytes into `buffer`. Returns their number.
    pub fn read(&mut self, mut buffer: &mut [u8]) -> usize {
        let whole = buffer.len();
        while let Some(frame) = self.frames.front_mut() {
            let here = frame.len().min(buffer.len());
            frame.copy_to_slice(&mut buffer[..here]);
            buffer = &mut buffer[here..];
            self.bytes -= here;
            self.is_begun = !frame.is_empty();
            if !frame.is_empty() {
                break;
            }
            self.bytes -= ENTRY;
            self.frames.pop_front();
        }
        if self.frames.is_empty() {
            self.frames = VecDeque::new();
        }
        whole - buffer.len()
    }

    /// Takes the first frame, or the rest of it.
    pub fn pop(&mut self) -> Option<Bytes> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len() + ENTRY;
        self.is_begun = false;
        if self.frames.is_empty() {
            self.frames = VecDeque::new();
        }
        Some(frame)
    }

    /// Puts the rest of frames first that another program has begun to send.
    pub fn begin_with(&mut self, rest: Bytes) {
        self.is_begun = !rest.is_empty();
        if self.is_begun {
            self.bytes += rest.len() + ENTRY;
            self.frames.push_front(rest);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Returns the waiting bytes, bookkeeping included.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_queue_takes_nothing_but_the_last_frame() {
        let mut queue = ClientQueue::default();
        let frame = Bytes::from_static(b"0123456789");
        assert!(queue.push(frame.clone(), 1), "an empty queue has room");
        assert!(!queue.push(frame.clone(), 50));
        assert!(queue.push(frame.clone(), 200));
        queue.push_last(frame);
        assert_eq!(queue.read(&mut [0; 100]), 30);
        assert!(queue.is_empty() && queue.bytes() == 0);
    }

    #[test]
    fn a_frame_that_has_begun_stays() {
        let mut queue = ClientQueue::default();
        let frame = Bytes::from_static(b"0123456789");
        (0..3).for_each(|_| queue.push_last(frame.clone()));
        assert_eq!(queue.read(&mut [0; 4]), 4);
        queue.drop_waiting();
        assert_eq!(queue.read(&mut [0; 100]), 6);
        (0..3).for_each(|_| queue.push_last(frame.clone()));
        queue.drop_waiting();
        assert!(queue.is_empty() && queue.bytes() == 0);
        queue.begin_with(Bytes::new());
        assert!(queue.is_empty());
        queue.begin_with(frame.clone());
        queue.push_last(frame);
        queue.drop_waiting();
        assert_eq!(queue.read(&mut [0; 100]), 10, "a rest stays, too");
    }

    #[test]
    fn whole_frames_are_taken() {
        let mut queue = ClientQueue::default();
        let frame = Bytes::from_static(b"0123456789");
        (0..2).for_each(|_| queue.push_last(frame.clone()));
        assert_eq!(queue.read(&mut [0; 4]), 4);
        assert_eq!(queue.pop().as_deref(), Some(&b"456789"[..]));
        queue.drop_waiting();
        assert!(queue.pop().is_none() && queue.bytes() == 0);
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order(frames in prop::collection::vec("[a-z]{1,20}", 0..20), size in 1usize..40) {
            let mut queue = ClientQueue::default();
            frames.iter().for_each(|frame| queue.push_last(Bytes::copy_from_slice(frame.as_bytes())));
            let (mut read, mut buffer) = (Vec::new(), vec![0; size]);
            loop {
                match queue.read(&mut buffer) {
                    0 => break,
                    n => read.extend_from_slice(&buffer[..n]),
                }
            }
            prop_assert_eq!(read, frames.concat().into_bytes());
            prop_assert_eq!(queue.bytes(), 0);
        }
    }
}
