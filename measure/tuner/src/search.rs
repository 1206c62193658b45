//! Chooses the next cell if only the decisive ones are measured. Pure: cells go in, a step comes out.
//!
//! 1. A few short looks show how the app uses its time: the smallest shape (a request on its own), many
//!    threads in one process (contention between threads), a second process (its cost, and whether it runs at
//!    all), and a large shape (how far it scales).
//! 2. From these `planner` predicts all candidates. The best three within the budget are measured in full;
//!    each measurement improves the prediction of the others.
//! 3. Where requests wait, the best shape with fibers is measured, too.
//! 4. The winner is measured once more, so that its result does not depend on one run.

use planner::{Budget, Cell, Model, Prediction, Shape, fibers, profile, recommend};

/// Cells measured in full before the search ends.
const VERIFIED: usize = 3;
/// The limit of full measurements, if predictions keep exceeding measurements.
const AT_MOST: usize = 5;
/// If this many shapes crashed and none ran, the app does not run at all.
const HOPELESS: usize = 2;
/// A candidate is measured if its rate may reach this share of the best known rate.
const WORTH: f64 = 0.97;

/// The most shapes with fibers that are measured.
const MOST_WITH_FIBERS: usize = 2;

#[derive(Debug, Clone)]
pub(crate) struct SearchState<'a> {
    /// All shapes that may be recommended.
    pub(crate) candidates: &'a [Shape],
    /// The same shapes with fibers.
    pub(crate) with_fibers: &'a [Shape],
    /// Whether fibers are tried regardless of the app.
    pub(crate) always_fibers: bool,
    /// Users of the load.
    pub(crate) users: u32,
    pub(crate) cores: f64,
    pub(crate) budget: &'a Budget,
    /// Shapes with a short look.
    pub(crate) looked: &'a [Shape],
    /// Cells on which a recommendation may be based: measured in full, or crashed.
    pub(crate) firm: &'a [Cell],
    /// All cells, as input of the prediction.
    pub(crate) usable: &'a [Cell],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Take a short look at a shape, with this many users.
    Look(Shape, u32),
    /// Measure a shape in full.
    Verify(Shape),
    /// Measure another part of a cell measured in full.
    Confirm(Shape),
}

