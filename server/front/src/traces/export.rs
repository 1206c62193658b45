//! The exporter: a task that collects requests into batches and sends them, with a limited number of retries.
//!
//! Contract:
//! 1. The queue and one batch limit the memory. Requests beyond that are dropped and counted. No request waits.
//! 2. A batch that the collector does not accept is sent again ([`super::retry`]), then dropped and counted.
//! 3. Dropped requests are logged at most once per [`EVERY`], with the last reason.
//! 4. After the order to stop, each remaining batch is tried once.

use super::config::Config;
use super::otlp;
use super::record::Record;
use super::retry::{CollectorAnswer, pause};
use super::send::Collector;
use crate::error_log::ErrorLog;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The minimum interval between two log lines.
const EVERY: Duration = Duration::from_secs(60);

pub(super) struct Exporter {
    pub(super) config: Config,
    pub(super) collector: Collector,
    pub(super) records: mpsc::Receiver<Record>,
    pub(super) stop: watch::Receiver<bool>,
    pub(super) losses: Losses,
}

/// The requests that could not be exported, and the time of the last log line about them.
pub(super) struct Losses {
    pub(super) log: Arc<ErrorLog>,
    /// Requests that found the queue full, counted by the front threads.
    pub(super) crowded: Arc<AtomicU64>,
    given_up: u64,
    why: String,
    said: Option<Instant>,
}

impl Losses {
    pub(super) fn new(log: Arc<ErrorLog>, crowded: Arc<AtomicU64>) -> Losses {
        Losses { log, crowded, given_up: 0, why: String::new(), said: None }
    }

    /// Logs the losses, if there are any and the last line is old enough.
    fn say(&mut self, at_last: bool) {
        let early = self.said.is_some_and(|at| at.elapsed() < EVERY) && !at_last;
        if early || (self.given_up == 0 && self.crowded.load(Ordering::Relaxed) == 0) {
            return;
        }
        let crowded = self.crowded.swap(0, Ordering::Relaxed);
        let lost = std::mem::take(&mut self.given_up) + crowded;
        let why = match (self.why.as_str(), crowded) {
            ("", _) => "the collector is too slow for the request rate".to_owned(),
            (why, _) => why.to_owned(),
        };
        self.said = Some(Instant::now());
        self.log.write(&format!("traces: the spans of {lost} requests were dropped: {why}"));
        self.why.clear();
    }
}

impl Exporter {
    /// Runs until the order to stop has come and all batches have been tried.
    pub(super) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.fill(&mut batch).await {
            self.export(std::mem::take(&mut batch)).await;
            self.losses.say(false);
        }
        self.losses.say(true);
    }

    /// Fills a batch. Returns `false` when the queue is empty and closed.
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
                // Without a sender, no order to stop can come.
                changed = self.stop.changed() => if changed.is_err() { break } else { continue },
                () = until(deadline) => break,
                // Losses are logged even while no batch is sent.
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
                CollectorAnswer::Accepted => {
                    if let Some(text) = unwanted {
                        self.losses.log.write(&format!("traces: {text}"));
                    }
                    return;
                }
                CollectorAnswer::Refused(why) => (why, None),
                CollectorAnswer::Later { why, after } => {
                    (why, pause(attempt, after, fastrand::f64()).filter(|_| !*self.stop.borrow()))
                }
            };
            self.losses.why = format!("{}{}: {why}", self.config.origin, self.config.target);
            let Some(wait) = wait else {
                self.losses.given_up += count;
                return;
            };
            attempt += 1;
            // An order to stop ends the pause. The following attempt is the last.
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
