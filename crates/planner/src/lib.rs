//! How many, and why: pure arithmetic from a few facts.
#![forbid(unsafe_code)]

pub mod cell;
pub mod model;
pub mod nature;
pub mod recommend;
pub mod slo;
pub mod usl;

pub use cell::{Cell, Limit, MemoryPoint, Shape, Times};
pub use model::{Estimate, Model, Prediction, predict};
pub use nature::{Nature, nature};
pub use recommend::{Budget, Recommendation, recommend};
pub use slo::Slo;
pub use usl::Usl;
