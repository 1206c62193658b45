//! The load of a cell: requests without an address, which is filled in once the server's port is known.

use std::collections::HashSet;
use std::time::Duration;

use load::scenario::{
    Arrivals, Checks, Origin, Protocol, Request, RequestOrder, Scenario, Stop, Think, Timeouts, Tls, Traffic,
    Transport,
};

use crate::options::{Amount, LoadOptions};
use crate::requests::nowhere;

/// The load of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Portion {
    /// Concurrent users.
    pub(crate) users: usize,
    /// A number of requests or a duration.
    pub(crate) amount: Amount,
    /// The time limit for runs that count requests.
    pub(crate) at_most: Option<Duration>,
}

/// Returns the scenario of one run against 127.0.0.1:`port`. With `stages` it requests timings from a Firebrick server.
pub(crate) fn scenario(load: &LoadOptions, portion: Portion, port: u16, stages: bool) -> Scenario {
    let origin = Origin { port, ..nowhere() };
    let requests: Vec<Request> =
        load.requests.iter().map(|request| Request { origin: origin.clone(), ..request.clone() }).collect();
    let (requests_at_most, after) = match portion.amount {
        Amount::Requests(requests) => (Some(requests.max(1)), portion.at_most),
        Amount::Time(time) => (None, Some(time)),
    };
    let traffic = match &load.open {
        Some(stages) => Traffic::Open {
            stages: stages.clone(),
            arrivals: Arrivals::Random(1),
            connections: most_connections(load),
        },
        None => Traffic::Closed {
            users: portion.users.max(1),
            think: if load.think.is_zero() { Think::None } else { Think::Fixed(load.think) },
        },
    };
    Scenario {
        requests,
        order: RequestOrder::InTurn,
        traffic,
        stop: Stop { requests: requests_at_most, rounds: None, after },
        warm_up: Duration::ZERO,
        transport: Transport {
            protocol: Protocol::Http1 { keep_alive: true, pipeline: 1 },
            to: None,
            tls: Tls::default(),
        },
        timeouts: Timeouts { connect: Duration::from_secs(5), request: load.timeout, grace: load.timeout },
        checks: Checks::default(),
        threads: 1,
        cookies: false,
        stages,
        journey: None,
        part: load::scenario::Part::default(),
    }
}

/// Returns the connections of an open model: the requests in flight at the highest rate with a response time
/// of one second.
fn most_connections(load: &LoadOptions) -> usize {
    let rates = load.open.iter().flatten().flat_map(|stage| [stage.from, stage.to]);
    rates.fold(100.0, f64::max).min(10_000.0) as usize
}

/// Returns a description such as "30 concurrent users, 600 requests per cell, GET /".
pub(crate) fn words(load: &LoadOptions) -> String {
    let how_much = match load.amount {
        Amount::Requests(requests) => format!("{requests} requests"),
        Amount::Time(time) => format!("{:.3} s", time.as_secs_f64()).replace(".000", ""),
    };
    let who = match &load.open {
        Some(_) => "an open load".to_owned(),
        None if load.users == 1 => "1 user".to_owned(),
        None => format!("{} concurrent users", load.users),
    };
    let names: Vec<String> = load
        .requests
        .iter()
        .take(3)
        .map(|request| format!("{} {}", request.method, request.target))
        .collect();
    let different: HashSet<&String> = names.iter().collect();
    let more = match load.requests.len().saturating_sub(names.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = if different.len() == 1 { names[0].clone() } else { names.join(", ") };
    format!("{who}, {how_much} per cell, {names}{more}")
}
