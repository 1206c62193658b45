//! Rate limits: how many requests are admitted in a period, of each client or of all.
//!
//! Why: an app should not see the tenth login in a minute, nor one client's flood, and a limit that each server keeps for itself is
//! another one with every pod that starts. So servers can count together in Redis; a server that loses Redis goes on with its share.
//!
//! [`Limiter`] judges requests on one front thread; [`Ledger`] is what the threads of a process have in common; `gcra.lua` is the whole
//! of what runs in Redis. [`Limit`] and [`Counters`] are the algorithms and the bounded table, which the limits of handlers on mruby
//! use, too.
//!
//! Contract:
//! 1. In every period at most `count + burst` requests are admitted, and in the long run `count` per period (GCRA). A refused request
//!    is not counted.
//! 2. All threads of a process count together; with `shared` all servers of a group do, by Redis's clock alone.
//! 3. No request waits longer than `shared.timeout` for Redis, and none fails because of it. While it is away, each server admits the
//!    limit divided by the servers that were there last.
//! 4. Memory is bounded, whatever keys clients send: [`Counters`].
//! 5. What identifies a client in a header never leaves the process as it is: Redis sees a hash.
#![forbid(unsafe_code)]

pub mod address;
mod counters;
mod ledger;
mod limiter;
mod rate;
mod rules;
mod store;

pub use counters::Counters;
pub use ledger::Ledger;
pub use limiter::{Judgement, Limiter, check, concerning};
pub use rate::{Count, Limit, Rule, Verdict};
