//! How many workers there should be within a range. Pure: samples and the time go in, decisions and their reasons come out.
//!
//! Why queue time: it is what clients feel, and it is the same for apps that wait and apps that compute. Whether another worker would help
//! is a second question: it needs idle CPU, and memory. Why quick up and slow down: a worker too few makes everybody wait, one too many
//! costs memory only, and forking and warming it again costs more than keeping it.
//!
//! Contract:
//! 1. The number stays within the range; one step at a time, up after [`UP`] at the earliest, down after [`DOWN`].
//! 2. It grows when requests waited [`LONG`] or more in most of the last seconds, or when threads waited for the GVL for [`CONTENDED`] of
//!    the time in the app, and only while the memory has room for one more of the largest worker, and CPU is left: [`IDLE`] of it is idle,
//!    or it is others who use it up. The workers themselves use less than [`OWN`] then, so it is not CPU that their requests wait for.
//! 3. It shrinks when no request waited for [`SHORT`] for a while, and one worker fewer would be busy for [`FULL`] of its time at most,
//!    threads and processors alike; and when the workers have outgrown the memory. Growing soon after it has shrunk doubles that while.
//! 4. Why it does not grow though requests wait is said once, until they have not waited for [`DOWN`].
//! 5. While workers boot or are replaced nothing is decided, and what was seen before does not count.
//! 6. What an operator has ordered by signal stays ([`Growth::pin`]) until the range is set again.

use crate::deaths::mebibytes;
use crate::dispatch::Load;
use crate::waits::Waits;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Time from one step to the next one up.
pub const UP: Duration = Duration::from_secs(10);
/// Time from one step to the next one down.
pub const DOWN: Duration = Duration::from_secs(60);
/// Most that [`DOWN`] becomes when the number goes up and down.
const DOWN_MOST: Duration = Duration::from_secs(900);
/// A wait that calls for another worker.
pub const LONG: Duration = Duration::from_millis(50);
/// A wait that does not count.
pub const SHORT: Duration = Duration::from_millis(10);
/// Share of the time in the app that calls for another worker when threads spend it waiting for the GVL.
pub const CONTENDED: f64 = 0.3;
/// The same below which a worker may leave.
const UNCONTENDED: f64 = 0.2;
/// Share of the CPU that another worker needs.
pub const IDLE: f64 = 0.1;
/// Share of the CPU from which on it is the workers who use it up.
pub const OWN: f64 = 0.3;
/// Share of their time for which the workers that remain may be busy.
pub const FULL: f64 = 0.6;
/// Share of the memory limit that workers may take when one is added; beyond [`MEMORY_MOST`] one leaves.
const MEMORY: f64 = 0.9;
const MEMORY_MOST: f64 = 0.95;
/// Samples of so long decide about growing; [`PRESSED`] of them have to agree.
const WINDOW: Duration = Duration::from_millis(5_500);
const PRESSED: usize = 3;
/// Measured requests that say something about the GVL.
const MEASURED: u32 = 8;
/// For shrinking the load is averaged, with this part of the time for which it has to be calm as time constant.
const AVERAGED: f64 = 1.0 / 3.0;

/// How many workers there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// At least 1.
    pub min: usize,
    /// At least `min`.
    pub max: usize,
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.min, self.max)
    }
}

/// What is known of the memory, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// PSS of all processes.
    pub taken: u64,
    /// PSS of the largest worker; `None` before it is measured.
    pub worker: Option<u64>,
    /// What the server may use: the cgroup's limit, or else the machine's memory.
    pub limit: Option<u64>,
    /// What the machine has left.
    pub available: Option<u64>,
}

impl Memory {
    /// Whether one more worker fits; `None` when that cannot be said yet.
    fn has_room(&self) -> Option<bool> {
        let Some(limit) = self.limit else { return Some(true) };
        let worker = self.worker?;
        let reserve = limit - share(limit, MEMORY);
        let fits = self.taken.saturating_add(worker) <= share(limit, MEMORY);
        let free = self.available.is_none_or(|available| available >= worker.saturating_add(reserve));
        Some(fits && free)
    }

    fn is_exceeded(&self) -> bool {
        self.worker.is_some() && self.limit.is_some_and(|limit| self.taken > share(limit, MEMORY_MOST))
    }
}

fn share(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// What was seen since the sample before.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Waits, and the GVL.
    pub load: Load,
    /// How long the first request of the queue has been waiting.
    pub oldest: Duration,
    /// Threads that serve a request.
    pub busy: u32,
    /// Threads that could.
    pub seats: u32,
    /// CPUs' worth of time that the workers have used; `None` where the system does not report it.
    pub worker_cpus: Option<f64>,
    /// The same as a share of the CPU that may be used.
    pub worker_share: Option<f64>,
    /// Share of the CPU that was idle, 0 to 1; `None` where the system does not report it.
    pub idle_cpu: Option<f64>,
    /// The memory.
    pub memory: Memory,
}

