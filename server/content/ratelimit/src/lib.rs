//! Implements rate limits: how many requests are admitted per period, per client or in total.
//!
//! Why: an app should not see the tenth login in a minute, nor one client's flood, and a per-server limit
//! changes with every pod that starts. So servers can count together in Redis; a server that loses Redis
//! continues with its share.
//!
//! [`Limiter`] decides about requests on one front thread. [`LimiterState`] is the shared state of a
//! process's threads. `gcra.lua` counts requests in Redis. [`Limit`] and [`Counters`] are the algorithms and
//! the bounded table, which the limits of mruby handlers use too.
//!
//! Contract:
//! 1. In every period at most `count + burst` requests are admitted, and in the long run `count` per period
//!    (GCRA). A refused request is not counted.
//! 2. All threads of a process count together. With `shared`, all servers of a group do, by Redis's clock alone.
//! 3. No request waits longer than `shared.timeout` for Redis, and none fails because of it. During an
//!    outage, each server admits the limit divided by the last known number of servers.
//! 4. Memory is bounded, whatever keys clients send: [`Counters`].
//! 5. A header value that identifies a client never leaves the process: Redis gets a hash.
#![forbid(unsafe_code)]

mod counters;
mod ledger;
mod limiter;
mod rate;
mod rules;
mod store;

pub use counters::Counters;
pub use ledger::LimiterState;
pub use limiter::{Judgement, Limiter, check, concerning};
pub use rate::{Count, Limit, RateDecision, Rule};
