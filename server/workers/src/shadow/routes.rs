//! The findings of a shadow, by route.

use super::rounds::{Difference, Round};
use std::collections::{BTreeMap, BTreeSet};

/// The most parts of a route that are known as noise. Of a route with more nothing is compared.
const MOST_NOISE: usize = 500;
/// The most differences of a route that are kept.
const MOST_FOUND: usize = 50;
/// The examples of a difference.
const EXAMPLES: usize = 2;

/// A difference and where it was seen.
#[derive(Debug, Clone)]
pub(super) struct FoundDifference {
    pub(super) difference: Difference,
    /// The rounds that have shown it.
    pub(super) rounds: u64,
    /// Method and target of requests that show it.
    pub(super) examples: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct ShadowedRoute {
    pub(super) rounds: u64,
    noise: BTreeSet<String>,
    found: BTreeMap<String, FoundDifference>,
    /// Rounds in which the new code failed once and not again.
    pub(super) failed_once: u64,
}

impl ShadowedRoute {
    /// Returns whether nothing more needs to be known of a part: it is noise, or it is known to differ.
    pub(super) fn knows(&self, part: &str) -> bool {
        self.noise.contains(part) || self.found.contains_key(part) || self.noise.len() > MOST_NOISE
    }

    /// Adds a round that is over. `request`: its method and target.
    pub(super) fn add(&mut self, request: &str, round: &Round) {
        self.rounds += 1;
        self.failed_once += u64::from(round.failed_once());
        for part in round.noise() {
            self.found.remove(&part);
            if self.noise.len() <= MOST_NOISE {
                self.noise.insert(part);
            }
        }
        for difference in round.differences() {
            let full = self.found.len() >= MOST_FOUND && !self.found.contains_key(&difference.part);
            if full || self.noise.contains(&difference.part) || self.noise.len() > MOST_NOISE {
                continue;
            }
            let found = self.found.entry(difference.part.clone());
            let found = found.or_insert(FoundDifference { difference, rounds: 0, examples: Vec::new() });
            found.rounds += 1;
            if found.examples.len() < EXAMPLES && !found.examples.iter().any(|one| one == request) {
                found.examples.push(request.to_owned());
            }
        }
    }

    /// Returns the differences. If a key of JSON is lost or new, those inside it are not listed.
    pub(super) fn differences(&self) -> impl Iterator<Item = &FoundDifference> {
        self.found.values().filter(|one| !self.is_inside(&one.difference))
    }

    fn is_inside(&self, one: &Difference) -> bool {
        let ends = one.part.char_indices().filter(|(_, end)| matches!(end, '.' | '['));
        let whole = |other: &FoundDifference| {
            (other.difference.old.is_none() && one.old.is_none())
                || (other.difference.new.is_none() && one.new.is_none())
        };
        ends.filter_map(|(at, _)| self.found.get(&one.part[..at])).any(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::Shape;

    fn round(old: &[&[&str]], new: &[&[&str]]) -> Round {
        let shapes = |all: &[&[&str]]| {
            let shape = |names: &&[&str]| {
                let mut shape = Shape::default();
                names.iter().for_each(|name| shape.put(name, "x"));
                shape
            };
            all.iter().map(shape).collect()
        };
        Round { old: shapes(old), new: shapes(new) }
    }

    fn names(route: &ShadowedRoute) -> Vec<&str> {
        route.differences().map(|one| one.difference.part.as_str()).collect()
    }

    #[test]
    fn noise_is_never_reported_whenever_it_is_learned() {
        let mut route = ShadowedRoute::default();
        let lost = round(&[&["a", "b"], &["a", "b"]], &[&[]]);
        route.add("GET /1", &lost);
        assert_eq!(names(&route), ["a", "b"]);
        route.add("GET /2", &round(&[&["a", "b"], &["b"]], &[&["b"]]));
        assert_eq!(names(&route), ["b"]);
        route.add("GET /3", &lost);
        assert_eq!(names(&route), ["b"]);
    }

    #[test]
    fn a_difference_has_two_examples() {
        let mut route = ShadowedRoute::default();
        let lost = round(&[&["a"], &["a"]], &[&[]]);
        for request in ["GET /1", "GET /1", "GET /2", "GET /3"] {
            route.add(request, &lost);
        }
        let found = route.differences().next().unwrap();
        assert_eq!((found.rounds, found.examples.join(" ")), (4, "GET /1 GET /2".to_owned()));
        assert!(route.knows("a") && !route.knows("b"));
    }

    #[test]
    fn a_lost_object_is_one_difference() {
        let mut route = ShadowedRoute::default();
        let old = ["JSON $", "JSON $.by", "JSON $.by.name", "JSON $.tags", "JSON $.tags[]", "JSON $.b.c"];
        route.add("GET /", &round(&[&old], &[&["JSON $", "JSON $.b"]]));
        assert_eq!(names(&route), ["JSON $.b", "JSON $.b.c", "JSON $.by", "JSON $.tags"]);
    }

    #[test]
    fn a_route_of_noise_is_not_compared() {
        let mut route = ShadowedRoute::default();
        let many: Vec<String> = (0..=MOST_NOISE).map(|at| at.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        route.add("GET /", &round(&[&many, &[]], &[&[]]));
        assert!(route.knows("anything"));
        route.add("GET /", &round(&[&["a"], &["a"]], &[&[]]));
        assert_eq!(names(&route).len(), 0);
    }
}
