//! The requests of one release to one route.

use super::sample::TrialSample;
use super::spread::Spread;

/// The figures that are compared, with the place of each in [`RouteSide::spreads`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrialFigure {
    Time,
    Cpu,
    Allocations,
    Queries,
}

impl TrialFigure {
    pub(super) const ALL: [TrialFigure; 4] =
        [TrialFigure::Time, TrialFigure::Cpu, TrialFigure::Allocations, TrialFigure::Queries];

    /// Returns the amount within which no two values differ: 1 ms, half of one, 500 objects, two queries.
    fn offset(self) -> u32 {
        match self {
            TrialFigure::Time => 1000,
            TrialFigure::Cpu => 500,
            TrialFigure::Allocations => 500,
            TrialFigure::Queries => 2,
        }
    }

    fn of(self, sample: &TrialSample) -> Option<u32> {
        match self {
            TrialFigure::Time => Some(sample.app_us),
            TrialFigure::Cpu => sample.cpu_us,
            TrialFigure::Allocations => sample.allocations,
            TrialFigure::Queries => sample.queries,
        }
    }
}

/// The requests of one release to one route.
#[derive(Debug, Clone)]
pub(super) struct RouteSide {
    pub(super) requests: u64,
    pub(super) failures: u64,
    spreads: [Spread; TrialFigure::ALL.len()],
}

impl Default for RouteSide {
    fn default() -> RouteSide {
        let spreads = TrialFigure::ALL.map(|figure| Spread::with_offset(figure.offset()));
        RouteSide { requests: 0, failures: 0, spreads }
    }
}

impl RouteSide {
    /// Adds a request of the release. `warming`: the first requests that say nothing about its figures.
    pub(super) fn add(&mut self, sample: &TrialSample, warming: u64) {
        self.requests += 1;
        self.failures += u64::from(sample.failed);
        // An error page says nothing about the time of the page.
        if sample.failed || self.requests <= warming {
            return;
        }
        for figure in TrialFigure::ALL {
            if let Some(value) = figure.of(sample) {
                self.spreads[figure as usize].record(value);
            }
        }
    }

    pub(super) fn spread(&self, figure: TrialFigure) -> &Spread {
        &self.spreads[figure as usize]
    }
}
