//! Implements response priorities (RFC 9218): the requests' own, and later changes by the client (PRIORITY_UPDATE).
//!
//! Contract:
//! 1. An update overrides the field of its request, even if it arrives before the request.
//! 2. The updates of [`MOST`] streams are kept; beyond that, the update of the oldest stream is dropped.
//! 3. Unsent data is ordered by urgency. Within an urgency: small responses first, then non-incremental ones
//!    in the order of their streams, then incremental ones in turns.

use fieldcode::Priority;
use http3::control::PriorityUpdate;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::task::Waker;

/// The most streams whose updates are kept.
const MOST: usize = 256;
/// The distance between two urgencies.
const LEVEL: i32 = 1 << 28;
/// The distance from a level to its incremental responses.
const INCREMENTAL: i32 = LEVEL - 1;

/// The priority updates of a connection.
#[derive(Debug, Default)]
pub(super) struct Priorities {
    updates: RefCell<BTreeMap<u64, Priority>>,
    /// Grows with every update, so that senders notice updates cheaply.
    changes: Cell<u32>,
    /// The wakers of responses that wait for room.
    waiting: RefCell<HashMap<u64, Waker>>,
}

impl Priorities {
    /// Returns the priority of a stream whose request asks for `asked`.
    pub(super) fn of(&self, stream: u64, asked: Priority) -> Priority {
        self.updates.borrow().get(&stream).copied().unwrap_or(asked)
    }

    pub(super) fn update(&self, update: PriorityUpdate) {
        let mut updates = self.updates.borrow_mut();
        updates.insert(update.stream, update.priority);
        if updates.len() > MOST {
            updates.pop_first();
        }
        self.changes.set(self.changes.get().wrapping_add(1));
        if let Some(waker) = self.waiting.borrow_mut().remove(&update.stream) {
            waker.wake();
        }
    }

    /// Returns a number that changes with every update.
    pub(super) fn changes(&self) -> u32 {
        self.changes.get()
    }

    /// Wakes the sender of a stream at its next update.
    pub(super) fn wait(&self, stream: u64, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.entry(stream).and_modify(|known| known.clone_from(waker)).or_insert_with(|| waker.clone());
    }

    /// Drops the state of a finished stream.
    pub(super) fn forget(&self, stream: u64) {
        self.updates.borrow_mut().remove(&stream);
        self.waiting.borrow_mut().remove(&stream);
    }
}

/// Returns QUIC's rank of a response; the greatest rank goes first. `large`: the response needs more than a
/// few packets.
pub(super) fn rank(priority: Priority, stream: u64, large: bool) -> i32 {
    let level = (3 - i32::from(priority.urgency)) * LEVEL;
    match (large, priority.incremental) {
        (false, _) => level,
        (true, true) => level - INCREMENTAL,
        (true, false) => level - 1 - i32::try_from(stream / 4).unwrap_or(i32::MAX).min(INCREMENTAL - 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    #[test]
    fn nothing_that_is_usual_has_a_rank() {
        assert_eq!(rank(Priority::default(), 400, false), 0);
    }

    proptest! {
        #[test]
        fn urgency_counts_most(
            one in (0u8..8, any::<bool>(), 0..1u64 << 62, any::<bool>()),
            two in (0u8..8, any::<bool>(), 0..1u64 << 62, any::<bool>()),
        ) {
            let of = |(urgency, incremental, stream, large)| rank(priority(urgency, incremental), stream, large);
            if one.0 < two.0 {
                prop_assert!(of(one) > of(two));
            }
        }

        #[test]
        fn then_the_order_of_streams_and_incremental_ones_share(urgency in 0u8..8, one in 0u64..1 << 26, two in 0u64..1 << 26) {
            let (first, second) = (one.min(two) * 4, one.max(two) * 4 + 4);
            prop_assert!(rank(priority(urgency, false), first, true) > rank(priority(urgency, false), second, true));
            prop_assert!(rank(priority(urgency, false), second, true) > rank(priority(urgency, true), first, true));
            prop_assert_eq!(rank(priority(urgency, true), first, true), rank(priority(urgency, true), second, true));
            prop_assert!(rank(priority(urgency, true), second, false) > rank(priority(urgency, false), first, true));
        }

        #[test]
        fn the_last_update_counts_and_memory_is_bounded(updates in prop::collection::vec((0u64..600, 0u8..8), 0..900)) {
            let priorities = Priorities::default();
            let mut expected = BTreeMap::new();
            for (stream, urgency) in updates {
                priorities.update(PriorityUpdate { stream, priority: priority(urgency, false) });
                expected.insert(stream, urgency);
                if expected.len() > MOST {
                    expected.pop_first();
                }
            }
            prop_assert!(priorities.updates.borrow().len() <= MOST);
            for stream in 0..600 {
                let wanted = expected.get(&stream).map_or(priority(7, true), |&urgency| priority(urgency, false));
                prop_assert_eq!(priorities.of(stream, priority(7, true)), wanted);
            }
        }
    }
}
