//! Tests the states of a reload one by one, and then rollout and process table together while any process may
//! die.

use super::*;
use crate::spawner::ExitStatus;
use crate::table::{self, Action, Code, Event, FIRST, FIRST_CODE, Row, Table, Timeouts, WorkerExit};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SECOND: Duration = Duration::from_secs(1);
const WANTED: usize = 3;
/// More than the number of moves in the property about workers that are in time.
const MOVES: usize = 200;

/// The front and its processes, as far as both state machines see them.
struct World {
    table: Table,
    rollout: Rollout,
    now: Instant,
    forking: Option<(Generation, u32, u32)>,
    templates: BTreeSet<Generation>,
    booting: Vec<Generation>,
    /// The code of each generation that was started.
    codes: BTreeMap<Generation, Code>,
    /// The code that a reload brings, and the one before.
    new: Code,
    before: Code,
    /// The workers that the front sends requests to.
    open: BTreeSet<u32>,
    orders: Vec<Order>,
    plan: Plan,
    /// The number of old workers that stay in place.
    serving: usize,
}

impl World {
    /// Starts with all workers up.
    fn new(plan: Plan) -> World {
        World::with(WANTED, plan)
    }

    fn with(wanted: usize, plan: Plan) -> World {
        let now = Instant::now();
        let timeouts = Timeouts { boot: 60 * SECOND, shutdown: 30 * SECOND };
        let mut world = World {
            table: Table::new(wanted, 32, timeouts, now),
            rollout: Rollout::new(now),
            now,
            forking: None,
            templates: BTreeSet::from([FIRST]),
            booting: vec![FIRST],
            codes: BTreeMap::from([(FIRST, FIRST_CODE)]),
            new: FIRST_CODE,
            before: FIRST_CODE,
            open: BTreeSet::new(),
            orders: Vec::new(),
            plan,
            serving: 1,
        };
        world.work(20);
        assert_eq!(world.open.len(), wanted);
        world
    }

    fn facts(&self) -> Facts {
        let census = |number: Option<Generation>| self.table.census(number.unwrap_or_default());
        let new = self.rollout.new_generation();
        Facts {
            new: census(new),
            old: census(self.rollout.old_generation()),
            others: self.table.others_ready(new.unwrap_or_default()),
            wanted: self.table.wanted(),
        }
    }

    fn on(&mut self, event: Event) {
        for action in self.table.on(event, self.now) {
            match action {
                Action::Fork { generation, index, serial } => {
                    self.forking = Some((generation, index, serial))
                }
                Action::StartTemplate { generation, code } => {
                    if code == self.new && self.rollout.is_busy() {
                        self.rollout.started(generation);
                    }
                    assert!(self.codes.insert(generation, code).is_none(), "a number is given once");
                    self.templates.insert(generation);
                    self.booting.push(generation);
                }
                Action::EndTemplate { generation, .. } => self.forget(generation),
                Action::Open(serial) => drop(self.open.insert(serial)),
                Action::Close(serial) => drop(self.open.remove(&serial)),
                Action::Gone(WorkerExit { serial, .. }) => drop(self.open.remove(&serial)),
                _ => {}
            }
        }
    }

    fn forget(&mut self, generation: Generation) {
        self.templates.remove(&generation);
        self.booting.retain(|&booting| booting != generation);
        self.forking = self.forking.filter(|(by, ..)| *by != generation);
    }

    fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            match &order {
                Order::Weigh => {
                    let orders = self.rollout.weighed(Ok(self.serving), &self.facts());
                    self.orders.push(order.clone());
                    self.carry_out(orders);
                    continue;
                }
                Order::Vacate(serving) => self.on(Event::Vacate(*serving)),
                Order::Reoccupy => self.on(Event::Reoccupy),
                Order::Retire => self.on(Event::RetireTemplates),
                Order::Restore => self.on(Event::NewGeneration),
                Order::Start => {
                    self.on(Event::TrialGeneration(self.new));
                }
                Order::Keep(generation) => self.on(Event::Keep(*generation)),
                Order::Roll(generation, step) => {
                    self.on(Event::Step(step.of(self.table.wanted())));
                    self.on(Event::Roll(*generation));
                }
                Order::Spare(generation) => self.on(Event::Spare(*generation)),
                Order::Abandon(generation) => self.on(Event::Abandon(*generation)),
                Order::Watch => self.on(Event::OpenTrial(self.rollout.new_generation().unwrap())),
                Order::Finish(outcome) => self.finish(outcome),
                Order::Probe | Order::Say(..) => {}
            }
            self.orders.push(order);
        }
    }

    fn observe(&mut self) {
        loop {
            let orders = self.rollout.observe(&self.facts(), self.now);
            if orders.is_empty() {
                return;
            }
            self.carry_out(orders);
        }
    }

    /// Calls [`World::request`] and returns the number of reloads that this has begun, 0 or 1.
    fn asks_to_reload(&mut self) -> usize {
        let orders = self.orders.len();
        self.request();
        usize::from(self.orders.len() > orders)
    }

    /// Undoes a reload if possible. Returns the number of undos that this has begun, 0 or 1.
    fn asks_to_undo(&mut self) -> usize {
        let was_busy = self.rollout.is_busy();
        let Ok(orders) = self.rollout.undo(&self.facts()) else { return 0 };
        if !was_busy {
            self.on(Event::InForce(self.before));
        }
        self.carry_out(orders);
        usize::from(!was_busy)
    }

    fn request(&mut self) {
        if self.rollout.is_busy() {
            return;
        }
        if let Some(old) = self.table.serving() {
            (self.before, self.new) = (self.table.in_force(), self.new + 1);
            let orders = self.rollout.request(self.plan.clone(), old, self.now);
            self.carry_out(orders);
        }
    }

    /// Checks that the outcome names the code that serves.
    fn finish(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) | Outcome::NoWayBack(_) => {
                assert_eq!(self.codes_that_serve(), BTreeSet::from([self.new]), "{outcome:?}");
                self.on(Event::InForce(self.new));
            }
            Outcome::Undone(_) => {
                assert_eq!(self.codes_that_serve(), BTreeSet::from([self.before]), "{outcome:?}");
                self.on(Event::InForce(self.before));
            }
            Outcome::Failed(_) => {}
        }
    }

    fn codes_that_serve(&self) -> BTreeSet<Code> {
        let open = self.table.rows().filter(|row| self.open.contains(&row.serial));
        open.map(|row| self.codes[&row.generation]).collect()
    }

    /// Returns the code that should serve after the last outcome and after all deaths.
    fn code_to_serve(&self) -> Code {
        match self.outcomes().last() {
            Some(Outcome::Done(_) | Outcome::NoWayBack(_)) => self.new,
            Some(Outcome::Undone(_) | Outcome::Failed(_)) => self.before,
            None => FIRST_CODE,
        }
    }

    fn row(&self, serial: u32) -> Option<Row> {
        self.table.rows().find(|row| row.serial == serial)
    }

    /// Kills a worker as with `kill -9`.
    fn kill_worker(&mut self, serial: u32) {
        let Some(row) = self.row(serial) else { return };
        let is_new = Some(row.generation) == self.rollout.new_generation();
        let orphan = !self.templates.contains(&row.generation);
        let ordered = row.stage == table::Stage::Leaving;
        self.on(if orphan {
            Event::Ended { serial, served: true }
        } else {
            let (generation, status) = (row.generation, ExitStatus::Signal(9));
            Event::Exited { generation, pid: row.pid, status, peak_kib: 1, served: true }
        });
        if is_new && !ordered {
            let orders = self.rollout.worker_died("worker died", &self.facts());
            self.carry_out(orders);
        }
    }

    /// Kills a template as with `kill -9`.
    fn kill_template(&mut self, generation: Generation) {
        if !self.templates.contains(&generation) {
            return;
        }
        self.forget(generation);
        if Some(generation) == self.rollout.new_generation() {
            let orders = self.rollout.boot_failed("it died", &self.facts());
            self.carry_out(orders);
        }
        self.on(Event::TemplateGone(generation));
    }

    fn boot(&mut self) {
        if let Some(generation) = self.booting.pop() {
            self.on(Event::TemplateBooted(generation));
        }
    }

    fn fork(&mut self) {
        if let Some((generation, index, serial)) = self.forking.take() {
            self.on(Event::Forked { generation, index, pid: 100 + serial });
        }
    }

    fn answer(&mut self, probe: Result<String, String>) {
        let orders = self.rollout.probed(probe, &self.facts(), self.now);
        self.carry_out(orders);
    }

    fn judge(&mut self, verdict: Result<String, String>) {
        let orders = self.rollout.judged(verdict, &self.facts());
        self.carry_out(orders);
    }

    /// Lets some time pass in which everything works.
    fn work(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now += SECOND / 10;
            self.on(Event::Tick);
            self.boot();
            self.fork();
            let rows: Vec<Row> = self.table.rows().collect();
            for row in rows {
                match row.stage {
                    table::Stage::Booting => self.on(Event::Ready(row.serial)),
                    table::Stage::Up => {}
                    table::Stage::Leaving => self.kill_worker(row.serial),
                }
            }
            self.answer(Ok("200".to_owned()));
            if self.rollout.has_watched(self.now) {
                self.judge(Ok("as before".to_owned()));
            }
            self.observe();
        }
    }

    fn generations(&self) -> BTreeSet<Generation> {
        self.table.rows().map(|row| row.generation).collect()
    }

    fn outcomes(&self) -> Vec<&Outcome> {
        fn outcome(order: &Order) -> Option<&Outcome> {
            if let Order::Finish(outcome) = order { Some(outcome) } else { None }
        }
        self.orders.iter().filter_map(outcome).collect()
    }
}

