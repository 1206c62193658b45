//! `--workers`: the number of processes, and whether each gets a part of the load.

use std::net::TcpListener;

use load::Scenario;
use load::inputs;
use load::scenario::{Part, Traffic};

use super::flags::Flags;
use crate::workers::{self, Where};

/// The most processes, more than any machine can use.
const MOST: u64 = 256;

/// Returns the number of processes.
pub(super) fn count(flags: &mut Flags<'_>) -> usize {
    let count = flags.value("workers", |text| match inputs::count(text)? {
        count @ 1..=MOST => Ok(count),
        count => Err(format!("{count} processes: expected 1 to {MOST}")),
    });
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1)
}

/// Returns whether each process can read all inputs, since standard input can be read only once. Called
/// before any input is read.
pub(super) fn can_read_inputs(flags: &mut Flags<'_>) -> bool {
    let mut can = true;
    for name in ["replay", "urls", "body-file", "journey"] {
        if flags.given("workers") && !flags.given("listen") && flags.text(name) == Some("-") {
            flags.mistake(format!(
                "--{name} - cannot be used with --workers, because each process reads it: expected a file name"
            ));
            can = false;
        }
    }
    can
}

/// Returns the coordinator to join and the token.
pub(super) fn join(flags: &mut Flags<'_>) -> Option<(String, String)> {
    const OUTPUT: [&str; 9] =
        ["workers", "listen", "json", "csv", "html", "name", "quiet", "fail-if", "control"];
    flags.not_with("join", &OUTPUT, "it belongs to the coordinator, which has the report");
    let address = flags.value("join", |text| match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(format!("{text:?} is not an address: expected HOST:PORT, such as bench-0.bench:9299")),
    })?;
    Some((address, token(flags)?))
}

/// Returns the place of the processes: with `--listen` it is other machines. Starts listening if there are no
/// mistakes so far.
pub(super) fn place(flags: &mut Flags<'_>) -> Where {
    flags.needs("listen", "workers", "it is the number of workers that will join");
    if !flags.given("listen") {
        return Where::Here;
    }
    let token = token(flags);
    let listener = flags.value("listen", |text| {
        TcpListener::bind(text).map_err(|why| {
            format!("{text:?}: {why}: expected an address and port of this machine, such as 0.0.0.0:9299")
        })
    });
    match listener.zip(token) {
        Some((listener, token)) => Where::Elsewhere { listener, token },
        None => Where::Here,
    }
}

fn token(flags: &mut Flags<'_>) -> Option<String> {
    workers::token().map_err(|why| flags.mistake(why)).ok()
}

/// Returns the parts of all processes.
pub(super) fn parts(workers: usize) -> impl Iterator<Item = Part> {
    (0..workers).filter_map(move |number| Part::new(number, workers))
}

/// Reports an error for each limit that leaves processes without a load.
pub(super) fn fit(flags: &mut Flags<'_>, scenario: &Scenario, workers: usize) {
    let mut limit = |most: u64, what: &str| {
        if most < workers as u64 {
            flags.mistake(format!("--workers {workers}: {what}: expected at most {}", most.max(1)));
        }
    };
    match &scenario.traffic {
        Traffic::Closed { users, .. } => {
            limit(
                *users as u64,
                &format!("there are {users} users (-c, or -n if it is less), and each process needs one"),
            );
        }
        Traffic::Open { connections, .. } | Traffic::Replay { connections, .. } => {
            limit(
                *connections as u64,
                &format!("there are {connections} connections (-c), and each process needs one"),
            );
        }
    }
    if let Traffic::Open { stages, .. } = &scenario.traffic {
        let highest = stages.iter().map(|stage| stage.from.max(stage.to)).fold(0.0, f64::max);
        // The rate is at most 1e8.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        limit(
            highest as u64,
            &format!("--rate is {highest} per second at most, and each process needs one per second"),
        );
    }
    if let (Traffic::Open { .. } | Traffic::Replay { .. }, Some(requests)) =
        (&scenario.traffic, scenario.stop.requests)
    {
        limit(requests, &format!("there are {requests} requests (-n), and each process needs one"));
    }
    if let Traffic::Replay { arrivals, .. } = &scenario.traffic {
        let count = arrivals.len();
        limit(count as u64, &format!("there are {count} requests in the log, and each process needs one"));
    }
}
