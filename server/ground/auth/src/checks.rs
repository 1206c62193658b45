//! Schedules slow password checks: [`Checks`].
//!
//! Why: a deliberately slow hash takes a tenth of a second of processor time. A client that sends wrong
//! passwords without end must neither use up the processors nor make other clients wait for all its checks.
//!
//! Contract:
//! 1. The number of concurrent checks is limited, to fewer than the machine has processors.
//! 2. Waiting checks are limited: per connection, per address, and in total. Beyond a limit, the connection
//!    with the most checks loses the one that has waited longest. No check waits longer than [`PATIENCE`].
//! 3. Addresses take turns. Within one address, the connection with the fewest wrong passwords is first; then
//!    connections take turns.
//! 4. A waiter that is dropped leaves the queue.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The most waiting checks: per connection, per address, and in total.
const OF_CONNECTION: usize = 8;
const OF_ADDRESS: usize = 64;
const WAITING: usize = 256;
/// The most concurrent checks, however many processors there are.
const MOST_AT_ONCE: usize = 4;
/// How long a check may wait.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most connections and addresses that are remembered.
const KNOWN: usize = 4096;

/// The client whose password is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PasswordClient {
    address: u64,
    connection: u64,
}

impl PasswordClient {
    /// Creates a client with this address. `connection`: a value that tells its connections apart, such as its port.
    pub fn new(address: &[u8], connection: &[u8]) -> PasswordClient {
        // The same in all threads. A client cannot choose addresses that collide.
        static KEYS: std::sync::LazyLock<RandomState> = std::sync::LazyLock::new(RandomState::new);
        PasswordClient { address: KEYS.hash_one(address), connection: KEYS.hash_one((address, connection)) }
    }
}

/// Why a password is not checked now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooManyChecks {
    /// This connection has too many waiting checks.
    Client,
    /// The server has too many waiting checks.
    Server,
}

/// The queue of a process.
#[derive(Debug)]
pub(crate) struct Checks {
    at_once: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: Vec<Waiter>,
    /// Grows with each check that begins.
    turn: u64,
    /// The last turn of each address and each connection.
    turns: HashMap<u64, u64>,
    /// The number of wrong passwords per connection.
    wrong: HashMap<u64, u32>,
    arrivals: u64,
}

#[derive(Debug)]
struct Waiter {
    client: PasswordClient,
    number: u64,
    since: Instant,
    admit: oneshot::Sender<Result<Turn, TooManyChecks>>,
}

/// The right to compute one check, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Checks>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.admit();
    }
}

/// Leaves the queue when the client disconnects.
struct Place<'a> {
    checks: &'a Checks,
    number: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.checks.state().waiting.retain(|waiter| waiter.number != self.number);
    }
}

