//! HEAP: the order to a worker to describe its heap.

use crate::{Malformed, cursor::Cursor};

/// The bytes of a [`HeapOrder`] in a payload.
pub const LEN: usize = 12;

/// Write a dump.
const DUMP: u32 = 0x01;
/// `trace_s` counts.
const TRACE: u32 = 0x02;

/// The order about what a worker writes into the pipe that comes with the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeapOrder {
    /// Whether to fork a process that writes a dump.
    pub dump: bool,
    /// Record from now on, for so many seconds, where objects are allocated; 0: no longer. `None`: as before.
    pub trace_s: Option<u32>,
    /// The longest life of the forked process, in milliseconds.
    pub limit_ms: u32,
}

impl HeapOrder {
    pub fn to_bytes(self) -> [u8; LEN] {
        let flags = if self.dump { DUMP } else { 0 } | if self.trace_s.is_some() { TRACE } else { 0 };
        let mut out = [0; LEN];
        for (to, value) in out.chunks_exact_mut(4).zip([flags, self.trace_s.unwrap_or(0), self.limit_ms]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        out
    }

    /// Decodes the payload of a HEAP frame.
    ///
    /// # Errors
    /// Fails if the payload has another length, or an unknown flag is set.
    pub fn decode(payload: &[u8]) -> Result<HeapOrder, Malformed> {
        if payload.len() != LEN {
            return Err(Malformed("HEAP has another length"));
        }
        let mut cursor = Cursor::new(payload);
        let (flags, trace_s, limit_ms) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        if flags & !(DUMP | TRACE) != 0 {
            return Err(Malformed("HEAP with an unknown flag"));
        }
        let trace_s = (flags & TRACE != 0).then_some(trace_s);
        Ok(HeapOrder { dump: flags & DUMP != 0, trace_s, limit_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn orders_survive(dump: bool, trace_s: Option<u32>, limit_ms: u32) {
            let order = HeapOrder { dump, trace_s, limit_ms };
            prop_assert_eq!(HeapOrder::decode(&order.to_bytes()), Ok(order));
        }

        #[test]
        fn any_payload_is_read_or_refused(payload in proptest::collection::vec(any::<u8>(), 0..20)) {
            let read = HeapOrder::decode(&payload);
            prop_assert!(payload.len() == LEN || read.is_err());
        }
    }
}
