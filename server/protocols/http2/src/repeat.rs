//! Recognizes repeated requests: a client that requests the same thing again and again sends the same bytes,
//! which are decoded and checked once.
//!
//! Contract: a head is reused only for the same block, with the same END_STREAM, while the client's table is
//! unchanged. Decoding has no other input, so the result is the same.

use fieldcode::RequestHead;

/// Longer blocks are not remembered. Browsers' blocks are shorter, except for the first one of a connection.
const LONGEST: usize = 256;

/// The last request's block, and its head once it has come twice.
#[derive(Debug, Default)]
pub(crate) struct Repeat {
    block: Vec<u8>,
    end: bool,
    /// [`Decoder::changes`](crate::hpack::Decoder::changes) at the time of decoding.
    changes: u64,
    head: Option<RequestHead>,
}

impl Repeat {
    fn is(&self, block: &[u8], end: bool, changes: u64) -> bool {
        self.changes == changes && self.end == end && self.block == block
    }

    /// Returns the head of a block, if it is known.
    #[inline]
    pub(crate) fn find(&self, block: &[u8], end: bool, changes: u64) -> Option<RequestHead> {
        let head = self.head.as_ref()?;
        self.is(block, end, changes).then(|| head.repeated())
    }

    /// Records a decoded block that did not change the table. The head is kept from the second time on, so
    /// that clients whose requests differ pay only for a comparison.
    #[inline]
    pub(crate) fn remember(&mut self, block: &[u8], end: bool, changes: u64, head: &RequestHead) {
        if self.is(block, end, changes) {
            self.head = Some(head.repeated());
            return;
        }
        self.forget();
        if block.len() <= LONGEST {
            self.block.extend_from_slice(block);
            (self.end, self.changes) = (end, changes);
        }
    }

    /// Forgets the block.
    #[inline]
    pub(crate) fn forget(&mut self) {
        self.block.clear();
        self.head = None;
    }

    /// Returns whether there is memory worth freeing.
    pub(crate) fn holds_memory(&self) -> bool {
        self.head.is_some()
    }

    pub(crate) fn shrink(&mut self) {
        *self = Repeat::default();
    }
}

#[cfg(test)]
mod tests {
    use crate::frame::{self, END_HEADERS, END_STREAM};
    use crate::hpack::Decoder;
    use crate::{Connection, Event, Limits};
    use fieldcode::{RequestHead, Section};
    use proptest::prelude::*;
    use std::time::Instant;

    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

    /// Encodes GET, http, and then a path, an authority and fields; some of them change the table, some refer to it.
    fn block(path: u8, authority: u8, field: u8) -> Vec<u8> {
        let mut block = vec![0x82, 0x86];
        match path % 3 {
            0 => block.push(0x84),
            1 => block.extend(b"\x04\x02/a"),
            _ => block.extend(b"\x44\x02/b"),
        }
        match authority % 3 {
            0 => block.extend(b"\x01\x01h"),
            1 => block.extend(b"\x41\x01i"),
            _ => block.push(0xbe),
        }
        match field % 4 {
            0 => {}
            1 => block.extend(b"\x00\x01x\x01y"),
            2 => block.extend(b"\x40\x01x\x01z"),
            _ => {
                let mut resized = vec![0x20, 0x3f, 0xe1, 0x1f];
                resized.append(&mut block);
                block = resized;
            }
        }
        block
    }

    /// Decodes the block with a separate decoder; `None` if the connection has to end.
    fn decoded(decoder: &mut Decoder, block: &[u8]) -> Option<Option<RequestHead>> {
        let (mut section, limits) = (Section::request(0, 0), Limits::default().head);
        decoder.decode(block, &mut section, &limits).ok()?;
        Some(section.finish_request(true).ok())
    }

    fn facts(head: &RequestHead) -> Vec<Vec<u8>> {
        let text = head.fields.text();
        let line = [head.method, head.authority, head.target].map(|span| span.slice(text).to_vec());
        let fields = head.fields.iter().map(|(name, value)| [name, value].join(&b':'));
        line.into_iter().chain(fields).collect()
    }

    proptest! {
        #[test]
        fn a_block_means_the_same_with_and_without_memory(blocks in prop::collection::vec((0u8..3, 0u8..3, 0u8..4, 1usize..4), 1..12)) {
            let now = Instant::now();
            let mut connection = Connection::new(Limits::default(), now);
            connection.receive(PREFACE, now, &mut |_| {}).unwrap();
            let (mut decoder, mut id) = (Decoder::new(), 1);
            let all = blocks.iter().flat_map(|&(path, authority, field, times)| vec![block(path, authority, field); times]);
            for block in all {
                let expected = decoded(&mut decoder, &block);
                let mut bytes = Vec::new();
                frame::header(&mut bytes, block.len(), frame::HEADERS, END_HEADERS | END_STREAM, id);
                bytes.extend(&block);
                let mut seen = None;
                let result = connection.receive(&bytes, now, &mut |event| match event {
                    Event::Request { stream, head, .. } => seen = Some((stream, Some(facts(&head)))),
                    Event::Refused { stream, .. } => seen = Some((stream, None)),
                    _ => {}
                });
                prop_assert_eq!(result.is_ok(), expected.is_some());
                let Some(expected) = expected else { break };
                let (stream, seen) = seen.unwrap();
                prop_assert_eq!(seen, expected.as_ref().map(facts));
                connection.reset(stream, crate::ErrorCode::NO_ERROR);
                id += 2;
            }
        }
    }

    #[test]
    fn the_third_of_three_equal_requests_is_not_decoded() {
        let now = Instant::now();
        let mut connection = Connection::new(Limits::default(), now);
        connection.receive(PREFACE, now, &mut |_| {}).unwrap();
        for id in [1, 3, 5] {
            let block = block(1, 0, 1);
            expect_known(&connection, id == 5);
            let mut bytes = Vec::new();
            frame::header(&mut bytes, block.len(), frame::HEADERS, END_HEADERS | END_STREAM, id);
            bytes.extend(&block);
            connection.receive(&bytes, now, &mut |_| {}).unwrap();
        }
    }

    fn expect_known(connection: &Connection, known: bool) {
        let found = connection.repeat.find(&block(1, 0, 1), true, connection.decoder.changes());
        assert_eq!(found.is_some(), known);
    }
}
