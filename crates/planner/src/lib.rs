//! How many, and why: pure arithmetic from a few facts. No files, no clock, no chance.
//!
//! Two halves. Sizing: [`sizing::answer`] says from a rate and a response time how many instances it takes, how long
//! requests wait, what a burst does and what it costs; [`queue`] and [`erlang`] are its formulas. Choosing: from a few
//! measured [`Cell`]s [`nature()`] says what an app is, [`Model`] what other shapes would do, [`worth_measuring`] which to
//! measure next, and [`recommend()`] which to run.
#![forbid(unsafe_code)]

pub mod burst;
pub mod capacity;
pub mod cell;
mod choose;
mod closed;
pub mod erlang;
mod explain;
pub mod facts;
pub mod memory;
pub mod model;
pub mod nature;
mod open;
pub mod queue;
pub mod recommend;
mod said;
pub mod service;
pub mod sizing;
pub mod slo;
mod squares;
pub mod steps;
pub mod usl;
pub mod words;

pub use cell::{Cell, Limit, MemoryPoint, Shape, Times};
pub use memory::{Leak, Memory};
pub use model::{Bottleneck, Estimate, Model, Prediction, predict};
pub use nature::{Kind, Nature, nature};
pub use recommend::{Budget, Choice, Recommendation, RunnerUp, recommend, worth_measuring};
pub use slo::Slo;
pub use usl::Usl;
