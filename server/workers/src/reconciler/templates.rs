//! The lives of templates, the roles of their generations, and the delays after failed forks.

use super::*;

/// The delay after the first failure. Each further failure doubles it.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_BOOT_WAIT: Duration = Duration::from_secs(10);
const LONGEST_IDLE_WAIT: Duration = Duration::from_secs(2);
/// A worker that exits sooner than this after it became ready, without having served a request, counts as an
/// idle death.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Template {
    Booting { since: Instant },
    Up,
    Gone,
}

/// The purpose of a generation's workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The wanted workers, or the workers that replace them.
    Service,
    /// One worker is tried in addition to the wanted workers. It gets requests only if it has a `share` of
    /// them, in per cent.
    Trial { share: Option<u32> },
    /// The generation has been replaced. Its template stays, so that it can take over again.
    Spare,
    /// The generation is no longer needed. Its template ends as soon as its workers have exited.
    Abandoned,
}

#[derive(Debug)]
pub(super) struct GenerationState {
    pub(super) number: Generation,
    /// The code that its template has loaded.
    pub(super) release: ReleaseId,
    pub(super) template: Template,
    pub(super) role: Role,
    /// Where the template was when it was slow to load the app.
    pub(super) loading: Option<String>,
    /// Whether the template outlives its workers, because it may become a spare.
    pub(super) kept: bool,
    /// Whether one of its workers was ready.
    pub(super) proven: bool,
    /// Consecutive workers that failed before they were ready.
    pub(super) boot_failures: u32,
    /// Consecutive workers that exited right after they were ready, without having served a request.
    idle_deaths: u32,
    not_before: Option<Instant>,
}

impl GenerationState {
    pub(super) fn new(number: Generation, release: ReleaseId, now: Instant) -> GenerationState {
        let template = Template::Booting { since: now };
        GenerationState {
            number,
            release,
            template,
            role: Role::Service,
            loading: None,
            kept: false,
            proven: false,
            boot_failures: 0,
            idle_deaths: 0,
            not_before: None,
        }
    }

    /// Returns whether the template can fork workers that count.
    pub(super) fn can_serve(&self) -> bool {
        self.role == Role::Service && self.template == Template::Up
    }

    /// Returns the delay before the next fork is allowed.
    pub(super) fn wait(&self, now: Instant) -> Option<Duration> {
        self.not_before.map(|at| at.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    pub(super) fn worker_ready(&mut self) {
        (self.proven, self.boot_failures) = (true, 0);
    }

    /// Counts a worker that failed before it was ready.
    pub(super) fn boot_failed(&mut self, now: Instant) {
        self.boot_failures += 1;
        // A single failure after successes may be an accident; a second failure has a cause.
        let counted = self.boot_failures - u32::from(self.proven);
        self.not_before = Some(now + wait(counted, LONGEST_BOOT_WAIT));
    }

    /// Counts the exit of a worker that had been ready since `ready`. Only a short life without a single
    /// request delays the next fork.
    pub(super) fn worker_died(&mut self, ready: Instant, served: bool, now: Instant) {
        if served || now.saturating_duration_since(ready) >= SHORT_LIFE {
            self.idle_deaths = 0;
        } else {
            self.idle_deaths += 1;
            self.not_before = Some(now + wait(self.idle_deaths - 1, LONGEST_IDLE_WAIT));
        }
    }
}

fn wait(failures: u32, longest: Duration) -> Duration {
    failures.checked_sub(1).map_or(Duration::ZERO, |earlier| net::backoff(FIRST_WAIT, earlier, longest))
}

/// The state of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Census {
    /// `Gone` also if there never was one.
    pub(super) template: Template,
    /// Workers that are ready.
    pub(super) ready: usize,
    /// All workers, including those that are leaving.
    pub(super) all: usize,
}

impl Reconciler {
    pub(super) fn census(&self, number: Generation) -> Census {
        let generation = self.generations.iter().find(|generation| generation.number == number);
        Census {
            template: generation.map_or(Template::Gone, |generation| generation.template),
            ready: self
                .workers_of(number)
                .filter(|worker| worker.state == State::Up && !worker.baseline)
                .count(),
            all: self.workers_of(number).count(),
        }
    }

    /// Returns the number of ready workers of other generations than `number`, not counting those on trial.
    pub(super) fn others_ready(&self, number: Generation) -> usize {
        self.workers().filter(|worker| worker.generation != number && self.serves(worker)).count()
    }

    /// Returns whether a worker is ready, and neither on trial nor a baseline.
    pub(super) fn serves(&self, worker: &Worker) -> bool {
        worker.state == State::Up && !worker.baseline && self.is_in_service(worker.generation)
    }

    pub(super) fn is_in_service(&self, number: Generation) -> bool {
        // Generations that were removed from the list have no workers.
        self.generations.iter().any(|g| g.number == number && g.role == Role::Service)
    }

