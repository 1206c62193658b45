//! The rule that closes the gap between the wanted and the actual workers, and the limits of all waits.

use super::*;

impl Reconciler {
    pub(super) fn balance(&mut self) {
        if self.is_stopping() {
            if self.workers().next().is_none() {
                self.reached(Milestone::Empty);
            }
            return;
        }
        let pools: Vec<PoolIndex> = self.pools().collect();
        pools.into_iter().for_each(|pool| self.close_surplus(pool));
        self.end_in_place();
        self.end_replaced();
        self.settle();
        if self.workers().all(|worker| worker.state != State::Forking) {
            if let Some((generation, pool)) = self.next_fork() {
                self.fork(generation, pool, false);
            } else if let Some(old) = self.needs_baseline() {
                self.fork(old, PoolIndex::DEFAULT, true);
            }
        }
    }

    fn pools(&self) -> impl Iterator<Item = PoolIndex> {
        self.wish.counts.keys().copied()
    }

    /// Returns the generation that takes over or has taken over.
    pub(super) fn newest(&self) -> Option<&GenerationState> {
        self.generations.iter().rfind(|generation| generation.can_serve())
    }

    pub(super) fn newest_number(&self) -> Generation {
        self.newest().map_or(0, |generation| generation.number)
    }

    /// Returns the workers of a pool that count.
    fn counting(&self, pool: PoolIndex) -> impl Iterator<Item = &Worker> {
        let counts = move |worker: &&Worker| {
            worker.pool == pool && worker.counts(self.now) && self.is_in_service(worker.generation)
        };
        self.workers().filter(counts)
    }

    /// Returns the wanted number of workers of a pool, which is reduced while they make room in place.
    fn target(&self, pool: PoolIndex) -> usize {
        let count = self.wish.counts[&pool];
        self.takeover.in_place.map_or(count, |place| {
            (place.serving * count).div_ceil(self.wanted().max(1)).clamp(1, count.max(1))
        })
    }

    /// Returns whether another worker may exist. In place, workers that are leaving count too.
    fn has_room(&self) -> bool {
        let most = || self.pools().map(|pool| self.target(pool)).sum::<usize>();
        self.takeover.in_place.is_none() || self.workers().count() <= most()
    }

    /// Ends the reload in place once all workers belong to the new generation. From then on, the full number
    /// is wanted again.
    fn end_in_place(&mut self) {
        let Some(place) = self.takeover.in_place else { return };
        let newest = self.newest().filter(|newest| newest.proven && newest.number > place.old);
        if newest.is_some_and(|newest| self.workers().all(|w| w.generation == newest.number)) {
            self.takeover.in_place = None;
        }
    }

    /// Returns how many workers of a pool may exist beyond the wanted ones, because successors have to be
    /// ready first: a step for old generations, one worker for recycling.
    fn surge(&self, pool: PoolIndex, newest: Generation) -> usize {
        let outdated = || self.counting(pool).filter(|worker| newest > 0 && worker.is_outdated(newest));
        if self.takeover.in_place.is_none() && outdated().any(|worker| worker.generation != newest) {
            self.takeover.step.of(self.wish.counts[&pool])
        } else {
            usize::from(outdated().next().is_some())
        }
    }

    /// Closes workers that are not needed. Old and recycled workers leave when the wanted number is up
    /// without them, other workers when there are too many. The youngest leaves first, because its caches are
    /// the coldest.
    fn close_surplus(&mut self, pool: PoolIndex) {
        let newest = self.newest_number();
        let proven = self.newest().is_some_and(|generation| generation.proven);
        loop {
            let counting = || self.counting(pool);
            let closable = || counting().filter(|worker| worker.state != State::Forking);
            let old = closable().filter(|w| w.is_outdated(newest)).max_by_key(|worker| worker.serial);
            let up = counting().filter(|worker| worker.state == State::Up).count();
            let (target, surge) = (self.target(pool), self.surge(pool, newest));
            let surplus = counting().count() > target + surge;
            let forking = counting().any(|worker| worker.state == State::Forking);
            let victim = match old {
                Some(old) if proven && up > target => Some(old),
                // Workers that serve nothing yet go first. A worker whose fork is in progress is closed
                // later.
                _ if surplus => closable()
                    .max_by_key(|w| (w.state != State::Up, proven && w.is_outdated(newest), w.serial))
                    .filter(|worker| worker.state != State::Up || !forking || surge > 0),
                _ => None,
            };
            let Some(serial) = victim.map(|worker| worker.serial) else { return };
            self.make_room(serial);
        }
    }

    /// Ends templates that a newer generation has replaced, and removes generations without template and
    /// workers.
    fn end_replaced(&mut self) {
        let proven = self.newest().filter(|generation| generation.proven).map(|generation| generation.number);
        let workers = &self.slots.workers;
        let is_empty = |number| workers.iter().flatten().all(|worker| worker.generation != number);
        for generation in &mut self.generations {
            let replaced = match generation.role {
                Role::Service => proven.is_some_and(|newest| newest != generation.number) && !generation.kept,
                Role::Trial { .. } | Role::Spare => false,
                Role::Abandoned => true,
            };
            if replaced && generation.template == Template::Up && is_empty(generation.number) {
                generation.template = Template::Gone;
                let (generation, why) = (generation.number, TemplateEnd::Replaced);
                self.acts.push(Act::EndTemplate { generation, why });
            }
        }
        self.generations.retain(|one| one.template != Template::Gone || !is_empty(one.number));
    }

