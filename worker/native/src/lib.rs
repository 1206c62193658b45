//! The worker: serves Rack requests that come as frames (docs/internals/wire.md) inside a CRuby process.
//!
//! `raw/` contains the unsafe code. `serve.rs` is the loop of a thread; `worker.rs` holds the state that the threads share, among it the
//! request that each serves; `worker/roles.rs` divides the work, by the pace of the requests (`pace.rs`). `link.rs` is a socket to the front, `outbox.rs` its unsent frames, `intake.rs`
//! the count of the requests taken up from it.
//! The app holds its request by a ticket (`ticket.rs`), because its code runs on any thread; the app's own threads wait in `guest.rs`.
//! `watchdog.rs` sends and returns while a request is slow. `job.rs` takes one request from its frame to its END:
//! `env.rs` builds its env, `head.rs`, `body.rs` and `loan.rs` its response, `emit.rs` the frames. `entry.rs` has the methods that Ruby calls.

mod body;
mod collection;
mod emit;
mod entry;
mod env;
mod fibers;
mod guest;
mod hasher;
mod head;
mod intake;
mod job;
mod link;
mod loan;
mod names;
mod outbox;
mod pace;
mod raw;
mod scoreboard;
mod serve;
mod stretch;
mod ticket;
mod watchdog;
mod worker;

raw::methods::library!(entry::define);

/// Writes a line to standard error. Errors are ignored: the reader of a pipe may be gone, which must not end the process, as a panic would.
fn complain(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "firebrick: {line}");
}
