//! Capacity planning as pure arithmetic. No files, no clock, no randomness.
//!
//! Two parts. Sizing: [`size_up`] computes from a rate and a response time how many instances are needed, how
//! long requests wait, the effect of a burst, and the cost; [`queue`] and [`erlang`] have the formulas. Choosing: from
//! a few measured [`Cell`]s, [`profile()`] characterizes the app, [`Model`] predicts other shapes, [`worth_measuring`]
//! selects the next measurement, and [`recommend()`] the shape to run.
#![forbid(unsafe_code)]

pub mod bill;
pub mod burst;
pub mod capacity;
pub mod cell;
mod choice;
mod choose;
mod closed;
mod describe;
pub mod erlang;
mod explain;
pub mod facts;
pub mod fibers;
pub mod format;
pub mod memory;
pub mod model;
mod open;
pub mod profile;
pub mod queue;
pub mod recommend;
pub mod scaling;
pub mod service;
pub mod sizing;
pub mod slo;
mod squares;
pub mod steps;
pub mod usl;

pub use cell::{Cell, LimitedBy, MemoryPoint, Shape, Times};
pub use choice::{Budget, Choice, Recommendation, Rejected, RunnerUp};
pub use describe::profile;
pub use explain::{compare, size_up};
pub use memory::{Leak, Memory};
pub use model::{Bottleneck, Estimate, Model, Prediction, predict};
pub use profile::{AppKind, Profile};
pub use recommend::{recommend, worth_measuring};
pub use slo::Slo;
pub use usl::Usl;
pub use wire::Seats;
