//! The figures of each route: what requests are for, in the words of the app, or by their paths.
//!
//! Why: "is it fast enough, and what does it cost" is a question about each route of an app, not about its server. The front sees every
//! request, and the app's worker tells it the name of the route and what the request has used.
//!
//! Contract:
//! 1. A thread keeps at most as many routes as the setting says, however many paths clients make up: the Space-Saving sketch (Metwally, Agrawal,
//!    El Abbadi 2005). A new route takes the place of the one with the least weight, and begins with its weight; so a route that is asked for often
//!    enough is always kept. Routes that the app has named give way to each other only. Figures of a route that has given way go into `(other)`: sums are exact.
//! 2. A path becomes a route only by a response that shows that the app knows it: see [`Finished::route`].
//! 3. For a known route nothing is allocated, and the cost is a look-up and a few additions.
//! 4. Figures that are measured in samples only are scaled up by the time in the app ([`crate::route_counts::Estimate`]), and never fall.

use crate::finished::{Finished, RouteKind, RouteOf};
use crate::route::{RouteSnapshot, RoutesSnapshot};
use crate::route_counts::RouteCounts;
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use std::time::SystemTime;
use text::route::Buffer;

/// A kept route.
#[derive(Debug, Clone)]
struct Entry {
    name: Box<str>,
    /// The requests, with those of the routes that had its place before; [`NAMED`] more if the app has named it.
    weight: u64,
    counts: Box<RouteCounts>,
}

/// A weight that no count reaches.
const NAMED: u64 = 1 << 60;

/// Requests of a route before this number are examples of it, then each [`EXAMPLE`]th.
const EXAMPLES: u64 = 8;
const EXAMPLE: u64 = 64;

/// The routes of one thread.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    /// The most routes that are kept; 0: nothing is counted.
    limit: usize,
    since: SystemTime,
    entries: Vec<Entry>,
    /// The positions of the entries by their names. Clients can make paths with equal hashes; the table is so small that this costs them more than
    /// the server.
    places: HashMap<Box<str>, usize, FxBuildHasher>,
    kinds: [Box<RouteCounts>; RouteKind::ALL.len()],
}

impl Default for Routes {
    fn default() -> Routes {
        Routes {
            limit: 0,
            since: SystemTime::now(),
            entries: Vec::new(),
            places: HashMap::default(),
            kinds: Default::default(),
        }
    }
}

impl Routes {
    /// Sets the most routes that are kept. Those beyond it go into `(other)`; 0 forgets all figures.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        if limit == 0 {
            self.reset();
        }
        self.limit = limit;
        if self.entries.len() > limit {
            self.entries.sort_by_key(|entry| std::cmp::Reverse(entry.weight));
            for gone in self.entries.split_off(limit) {
                self.kinds[RouteKind::Other as usize].add(&gone.counts);
            }
            self.places =
                self.entries.iter().enumerate().map(|(at, entry)| (entry.name.clone(), at)).collect();
        }
    }

    /// Forgets all figures.
    pub(crate) fn reset(&mut self) {
        *self = Routes { limit: self.limit, ..Routes::default() };
    }

    /// Counts a request. Returns whether it is an example of its route: one of the first, and each [`EXAMPLE`]th.
    #[inline]
    pub(crate) fn finished(&mut self, request: &Finished<'_>) -> bool {
        if self.limit == 0 {
            return false;
        }
        let (is_example, counts) = match request.route {
            RouteOf::Kind(kind) => (false, &mut *self.kinds[kind as usize]),
            RouteOf::Named(name) => self.place(name, NAMED),
            RouteOf::Path { method, path } => {
                let mut buffer = Buffer::default();
                let name = buffer.of_request(method, path);
                if matches!(request.status, 0 | 400 | 404 | 405) && !self.places.contains_key(name) {
                    (false, &mut *self.kinds[RouteKind::NotFound as usize])
                } else {
                    self.place(name, 0)
                }
            }
        };
        counts.record(request);
        is_example
    }

    /// Returns the counts of a route, which may take the place of another one, and whether the request is an example of it. `more`: what its weight
    /// has beyond the requests.
    #[inline]
    fn place(&mut self, name: &str, more: u64) -> (bool, &mut RouteCounts) {
        let known = self.places.get(name).copied();
        let Some(at) = known.or_else(|| self.make_place(name, more)) else {
            return (false, &mut *self.kinds[RouteKind::Other as usize]);
        };
        let entry = &mut self.entries[at];
        entry.weight = (entry.weight + 1) | more;
        let number = entry.weight & !NAMED;
        (number < EXAMPLES || number.is_multiple_of(EXAMPLE), &mut entry.counts)
    }

    /// Returns the place of a new route; `None` for a path where all places are those of names.
    #[cold]
    fn make_place(&mut self, name: &str, more: u64) -> Option<usize> {
        if self.entries.len() < self.limit {
            let at = self.entries.len();
            self.places.insert(name.into(), at);
            self.entries.push(Entry { name: name.into(), weight: 0, counts: Box::default() });
            return Some(at);
        }
        let (at, place) = self.entries.iter_mut().enumerate().min_by_key(|(_, entry)| entry.weight)?;
        if place.weight >= NAMED && more == 0 {
            return None;
        }
        self.kinds[RouteKind::Other as usize].add(&place.counts);
        *place.counts = RouteCounts::default();
        self.places.remove(&place.name);
        self.places.insert(name.into(), at);
        place.name = name.into();
        place.weight &= !NAMED;
        Some(at)
    }
}

