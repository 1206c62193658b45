//! Bytes queued for one client: small pieces are copied together, large ones kept by reference, and all
//! written together.

use bytes::Bytes;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io::IoSlice;

/// Smaller pieces are copied to the preceding text. In bytes.
const COPY_BELOW: usize = 8 << 10;
/// The largest number of parts in one write.
const PARTS: usize = 32;

#[derive(Debug)]
enum Part {
    /// This many bytes of `text`.
    Text(usize),
    Bytes(Bytes),
}

#[derive(Debug, Default)]
pub struct Output {
    text: Vec<u8>,
    /// The start of the unsent text.
    sent_text: usize,
    parts: VecDeque<Part>,
    len: usize,
}

impl Output {
    /// Returns the number of queued bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of memory in use for text.
    pub fn capacity(&self) -> usize {
        self.text.capacity()
    }

    /// Returns the number of queued bytes that nothing else uses.
    pub fn own_len(&self) -> usize {
        let shared = |part: &Part| match part {
            Part::Bytes(bytes) if !bytes.is_unique() => bytes.len(),
            _ => 0,
        };
        self.len - self.parts.iter().map(shared).sum::<usize>()
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.parts.clear();
        (self.sent_text, self.len) = (0, 0);
    }

    /// Queues the bytes that `write` appends.
    #[inline]
    pub fn text<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let before = self.text.len();
        let result = write(&mut self.text);
        let added = self.text.len() - before;
        self.len += added;
        if let Some(Part::Text(len)) = self.parts.back_mut() {
            *len += added;
        } else if added > 0 {
            self.parts.push_back(Part::Text(added));
        }
        result
    }

    pub fn bytes(&mut self, bytes: Bytes) {
        if bytes.len() < COPY_BELOW {
            self.text(|text| text.extend_from_slice(&bytes));
        } else {
            self.len += bytes.len();
            self.parts.push_back(Part::Bytes(bytes));
        }
    }

    /// Queues bytes without copying them, however few.
    pub fn by_reference(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        self.parts.push_back(Part::Bytes(bytes));
    }

    /// Returns all queued bytes as one piece.
    pub fn copied(&self) -> Bytes {
        self.slices().iter().flat_map(|slice| slice.iter().copied()).collect()
    }

    /// Returns the parts for the next write.
    pub fn slices(&self) -> SmallVec<[IoSlice<'_>; PARTS]> {
        let mut from = self.sent_text;
        self.parts
            .iter()
            .take(PARTS)
            .map(|part| match part {
                Part::Text(len) => {
                    from += len;
                    IoSlice::new(&self.text[from - len..from])
                }
                Part::Bytes(bytes) => IoSlice::new(bytes),
            })
            .collect()
    }

    /// Removes the first `n` bytes, which have been written.
    pub fn advance(&mut self, mut n: usize) {
        self.len -= n;
        if self.len == 0 {
            self.clear();
            return;
        }
        while n > 0 {
            let Some(part) = self.parts.front_mut() else { return };
            let size = match part {
                Part::Text(len) => {
                    let taken = n.min(*len);
                    self.sent_text += taken;
                    *len -= taken;
                    n -= taken;
                    *len
                }
                Part::Bytes(bytes) => {
                    let taken = n.min(bytes.len());
                    let _ = bytes.split_to(taken);
                    n -= taken;
                    bytes.len()
                }
            };
            if size == 0 {
                self.parts.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_others_use_too_is_not_its_own() {
        let mut output = Output::default();
        let shared = Bytes::from(vec![1; 10_000]);
        output.text(|text| text.extend_from_slice(b"text"));
        output.bytes(shared.clone());
        output.bytes(Bytes::from(vec![2; 20_000]));
        assert_eq!((output.len(), output.own_len()), (30_004, 20_004));
        drop(shared);
        output.advance(4);
        assert_eq!(output.own_len(), 30_000);
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order(pieces in prop::collection::vec((any::<bool>(), 0usize..20_000), 0..20), steps in prop::collection::vec(1usize..30_000, 1..20)) {
            let (mut output, mut expected, mut got) = (Output::default(), Vec::new(), Vec::new());
            for (i, (copied, len)) in pieces.into_iter().enumerate() {
                let piece = vec![i as u8; len];
                expected.extend_from_slice(&piece);
                if copied { output.text(|text| text.extend_from_slice(&piece)) } else { output.bytes(piece.into()) }
            }
            let mut steps = steps.into_iter().cycle();
            while !output.is_empty() {
                prop_assert_eq!(output.len(), expected.len() - got.len());
                let flat: Vec<u8> = output.slices().iter().flat_map(|slice| slice.to_vec()).collect();
                let step = steps.next().unwrap_or(1).min(flat.len());
                got.extend_from_slice(&flat[..step]);
                output.advance(step);
            }
            prop_assert_eq!(got, expected);
        }
    }
}
