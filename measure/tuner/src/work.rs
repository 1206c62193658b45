//! The measurements: cell after cell, alternating between the servers, until all are measured or enough is known.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use planner::{Model, Shape};

use crate::cell::{CellResult, Effort, figures, undisturbed, visit};
use crate::libraries::Library;
use crate::options::{Amount, Fibers, Options};
use crate::results::{Measured, Results};
use crate::running::{Context, Failure};
use crate::screen::Screen;
use crate::search::{SearchState, Step, candidates, fiber_candidates, list_of_fibers};
use crate::server::ServerKind;
use crate::workload::Portion;

/// The time limit of a short look, apart from the last responses.
const LOOK_AT_MOST: Duration = Duration::from_millis(2_500);
/// Typical shares of a look and of a cell in an automatic search, for the progress bar.
const LOOK_SHARE: f64 = 0.07;
const CELL_SHARE: f64 = 0.18;

/// Measures the cells that the options request.
pub(crate) fn work(context: &Context<'_>, kinds: &[ServerKind], screen: &mut Screen) -> Results {
    let began = Instant::now();
    let mut session = Session { context, kinds, screen, gathered: HashMap::new(), done: Results::default() };
    match session.options().shapes.grid().filter(|_| !session.options().shapes.few) {
        Some(shapes) => session.grid(&shapes),
        None => session.few(),
    }
    session.done.libraries = context.libraries.get().cloned().unwrap_or_default();
    session.done.stopped = context.stop.requested();
    session.done.seconds = began.elapsed().as_secs_f64();
    session.done
}

/// The scope of the full measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whole {
    /// The shapes that the search finds.
    Search,
    /// Fibers only, after the whole table.
    Grid,
}

struct Session<'a, 'b> {
    context: &'a Context<'b>,
    kinds: &'a [ServerKind],
    screen: &'a mut Screen,
    gathered: HashMap<(ServerKind, Shape), CellResult>,
    done: Results,
}

impl Session<'_, '_> {
    fn options(&self) -> &Options {
        self.context.options
    }

    fn users(&self) -> u32 {
        match self.options().load.open {
            Some(_) => 0,
            None => u32::try_from(self.options().load.users).unwrap_or(u32::MAX),
        }
    }

    /// Measures every cell of the table.
    fn grid(&mut self, shapes: &[Shape]) {
        self.done.candidates = shapes.len();
        let effort = whole(self.options());
        let began = Instant::now();
        for (at, shape) in shapes.iter().enumerate() {
            let passed = began.elapsed().as_secs_f64();
            let ahead = self.expected(&shapes[at..], passed / at.max(1) as f64);
            let all = passed + ahead.iter().sum::<f64>();
            let (done, share) =
                if at == 0 { (0.0, 1.0 / shapes.len() as f64) } else { (passed / all, ahead[0] / all) };
            self.cell(*shape, &effort, false, done, share);
            if self.context.stop.requested() {
                return;
            }
        }
        if self.options().shapes.fibers == Some(Fibers::Auto) {
            self.few_on(shapes, Whole::Grid);
        }
    }

    /// Returns the expected seconds for the shapes: by the model if there is one, else the mean so far.
    fn expected(&self, shapes: &[Shape], mean: f64) -> Vec<f64> {
        let servers = self.kinds.len() as f64;
        let model = Model::fit(&self.done.usable()).ok();
        let requests = match self.options().load.amount {
            Amount::Requests(requests) => requests as f64,
            Amount::Time(_) => return vec![mean.max(0.1); shapes.len()],
        };
        let of = |shape: &Shape| match &model {
            Some(model) => {
                servers * (1.0 + requests / model.predict(*shape, self.users()).rate_per_s.value.max(0.01))
            }
            None => mean.max(0.1),
        };
        shapes.iter().map(of).collect()
    }

    /// Measures only the decisive cells.
    fn few(&mut self) {
        let shapes = &self.options().shapes;
        let cores = self.context.cpus.server;
        let candidates =
            candidates(shapes.processes.as_deref(), shapes.threads.as_deref(), cores, self.users());
        self.few_on(&candidates, Whole::Search);
    }

