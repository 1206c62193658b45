//! Compares the responses of a round: all to copies of one request, of the old worker and of the new one. Pure.

use super::parts::{QUERIES, STATUS, Shape};
use std::collections::BTreeSet;

/// How often a round that shows something new is repeated on both sides.
const REPEATS: usize = 4;
/// How many more queries are none, and how many times more.
const MORE_QUERIES: f64 = 2.0;
const TIMES_QUERIES: f64 = 1.3;

/// The responses of both workers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Round {
    pub(crate) old: Vec<Shape>,
    pub(crate) new: Vec<Shape>,
}

/// A part that all responses of the new code have differently from all of the old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The name of the part.
    pub(crate) part: String,
    /// Its values; `None` where it is missing.
    pub(crate) old: Option<String>,
    pub(crate) new: Option<String>,
}

impl Difference {
    /// Returns whether the new code fails where the old one does not: a status of 500 or more, or no response.
    pub(crate) fn is_failure(&self) -> bool {
        let fails = |status: &Option<String>| {
            status.as_deref().is_none_or(|status| !("100".."500").contains(&status))
        };
        self.part == STATUS && fails(&self.new) && !fails(&self.old)
    }

    /// Returns whether the new code does worse by a figure.
    pub(crate) fn is_worse(&self) -> bool {
        self.is_failure() || self.part == QUERIES
    }
}

impl Round {
    /// Returns whether the round should be repeated on both sides: it shows something that is not `known`.
    pub(crate) fn needs_repeat(&self, known: impl Fn(&str) -> bool) -> bool {
        self.new.len() <= REPEATS && self.differences().iter().any(|one| !known(&one.part))
    }

    /// Returns the parts in which responses of the old code differ from each other.
    pub(crate) fn noise(&self) -> BTreeSet<String> {
        let Some((first, others)) = self.old.split_first() else { return BTreeSet::new() };
        let differing = |other| {
            parts(first, other)
                .into_iter()
                .filter(|part| is_other(part, first, other) || is_other(part, other, first))
        };
        others.iter().flat_map(differing).map(str::to_owned).collect()
    }

    /// Returns the differences, apart from noise. If the status differs, it is the only one.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let (Some(old), Some(new)) = (self.old.first(), self.new.first()) else { return Vec::new() };
        let noise = self.noise();
        let differs =
            |part: &&str| self.new.iter().all(|new| is_other(part, old, new)) && !noise.contains(*part);
        let describe = |part: &str| Difference {
            part: part.to_owned(),
            old: old.get(part).map(str::to_owned),
            new: new.get(part).map(str::to_owned),
        };
        let all: Vec<Difference> = parts(old, new).into_iter().filter(differs).map(describe).collect();
        // Pages of errors have nothing in common with those that they stand for, whatever the other ones are.
        match all.iter().find(|one| one.part == STATUS) {
            Some(status) => vec![status.clone()],
            None if noise.contains(STATUS) => Vec::new(),
            None => all,
        }
    }

    /// Returns whether the new code failed in its first response and did not again, unlike the old code in any.
    pub(crate) fn failed_once(&self) -> bool {
        let failed = |shape: &Shape| shape.get(STATUS).is_none_or(|status| status >= "500");
        let again = self.new.iter().skip(1).any(|shape| !failed(shape));
        self.new.first().is_some_and(failed) && again && !self.old.iter().any(failed)
    }
}

/// Returns the names of all parts of two responses.
fn parts<'a>(one: &'a Shape, other: &'a Shape) -> BTreeSet<&'a str> {
    one.parts().chain(other.parts()).map(|(name, _)| name).collect()
}