fn plan() -> Plan {
    Plan { probe: true, watch: Some(SECOND), keep: 30 * SECOND, ..Plan::default() }
}

#[test]
fn new_code_proves_itself_and_takes_over_and_the_old_template_stays_for_a_while() {
    let mut world = World::new(plan());
    world.request();
    world.work(60);
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
    assert_eq!(world.generations(), BTreeSet::from([2]));
    assert_eq!(world.templates, BTreeSet::from([1, 2]), "the old template is kept");
    assert_eq!(world.rollout.stage(), Some(Stage::Settling));
    world.now += 30 * SECOND;
    world.work(1);
    assert_eq!((world.templates.len(), world.rollout.stage()), (1, None));
}

#[test]
fn the_way_back_needs_no_boot() {
    let mut world = World::new(plan());
    world.request();
    world.work(60);
    let orders = world.rollout.undo(&world.facts()).unwrap();
    world.carry_out(orders);
    assert!(world.booting.is_empty());
    world.work(20);
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_), Outcome::Undone(_)]), "{:?}", world.orders);
    assert_eq!((world.generations(), &world.templates), (BTreeSet::from([1]), &BTreeSet::from([1])));
    assert!(world.rollout.undo(&world.facts()).is_err(), "there is nothing more to undo");
}

#[test]
fn an_app_that_cannot_be_loaded_changes_nothing() {
    let mut world = World::new(plan());
    let before = world.open.clone();
    world.request();
    world.kill_template(2);
    world.observe();
    let Outcome::Failed(why) = world.outcomes()[0] else { panic!("{:?}", world.orders) };
    assert_eq!(why, "it died");
    assert_eq!((&world.open, world.rollout.stage()), (&before, None));
}

#[test]
fn a_hang_at_boot_ends_with_the_boot_timeout() {
    let mut world = World::new(plan());
    world.request();
    world.booting.clear();
    world.now += 61 * SECOND;
    world.work(1);
    assert!(matches!(world.outcomes()[..], [Outcome::Failed(_)]), "{:?}", world.orders);
    assert_eq!(world.templates, BTreeSet::from([1]));
}

#[test]
fn a_template_that_does_not_fork_in_time_counts_as_frozen_and_ends_the_trial() {
    let mut world = World::new(plan());
    world.request();
    world.boot();
    assert_eq!(world.forking.map(|(generation, ..)| generation), Some(2));
    world.now += table::ORDER_TIMEOUT - SECOND;
    world.on(Event::Tick);
    assert!(world.templates.contains(&2), "it has time");
    world.now += 2 * SECOND;
    world.on(Event::Tick);
    world.work(10);
    assert!(matches!(world.outcomes()[..], [Outcome::Failed(_)]), "{:?}", world.orders);
    assert_eq!((world.generations(), world.templates), (BTreeSet::from([1]), BTreeSet::from([1])));
}

#[test]
fn a_probe_that_fails_ends_the_trial_without_a_request_of_a_client() {
    let mut world = World::new(plan());
    world.request();
    world.boot();
    world.fork();
    world.on(Event::Ready(4));
    world.observe();
    assert_eq!(world.rollout.stage(), Some(Stage::Probing));
    assert!(!world.open.contains(&4));
    world.answer(Err("GET /up returned 500".to_owned()));
    world.work(10);
    assert_eq!(world.outcomes(), [&Outcome::Failed("GET /up returned 500".to_owned())]);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([1]), WANTED));
}