    /// Returns the shapes with fibers that may be tried in addition to `candidates`.
    fn with_fibers(&self, candidates: &[Shape]) -> Vec<Shape> {
        let shapes = &self.options().shapes;
        let list = match &shapes.fibers {
            Some(Fibers::Off) => return Vec::new(),
            Some(Fibers::List(list)) => return list_of_fibers(candidates, shapes.threads.as_deref(), list),
            Some(Fibers::Auto) | None => self.context.libraries.get(),
        };
        // If the server reports no libraries, the Ruby has no fibers.
        match list {
            Some(libraries) if libraries.is_empty() || libraries.iter().any(Library::forbids) => Vec::new(),
            _ => fiber_candidates(candidates, self.users(), self.options().budget.db_connections),
        }
    }

    /// Measures the decisive ones of `candidates`, and of the same shapes with fibers.
    fn few_on(&mut self, candidates: &[Shape], whole_search: Whole) {
        let options = self.context.options;
        let cores = self.context.cpus.server;
        let users = self.users();
        self.done.candidates = candidates.len();
        let mut done = 0.0;
        loop {
            let (looked, firm, usable) = (self.looked(), self.done.firm(), self.done.usable());
            let with_fibers = self.with_fibers(candidates);
            let known = SearchState {
                candidates,
                with_fibers: &with_fibers,
                always_fibers: matches!(options.shapes.fibers, Some(Fibers::List(_))),
                users,
                cores,
                budget: &options.budget,
                looked: &looked,
                firm: &firm,
                usable: &usable,
            };
            let next = match whole_search {
                Whole::Search => known.next(),
                Whole::Grid => known.fibers(),
            };
            // Disturbed measurements are not worth more time.
            let disturbed = !options.output.noisy && self.done.noise().is_some();
            let step = next.filter(|_| !self.context.stop.requested() && !disturbed);
            let Some(step) = step else {
                self.done.predictions =
                    if whole_search == Whole::Search { known.predictions() } else { Vec::new() };
                return;
            };
            let share = match step {
                Step::Look(shape, users) => {
                    let effort = look(options, shape, users);
                    self.cell(shape, &effort, true, done, LOOK_SHARE);
                    LOOK_SHARE
                }
                Step::Verify(shape) => {
                    let once = Effort { parts: 1, most: 1, ..whole(options) };
                    let effort = if whole_search == Whole::Search { once } else { whole(options) };
                    self.cell(shape, &effort, false, done, CELL_SHARE);
                    CELL_SHARE
                }
                Step::Confirm(shape) => {
                    let effort = Effort { parts: 2, most: 2, ..whole(options) };
                    self.cell(shape, &effort, false, done, CELL_SHARE);
                    CELL_SHARE
                }
            };
            // If there are more cells than usual, the shares shrink.
            done += share.min((1.0 - done) / 2.0);
        }
    }

    /// Returns the shapes with a short look.
    fn looked(&self) -> Vec<Shape> {
        self.done.measured.iter().filter(|one| one.look).map(|one| one.cell.shape()).collect()
    }

    /// Measures one shape with each server, alternating.
    fn cell(&mut self, shape: Shape, effort: &Effort, is_look: bool, done: f64, share: f64) {
        let kinds: Vec<ServerKind> = if is_look { vec![ServerKind::Firebrick] } else { self.kinds.to_vec() };
        let kinds: Vec<ServerKind> = kinds.into_iter().filter(|kind| kind.fits(shape)).collect();
        let mut gathered: Vec<(ServerKind, CellResult)> = kinds
            .iter()
            .map(|kind| {
                (
                    *kind,
                    if is_look {
                        CellResult::default()
                    } else {
                        self.gathered.remove(&(*kind, shape)).unwrap_or_default()
                    },
                )
            })
            .collect();
        // A single server can stay up for all parts.
        let parts_at_once = if kinds.len() > 1 { 1 } else { effort.most };
        while gathered.iter().any(|(_, one)| one.wants_more(effort)) && !self.context.stop.requested() {
            for (kind, one) in &mut gathered {
                if one.wants_more(effort) {
                    self.part(*kind, shape, effort, parts_at_once, one, (done, share));
                }
            }
        }
        for (kind, one) in gathered {
            self.keep(kind, shape, effort, is_look, &one);
            if !is_look {
                self.gathered.insert((kind, shape), one);
            }
        }
    }

