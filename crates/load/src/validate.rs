//! Whether a plan makes sense, before anything is sent.

use std::time::Duration;

use crate::plan::{Plan, Protocol, Stage, Traffic};

/// # Errors
/// What does not, and what would.
pub(crate) fn validate(plan: &Plan) -> Result<(), String> {
    if plan.requests.is_empty() {
        return Err(
            "there is nothing to ask: give at least one URL, such as http://127.0.0.1:9292/".to_owned()
        );
    }
    if plan.threads == 0 {
        return Err("0 threads cannot send anything: at least 1".to_owned());
    }
    if plan.timeouts.connect.is_zero() || plan.timeouts.request.is_zero() {
        return Err("with a timeout of 0 nothing could be answered in time: at least 1ms".to_owned());
    }
    match plan.transport.protocol {
        Protocol::Http1 { pipeline: 0, .. } => {
            return Err("a pipeline of depth 0 holds no request: at least 1".to_owned());
        }
        Protocol::Http1 { keep_alive: false, pipeline: 2.. } => {
            return Err(
                "pipelining needs keep-alive: without it each connection carries one request".to_owned()
            );
        }
        Protocol::Http2 { streams: 0 } => return Err("0 streams carry no request: at least 1".to_owned()),
        _ => {}
    }
    if plan.stop.requests == Some(0) || plan.stop.rounds == Some(0) {
        return Err("0 requests measure nothing: at least 1".to_owned());
    }
    traffic(plan)
}

fn traffic(plan: &Plan) -> Result<(), String> {
    let stop = &plan.stop;
    match &plan.traffic {
        Traffic::Closed { users: 0, .. } => Err("0 users ask for nothing: at least 1".to_owned()),
        Traffic::Closed { .. } => match (stop.requests, stop.rounds, stop.after) {
            (None, None, None) => {
                Err("the run would never end: give a number of requests, rounds of each user, or a duration"
                    .to_owned())
            }
            _ => Ok(()),
        },
        Traffic::Open { connections: 0, .. } | Traffic::Replay { connections: 0, .. } => {
            Err("0 connections carry nothing: at least 1".to_owned())
        }
        Traffic::Open { stages, .. } => open(stages, stop.requests.is_some() || stop.after.is_some()),
        Traffic::Replay { arrivals, .. } => replay(plan, arrivals),
    }
}

fn open(stages: &[Stage], ends: bool) -> Result<(), String> {
    let Some((last, before)) = stages.split_last() else {
        return Err("there is no rate: give one, such as 500 per second".to_owned());
    };
    for stage in stages {
        for rate in [stage.from, stage.to] {
            if !(0.0..=1e9).contains(&rate) {
                return Err(format!(
                    "a rate of {rate} per second is not possible: between 0 and 1,000,000,000"
                ));
            }
        }
    }
    if before.iter().any(|stage| stage.lasting.is_none()) {
        return Err("only the last stage of a rate may last as long as the run: give the others a duration"
            .to_owned());
    }
    if last.lasting.is_none() && !ends {
        return Err("the run would never end: give a number of requests or a duration".to_owned());
    }
    let silent = |stage: &Stage| stage.from + stage.to <= 0.0 || stage.lasting == Some(Duration::ZERO);
    if stages.iter().all(silent)
        || (last.lasting.is_none() && stages.len() == 1 && last.from + last.to <= 0.0)
    {
        return Err("with a rate of 0 nothing is ever sent: give one above 0".to_owned());
    }
    Ok(())
}

fn replay(plan: &Plan, arrivals: &[(Duration, usize)]) -> Result<(), String> {
    if arrivals.is_empty() {
        return Err("there is nothing to replay".to_owned());
    }
    if !arrivals.is_sorted_by_key(|(due, _)| *due) {
        return Err("the times to replay decrease somewhere: sort them".to_owned());
    }
    match arrivals.iter().any(|(_, kind)| *kind >= plan.requests.len()) {
        true => Err("a replayed request is not among the requests of the plan".to_owned()),
        false => Ok(()),
    }
}
