//! Adjusts the number of workers: collects the figures that [growth](crate::growth) needs and turns its
//! decisions into events of the process table and lines for the log. Also tells the queue when predictions
//! are meaningful.

use super::{Event, Notice, Supervisor};
use crate::dispatch::{Dispatch, Load, Serial};
use crate::growth::{Decision, Growth, Memory, Range, Sample};
use crate::shared::Report;
use crate::table::{Row, Stage};
use settings::{Chosen, CpuClock, Machine, Workers, auto_workers};
use stats::SizeChange;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// The current number of workers and its limits.
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

/// The state of sizing: the growth policy and the measurements for it.
pub(super) struct Sizer {
    growth: Growth,
    /// The range from the settings.
    workers: Workers,
    leaving: bool,
    next: Instant,
    /// When `auto` is calculated again.
    next_auto: Instant,
    machine: Option<(Instant, Machine)>,
    clock: Option<CpuClock>,
    /// The CPU time of each worker at the last sample, in milliseconds.
    cpu_ms: BTreeMap<Serial, u64>,
    templates_pss: Option<u64>,
    next_templates: Instant,
    /// The limit that the queue was given last.
    longest_wait: Option<Duration>,
    last: Option<SizeChange>,
}

impl Sizer {
    pub(super) fn new(workers: Workers, now: Instant) -> Sizer {
        Sizer {
            growth: Growth::new(range(workers)),
            workers,
            leaving: false,
            next: now,
            next_auto: now + LIMITS,
            machine: None,
            clock: None,
            cpu_ms: BTreeMap::new(),
            templates_pss: None,
            next_templates: now,
            longest_wait: None,
            last: None,
        }
    }

    /// Stops sizing, because the server shuts down soon.
    pub(super) fn leave(&mut self) {
        self.leaving = true;
    }

    pub(super) fn templates_measured(&mut self, pss: u64, now: Instant) {
        (self.templates_pss, self.next_templates) = (Some(pss), now + TEMPLATES);
    }

    fn machine(&mut self, now: Instant) -> &Machine {
        let old = |(read, _): &mut (Instant, Machine)| now.saturating_duration_since(*read) >= LIMITS;
        self.machine.take_if(old);
        &self.machine.get_or_insert_with(|| (now, Machine::read())).1
    }

    fn disturbed(&mut self) {
        self.growth.disturbed();
        self.clock = None;
        self.cpu_ms.clear();
    }
}

fn range(workers: Workers) -> Range {
    Range { min: workers.min as usize, max: workers.max as usize }
}

/// Returns the largest number of workers for which there are slots, with as many again for workers that are
/// leaving.
fn capacity(slots: usize) -> u32 {
    u32::try_from(slots.saturating_sub(super::SPARE_SLOTS) / 2).unwrap_or(u32::MAX).max(1)
}

impl Supervisor {
    pub(super) fn sizing(&self) -> Sizing {
        let (growth, wanted) = (&self.sizer.growth, self.table.wanted());
        let Range { min, max } = growth.range();
        Sizing { wanted, min, max, pinned: growth.is_pinned(), last: self.sizer.last.clone() }
    }

    /// Records a change from `from` and its reason, for `stats` and `top`.
    fn resized(&mut self, from: usize, why: &str) {
        let [from, to] = [from, self.table.wanted()].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        if from != to {
            self.sizer.last = Some(SizeChange { at: SystemTime::now(), from, to, why: why.to_owned() });
        }
    }

    /// Carries out a signal's order to add or remove a worker.
    pub(super) fn ordered_size(&mut self, event: Event, notify: &mut impl FnMut(Notice)) {
        let before = self.table.wanted();
        self.event(event, notify);
        let after = self.table.wanted();
        self.resized(before, "by signal");
        let change = if before == after {
            format!("workers: the number stays at {after}, which is a bound of this server")
        } else {
            format!("workers: {before} → {after} by signal")
        };
        let is_chosen = self.sizer.workers.is_range() || self.options.boot.settings.workers_auto.is_some();
        if is_chosen {
            self.sizer.growth.pin();
        }
        let until = if is_chosen { "; the number stays until the next reload" } else { "" };
        notify(Notice::Log(format!("{change}{until}")));
    }

