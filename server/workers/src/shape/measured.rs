//! Samples, and figures over several of them.

use super::ShapeBounds;
use crate::reconciler::growth::Memory;
use queue::Waits;
use std::time::Duration;

/// The measurements since the previous sample.
#[derive(Debug, Clone, Default)]
pub struct ShapeSample {
    /// The length of the sample.
    pub time: Duration,
    /// The times until responses began.
    pub times: Waits,
    /// The number of responses that began after the time of the objective.
    pub late: u64,
    /// The number of requests that were refused because of the queue.
    pub refused: u64,
    /// The requests that ended, and their time in the app in microseconds.
    pub ended: u64,
    pub app_us: u64,
    /// The waits of the requests that got a seat.
    pub waits: Waits,
    /// How long the first request of the queue has waited.
    pub oldest: Duration,
    /// The number of requests that wait now.
    pub waiting: u32,
    /// The number of seats that are in use now.
    pub busy: u32,
    /// The share of the time in the app spent waiting for the GVL; `None` if too little was measured.
    pub gvl: Option<f64>,
    /// The CPUs that the workers of the pool used on average; `None` if the system does not report it.
    pub worker_cpus: Option<f64>,
    /// The CPUs that all workers used, as a share of the available CPU.
    pub worker_share: Option<f64>,
    /// The share of the CPU that was idle, 0 to 1.
    pub idle_cpu: Option<f64>,
    /// The CPUs that the server may use.
    pub cpus: f64,
    pub memory: Memory,
    /// The connections to the database that a worker may have; `None` if unknown.
    pub connections: Option<u32>,
    /// The seats with which each worker was started; `None` if no worker is up.
    pub built: Option<u32>,
    /// The wanted number of workers.
    pub workers: u32,
    /// Whether an operator has set that number.
    pub pinned: bool,
}

impl ShapeSample {
    /// Returns the share of the time in the app for which requests computed; `None` if it is unknown.
    pub(super) fn computed(&self) -> Option<f64> {
        let (cpus, app) = (self.worker_cpus?, self.app_us as f64 / 1e6);
        (app > 0.0).then(|| cpus * self.time.as_secs_f64() / app)
    }
}

/// The figures of a while, for display and comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ShapeMeasured {
    /// Responses per second.
    pub rate: f64,
    /// The response time at the percentile of the objective.
    pub time: Duration,
    /// The share of requests that missed the objective: late responses, and requests refused.
    pub missed: f64,
    /// The mean time in the app.
    pub app: Duration,
}

/// A sum of samples.
#[derive(Debug, Clone, Default)]
pub(super) struct SampleSum {
    pub(super) time: Duration,
    pub(super) samples: u32,
    times: Waits,
    late: u64,
    refused: u64,
    ended: u64,
    app_us: u64,
    waits: Waits,
    oldest: Duration,
}

impl SampleSum {
    pub(super) fn add(&mut self, sample: &ShapeSample) {
        self.time += sample.time;
        self.samples += 1;
        self.times.add(&sample.times);
        self.late += sample.late;
        self.refused += sample.refused;
        self.ended += sample.ended;
        self.app_us += sample.app_us;
        self.waits.add(&sample.waits);
        // The state at the end.
        self.oldest = sample.oldest;
    }

    pub(super) fn of<'a>(samples: impl IntoIterator<Item = &'a ShapeSample>) -> SampleSum {
        let mut sum = SampleSum::default();
        samples.into_iter().for_each(|sample| sum.add(sample));
        sum
    }

    pub(super) fn responses(&self) -> u64 {
        self.times.count()
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Returns the share of the responses that were late.
    pub(super) fn late(&self) -> f64 {
        self.late as f64 / self.responses().max(1) as f64
    }

    /// Returns the wait of the requests: 95 of 100 waited less.
    pub(super) fn wait(&self) -> Duration {
        self.waits.p95().max(self.oldest)
    }

    pub(super) fn measured(&self, bounds: &ShapeBounds) -> ShapeMeasured {
        let all = self.responses() + self.refused;
        ShapeMeasured {
            rate: self.responses() as f64 / self.time.as_secs_f64().max(1e-3),
            time: self.times.percentile(bounds.percentile),
            missed: (self.late + self.refused) as f64 / all.max(1) as f64,
            app: Duration::from_micros(self.app_us / self.ended.max(1)),
        }
    }

    /// Returns whether requests wait for long, or are refused.
    pub(super) fn waits_long(&self, bounds: &ShapeBounds) -> bool {
        self.refused > 0 || self.wait() >= bounds.long_wait()
    }

    /// Returns whether the objective is broken.
    pub(super) fn is_broken(&self, bounds: &ShapeBounds) -> bool {
        // A request that has waited for longer than the objective will miss it.
        self.measured(bounds).missed > bounds.allowed() || self.oldest > bounds.objective
    }
}
