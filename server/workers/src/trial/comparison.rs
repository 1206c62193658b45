//! Collects the requests of a trial by route, and gives the verdict.

use super::findings::{self, Circumstances, TrialFinding};
use super::odds::{EventCounts, events_needed, log_evidence};
use super::side::RouteSide;
use super::{FALSE_ALARMS, TrialSample, WARMING};
use queue::{Serial, Tally};
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
/// Failures on all routes together that may be an accident, and one.
const FEWEST_FAILURES: u64 = 3;

/// The requests of both releases, by route.
type Routes = HashMap<Arc<str>, [RouteSide; 2]>;

/// The requests that both releases have served since a trial began. The front threads add to it, the supervisor reads it.
#[derive(Debug)]
pub struct ReleaseComparison {
    /// The worker on trial, plus one; 0 without a trial.
    on_trial: AtomicU64,
    compared: Mutex<Compared>,
    /// The first requests of a route that say nothing about its figures, in the workers of either release.
    warming: [u64; 2],
    /// Whether workers serve several requests at a time, which divide the counts of their process.
    divided: bool,
    /// The advice of the summary when it cannot tell.
    advice: &'static str,
}

/// Requests of both releases: what a verdict is made of.
#[derive(Debug, Default)]
struct Compared {
    routes: Routes,
    /// Copies that two other workers have served before: independent evidence.
    copies: Routes,
    /// Requests that the old workers had served before.
    history: EventCounts,
    /// How much longer requests of the new worker wait for a processor, in microseconds.
    excess_us: f64,
}

/// A comparison of clients' requests: the old workers are warm.
impl Default for ReleaseComparison {
    fn default() -> ReleaseComparison {
        let (on_trial, compared) = (AtomicU64::new(0), Mutex::default());
        let advice = "a longer `reload.watch` tells";
        ReleaseComparison { on_trial, compared, warming: [WARMING, 0], divided: true, advice }
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
        self.start(serial, Compared::default());
    }

    /// Starts a trial of this worker, to which copies may have gone before. `history`: what the old workers have served so far.
    pub(crate) fn begin_after(&self, copies: &ReleaseComparison, serial: Serial, history: Tally) {
        let copies = match copies.on_trial.load(Relaxed) == u64::from(serial) + 1 {
            true => std::mem::take(&mut copies.compared().routes),
            false => Routes::new(),
        };
        let history = EventCounts { events: history.failures, requests: history.requests };
        self.start(serial, Compared { copies, history, ..Compared::default() });
    }

    fn start(&self, serial: Serial, compared: Compared) {
        *self.compared() = compared;
        self.on_trial.store(u64::from(serial) + 1, Relaxed);
    }