    /// Applies the number of workers from the settings of a reload.
    pub(super) fn reloaded_size(&mut self, notify: &mut impl FnMut(Notice)) {
        let mut workers = self.options.boot.settings.workers;
        let most = capacity(self.table.slots());
        if workers.max > most {
            notify(Notice::Log(format!(
                "workers is {workers}, but there can be at most {most} in this server; restart it for more"
            )));
            workers = Workers { min: workers.min.min(most), max: most };
        }
        if workers == self.sizer.workers && !self.sizer.growth.is_pinned() {
            return;
        }
        // The load figures collected in the meantime are outdated.
        self.shared.each(Dispatch::take_load).for_each(drop);
        self.allow(workers, &format!("the setting is {workers} now"), notify);
    }

    /// Sets the allowed range of workers, and moves the number into it.
    fn allow(&mut self, workers: Workers, why: &str, notify: &mut impl FnMut(Notice)) {
        self.sizer.workers = workers;
        self.sizer.growth.set_range(range(workers));
        let before = self.table.wanted();
        let wanted = before.clamp(workers.min as usize, workers.max as usize);
        if wanted != before {
            notify(Notice::Log(format!("workers: {before} → {wanted}: {why}")));
            self.event(Event::Want(wanted), notify);
            self.resized(before, why);
        }
    }

    /// Publishes the wanted number of workers, and tells the queue how long requests may wait. Called after
    /// each event.
    pub(super) fn observe_size(&mut self) {
        self.shared.set_wanted(self.table.wanted());
        let settings = self.options.settings.borrow();
        let known = settings.limits.predict_wait && !self.reloads.is_busy() && self.table.is_staffed();
        let longest_wait = known.then_some(settings.timeouts.queue);
        if longest_wait != self.sizer.longest_wait {
            self.sizer.longest_wait = longest_wait;
            self.shared.each(|dispatch| dispatch.predict(longest_wait, Instant::now())).for_each(drop);
        }
    }

    /// With `workers = "auto"`: adjusts the number to the current limits of CPU and memory, because a pod can
    /// be resized while it runs.
    fn follow_machine(&mut self, now: Instant, notify: &mut impl FnMut(Notice)) {
        let settings = &self.options.boot.settings;
        let Some(estimate) = settings.workers_auto else { return };
        if now < self.sizer.next_auto || self.sizer.growth.is_pinned() {
            return;
        }
        if self.sizer.leaving || self.stopping || self.reloads.is_busy() || self.reforks.is_rolling() {
            return;
        }
        self.sizer.next_auto = now + LIMITS;
        let Chosen { number, why } = auto_workers(self.sizer.machine(now), estimate);
        let workers = Workers::exactly(number.min(capacity(self.table.slots())));
        if workers == self.sizer.workers {
            return;
        }
        self.allow(workers, &why, notify);
    }

    /// Takes a sample and carries out the resulting decision.
    pub(super) fn check_size(&mut self, rows: &[Row], now: Instant, notify: &mut impl FnMut(Notice)) {
        self.follow_machine(now, notify);
        if now < self.sizer.next || !self.sizer.growth.is_active() || self.sizer.leaving || self.stopping {
            return;
        }
        self.sizer.next = now + SAMPLE;
        let sample = self.sample(rows, now);
        if !self.table.is_complete() || self.reloads.is_busy() || self.reforks.is_rolling() {
            return self.sizer.disturbed();
        }
        let workers = self.table.wanted();
        let decision = self.sizer.growth.observe(sample, workers, now);
        let (event, why) = match decision {
            None => return,
            Some(Decision::Stay(why)) => {
                let range = self.sizer.growth.range();
                return notify(Notice::Log(format!("workers: {workers} of {range}: {why}")));
            }
            Some(Decision::Grow(why)) => (Event::More, why),
            Some(Decision::Shrink(why)) => match self.least_missed(rows) {
                Some(serial) => (Event::Retire(serial), why),
                None => return,
            },
        };
        self.event(event, notify);
        self.resized(workers, &why);
        notify(Notice::Log(format!("workers: {workers} → {}: {why}", self.table.wanted())));
    }

