//! Profiles of the workers: what `POST /profile` returns. Pure.
//!
//! [`merge`] makes one [`Profile`] of the records that each worker has sent ([`wire::profile`]). Frames with the same name and file become one, whichever
//! worker and whichever of Ruby's interfaces has reported them. [`state`] names the state of each sample.
//!
//! Contract: records that break a rule end the part of their worker, which is then not complete; the others are not affected.
#![forbid(unsafe_code)]

mod merge;
mod model;
mod paths;
mod state;

pub use merge::{Part, merge};
pub use model::{Profile, ProfileSample, Request, Stack, StackFrame, WorkerPart};
pub use paths::Folders;
pub use state::State;