impl Checks {
    /// Creates a queue that runs one check fewer at a time than the machine has processors, at least one.
    pub(crate) fn new() -> Arc<Checks> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Checks::with(processors.saturating_sub(1).clamp(1, MOST_AT_ONCE))
    }

    pub(crate) fn with(at_once: usize) -> Arc<Checks> {
        Arc::new(Checks { at_once, state: Mutex::default() })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// Too many checks wait.
    pub(crate) async fn turn(self: &Arc<Checks>, client: PasswordClient) -> Result<Turn, TooManyChecks> {
        let (number, admitted) = self.join(client, Instant::now())?;
        let _place = Place { checks: self, number };
        self.admit();
        admitted.await.unwrap_or(Err(TooManyChecks::Server))
    }

    /// Records the result of a check. `right`: the password matched.
    pub(crate) fn checked(&self, client: PasswordClient, right: bool) {
        let mut state = self.state();
        if right {
            state.wrong.remove(&client.connection);
        } else {
            let wrong = state.wrong.entry(client.connection).or_default();
            *wrong = wrong.saturating_add(1);
        }
    }

    fn join(
        &self,
        client: PasswordClient,
        now: Instant,
    ) -> Result<(u64, oneshot::Receiver<Result<Turn, TooManyChecks>>), TooManyChecks> {
        let mut state = self.state();
        state.forget();
        state.expire(now);
        let same = |waiter: &&Waiter| waiter.client.connection == client.connection;
        if state.waiting.iter().filter(same).count() >= OF_CONNECTION {
            return Err(TooManyChecks::Client);
        }
        let of_address =
            state.waiting.iter().filter(|waiter| waiter.client.address == client.address).count();
        if of_address >= OF_ADDRESS {
            state.displace(|waiter| waiter.client.address == client.address);
        } else if state.waiting.len() >= WAITING {
            state.displace(|_| true);
        }
        let (admit, admitted) = oneshot::channel();
        state.arrivals += 1;
        let number = state.arrivals;
        state.waiting.push(Waiter { client, number, since: now, admit });
        Ok((number, admitted))
    }

    /// Gives out turns while there are any.
    fn admit(self: &Arc<Checks>) {
        loop {
            let (waiter, turn) = {
                let mut state = self.state();
                state.expire(Instant::now());
                if state.running >= self.at_once {
                    return;
                }
                let Some(waiter) = state.next() else { return };
                state.running += 1;
                (waiter, Turn(self.clone()))
            };
            // A client that has gone returns its turn by dropping it.
            let _ = waiter.admit.send(Ok(turn));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the next waiter out of the queue.
    fn next(&mut self) -> Option<Waiter> {
        let last = |key: u64| self.turns.get(&key).copied().unwrap_or_default();
        let rank = |waiter: &Waiter| {
            let PasswordClient { address, connection } = waiter.client;
            let wrong = self.wrong.get(&connection).copied().unwrap_or_default();
            (last(address), wrong, last(connection), waiter.number)
        };
        let place = (0..self.waiting.len()).min_by_key(|&place| rank(&self.waiting[place]))?;
        let waiter = self.waiting.swap_remove(place);
        self.turn += 1;
        self.turns.insert(waiter.client.address, self.turn);
        self.turns.insert(waiter.client.connection, self.turn);
        Some(waiter)
    }

    /// Refuses the oldest check of the connection that has the most, among those that satisfy `is_meant`.
    fn displace(&mut self, is_meant: impl Fn(&Waiter) -> bool) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for waiter in self.waiting.iter().filter(|waiter| is_meant(waiter)) {
            *counts.entry(waiter.client.connection).or_default() += 1;
        }
        let rank = |waiter: &Waiter| {
            let connection = waiter.client.connection;
            let wrong = self.wrong.get(&connection).copied().unwrap_or_default();
            (counts.get(&connection).copied(), wrong, std::cmp::Reverse(waiter.number))
        };
        let meant = (0..self.waiting.len()).filter(|&place| is_meant(&self.waiting[place]));
        if let Some(place) = meant.max_by_key(|&place| rank(&self.waiting[place])) {
            let _ = self.waiting.swap_remove(place).admit.send(Err(TooManyChecks::Client));
        }
    }

    /// Refuses checks that have waited for too long.
    fn expire(&mut self, now: Instant) {
        let is_late = |waiter: &mut Waiter| now.saturating_duration_since(waiter.since) >= PATIENCE;
        for late in self.waiting.extract_if(.., is_late) {
            let _ = late.admit.send(Err(TooManyChecks::Server));
        }
    }

    /// Bounds the memory about clients.
    fn forget(&mut self) {
        if self.wrong.len() > KNOWN {
            self.wrong.clear();
        }
        if self.turns.len() > KNOWN {
            let old = self.turn.saturating_sub(KNOWN as u64 / 4);
            self.turns.retain(|_, turn| *turn > old);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    fn client(address: u8, connection: u8) -> PasswordClient {
        PasswordClient::new(&[address], &[connection])
    }

    type Waiting = Pin<Box<dyn Future<Output = Result<Turn, TooManyChecks>>>>;

    /// Returns waits that have been polled once.
    fn waiting(
        checks: &Arc<Checks>,
        clients: impl IntoIterator<Item = PasswordClient>,
    ) -> Vec<(PasswordClient, Waiting)> {
        let begin = |client| {
            let checks = checks.clone();
            let mut one: Waiting = Box::pin(async move { checks.turn(client).await });
            assert!(one.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            (client, one)
        };
        clients.into_iter().map(begin).collect()
    }

    /// Removes and returns a wait that is ready.
    fn ready(
        all: &mut Vec<(PasswordClient, Waiting)>,
    ) -> Option<(PasswordClient, Result<Turn, TooManyChecks>)> {
        let mut cx = Context::from_waker(Waker::noop());
        for place in 0..all.len() {
            if let Poll::Ready(turn) = all[place].1.as_mut().poll(&mut cx) {
                return Some((all.swap_remove(place).0, turn));
            }
        }
        None
    }

    fn first(checks: &Arc<Checks>, client: PasswordClient) -> Turn {
        let mut turn = pin!(checks.turn(client));
        match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(turn)) => turn,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_new_client_is_next_whatever_the_others_have_waiting() {
        let checks = Checks::with(1);
        let mut running = first(&checks, client(1, 0));
        let floods = (0..8).flat_map(|connection| (0..8).map(move |_| client(1, connection)));
        floods.clone().for_each(|client| checks.checked(client, false));
        let mut all = waiting(&checks, floods);
        // Another address, and another connection of the same one.
        all.extend(waiting(&checks, [client(2, 0)]));
        drop(running);
        let (whose, turn) = ready(&mut all).unwrap();
        assert_eq!(whose, client(2, 0));
        running = turn.unwrap();
        all.extend(waiting(&checks, [client(1, 99)]));
        drop(running);
        // It displaced a check of a connection that had the most.
        let mut order = Vec::new();
        let mut refused = 0;
        while let Some((whose, turn)) = ready(&mut all) {
            match turn {
                Ok(_) => order.push(whose),
                Err(why) => {
                    assert_eq!(why, TooManyChecks::Client);
                    refused += 1;
                }
            }
        }
        assert_eq!((order.len(), refused, order[0]), (64, 1, client(1, 99)));
        let turns: Vec<_> = order[1..9].iter().collect();
        assert!((0..8).all(|connection| turns.contains(&&client(1, connection))), "connections take turns");
    }

    #[test]
    fn what_waits_is_bounded() {
        let checks = Checks::with(1);
        let running = first(&checks, client(0, 0));
        let mut all = waiting(&checks, (0..OF_CONNECTION).map(|_| client(1, 1)));
        let mut more = pin!(checks.turn(client(1, 1)));
        let now = more.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(now, Poll::Ready(Err(TooManyChecks::Client))));
        for address in 2..200 {
            all.extend(waiting(&checks, (0..3).map(|number| client(address, number))));
        }
        assert_eq!(checks.state().waiting.len(), WAITING);
        let counts = checks.state().waiting.iter().filter(|waiter| waiter.client == client(1, 1)).count();
        assert!(counts <= 1, "who has the most loses first");
        all.clear();
        assert_eq!(checks.state().waiting.len(), 0, "clients that leave do not wait");
        drop(running);
        assert_eq!(checks.state().running, 0);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let checks = Checks::with(1);
        let running = first(&checks, client(0, 0));
        let mut all = waiting(&checks, [client(1, 1)]);
        checks.state().expire(Instant::now() + PATIENCE);
        assert!(matches!(ready(&mut all), Some((_, Err(TooManyChecks::Server)))));
        drop(running);
    }
}
