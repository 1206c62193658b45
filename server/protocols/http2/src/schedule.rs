//! Chooses the stream that sends next (RFC 9218 section 10): by urgency; then non-incremental streams in
//! order of their numbers, and incremental ones in turns. Where an urgency has both, they alternate.

use crate::StreamId;
use fieldcode::Priority;
use std::collections::VecDeque;

const LEVELS: usize = 8;

#[derive(Debug, Default)]
struct Level {
    /// In order of their numbers.
    ordered: VecDeque<StreamId>,
    incremental: VecDeque<StreamId>,
    /// Alternates between the two queues.
    turn: bool,
}

/// The ready streams. Each is in it at most once.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    levels: [Level; LEVELS],
    /// A bit for each level that is not empty.
    occupied: u8,
}

impl Schedule {
    #[inline]
    pub(crate) fn push(&mut self, stream: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency) % LEVELS;
        let level = &mut self.levels[urgency];
        self.occupied |= 1 << urgency;
        if priority.incremental {
            level.incremental.push_back(stream);
        } else if level.ordered.back().is_none_or(|last| last.id < stream.id) {
            level.ordered.push_back(stream);
        } else {
            let at = level.ordered.partition_point(|other| other.id < stream.id);
            level.ordered.insert(at, stream);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<StreamId> {
        let urgency = self.occupied.trailing_zeros() as usize;
        let level = self.levels.get_mut(urgency)?;
        let from_incremental = level.ordered.is_empty() || level.turn && !level.incremental.is_empty();
        level.turn = !from_incremental;
        let next = if from_incremental { level.incremental.pop_front() } else { level.ordered.pop_front() };
        if level.ordered.is_empty() && level.incremental.is_empty() {
            self.occupied &= !(1 << urgency);
        }
        next
    }

    pub(crate) fn remove(&mut self, stream: StreamId, priority: Priority) {
        let urgency = usize::from(priority.urgency) % LEVELS;
        let level = &mut self.levels[urgency];
        let queue = if priority.incremental { &mut level.incremental } else { &mut level.ordered };
        if let Some(at) = queue.iter().position(|&other| other == stream) {
            queue.remove(at);
        }
        if level.ordered.is_empty() && level.incremental.is_empty() {
            self.occupied &= !(1 << urgency);
        }
    }

    /// Frees unused memory.
    pub(crate) fn shrink(&mut self) {
        for level in &mut self.levels {
            level.ordered.shrink_to_fit();
            level.incremental.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u32) -> StreamId {
        StreamId { id, slot: id }
    }

    fn priority(urgency: u8, incremental: bool) -> Priority {
        Priority { urgency, incremental }
    }

    fn drain(schedule: &mut Schedule) -> Vec<u32> {
        std::iter::from_fn(|| schedule.pop()).map(StreamId::number).collect()
    }

    #[test]
    fn urgency_comes_first_then_the_number() {
        let mut schedule = Schedule::default();
        for (number, urgency) in [(9, 3), (1, 7), (5, 3), (7, 0), (3, 3), (11, 3)] {
            schedule.push(id(number), priority(urgency, false));
        }
        schedule.remove(id(5), priority(3, false));
        schedule.remove(id(5), priority(3, false));
        assert_eq!(drain(&mut schedule), [7, 3, 9, 11, 1]);
        assert_eq!(schedule.pop(), None);
    }

    #[test]
    fn incremental_streams_take_turns() {
        let mut schedule = Schedule::default();
        let incremental = priority(3, true);
        [1, 3, 5].into_iter().for_each(|number| schedule.push(id(number), incremental));
        let mut served = Vec::new();
        for _ in 0..6 {
            let next = schedule.pop().unwrap();
            served.push(next.number());
            schedule.push(next, incremental);
        }
        assert_eq!(served, [1, 3, 5, 1, 3, 5]);
        schedule.push(id(7), priority(3, false));
        schedule.push(id(9), priority(3, false));
        assert_eq!(drain(&mut schedule), [7, 1, 9, 3, 5]);
    }
}
