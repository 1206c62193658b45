//! The queries of a request by their shapes: how often it makes each, so that one for each row (an N+1) is noticed.
//!
//! Two queries are the same if their texts differ only in numbers and quoted values ([`shape`]).
//!
//! Contract: a request has [`SLOTS`] counters, made at its first query; a query that has none takes that of the query with the fewest. A query costs one
//! pass over the first [`LONGEST`] bytes of its text.

use std::cell::Cell;
use wire::used::REPEATED;

/// The queries of a request that are counted at a time.
const SLOTS: usize = 16;
/// The bytes of a query that are looked at.
const LONGEST: usize = 1_024;

/// A query of a request: its shape, its number, its time in microseconds.
#[derive(Clone, Copy, Default)]
struct Query {
    shape: u64,
    count: u32,
    us: u32,
    /// The number of its place's name; 0: not known.
    place: u16,
}

/// The queries of a request.
#[derive(Default)]
pub(crate) struct Repeats(Cell<Option<Box<[Query; SLOTS]>>>);

impl Repeats {
    /// Forgets the queries of the last request. To be called before the first of a request is counted.
    pub(crate) fn begin(&self) {
        if let Some(mut all) = self.0.take() {
            *all = Default::default();
            self.0.set(Some(all));
        }
    }

    /// Returns the query with the most time among those that are repeated: its number, its time, the number of its place's name.
    pub(crate) fn worst(&self) -> Option<(u32, u32, u16)> {
        let all = self.0.take()?;
        let repeated = all.iter().filter(|query| query.count >= REPEATED);
        let worst = repeated.max_by_key(|query| query.us).map(|query| (query.count, query.us, query.place));
        self.0.set(Some(all));
        worst
    }

    /// Counts a query. Returns its shape if it has just become a repeated one.
    pub(crate) fn count(&self, shape: u64, us: u64) -> Option<u64> {
        let mut all = self.0.take().unwrap_or_default();
        let known = all.iter().position(|query| query.count > 0 && query.shape == shape);
        let at = known.unwrap_or_else(|| {
            let fewest = all.iter().enumerate().min_by_key(|(_, query)| query.count);
            let at = fewest.map_or(0, |(at, _)| at);
            all[at] = Query { shape, ..Query::default() };
            at
        });
        let query = &mut all[at];
        query.count += 1;
        query.us = query.us.saturating_add(u32::try_from(us).unwrap_or(u32::MAX));
        let becomes = query.count == REPEATED;
        self.0.set(Some(all));
        becomes.then_some(shape)
    }

    pub(crate) fn is_at(&self, shape: u64, place: u16) {
        let Some(mut all) = self.0.take() else { return };
        all.iter_mut().filter(|query| query.shape == shape).for_each(|query| query.place = place);
        self.0.set(Some(all));
    }
}

/// Returns a hash of a text without its numbers and quoted values.
pub(crate) fn shape(text: &[u8]) -> u64 {
    let text = &text[..text.len().min(LONGEST)];
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let mut in_word = false;
    while let Some(&byte) = text.get(at) {
        at += 1;
        let sign = match byte {
            b'\'' => {
                while let Some(&next) = text.get(at) {
                    at += 1;
                    if next == b'\'' {
                        break;
                    }
                }
                b'?'
            }
            // A number, and not the end of a name: `t1`, `$1`.
            b'0'..=b'9' if !in_word => {
                at += text[at..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
                b'?'
            }
            _ => byte,
        };
        in_word =
            sign.is_ascii_alphanumeric() || sign == b'_' || sign == b'$' || sign == b'"' || sign == b'`';
        hash = (hash ^ u64::from(sign)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}