impl SearchState<'_> {
    /// Returns the next step; `None` if enough is known.
    pub(crate) fn next(&self) -> Option<Step> {
        if self.usable.len() >= HOPELESS && self.usable.iter().all(|cell| cell.crashed.is_some()) {
            return None;
        }
        // The search for processes and threads ignores fibers.
        let on_threads =
            |cells: &[Cell]| cells.iter().filter(|cell| cell.fibers == 0).cloned().collect::<Vec<Cell>>();
        let (firm, usable) = (on_threads(self.firm), on_threads(self.usable));
        let threads = SearchState { firm: &firm, usable: &usable, ..self.clone() };
        threads.look().or_else(|| threads.verify()).or_else(|| self.fibers()).or_else(|| self.confirm())
    }

    /// Returns the best predicted shape with fibers, if the app waits; then the next one, as long as it
    /// should be better.
    pub(crate) fn fibers(&self) -> Option<Step> {
        let tried: Vec<&Cell> = self.firm.iter().filter(|cell| cell.fibers > 0).collect();
        let open = self.with_fibers.iter().copied();
        let open: Vec<Shape> = open.filter(|shape| !self.is_firm(*shape) && self.may_run(*shape)).collect();
        let ran = self.firm.iter().any(|cell| cell.crashed.is_none());
        let crashed = tried.iter().any(|cell| cell.crashed.is_some());
        if open.is_empty() || !ran || crashed || tried.len() >= MOST_WITH_FIBERS {
            return None;
        }
        if !self.always_fibers && !fibers::worth_a_try(self.usable, &profile(self.usable)) {
            return None;
        }
        let first = open.iter().copied().min_by_key(|shape| shape.slots());
        let Ok(model) = Model::fit(self.usable) else {
            return first.filter(|_| tried.is_empty()).map(Step::Verify);
        };
        let predictions: Vec<Prediction> =
            open.iter().map(|shape| model.predict(*shape, self.users)).collect();
        let before: Vec<Cell> = tried.into_iter().cloned().collect();
        let best = recommend(&before, &predictions, self.budget).best;
        let best = best.filter(|best| !best.measured).map(|best| best.shape);
        // One shape is measured even if it is outside the budget, for the comparison.
        best.or(first.filter(|_| before.is_empty())).map(Step::Verify)
    }

    /// Returns the next look, if any.
    fn look(&self) -> Option<Step> {
        let open = |shape: &Shape| !self.looked.contains(shape) && self.may_run(*shape);
        let looks = self.wanted_looks();
        looks.into_iter().find(|(shape, _)| open(shape)).map(|(shape, users)| Step::Look(shape, users))
    }

    fn wanted_looks(&self) -> Vec<(Shape, u32)> {
        let mut processes: Vec<u32> = self.candidates.iter().map(|shape| shape.processes).collect();
        let mut threads: Vec<u32> = self.candidates.iter().map(|shape| shape.threads).collect();
        processes.sort_unstable();
        processes.dedup();
        threads.sort_unstable();
        threads.dedup();
        let (Some(p), Some(t)) = (processes.first().copied(), threads.first().copied()) else {
            return Vec::new();
        };
        // More threads than users are never busy at the same time.
        let many =
            threads.iter().copied().find(|t| *t >= self.users).or(threads.last().copied()).unwrap_or(t);
        let second = processes.get(1).copied();
        let all_cores =
            processes.iter().copied().find(|p| f64::from(*p) >= self.cores).or(processes.last().copied());
        let all = self.users.max(1);
        let mut looks = vec![(Shape::new(p, t), all.min(2 * p * t))];
        looks.extend((many != t).then_some((Shape::new(p, many), all)));
        looks.extend(second.map(|second| (Shape::new(second, t), all.min(2 * second * t))));
        looks.extend(all_cores.filter(|_| many != t).map(|large| (Shape::new(large, many), all)));
        looks.retain(|(shape, _)| self.candidates.contains(shape));
        looks
    }

    /// Returns whether a shape may run: after a crash with some number of processes (or threads), larger
    /// numbers crash as well. (`profile` implies the same, but fits a model, which is too slow for each of a
    /// hundred shapes.)
    fn may_run(&self, shape: Shape) -> bool {
        let (crashed, ran): (Vec<&Cell>, Vec<&Cell>) =
            self.usable.iter().partition(|cell| cell.crashed.is_some());
        let below = |of: fn(Shape) -> u32| {
            let from = crashed.iter().map(|cell| of(cell.shape())).min().unwrap_or(u32::MAX);
            let is_line = !ran.is_empty() && ran.iter().all(|cell| of(cell.shape()) < from);
            !is_line || of(shape) < from
        };
        let tried = crashed.iter().any(|cell| cell.shape() == shape);
        !tried && below(|shape| shape.processes) && below(|shape| shape.threads)
    }

    /// Returns predictions for shapes that were not measured in full.
    pub(crate) fn predictions(&self) -> Vec<Prediction> {
        let Ok(model) = Model::fit(self.usable) else { return Vec::new() };
        let open = self.candidates.iter().filter(|shape| !self.is_firm(**shape) && self.may_run(**shape));
        open.map(|shape| model.predict(*shape, self.users)).collect()
    }

    fn is_firm(&self, shape: Shape) -> bool {
        self.firm.iter().any(|cell| cell.shape() == shape)
    }

    /// Returns the number of cells measured in full.
    fn verified(&self) -> usize {
        self.firm.iter().filter(|cell| !self.looked.contains(&cell.shape()) || cell.crashed.is_none()).count()
    }

    fn verify(&self) -> Option<Step> {
        let predictions = self.predictions();
        if predictions.is_empty() {
            return self.without_a_model();
        }
        let recommendation = recommend(self.firm, &predictions, self.budget);
        let best = recommendation.best?;
        let verified = self.verified();
        if !best.measured {
            // After the first few, a prediction must clearly exceed the measurements.
            let found = self.firm.iter().map(|cell| cell.rate_per_s).fold(0.0, f64::max);
            let sure = |one: &Prediction| one.shape() == best.shape && one.rate_per_s.low > found;
            let go_on = verified < VERIFIED || (verified < AT_MOST && predictions.iter().any(sure));
            // If no measured shape fits the budget, the last predictions are tried, too.
            let needed = verified < AT_MOST && recommend(self.firm, &[], self.budget).best.is_none();
            return (go_on || needed).then_some(Step::Verify(best.shape));
        }
        if verified >= VERIFIED {
            return None;
        }
        // If a rate is required, the best shape reaches it with the least memory; others that reach it cost more.
        let wanted = self.budget.rate_per_s.unwrap_or(f64::INFINITY).min(best.rate_per_s);
        let fits = |shape: Shape| recommendation.rejected.iter().all(|rejected| rejected.shape != shape);
        let worth =
            predictions.iter().filter(|one| one.rate_per_s.high >= WORTH * wanted && fits(one.shape()));
        // The candidate that differs most from the measured ones gives the most information.
        let distant = worth.max_by(|a, b| {
            let key = |one: &&Prediction| (self.distance(one.shape()), one.rate_per_s.value);
            let ((da, ra), (db, rb)) = (key(a), key(b));
            da.total_cmp(&db).then(ra.total_cmp(&rb))
        })?;
        Some(Step::Verify(distant.shape()))
    }

    /// Returns the distance of a shape from the nearest one measured in full, in doublings.
    fn distance(&self, shape: Shape) -> f64 {
        let doublings = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).log2().abs();
        let far = |other: Shape| {
            doublings(shape.processes, other.processes) + doublings(shape.threads, other.threads)
        };
        // Beyond four doublings, all shapes count as equally distant.
        self.firm.iter().map(|cell| far(cell.shape())).fold(4.0, f64::min)
    }

    /// Returns the smallest shape that may run, for a search in which no look succeeded.
    fn without_a_model(&self) -> Option<Step> {
        let open = |shape: &&Shape| !self.is_firm(**shape) && self.may_run(**shape);
        let next = self.candidates.iter().filter(open).min_by_key(|shape| shape.slots())?;
        (self.verified() < VERIFIED).then_some(Step::Verify(*next))
    }

    fn confirm(&self) -> Option<Step> {
        let best = recommend(self.firm, &[], self.budget).best?.shape;
        // The gain of fibers must come from two shapes that have been measured equally well.
        let rivals = match fibers::rivals(self.firm, self.budget) {
            (Some(with), Some(without)) => vec![with.shape, without.shape],
            _ => Vec::new(),
        };
        let confirmed = self.firm.iter().filter(|cell| cell.repeats > 1 && cell.crashed.is_none()).count();
        let once = |shape: &Shape| {
            self.firm.iter().any(|cell| cell.shape() == *shape && cell.repeats <= 1 && cell.crashed.is_none())
        };
        if confirmed > rivals.len() {
            return None;
        }
        let wanted = if rivals.is_empty() && confirmed > 0 { Vec::new() } else { vec![best] };
        wanted.into_iter().chain(rivals).find(once).map(Step::Confirm)
    }
}