    /// Ends the trial, and forgets what it has collected.
    pub fn end(&self) {
        if self.is_on() {
            self.on_trial.store(0, Relaxed);
            *self.compared() = Compared::default();
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
        let mut compared = self.compared();
        let side = if is_new { NEW } else { OLD };
        for sample in samples {
            let route = compared.name(&sample.route);
            // Copies have warmed the worker on trial.
            let warmed =
                if is_new { compared.copies.get(&route).map_or(0, |copies| copies[NEW].requests) } else { 0 };
            let sides = compared.routes.entry(route).or_default();
            sides[side].add(&sample, self.warming[side].saturating_sub(warmed));
        }
    }

    /// Adds a request that a worker of each release has served, of the same route.
    pub(crate) fn add_pair(&self, old: &TrialSample, new: &TrialSample) {
        let mut compared = self.compared();
        let route = compared.name(&old.route);
        let sides = compared.routes.entry(route).or_default();
        sides[OLD].add(old, self.warming[OLD]);
        sides[NEW].add(new, self.warming[NEW]);
    }

    /// Sets how much longer requests of the new worker wait for a processor, in microseconds.
    pub(crate) fn set_excess_wait(&self, excess_us: f64) {
        self.compared().excess_us = excess_us;
    }

    /// Returns the reason to revert, as soon as there is one.
    pub fn against(&self) -> Option<String> {
        let compared = self.compared();
        let alarm = compared.alarm();
        let finding = compared.worst(self.divided).filter(|finding| finding.log_evidence >= alarm)?;
        Some(format!("{} ({})", finding.text, chance(log_odds(&finding, alarm))))
    }

    /// Returns what the trial has shown by route, and what it could not: a sentence, or nothing if no request came.
    pub fn summary(&self) -> Option<String> {
        let compared = self.compared();
        let (routes, alarm) = (&compared.routes, compared.alarm());
        let mut few: Vec<(&Arc<str>, u64, u64)> = Vec::new();
        let mut alike = 0;
        for (route, sides) in routes {
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
        if let Some(text) = compared.suspicion(self.divided) {
            parts.push(format!("suspicious: {text}; {}", self.advice));
        }
        Some(parts.join(", "))
    }

    /// Returns what speaks against the new release: as a sentence with its odds, if those are worth a mention.
    pub fn suspicious(&self) -> Option<String> {
        self.compared().suspicion(self.divided)
    }

    /// Returns the finding that speaks most against the new release, however little that is; `None` if nothing does.
    pub fn suspect(&self) -> Option<String> {
        let worst = self.compared().worst(self.divided)?;
        (worst.log_evidence > 0.0).then_some(worst.text)
    }

    fn compared(&self) -> MutexGuard<'_, Compared> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Compared {
    /// Returns the name under which requests of this route count.
    fn name(&self, route: &Arc<str>) -> Arc<str> {
        match self.routes.len() < MOST_ROUTES || self.routes.contains_key(route) {
            true => route.clone(),
            false => OTHER.into(),
        }
    }

    /// Returns the logarithm of the evidence from which a finding is no accident: each route is another chance for one, and so are all together.
    fn alarm(&self) -> f64 {
        let compared = self.routes.values().filter(|[new, old]| new.requests > 0 && old.requests > 0).count();
        ((compared + 1) as f64 / FALSE_ALARMS).ln()
    }

    /// Returns the finding that speaks most against the new release.
    fn worst(&self, divided: bool) -> Option<TrialFinding> {
        let alarm = self.alarm();
        let circumstances = Circumstances { divided, excess_us: self.excess_us };
        let of_route = |(route, [new, old]): (&Arc<str>, &[RouteSide; 2])| {
            let copies = self.copies.get(route).map(|[new, old]| (new, old));
            let finding = findings::worst(new, old, copies, alarm, circumstances)?;
            Some(TrialFinding { text: format!("{route} {}", finding.text), ..finding })
        };
        let all = self.routes.iter().filter_map(of_route).chain(self.failures());
        all.max_by(|one, other| one.log_evidence.total_cmp(&other.log_evidence))
    }

    /// Compares the failures of all routes together with those of the old workers since they started: few failures, each on another route, are
    /// no accident where hours had none. They count only if the old workers have not begun to fail in the same minutes.
    fn failures(&self) -> Option<TrialFinding> {
        let sum = |side: usize| {
            self.routes.values().fold(EventCounts::default(), |sum, sides| EventCounts {
                events: sum.events + sides[side].failures,
                requests: sum.requests + sides[side].requests,
            })
        };
        let (new, old) = (sum(NEW), sum(OLD));
        let ever = EventCounts {
            events: old.events + self.history.events,
            requests: old.requests + self.history.requests,
        };
        if new.events < FEWEST_FAILURES || log_evidence(new, old) < SUSPICIOUS {
            return None;
        }
        let of_routes = self.routes.iter().map(|(route, sides)| (route, sides[NEW].failures));
        let (route, most) = of_routes.max_by_key(|(_, failures)| *failures)?;
        let text = format!(
            "{} of {} requests failed, {most} of them for {route} (in the old code {} of {})",
            new.events, new.requests, ever.events, ever.requests
        );
        Some(TrialFinding { log_evidence: log_evidence(new, ever), text })
    }

    /// Returns the finding that speaks most against the new release, with the odds, if those are worth a mention.
    fn suspicion(&self, divided: bool) -> Option<String> {
        let finding = self.worst(divided)?;
        let odds = log_odds(&finding, self.alarm());
        (odds >= SUSPICIOUS).then(|| format!("{} ({})", finding.text, chance(odds)))
    }
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
    /// Requests between two looks at the evidence.
    const LOOK: u64 = 60;

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
            if at % LOOK == 0
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

    /// Both releases serve `count` requests of ten routes, the new one a tenth; each fails with its probability, in thousandths.
    fn failures(seed: u64, count: u64, [new, old, before]: [u64; 3]) -> Option<String> {
        let mut random = fastrand::Rng::with_seed(seed);
        let comparison = ReleaseComparison::default();
        let history = Tally { requests: 200_000, failures: 200 * before, app_us: 0 };
        comparison.begin_after(&ReleaseComparison::of_copies(0), TRIAL, history);
        (0..count).find_map(|at| {
            let (is_new, route) = (random.u8(..10) == 0, random.u64(..10));
            let failed = random.u64(..1000) < if is_new { new } else { old };
            let sample = TrialSample { failed, ..usual(&mut random, route) };
            comparison.add(if is_new { TRIAL } else { 1 + random.u32(..3) }, vec![sample]);
            if at % LOOK == 0 { comparison.against() } else { None }
        })
    }

    #[test]
    fn few_failures_are_found_where_the_old_workers_have_never_failed() {
        for seed in 0..5 {
            let why = failures(seed, 30_000, [2, 0, 0]).unwrap();
            assert!(why.contains(" requests failed, ") && why.contains(" (in the old code 0 of 2"), "{why}");
        }
    }

    #[test]
    fn failures_that_both_releases_begin_to_have_or_always_had_are_not_found() {
        for seed in 0..20 {
            for rates in [[2, 2, 2], [20, 20, 0], [0, 0, 0], [2, 2, 20]] {
                assert_eq!(failures(seed, 4_000, rates), None, "{rates:?}");
            }
        }
    }

    #[test]
    fn copies_are_evidence_beside_the_requests_of_clients() {
        let slow = |seed: u64, copies: u64, factor: u32| {
            let mut random = fastrand::Rng::with_seed(seed);
            let shadow = ReleaseComparison::of_copies(8);
            shadow.begin(TRIAL);
            for _ in 0..copies {
                let (old, new) = (usual(&mut random, 1), usual(&mut random, 1));
                let new = TrialSample { app_us: new.app_us * factor / 2, failed: false, ..new };
                shadow.add_pair(&TrialSample { failed: false, ..old }, &new);
            }
            let comparison = ReleaseComparison::default();
            comparison.begin_after(&shadow, TRIAL, Tally::default());
            for at in 0..20_000 {
                let is_new = random.u8(..20) == 0;
                let sample = TrialSample { failed: false, ..usual(&mut random, 1) };
                let app_us = if is_new { sample.app_us * factor / 2 } else { sample.app_us };
                comparison.add(if is_new { TRIAL } else { 1 }, vec![TrialSample { app_us, ..sample }]);
                if at % LOOK == 0 && comparison.against().is_some() {
                    return at;
                }
            }
            20_000
        };
        let found = |copies, factor| (0..4).map(|seed| slow(seed, copies, factor)).sum::<u64>() / 4;
        let (alone, with_copies) = (found(0, 3), found(120, 3));
        assert!(with_copies < alone && alone < 20_000, "{with_copies} {alone}");
        assert_eq!(found(120, 2), 20_000, "nothing has changed");
    }

    #[test]
    fn copies_of_another_worker_are_none() {
        let shadow = ReleaseComparison::of_copies(0);
        shadow.begin(TRIAL + 1);
        let mut random = fastrand::Rng::with_seed(1);
        shadow.add_pair(&usual(&mut random, 1), &usual(&mut random, 1));
        let comparison = ReleaseComparison::default();
        comparison.begin_after(&shadow, TRIAL, Tally::default());
        assert!(comparison.compared().copies.is_empty() && !shadow.compared().routes.is_empty());
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
        assert_eq!(comparison.compared().routes.len(), MOST_ROUTES + 1);
    }
}
