//! The load model, and the end of the run.

use std::time::Duration;

use load::inputs;
use load::scenario::{Arrivals, RequestOrder, Stage, Stop, Think, Traffic};

use super::flags::Flags;
use super::requests::Requests;
use crate::description::Traffic as TrafficDescription;

const USERS: usize = 50;
const MOST_CONNECTIONS: usize = 1_000;
/// The duration of a run without any limit.
const USUAL: Duration = Duration::from_secs(10);
/// The default seed. Random orders and arrivals are reproducible, so that runs can be compared; another seed
/// gives others.
const SEED: u64 = 1;

/// The load model, and the end of the run.
pub(super) struct Timing {
    pub traffic: Traffic,
    pub stop: Stop,
    pub order: RequestOrder,
    pub description: TrafficDescription,
}

pub(super) fn read(flags: &mut Flags<'_>, requests: Option<&Requests>) -> Option<Timing> {
    flags.not_with("rate", &["think"], "the rate determines when requests are sent");
    flags.not_with("rate", &["reps"], "an open model has no users; use -n for the number of requests");
    flags.not_with("replay", &["think", "reps", "order"], "the log determines when requests are sent");
    if !flags.given("find") {
        flags.needs("arrivals", "rate", "it sets the distribution of arrivals");
    }
    let order = flags.value("order", order).unwrap_or(RequestOrder::InTurn);
    let connections = flags.count("connections");
    let stop = Stop {
        requests: flags.value("requests", inputs::count),
        rounds: flags.value("reps", inputs::count),
        after: flags.positive_duration("duration"),
    };
    let stop = match requests.filter(|requests| requests.once) {
        Some(requests) => Stop { requests: Some(requests.requests.len() as u64), ..stop },
        None => stop,
    };
    let arrivals = flags.value("arrivals", arrivals).unwrap_or(Arrivals::Even);
    let think = flags.value("think", inputs::think).unwrap_or(Think::None);
    if let Some(recorded) = requests.and_then(|requests| requests.arrivals.clone()) {
        let description = TrafficDescription::Replay {
            speed: flags
                .text("speed")
                .map_or_else(|| "1x".to_owned(), |speed| format!("{}x", speed.trim_end_matches('x'))),
            lasting_s: recorded.last().map_or(0.0, |(at, _)| at.as_secs_f64()),
        };
        let traffic =
            Traffic::Replay { arrivals: recorded, connections: connections.unwrap_or(MOST_CONNECTIONS) };
        return Some(Timing { traffic, stop, order, description });
    }
    if flags.given("find") {
        // The search sets the rate of each step.
        let arrivals = if flags.given("arrivals") { arrivals } else { Arrivals::Random(SEED) };
        let random = matches!(arrivals, Arrivals::Random(_));
        let stages = vec![Stage { from: 1.0, to: 1.0, duration: None }];
        let stop = Stop { after: Some(USUAL), ..Stop::default() };
        let traffic =
            Traffic::Open { stages, arrivals, connections: connections.unwrap_or(MOST_CONNECTIONS) };
        let description = TrafficDescription::Open { rate: "a rate to find".to_owned(), random };
        return Some(Timing { traffic, stop, order, description });
    }
    if flags.given("rate") {
        let stages = flags.value("rate", inputs::stages)?;
        let (stages, stop) = open(flags, stages, stop)?;
        let random = matches!(arrivals, Arrivals::Random(_));
        let description =
            TrafficDescription::Open { rate: flags.text("rate").unwrap_or_default().to_owned(), random };
        let traffic =
            Traffic::Open { stages, arrivals, connections: connections.unwrap_or(MOST_CONNECTIONS) };
        return Some(Timing { traffic, stop, order, description });
    }
    let endless = stop.requests.is_none() && stop.rounds.is_none() && stop.after.is_none();
    let stop = if endless { Stop { after: Some(USUAL), ..stop } } else { stop };
    // More users than requests would only open unused connections.
    let most = stop.requests.and_then(|requests| usize::try_from(requests).ok()).unwrap_or(usize::MAX);
    let users = connections.unwrap_or(USERS).min(most);
    let description = TrafficDescription::Closed { think: flags.text("think").map(str::to_owned) };
    Some(Timing { traffic: Traffic::Closed { users, think }, stop, order, description })
}

/// Sets the duration of the last stage and the end of the run.
fn open(flags: &mut Flags<'_>, mut stages: Vec<Stage>, stop: Stop) -> Option<(Vec<Stage>, Stop)> {
    let known: Duration = stages.iter().filter_map(|stage| stage.duration).sum();
    let last = stages.last_mut()?;
    if last.duration.is_some() {
        return Some((stages, stop));
    }
    if let Some(after) = stop.after
        && after <= known
    {
        flags.mistake(format!(
            "--rate: the stages before the last one take {} s, but --duration ends the run before: expected a longer --duration",
            known.as_secs_f64()
        ));
        return None;
    }
    let rest = stop.after.map_or(USUAL, |after| after.saturating_sub(known));
    if last.from != last.to {
        last.duration = Some(rest);
        return Some((stages, stop));
    }
    let endless = stop.after.is_none() && stop.requests.is_none();
    let stop = if endless { Stop { after: Some(known + rest), ..stop } } else { stop };
    Some((stages, stop))
}

fn seeded(text: &str) -> Option<Result<u64, String>> {
    let rest = text.strip_prefix("random")?;
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some(Ok(SEED)),
        Some(seed) => Some(
            seed.parse()
                .map_err(|_| format!("{seed:?} is not a seed: expected a whole number, such as random:7")),
        ),
        None => None,
    }
}

fn order(text: &str) -> Result<RequestOrder, String> {
    match seeded(text) {
        Some(seed) => seed.map(RequestOrder::Random),
        None if text == "in-turn" => Ok(RequestOrder::InTurn),
        None => Err(format!("{text:?} is not an order: expected in-turn or random")),
    }
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match seeded(text) {
        Some(seed) => seed.map(Arrivals::Random),
        None if text == "even" => Ok(Arrivals::Even),
        None => Err(format!("{text:?}: expected even or random")),
    }
}