    fn settle(&mut self) {
        let up = |pool| self.counting(pool).filter(|worker| worker.state == State::Up).count();
        let waiting = self.newest().is_some_and(|generation| generation.wait(self.now).is_some());
        let mut pools = self.wish.counts.iter();
        let is_up = pools.all(|(&pool, count)| up(pool) >= *count || (waiting && up(pool) > 0));
        if !self.start.settled && is_up {
            self.start.settled = true;
            self.reached(Milestone::Settled);
        }
    }

    /// Returns the generation from which the next worker is forked, if one is needed now, and its pool. A
    /// worker on trial comes after the wanted ones.
    fn next_fork(&self) -> Option<(Generation, PoolIndex)> {
        self.next_wanted().or_else(|| {
            let untried = |g: &&GenerationState| {
                matches!(g.role, Role::Trial { .. })
                    && g.template == Template::Up
                    && g.wait(self.now).is_none()
                    && self.workers_of(g.number).next().is_none()
            };
            self.generations.iter().find(untried).map(|generation| (generation.number, PoolIndex::DEFAULT))
        })
    }

    fn next_wanted(&self) -> Option<(Generation, PoolIndex)> {
        let newest = self.newest()?;
        let number = newest.number;
        let all = |pool| self.counting(pool).count();
        let new = |pool| self.counting(pool).filter(|worker| !worker.is_outdated(number)).count();
        let allowed = |generation: &GenerationState| generation.wait(self.now).is_none();
        let mut pools = self.pools();
        if newest.proven {
            let needed = |&pool: &PoolIndex| {
                let target = self.target(pool);
                new(pool) < target && all(pool) < target + self.surge(pool, number) && self.has_room()
            };
            return pools.find(needed).filter(|_| allowed(newest)).map(|pool| (number, pool));
        }
        let is_fallback = |g: &&GenerationState| g.number != number && g.proven && g.can_serve();
        let fallback = self.generations.iter().rfind(is_fallback);
        let lacks = |&pool: &PoolIndex| all(pool) - new(pool) < self.target(pool);
        if let Some((old, pool)) = fallback.filter(|old| allowed(old)).zip(self.pools().find(lacks)) {
            return Some((old.number, pool));
        }
        // The first worker of a generation is forked alone, because a fault that kills it would kill all of
        // them.
        let is_first = pools.all(|pool| new(pool) == 0);
        (is_first && allowed(newest)).then_some((number, PoolIndex::DEFAULT))
    }

    // The limits of all waits.

    pub(super) fn tick(&mut self) {
        for index in 0..self.slots.workers.len() {
            self.check_worker(index);
        }
        let late: Vec<(Generation, TemplateEnd)> =
            self.generations.iter().filter_map(|g| Some((g.number, self.missed(g)?))).collect();
        for (generation, why) in late {
            self.end_template(generation, why);
        }
        if self.start.retry.is_some_and(|at| at <= self.now) {
            self.start_template();
        }
    }

    fn check_worker(&mut self, index: usize) {
        let Timeouts { boot, shutdown, .. } = self.wish.timeouts;
        let Some(worker) = self.slots.workers[index].as_mut() else { return };
        let age = self.now.saturating_duration_since(worker.since);
        match worker.state {
            State::Booting { .. } if age >= boot => {
                self.count_death(index, false);
                self.kill(index, Cause::SlowBoot);
            }
            State::Booting { asked: false } if age + KILL_AFTER >= boot => {
                worker.state = State::Booting { asked: true };
                self.signal(index, WorkerSignal::Backtraces);
            }
            State::Draining if age >= shutdown => self.kill(index, Cause::SlowDrain),
            State::Stuck { others_finished } if age >= KILL_AFTER && (others_finished || age >= shutdown) => {
                self.kill(index, Cause::Stuck);
            }
            // Repeated until the process has ended, because a template may have failed to deliver the signal.
            State::Ending(cause) if age >= KILL_AFTER && worker.signs.ended.is_none() => {
                self.kill(index, cause);
            }
            _ => {}
        }
    }

    /// Returns which deadline a template has missed.
    fn missed(&self, generation: &GenerationState) -> Option<TemplateEnd> {
        let over = |since: Instant, limit| self.now.saturating_duration_since(since) >= limit;
        match generation.template {
            Template::Gone => None,
            Template::Booting { since } => over(since, self.wish.timeouts.boot).then(|| {
                let place = |lines: &String| format!("; it was here:\n{}", lines.trim_end());
                let place = generation.loading.as_ref().map_or_else(String::new, place);
                TemplateEnd::Failed { why: "did not load the app within timeouts.worker_boot", place }
            }),
            Template::Up => {
                let waits_for = |worker: &Worker| match worker.state {
                    State::Forking => Some(worker.since),
                    _ => worker.signs.ended,
                };
                let late =
                    |worker: &Worker| waits_for(worker).is_some_and(|since| over(since, ORDER_TIMEOUT));
                let end = TemplateEnd::Failed { why: "does not respond", place: String::new() };
                self.workers_of(generation.number).any(late).then_some(end)
            }
        }
    }
}
