//! USED: what a request has used in its worker, beside the times in RESPONSE and END.

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
        fn any_payload_is_read_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Used::decode(&payload).is_ok(), payload.len() >= LEN && payload.len() % 4 == 0);
        }
    }
}
