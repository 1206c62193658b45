//! Encodes and parses frames (RFC 9114 section 7): type, length, payload.

use crate::varint;

/// The frame types that this server knows.
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x0;
    pub(crate) const HEADERS: u64 = 0x1;
    pub(crate) const CANCEL_PUSH: u64 = 0x3;
    pub(crate) const SETTINGS: u64 = 0x4;
    pub(crate) const PUSH_PROMISE: u64 = 0x5;
    pub(crate) const GOAWAY: u64 = 0x7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
    /// PRIORITY_UPDATE for requests (RFC 9218 section 7.2).
    pub(crate) const PRIORITY_UPDATE: u64 = 0xf_0700;
    pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf_0701;
}

/// The most bytes of a frame's type and length.
const HEADER: usize = 16;

/// Returns whether a type is an HTTP/2 type without a meaning here. Such types must not be sent (section 7.2.8).
pub(crate) fn is_reserved(kind: u64) -> bool {
    matches!(kind, 0x2 | 0x6 | 0x8 | 0x9)
}

/// Parses a header that arrives in pieces: keeps type and length while bytes are missing.
#[derive(Debug, Default, Clone)]
pub(crate) struct HeaderParser {
    held: [u8; HEADER],
    len: usize,
}

impl HeaderParser {
    /// Returns whether a part of a header has arrived.
    pub(crate) fn has_begun(&self) -> bool {
        self.len > 0
    }

    /// Consumes bytes at the start of `input`. Returns type and length once both are complete.
    pub(crate) fn advance(&mut self, input: &mut &[u8]) -> Option<(u64, u64)> {
        if self.len == 0
            && let Some((kind, first)) = varint::decode(input)
            && let Some((length, second)) = varint::decode(&input[first..])
        {
            *input = &input[first + second..];
            return Some((kind, length));
        }
        while let [byte, rest @ ..] = *input {
            *input = rest;
            self.held[self.len] = *byte;
            self.len += 1;
            let held = &self.held[..self.len];
            if let Some((kind, first)) = varint::decode(held)
                && let Some((length, _)) = varint::decode(&held[first..])
            {
                self.len = 0;
                return Some((kind, length));
            }
        }
        None
    }
}

pub fn encode_frame(text: &mut Vec<u8>, kind: u64, payload: &[u8]) {
    varint::encode(text, kind);
    varint::encode(text, payload.len() as u64);
    text.extend_from_slice(payload);
}

/// Appends the header of a DATA frame of `len` bytes.
pub fn data_header(text: &mut Vec<u8>, len: u64) {
    varint::encode(text, kind::DATA);
    varint::encode(text, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_in_any_pieces(kind in 0..=varint::MAX, length in 0..=varint::MAX, cuts in prop::collection::vec(1usize..5, 0..16)) {
            let mut text = Vec::new();
            varint::encode(&mut text, kind);
            varint::encode(&mut text, length);
            text.extend_from_slice(b"payload");
            let (mut parser, mut at, mut cuts) = (HeaderParser::default(), 0, cuts.into_iter());
            loop {
                let end = (at + cuts.next().unwrap_or(text.len())).min(text.len());
                let mut piece = &text[at..end];
                if let Some(header) = parser.advance(&mut piece) {
                    prop_assert_eq!(header, (kind, length));
                    prop_assert!(text[end - piece.len()..].starts_with(b"payload"));
                    break;
                }
                prop_assert!(piece.is_empty() && parser.has_begun());
                at = end;
            }
        }
    }
}
