//! The counters of one route.

use crate::finished::Finished;
use crate::log_histogram::LogHistogram;
use std::sync::Arc;
use wire::used::Remarks;

/// The sum of a quantity that is measured in some requests only. The others are taken to have used as much of it per microsecond in the app as the
/// measured ones before them (a ratio estimate).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Estimate {
    /// The sum, without the pending requests.
    sum: u64,
    /// The sum of the measured requests only, and their time in the app.
    measured: u64,
    measured_us: u64,
    /// The time in the app of the requests since the last measured one.
    pending_us: u64,
}

impl Estimate {
    #[inline]
    fn record(&mut self, app_us: u32, value: Option<u32>) {
        match value {
            None => self.pending_us += u64::from(app_us),
            Some(value) => self.measure(app_us, value),
        }
    }

    fn measure(&mut self, app_us: u32, value: u32) {
        let (app_us, value) = (u64::from(app_us), u64::from(value));
        if self.measured_us == 0 {
            // The first ones tell what those before them have used.
            (self.measured, self.measured_us) = (value, app_us.max(1));
            self.sum += self.of_pending();
        } else {
            self.sum += self.of_pending();
            self.measured += value;
            self.measured_us += app_us;
        }
        self.sum += value;
        self.pending_us = 0;
    }

    fn of_pending(&self) -> u64 {
        let scaled =
            u128::from(self.pending_us) * u128::from(self.measured) / u128::from(self.measured_us.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Returns the sum; `None` if nothing was measured.
    pub(crate) fn sum(&self) -> Option<u64> {
        (self.measured_us > 0).then(|| self.sum + self.of_pending())
    }

    fn add(&mut self, other: &Estimate) {
        self.sum += self.of_pending() + if other.measured_us > 0 { other.of_pending() } else { 0 };
        self.sum += other.sum;
        self.pending_us = if other.measured_us > 0 { 0 } else { other.pending_us }
            + if self.measured_us > 0 { 0 } else { self.pending_us };
        self.measured += other.measured;
        self.measured_us += other.measured_us;
    }
}

/// The requests in which something was remarkable.
#[derive(Debug, Clone, Default)]
pub(crate) struct Remarkable {
    /// Requests, what they did, and its time in microseconds.
    pub(crate) requests: u64,
    pub(crate) count: u64,
    pub(crate) us: u64,
    /// The most of a request, and its place.
    pub(crate) most_us: u32,
    pub(crate) at: Option<Arc<str>>,
}

impl Remarkable {
    fn record(&mut self, count: u32, us: u32, at: Option<&Arc<str>>) {
        if count == 0 {
            return;
        }
        self.requests += 1;
        self.count += u64::from(count);
        self.us += u64::from(us);
        self.place(us, at);
    }

    /// Keeps the place of the request with the most time, among those whose place is known.
    fn place(&mut self, us: u32, at: Option<&Arc<str>>) {
        if at.is_some() && (self.at.is_none() || us > self.most_us) {
            self.at = at.cloned();
        }
        self.most_us = self.most_us.max(us);
    }

    fn add(&mut self, other: &Remarkable) {
        self.requests += other.requests;
        self.count += other.count;
        self.us += other.us;
        self.place(other.most_us, other.at.as_ref());
    }
}

/// The figures of one route. Times are in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct RouteCounts {
    pub(crate) requests: u64,
    /// By the first digit of the status; 0: none.
    pub(crate) classes: [u64; 6],
    pub(crate) failures: u64,
    pub(crate) cache_hits: u64,
    pub(crate) body_bytes: u64,
    /// Requests that the app has served.
    pub(crate) in_app: u64,
    /// Those whose processor time was measured.
    pub(crate) measured: u64,
    pub(crate) sending_us: u64,
    pub(crate) cpu: Estimate,
    pub(crate) gvl: Estimate,
    pub(crate) gc: Estimate,
    pub(crate) allocations: Estimate,
    /// Requests whose queries were counted.
    pub(crate) queried: u64,
    pub(crate) queries: u64,
    pub(crate) queries_us: u64,
    /// Requests that repeat a query.
    pub(crate) repeats: Remarkable,
    /// Requests in which a function in C kept Ruby's global lock for long.
    pub(crate) holds: Remarkable,
    /// Requests that were chosen at random to be looked at, those whose response a cache could keep, and those that it would have answered.
    pub(crate) sampled: [u64; 3],
    pub(crate) total: LogHistogram,
    pub(crate) queue: LogHistogram,
    pub(crate) app: LogHistogram,
}

impl RouteCounts {
    #[inline]
    pub(crate) fn record(&mut self, request: &Finished<'_>) {
        self.requests += 1;
        self.classes[usize::from(request.status / 100).min(5)] += 1;
        self.failures += u64::from(request.failed || request.status >= 500);
        self.cache_hits += u64::from(request.cached);
        self.body_bytes += request.body_bytes;
        if !request.hijacked {
            self.total.record(request.total_us);
        }
        if let (Some(queue_us), Some(app_us)) = (request.queue_us, request.app_us) {
            self.in_app += 1;
            self.queue.record(queue_us.into());
            self.app.record(app_us.into());
            self.sending_us += u64::from(request.sending_us);
            self.measured += u64::from(request.cpu_us.is_some());
            if request.sampled {
                let (could, would) = (request.would_hit.is_some(), request.would_hit == Some(true));
                self.sampled.iter_mut().zip([true, could, would]).for_each(|(sum, is)| *sum += u64::from(is));
            }
            self.cpu.record(app_us, request.cpu_us);
            self.gvl.record(app_us, request.gvl_us);
            self.gc.record(app_us, request.used.gc_us);
            self.allocations.record(app_us, request.used.allocations);
        }
        if let Some(queries) = request.used.queries {
            self.queried += 1;
            self.queries += u64::from(queries);
            self.queries_us += u64::from(request.used.queries_us.unwrap_or(0));
        }
        if let Some(remarks) = request.remarks {
            self.remark(remarks);
        }
    }

    #[cold]
    fn remark(&mut self, remarks: &Remarks<Option<Arc<str>>>) {
        self.repeats.record(remarks.repeats, remarks.repeats_us, remarks.repeats_at.as_ref());
        self.holds.record(u32::from(remarks.held_us > 0), remarks.held_us, remarks.held_at.as_ref());
    }

    pub(crate) fn add(&mut self, other: &RouteCounts) {
        self.requests += other.requests;
        self.repeats.add(&other.repeats);
        self.holds.add(&other.holds);
        self.sampled.iter_mut().zip(other.sampled).for_each(|(sum, count)| *sum += count);
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, count)| *sum += count);
        self.failures += other.failures;
        self.cache_hits += other.cache_hits;
        self.body_bytes += other.body_bytes;
        self.in_app += other.in_app;
        self.measured += other.measured;
        self.sending_us += other.sending_us;
        self.queried += other.queried;
        self.queries += other.queries;
        self.queries_us += other.queries_us;
        for (sum, one) in [
            (&mut self.cpu, &other.cpu),
            (&mut self.gvl, &other.gvl),
            (&mut self.gc, &other.gc),
            (&mut self.allocations, &other.allocations),
        ] {
            sum.add(one);
        }
        for (sum, one) in
            [(&mut self.total, &other.total), (&mut self.queue, &other.queue), (&mut self.app, &other.app)]
        {
            sum.add(one);
        }
    }
}