/// Adds up the routes of all threads by name, and returns the figures.
pub(crate) fn merged(threads: impl IntoIterator<Item = Routes>) -> RoutesSnapshot {
    let mut named: HashMap<Box<str>, (bool, Box<RouteCounts>)> = HashMap::new();
    let mut kinds: [Box<RouteCounts>; RouteKind::ALL.len()] = Default::default();
    let (mut since, mut limit) = (SystemTime::now(), 0);
    for thread in threads {
        since = since.min(thread.since);
        limit = limit.max(thread.limit);
        for entry in thread.entries {
            let of_app = entry.weight >= NAMED;
            match named.entry(entry.name) {
                std::collections::hash_map::Entry::Occupied(mut known) => {
                    let (named, counts) = known.get_mut();
                    *named |= of_app;
                    counts.add(&entry.counts);
                }
                std::collections::hash_map::Entry::Vacant(free) => drop(free.insert((of_app, entry.counts))),
            }
        }
        kinds.iter_mut().zip(&thread.kinds).for_each(|(sum, one)| sum.add(one));
    }
    let mut rows: Vec<(Box<str>, bool, Box<RouteCounts>)> =
        named.into_iter().map(|(name, (of_app, counts))| (name, of_app, counts)).collect();
    rows.sort_by(|one, two| {
        let key = |row: &(Box<str>, bool, Box<RouteCounts>)| (row.1, row.2.requests);
        key(two).cmp(&key(one)).then_with(|| one.0.cmp(&two.0))
    });
    // Each thread may have kept others of the rare routes.
    if rows.len() > limit {
        for (.., counts) in rows.split_off(limit) {
            kinds[RouteKind::Other as usize].add(&counts);
        }
    }
    let busy_us: u64 =
        rows.iter().map(|(.., counts)| counts).chain(&kinds).map(|counts| counts.app.sum_us()).sum();
    let fixed = RouteKind::ALL.into_iter().zip(kinds).filter(|(_, counts)| counts.requests > 0);
    let routes = rows.iter().map(|(name, of_app, counts)| RouteSnapshot::new(name, *of_app, counts, busy_us));
    let routes =
        routes.chain(fixed.map(|(kind, counts)| RouteSnapshot::new(kind.name(), false, &counts, busy_us)));
    RoutesSnapshot {
        since,
        taken_at: SystemTime::now(),
        limit: limit as u64,
        routes: routes.collect(),
        advice: None,
    }
}

#[cfg(test)]
mod tests;
