//! When requests are sent and when the run is over.

use std::time::Duration;

use load::inputs;
use load::plan::{Arrivals, Order, Stage, Stop, Think, Traffic};

use super::flags::Flags;
use super::requests::Requests;
use crate::told::Traffic as ToldTraffic;

const USERS: usize = 50;
const MOST_CONNECTIONS: usize = 1_000;
/// When nothing says how long.
const USUAL: Duration = Duration::from_secs(10);
/// Random orders and arrivals are the same each time, so that runs can be compared; another seed gives others.
const SEED: u64 = 1;

/// When requests are sent.
pub(super) struct When {
    pub traffic: Traffic,
    pub stop: Stop,
    pub order: Order,
    pub told: ToldTraffic,
}

pub(super) fn read(flags: &mut Flags<'_>, asked: Option<&Requests>) -> Option<When> {
    flags.not_with("rate", &["think", "replay"], "a rate says when requests are sent, whatever users do");
    flags.not_with(
        "rate",
        &["reps"],
        "there are no users who could count; expected -n for the number of requests",
    );
    flags.not_with("replay", &["think", "reps", "order"], "the log says when requests are sent");
    flags.needs("arrivals", "rate", "it says how arrivals at a rate follow each other");
    let order = flags.value("order", order).unwrap_or(Order::InTurn);
    let connections = flags.count("connections");
    let stop = Stop {
        requests: flags.value("requests", inputs::count),
        rounds: flags.value("reps", inputs::count),
        after: flags.positive_duration("duration"),
    };
    let arrivals = flags.value("arrivals", arrivals).unwrap_or(Arrivals::Even);
    let think = flags.value("think", think).unwrap_or(Think::None);
    if let Some(recorded) = asked.and_then(|asked| asked.arrivals.clone()) {
        let told = ToldTraffic::Replay {
            speed: flags
                .text("speed")
                .map_or_else(|| "1x".to_owned(), |speed| format!("{}x", speed.trim_end_matches('x'))),
            lasting_s: recorded.last().map_or(0.0, |(at, _)| at.as_secs_f64()),
        };
        let traffic =
            Traffic::Replay { arrivals: recorded, connections: connections.unwrap_or(MOST_CONNECTIONS) };
        return Some(When { traffic, stop, order, told });
    }
    if flags.given("rate") {
        let stages = flags.value("rate", inputs::stages)?;
        let (stages, stop) = open(flags, stages, stop)?;
        let random = matches!(arrivals, Arrivals::Random(_));
        let told = ToldTraffic::Open { rate: flags.text("rate").unwrap_or_default().to_owned(), random };
        let traffic =
            Traffic::Open { stages, arrivals, connections: connections.unwrap_or(MOST_CONNECTIONS) };
        return Some(When { traffic, stop, order, told });
    }
    let endless = stop.requests.is_none() && stop.rounds.is_none() && stop.after.is_none();
    let stop = if endless { Stop { after: Some(USUAL), ..stop } } else { stop };
    // More users than requests would only open connections for nothing.
    let most = stop.requests.and_then(|requests| usize::try_from(requests).ok()).unwrap_or(usize::MAX);
    let users = connections.unwrap_or(USERS).min(most);
    let told = ToldTraffic::Closed { think: flags.text("think").map(str::to_owned) };
    Some(When { traffic: Traffic::Closed { users, think }, stop, order, told })
}

/// Gives the last stage its length and the run its end.
fn open(flags: &mut Flags<'_>, mut stages: Vec<Stage>, stop: Stop) -> Option<(Vec<Stage>, Stop)> {
    let known: Duration = stages.iter().filter_map(|stage| stage.lasting).sum();
    let last = stages.last_mut()?;
    if last.lasting.is_some() {
        return Some((stages, stop));
    }
    if let Some(after) = stop.after
        && after <= known
    {
        flags.mistake(format!(
            "--rate: the stages before the last one take {} s, and --duration ends the run before: expected a longer --duration",
            known.as_secs_f64()
        ));
        return None;
    }
    let rest = stop.after.map_or(USUAL, |after| after.saturating_sub(known));
    if last.from != last.to {
        last.lasting = Some(rest);
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
                .map_err(|_| format!("{seed:?} is no seed: expected a whole number, such as random:7")),
        ),
        None => None,
    }
}

fn order(text: &str) -> Result<Order, String> {
    match seeded(text) {
        Some(seed) => seed.map(Order::Random),
        None if text == "in-turn" => Ok(Order::InTurn),
        None => Err(format!("{text:?} is no order: expected in-turn or random")),
    }
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    match seeded(text) {
        Some(seed) => seed.map(Arrivals::Random),
        None if text == "even" => Ok(Arrivals::Even),
        None => Err(format!("{text:?}: expected even or random")),
    }
}

/// `2s`, or `0..2s` for anything up to it.
fn think(text: &str) -> Result<Think, String> {
    let Some((from, to)) = text.split_once("..") else {
        return inputs::duration(text)
            .map(|time| if time.is_zero() { Think::None } else { Think::Fixed(time) });
    };
    if !from.is_empty() && !inputs::duration(from)?.is_zero() {
        return Err(format!("{text:?}: a random pause begins at 0, expected 0..{to}"));
    }
    inputs::duration(to).map(Think::UpTo)
}
