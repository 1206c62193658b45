//! The worker: serves Rack requests that come as frames (docs/wire.md) inside a CRuby process.
//!
//! `raw/` fences the unsafe code. `serve.rs` is the loop of a thread and `worker.rs` what the threads share and how
//! they divide the work; `link.rs` is a socket to the front, `outbox.rs` what waits to be sent on it, `intake.rs` what has been taken up from it.
//! What the app holds of a request is a ticket (`ticket.rs`), for its code runs on any thread; `guest.rs` is how those of the app wait.
//! `watchdog.rs` sees to both while a request is slow; `place.rs` keeps apart the workers of a
//! process that has several. `job.rs` takes one request from its frame to its END:
//! `env.rs` builds its env, `head.rs`, `body.rs` and `loan.rs` its response, `emit.rs` the frames.

mod body;
mod collection;
mod emit;
mod env;
mod fibers;
mod guest;
mod head;
mod intake;
mod job;
mod link;
mod loan;
mod names;
mod outbox;
mod place;
mod raw;
mod scoreboard;
mod serve;
mod task;
mod thread;
mod ticket;
mod watchdog;
mod worker;

/// Writes a line to standard error. It may be a pipe that nobody reads any more: that must not end a process, as a panic would.
fn complain(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "firebrick: {line}");
}
