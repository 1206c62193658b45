//! `firebrick top --fleet`: shows several servers on one screen, or on a page for browsers.
//!
//! Why: behind a load balancer the question is whether one of the servers differs from the others, and how
//! far a rollout has come. Every server counts for itself and in the same buckets, so their numbers can be
//! added without loss.
//!
//! Contract:
//! 1. Servers are queried independently: a frozen or missing server delays no other, and is shown with the reason.
//! 2. Totals and percentiles cover all servers that answered, as if one server had counted everything
//!    ([`stats::Steps`]).
//! 3. Names are resolved, and the list is read, again and again: new servers join, and removed ones stay
//!    visible for [`model::KEPT`].
//! 4. The other servers alone decide what an outlier is, by a stated rule ([`outliers`]).

mod live;
mod model;
mod once;
mod outliers;
mod page;
mod poll;
mod screen;
mod target;

use crate::Failure;
use crate::options::{FleetOptions, Options};
use control::client::ControlClient;
use std::time::Duration;

/// Shows the fleet. `client` belongs to the folder's server; its token is sent to all servers.
pub(crate) fn run(client: &ControlClient, options: &Options, fleet: &FleetOptions) -> Result<(), Failure> {
    let list = target::List::new(&fleet.servers, fleet.file.as_deref()).map_err(Failure::Usage)?;
    let token = client.token().map(str::to_owned);
    match &fleet.serve {
        Some(address) => page::run(list, token, options.interval, address),
        None if options.once => once::run(list, token, options),
        None => live::run(list, token, options),
    }
}

/// Returns how long a server may take to answer, which is as long as a sample is fresh.
fn patience(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(2), Duration::from_secs(10))
}

/// The most servers; each is queried on its own thread.
const MOST: usize = 1_000;

/// Returns the message about a list that is too long.
fn too_many(count: usize) -> String {
    format!("the list has {count} servers; at most {MOST} can be watched together: watch parts of it")
}

/// Returns a number of servers as text.
fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

#[cfg(test)]
fn targets(words: &[&str]) -> Vec<target::Target> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}
