//! The rule of growth: the number of workers within a range. Pure: takes samples and the time, and returns
//! decisions with their reasons.
//!
//! Why queue time: it is what clients experience, and it means the same for apps that wait and apps that
//! compute. Whether another worker would help is a second question: it needs idle CPU and memory. Why quick
//! up and slow down: one worker too few makes all requests wait, one too many only costs memory, and forking
//! and warming it again costs more than keeping it.
//!
//! Contract:
//! 1. The number stays within the range and changes by one step at a time: up after [`UP`] at the earliest,
//!    down after [`DOWN`].
//! 2. It grows under pressure, if there is headroom:
//!    - Pressure: requests waited [`LONG`] or more in most of the last seconds, or threads waited for the GVL
//!      for [`CONTENDED`] of the time in the app.
//!    - Memory: there is room for one more worker of the largest size.
//!    - CPU: [`IDLE`] of it is idle, or other processes use it up. In the second case the workers use less
//!      than [`OWN`], so their requests are not waiting for CPU.
//! 3. It shrinks if no request waited for [`SHORT`] for a while and, with one worker fewer, threads and
//!    processors would be busy for at most [`FULL`] of their time. It also shrinks if the workers have
//!    outgrown the memory. Growing soon after shrinking doubles that while.
//! 4. If it cannot grow although requests wait, the reason is logged once, until requests have not waited for
//!    [`DOWN`].
//! 5. While workers boot or are replaced there are no decisions, and earlier samples are discarded.
//! 6. A number that an operator has set by signal stays ([`Growth::pin`]) until the range is set again.

use crate::deaths::mebibytes;
use queue::{Load, Waits};
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// The time between a step and the next step up.
pub const UP: Duration = Duration::from_secs(10);
/// The time between a step and the next step down.
pub const DOWN: Duration = Duration::from_secs(60);
/// The largest value of the time for which it has to be calm, after repeated growing and shrinking.
const DOWN_MOST: Duration = Duration::from_secs(900);
/// A wait that calls for another worker.
pub const LONG: Duration = Duration::from_millis(50);
/// A wait that is too short to count.
pub const SHORT: Duration = Duration::from_millis(10);
/// The share of the time in the app spent waiting for the GVL that calls for another worker.
pub const CONTENDED: f64 = 0.3;
/// The same share, below which a worker may be removed.
const UNCONTENDED: f64 = 0.2;
/// The share of idle CPU that another worker needs.
pub const IDLE: f64 = 0.1;
/// The share of the CPU from which the workers themselves count as using it up.
pub const OWN: f64 = 0.3;
/// The share of their time for which the remaining workers may be busy.
pub const FULL: f64 = 0.6;
/// The share of the memory limit up to which a worker is added; above [`MEMORY_MOST`] one is removed.
pub const MEMORY: f64 = 0.9;
const MEMORY_MOST: f64 = 0.95;
/// The time of the samples that decide about growing; [`PRESSED`] of them have to agree.
const WINDOW: Duration = Duration::from_millis(5_500);
const PRESSED: usize = 3;
/// The number of measured requests that make the GVL figures meaningful.
const MEASURED: u32 = 8;
/// For shrinking, the load is averaged with this share of the required calm time as time constant.
const AVERAGED: f64 = 1.0 / 3.0;

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

/// Memory figures in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The PSS of all processes.
    pub taken: u64,
    /// The PSS of the largest worker; `None` before the measurement.
    pub worker: Option<u64>,
    /// The memory that the server may use: the limit of the control group, or the machine's memory.
    pub limit: Option<u64>,
    /// The memory that the machine has available.
    pub available: Option<u64>,
}

impl Memory {
    /// Returns whether `count` more workers of the largest size fit; `None` while that is unknown.
    pub(crate) fn has_room_for(&self, count: u64) -> Option<bool> {
        let Some(limit) = self.limit else { return Some(true) };
        let worker = self.worker?.saturating_mul(count);
        let reserve = limit - share(limit, MEMORY);
        let fits = self.taken.saturating_add(worker) <= share(limit, MEMORY);
        let free = self.available.is_none_or(|available| available >= worker.saturating_add(reserve));
        Some(fits && free)
    }

    /// Describes why no worker fits.
    pub(crate) fn no_room(&self) -> String {
        let (worker, limit) = (self.worker.unwrap_or(0), self.limit.unwrap_or(0));
        let left = self
            .available
            .map_or(String::new(), |left| format!(", and the machine has {} left", mebibytes(left)));
        format!(
            "there is no memory for another worker of {}: all processes take {} of {}{left}",
            mebibytes(worker),
            mebibytes(self.taken),
            mebibytes(limit)
        )
    }

