//! Which message of the server replies to which of the client.
//!
//! Contract: pure. A connection has at most [`MOST`] messages without a reply; the oldest one beyond counts as
//! unanswered. Messages are compared by a hash of 64 bits, so that none is kept.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{LONGEST_MATCHED, Reply};

/// The most messages without a reply, for each connection.
const MOST: usize = 1_024;

/// Hashes a message that comes in pieces (FNV-1a).
#[derive(Debug, Clone, Copy)]
struct Hash(u64);

impl Hash {
    const EMPTY: Hash = Hash(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

pub(crate) struct Replies<'a> {
    rule: &'a Reply,
    /// The messages that wait: when they were due, and their hash.
    waiting: VecDeque<(Instant, u64)>,
    /// The message that is being received.
    hash: Hash,
    beginning: Vec<u8>,
}

impl<'a> Replies<'a> {
    pub(crate) fn new(rule: &'a Reply) -> Replies<'a> {
        Replies { rule, waiting: VecDeque::new(), hash: Hash::EMPTY, beginning: Vec::new() }
    }

    /// Notes a message that is sent. Returns the number of messages that are given up.
    pub(crate) fn sent(&mut self, due: Instant, content: &[u8]) -> u64 {
        if matches!(self.rule, Reply::None) {
            return 0;
        }
        let mut hash = Hash::EMPTY;
        if matches!(self.rule, Reply::Echo) {
            hash.add(content);
        }
        self.waiting.push_back((due, hash.0));
        let full = self.waiting.len() > MOST;
        if full {
            self.waiting.pop_front();
        }
        u64::from(full)
    }

    /// Reads a piece of the message that is being received.
    pub(crate) fn piece(&mut self, piece: &[u8]) {
        match self.rule {
            Reply::Echo => self.hash.add(piece),
            Reply::Matching(_) => {
                let room = LONGEST_MATCHED - self.beginning.len();
                self.beginning.extend_from_slice(&piece[..piece.len().min(room)]);
            }
            Reply::Next | Reply::None => {}
        }
    }

    /// Ends the message that is being received. Returns when the message was due to which it replies.
    pub(crate) fn message(&mut self) -> Option<Instant> {
        let hash = std::mem::replace(&mut self.hash, Hash::EMPTY);
        let at = match self.rule {
            Reply::None => None,
            Reply::Next => Some(0),
            Reply::Echo => self.waiting.iter().position(|(_, sent)| *sent == hash.0),
            Reply::Matching(wanted) => wanted.is_match(&self.beginning).then_some(0),
        };
        // A buffer for each of 10,000 connections would remain.
        self.beginning = Vec::new();
        self.waiting.remove(at?).map(|(due, _)| due)
    }

    /// Whether a message waits for its reply.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Gives up the messages that have waited for too long, and returns their number.
    pub(crate) fn late(&mut self, now: Instant, limit: Duration) -> u64 {
        let before = self.waiting.len();
        while self.waiting.front().is_some_and(|(due, _)| now.saturating_duration_since(*due) >= limit) {
            self.waiting.pop_front();
        }
        (before - self.waiting.len()) as u64
    }

    /// The time at which the oldest message is given up.
    pub(crate) fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.waiting.front().map(|(due, _)| *due + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn times() -> [Instant; 3] {
        let now = Instant::now();
        [now, now + LIMIT / 2, now + LIMIT]
    }

    /// Which of two messages, `a` and `b`, each received message replies to.
    fn replies(rule: &Reply, received: &[&str]) -> Vec<Option<usize>> {
        let at = times();
        let mut replies = Replies::new(rule);
        for (due, content) in at.iter().zip(["a", "b"]) {
            replies.sent(*due, content.as_bytes());
        }
        let reply = |text: &&str| {
            text.as_bytes().chunks(1).for_each(|piece| replies.piece(piece));
            let due = replies.message()?;
            at.iter().position(|time| *time == due)
        };
        received.iter().map(reply).collect()
    }

    #[test]
    fn each_rule() {
        let matching = Reply::Matching(regex::bytes::Regex::new("^x.").unwrap());
        for (rule, received, expected) in [
            (&Reply::Echo, ["b", "ab", "a", "a"], [Some(1), None, Some(0), None]),
            (&Reply::Next, ["x", "x", "a", "b"], [Some(0), Some(1), None, None]),
            (&matching, ["x", "xy", "a", "xz"], [None, Some(0), None, Some(1)]),
            (&Reply::None, ["a", "b", "a", "b"], [None; 4]),
        ] {
            assert_eq!(replies(rule, &received), expected, "{rule:?}");
        }
    }

    #[test]
    fn messages_are_given_up() {
        let at = times();
        let mut replies = Replies::new(&Reply::Next);
        assert_eq!((replies.sent(at[0], b""), replies.sent(at[1], b"")), (0, 0));
        assert_eq!(replies.deadline(LIMIT), Some(at[2]));
        assert_eq!(
            (replies.late(at[1], LIMIT), replies.late(at[2], LIMIT), replies.is_waiting()),
            (0, 1, true)
        );
        let given_up: u64 = (0..MOST).map(|_| replies.sent(at[2], b"")).sum();
        assert_eq!(given_up, 1);
    }
}
