//! Which cell comes next when only those are measured that decide. Pure: cells go in, a step comes out.
//!
//! 1. A few short looks tell where the time goes: the smallest shape (a request all for itself), many threads in one
//!    process (what they wait for each other), a second process (what it costs and whether it runs at all), and a
//!    large shape (how far all that goes).
//! 2. From these `planner` predicts all candidates. The best three under the budget are measured in full; what is
//!    measured improves the prediction of the rest.
//! 3. The winner is measured once more, so that its figures do not hang on one run.

use planner::{Budget, Cell, Model, Prediction, Shape, nature, recommend};

/// Cells measured in full before the search ends.
const VERIFIED: usize = 3;
/// When predictions go on promising more than measuring finds, the search ends all the same.
const AT_MOST: usize = 5;
/// A candidate is worth a measurement when it may reach this share of the best one known.
const WORTH: f64 = 0.97;

/// What is known.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    /// All shapes that may be recommended.
    pub(crate) candidates: &'a [Shape],
    /// Users of the load.
    pub(crate) users: u32,
    pub(crate) cores: f64,
    pub(crate) budget: &'a Budget,
    /// Short looks.
    pub(crate) looks: &'a [Cell],
    /// Cells measured in full.
    pub(crate) verified: &'a [Cell],
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A short look at a shape, with so many users.
    Look(Shape, u32),
    /// Measure in full.
    Verify(Shape),
    /// Measure another part of what was measured in full.
    Confirm(Shape),
}

impl Known<'_> {
    /// The next step; `None` when enough is known.
    pub(crate) fn next(&self) -> Option<Step> {
        self.look().or_else(|| self.verify()).or_else(|| self.confirm())
    }

    /// The looks that are still to be taken.
    fn look(&self) -> Option<Step> {
        let open =
            |shape: &Shape| self.looks.iter().all(|cell| cell.shape() != *shape) && self.may_run(*shape);
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

    /// What crashed with few processes will crash with more.
    fn may_run(&self, shape: Shape) -> bool {
        let Some(crash) = nature(&self.cells()).crash else { return true };
        let below = |limit: Option<u32>, number: u32| limit.is_none_or(|limit| number < limit);
        below(crash.from_processes, shape.processes)
            && below(crash.from_threads, shape.threads)
            && !crash.shapes.contains(&shape)
    }

    fn cells(&self) -> Vec<Cell> {
        self.looks.iter().chain(self.verified).cloned().collect()
    }

    /// What shapes would do that were not measured in full.
    pub(crate) fn predictions(&self) -> Vec<Prediction> {
        let Ok(model) = Model::fit(&self.cells()) else { return Vec::new() };
        let measured = |shape: &Shape| self.verified.iter().any(|cell| cell.shape() == *shape);
        let open = self.candidates.iter().filter(|shape| !measured(shape) && self.may_run(**shape));
        open.map(|shape| model.predict(*shape, self.users)).collect()
    }

    /// Cells that a recommendation may rest on: those measured in full, and those that failed.
    pub(crate) fn firm(&self) -> Vec<Cell> {
        self.looks.iter().filter(|cell| cell.crashed.is_some()).chain(self.verified).cloned().collect()
    }

    fn verify(&self) -> Option<Step> {
        let predictions = self.predictions();
        if predictions.is_empty() {
            return self.without_a_model();
        }
        let recommendation = recommend(&self.firm(), &predictions, self.budget);
        let best = recommendation.best?;
        if !best.measured {
            return (self.verified.len() < AT_MOST).then_some(Step::Verify(best.shape));
        }
        if self.verified.len() >= VERIFIED {
            return None;
        }
        // A rate that is asked for is reached by the best; whatever else could do it costs more.
        let wanted = self.budget.rate_per_s.unwrap_or(f64::INFINITY).min(best.rate_per_s);
        let fits = |shape: Shape| recommendation.rejected.iter().all(|rejected| rejected.shape != shape);
        let worth =
            predictions.iter().filter(|one| one.rate_per_s.high >= WORTH * wanted && fits(one.shape()));
        let open = worth.filter(|one| self.verified.iter().all(|cell| cell.shape() != one.shape()));
        // The one that is least like those that are known tells most.
        let distant = open.max_by(|a, b| {
            let key = |one: &&Prediction| (self.distance(one.shape()), one.rate_per_s.value);
            let ((da, ra), (db, rb)) = (key(a), key(b));
            da.total_cmp(&db).then(ra.total_cmp(&rb))
        })?;
        Some(Step::Verify(distant.shape()))
    }

    /// How far a shape is from all that were measured in full, in doublings.
    fn distance(&self, shape: Shape) -> f64 {
        let doublings = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).log2().abs();
        let far = |other: Shape| {
            doublings(shape.processes, other.processes) + doublings(shape.threads, other.threads)
        };
        // Beyond four doublings all are strange.
        self.verified.iter().map(|cell| far(cell.shape())).fold(4.0, f64::min)
    }

    /// No look told anything: the smallest shapes are measured, as long as they may run.
    fn without_a_model(&self) -> Option<Step> {
        let open = |shape: &&Shape| {
            self.verified.iter().all(|cell| cell.shape() != **shape) && self.may_run(**shape)
        };
        let next = self.candidates.iter().filter(open).min_by_key(|shape| shape.slots())?;
        (self.verified.len() < VERIFIED).then_some(Step::Verify(*next))
    }

    fn confirm(&self) -> Option<Step> {
        let best = recommend(&self.firm(), &[], self.budget).best?;
        let cell = self.verified.iter().find(|cell| cell.shape() == best.shape)?;
        (cell.repeats < 2 && cell.crashed.is_none()).then_some(Step::Confirm(best.shape))
    }
}

/// Shapes worth a thought on a machine with so many cores, for so many users at a time.
pub(crate) fn candidates(
    processes: Option<&[u32]>,
    threads: Option<&[u32]>,
    cores: f64,
    users: u32,
) -> Vec<Shape> {
    let own_processes = || {
        let most = ((2.0 * cores).ceil() as u32).max(8).min(users.max(1));
        steps(&[1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256], most)
    };
    let own_threads = || {
        // Slots beyond the users stay empty.
        steps(&[1, 2, 3, 4, 5, 8, 10, 12, 16, 20, 24, 32, 48, 64, 100, 128, 200, 256, 400, 512], users.max(1))
    };
    let processes = processes.map_or_else(own_processes, <[u32]>::to_vec);
    let threads = threads.map_or_else(own_threads, <[u32]>::to_vec);
    processes.iter().flat_map(|p| threads.iter().map(|t| Shape::new(*p, *t))).collect()
}

/// Up to `most`, and the first step that reaches it.
fn steps(all: &[u32], most: u32) -> Vec<u32> {
    let end = all.iter().position(|step| *step >= most).map_or(all.len(), |at| at + 1);
    all[..end].to_vec()
}
