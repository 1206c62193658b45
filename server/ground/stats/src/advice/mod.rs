//! Advice: what the figures of the routes say should be changed, in a sentence each, the best first.
//!
//! Why: figures tell what takes time, and not what to do. These rules know the cases in which both follow from the same figure.
//!
//! Contract:
//! 1. A rule speaks only of a figure that is over its threshold, and from [`ENOUGH`] requests on. A finding that would save less than [`LEAST`] of the
//!    time of requests is left out. An app without these faults gets no advice.
//! 2. `saves` is at most what the figure supports: the time that was measured in what would go away, as a part of all the time of requests.
//! 3. Findings are sorted by it; at most [`MOST`] are returned. Nothing here reads a clock or a file.

mod rules;

use crate::finding::Finding;
use crate::route::{RouteSnapshot, RoutesSnapshot};
use crate::server::ServerSnapshot;

/// The fewest requests from which anything follows.
pub const ENOUGH: u64 = 50;
/// The least part of the time of requests that is worth a sentence.
const LEAST: f64 = 0.01;
/// The most findings.
const MOST: usize = 10;

/// The figures that the rules look at.
struct Evidence<'a> {
    server: &'a ServerSnapshot,
    /// Routes of the app.
    routes: Vec<&'a RouteSnapshot>,
    seconds: f64,
    /// The time in the app of all routes together, in milliseconds.
    busy_ms: f64,
    /// The same with the time in the queue.
    time_ms: f64,
}

impl Evidence<'_> {
    /// Returns a finding that would save so many milliseconds in the app.
    fn finding(&self, rule: &str, route: Option<&RouteSnapshot>, text: String, saves_ms: f64) -> Finding {
        let (rule, route) = (rule.to_owned(), route.map(|route| route.route.clone()));
        let saves_ms = saves_ms.clamp(0.0, self.busy_ms);
        Finding { rule, route, text, saves: saves_ms / self.time_ms, frees: saves_ms / self.busy_ms }
    }
}

/// Returns what the figures say should be changed, the best first.
pub fn advise(routes: &RoutesSnapshot, server: &ServerSnapshot) -> Vec<Finding> {
    let routes_of_app: Vec<&RouteSnapshot> =
        routes.routes.iter().filter(|route| route.app_ms.count > 0).collect();
    let busy_ms: f64 = routes_of_app.iter().map(|route| route.app_sum_ms).sum();
    let time_ms = busy_ms + routes_of_app.iter().map(|route| route.queue_ms.sum).sum::<f64>();
    if busy_ms <= 0.0 {
        return Vec::new();
    }
    let evidence = Evidence { server, routes: routes_of_app, seconds: routes.seconds(), busy_ms, time_ms };
    let mut found: Vec<Finding> = rules::ALL.iter().flat_map(|rule| rule(&evidence)).collect();
    found.retain(|finding| finding.saves >= LEAST);
    // A route that takes long for a reason that is known needs that mended, and no pool.
    let named: Vec<String> =
        found.iter().filter(|one| one.rule != rules::POOL).filter_map(|one| one.route.clone()).collect();
    found.retain(|one| {
        one.rule != rules::POOL || !one.route.as_ref().is_some_and(|name| named.contains(name))
    });
    found.sort_by(|one, two| two.saves.total_cmp(&one.saves).then_with(|| one.text.cmp(&two.text)));
    found.truncate(MOST);
    found
}

#[cfg(test)]
mod tests;