/// Returns the candidate shapes for a machine with `cores` CPUs and a number of concurrent users.
pub(crate) fn candidates(
    processes: Option<&[u32]>,
    threads: Option<&[u32]>,
    cores: f64,
    users: u32,
) -> Vec<Shape> {
    let own_processes = || {
        // An app that holds the GVL without computing needs more processes than CPUs.
        let most = ((2.0 * cores).ceil() as u32).max(16).min(users.max(1));
        steps(&[1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256], most)
    };
    let own_threads = || {
        // Slots beyond the number of users stay empty.
        steps(&[1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 24, 32, 48, 64, 100, 128, 200, 256, 400, 512], users.max(1))
    };
    let processes = processes.map_or_else(own_processes, <[u32]>::to_vec);
    let threads = threads.map_or_else(own_threads, <[u32]>::to_vec);
    processes.iter().flat_map(|p| threads.iter().map(|t| Shape::new(*p, *t))).collect()
}

/// Returns candidates with fibers: one thread in each of the processes, and as many fibers as there are users.
pub(crate) fn fiber_candidates(candidates: &[Shape], users: u32, connections: Option<u32>) -> Vec<Shape> {
    let all = [30, 100, 300, 1_000, 3_000, 10_000, 30_000];
    // An open load has no number of users.
    let users = if users == 0 { 1_000 } else { users };
    let enough = all.into_iter().find(|fibers| *fibers >= users).unwrap_or(30_000);
    let of = |processes: u32| {
        let fibers = connections.map_or(enough, |all| enough.min(all / processes));
        (fibers > 1).then(|| Shape::new(processes, 1).with_fibers(fibers))
    };
    processes(candidates).into_iter().filter_map(of).collect()
}

