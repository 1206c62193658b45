//! Asks the server, on a thread of its own: it may take its time, keys may not.

use crate::view::Look;
use control::client::{Client, Error};
use stats::InFlight;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Requests in flight that are asked for: more than a screen has lines.
const REQUESTS: usize = 60;
/// Requests among which one is looked for whose backtrace is wanted.
const TRACED: usize = 500;

/// What came of asking.
pub(crate) enum Told {
    /// A look, or since when and why there is none.
    Look(Result<Box<Look>, (Instant, String)>),
    /// The requests in flight with where they are, for one that was asked for at this moment.
    Trace { asked: InFlight, passed: Duration, answer: Result<Vec<InFlight>, String> },
}

/// What is to be asked.
pub(crate) enum Order {
    Interval(Duration),
    /// Where this request is, which was seen at that moment.
    Trace(InFlight, Instant),
}

/// One look at the server.
pub(crate) fn look(client: &Client) -> Result<Look, Error> {
    let server = client.stats()?;
    let at = Instant::now();
    let has_app = !server.rack.is_empty() || !server.workers.is_empty();
    let requests = match client.requests(REQUESTS, false) {
        // A site has none, and an older server cannot tell.
        Err(Error::Refused(404, _)) => Vec::new(),
        Err(error) if has_app => return Err(error),
        told => told.unwrap_or_default(),
    };
    Ok(Look { server, requests, at })
}

/// Looks every `interval` until nobody listens any more.
pub(crate) fn start(client: Client, interval: Duration) -> (Sender<Order>, Receiver<Told>) {
    let (orders, to_do) = channel();
    let (tell, told) = channel();
    // Ends with the program; it holds nothing that would have to be given back.
    std::thread::spawn(move || run(&client, interval, &to_do, &tell));
    (orders, told)
}

fn run(client: &Client, mut interval: Duration, to_do: &Receiver<Order>, tell: &Sender<Told>) {
    let mut due = Instant::now();
    loop {
        match to_do.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Order::Interval(new)) => {
                interval = new;
                due = Instant::now() + interval;
            }
            Ok(Order::Trace(asked, seen)) => {
                let answer = client.requests(TRACED, true).map_err(|error| error.to_string());
                if tell.send(Told::Trace { asked, passed: seen.elapsed(), answer }).is_err() {
                    return;
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                let looked = look(client).map(Box::new).map_err(|error| (Instant::now(), error.to_string()));
                if tell.send(Told::Look(looked)).is_err() {
                    return;
                }
                // From one look to the next, and no crowd of them after a pause.
                due = (due + interval).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
