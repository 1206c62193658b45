//! The state of a shadow that all front threads and the supervisor share.

use super::copy::RequestCopy;
use super::lane::{Lane, PoolLoad};
use super::report;
use super::rounds::Round;
use super::routes::ShadowedRoute;
use crate::trial::{ReleaseComparison, TrialSample};
use queue::Serial;
use stats::{ShadowReport, UncomparedRoute};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The most routes that are compared, and the most folded paths that are counted.
const MOST_ROUTES: usize = 200;
/// Rounds of a path until others come first.
const OFTEN: u64 = 8;
/// The requests of a route whose figures say nothing, because caches are cold.
const WARMING: u64 = 8;

/// The two workers that get copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) old: Serial,
    pub(crate) new: Serial,
    /// Distinguishes this shadow from those before.
    pub(crate) number: u64,
}

#[derive(Debug)]
pub(crate) struct Shadow {
    /// When the lane is free, in microseconds since `created`; `u64::MAX` while it is taken, and without a shadow.
    free_from: AtomicU64,
    created: Instant,
    state: Mutex<State>,
    comparison: ReleaseComparison,
}

#[derive(Debug, Default)]
struct State {
    number: u64,
    running: Option<Running>,
    last: Option<ShadowReport>,
}

#[derive(Debug)]
struct Running {
    pair: Pair,
    lane: Lane,
    paths: BTreeMap<String, Visits>,
    routes: BTreeMap<Arc<str>, ShadowedRoute>,
    requests: u64,
    probes: Vec<String>,
}

/// The rounds of a folded path.
#[derive(Debug, Default)]
struct Visits {
    rounds: u64,
    left_out: Option<&'static str>,
}

/// A round that is over.
pub(crate) struct FinishedRound {
    pub(crate) route: Arc<str>,
    /// Method and target.
    pub(crate) request: String,
    pub(crate) round: Round,
    /// The figures of the old and the new worker in the first pair of copies.
    pub(crate) samples: Option<[TrialSample; 2]>,
    /// Whether the server has made it up.
    pub(crate) own: bool,
}

impl Default for Shadow {
    fn default() -> Shadow {
        Shadow {
            free_from: AtomicU64::new(u64::MAX),
            created: Instant::now(),
            state: Mutex::default(),
            comparison: ReleaseComparison::of_copies(WARMING),
        }
    }
}

impl Shadow {
    /// Starts a shadow, whose lane is taken.
    pub(crate) fn begin(&self, old: Serial, new: Serial) -> Pair {
        let mut state = self.state();
        state.number += 1;
        let pair = Pair { old, new, number: state.number };
        let (paths, routes) = (BTreeMap::new(), BTreeMap::new());
        let lane = Lane::taken(Instant::now());
        state.running = Some(Running { pair, lane, paths, routes, requests: 0, probes: Vec::new() });
        state.last = None;
        self.comparison.begin(new);
        pair
    }

    /// Ends the shadow, and forgets what it has collected, apart from its report.
    pub(crate) fn end(&self) {
        if self.state().running.take().is_some() {
            self.free_from.store(u64::MAX, Relaxed);
            self.comparison.end();
        }
    }

    /// Returns whether a shadow runs that may copy a request now.
    #[inline]
    pub(crate) fn may_copy(&self) -> bool {
        let from = self.free_from.load(Relaxed);
        from != u64::MAX && self.created.elapsed().as_micros() as u64 >= from
    }

    /// Takes the lane for a copy of this request, if there is room for one and this path is not left out.
    pub(crate) fn take(&self, request: &RequestCopy, load: PoolLoad, now: Instant) -> Option<Pair> {
        let mut state = self.state();
        let running = state.running.as_mut()?;
        let path = request.folded();
        let visits = running.paths.get(&path);
        if visits.is_some_and(|visits| visits.left_out.is_some() || !is_turn(visits.rounds)) {
            return None;
        }
        let pair = running.lane.take(load, now).then_some(running.pair)?;
        self.free_from.store(u64::MAX, Relaxed);
        Some(pair)
    }