impl Sample {
    fn is_pressed(&self) -> bool {
        self.oldest >= LONG || self.load.waits.p95() >= LONG
    }

    fn is_calm(&self) -> bool {
        self.oldest < SHORT && self.load.waits.p95() < SHORT
    }
}

/// What to do, and why: to be read after `workers: 3 → 4: `, or after `workers: 3: `.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// One worker more.
    Grow(String),
    /// One worker fewer.
    Shrink(String),
    /// There would have to be one more, but that would not help, or is not possible.
    Stay(String),
}

/// Decides about the number of workers.
#[derive(Debug)]
pub struct Growth {
    range: Range,
    pinned: bool,
    recent: VecDeque<(Instant, Sample)>,
    /// When the number last changed.
    stepped: Option<Instant>,
    shrunk: Option<Instant>,
    /// Since when no request has waited for long.
    calm_since: Option<Instant>,
    /// For how long it has to be calm.
    patience: Duration,
    /// Averages: busy threads, and CPUs that the workers use.
    busy: f64,
    cpus: f64,
    averaged: Option<Instant>,
    /// When requests last waited for long.
    pressed: Option<Instant>,
    /// It was said since then that CPU, or memory, is missing.
    said: [bool; 2],
}

impl Growth {
    /// For a range, with nothing seen yet.
    pub fn new(range: Range) -> Growth {
        Growth {
            range,
            pinned: false,
            recent: VecDeque::new(),
            stepped: None,
            shrunk: None,
            calm_since: None,
            patience: DOWN,
            busy: 0.0,
            cpus: 0.0,
            averaged: None,
            pressed: None,
            said: [false; 2],
        }
    }

    /// The range in force.
    pub fn range(&self) -> Range {
        self.range
    }

    /// Whether the number is what an operator has ordered.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// An operator has changed the number: it stays.
    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// Another range is in force, and decides again.
    pub fn set_range(&mut self, range: Range) {
        (self.range, self.pinned) = (range, false);
        self.disturbed();
    }

    /// Whether samples are of use.
    pub fn is_active(&self) -> bool {
        self.range.min < self.range.max && !self.pinned
    }

    /// Workers boot, or are replaced: what was seen does not count.
    pub fn disturbed(&mut self) {
        self.recent.clear();
        self.calm_since = None;
    }

    /// Judges a sample, one of each second, of a server with so many workers.
    pub fn observe(&mut self, sample: Sample, workers: usize, now: Instant) -> Option<Decision> {
        if !self.is_active() {
            return None;
        }
        self.average(&sample, now);
        let (calm, memory) = (sample.is_calm(), sample.memory);
        self.recent.push_back((now, sample));
        while self.recent.pop_front_if(|(at, _)| now.saturating_duration_since(*at) > WINDOW).is_some() {}
        if memory.is_exceeded() && workers > self.range.min && self.may_step(DOWN, now) {
            return Some(self.shrink(now, outgrown(memory)));
        }
        if let Some(pressure) = self.pressure() {
            (self.calm_since, self.pressed) = (None, Some(now));
            return self.grow(&pressure, memory, workers, now);
        }
        if self.pressed.is_none_or(|at| now.saturating_duration_since(at) >= DOWN) {
            self.said = [false; 2];
        }
        if !calm {
            self.calm_since = None;
            return None;
        }
        let since = *self.calm_since.get_or_insert(now);
        let long_enough = now.saturating_duration_since(since) >= self.patience && self.may_step(DOWN, now);
        (workers > self.range.min && long_enough && self.fits(workers - 1)).then(|| {
            let seats = self.recent.back().map_or(0, |(_, sample)| sample.seats);
            let (busy, seconds) = (self.busy, now.saturating_duration_since(since).as_secs());
            self.shrink(
                now,
                format!(
                    "no request waited for {seconds} s, and {busy:.1} of {seats} threads are busy in the mean"
                ),
            )
        })
    }

    fn average(&mut self, sample: &Sample, now: Instant) {
        let passed = self.averaged.replace(now).map(|last| now.saturating_duration_since(last).as_secs_f64());
        let constant = self.patience.as_secs_f64() * AVERAGED;
        let weight = passed.map_or(1.0, |passed| 1.0 - (-passed / constant).exp());
        self.busy += (f64::from(sample.busy) - self.busy) * weight;
        self.cpus += (sample.worker_cpus.unwrap_or(0.0) - self.cpus) * weight;
    }

    /// Whether so many workers would do, one fewer than there are.
    fn fits(&self, workers: usize) -> bool {
        let seats = self.recent.back().map_or(0.0, |(_, sample)| f64::from(sample.seats));
        let left = seats * workers as f64 / (workers as f64 + 1.0);
        let uncontended = self.gvl_share().is_none_or(|share| share < UNCONTENDED);
        self.busy <= FULL * left && self.cpus <= FULL * workers as f64 && uncontended
    }

