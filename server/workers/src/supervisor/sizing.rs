//! Collects the figures that decide about the number of workers, and tells the queue when predictions are
//! meaningful.

use super::*;
use crate::reconciler::growth::{Memory, Range, Sample};
use queue::Load;
use settings::{Chosen, CpuClock, Machine, Workers, auto_workers};
use stats::SizeChange;
use std::cmp::Reverse;

/// The current number of workers of the default pool and its limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sizing {
    pub wanted: usize,
    /// The smallest and largest number; both are equal if the number does not follow the load.
    pub min: usize,
    /// See `min`.
    pub max: usize,
    /// Whether a signal has fixed the number until the next reload.
    pub pinned: bool,
    /// The time of the last change, and its reason.
    pub last: Option<SizeChange>,
}

/// The interval between two samples.
const SAMPLE: Duration = Duration::from_secs(1);
/// The interval at which limits are read again: a pod can be resized while it runs.
const LIMITS: Duration = Duration::from_secs(10);
/// The interval between two measurements of the templates' PSS.
const TEMPLATES: Duration = Duration::from_secs(60);

/// The measurements between two samples.
pub(super) struct Sampler {
    next: Instant,
    /// When `auto` is calculated again.
    next_auto: Instant,
    clock: Option<CpuClock>,
    /// The CPU time of each worker at the last sample, in milliseconds.
    cpu_ms: BTreeMap<Serial, u64>,
    templates_pss: Option<u64>,
    next_templates: Instant,
    /// The limits last sent to the queues, by pool.
    longest_waits: Vec<Option<Duration>>,
}

impl Sampler {
    pub(super) fn new(now: Instant) -> Sampler {
        Sampler {
            next: now,
            next_auto: now + LIMITS,
            clock: None,
            cpu_ms: BTreeMap::new(),
            templates_pss: None,
            next_templates: now,
            longest_waits: Vec::new(),
        }
    }

    pub(super) fn templates_measured(&mut self, pss: u64, now: Instant) {
        (self.templates_pss, self.next_templates) = (Some(pss), now + TEMPLATES);
    }
}

impl Supervisor {
    pub(super) fn sizing(&self) -> Sizing {
        let (Range { min, max }, pinned) = self.reconciler.range();
        let (wanted, last) =
            (self.reconciler.wish().counts[&PoolIndex::DEFAULT], self.outbox.history.size.clone());
        let (min, max) = self.subjects.shaping.as_ref().map_or((min, max), Shaping::workers);
        Sizing { wanted, min, max, pinned, last }
    }

    /// Applies the number of workers from the settings of a reload.
    pub(super) fn reloaded_size(&mut self) {
        let mut workers = self.options.boot.settings.workers;
        let pools = pools(&self.options.boot.settings);
        let counts: Vec<usize> = pools.iter().map(|pool| pool.workers as usize).collect();
        let acts = self.reconciler.set_pools(&counts, Instant::now());
        self.carry_out(acts);
        let wanted = self.reconciler.wish().counts.clone();
        for (pool, most) in pools
            .iter()
            .zip(wanted.into_values())
            .skip(1)
            .filter(|(pool, most)| pool.workers as usize > *most)
        {
            self.log(format!(
                "workers of the pool {} is {}, but there can be at most {most} in this server; restart it for more",
                pool.name, pool.workers
            ));
        }
        if let Some(Chosen { number, .. }) = self.auto_number() {
            workers = Workers::exactly(number);
        }
        let most = self.reconciler.capacity();
        if workers.max > most {
            self.log(format!(
                "workers is {workers}, but there can be at most {most} in this server; restart it for more"
            ));
            workers = Workers { min: workers.min.min(most), max: most };
        }
        if self.subjects.shaping.is_some() {
            // The number follows the objective again, from where it is.
            workers = Workers::exactly(self.reconciler.wish().counts[&PoolIndex::DEFAULT] as u32);
        }
        // The load figures collected in the meantime are outdated.
        self.shared.dispatch(PoolIndex::DEFAULT).take_load();
        let acts = self.reconciler.allow(workers, &format!("the setting is {workers} now"), Instant::now());
        self.carry_out(acts);
    }

    /// Publishes the wanted number of workers, and sets the queue's limit on waits. Called after each event.
    pub(super) fn observe_size(&mut self) {
        self.shared.set_wanted(self.reconciler.wanted());
        let settings = self.options.settings.borrow();
        let known = !self.reconciler.is_reloading() && self.reconciler.is_staffed();
        let limit = self.subjects.shaping.as_ref().and_then(Shaping::wait_limit);
        self.subjects.sampler.longest_waits.resize(self.shared.pools().indexes().count(), None);
        for (pool, last) in self.shared.pools().indexes().zip(&mut self.subjects.sampler.longest_waits) {
            let queue = settings.timeouts_of(pool.0.into()).0;
            let overload = limit.filter(|_| pool == PoolIndex::DEFAULT).map(|limit| limit.min(queue));
            let longest_wait = overload.or(settings.limits.predict_wait.then_some(queue)).filter(|_| known);
            if longest_wait != *last {
                *last = longest_wait;
                self.shared.dispatch(pool).predict(longest_wait, Instant::now());
            }
        }
    }

