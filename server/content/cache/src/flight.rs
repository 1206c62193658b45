//! Collapses equal requests: one goes to the origin, and the others wait for its response.
//!
//! Contract:
//! 1. There is at most one leader for each key. It ends its flight by [`Leader::end`], or by being dropped.
//! 2. Each waiting request gets the outcome of the flight. After [`Outcome::Kept`] the response is in the
//!    store; after [`Outcome::Failed`] the stale response may be sent; after [`Outcome::Alone`] each request
//!    goes to the origin itself; after [`Outcome::Abandoned`] the next waiting request leads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// How a flight has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Kept,
    Failed,
    Alone,
    Abandoned,
}

/// The outcome of a flight, for the clients that wait for it.
type Flight = watch::Sender<Option<Outcome>>;

/// The running requests by key.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    running: Mutex<HashMap<Box<[u8]>, Flight>>,
}

/// The part of a request in a flight.
pub(crate) enum Part {
    Lead(Leader),
    /// Resolves to the outcome.
    Wait(watch::Receiver<Option<Outcome>>),
}

/// The request that goes to the origin.
#[derive(Debug)]
pub(crate) struct Leader {
    flights: Arc<Flights>,
    key: Box<[u8]>,
    flight: Flight,
    outcome: Outcome,
}

impl Flights {
    /// Joins the flight of `key`, or begins it.
    pub(crate) fn join(self: &Arc<Flights>, key: &[u8]) -> Part {
        let mut running = self.running();
        if let Some(flight) = running.get(key) {
            return Part::Wait(flight.subscribe());
        }
        Part::Lead(self.begin(&mut running, key))
    }

    /// Begins a flight unless there is one.
    pub(crate) fn lead(self: &Arc<Flights>, key: &[u8]) -> Option<Leader> {
        let mut running = self.running();
        (!running.contains_key(key)).then(|| self.begin(&mut running, key))
    }

    fn begin(self: &Arc<Flights>, running: &mut HashMap<Box<[u8]>, Flight>, key: &[u8]) -> Leader {
        let flight = Flight::new(None);
        running.insert(key.into(), flight.clone());
        Leader { flights: self.clone(), key: key.into(), flight, outcome: Outcome::Abandoned }
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<Box<[u8]>, Flight>> {
        // No code panics while it holds the lock.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader {
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.flights.running().remove(&self.key);
        self.flight.send_replace(Some(self.outcome));
    }
}

/// Waits for the outcome of a flight.
pub(crate) async fn outcome(mut receiver: watch::Receiver<Option<Outcome>>) -> Outcome {
    let ended = receiver.wait_for(Option::is_some).await;
    ended.ok().and_then(|outcome| *outcome).unwrap_or(Outcome::Abandoned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(part: Part) -> watch::Receiver<Option<Outcome>> {
        match part {
            Part::Wait(receiver) => receiver,
            Part::Lead(_) => panic!("it leads"),
        }
    }

    #[test]
    fn one_leads_and_the_others_learn_the_outcome() {
        let flights = Arc::new(Flights::default());
        let leader = flights.lead(b"a").unwrap();
        assert!(flights.lead(b"a").is_none() && flights.lead(b"b").is_some());
        let waiting = wait(flights.join(b"a"));
        assert_eq!(*waiting.borrow(), None);
        leader.end(Outcome::Kept);
        assert_eq!(*waiting.borrow(), Some(Outcome::Kept));
        let next = flights.lead(b"a").unwrap();
        let waiting = wait(flights.join(b"a"));
        drop(next);
        assert_eq!(*waiting.borrow(), Some(Outcome::Abandoned));
    }
}