    fn part(
        &mut self,
        kind: ServerKind,
        shape: Shape,
        effort: &Effort,
        parts: u32,
        gathered: &mut CellResult,
        bar: (f64, f64),
    ) {
        let name = if self.kinds.len() > 1 { format!("{} ", kind.name()) } else { String::new() };
        let expected = f64::from(effort.parts.max(1));
        let screen = &mut *self.screen;
        screen.step(format!("{name}{shape}: starting"), bar.0, bar.1);
        screen.step_label(format!("{name}{shape}"));
        let before = gathered.slices.len() as f64;
        let (mut runs, mut last) = (0.0, 0.0);
        visit(self.context, kind, shape, effort, parts, gathered, &mut |progress| {
            // Progress that restarts belongs to the next part; the first is the warm-up.
            if progress.done < last {
                runs += 1.0;
            }
            last = progress.done;
            screen.progress(progress, (before + (runs - 1.0_f64).max(0.0) + progress.done) / expected);
        });
    }

    fn keep(
        &mut self,
        kind: ServerKind,
        shape: Shape,
        effort: &Effort,
        is_look: bool,
        gathered: &CellResult,
    ) {
        if gathered.slices.is_empty()
            && gathered.failed.as_ref().is_none_or(|failed| *failed == Failure::Stopped)
        {
            return;
        }
        let users =
            if self.users() == 0 { 0 } else { u32::try_from(effort.portion.users).unwrap_or(u32::MAX) };
        let cell = figures(gathered, shape, users, self.context.cpus.server);
        let measured = Measured {
            server: kind,
            undisturbed: undisturbed(&cell, gathered.slices.iter().map(|slice| slice.starved_seconds).sum()),
            cell,
            look: is_look,
            wanted_spread: effort.spread,
            error_text: gathered.error_text().map(str::to_owned),
            redirects: gathered.slices.iter().any(|slice| slice.redirects),
        };
        self.screen.row(&measured);
        let same = |other: &&mut Measured| {
            !is_look && !other.look && other.server == kind && other.cell.shape() == shape
        };
        match self.done.measured.iter_mut().find(same) {
            Some(before) => *before = measured,
            None => self.done.measured.push(measured),
        }
    }
}

/// Returns the effort of a full measurement, in at least two parts.
fn whole(options: &Options) -> Effort {
    let load = &options.load;
    let amount = match load.amount {
        Amount::Requests(requests) => Amount::Requests(requests.div_ceil(2)),
        Amount::Time(time) => Amount::Time(time / 2),
    };
    Effort {
        portion: Portion { users: load.users, amount, at_most: None },
        parts: 2,
        most: options.shapes.repeats.max(2),
        spread: options.shapes.spread,
        warm_up: load.warm_up,
    }
}

/// Returns the effort of a short look.
fn look(options: &Options, shape: Shape, users: u32) -> Effort {
    let amount = match options.load.amount {
        Amount::Requests(requests) => {
            Amount::Requests((requests / 10).max(2 * u64::from(users)).clamp(10, requests.max(10)))
        }
        Amount::Time(time) => Amount::Time((time / 5).clamp(Duration::from_millis(300), LOOK_AT_MOST)),
    };
    Effort {
        portion: Portion { users: users as usize, amount, at_most: Some(LOOK_AT_MOST) },
        parts: 1,
        most: 1,
        spread: 1.0,
        warm_up: Amount::Requests(u64::from(shape.processes) * 2),
    }
}
