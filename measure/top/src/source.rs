//! Queries the server on a separate thread, so that a slow server does not block the keys.

use crate::view::Sample;
use control::client::{ControlClient, Error};
use stats::InFlight;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The number of requests in flight to fetch: more than a screen has lines.
const REQUESTS: usize = 60;
/// The number of requests in flight to fetch when looking for one with its backtrace.
const TRACED: usize = 500;

/// A result of a query.
pub(crate) enum Update {
    /// A sample, or the time and reason of a failed query.
    Sample(Result<Box<Sample>, (Instant, String)>),
    /// The requests in flight with backtraces; `passed` is the time since `request` was shown.
    Trace { request: InFlight, passed: Duration, response: Result<Vec<InFlight>, String> },
}

/// A command to the querying thread.
pub(crate) enum Command {
    Interval(Duration),
    /// Fetch the backtrace of this request, which was shown at that time.
    Trace(InFlight, Instant),
}

/// The number of ended workers to fetch: enough to include one that ended unexpectedly while all others leave
/// in a reload.
const DEATHS: usize = 40;

/// Takes one sample of the server.
pub(crate) fn sample(client: &ControlClient) -> Result<Sample, Error> {
    let server = client.stats()?;
    let at = Instant::now();
    let has_app = !server.rack.is_empty() || !server.workers.is_empty();
    let requests = match client.requests(REQUESTS, false) {
        // A static site has no requests in flight, and older servers do not report them.
        Err(Error::Refused(404, _)) => Vec::new(),
        Err(error) if has_app => return Err(error),
        requests => requests.unwrap_or_default(),
    };
    let died = server.deaths.iter().any(|(_, count)| count > 0);
    let deaths = if died { client.deaths(DEATHS)? } else { Vec::new() };
    Ok(Sample { server, requests, deaths, at })
}

/// Takes a sample every `interval` until the receiver is dropped.
pub(crate) fn start(client: ControlClient, interval: Duration) -> (Sender<Command>, Receiver<Update>) {
    let (commands, receiver) = channel();
    let (sender, updates) = channel();
    // The thread ends with the program; it holds nothing that needs cleanup.
    std::thread::spawn(move || run(&client, interval, &receiver, &sender));
    (commands, updates)
}

fn run(
    client: &ControlClient,
    mut interval: Duration,
    receiver: &Receiver<Command>,
    sender: &Sender<Update>,
) {
    let mut due = Instant::now();
    loop {
        match receiver.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Command::Interval(new)) => {
                interval = new;
                due = Instant::now() + interval;
            }
            Ok(Command::Trace(request, seen)) => {
                let response = client.requests(TRACED, true).map_err(|error| error.to_string());
                if sender.send(Update::Trace { request, passed: seen.elapsed(), response }).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let sampled =
                    sample(client).map(Box::new).map_err(|error| (Instant::now(), error.to_string()));
                if sender.send(Update::Sample(sampled)).is_err() {
                    return;
                }
                // Keeps the pace, but does not catch up after a pause.
                due = (due + interval).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
