//! The pools of a server, each with its queue.
//!
//! Contract: every request belongs to one pool for its whole life, chosen by its path. The lock of a pool is
//! held for a few instructions only, and never two locks at a time.

use crate::availability::Reason;
use crate::dispatch::Dispatch;
use crate::paths;
use crate::tally::Tally;
use crate::ticket::{Assignment, PoolIndex, Serial};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

#[derive(Debug)]
pub struct Pools(Box<[Mutex<Dispatch>]>);

impl Pools {
    /// Creates pools with these queues. The first is that of [`PoolIndex::DEFAULT`].
    pub fn new(queues: impl IntoIterator<Item = Dispatch>) -> Pools {
        let numbered = (0..).zip(queues);
        Pools(numbered.map(|(index, queue)| Mutex::new(queue.of_pool(PoolIndex(index)))).collect())
    }

    /// Returns the pool for a request with this path, which is the app's PATH_INFO: the first that has it among
    /// its `paths`, otherwise the default. `paths` begins with those of the second pool; the default has none.
    #[inline]
    pub fn choose<'a>(&self, path: &[u8], paths: impl IntoIterator<Item = &'a [String]>) -> PoolIndex {
        let others = self.indexes().skip(1).zip(paths);
        others
            .into_iter()
            .find(|(_, its)| paths::include(its, path))
            .map_or(PoolIndex::DEFAULT, |(pool, _)| pool)
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

    /// Calls `of` for each queue, one after the other, and returns the results.
    pub fn each<R>(&self, mut of: impl FnMut(&mut Dispatch) -> R) -> impl Iterator<Item = R> {
        self.indexes().map(move |pool| of(&mut self.of(pool)))
    }

    /// Passes a worker over in every pool; see [`Dispatch::pass_over`].
    pub fn pass_over(&self, serial: Serial, reason: Reason) {
        self.each(|queue| queue.pass_over(serial, reason)).for_each(drop);
    }

    /// Undoes [`Pools::pass_over`]. Returns the requests that get a seat.
    pub fn restore(&self, serial: Serial, reason: Reason, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        self.each(|queue| queue.restore(serial, reason, now, &mut assigned)).for_each(drop);
        assigned
    }

    /// Passes a worker over while it rests, if the others can do without its seats in every pool
    /// ([`Dispatch::rest`]).
    ///
    /// # Errors
    /// If they cannot: the requests that get a seat because some pools had passed it over already.
    pub fn rest(&self, serial: Serial, now: Instant) -> Result<(), Vec<Assignment>> {
        let mut assigned = Vec::new();
        let rests = self.each(|queue| queue.rest(serial)).take_while(|rests| *rests).count();
        if rests == self.0.len() {
            return Ok(());
        }
        for pool in self.indexes().take(rests) {
            self.of(pool).restore(serial, Reason::Resting, now, &mut assigned);
        }
        Err(assigned)
    }

    /// Removes a worker from every pool.
    pub fn worker_gone(&self, serial: Serial) {
        self.each(|queue| queue.worker_gone(serial)).for_each(drop);
    }

    /// Returns the totals of each worker over all of its seats.
    pub fn tallies(&self) -> BTreeMap<Serial, Tally> {
        let mut all: BTreeMap<Serial, Tally> = BTreeMap::new();
        for (serial, tally) in self.each(|queue| queue.tallies().collect::<Vec<_>>()).flatten() {
            let sum = all.entry(serial).or_default();
            *sum = [*sum, tally].into_iter().sum();
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Admission;
    use proptest::prelude::*;
    use std::time::Duration;

    fn up(pools: &Pools, serial: Serial, seats: &[u32], now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        for (pool, &seats) in pools.indexes().zip(seats) {
            pools.of(pool).worker_up(serial, seats, now, &mut assigned);
        }
        assigned
    }

    /// Ends a request that was slow, so that nothing is handed over in advance.
    fn finish(pools: &Pools, pool: PoolIndex, serial: Serial, now: Instant) -> Vec<Assignment> {
        let mut assigned = Vec::new();
        pools.of(pool).finished(serial, Some(Duration::from_millis(50)), now, &mut assigned);
        assigned
    }

    #[test]
    fn each_pool_has_its_own_bound_and_seats() {
        let now = Instant::now();
        let pools = Pools::new([Dispatch::new(2), Dispatch::new(1)]);
        up(&pools, 1, &[1, 3], now);
        let asked = |pool: u8, count: u32| -> Vec<Admission> {
            (0..count).map(|slot| pools.of(PoolIndex(pool)).ask(0, slot, now).1).collect()
        };
        use Admission::{Full, Go, Wait};
        assert_eq!(asked(0, 4), [Go(1), Wait, Wait, Full]);
        assert_eq!(asked(1, 5), [Go(1), Go(1), Go(1), Wait, Full]);
        let assigned = finish(&pools, PoolIndex(1), 1, now);
        assert!(assigned.iter().all(|one| one.ticket.pool == PoolIndex(1)) && assigned.len() == 1);
        assert_eq!(pools.each(|queue| queue.waiting()).collect::<Vec<_>>(), [2, 0]);
    }

    #[test]
    fn a_path_chooses_the_first_pool_that_has_it() {
        let pools = Pools::new([Dispatch::new(1), Dispatch::new(1), Dispatch::new(1)]);
        let paths = [vec!["/events".to_owned()], vec!["/events/slow".to_owned(), "/reports".to_owned()]];
        let chosen = |path: &str| pools.choose(path.as_bytes(), paths.iter().map(Vec::as_slice)).0;
        let all = ["/", "/events", "/events/slow", "/reports/1", "/report"].map(chosen);
        assert_eq!(all, [0, 1, 1, 2, 0]);
        let one = Pools::new([Dispatch::new(1)]);
        assert_eq!(one.choose(b"/events", paths.iter().map(Vec::as_slice)), PoolIndex::DEFAULT);
    }

    #[test]
    fn a_worker_rests_in_all_pools_or_in_none() {
        let now = Instant::now();
        let pools = Pools::new([Dispatch::new(1), Dispatch::new(1)]);
        up(&pools, 1, &[2, 2], now);
        up(&pools, 2, &[2, 1], now);
        assert_eq!(pools.rest(1, now), Err(Vec::new()), "the second pool needs it");
        assert_eq!(
            pools.of(PoolIndex(0)).ask(0, 0, now).1,
            Admission::Go(1),
            "it does not rest in the first"
        );
        assert_eq!(pools.rest(2, now), Err(Vec::new()), "the first pool needs it now");
        finish(&pools, PoolIndex(0), 1, now);
        assert_eq!(pools.rest(2, now), Ok(()));
    }

    /// Events of a worker, in some pool or in all.
    #[derive(Debug, Clone)]
    enum Happens {
        Asks(u8),
        Finishes(u8),
        Suspended,
        Resumed,
        Gone,
    }

    /// The seats of a worker in each pool.
    const SEATS: [u32; 3] = [2, 5, 1];

    fn happens() -> impl Strategy<Value = Happens> {
        prop_oneof![
            4 => (0..3u8).prop_map(Happens::Asks),
            3 => (0..3u8).prop_map(Happens::Finishes),
            1 => Just(Happens::Suspended),
            1 => Just(Happens::Resumed),
            1 => Just(Happens::Gone),
        ]
    }

    proptest! {
        /// Under any sequence of events, a request gets a seat of its own pool or none, no worker holds more
        /// requests of a pool than it has seats there, and requests of a pool wait only while it has no free
        /// seat.
        #[test]
        fn no_request_gets_a_seat_of_another_pool(steps in proptest::collection::vec(happens(), 1..300)) {
            let now = Instant::now();
            let pools = Pools::new([Dispatch::new(1000), Dispatch::new(1000).without_prefetching(), Dispatch::new(1000)]);
            let (mut serial, mut suspended) = (1, false);
            up(&pools, serial, &SEATS, now);
            for pool in pools.indexes() {
                pools.of(pool).ask(0, 0, now);
                finish(&pools, pool, serial, now);
            }
            for step in steps {
                let mut assigned = Vec::new();
                match step {
                    Happens::Asks(pool) => {
                        let (ticket, _) = pools.of(PoolIndex(pool)).ask(0, 0, now);
                        prop_assert_eq!(ticket.pool, PoolIndex(pool));
                    }
                    Happens::Finishes(pool) => {
                        let pool = PoolIndex(pool);
                        if pools.of(pool).taken(serial) > 0 {
                            assigned = finish(&pools, pool, serial, now);
                            prop_assert!(assigned.iter().all(|one| one.ticket.pool == pool));
                        }
                    }
                    Happens::Suspended => {
                        suspended = true;
                        pools.pass_over(serial, Reason::Suspended);
                    }
                    Happens::Resumed => {
                        suspended = false;
                        assigned = pools.restore(serial, Reason::Suspended, now);
                    }
                    Happens::Gone => {
                        pools.worker_gone(serial);
                        (serial, suspended) = (serial + 1, false);
                        assigned = up(&pools, serial, &SEATS, now);
                    }
                }
                prop_assert!(assigned.iter().all(|one| one.serial == serial));
                for (pool, seats) in pools.indexes().zip(SEATS) {
                    let queue = pools.of(pool);
                    prop_assert!(queue.taken(serial) <= seats);
                    prop_assert!(suspended || queue.waiting() == 0 || queue.taken(serial) == seats);
                }
            }
        }
    }
}