    /// Frees the lane after a round that took this long.
    pub(crate) fn free(&self, pair: Pair, took: Duration) {
        if let Some(running) = self.state().of(pair) {
            let from = running.lane.free(took, Instant::now()).saturating_duration_since(self.created);
            self.free_from.store(from.as_micros() as u64, Relaxed);
        }
    }

    /// Counts a round of a path. Returns how many there were before.
    pub(crate) fn visit(&self, pair: Pair, path: &str) -> u64 {
        self.state().of(pair).map_or(0, |running| {
            let Some(visits) = running.visits(path) else { return 0 };
            visits.rounds += 1;
            visits.rounds - 1
        })
    }

    /// Leaves a path out from now on, for this reason.
    pub(crate) fn leave_out(&self, pair: Pair, path: &str, why: &'static str) {
        if let Some(visits) = self.state().of(pair).and_then(|running| running.visits(path)) {
            visits.left_out.get_or_insert(why);
        }
    }

    /// Returns whether a round of this route should be repeated on both sides.
    pub(crate) fn needs_repeat(&self, pair: Pair, route: &str, round: &Round) -> bool {
        self.state().of(pair).is_some_and(|running| {
            let known = running.routes.get(route);
            round.needs_repeat(|part| known.is_some_and(|route| route.knows(part)))
        })
    }

    /// Adds a round.
    pub(crate) fn add(&self, pair: Pair, finished: FinishedRound) {
        let FinishedRound { route, request, round, samples, own } = finished;
        let mut state = self.state();
        let Some(running) = state.of(pair) else { return };
        if own {
            running.probes.push(request.clone());
        } else {
            running.requests += 1;
        }
        if running.routes.len() < MOST_ROUTES || running.routes.contains_key(&route) {
            running.routes.entry(route).or_default().add(&request, &round);
        }
        if let Some([old, new]) = samples {
            self.comparison.add_pair(&old, &new);
        }
    }

    /// Returns the verdict, once there is one: what has been compared, or the reason to revert. `over`: the time is over. `undoes`:
    /// whether each difference is a reason. `memory`: the reason that their memory gives.
    pub(crate) fn verdict(
        &self,
        over: bool,
        undoes: bool,
        memory: impl FnOnce() -> Result<(), String>,
    ) -> Option<Result<String, String>> {
        let mut state = self.state();
        let running = state.running.as_ref()?;
        let mut report = running.report();
        let worse = report.differences.iter().any(|one| one.worse);
        let against = match worse {
            true => None,
            false => self.comparison.against().or_else(|| if over { memory().err() } else { None }),
        };
        if !over && !worse && against.is_none() {
            return None;
        }
        let once = running.routes.iter().filter(|(_, route)| route.failed_once > 0);
        let once: Vec<(&str, u64)> = once.map(|(name, route)| (&**name, route.failed_once)).collect();
        let figures = self.comparison.summary();
        let text = report::text(&report, &once, figures.as_deref());
        let undone = worse || (undoes && !report.differences.is_empty());
        let verdict = match against {
            Some(why) => Err(format!("{why}; no client has met it\n{text}")),
            None if undone => {
                Err(format!("the new code responds differently, and no client has met it\n{text}"))
            }
            None => Ok(text.clone()),
        };
        report.text = verdict.clone().unwrap_or_else(|why| why);
        state.last = Some(report);
        Some(verdict)
    }

    /// Returns the comparison of the copies' figures, until [`Shadow::end`].
    pub(crate) fn comparison(&self) -> &ReleaseComparison {
        &self.comparison
    }

    /// Returns what the last shadow has found, as soon as it is over.
    pub(crate) fn last(&self) -> Option<ShadowReport> {
        self.state().last.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn of(&mut self, pair: Pair) -> Option<&mut Running> {
        self.running.as_mut().filter(|running| running.pair == pair)
    }
}

impl Running {
    fn visits(&mut self, path: &str) -> Option<&mut Visits> {
        let known = self.paths.len() < MOST_ROUTES || self.paths.contains_key(path);
        known.then(|| self.paths.entry(path.to_owned()).or_default())
    }

