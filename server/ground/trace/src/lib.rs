//! Distributed traces: the context of requests, sampling, and the recorded state of a request.
//!
//! Why: one picture with the wait for a worker, the app and the database explains a slow page. The server
//! adds its own part to the trace that the caller has begun.
//!
//! Contract: pure. No clock, no I/O, no random numbers; ids are passed in.
#![forbid(unsafe_code)]

mod active;
mod context;
mod sampler;

pub use active::Active;
pub use context::{SpanId, TraceId, TraceParent};
pub use sampler::Sampler;