    /// Returns the worker with the fewest open WebSockets, then the fewest requests. Among equals it is the
    /// youngest, which has the coldest caches.
    fn least_missed(&self, rows: &[Row]) -> Option<Serial> {
        let up = rows.iter().filter(|row| row.stage == Stage::Up).map(|row| row.serial);
        up.min_by_key(|&serial| {
            let of = |count: fn(&Dispatch, Serial) -> u32| -> u32 {
                self.shared.each(|dispatch| count(dispatch, serial)).sum()
            };
            (of(Dispatch::tunnels), of(Dispatch::taken), Reverse(serial))
        })
    }

    fn sample(&mut self, rows: &[Row], now: Instant) -> Sample {
        let (load, oldest, busy, seats) = self.queue_sample(now);
        let memory = self.memory_sample(rows, now);
        let clock = Machine::cpu_clock();
        let before = self.sizer.clock.replace(clock.clone());
        let cpu_ms: BTreeMap<Serial, u64> =
            rows.iter().map(|row| (row.serial, stats::memory::cpu_ms(row.pid))).collect();
        let last = std::mem::replace(&mut self.sizer.cpu_ms, cpu_ms);
        let used: u64 = (self.sizer.cpu_ms.iter())
            .filter_map(|(serial, now)| Some(now.saturating_sub(*last.get(serial)?)))
            .sum();
        let passed = before.as_ref().map(|before| clock.at().saturating_duration_since(before.at()));
        let worker_cpus = passed.map(|passed| used as f64 / 1e3 / passed.as_secs_f64().max(0.1));
        let cpus = self.sizer.machine(now).cpu_time().max(0.01);
        Sample {
            load,
            oldest,
            busy,
            seats,
            worker_cpus,
            worker_share: worker_cpus.map(|used| used / cpus),
            idle_cpu: before.and_then(|before| clock.idle_since(&before)),
            memory,
        }
    }

    /// Returns the load of all queues, the longest wait so far, and the busy and total seats of one kind: the
    /// kind with the larger share of busy seats. A thousand idle fibers do not help a request that waits for
    /// a thread.
    fn queue_sample(&self, now: Instant) -> (Load, Duration, u32, u32) {
        let each = self.shared.each(|dispatch| {
            let oldest =
                dispatch.oldest().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
            (dispatch.take_load(), oldest, dispatch.busy(), dispatch.seats())
        });
        let fuller = |(busy, seats): (u32, u32), (other_busy, other_seats): (u32, u32)| {
            u64::from(busy) * u64::from(other_seats) >= u64::from(other_busy) * u64::from(seats)
        };
        each.reduce(|(mut load, oldest, busy, seats), (others, also_oldest, other_busy, other_seats)| {
            load.add(&others);
            let is_fuller = fuller((busy, seats), (other_busy, other_seats));
            let (busy, seats) = if is_fuller { (busy, seats) } else { (other_busy, other_seats) };
            (load, oldest.max(also_oldest), busy, seats)
        })
        .unwrap_or_default()
    }

    fn memory_sample(&mut self, rows: &[Row], now: Instant) -> Memory {
        self.measure_templates(now);
        let limit = self.sizer.machine(now).memory();
        let pss = |row: &Row| self.workers.get(&row.serial).and_then(|worker| worker.memory.pss_at_most());
        let largest = rows.iter().filter_map(pss).max();
        // A worker that has not been measured yet may become as large as the others.
        let workers: u64 = rows.iter().map(|row| pss(row).or(largest).unwrap_or(0)).sum();
        let front = stats::memory::rss_bytes(std::process::id());
        Memory {
            taken: workers + front + self.sizer.templates_pss.unwrap_or(0),
            worker: largest.filter(|_| self.sizer.templates_pss.is_some()),
            limit,
            available: Machine::memory_available(),
        }
    }

    /// Measures the templates' PSS on another thread, because that takes milliseconds.
    fn measure_templates(&mut self, now: Instant) {
        if now < self.sizer.next_templates {
            return;
        }
        self.sizer.next_templates = now + TEMPLATES;
        let pids: Vec<u32> = self.templates.values().map(|template| template.process.pid()).collect();
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            let pss = pids.into_iter().map(stats::memory::pss_bytes).sum();
            shared.report(Report::TemplatesMeasured(pss));
        });
    }
}
