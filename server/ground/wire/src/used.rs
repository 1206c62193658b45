//! USED: what a request has used in its worker, beside the times in RESPONSE and END; and remarks about it.

use crate::times::UNKNOWN;
use crate::{Malformed, cursor::Cursor};

/// The bytes of [`Used`] in a payload. More may follow, which readers of this version skip.
pub const LEN: usize = 16;

/// The resources that a request has used, as far as they were measured. Values saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// The time in the garbage collector, in microseconds, a part of the processor time.
    pub gc_us: Option<u32>,
    /// The objects that Ruby has allocated.
    pub allocations: Option<u32>,
    /// The queries of the database; `None` if no library reports them.
    pub queries: Option<u32>,
    /// The time in these queries, in microseconds.
    pub queries_us: Option<u32>,
}

impl Used {
    pub fn to_bytes(self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let values = [self.gc_us, self.allocations, self.queries, self.queries_us];
        for (to, value) in out.chunks_exact_mut(4).zip(values) {
            to.copy_from_slice(&value.map_or(UNKNOWN, |value| value.min(UNKNOWN - 1)).to_le_bytes());
        }
        out
    }

    /// Decodes the payload of a USED frame.
    ///
    /// # Errors
    /// Fails if the payload is shorter than [`LEN`], or not a sequence of u32.
    pub fn decode(payload: &[u8]) -> Result<Used, Malformed> {
        if !payload.len().is_multiple_of(4) {
            return Err(Malformed("USED is not a sequence of u32"));
        }
        let mut cursor = Cursor::new(payload);
        let mut next = || cursor.u32().map(|value| (value != UNKNOWN).then_some(value));
        Ok(Used { gc_us: next()?, allocations: next()?, queries: next()?, queries_us: next()? })
    }
}

/// A query that a request makes this often is repeated.
pub const REPEATED: u32 = 10;
/// The bytes of [`Remarks`] behind those of [`Used`].
pub const REMARKS_LEN: usize = 20;

/// Remarks about a request. Places are the numbers of names ([`crate::route`]), 0 if they are not known; a receiver has the names
/// in their place. Values saturate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Remarks<Place = u32> {
    /// How often the request has made one query, apart from its values: the query that took the most time; 0: less than [`REPEATED`] times.
    pub repeats: u32,
    /// The time in these queries, in microseconds.
    pub repeats_us: u32,
    /// The line of the app that makes the query, and its text.
    pub repeats_at: Place,
    /// The longest time for which a function in C has kept Ruby's global lock, in microseconds; 0: none was seen.
    pub held_us: u32,
    /// The function, and the line of the app that calls it.
    pub held_at: Place,
}

impl<Place> Remarks<Place> {
    /// Returns whether there is anything to remark.
    pub fn is_any(&self) -> bool {
        self.repeats > 0 || self.held_us > 0
    }

    /// Replaces the places.
    ///
    /// # Errors
    /// Those of `name`.
    pub fn try_name<Name, E>(
        self,
        mut name: impl FnMut(Place) -> Result<Name, E>,
    ) -> Result<Remarks<Name>, E> {
        let Remarks { repeats, repeats_us, repeats_at, held_us, held_at } = self;
        Ok(Remarks { repeats, repeats_us, repeats_at: name(repeats_at)?, held_us, held_at: name(held_at)? })
    }
}

impl Remarks {
    pub fn to_bytes(self) -> [u8; REMARKS_LEN] {
        let mut out = [0; REMARKS_LEN];
        let values = [self.repeats, self.repeats_us, self.repeats_at, self.held_us, self.held_at];
        out.chunks_exact_mut(4).zip(values).for_each(|(to, value)| to.copy_from_slice(&value.to_le_bytes()));
        out
    }

    /// Decodes the bytes behind [`Used`] in the payload of a USED frame. No bytes are no remarks.
    ///
    /// # Errors
    /// Fails if the payload ends within it.
    pub fn decode(payload: &[u8]) -> Result<Remarks, Malformed> {
        let rest = payload.get(LEN..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(Remarks::default());
        }
        let mut cursor = Cursor::new(rest);
        let mut next = || cursor.u32();
        let (repeats, repeats_us, repeats_at) = (next()?, next()?, next()?);
        Ok(Remarks { repeats, repeats_us, repeats_at, held_us: next()?, held_at: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_survives_the_round_trip_with_more_behind_it(
            values: [Option<u32>; 4],
            more in proptest::collection::vec(any::<u32>(), 0..4),
        ) {
            let [gc_us, allocations, queries, queries_us] = values.map(|value| value.map(|value| value.min(UNKNOWN - 1)));
            let used = Used { gc_us, allocations, queries, queries_us };
            let more = more.into_iter().flat_map(u32::to_le_bytes);
            let payload: Vec<u8> = used.to_bytes().into_iter().chain(more).collect();
            prop_assert_eq!(Used::decode(&payload), Ok(used));
        }

        #[test]
        fn remarks_survive_the_round_trip(values: [u32; 5], used: [u8; LEN]) {
            let [repeats, repeats_us, repeats_at, held_us, held_at] = values;
            let remarks = Remarks { repeats, repeats_us, repeats_at, held_us, held_at };
            let payload = [&used[..], &remarks.to_bytes()].concat();
            prop_assert_eq!(Remarks::decode(&payload), Ok(remarks));
            prop_assert_eq!(Remarks::decode(&used), Ok(Remarks::default()));
            prop_assert!((LEN + 1..payload.len()).all(|len| Remarks::decode(&payload[..len]).is_err()));
        }

        #[test]
        fn any_payload_is_read_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Used::decode(&payload).is_ok(), payload.len() >= LEN && payload.len() % 4 == 0);
        }
    }
}