    fn may_step(&self, after: Duration, now: Instant) -> bool {
        self.stepped.is_none_or(|at| now.saturating_duration_since(at) >= after)
    }

    /// Why another worker is called for.
    fn pressure(&self) -> Option<String> {
        let pressed = self.recent.iter().filter(|(_, sample)| sample.is_pressed()).count();
        if pressed >= PRESSED {
            let mut waits = Waits::default();
            self.recent.iter().for_each(|(_, sample)| waits.add(&sample.load.waits));
            let oldest = self.recent.back().map_or(Duration::ZERO, |(_, sample)| sample.oldest);
            return Some(if waits.p95() >= LONG {
                format!("requests waited {} (p95)", milliseconds(waits.p95()))
            } else {
                format!("the first request of the queue has been waiting for {}", milliseconds(oldest))
            });
        }
        let share = self.gvl_share().filter(|share| *share >= CONTENDED)?;
        Some(format!("threads waited for the GVL for {} of the time in the app", percent(share)))
    }

    /// Waiting for the GVL as a share of the time in the app; `None` when too little was measured.
    fn gvl_share(&self) -> Option<f64> {
        let loads = || self.recent.iter().map(|(_, sample)| &sample.load);
        let (app, gvl) = loads().fold((0, 0), |(app, gvl), load| (app + load.app_us, gvl + load.gvl_us));
        let measured: u32 = loads().map(|load| load.measured).sum();
        (self.recent.len() >= PRESSED && measured >= MEASURED && app > 0).then(|| gvl as f64 / app as f64)
    }

    /// The mean over the samples that say it.
    fn mean(&self, of: impl Fn(&Sample) -> Option<f64>) -> Option<f64> {
        let said = || self.recent.iter().filter_map(|(_, sample)| of(sample));
        let count = said().count();
        (count > 0).then(|| said().sum::<f64>() / count as f64)
    }

    fn grow(&mut self, pressure: &str, memory: Memory, workers: usize, now: Instant) -> Option<Decision> {
        if workers >= self.range.max || !self.may_step(UP, now) {
            return None;
        }
        let (idle, own) = (self.mean(|sample| sample.idle_cpu), self.mean(|sample| sample.worker_share));
        let scarce = idle.filter(|idle| *idle < IDLE);
        if let Some(idle) = scarce.filter(|_| own.is_none_or(|own| own >= OWN)) {
            let why = format!("only {} of the CPU is idle, so another worker would not help", percent(idle));
            return self.stay(0, pressure, &why);
        }
        if !memory.has_room()? {
            return self.stay(1, pressure, &no_room(memory));
        }
        // What was right a moment ago was not: more patience.
        let soon = |at: Instant| now.saturating_duration_since(at) < self.patience * 2;
        self.patience = if self.shrunk.is_some_and(soon) { (self.patience * 2).min(DOWN_MOST) } else { DOWN };
        self.step(now);
        let cpu = match (scarce, idle, own) {
            (Some(_), _, Some(own)) => {
                format!(" while the workers used {} of the CPU, and others the rest", percent(own))
            }
            (_, Some(idle), _) => format!(" while {} of the CPU was idle", percent(idle)),
            _ => String::new(),
        };
        Some(Decision::Grow(format!("{pressure}{cpu}")))
    }

    fn stay(&mut self, what: usize, pressure: &str, why: &str) -> Option<Decision> {
        let said = std::mem::replace(&mut self.said[what], true);
        (!said).then(|| Decision::Stay(format!("{pressure}, but {why}")))
    }

    fn shrink(&mut self, now: Instant, why: String) -> Decision {
        self.shrunk = Some(now);
        self.step(now);
        Decision::Shrink(why)
    }

    fn step(&mut self, now: Instant) {
        self.stepped = Some(now);
        self.disturbed();
    }
}

fn outgrown(memory: Memory) -> String {
    let limit = memory.limit.unwrap_or(0);
    let most = mebibytes(share(limit, MEMORY_MOST));
    format!(
        "all processes take {}, more than {most} of the {} that there are",
        mebibytes(memory.taken),
        mebibytes(limit)
    )
}

fn no_room(memory: Memory) -> String {
    let (worker, limit) = (memory.worker.unwrap_or(0), memory.limit.unwrap_or(0));
    let left = memory
        .available
        .map_or(String::new(), |left| format!(", and the machine has {} left", mebibytes(left)));
    format!(
        "there is no memory for another worker of {}: all processes take {} of {}{left}",
        mebibytes(worker),
        mebibytes(memory.taken),
        mebibytes(limit)
    )
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