/// Returns candidates with the numbers of fibers of a list, in one thread unless there is a list of threads, too.
pub(crate) fn list_of_fibers(candidates: &[Shape], threads: Option<&[u32]>, fibers: &[u32]) -> Vec<Shape> {
    let threads = threads.unwrap_or(&[1]);
    let shapes =
        processes(candidates).into_iter().flat_map(|p| threads.iter().map(move |t| Shape::new(p, *t)));
    shapes.flat_map(|shape| fibers.iter().map(move |fibers| shape.with_fibers(*fibers))).collect()
}

fn processes(candidates: &[Shape]) -> Vec<u32> {
    let mut processes: Vec<u32> = candidates.iter().map(|shape| shape.processes).collect();
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// Returns the steps up to `most`, including the first that reaches it.
fn steps(all: &[u32], most: u32) -> Vec<u32> {
    let end = all.iter().position(|step| *step >= most).map_or(all.len(), |at| at + 1);
    all[..end].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::Times;
    use proptest::prelude::*;

    const USERS: u32 = 30;
    const CORES: f64 = 2.0;

    /// An app: the milliseconds for which a request waits, holds the lock, and computes; and the shapes with
    /// which it crashes.
    #[derive(Debug, Clone, Copy)]
    struct App {
        wait: f64,
        lock: f64,
        cpu: f64,
        crashes_from: u32,
    }

    const fn app(wait: f64, lock: f64, cpu: f64) -> App {
        App { wait, lock, cpu, crashes_from: u32::MAX }
    }

    impl App {
        fn cell(&self, shape: Shape, users: u32, parts: u32) -> Cell {
            let Shape { processes, threads, fibers } = shape;
            let cell = Cell {
                processes,
                threads,
                fibers,
                users,
                cores: Some(CORES),
                repeats: parts,
                ..Cell::default()
            };
            if processes >= self.crashes_from {
                return Cell { crashed: Some("only one process".to_owned()), ..cell };
            }
            let present = f64::from(shape.slots().min(users));
            // The lowest limit applies: all slots wait, all locks are held, or all cores are busy. The
            // transition is smooth.
            let alone = self.wait + self.lock.max(self.cpu);
            let limits = [present / alone, f64::from(processes) / self.lock, CORES / self.cpu];
            let rate = 1_000.0 * limits.into_iter().map(|limit| limit.powi(-6)).sum::<f64>().powf(-1.0 / 6.0);
            let ms = 1_000.0 * f64::from(users) / rate;
            Cell {
                requests: 300,
                seconds: 300.0 / rate,
                rate_per_s: rate,
                latency_ms: Times { mean: ms, cv: 0.2, p50: ms, p95: 1.3 * ms, p99: 1.5 * ms },
                cpu_cores: Some(rate * self.cpu / 1_000.0),
                pss_bytes: u64::from(processes) * 20_000_000
                    + u64::from(shape.slots()) * 200_000
                    + 30_000_000,
                ..cell
            }
        }
    }

    /// Returns the shape that the search recommends, and its steps.
    fn found(app: App, candidates: &[Shape], budget: &Budget) -> (Option<Shape>, Vec<Step>) {
        found_with(app, candidates, &[], budget)
    }

    fn found_with(
        app: App,
        candidates: &[Shape],
        with_fibers: &[Shape],
        budget: &Budget,
    ) -> (Option<Shape>, Vec<Step>) {
        let (mut looks, mut verified): (Vec<Cell>, Vec<Cell>) = (Vec::new(), Vec::new());
        let mut steps = Vec::new();
        loop {
            let looked: Vec<Shape> = looks.iter().map(Cell::shape).collect();
            let crashed = looks.iter().filter(|cell| cell.crashed.is_some());
            let firm: Vec<Cell> = crashed.chain(&verified).cloned().collect();
            let usable: Vec<Cell> = looks.iter().chain(&verified).cloned().collect();
            let known = SearchState {
                candidates,
                with_fibers,
                always_fibers: false,
                users: USERS,
                cores: CORES,
                budget,
                looked: &looked,
                firm: &firm,
                usable: &usable,
            };
            let Some(step) = known.next() else {
                return (recommend(&firm, &[], budget).best.map(|best| best.shape), steps);
            };
            assert!(!steps.contains(&step) && steps.len() < 12, "{step:?} again after {steps:?}");
            steps.push(step);
            match step {
                Step::Look(shape, users) => looks.push(app.cell(shape, users, 1)),
                Step::Verify(shape) => verified.push(app.cell(shape, USERS, 1)),
                Step::Confirm(shape) => {
                    verified.retain(|cell| cell.shape() != shape);
                    verified.push(app.cell(shape, USERS, 2));
                }
            }
        }
    }

    fn best_rate(app: App, candidates: &[Shape], budget: &Budget) -> f64 {
        let connections = budget.db_connections.unwrap_or(u32::MAX);
        let grid = candidates
            .iter()
            .filter(|shape| shape.slots() <= connections)
            .map(|shape| app.cell(*shape, USERS, 2));
        let fits = grid.filter(|cell| budget.memory_bytes.is_none_or(|bytes| cell.pss_bytes <= bytes));
        fits.map(|cell| cell.rate_per_s).fold(0.0, f64::max)
    }

    fn assert_within_a_tenth(app: App, budget: &Budget) {
        let candidates = candidates(None, None, CORES, USERS);
        let (shape, steps) = found(app, &candidates, budget);
        let best = best_rate(app, &candidates, budget);
        let rate = shape.map_or(0.0, |shape| app.cell(shape, USERS, 1).rate_per_s);
        assert!(rate >= 0.9 * best, "{app:?} {budget:?}: {shape:?} does {rate}, the best {best}; {steps:?}");
        assert!(steps.len() * 5 < candidates.len(), "{} of {} cells", steps.len(), candidates.len());
    }

    #[test]
    fn few_cells_find_the_best_shape_of_all_kinds_of_apps() {
        let small = Budget { memory_bytes: Some(90_000_000), ..Budget::default() };
        let few = Budget { db_connections: Some(10), ..Budget::default() };
        let (waits, computes) = (app(100.0, 1.0, 1.0), app(20.0, 10.0, 10.0));
        for app in [waits, app(0.5, 27.0, 27.0), app(80.0, 9.0, 9.0), computes, app(0.5, 10.0, 0.3)] {
            assert_within_a_tenth(app, &Budget::default());
        }
        for (app, budget) in [(waits, small), (waits, few), (computes, small), (computes, few)] {
            assert_within_a_tenth(app, &budget);
        }
    }

    #[test]
    fn a_crashing_shape_is_tried_once() {
        let app = App { crashes_from: 2, ..app(20.0, 1.0, 1.0) };
        let (shape, steps) = found(app, &candidates(None, None, CORES, USERS), &Budget::default());
        assert_eq!(shape.map(|shape| shape.processes), Some(1));
        let shapes = steps.iter().map(|step| match step {
            Step::Look(shape, _) | Step::Verify(shape) | Step::Confirm(shape) => *shape,
        });
        assert_eq!(shapes.filter(|shape| shape.processes > 1).count(), 1);
    }

    #[test]
    fn an_app_that_never_runs_ends_the_search() {
        let app = App { crashes_from: 1, ..app(20.0, 1.0, 1.0) };
        let (shape, steps) = found(app, &candidates(None, None, CORES, USERS), &Budget::default());
        assert_eq!(shape, None);
        assert!(steps.len() <= 2, "{steps:?}");
    }

    #[test]
    fn fibers_are_tried_where_the_app_waits() {
        let threads = candidates(Some(&[1, 2]), Some(&[1, 4]), CORES, USERS);
        let fibers = fiber_candidates(&threads, USERS, None);
        assert_eq!(fibers, [Shape::new(1, 1).with_fibers(30), Shape::new(2, 1).with_fibers(30)]);
        let (shape, steps) = found_with(app(100.0, 0.5, 0.5), &threads, &fibers, &Budget::default());
        assert!(shape.is_some_and(|shape| shape.fibers == 30), "{shape:?} {steps:?}");
        let rival = steps.iter().rfind(|step| matches!(step, Step::Confirm(shape) if shape.fibers == 0));
        assert!(
            rival.is_some(),
            "the best without fibers is measured as well as the best with them: {steps:?}"
        );
        let computes = app(0.5, 27.0, 27.0);
        let (shape, steps) = found_with(computes, &threads, &fibers, &Budget::default());
        assert!(shape.is_some_and(|shape| shape.fibers == 0), "{shape:?}");
        let tried = |step: &Step| matches!(step, Step::Verify(shape) if shape.fibers > 0);
        assert!(!steps.iter().any(tried), "{steps:?}");
    }

    #[test]
    fn fibers_are_not_tried_with_processes_that_crash() {
        let app = App { crashes_from: 2, ..app(80.0, 9.0, 9.0) };
        let threads = candidates(None, None, CORES, USERS);
        let fibers = fiber_candidates(&threads, USERS, None);
        let (shape, steps) = found_with(app, &threads, &fibers, &Budget::default());
        assert_eq!(shape.map(|shape| shape.processes), Some(1));
        let tried = |step: &&Step| matches!(step, Step::Verify(shape) if shape.fibers > 0);
        assert_eq!(steps.iter().filter(tried).count(), 1, "{steps:?}");
    }

    #[test]
    fn fibers_keep_to_the_connections() {
        let threads = candidates(Some(&[1, 2, 16]), Some(&[1]), CORES, USERS);
        let few = fiber_candidates(&threads, 500, Some(20));
        assert_eq!(few, [Shape::new(1, 1).with_fibers(20), Shape::new(2, 1).with_fibers(10)]);
        assert_eq!(fiber_candidates(&threads[..1], 0, None), [Shape::new(1, 1).with_fibers(1_000)]);
        assert_eq!(list_of_fibers(&threads, Some(&[1, 2]), &[5, 9]).len(), 12);
    }

    #[test]
    fn a_given_grid_is_searched() {
        let shapes = candidates(Some(&[1, 2, 10]), Some(&[1, 10, 100]), CORES, USERS);
        assert_eq!(shapes.len(), 9);
        let (shape, steps) = found(app(120.0, 0.5, 0.5), &shapes, &Budget::default());
        assert!(shape.is_some_and(|shape| shape.slots() >= USERS), "{shape:?}");
        assert!(steps.len() <= 9);
        let one = candidates(Some(&[2]), Some(&[5]), CORES, USERS);
        assert_eq!(found(app(20.0, 1.0, 1.0), &one, &Budget::default()).0, Some(Shape::new(2, 5)));
    }

    #[test]
    fn candidates_are_limited_by_the_users() {
        let shapes = candidates(None, None, 2.0, 30);
        assert!(shapes.contains(&Shape::new(1, 32)) && !shapes.contains(&Shape::new(1, 48)));
        assert!(
            shapes.iter().any(|shape| shape.processes >= 16)
                && shapes.iter().all(|shape| shape.processes <= 16)
        );
        assert_eq!(candidates(None, None, 2.0, 1), [Shape::new(1, 1)]);
    }

    proptest! {
        // Each case fits a model several times.
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn the_search_ends_for_any_app(wait in 0.1..200.0, lock in 0.1..50.0, share in 0.05..1.0, crashes in 1_u32..12) {
            let app = App { crashes_from: crashes, ..app(wait, lock, lock * share) };
            let candidates = candidates(None, None, CORES, USERS);
            let (shape, _) = found(app, &candidates, &Budget::default());
            prop_assert!(shape.is_none_or(|shape| shape.processes < crashes));
        }
    }
}
