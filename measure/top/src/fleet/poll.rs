//! Finds the servers, and queries each on its own thread.
//!
//! Contract: a server that does not answer blocks only its own thread, and for [`super::patience`] at most.

use super::target::{List, Resolver, System};
use super::{MOST, patience, too_many};
use control::ControlAddress;
use control::client::{ControlClient, Error};
use stats::ServerSnapshot;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

/// The interval between resolving names and reading the file.
const LOOK: Duration = Duration::from_secs(5);
/// The stack size of a querying thread, which does little.
const STACK: usize = 512 << 10;
/// The interval at which a thread checks whether it is still wanted.
const NAP: Duration = Duration::from_millis(200);

pub(crate) enum PollResult {
    /// A new server.
    Joined(ControlAddress),
    /// A server that has left the list.
    Left(ControlAddress),
    /// A server's answer at that time, or the reason why there is none.
    Sampled(ControlAddress, Instant, Result<Box<ServerSnapshot>, String>),
    /// The message about the list; empty when the list is fine again.
    List(String),
}

/// The time between two samples, which may change.
#[derive(Clone)]
pub(crate) struct Pace(Arc<AtomicU64>);

impl Pace {
    pub(crate) fn new(interval: Duration) -> Pace {
        let pace = Pace(Arc::default());
        pace.set(interval);
        pace
    }

    pub(crate) fn set(&self, interval: Duration) {
        self.0.store(u64::try_from(interval.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Starts watching the servers of a list, until the receiver is dropped.
pub(crate) fn start(list: List, token: Option<String>, pace: Pace) -> Receiver<PollResult> {
    let (sender, reports) = channel();
    // The thread ends with the program; it holds nothing that needs cleanup.
    std::thread::spawn(move || watch(list, token, &pace, &sender));
    reports
}

fn watch(mut list: List, token: Option<String>, pace: &Pace, reports: &Sender<PollResult>) {
    let mut watched: BTreeMap<String, (ControlAddress, Arc<AtomicBool>)> = BTreeMap::new();
    let mut said = String::new();
    loop {
        let mut wrong: Vec<String> = list.reread().into_iter().collect();
        let found = servers(&list, &System, &mut wrong);
        // If a name cannot be resolved for a moment, the state of its servers is kept.
        let complete = wrong.is_empty();
        for address in found.iter().take(MOST) {
            watched.entry(address.to_string()).or_insert_with(|| {
                let wanted = Arc::new(AtomicBool::new(true));
                let _ = reports.send(PollResult::Joined(address.clone()));
                let client = ControlClient::new(address.clone(), token.clone());
                if let Err(why) = ask(client, pace.clone(), wanted.clone(), reports.clone()) {
                    let _ = reports.send(PollResult::Sampled(address.clone(), Instant::now(), Err(why)));
                }
                (address.clone(), wanted)
            });
        }
        if complete {
            watched.retain(|_, (address, wanted)| {
                let stays = found.contains(address);
                if !stays {
                    wanted.store(false, Ordering::Relaxed);
                    let _ = reports.send(PollResult::Left(address.clone()));
                }
                stays
            });
        }
        if found.len() > MOST {
            wrong.push(too_many(found.len()));
        }
        let text = wrong.join("; ");
        if text != said {
            said.clone_from(&text);
            if reports.send(PollResult::List(text)).is_err() {
                return;
            }
        }
        sleep(LOOK);
    }
}

/// Returns all servers of a list without duplicates; adds messages about the list to `wrong`.
pub(super) fn servers(list: &List, resolver: &impl Resolver, wrong: &mut Vec<String>) -> Vec<ControlAddress> {
    let mut all: Vec<ControlAddress> = Vec::new();
    for target in list.targets() {
        match target.servers(resolver) {
            Ok(found) => found.into_iter().for_each(|address| {
                if !all.contains(&address) {
                    all.push(address);
                }
            }),
            Err(why) => wrong.push(why),
        }
    }
    all
}

fn ask(
    client: ControlClient,
    pace: Pace,
    wanted: Arc<AtomicBool>,
    reports: Sender<PollResult>,
) -> Result<(), String> {
    let body = move || {
        let mut due = Instant::now();
        while wanted.load(Ordering::Relaxed) {
            let interval = pace.get();
            let answer = client.clone().within(patience(interval)).stats();
            let answer = answer.map(Box::new).map_err(|error| reason(&error));
            if reports.send(PollResult::Sampled(client.address().clone(), Instant::now(), answer)).is_err() {
                return;
            }
            // Keeps the pace, but does not catch up after a pause.
            due = (due + interval).max(Instant::now());
            while wanted.load(Ordering::Relaxed) && Instant::now() < due {
                sleep(due.saturating_duration_since(Instant::now()).min(NAP));
            }
        }
    };
    let started = Builder::new().name("ask".to_owned()).stack_size(STACK).spawn(body);
    started.map(drop).map_err(|why| format!("no thread to ask it: {why}"))
}

/// Returns why a server did not answer, without its address, which is shown next to it.
fn reason(error: &Error) -> String {
    match error {
        Error::NotRunning(_) => "nothing listens there".to_owned(),
        Error::Token(_) => "wrong control token: set FIREBRICK_CONTROL_TOKEN".to_owned(),
        Error::NotControl(_, what) => format!("not Firebrick, or another version: {what}"),
        Error::Io(_, error) => match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => "it does not respond".to_owned(),
            _ => error.to_string(),
        },
        other => other.to_string(),
    }
}