#[test]
fn a_verdict_against_it_ends_the_trial() {
    let mut world = World::new(plan());
    world.request();
    world.work(5);
    assert_eq!(world.rollout.stage(), Some(Stage::Watching));
    world.judge(Err("30 % of its requests raise".to_owned()));
    world.work(10);
    assert!(matches!(world.outcomes()[..], [Outcome::Failed(_)]));
    assert_eq!(world.generations(), BTreeSet::from([1]));
}

#[test]
fn one_death_while_workers_take_over_is_an_accident_and_three_are_not() {
    let mut world = World::new(Plan { keep: SECOND, ..Plan::default() });
    world.request();
    let mut killed = 0;
    while world.outcomes().is_empty() && killed < 20 {
        world.boot();
        world.fork();
        world.observe();
        let booting = world.table.rows().find(|row| row.stage == table::Stage::Booting);
        if let Some(row) = booting {
            world.on(Event::Ready(row.serial));
            world.observe();
            if world.rollout.stage() == Some(Stage::Rolling) && world.facts().new.ready > 1 {
                world.kill_worker(row.serial);
                killed += 1;
            }
        }
        world.now += SECOND;
        world.on(Event::Tick);
        if world.rollout.stage() == Some(Stage::Reverting) {
            break;
        }
    }
    assert_eq!(killed, 3);
    world.work(30);
    assert!(matches!(world.outcomes()[..], [Outcome::Failed(_)]), "{:?}", world.orders);
    assert_eq!(world.generations(), BTreeSet::from([1]));
}

#[test]
fn a_new_template_that_dies_while_workers_are_replaced_brings_the_old_ones_back() {
    let mut world = World::new(Plan { keep: SECOND, ..Plan::default() });
    world.request();
    while world.rollout.stage() != Some(Stage::Rolling) {
        world.work(1);
    }
    world.kill_template(2);
    world.observe();
    world.work(30);
    assert!(matches!(world.outcomes()[..], [Outcome::Failed(_)]), "{:?}", world.orders);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([1]), WANTED));
}

#[test]
fn without_an_old_template_there_is_no_way_back() {
    let mut world = World::new(Plan { keep: SECOND, ..Plan::default() });
    world.request();
    while world.rollout.stage() != Some(Stage::Rolling) {
        world.work(1);
    }
    let orders = world.rollout.undo(&world.facts()).unwrap();
    world.carry_out(orders);
    world.kill_template(1);
    world.work(30);
    assert!(matches!(world.outcomes()[..], [Outcome::NoWayBack(_)]), "{:?}", world.orders);
    assert_eq!((world.generations(), world.open.len()), (BTreeSet::from([2]), WANTED));
}

