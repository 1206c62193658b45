//! The front and its processes in tests: carries out the acts of a reconciler, and checks after each that they
//! make sense.

use super::*;
use crate::process::ExitStatus;
use crate::trial;
use stats::{ReloadOutcome, ReloadWish};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const TIMEOUTS: Timeouts =
    Timeouts { boot: Duration::from_secs(60), shutdown: Duration::from_secs(30), worker: None };

pub(super) struct World {
    pub(super) machine: Reconciler,
    pub(super) now: Instant,
    pub(super) forking: Option<(Generation, u32, Serial)>,
    pub(super) templates: BTreeSet<Generation>,
    pub(super) booting: Vec<Generation>,
    /// The code of each generation that was started.
    pub(super) releases: BTreeMap<Generation, ReleaseId>,
    /// The workers that the front sends requests to.
    pub(super) open: BTreeSet<Serial>,
    /// The workers whose fork was ordered, and those that were reported gone.
    begun: BTreeSet<Serial>,
    gone: BTreeSet<Serial>,
    /// The pool of each worker.
    begun_in: BTreeMap<Serial, PoolIndex>,
    pub(super) plan: Plan,
    /// The workers whose responses to copies of requests the front compares.
    compared: Option<(Serial, Serial)>,
    /// The number of old workers that stay in place; 0: memory has room for both versions.
    pub(super) serving: usize,
    pub(super) acts: Vec<Act>,
}

pub(super) fn wish(counts: Vec<usize>) -> Wish {
    Wish {
        release: FIRST_RELEASE,
        counts: (0..).map(PoolIndex).zip(counts).collect(),
        limits: recycle::Limits::default(),
        refork_after: None,
        timeouts: TIMEOUTS,
        phase: Phase::Serving,
    }
}

impl World {
    /// Starts with a booting template.
    pub(super) fn booting(counts: Vec<usize>, source: Capabilities) -> World {
        let now = Instant::now();
        let range = settings::Workers::exactly(counts[0] as u32);
        let slots = if source.can_replace { 32 } else { 1 };
        World {
            machine: Reconciler::new(source, wish(counts), slots, range, now),
            now,
            forking: None,
            templates: BTreeSet::from([FIRST]),
            booting: vec![FIRST],
            releases: BTreeMap::from([(FIRST, FIRST_RELEASE)]),
            open: BTreeSet::new(),
            begun: BTreeSet::new(),
            gone: BTreeSet::new(),
            begun_in: BTreeMap::new(),
            plan: Plan::default(),
            compared: None,
            serving: 0,
            acts: Vec::new(),
        }
    }

    /// Starts with all workers up.
    pub(super) fn with(wanted: usize, plan: Plan) -> World {
        let mut world = World::booting(vec![wanted], Capabilities::TEMPLATE);
        world.work(20);
        assert_eq!(world.open.len(), wanted);
        world.plan = plan;
        world.acts.clear();
        world
    }

    pub(super) fn see(&mut self, seen: Change) -> Vec<Act> {
        let acts = self.machine.see(seen, self.now);
        self.carry_out(acts)
    }

    /// Carries out acts and what follows from them, and returns all of them.
    pub(super) fn carry_out(&mut self, acts: Vec<Act>) -> Vec<Act> {
        let (mut left, mut all) = (VecDeque::from(acts), Vec::new());
        while let Some(act) = left.pop_front() {
            let seen = match &act {
                Act::Try(Trial::Read(release)) => Some(Change::Read(*release, Ok(self.plan.clone()))),
                Act::Try(Trial::Weigh) => Some(Change::Weighed(self.figures())),
                _ => None,
            };
            self.act(&act);
            self.acts.push(act.clone());
            all.push(act);
            if let Some(seen) = seen {
                left.extend(self.machine.see(seen, self.now));
            }
        }
        self.check_releases();
        all
    }