/// Returns whether `new` has another value of a part than `old`. Fewer queries are no difference, and hardly more are none.
fn is_other(part: &str, old: &Shape, new: &Shape) -> bool {
    let (old, new) = (old.get(part), new.get(part));
    if part != QUERIES {
        return old != new;
    }
    let number = |value: Option<&str>| value.and_then(|value| value.parse::<f64>().ok());
    match (number(old), number(new)) {
        (Some(old), Some(new)) => new > old * TIMES_QUERIES + MORE_QUERIES,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(parts: &[(&str, &str)]) -> Shape {
        let mut shape = Shape::default();
        parts.iter().for_each(|(name, value)| shape.put(name, value));
        shape
    }

    fn round(old: &[&Shape], new: &[&Shape]) -> Round {
        let all = |shapes: &[&Shape]| shapes.iter().map(|one| (*one).clone()).collect();
        Round { old: all(old), new: all(new) }
    }

    #[test]
    fn what_is_lost_changed_or_new_is_a_difference() {
        let old = shape(&[("status", "200"), ("a", "string"), ("b", "number")]);
        let new = shape(&[("status", "200"), ("b", "string"), ("c", "null")]);
        let found = round(&[&old, &old], &[&new]).differences();
        let names: Vec<_> =
            found.iter().map(|one| (one.part.as_str(), one.old.as_deref(), one.new.as_deref())).collect();
        assert_eq!(
            names,
            [("a", Some("string"), None), ("b", Some("number"), Some("string")), ("c", None, Some("null"))]
        );
    }

    #[test]
    fn another_status_explains_the_rest() {
        let old = shape(&[("status", "200"), ("a", "string")]);
        let failed = shape(&[("status", "500"), ("b", "x")]);
        let found = round(&[&old, &old], &[&failed]).differences();
        assert!(found.len() == 1 && found[0].is_failure(), "{found:?}");
        assert!(!round(&[&failed], &[&old]).differences()[0].is_failure(), "it is mended");
        let flaky = round(&[&old, &old, &old], &[&failed, &old]);
        assert!(flaky.differences().is_empty() && flaky.failed_once());
    }

    #[test]
    fn noise_is_no_difference() {
        let (one, other) = (shape(&[("a", "1"), ("b", "x")]), shape(&[("b", "x")]));
        assert!(round(&[&one, &other], &[&other]).differences().is_empty());
        assert!(round(&[&one, &one, &other], &[&other, &other]).differences().is_empty());
    }

    #[test]
    fn only_more_queries_are_a_difference() {
        let queries = |count: &str| shape(&[("queries", count)]);
        let differs =
            |old: &str, new: &str| !round(&[&queries(old)], &[&queries(new)]).differences().is_empty();
        assert!(differs("3", "43") && differs("0", "3"));
        assert!(!differs("43", "3") && !differs("3", "5") && !differs("10", "15"));
        assert!(round(&[&queries("3"), &queries("40")], &[&queries("43")]).differences().is_empty());
    }

    #[test]
    fn a_round_is_repeated_while_it_shows_something_unknown() {
        let (old, new) = (shape(&[("a", "x")]), shape(&[("a", "y")]));
        let news: Vec<&Shape> = vec![&new; REPEATS + 1];
        assert!(round(&[&old, &old], &news[..1]).needs_repeat(|_| false));
        assert!(!round(&[&old, &old], &news[..1]).needs_repeat(|_| true));
        assert!(!round(&[&old, &old], &news).needs_repeat(|_| false));
    }

    proptest! {
        /// An unchanged app, one part of which is there with any probability, is rarely found different in a round with its repeats.
        #[test]
        fn a_random_part_is_rarely_a_difference(percent in 0u32..=100, seed: u64) {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut one = || if random.u32(..100) < percent { shape(&[("a", "x")]) } else { Shape::default() };
            let mut found = 0;
            for _ in 0..2000 {
                let mut round = Round { old: vec![one(), one()], new: vec![one()] };
                while round.needs_repeat(|_| false) {
                    round.old.push(one());
                    round.new.push(one());
                }
                found += round.differences().len();
            }
            // At most one in 1024, and 6 standard deviations.
            prop_assert!(found <= 10, "{found}");
        }
    }
}