#[test]
fn the_spare_does_not_serve_when_the_template_dies_in_which_the_new_code_is() {
    let mut world = World::new(plan());
    world.request();
    world.work(60);
    world.kill_template(2);
    assert_eq!(world.booting, [3], "new code again, not the old");
    world.work(40);
    assert_eq!(world.generations(), BTreeSet::from([3]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// Any process may be killed at any time, and orders may come at any time. No order removes a worker that
    /// is needed. When everything works again, one generation serves with all its workers, nothing is left
    /// behind, and each reload has ended exactly once.
    #[test]
    fn whatever_dies(steps in proptest::collection::vec((0u8..16, 1u32..16), 1..120), probe: bool, watch: bool, step in 1u32..4) {
        let plan = Plan { probe, watch: watch.then_some(SECOND), step: Step::Workers(step), keep: 5 * SECOND, ..Plan::default() };
        let mut world = World::new(plan);
        let mut asked = 0;
        for (step, number) in steps {
            let before = world.open.len();
            let mut takes_away = false;
            match step {
                0 | 1 if !world.rollout.is_busy() => asked += world.asks_to_reload(),
                2 => asked += world.asks_to_undo(),
                3 => {
                    takes_away = true;
                    world.kill_worker(number);
                }
                4 => world.kill_template(number % 6 + 1),
                5 => world.answer(Err("500".to_owned())),
                6 => world.judge(Err("worse".to_owned())),
                7 | 8 => world.boot(),
                9 | 10 => world.fork(),
                11 | 12 => world.on(Event::Ready(number)),
                13 => world.answer(Ok("200".to_owned())),
                14 => {
                    if world.rollout.has_watched(world.now) {
                        world.judge(Ok("as before".to_owned()));
                    }
                }
                _ => {
                    world.now += 2 * SECOND;
                    world.on(Event::Tick);
                    // Deadlines of the table may kill workers that drain or boot, but none that serves.
                }
            }
            if !takes_away {
                prop_assert!(world.open.len() >= before.min(WANTED), "step {step}: {before} to {}", world.open.len());
            }
            let before = world.open.len();
            world.observe();
            prop_assert!(world.open.len() >= before.min(WANTED), "observing: {before} to {}", world.open.len());
        }
        world.work(150);
        world.now += 30 * SECOND;
        world.work(150);
        prop_assert!(!world.rollout.is_busy(), "{:?}", world.rollout);
        prop_assert_eq!(world.outcomes().len(), asked);
        prop_assert_eq!(world.open.len(), WANTED);
        prop_assert_eq!(world.table.rows().count(), WANTED);
        prop_assert_eq!(world.generations().len(), 1);
        prop_assert_eq!(&world.templates, &world.generations());
        prop_assert_eq!(world.codes_that_serve(), BTreeSet::from([world.code_to_serve()]), "{:?}", world.orders);
    }
}

impl World {
    /// Returns the number of workers that boot or serve, including those on trial.
    fn staying(&self) -> usize {
        self.table.rows().filter(|row| row.stage != table::Stage::Leaving).count()
    }
}

#[test]
fn a_step_replaces_as_many_at_a_time() {
    let mut world = World::with(4, Plan { step: Step::Percent(50), ..Plan::default() });
    world.request();
    world.boot();
    let mut most = 0;
    for _ in 0..20 {
        // Forked one after the other, and ready at the same time.
        for _ in 0..4 {
            world.fork();
        }
        most = most.max(world.staying());
        let booting: Vec<u32> = world
            .table
            .rows()
            .filter(|row| row.stage == table::Stage::Booting)
            .map(|row| row.serial)
            .collect();
        for serial in booting {
            world.on(Event::Ready(serial));
            world.observe();
        }
    }
    assert_eq!(most, 6, "two more than wanted");
    assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// For any order of forks and workers, as long as none is late: there are never fewer ready workers than
    /// wanted, and never more staying workers than wanted plus a step plus the one on trial.
    #[test]
    fn a_step_bounds_the_workers_on_both_sides(
        moves in proptest::collection::vec((0u8..8, 1u32..40), 1..MOVES),
        wanted in 1usize..8,
        step in 1u32..10,
        watch: bool,
    ) {
        let step = Step::Workers(step);
        // However many moves a fork waits for: a template that is late with it counts as frozen, and the
        // reload fails.
        let pause = table::ORDER_TIMEOUT / 2 / MOVES as u32;
        let plan = Plan { probe: watch, watch: watch.then_some(pause), step, keep: pause, ..Plan::default() };
        let mut world = World::with(wanted, plan);
        world.request();
        for (what, number) in moves {
            match what {
                0 => world.boot(),
                1 | 2 => world.fork(),
                3..=5 => world.on(Event::Ready(number)),
                6 => {
                    let row = world.row(number);
                    if row.is_some_and(|row| row.stage == table::Stage::Leaving) {
                        world.kill_worker(number);
                    }
                }
                _ => {
                    world.now += pause;
                    world.answer(Ok("200".to_owned()));
                    if world.rollout.has_watched(world.now) {
                        world.judge(Ok("as before".to_owned()));
                    }
                }
            }
            world.observe();
            prop_assert!(world.open.len() >= wanted, "{} of {wanted} ready", world.open.len());
            let rolling = world.rollout.stage() == Some(Stage::Rolling);
            let most = wanted + if rolling { step.of(wanted) } else { 1 };
            prop_assert!(world.staying() <= most, "{} workers, {most} allowed", world.staying());
        }
        world.work(150);
        prop_assert!(matches!(world.outcomes()[..], [Outcome::Done(_)]), "{:?}", world.orders);
        prop_assert_eq!((world.open.len(), world.generations()), (wanted, BTreeSet::from([2])));
    }
}

#[path = "rollout_in_place_tests.rs"]
mod in_place;