    /// With `workers = "auto"`: returns the number for the machine as it is now, beside the workers of other pools.
    /// The number in the settings is that of the time when they were read.
    pub(super) fn auto_number(&self) -> Option<Chosen> {
        let estimate = self.options.boot.settings.workers_auto.filter(|_| self.subjects.shaping.is_none())?;
        Some(auto_workers(&Machine::recent(), estimate, self.reconciler.others() as u32))
    }

    /// With `workers = "auto"`: adjusts the number to the current limits of CPU and memory, because a pod can
    /// be resized while it runs.
    fn follow_machine(&mut self, now: Instant) {
        if now < self.subjects.sampler.next_auto || !self.reconciler.may_resize() {
            return;
        }
        self.subjects.sampler.next_auto = now + LIMITS;
        let Some(Chosen { number, why }) = self.auto_number() else { return };
        let workers = Workers::exactly(number.min(self.reconciler.capacity()));
        let acts = self.reconciler.allow(workers, &why, now);
        self.carry_out(acts);
    }

    /// Reports a sample of the load of the default pool, if its number of workers follows it.
    pub(super) fn check_size(&mut self, rows: &[Row], now: Instant) {
        if self.subjects.shaping.is_some() {
            return self.follow_objective(rows, now);
        }
        self.follow_machine(now);
        if now < self.subjects.sampler.next || !self.reconciler.follows_load() {
            return;
        }
        self.subjects.sampler.next = now + SAMPLE;
        let (sample, least_missed) = (self.sample(rows, now), self.least_missed(rows));
        self.see(Change::Load(Box::new(sample), least_missed));
    }

    /// Returns the worker of the default pool with the fewest open WebSockets, then the fewest requests.
    /// Among equals it is the youngest, which has the coldest caches.
    pub(super) fn least_missed(&self, rows: &[Row]) -> Option<Serial> {
        let queue = self.shared.dispatch(PoolIndex::DEFAULT);
        let up = rows.iter().filter(|row| row.state == WorkerState::Ready && row.pool == PoolIndex::DEFAULT);
        up.map(|row| row.serial)
            .min_by_key(|&serial| (queue.tunnels(serial), queue.taken(serial), Reverse(serial)))
    }

    pub(super) fn sample(&mut self, rows: &[Row], now: Instant) -> Sample {
        let (load, oldest, busy, seats) = self.queue_sample(now);
        let memory = self.memory_sample(rows, now);
        let clock = Machine::cpu_clock();
        let before = self.subjects.sampler.clock.replace(clock.clone());
        let cpu_ms: BTreeMap<Serial, u64> =
            rows.iter().map(|row| (row.serial, sys::process::cpu_ms(row.pid))).collect();
        let last = std::mem::replace(&mut self.subjects.sampler.cpu_ms, cpu_ms);
        let now_ms = &self.subjects.sampler.cpu_ms;
        let of = |row: &Row| Some(now_ms.get(&row.serial)?.saturating_sub(*last.get(&row.serial)?));
        let passed = before.as_ref().map(|before| clock.at().saturating_duration_since(before.at()));
        let cpus_of = |used: u64| passed.map(|passed| used as f64 / 1e3 / passed.as_secs_f64().max(0.1));
        let all_cpus = cpus_of(rows.iter().filter_map(of).sum());
        // Workers of other pools cannot serve the requests of this pool.
        let worker_cpus =
            cpus_of(rows.iter().filter(|row| row.pool == PoolIndex::DEFAULT).filter_map(of).sum());
        let cpus = Machine::recent().cpu_time().max(0.01);
        Sample {
            load,
            oldest,
            busy,
            seats,
            worker_cpus,
            worker_share: all_cpus.map(|used| used / cpus),
            idle_cpu: before.and_then(|before| clock.idle_since(&before)),
            memory,
        }
    }

    /// Returns the load of the default pool's queue, the longest wait so far, and the busy and total seats.
    fn queue_sample(&self, now: Instant) -> (Load, Duration, u32, u32) {
        let mut queue = self.shared.dispatch(PoolIndex::DEFAULT);
        let oldest = queue.oldest().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        (queue.take_load(), oldest, queue.busy(), queue.seats())
    }

    fn memory_sample(&mut self, rows: &[Row], now: Instant) -> Memory {
        self.measure_templates(now);
        let limit = Machine::recent().memory();
        let pss = |row: &Row| self.workers.get(&row.serial).and_then(|worker| worker.memory.pss_at_most());
        let largest = rows.iter().filter_map(pss).max();
        // A worker that has not been measured yet may become as large as the others.
        let workers: u64 = rows.iter().map(|row| pss(row).or(largest).unwrap_or(0)).sum();
        let front = sys::process::rss_bytes(std::process::id());
        Memory {
            taken: workers + front + self.subjects.sampler.templates_pss.unwrap_or(0),
            worker: largest.filter(|_| self.subjects.sampler.templates_pss.is_some()),
            limit,
            available: Machine::memory_available(),
        }
    }

    /// Measures the templates' PSS on another thread, because that takes milliseconds.
    fn measure_templates(&mut self, now: Instant) {
        if now < self.subjects.sampler.next_templates {
            return;
        }
        self.subjects.sampler.next_templates = now + TEMPLATES;
        let pids: Vec<u32> = self.templates.values().map(|template| template.process.pid()).collect();
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            let pss = pids.into_iter().map(sys::process::pss_bytes).sum();
            shared.report(SupervisorMessage::TemplatesMeasured(pss));
        });
    }
}
