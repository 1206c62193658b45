//! The exporter: a task that collects requests into batches and sends them, with patience but not for ever.
//!
//! Contract:
//! 1. Memory is bounded by the queue and one batch. What does not fit is dropped and counted; nobody waits.
//! 2. A batch that the collector does not take is sent again ([`super::retry`]), then dropped and counted.
//! 3. What is dropped is in the log at most once in [`EVERY`], with the last reason.
//! 4. After the order to stop each batch that is left is tried once.

use super::config::Config;
use super::otlp;
use super::record::Record;
use super::retry::{Answer, pause};
use super::send::Collector;
use crate::error_log::ErrorLog;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// Time between two lines of the log.
const EVERY: Duration = Duration::from_secs(60);

/// Collects and sends.
pub(super) struct Exporter {
    pub(super) config: Config,
    pub(super) collector: Collector,
    pub(super) records: mpsc::Receiver<Record>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) losses: Losses,
}

/// What could not be exported, and when that was last said.
pub(super) struct Losses {
    pub(super) log: Arc<ErrorLog>,
    /// Requests for which the queue had no room; counted by the front threads.
    pub(super) crowded: Arc<AtomicU64>,
    given_up: u64,
    why: String,
    said: Option<Instant>,
}

impl Losses {
    pub(super) fn new(log: Arc<ErrorLog>, crowded: Arc<AtomicU64>) -> Losses {
        Losses { log, crowded, given_up: 0, why: String::new(), said: None }
    }

    /// Writes a line if there is something to say, and it is time.
    fn say(&mut self, at_last: bool) {
        let early = self.said.is_some_and(|at| at.elapsed() < EVERY) && !at_last;
        if early || (self.given_up == 0 && self.crowded.load(Ordering::Relaxed) == 0) {
            return;
        }
        let crowded = self.crowded.swap(0, Ordering::Relaxed);
        let lost = std::mem::take(&mut self.given_up) + crowded;
        let why = match (self.why.as_str(), crowded) {
            ("", _) => "the collector is slower than the requests come".to_owned(),
            (why, _) => why.to_owned(),
        };
        self.said = Some(Instant::now());
        self.log.write(&format!("traces: the spans of {lost} requests were dropped: {why}"));
        self.why.clear();
    }
}

impl Exporter {
    /// Runs until it was told to stop and everything has been tried.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.fill(&mut batch).await {
            self.export(std::mem::take(&mut batch)).await;
            self.losses.say(false);
        }
        self.losses.say(true);
    }

    /// Fills a batch; `false` when there is nothing left and nothing will come.
    async fn fill(&mut self, batch: &mut Vec<Record>) -> bool {
        let mut deadline: Option<Instant> = None;
        while batch.len() < self.config.batch {
            if *self.stop.borrow() {
                match self.records.try_recv() {
                    Ok(record) => batch.push(record),
                    Err(_) => break,
                }
                continue;
            }
            let received = tokio::select! {
                biased;
                received = self.records.recv() => received,
                // Without a sender nobody will say it any more.
                changed = self.stop.changed() => if changed.is_err() { break } else { continue },
                () = until(deadline) => break,
                // What was dropped meanwhile is told although no batch is sent.
                () = tokio::time::sleep(EVERY), if deadline.is_none() => {
                    self.losses.say(false);
                    continue;
                }
            };
            let Some(record) = received else { break };
            batch.push(record);
            deadline.get_or_insert_with(|| Instant::now() + self.config.delay);
        }
        !batch.is_empty()
    }

    async fn export(&mut self, batch: Vec<Record>) {
        let (count, body) = (batch.len() as u64, otlp::encode(&self.config.resource, &batch).into());
        drop(batch);
        let body: bytes::Bytes = body;
        let mut attempt = 1;
        loop {
            let (answer, unwanted) = self.collector.send(&self.config, body.clone()).await;
            let (why, wait) = match answer {
                Answer::Accepted => {
                    if let Some(text) = unwanted {
                        self.losses.log.write(&format!("traces: {text}"));
                    }
                    return;
                }
                Answer::Refused(why) => (why, None),
                Answer::Later { why, after } => {
                    (why, pause(attempt, after, fastrand::f64()).filter(|_| !*self.stop.borrow()))
                }
            };
            self.losses.why = format!("{}{}: {why}", self.config.origin, self.config.target);
            let Some(wait) = wait else {
                self.losses.given_up += count;
                return;
            };
            attempt += 1;
            // An order to stop ends the wait; the attempt that follows is the last.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = self.stop.changed() => {}
            }
            self.losses.say(false);
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
