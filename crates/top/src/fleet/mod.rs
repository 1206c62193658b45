//! `firebrick top --fleet`: several servers on one screen, or on a page for browsers.
//!
//! Why: behind a load balancer the question is not how one server is, but whether one of them is not like the others, and how far a
//! rollout has come. Every server counts for itself and in the same buckets, so their figures add up without a loss.
//!
//! Contract:
//! 1. Servers are asked independently: one that is frozen or gone delays nobody, and is shown with the reason.
//! 2. Totals and percentiles are those of all servers that answered, as if one had counted ([`stats::Steps`]).
//! 3. Names are resolved, and the list is read, again and again: servers that come are joined, those that go stay for [`model::KEPT`].
//! 4. What an outlier is follows from the other servers alone, by a rule that is stated ([`outliers`]).

mod live;
mod model;
mod once;
mod outliers;
mod page;
mod poll;
mod screen;
mod target;

use crate::Failure;
use crate::options::Options;
use control::client::Client;
use std::path::PathBuf;
use std::time::Duration;

/// Which servers, and where the page is if there is to be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FleetOptions {
    /// As they were typed.
    pub(crate) servers: Vec<String>,
    /// A file with more of them.
    pub(crate) file: Option<PathBuf>,
    /// Serve a page at this address instead of drawing a screen.
    pub(crate) serve: Option<String>,
}

/// Shows the fleet. `client`: that of the folder's server, whose token is sent to all.
pub(crate) fn run(client: &Client, options: &Options, fleet: &FleetOptions) -> Result<(), Failure> {
    let list = target::List::new(&fleet.servers, fleet.file.as_deref()).map_err(Failure::Usage)?;
    let token = client.token().map(str::to_owned);
    match &fleet.serve {
        Some(address) => page::run(list, token, options.interval, address),
        None if options.once => once::run(list, token, options),
        None => live::run(list, token, options),
    }
}

/// How long a server may take to answer: as long as a sample is fresh.
fn patience(interval: Duration) -> Duration {
    interval.clamp(Duration::from_secs(2), Duration::from_secs(10))
}

/// Most servers: each has a thread of its own here.
const MOST: usize = 1_000;

/// The text about a list that is too long.
fn too_many(count: usize) -> String {
    format!("the list has {count} servers; at most {MOST} can be watched together: watch parts of it")
}

/// Servers as a word.
fn servers(count: usize) -> String {
    if count == 1 { "1 server".to_owned() } else { format!("{count} servers") }
}

#[cfg(test)]
fn targets(words: &[&str]) -> Vec<target::Target> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}