    fn report(&self) -> ShadowReport {
        let left_out = self.paths.iter().filter_map(|(path, visits)| {
            Some(UncomparedRoute { route: path.clone(), why: visits.left_out?.to_owned() })
        });
        ShadowReport {
            at: SystemTime::now(),
            text: String::new(),
            requests: self.requests,
            probes: self.probes.clone(),
            routes: self.routes.len() as u64,
            differences: report::differences(&self.routes),
            left_out: left_out.collect(),
        }
    }
}

/// Returns whether a path that has had so many rounds may have one now: rare paths come first, but frequent ones go on.
fn is_turn(rounds: u64) -> bool {
    rounds < OFTEN || fastrand::u64(..rounds / OFTEN + 1) == 0 || fastrand::u8(..4) == 0
}

#[cfg(test)]
mod tests {
    use super::super::parts::Shape;
    use super::*;

    const FREE: PoolLoad = PoolLoad { waiting: 0, busy: 0, seats: 4, processors: 4 };

    fn shape(parts: &[(&str, &str)]) -> Shape {
        let mut shape = Shape::default();
        parts.iter().for_each(|(name, value)| shape.put(name, value));
        shape
    }

    fn round(old: &[(&str, &str)], new: &[(&str, &str)]) -> Round {
        Round { old: vec![shape(old), shape(old)], new: vec![shape(new)] }
    }

    fn finished(route: &str, round: Round, own: bool) -> FinishedRound {
        FinishedRound { route: route.into(), request: format!("GET /{route}/1"), round, samples: None, own }
    }

    fn fine() -> Result<(), String> {
        Ok(())
    }

    #[test]
    fn a_failure_ends_it_at_once_and_another_difference_at_the_end() {
        let shadow = Shadow::default();
        let pair = shadow.begin(1, 2);
        shadow.add(pair, finished("a", round(&[("status", "200"), ("x", "y")], &[("status", "200")]), false));
        assert_eq!(shadow.verdict(false, true, fine), None);
        let text = shadow.verdict(true, false, fine).unwrap().unwrap();
        assert!(text.contains("x is missing (y)"), "{text}");
        assert!(shadow.verdict(true, true, fine).unwrap().is_err());
        shadow.add(pair, finished("b", round(&[("status", "200")], &[("status", "500")]), false));
        let why = shadow.verdict(false, false, fine).unwrap().unwrap_err();
        assert!(why.contains("b: status was 200, is 500 (1 request: GET /b/1)"), "{why}");
        shadow.end();
        assert_eq!(shadow.verdict(true, true, fine), None);
        let last = shadow.last().unwrap();
        assert_eq!((last.requests, last.differences.len(), last.text), (2, 2, why));
    }

    #[test]
    fn without_requests_the_probes_are_named() {
        let shadow = Shadow::default();
        let pair = shadow.begin(1, 2);
        shadow.add(pair, finished("up", round(&[("status", "200")], &[("status", "200")]), true));
        let text = shadow.verdict(true, true, fine).unwrap().unwrap();
        assert!(
            text.starts_with(
                "no request of a client could be compared; the verdict is from the probes (GET /up/1)"
            ),
            "{text}"
        );
        assert!(
            shadow
                .verdict(true, true, || Err("more memory".to_owned()))
                .unwrap()
                .unwrap_err()
                .starts_with("more memory")
        );
    }

    #[test]
    fn rounds_of_an_earlier_shadow_are_ignored_and_paths_are_left_out() {
        let shadow = Shadow::default();
        let before = shadow.begin(1, 2);
        let pair = shadow.begin(1, 2);
        shadow.free(pair, Duration::ZERO);
        shadow.add(before, finished("a", round(&[("status", "200")], &[("status", "500")]), false));
        assert_eq!(shadow.verdict(false, true, fine), None);
        let request = RequestCopy::of_target("/a/1").unwrap();
        shadow.leave_out(pair, &request.folded(), "it writes");
        assert_eq!(shadow.take(&request, FREE, Instant::now()), None);
        let other = RequestCopy::of_target("/b").unwrap();
        assert!(shadow.may_copy());
        assert_eq!(shadow.take(&other, FREE, Instant::now()), Some(pair));
        assert!(!shadow.may_copy());
        let text = shadow.verdict(true, true, fine).unwrap().unwrap();
        assert!(text.contains("not compared: GET /a/:id (it writes)"), "{text}");
    }
}
