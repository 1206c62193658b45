//! Validates a scenario before anything is sent.

use std::time::Duration;

use crate::prepare::url;
use crate::scenario::{ConnectTo, Protocol, Scenario, Stage, Traffic};

/// Checks the scenario.
///
/// # Errors
/// The invalid part, and a valid form of it.
pub(crate) fn validate(scenario: &Scenario) -> Result<(), String> {
    if scenario.requests.is_empty() {
        return Err("no request: give at least one URL, such as http://127.0.0.1:9292/".to_owned());
    }
    if scenario.threads == 0 {
        return Err("threads must be at least 1".to_owned());
    }
    if scenario.timeouts.connect.is_zero() || scenario.timeouts.request.is_zero() {
        return Err("timeouts must be at least 1ms".to_owned());
    }
    match scenario.transport.protocol {
        Protocol::Http1 { pipeline: 0, .. } => {
            return Err("the pipeline depth must be at least 1".to_owned());
        }
        Protocol::Http1 { keep_alive: false, pipeline: 2.. } => {
            return Err(
                "pipelining requires keep-alive: without it, each connection carries one request".to_owned()
            );
        }
        Protocol::Http2 { streams: 0 } | Protocol::Http3 { streams: 0 } => {
            return Err("streams must be at least 1".to_owned());
        }
        _ => {}
    }
    if scenario.journey.is_some()
        && !matches!(scenario.transport.protocol, Protocol::Http1 { pipeline: 1, .. })
    {
        return Err("journeys need HTTP/1.1 without pipelining".to_owned());
    }
    if matches!(scenario.transport.protocol, Protocol::Http3 { .. }) {
        http3(scenario)?;
    }
    if scenario.stop.requests == Some(0) || scenario.stop.rounds == Some(0) {
        return Err("the number of requests must be at least 1".to_owned());
    }
    traffic(scenario)
}

fn http3(scenario: &Scenario) -> Result<(), String> {
    if let Some(plain) = scenario.requests.iter().find(|request| !request.origin.tls) {
        return Err(format!("{}: HTTP/3 is always encrypted: use https://", url(&plain.origin)));
    }
    match &scenario.transport.to {
        Some(ConnectTo::Unix(path)) => {
            Err(format!("unix:{}: HTTP/3 needs UDP, which Unix sockets do not carry", path.display()))
        }
        _ => Ok(()),
    }
}

fn traffic(scenario: &Scenario) -> Result<(), String> {
    let stop = &scenario.stop;
    match &scenario.traffic {
        Traffic::Closed { users: 0, .. } => Err("users must be at least 1".to_owned()),
        Traffic::Closed { .. } => match (stop.requests, stop.rounds, stop.after) {
            (None, None, None) => {
                Err("the run would never end: give a number of requests, rounds per user, or a duration"
                    .to_owned())
            }
            _ => Ok(()),
        },
        Traffic::Open { connections: 0, .. } | Traffic::Replay { connections: 0, .. } => {
            Err("connections must be at least 1".to_owned())
        }
        Traffic::Open { stages, .. } => open(stages, stop.requests.is_some() || stop.after.is_some()),
        Traffic::Replay { arrivals, .. } => replay(scenario, arrivals),
    }
}

fn open(stages: &[Stage], ends: bool) -> Result<(), String> {
    let Some((last, before)) = stages.split_last() else {
        return Err("no rate: give one, such as 500 per second".to_owned());
    };
    for stage in stages {
        for rate in [stage.from, stage.to] {
            if !(0.0..=1e9).contains(&rate) {
                return Err(format!(
                    "a rate of {rate} per second is out of range: expected 0 to 1,000,000,000"
                ));
            }
        }
    }
    if before.iter().any(|stage| stage.duration.is_none()) {
        return Err("only the last stage may have no duration".to_owned());
    }
    if last.duration.is_none() && !ends {
        return Err("the run would never end: give a number of requests or a duration".to_owned());
    }
    let silent = |stage: &Stage| stage.from + stage.to <= 0.0 || stage.duration == Some(Duration::ZERO);
    if stages.iter().all(silent)
        || (last.duration.is_none() && stages.len() == 1 && last.from + last.to <= 0.0)
    {
        return Err("the rate is always 0: give one above 0".to_owned());
    }
    Ok(())
}

fn replay(scenario: &Scenario, arrivals: &[(Duration, usize)]) -> Result<(), String> {
    if arrivals.is_empty() {
        return Err("there is nothing to replay".to_owned());
    }
    if !arrivals.is_sorted_by_key(|(due, _)| *due) {
        return Err("the times to replay are not sorted".to_owned());
    }
    match arrivals.iter().any(|(_, kind)| *kind >= scenario.requests.len()) {
        true => Err("a replayed request is not among the requests of the scenario".to_owned()),
        false => Ok(()),
    }
}