    /// Starts a template with the code in force, unless one in service is booting already.
    pub(super) fn start_template(&mut self) {
        let booting =
            |g: &GenerationState| g.role == Role::Service && matches!(g.template, Template::Booting { .. });
        if self.is_stopping() || self.generations.iter().any(booting) {
            return;
        }
        self.start.retry = None;
        self.begin(Role::Service, self.wish.release);
    }

    /// Starts a template with `code`, whose generation is on trial.
    pub(super) fn start_trial(&mut self, release: ReleaseId) -> Option<Generation> {
        if self.is_stopping() || self.has_trial() {
            return None;
        }
        Some(self.begin(Role::Trial { share: None }, release))
    }

    fn has_trial(&self) -> bool {
        self.generations.iter().any(|generation| matches!(generation.role, Role::Trial { .. }))
    }

    fn begin(&mut self, role: Role, release: ReleaseId) -> Generation {
        let generation = self.add_generation(role, release, self.now);
        if let Some(place) = &mut self.takeover.in_place {
            place.ordered = true;
        }
        self.acts.push(Act::StartTemplate { generation, release });
        generation
    }

    fn add_generation(&mut self, role: Role, release: ReleaseId, begins: Instant) -> Generation {
        self.last_generation += 1;
        let mut generation = GenerationState::new(self.last_generation, release, begins);
        generation.role = role;
        self.generations.push(generation);
        self.last_generation
    }

    /// Begins the generation of the template that a worker of `by` leaves behind.
    pub(super) fn next_template(&mut self, by: Generation) -> Option<Generation> {
        if self.has_trial() {
            return None;
        }
        let release = self.release_of(by).unwrap_or(self.wish.release);
        // The worker finishes its requests first.
        let begins = self.now + self.wish.timeouts.shutdown;
        let generation = self.add_generation(Role::Trial { share: None }, release, begins);
        self.refork_promoted(generation);
        Some(generation)
    }

    /// Lets the worker on trial get this share of the requests, in per cent.
    pub(super) fn open_trial(&mut self, number: Generation, share: u32) {
        let Some(generation) = self.generation(number) else { return };
        if generation.role == (Role::Trial { share: None }) {
            generation.role = Role::Trial { share: Some(share) };
            self.open_all(number, Some(share));
        }
    }

    fn open_all(&mut self, number: Generation, share: Option<u32>) {
        let up = self.workers_of(number).filter(|worker| worker.state == State::Up && !worker.baseline);
        let opens: Vec<Act> = up.map(|worker| Act::Open { serial: worker.serial, share }).collect();
        self.acts.extend(opens);
    }

    /// Lets a generation take over step by step from the one that serves now. Its trial ends.
    pub(super) fn roll(&mut self, number: Generation, step: settings::Step) {
        self.takeover.step = step;
        let Some(at) = self.generations.iter().position(|g| g.number == number) else { return };
        if self.is_stopping() || self.generations[at].role == Role::Abandoned {
            return;
        }
        let mut generation = self.generations.remove(at);
        let on_trial = matches!(generation.role, Role::Trial { .. });
        (generation.role, generation.kept) = (Role::Service, false);
        self.generations.push(generation);
        if on_trial {
            self.open_all(number, None);
        }
        self.balance();
    }

    /// Ends a generation whose trial has failed, or a spare that is no longer needed.
    pub(super) fn abandon(&mut self, number: Generation) {
        let Some(generation) = self.generation(number) else { return };
        if !matches!(generation.role, Role::Trial { .. } | Role::Spare) {
            return;
        }
        generation.role = Role::Abandoned;
        if matches!(generation.template, Template::Booting { .. }) {
            self.end_template(number, TemplateEnd::Abandoned);
        }
        let serials: Vec<Serial> = self.workers_of(number).map(|worker| worker.serial).collect();
        serials.into_iter().for_each(|serial| self.close(serial));
        self.balance();
    }

    /// Keeps the template of a generation after its workers have been replaced.
    pub(super) fn keep(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number) {
            generation.kept = true;
        }
    }

