//! The worker: serves Rack requests that come as frames (docs/internals/wire.md) inside a CRuby process.
//!
//! From the bottom; each uses only what comes before it:
//!
//! 1. `raw/` contains the unsafe code.
//! 2. `link.rs` is a socket to the front, `outbox.rs` its unsent frames, `intake.rs` the count of the requests taken up from it. `watchdog.rs`
//!    sends and returns while a request is slow.
//! 3. `worker.rs` holds the state that the threads share, among it the request that each serves; `worker/roles.rs` divides the work, by the
//!    pace of the requests (`pace.rs`). The app holds its request by a ticket (`ticket.rs`), because its code runs on any thread.
//! 4. `links.rs` reads and sends. `waiting.rs` has the waits in the code of a request; `fibers/` parks its fiber meanwhile, and the app's own
//!    threads wait in `guest.rs`.
//! 5. `job.rs` takes one request from its frame to its END: `env.rs` builds its env, `head.rs`, `body.rs`, `chunks.rs` and `loan.rs` its
//!    response, `emit.rs` the frames; `routes.rs` finds the name of its route, `queries.rs` counts those of the database.
//! 6. `profile.rs` takes profiles, while the front orders them; `heap.rs` has the methods for heap dumps, `allocations.rs` the routes of the objects in them.
//! 7. `serve.rs` is the loop of a thread, `serve/fiber_loop.rs` that of a thread with fibers. `entry.rs` has the methods that Ruby calls.

mod allocations;
mod body;
mod chunks;
mod collection;
mod emit;
mod entry;
mod env;
mod fibers;
mod guest;
mod head;
mod heap;
mod holds;
mod intake;
mod job;
mod link;
mod links;
mod loan;
mod names;
mod outbox;
mod pace;
mod profile;
mod queries;
mod raw;
mod recorder;
mod repeats;
mod routes;
mod scoreboard;
mod seat;
mod serve;
mod stretch;
mod ticket;
mod waiting;
mod watchdog;
mod worker;

raw::methods::library!(entry::define);

/// Writes a line to standard error. Errors are ignored: the reader of a pipe may be gone, which must not end the process, as a panic would.
fn complain(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stderr().lock(), "firebrick: {line}");
}
