//! How many, and why: pure arithmetic from a few facts.
#![forbid(unsafe_code)]

pub mod burst;
pub mod capacity;
pub mod cell;
mod choose;
mod closed;
pub mod erlang;
pub mod facts;
pub mod memory;
pub mod model;
pub mod nature;
mod open;
pub mod queue;
pub mod recommend;
mod said;
pub mod service;
pub mod slo;
mod squares;
pub mod usl;
pub mod words;

pub use cell::{Cell, Limit, MemoryPoint, Shape, Times};
pub use memory::{Leak, Memory};
pub use model::{Estimate, Model, Prediction, predict};
pub use nature::{Nature, nature};
pub use recommend::{Budget, Recommendation, recommend, worth_measuring};
pub use slo::Slo;
pub use usl::Usl;
