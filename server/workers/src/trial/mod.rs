//! The trial of a new release, in the requests of clients: whether memory has room for it beside the old one
//! ([`Figures`]), and whether it does as well, route by route ([`ReleaseComparison`]).
//!
//! Why by route: a mean over all requests hides a route that has become slow or fails, if it is not the most frequent.
//! Why in the same minutes: load, data and neighbours change; only requests that both releases served at the same time compare.
//!
//! Contract:
//! 1. Only results worse than those of the old release count: an app that has always failed can be reloaded.
//! 2. The verdict may be asked for at any time, as often as wanted: the chance that an unchanged app is ever found worse is at most
//!    [`FALSE_ALARMS`], over all routes and figures together ([`odds`]).
//! 3. The first [`WARMING`] requests of a route in the new worker count for its failures only: caches and statements are cold.
//! 4. Time that a request of the new worker waits longer for a processor than those of the others is not the release's ([`waits`]).
//! 5. The share of the worker grows while nothing speaks against it ([`ShareGrowth`]).
//!    Its memory is compared as often as the routes are ([`MemoryTrend`]).
//! 6. Without a trial, a request costs one atomic load.
//!
//! The files: [`sample`] is one request; [`spread`] the distribution of a figure; [`odds`] the evidence in two counts; [`side`] the requests
//! of one release and route; [`findings`] compares two sides; [`comparison`] collects, and gives the verdict; [`totals`] judges all requests together; [`waits`] are those for a processor; [`weight`] judges the memory.

mod comparison;
mod findings;
mod memory;
mod odds;
mod sample;
mod share;
mod side;
mod spread;
mod totals;
mod waits;
mod weight;

pub use comparison::ReleaseComparison;
pub use memory::Figures;
pub use sample::TrialSample;
pub use share::ShareGrowth;
pub(crate) use totals::verdict;
pub(crate) use waits::ProcessorWaits;
pub use weight::{MemoryTrend, Weighed, weigh_pair};

/// The probability that a reload of an unchanged app is reverted.
const FALSE_ALARMS: f64 = 0.001;
/// The first requests of a route in the new worker whose times say nothing.
const WARMING: u64 = 16;
