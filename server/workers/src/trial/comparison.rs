//! Collects the requests of a trial by route, and gives the verdict.

use super::findings::{self, TrialFinding};
use super::odds::events_needed;
use super::side::RouteSide;
use super::{FALSE_ALARMS, TrialSample, WARMING};
use queue::Serial;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most routes that are told apart. Further ones count together.
const MOST_ROUTES: usize = 200;
/// The name of those, which is also that of `firebrick routes`.
const OTHER: &str = "(other)";
/// Routes that a sentence names at most.
const NAMED: usize = 3;
/// Odds from which a finding that is not enough to revert is mentioned, as a natural logarithm: 20 to 1.
const SUSPICIOUS: f64 = 3.0;

/// The requests that both releases have served since a trial began. The front threads add to it, the supervisor reads it.
#[derive(Debug)]
pub struct ReleaseComparison {
    /// The worker on trial, plus one; 0 without a trial.
    on_trial: AtomicU64,
    routes: Mutex<HashMap<Arc<str>, [RouteSide; 2]>>,
    /// The first requests of a route that say nothing about its figures, in the workers of either release.
    warming: [u64; 2],
    /// Whether workers serve several requests at a time, which divide the counts of their process.
    divided: bool,
    /// The advice of the summary when it cannot tell.
    advice: &'static str,
}

/// A comparison of clients' requests: the old workers are warm.
impl Default for ReleaseComparison {
    fn default() -> ReleaseComparison {
        let (on_trial, routes) = (AtomicU64::new(0), Mutex::default());
        let advice = "a longer `reload.watch` tells";
        ReleaseComparison { on_trial, routes, warming: [WARMING, 0], divided: true, advice }
    }
}

/// The places of the two releases.
const NEW: usize = 0;
const OLD: usize = 1;

impl ReleaseComparison {
    /// Creates a comparison of copies, which go to two workers that are equally cold, for `warming` requests of each route,
    /// one at a time.
    pub(crate) fn of_copies(warming: u64) -> ReleaseComparison {
        let advice = "a longer `--shadow` tells";
        ReleaseComparison { warming: [warming; 2], divided: false, advice, ..ReleaseComparison::default() }
    }

    /// Starts a trial of this worker.
    pub fn begin(&self, serial: Serial) {
        self.routes().clear();
        self.on_trial.store(u64::from(serial) + 1, Relaxed);
    }

    /// Ends the trial, and forgets what it has collected.
    pub fn end(&self) {
        if self.is_on() {
            self.on_trial.store(0, Relaxed);
            *self.routes() = HashMap::new();
        }
    }

