//! The worker: serves Rack requests that come as frames (docs/wire.md) inside a CRuby process.
//!
//! `raw/` fences the unsafe code. `serve.rs` is the loop of a thread and `worker.rs` what the threads share and how
//! they divide the work; `link.rs` is a socket to the front. `job.rs` takes one request from its frame to its END:
//! `env.rs` builds its env, `head.rs`, `body.rs` and `loan.rs` its response, `emit.rs` the frames.

mod body;
mod emit;
mod env;
mod head;
mod job;
mod link;
mod loan;
mod names;
mod raw;
mod scoreboard;
mod serve;
mod task;
mod worker;