    /// Returns figures with which `serving` workers stay in place.
    fn figures(&self) -> trial::Figures {
        let leaving = self.machine.wanted().saturating_sub(self.serving).max(1) as u64;
        let available = (self.serving > 0).then_some(0);
        trial::Figures { available, template: (leaving - 1) * 10, template_alone: 0, worker: 10 }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Fork { generation, pool, index, serial } => {
                self.begun_in.insert(*serial, *pool);
                assert!(self.templates.contains(generation), "a fork without a template");
                assert!(self.forking.replace((*generation, *index, *serial)).is_none(), "two forks");
                assert!(self.begun.insert(*serial), "a number is given once");
            }
            Act::StartTemplate { generation, release } => {
                assert!(self.releases.insert(*generation, *release).is_none(), "a number is given once");
                self.templates.insert(*generation);
                self.booting.push(*generation);
            }
            Act::Close { serial, leaves } => {
                self.open.remove(serial);
                if let Some(generation) = leaves {
                    let pool = self.begun_in.get(serial).copied();
                    assert_eq!(
                        pool,
                        Some(PoolIndex::DEFAULT),
                        "a template has the memory of a worker of the default pool"
                    );
                    assert!(
                        self.machine.up(PoolIndex::DEFAULT) >= self.machine.wish.counts[&PoolIndex::DEFAULT],
                        "it has a successor"
                    );
                    let release = self.machine.release_of(*generation).unwrap();
                    assert!(self.releases.insert(*generation, release).is_none(), "a number is given once");
                    self.templates.insert(*generation);
                    self.booting.push(*generation);
                }
            }
            Act::EndTemplate { generation, .. } => {
                assert!(self.templates.contains(generation), "it has ended already");
                self.forget(*generation);
            }
            Act::Try(Trial::Shadow { old, new, .. }) => self.compared = Some((*old, *new)),
            Act::Open { serial, share: None } => drop(self.open.insert(*serial)),
            Act::Gone(exit) => {
                self.open.remove(&exit.serial);
                self.forking = self.forking.filter(|(.., serial)| *serial != exit.serial);
                assert!(self.begun.contains(&exit.serial), "never forked");
                assert!(self.gone.insert(exit.serial), "gone twice");
            }
            Act::Reached(Milestone::Reloaded { outcome, release, .. }) => {
                use ReloadOutcome::{Done, NoWayBack, Undone};
                let names_code = matches!(outcome, Done | NoWayBack)
                    || (*outcome == Undone && self.last_words() == Some("reload: the old code serves again"));
                if names_code {
                    assert_eq!(self.releases_that_serve(), BTreeSet::from([*release]), "{outcome:?}");
                }
            }
            _ => {}
        }
    }

    /// Workers that serve have the code in force, or that of the running reload; or their template has died, and others will replace them.
    fn check_releases(&self) {
        let brought = self.machine.rules.reload.generation();
        let in_force = self.machine.wish().release;
        let serves = |row: &Row| self.open.contains(&row.serial) && self.templates.contains(&row.generation);
        for Row { serial, generation, .. } in self.machine.rows().filter(serves) {
            let release = self.releases[&generation];
            assert!(
                release == in_force || brought == Some(generation),
                "worker {serial} serves with release {release}, and {in_force} is in force"
            );
        }
    }

    fn last_words(&self) -> Option<&str> {
        self.acts.iter().rev().find_map(|act| match act {
            Act::Log(text) => Some(text.as_str()),
            _ => None,
        })
    }

    fn forget(&mut self, generation: Generation) {
        self.templates.remove(&generation);
        self.booting.retain(|&booting| booting != generation);
        self.forking = self.forking.filter(|(by, ..)| *by != generation);
    }

    pub(super) fn releases_that_serve(&self) -> BTreeSet<ReleaseId> {
        let open = self.machine.rows().filter(|row| self.open.contains(&row.serial));
        open.map(|row| self.releases[&row.generation]).collect()
    }

    /// Returns the number of workers of a pool that the front sends requests to.
    pub(super) fn open_in(&self, pool: PoolIndex) -> usize {
        self.open.iter().filter(|serial| self.begun_in[*serial] == pool).count()
    }

    pub(super) fn generations(&self) -> BTreeSet<Generation> {
        self.machine.rows().map(|row| row.generation).collect()
    }

    pub(super) fn up(&self) -> Vec<Serial> {
        self.machine.rows().filter(|row| row.state == WorkerState::Ready).map(|row| row.serial).collect()
    }

    /// Returns how the reloads have ended.
    pub(super) fn outcomes(&self) -> Vec<(ReloadOutcome, String)> {
        let outcome = |act: &Act| match act {
            Act::Reached(Milestone::Reloaded { outcome, text, .. }) => Some((*outcome, text.clone())),
            _ => None,
        };
        self.acts.iter().filter_map(outcome).collect()
    }

    pub(super) fn outcome_kinds(&self) -> Vec<ReloadOutcome> {
        self.outcomes().into_iter().map(|(outcome, _)| outcome).collect()
    }

    pub(super) fn said(&self, text: &str) -> bool {
        self.acts.iter().any(|act| matches!(act, Act::Log(line) if line.contains(text)))
    }

    pub(super) fn stage(&self) -> Option<&'static str> {
        self.machine.reload_stage(self.now).map(|(_, stage, _)| stats::CountedKind::name(stage))
    }

    /// Requests a reload and returns the number of reloads that this has begun, 0 or 1.
    pub(super) fn reload(&mut self) -> usize {
        let wish = if self.serving > 0 { ReloadWish::InPlace } else { ReloadWish::Reload };
        let acts = self.machine.reload(wish, None, self.now);
        self.begins(acts)
    }

    /// Undoes a reload. Returns the number of undos that this has begun, 0 or 1.
    pub(super) fn undo(&mut self) -> usize {
        let acts = self.machine.reload(ReloadWish::Undo, None, self.now);
        self.begins(acts)
    }

    fn begins(&mut self, acts: Vec<Act>) -> usize {
        let acts = self.carry_out(acts);
        acts.iter().filter(|act| matches!(act, Act::Reached(Milestone::Began(ReloadKind::Reload)))).count()
    }

    pub(super) fn tick(&mut self) {
        self.see(Change::Tick);
    }

    pub(super) fn boot(&mut self) {
        self.boot_one(0);
    }

    /// Lets the template boot that was ordered last, or so many before it: none has to wait for another one.
    fn boot_one(&mut self, place: u32) {
        let Some(behind) = place.checked_rem(self.booting.len() as u32) else { return };
        let generation = self.booting.remove(self.booting.len() - 1 - behind as usize);
        self.see(Change::Template { generation, usable: Ok(()) });
    }

    pub(super) fn fork(&mut self) {
        if let Some((generation, index, serial)) = self.forking.take() {
            self.see(Change::Forked { generation, index, pid: Some(100 + serial) });
        }
    }

    pub(super) fn ready(&mut self, serial: Serial) {
        self.see(Change::Ready(serial));
    }

    pub(super) fn answer(&mut self, result: Result<&str, &str>) {
        if self.stage() == Some("probing") {
            self.see(Change::Tried(result.map(str::to_owned).map_err(str::to_owned)));
        }
    }

    /// Gives the verdict of the comparison, if those workers still are what is compared.
    pub(super) fn judge(&mut self, result: Result<&str, &str>) {
        let pair = self.machine.shadowed(self.now).map(|(old, new, _)| (old, new));
        if (pair.is_some() && pair == self.compared) || self.machine.watched(self.now).is_some() {
            self.see(Change::Tried(result.map(str::to_owned).map_err(str::to_owned)));
        }
    }

    pub(super) fn row(&self, serial: Serial) -> Option<Row> {
        self.machine.rows().find(|row| row.serial == serial)
    }

    /// Lets a template boot or fork, or a worker become ready or leave, as `what` says. Returns whether there is such a step.
    pub(super) fn advance(&mut self, what: u8, serial: Serial) -> bool {
        match what {
            0 => self.boot_one(serial),
            1 | 2 => self.fork(),
            3..=5 => self.ready(serial),
            6 if self.row(serial).is_some_and(|row| row.state == WorkerState::Draining) => {
                self.kill_worker(serial)
            }
            6 => {}
            _ => return false,
        }
        true
    }

    /// Kills a worker as with `kill -9`.
    pub(super) fn kill_worker(&mut self, serial: Serial) {
        let Some(row) = self.row(serial) else { return };
        let end = if self.templates.contains(&row.generation) {
            End::Reported { status: ExitStatus::Signal(9), peak_kib: 1 }
        } else {
            End::Process
        };
        self.see(Change::Ended { serial, served: true, end });
    }

    /// Kills a template as with `kill -9`.
    pub(super) fn kill_template(&mut self, generation: Generation) {
        if self.templates.contains(&generation) {
            self.forget(generation);
            self.see(Change::Template { generation, usable: Err("it died".to_owned()) });
        }
    }

    /// Lets some time pass in which everything works.
    pub(super) fn work(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.now += SECOND / 10;
            self.tick();
            self.boot();
            self.fork();
            let rows: Vec<Row> = self.machine.rows().collect();
            for row in rows {
                match row.state {
                    WorkerState::Booting => self.ready(row.serial),
                    WorkerState::Ready => drop(self.see(Change::Health(row.serial, Health::Resumed))),
                    WorkerState::Draining => self.kill_worker(row.serial),
                    WorkerState::Gone => {}
                }
            }
            self.answer(Ok("200"));
            let shadowed = self.machine.shadowed(self.now).is_some_and(|(.., over)| over);
            if shadowed || self.machine.watched(self.now).is_some_and(|(_, over)| over) {
                self.judge(Ok("as before"));
            }
        }
    }

    /// Checks the state after everything has worked for a while: one generation serves with all its workers,
    /// nothing is left behind, and the code in force serves.
    pub(super) fn check_rest(&self) {
        assert!(!self.machine.is_reloading(), "{:?}", self.machine);
        assert_eq!(self.open.len(), self.machine.wanted());
        assert_eq!(self.machine.rows().count(), self.machine.wanted());
        assert_eq!(self.generations().len(), 1);
        assert_eq!(self.templates, self.generations());
        assert_eq!(self.begun.len(), self.gone.len() + self.machine.wanted());
        assert_eq!(self.releases_that_serve(), BTreeSet::from([self.machine.wish().release]));
    }

    /// Lets a step take place: `what` happens to the process with this number.
    pub(super) fn step(&mut self, what: Step, number: u32) {
        match what {
            Step::Boot => self.boot_one(number),
            Step::Fork => self.fork(),
            Step::Ready => self.ready(number),
            Step::KillWorker => self.kill_worker(number),
            Step::KillTemplate => self.kill_template(number % 6 + 1),
            Step::LoseLink => {
                drop(self.see(Change::Ended { serial: number, served: true, end: End::Link }));
            }
            Step::Health(health) => drop(self.see(Change::Health(number, health))),
            Step::Size(more) => {
                let acts = self.machine.resize(more, false, self.now);
                self.carry_out(acts);
            }
            Step::Pools(count) => {
                let acts = self.machine.set_pools(&[0, count], self.now);
                self.carry_out(acts);
            }
            Step::Warm => {
                let figures = |serial| recycle::Figures { serial, age: SECOND, requests: 99, pss: None };
                let figures = self.up().into_iter().map(figures).collect();
                self.see(Change::Workers(figures));
            }
            Step::Wait => {
                self.now += 2 * SECOND;
                self.tick();
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Boot,
    Fork,
    Ready,
    KillWorker,
    KillTemplate,
    LoseLink,
    Health(Health),
    Size(bool),
    /// Settings change the number of workers of the second pool, if there is one.
    Pools(usize),
    /// The workers have served enough requests for a refork.
    Warm,
    Wait,
}

/// Generates steps, each with the number of a process.
pub(super) fn steps() -> impl proptest::strategy::Strategy<Value = (Step, u32)> {
    use proptest::prelude::*;
    let health = prop_oneof![
        Just(Health::Stopping),
        Just(Health::Suspended { idle_thread: true }),
        Just(Health::Resumed),
        Just(Health::Frozen),
        Just(Health::Stuck),
        Just(Health::OthersFinished),
    ];
    let step = prop_oneof![
        3 => Just(Step::Boot),
        4 => Just(Step::Fork),
        4 => Just(Step::Ready),
        2 => Just(Step::KillWorker),
        2 => Just(Step::KillTemplate),
        1 => Just(Step::LoseLink),
        2 => health.prop_map(Step::Health),
        1 => any::<bool>().prop_map(Step::Size),
        1 => (1usize..4).prop_map(Step::Pools),
        1 => Just(Step::Warm),
        3 => Just(Step::Wait),
    ];
    (step, 1u32..16)
}