    /// Returns whether a trial runs.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on_trial.load(Relaxed) != 0
    }

    /// Adds requests that worker `serial` has served.
    pub fn add(&self, serial: Serial, samples: Vec<TrialSample>) {
        let is_new = match self.on_trial.load(Relaxed) {
            0 => return,
            on_trial => on_trial == u64::from(serial) + 1,
        };
        let mut routes = self.routes();
        for sample in samples {
            let route = match routes.len() < MOST_ROUTES || routes.contains_key(&sample.route) {
                true => sample.route.clone(),
                false => OTHER.into(),
            };
            let sides = routes.entry(route).or_default();
            let side = if is_new { NEW } else { OLD };
            sides[side].add(&sample, self.warming[side]);
        }
    }

    /// Adds a request that a worker of each release has served, of the same route.
    pub(crate) fn add_pair(&self, old: &TrialSample, new: &TrialSample) {
        let mut routes = self.routes();
        let known = routes.len() < MOST_ROUTES || routes.contains_key(&old.route);
        let sides = routes.entry(if known { old.route.clone() } else { OTHER.into() }).or_default();
        sides[OLD].add(old, self.warming[OLD]);
        sides[NEW].add(new, self.warming[NEW]);
    }

    /// Returns the reason to revert, as soon as there is one.
    pub fn against(&self) -> Option<String> {
        let routes = self.routes();
        let alarm = alarm(&routes);
        let (route, finding) =
            self.worst(&routes, alarm).filter(|(_, finding)| finding.log_evidence >= alarm)?;
        Some(format!("{route} {} ({})", finding.text, chance(log_odds(&finding, alarm))))
    }

    /// Returns what the trial has shown by route, and what it could not: a sentence, or nothing if no request came.
    pub fn summary(&self) -> Option<String> {
        let routes = self.routes();
        let alarm = alarm(&routes);
        let mut few: Vec<(&Arc<str>, u64, u64)> = Vec::new();
        let mut alike = 0;
        for (route, sides) in routes.iter() {
            match missing(sides, alarm) {
                0 => alike += 1,
                more => few.push((route, sides[NEW].requests, more)),
            }
        }
        if routes.is_empty() {
            return None;
        }
        few.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
        let mut parts = vec![format!("by route: {alike} no worse")];
        if !few.is_empty() {
            let named: Vec<String> =
                few.iter().take(NAMED).map(|(route, _, more)| format!("{route}: {more} more")).collect();
            let rest = if few.len() > NAMED { ", …" } else { "" };
            parts.push(format!("{} with too few requests to tell ({}{rest})", few.len(), named.join(", ")));
        }
        if let Some(text) = self.suspicion(&routes) {
            parts.push(format!("suspicious: {text}; {}", self.advice));
        }
        Some(parts.join(", "))
    }

    /// Returns what speaks against the new release: as a sentence with its odds, if those are worth a mention.
    pub fn suspicious(&self) -> Option<String> {
        self.suspicion(&self.routes())
    }

    /// Returns the route and the finding that speak most against the new release, however little that is; `None` if nothing does.
    pub fn suspect(&self) -> Option<String> {
        let routes = self.routes();
        let (route, finding) =
            self.worst(&routes, alarm(&routes)).filter(|(_, finding)| finding.log_evidence > 0.0)?;
        Some(format!("{route} {}", finding.text))
    }

    /// Returns the finding that speaks most against the new release.
    fn worst<'a>(
        &self,
        routes: &'a HashMap<Arc<str>, [RouteSide; 2]>,
        alarm: f64,
    ) -> Option<(&'a Arc<str>, TrialFinding)> {
        let findings = routes
            .iter()
            .filter_map(|(route, [new, old])| Some((route, findings::worst(new, old, alarm, self.divided)?)));
        findings.max_by(|(_, one), (_, other)| one.log_evidence.total_cmp(&other.log_evidence))
    }

    /// Returns the route and the finding that speak most against the new release, with the odds, if those are worth a mention.
    fn suspicion(&self, routes: &HashMap<Arc<str>, [RouteSide; 2]>) -> Option<String> {
        let alarm = alarm(routes);
        let (route, finding) = self.worst(routes, alarm)?;
        let odds = log_odds(&finding, alarm);
        (odds >= SUSPICIOUS).then(|| format!("{route} {} ({})", finding.text, chance(odds)))
    }

    fn routes(&self) -> MutexGuard<'_, HashMap<Arc<str>, [RouteSide; 2]>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the logarithm of the evidence from which a finding is no accident: each route is another chance for one.
fn alarm(routes: &HashMap<Arc<str>, [RouteSide; 2]>) -> f64 {
    let compared = routes.values().filter(|[new, old]| new.requests > 0 && old.requests > 0).count();
    (compared.max(1) as f64 / FALSE_ALARMS).ln()
}

/// Returns how many more requests of a route the new release would need before a route that has become clearly slower is seen.
fn missing([new, old]: &[RouteSide; 2], alarm: f64) -> u64 {
    let share = match new.requests > 0 && old.requests > 0 {
        true => new.requests as f64 / (new.requests + old.requests) as f64,
        false => 0.1,
    };
    // The smallest part of a question, as in `findings`.
    let needed = WARMING + events_needed(alarm - 0.05f64.ln(), share);
    needed.saturating_sub(new.requests)
}

/// Returns the logarithm of the odds against an accident, over all routes and figures.
fn log_odds(finding: &TrialFinding, alarm: f64) -> f64 {
    finding.log_evidence - alarm - FALSE_ALARMS.ln()
}

