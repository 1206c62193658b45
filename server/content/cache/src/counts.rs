//! Counts of the cache, for statistics.

use crate::key;
use crate::storable::Refusal;
use handler::Trace;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use text::route::Buffer;

/// How a request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// From the store, fresh.
    Hit,
    /// From the store, stale.
    Stale,
    /// From the store, after the origin has confirmed it.
    Validated,
    /// From the store, after waiting for an equal request.
    Collapsed,
    /// By the origin.
    Miss,
}

/// The number of [`Answer`]s.
const ANSWERS: usize = 5;

/// The most routes that are counted separately; further ones are counted together.
const MOST_ROUTES: usize = 256;

/// The counts of all threads. They only grow.
#[derive(Debug, Default)]
pub struct Counts {
    answers: [AtomicU64; ANSWERS],
    stored: AtomicU64,
    purged: AtomicU64,
    invalidated: AtomicU64,
    renewed: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    routes: Mutex<HashMap<Box<str>, Arc<RouteCounts>>>,
}

/// The counts of a route. A kept response has a reference to them, so that a hit needs no search.
#[derive(Debug, Default)]
pub(crate) struct RouteCounts {
    hits: AtomicU64,
    misses: AtomicU64,
    /// The last reason for not keeping a response: its number plus one; 0 for none.
    refused: AtomicU8,
    /// The app's name for it; unset if it has given none.
    name: OnceLock<Arc<str>>,
}

impl RouteCounts {
    fn refused(&self) -> Option<&'static str> {
        let number = usize::from(self.refused.load(Ordering::Relaxed));
        Refusal::ALL.get(number.checked_sub(1)?).map(|why| why.name())
    }
}

/// The counts of the paths that differ only in ids.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteCount {
    /// The path, with `:id` for numbers and the like.
    pub route: String,
    /// Requests that were answered without the origin, or after it had confirmed the kept response.
    pub hits: u64,
    /// Requests that the origin answered.
    pub misses: u64,
    /// The last reason for not keeping a response.
    pub refused: Option<&'static str>,
}

impl Counts {
    /// Counts a response sent from the cache, and tells the exchange its route. `known`: the kept response's
    /// reference to the counts of its route.
    #[inline]
    pub(crate) fn sent(&self, answer: Answer, key: &[u8], known: &OnceLock<Arc<RouteCounts>>, trace: &Trace) {
        self.answers[answer as usize].fetch_add(1, Ordering::Relaxed);
        let route = known.get_or_init(|| self.route(key));
        route.hits.fetch_add(1, Ordering::Relaxed);
        trace.was_kept(route.name.get().cloned());
    }

    /// Counts a response of the origin, and the reason for which it is not kept. `name`: the app's name for the route.
    pub(crate) fn missed(&self, key: &[u8], refused: Option<Refusal>, name: Option<Arc<str>>) {
        self.answers[Answer::Miss as usize].fetch_add(1, Ordering::Relaxed);
        let route = self.route(key);
        route.misses.fetch_add(1, Ordering::Relaxed);
        if let Some(name) = name {
            // The first name stays.
            route.name.get_or_init(|| name);
        }
        if let Some(why) = refused {
            route.refused.store(why as u8 + 1, Ordering::Relaxed);
        }
    }

    fn route(&self, key: &[u8]) -> Arc<RouteCounts> {
        let mut buffer = Buffer::default();
        let route = buffer.of_path(key::path(key));
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let full = routes.len() >= MOST_ROUTES;
        match routes.get(route) {
            Some(count) => count.clone(),
            None => routes.entry(if full { "others".into() } else { route.into() }).or_default().clone(),
        }
    }

    pub(crate) fn refused(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stored(&self) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn purged(&self, count: u64) {
        self.purged.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn invalidated(&self, count: u64) {
        self.invalidated.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn renewed(&self) {
        self.renewed.fetch_add(1, Ordering::Relaxed);
    }

    fn answer(&self, answer: Answer) -> u64 {
        self.answers[answer as usize].load(Ordering::Relaxed)
    }

    /// Requests that were answered from the store, fresh.
    pub fn hits(&self) -> u64 {
        self.answer(Answer::Hit)
    }

    /// Requests that got a stale response.
    pub fn stale(&self) -> u64 {
        self.answer(Answer::Stale)
    }

    /// Requests whose kept response the origin has confirmed with a 304.
    pub fn validated(&self) -> u64 {
        self.answer(Answer::Validated)
    }

    /// Requests that waited for an equal request and got its response.
    pub fn collapsed(&self) -> u64 {
        self.answer(Answer::Collapsed)
    }

    /// Requests that the origin answered.
    pub fn misses(&self) -> u64 {
        self.answer(Answer::Miss)
    }

    /// Responses that were kept, renewals included.
    pub fn kept(&self) -> u64 {
        self.stored.load(Ordering::Relaxed)
    }

    /// Resources that were purged.
    pub fn purges(&self) -> u64 {
        self.purged.load(Ordering::Relaxed)
    }

    /// Resources that a request with an unsafe method has invalidated.
    pub fn invalidations(&self) -> u64 {
        self.invalidated.load(Ordering::Relaxed)
    }

    /// Responses that were renewed while a stale one was sent.
    pub fn renewals(&self) -> u64 {
        self.renewed.load(Ordering::Relaxed)
    }

    /// Returns the numbers of responses that were not kept, by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |why: &Refusal| self.refused[*why as usize].load(Ordering::Relaxed);
        Refusal::ALL.iter().map(move |why| (why.name(), count(why)))
    }

    /// Returns the last reason for not keeping a response of the key's route.
    pub fn last_refusal(&self, key: &[u8]) -> Option<&'static str> {
        let mut buffer = Buffer::default();
        let route = buffer.of_path(key::path(key));
        self.routes.lock().unwrap_or_else(PoisonError::into_inner).get(route)?.refused()
    }

    /// Returns the counts by route, the busiest first.
    pub fn routes(&self) -> Vec<RouteCount> {
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<RouteCount> = routes
            .iter()
            .map(|(route, count)| RouteCount {
                route: route.to_string(),
                hits: count.hits.load(Ordering::Relaxed),
                misses: count.misses.load(Ordering::Relaxed),
                refused: count.refused(),
            })
            .collect();
        all.sort_by_key(|count| (std::cmp::Reverse(count.hits + count.misses), count.route.clone()));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_routes_is_bounded() {
        let counts = Counts::default();
        for number in 0..1000 {
            counts.missed(format!("http://a/page-{number}").as_bytes(), Some(Refusal::Private), None);
        }
        let routes = counts.routes();
        assert!(routes.len() <= MOST_ROUTES + 1 && routes[0].route == "others");
        assert_eq!(routes.iter().map(|route| route.misses).sum::<u64>(), 1000);
        assert_eq!((counts.misses(), routes[0].refused), (1000, Some("private")));
    }
}
