//! The pools of a server, each with its queue.
//!
//! Contract: every request belongs to one pool for its whole life, chosen by its path. The lock of a pool is
//! held for a few instructions only, and never two locks at a time.

use crate::dispatch::Dispatch;
use crate::paths;
use crate::ticket::PoolIndex;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct Pools(Box<[Mutex<Dispatch>]>);

impl Pools {
    /// Creates pools with these queues. The first queue is that of [`PoolIndex::DEFAULT`].
    pub fn new(queues: impl IntoIterator<Item = Dispatch>) -> Pools {
        let numbered = (0..).zip(queues);
        Pools(numbered.map(|(index, queue)| Mutex::new(queue.of_pool(PoolIndex(index)))).collect())
    }

    /// Returns the pool for a request with this path, which is the app's PATH_INFO: the pool with the longest
    /// matching prefix among its `paths`, otherwise the default. `paths` begins with the second pool; the
    /// default pool has no paths.
    #[inline]
    pub fn choose<'a>(&self, path: &[u8], paths: impl IntoIterator<Item = &'a [String]>) -> PoolIndex {
        let others = self.indexes().skip(1).zip(paths);
        let having = others.filter_map(|(pool, its)| Some((paths::longest(its, path)?, pool)));
        having.max().map_or(PoolIndex::DEFAULT, |(_, pool)| pool)
    }

    /// Returns the numbers of the pools.
    #[inline]
    pub fn indexes(&self) -> impl Iterator<Item = PoolIndex> + Clone + use<> {
        (0..self.0.len() as u8).map(PoolIndex)
    }

    /// Returns the queue of this pool.
    #[inline]
    pub fn of(&self, pool: PoolIndex) -> MutexGuard<'_, Dispatch> {
        // A panic elsewhere leaves the queue usable: its data is plain and valid after every statement.
        self.0[usize::from(pool.0)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::availability::PassReason;
    use crate::client::QueueKey;
    use crate::ticket::{Admission, Assignment, Serial};
    use proptest::prelude::*;
    use std::time::{Duration, Instant};

    fn up(pools: &Pools, pool: u8, serial: Serial, seats: u32, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        pools.of(PoolIndex(pool)).worker_up(serial, seats, now, &mut assigned);
        assigned
    }

    /// Finishes a slow request, so that no request is handed over in advance.
    fn finish(pools: &Pools, pool: PoolIndex, serial: Serial, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        pools.of(pool).finished(serial, None, Some(Duration::from_millis(50)), now, &mut assigned);
        assigned
    }

    #[test]
    fn each_pool_has_its_own_bound_and_seats() {
        let now = Instant::now();
        let pools = Pools::new([Dispatch::new(2), Dispatch::new(1)]);
        up(&pools, 0, 1, 1, now);
        up(&pools, 1, 2, 3, now);
        let asked = |pool: u8, count: u32| -> Vec<Admission> {
            (0..count)
                .map(|slot| pools.of(PoolIndex(pool)).ask(0, slot, QueueKey::default(), now).1)
                .collect()
        };
        use Admission::{Full, Go, Wait};
        assert_eq!(asked(0, 4), [Go(1), Wait, Wait, Full]);
        assert_eq!(asked(1, 5), [Go(2), Go(2), Go(2), Wait, Full]);
        let assigned = finish(&pools, PoolIndex(1), 2, now);
        assert!(assigned.iter().all(|one| one.ticket.pool == PoolIndex(1)) && assigned.len() == 1);
        assert_eq!(pools.indexes().map(|pool| pools.of(pool).waiting()).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn a_path_chooses_the_pool_with_its_longest_prefix() {
        let pools = Pools::new([Dispatch::new(1), Dispatch::new(1), Dispatch::new(1)]);
        let paths = [vec!["/events".to_owned()], vec!["/events/slow".to_owned(), "/reports".to_owned()]];
        let chosen = |path: &str| pools.choose(path.as_bytes(), paths.iter().map(Vec::as_slice)).0;
        let all = ["/", "/events", "/events/slow", "/reports/1", "/report"].map(chosen);
        assert_eq!(all, [0, 1, 2, 2, 0]);
        let one = Pools::new([Dispatch::new(1)]);
        assert_eq!(one.choose(b"/events", paths.iter().map(Vec::as_slice)), PoolIndex::DEFAULT);
    }

    /// Events in a pool, which has one worker at a time.
    #[derive(Debug, Clone, Copy)]
    enum Happens {
        Asks,
        Finishes,
        Suspended,
        Resumed,
        HeldBack,
        GoesOn,
        Gone,
    }

    /// The seats of the worker of each pool.
    const SEATS: [u32; 3] = [2, 5, 1];

    fn happens() -> impl Strategy<Value = (Happens, u8)> {
        let what = prop_oneof![
            4 => Just(Happens::Asks),
            3 => Just(Happens::Finishes),
            1 => Just(Happens::Suspended),
            1 => Just(Happens::Resumed),
            1 => Just(Happens::HeldBack),
            1 => Just(Happens::GoesOn),
            1 => Just(Happens::Gone),
        ];
        (what, 0..3u8)
    }

    proptest! {
        /// Under any sequence of events, a request gets a seat only in its own pool, no worker holds more
        /// requests than it has seats, requests wait only while their pool has no free seat or holds them back, and none gets a seat then.
        #[test]
        fn no_request_gets_a_seat_of_another_pool(steps in proptest::collection::vec(happens(), 1..300)) {
            let now = Instant::now();
            let pools = Pools::new([Dispatch::new(1000), Dispatch::new(1000).without_prefetching(), Dispatch::new(1000)]);
            let (mut serials, mut suspended, mut held_back, mut next) = ([1, 2, 3], [false; 3], [false; 3], 4);
            for pool in 0..3u8 {
                let serial = serials[usize::from(pool)];
                up(&pools, pool, serial, SEATS[usize::from(pool)], now);
                pools.of(PoolIndex(pool)).ask(0, 0, QueueKey::default(), now);
                finish(&pools, PoolIndex(pool), serial, now);
            }
            for (step, pool) in steps {
                let (mut assigned, at, index) = (Vec::new(), usize::from(pool), PoolIndex(pool));
                match step {
                    Happens::Asks => {
                        let (ticket, admission) = pools.of(index).ask(0, 0, QueueKey::default(), now);
                        prop_assert_eq!(ticket.pool, index);
                        prop_assert!(!matches!(admission, Admission::Go(serial) if serial != serials[at] || held_back[at]));
                    }
                    Happens::Finishes if pools.of(index).taken(serials[at]) == 0 => {}
                    Happens::Finishes => assigned = finish(&pools, index, serials[at], now),
                    Happens::Suspended => {
                        suspended[at] = true;
                        pools.of(index).pass_over(serials[at], PassReason::Suspended);
                    }
                    Happens::Resumed => {
                        suspended[at] = false;
                        pools.of(index).restore(serials[at], PassReason::Suspended, now, &mut assigned);
                    }
                    Happens::HeldBack | Happens::GoesOn => {
                        held_back[at] = matches!(step, Happens::HeldBack);
                        pools.of(index).hold_back(held_back[at]);
                        pools.of(index).resume(now, &mut assigned);
                    }
                    Happens::Gone => {
                        pools.of(index).worker_gone(serials[at]);
                        (serials[at], suspended[at], next) = (next, false, next + 1);
                        assigned = up(&pools, pool, serials[at], SEATS[at], now);
                    }
                }
                prop_assert!(assigned.is_empty() || !held_back[at]);
                prop_assert!(assigned.iter().all(|one| one.serial == serials[at] && one.ticket.pool == index));
                for (at, pool) in pools.indexes().enumerate() {
                    let queue = pools.of(pool);
                    prop_assert!(queue.taken(serials[at]) <= SEATS[at]);
                    prop_assert!(suspended[at] || held_back[at] || queue.waiting() == 0 || queue.taken(serials[at]) == SEATS[at]);
                }
            }
        }
    }
}