/// Returns the odds that the finding is an accident, as words.
fn chance(log_odds: f64) -> String {
    format!("an accident with a probability below 1 in {}", log_odds.min(16.0).exp().round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIAL: Serial = 7;

    /// Both releases serve `count` requests of `routes` routes, the new one a tenth of them; `sample` has the random numbers.
    fn trial(
        seed: u64,
        count: u64,
        routes: u64,
        sample: impl Fn(&mut fastrand::Rng, u64, bool) -> TrialSample,
    ) -> Option<(u64, String)> {
        let mut random = fastrand::Rng::with_seed(seed);
        let comparison = ReleaseComparison::default();
        comparison.begin(TRIAL);
        for at in 0..count {
            let is_new = random.u8(..10) == 0;
            let route = random.u64(..routes);
            let sample = sample(&mut random, route, is_new);
            comparison.add(if is_new { TRIAL } else { 1 + random.u32(..3) }, vec![sample]);
            if at % 20 == 19
                && let Some(why) = comparison.against()
            {
                return Some((at, why));
            }
        }
        None
    }

    /// A request whose time is distributed as in real apps: a long tail to the right.
    fn usual(random: &mut fastrand::Rng, route: u64) -> TrialSample {
        let normal = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let base = (route + 1) as f64 * 5_000.0;
        let us = base * (0.4 * normal).exp();
        TrialSample {
            route: format!("route#{route}").into(),
            failed: random.u32(..200) == 0,
            app_us: us as u32,
            cpu_us: Some((us * 0.6) as u32),
            allocations: Some(1000 * (route as u32 + 1) + random.u32(..50)),
            queries: Some(3 + random.u32(..2)),
        }
    }

    #[test]
    fn an_unchanged_app_is_not_found_worse() {
        let runs: u64 = std::env::var("TRIAL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(100);
        let alarms: Vec<_> = (0..runs)
            .filter_map(|seed| trial(seed, 2_000, 6, |random, route, _| usual(random, route)))
            .collect();
        assert!(alarms.len() as u64 * 200 <= runs, "{alarms:?}");
    }

    /// Planted regressions of one of six routes.
    #[test]
    fn regressions_are_found_and_named() {
        type Change = fn(&mut fastrand::Rng, TrialSample) -> TrialSample;
        let planted: [(&str, u64, Change); 6] = [
            ("half as slow again", 20_000, |_, s| TrialSample {
                app_us: s.app_us * 3 / 2,
                cpu_us: s.cpu_us.map(|us| us * 3 / 2),
                ..s
            }),
            ("twice as slow", 10_000, |_, s| TrialSample { app_us: s.app_us * 2, ..s }),
            ("one failure in 20", 15_000, |random, s| TrialSample { failed: random.u8(..20) == 0, ..s }),
            ("a slow tail", 25_000, |random, s| TrialSample {
                app_us: if random.u8(..20) == 0 { 200_000 } else { s.app_us },
                ..s
            }),
            ("many queries", 4_000, |_, s| TrialSample { queries: Some(40), ..s }),
            ("more objects", 4_000, |_, s| TrialSample { allocations: s.allocations.map(|n| n * 3), ..s }),
        ];
        for (name, most, change) in planted {
            for seed in 0..5 {
                let found = trial(seed, most, 6, |random, route, is_new| {
                    let sample = usual(random, route);
                    if is_new && route == 4 { change(random, sample) } else { sample }
                });
                let Some((at, why)) = found else { panic!("{name} is not found in {most} requests") };
                assert!(why.starts_with("route#4 "), "{name} after {at} requests: {why}");
            }
        }
    }

    #[test]
    fn the_summary_tells_what_is_not_known() {
        let comparison = ReleaseComparison::default();
        comparison.begin(TRIAL);
        assert_eq!(comparison.summary(), None);
        let mut random = fastrand::Rng::with_seed(1);
        for (route, count) in [(0, 200), (1, 3)] {
            for _ in 0..count {
                let sample = usual(&mut random, route);
                comparison.add(TRIAL, vec![TrialSample { failed: false, ..sample.clone() }]);
                comparison.add(1, vec![TrialSample { failed: false, ..sample }]);
            }
        }
        let summary = comparison.summary().unwrap();
        assert!(
            summary.starts_with("by route: 1 no worse, 1 with too few requests to tell (route#1: "),
            "{summary}"
        );
        comparison.end();
        assert!(!comparison.is_on());
        assert_eq!(comparison.summary(), None);
        comparison.add(1, vec![usual(&mut random, 0)]);
        assert_eq!(comparison.summary(), None, "nothing is collected without a trial");
    }

    #[test]
    fn routes_are_bounded() {
        let comparison = ReleaseComparison::default();
        comparison.begin(TRIAL);
        let mut random = fastrand::Rng::with_seed(1);
        for route in 0..5_000 {
            comparison.add(1, vec![usual(&mut random, route)]);
        }
        assert_eq!(comparison.routes().len(), MOST_ROUTES + 1);
    }
}