    pub(crate) fn is_exceeded(&self) -> bool {
        self.worker.is_some() && self.limit.is_some_and(|limit| self.taken > share(limit, MEMORY_MOST))
    }
}

fn share(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// The measurements since the previous sample.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// The waits for seats and for the GVL.
    pub load: Load,
    /// How long the first request of the queue has waited.
    pub oldest: Duration,
    /// The number of threads that serve a request.
    pub busy: u32,
    /// The number of all threads.
    pub seats: u32,
    /// The CPUs that the workers used on average; `None` if the system does not report it.
    pub worker_cpus: Option<f64>,
    /// The same as a share of the available CPU.
    pub worker_share: Option<f64>,
    /// The share of the CPU that was idle, 0 to 1; `None` if the system does not report it.
    pub idle_cpu: Option<f64>,
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

/// A decision with its reason, which follows `workers: 3 → 4: ` or `workers: 3: ` in the log.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Add a worker.
    Grow(String),
    /// Remove a worker.
    Shrink(String),
    /// Another worker is needed, but would not help or is not possible.
    Stay(String),
}

#[derive(Debug)]
pub struct Growth {
    range: Range,
    pinned: bool,
    recent: VecDeque<(Instant, Sample)>,
    /// When the number last changed.
    stepped: Option<Instant>,
    shrunk: Option<Instant>,
    /// The time since which no request has waited for long.
    calm_since: Option<Instant>,
    /// How long it has to be calm.
    patience: Duration,
    /// The averages of the busy threads, and of the CPUs that the workers use.
    busy: f64,
    cpus: f64,
    averaged: Option<Instant>,
    /// When requests last waited for long.
    pressed: Option<Instant>,
    /// Whether a lack of CPU, and of memory, has been logged since then.
    said: [bool; 2],
}

impl Growth {
    /// Creates the state for a range, without samples.
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

    pub fn range(&self) -> Range {
        self.range
    }

    /// Returns whether an operator has set the number.
    pub fn is_pinned(&self) -> bool {
        self.pinned
    }

    /// Keeps the number that an operator has set.
    pub fn pin(&mut self) {
        self.pinned = true;
    }

    /// Sets another range, and decides again.
    pub fn set_range(&mut self, range: Range) {
        (self.range, self.pinned) = (range, false);
        self.disturbed();
    }

    /// Returns whether samples are needed.
    pub fn is_active(&self) -> bool {
        self.range.min < self.range.max && !self.pinned
    }

    /// Discards the samples, because workers boot or are replaced.
    pub fn disturbed(&mut self) {
        self.recent.clear();
        self.calm_since = None;
    }

    /// Judges a sample, one per second, of a server with `workers` workers.
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
                    "no request waited for {seconds} s, and {busy:.1} of {seats} threads are busy on average"
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

    /// Returns whether `workers` workers, one fewer than there are, would be enough.
    fn fits(&self, workers: usize) -> bool {
        let seats = self.recent.back().map_or(0.0, |(_, sample)| f64::from(sample.seats));
        let left = seats * workers as f64 / (workers as f64 + 1.0);
        let uncontended = self.gvl_share().is_none_or(|share| share < UNCONTENDED);
        self.busy <= FULL * left && self.cpus <= FULL * workers as f64 && uncontended
    }

    fn may_step(&self, after: Duration, now: Instant) -> bool {
        self.stepped.is_none_or(|at| now.saturating_duration_since(at) >= after)
    }

    /// Returns why another worker is needed.
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

    /// Returns the share of the time in the app spent waiting for the GVL; `None` if too little was measured.
    fn gvl_share(&self) -> Option<f64> {
        let loads = || self.recent.iter().map(|(_, sample)| &sample.load);
        let (app, gvl) = loads().fold((0, 0), |(app, gvl), load| (app + load.app_us, gvl + load.gvl_us));
        let measured: u32 = loads().map(|load| load.measured).sum();
        (self.recent.len() >= PRESSED && measured >= MEASURED && app > 0).then(|| gvl as f64 / app as f64)
    }

    /// Returns the mean over the samples that have the figure.
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
        if !memory.has_room_for(1)? {
            return self.stay(1, pressure, &memory.no_room());
        }
        // Growing soon after shrinking means that shrinking was wrong, so be more patient.
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
        "all processes use {}, above the threshold of {most} ({} in total)",
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