    /// Notes that a kept generation has been replaced: it takes over again only when ordered to.
    pub(super) fn spare(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number).filter(|generation| generation.kept) {
            generation.role = Role::Spare;
        }
    }

    // In place.

    /// Lets only this many workers serve until the next generation has taken over. A template that dies is
    /// not replaced until a generation is ordered.
    pub(super) fn vacate(&mut self, serving: usize) {
        self.takeover.in_place = self.serving().map(|old| InPlace { serving, old, ordered: false });
        self.balance();
    }

    /// Restores the wanted number of workers. The templates may have died meanwhile.
    pub(super) fn reoccupy(&mut self) {
        self.takeover.in_place = None;
        if !self.has_template() {
            self.start_template();
        }
        self.balance();
    }

    /// Returns whether a template in service exists or is booting.
    fn has_template(&self) -> bool {
        self.generations.iter().any(|g| g.role == Role::Service && g.template != Template::Gone)
    }

    /// Ends the templates in service, although their workers keep serving. There is more than one if a
    /// template had died and its successor is booting.
    pub(super) fn retire_templates(&mut self) {
        self.start.retry = None;
        self.end_templates(|_| true);
        self.balance();
    }

    /// Ends the templates in service whose code is neither in force nor brought by a running reload. Such a template was ordered when another code
    /// was in force, to replace one that had died. It would bring that code back if the template of the code in force died now.
    pub(super) fn end_outdated(&mut self) {
        let (release, brought) = (self.wish.release, self.rules.reload.generation());
        if self.is_stopping() || !self.end_templates(|g| g.release != release && Some(g.number) != brought) {
            return;
        }
        if !self.has_template() && self.start.retry.is_none() {
            self.start_template();
        }
        self.balance();
    }

    /// Ends these of the templates in service. Their workers serve until others have replaced them. Returns whether there were any.
    fn end_templates(&mut self, which: impl Fn(&GenerationState) -> bool) -> bool {
        let serves =
            |g: &&GenerationState| g.role == Role::Service && g.template != Template::Gone && which(g);
        let numbers: Vec<(Generation, bool)> =
            self.generations.iter().filter(serves).map(|g| (g.number, g.template == Template::Up)).collect();
        for &(generation, up) in &numbers {
            let why = if up { TemplateEnd::Replaced } else { TemplateEnd::Abandoned };
            self.acts.push(Act::EndTemplate { generation, why });
            self.orphan_workers(generation);
        }
        !numbers.is_empty()
    }

    // The end.

    /// Records where a template is that is slow to load the app.
    pub fn loading(&mut self, number: Generation, backtrace: String) {
        if let Some(generation) = self.generation(number) {
            generation.loading = Some(backtrace);
        }
    }

    pub(super) fn template_booted(&mut self, number: Generation) {
        let booting = |g: &&mut GenerationState| matches!(g.template, Template::Booting { .. });
        if let Some(generation) = self.generation(number).filter(booting) {
            generation.template = Template::Up;
        }
    }

    /// Handles a template that could not be started, could not load the app, or has died.
    pub(super) fn template_failed(&mut self, number: Generation, why: &str) {
        self.rules.reload.template_failed(number, why);
        self.template_gone(number);
    }

    pub(super) fn end_template(&mut self, number: Generation, why: TemplateEnd) {
        if let TemplateEnd::Failed { why, place } = &why {
            let why = format!("its template {why}{place}");
            self.rules.reload.template_failed(number, &why);
        }
        self.acts.push(Act::EndTemplate { generation: number, why });
        self.template_gone(number);
    }

    /// Handles the end of a template. Its workers keep serving as orphans until another generation has taken
    /// over.
    fn template_gone(&mut self, number: Generation) {
        let Some(generation) = self.generation(number).filter(|g| g.template != Template::Gone) else {
            return;
        };
        let (proven, in_trial) = (generation.proven, generation.role != Role::Service);
        if !self.source.can_replace {
            return self.detached(number);
        }
        self.orphan_workers(number);
        if in_trial || self.has_template() {
            return;
        }
        if self.takeover.in_place.is_some_and(|place| !place.ordered) {
            // Memory has room for one template, which is the next one.
            return;
        }
        // A template that never produced a ready worker is not retried at once.
        if let Some(lost) = &mut self.start.lost {
            *lost += 1;
            let lost = *lost;
            self.start.retry = Some(self.now + if lost >= HOPELESS { RETRY } else { RETRY_AT_START });
            if lost == HOPELESS && !self.is_stopping() {
                self.reached(Milestone::Hopeless(Hopeless::Templates));
            }
        } else if proven {
            self.start_template();
        } else {
            self.start.retry = Some(self.now + RETRY);
        }
    }

    /// Ends the server, because the process that is both template and worker has exited or is about to.
    pub(super) fn detached(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number) {
            generation.template = Template::Gone;
        }
        for index in 0..self.slots.workers.len() {
            let Some(worker) = &self.slots.workers[index] else { continue };
            self.acts.push(Act::Close { serial: worker.serial, leaves: None });
            self.gone(index, None, Cause::Ordered);
        }
        (self.wish.phase, self.start.retry) = (Phase::Stopping, None);
    }

    fn orphan_workers(&mut self, number: Generation) {
        if let Some(generation) = self.generation(number) {
            generation.template = Template::Gone;
        }
        for index in 0..self.slots.workers.len() {
            let Some(worker) = self.slots.workers[index].as_ref().filter(|w| w.generation == number) else {
                continue;
            };
            let cause = match worker.state {
                State::Forking => Cause::Crashed,
                State::Ending(cause) => cause,
                _ => Cause::Ordered,
            };
            if worker.state == State::Forking || worker.signs.ended.is_some() {
                self.gone(index, None, cause);
            }
        }
    }
}
