//! Distributed traces: the context that requests carry, sampling, and what is recorded of a request.
//!
//! Why: a slow page is explained by seeing the wait for a worker, the app and the database in one picture. The server adds what only it
//! knows to the trace that others have begun.
//!
//! Contract: pure. No clock, no I/O, no random numbers of its own: ids are passed in.
#![forbid(unsafe_code)]

mod active;
mod context;
mod sampler;

pub use active::Active;
pub use context::{SpanId, TraceId, TraceParent};
pub use sampler::Sampler;
