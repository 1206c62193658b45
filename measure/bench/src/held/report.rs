//! The result of a run with `--sse` or `--ws`, for all formats; its JSON.

use load::held::{Conversation, HoldOutcome, Pace, Plan, Reply, Talk};
use load::scenario::ConnectTo;
use serde::Serialize;

use crate::figures::{Figures, per_second};
use crate::validity::BUSY;

/// The most URLs listed.
const URLS: usize = 20;

/// The document that `--format json` and `--json` write.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub kind: &'static str,
    pub version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub plan: Wanted,
    pub summary: Summary,
    pub outcome: HoldOutcome,
    pub notes: Vec<String>,
}

/// The order of the user.
#[derive(Debug, Serialize)]
pub(super) struct Wanted {
    /// The first URLs.
    pub urls: Vec<String>,
    pub connections: usize,
    pub threads: usize,
    pub duration_s: f64,
    pub timeout_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect_to: Option<String>,
    /// The messages of WebSockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Messages>,
}

#[derive(Debug, Serialize)]
pub(super) struct Messages {
    /// Different messages.
    pub send: usize,
    /// The length of the first one.
    pub bytes: usize,
    /// Messages of each connection per second; null: after the reply to the last one.
    pub rate_per_s: Option<f64>,
    /// `echo`, `next`, `match` or `none`.
    pub reply: &'static str,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Summary {
    pub seconds: f64,
    /// Open connections at the end.
    pub held: u64,
    pub errors: u64,
    /// Events or messages.
    pub received_per_s: f64,
    pub received_bytes_per_s: f64,
    pub sent_per_s: f64,
    pub open_ms: Figures,
    pub first_ms: Figures,
    pub gaps_ms: Figures,
    pub round_trip_ms: Figures,
}

impl Report {
    pub fn new(name: Option<String>, mut urls: Vec<String>, plan: &Plan) -> Report {
        urls.truncate(URLS);
        let connect_to = plan.transport.to.as_ref().map(|to| match to {
            ConnectTo::Tcp(address) => address.to_string(),
            ConnectTo::Unix(path) => format!("unix:{}", path.display()),
        });
        let (kind, messages) = match &plan.talk {
            Talk::Events => ("firebrick bench --sse", None),
            Talk::WebSocket(talk) => ("firebrick bench --ws", Some(messages(talk))),
        };
        let plan = Wanted {
            urls,
            connections: plan.connections,
            threads: plan.threads,
            duration_s: plan.duration.as_secs_f64(),
            timeout_ms: plan.timeouts.request.as_secs_f64() * 1e3,
            connect_to,
            messages,
        };
        let (summary, outcome) = (Summary::default(), HoldOutcome::default());
        Report { kind, version: 1, name, plan, summary, outcome, notes: Vec::new() }
    }

    /// Computes the summary and the notes of the outcome.
    pub fn summarize(&mut self) {
        let outcome = &self.outcome;
        let seconds = outcome.seconds;
        self.summary = Summary {
            seconds,
            held: outcome.held_at_end,
            errors: outcome.error_count() + outcome.unanswered,
            received_per_s: per_second(outcome.received, seconds),
            received_bytes_per_s: per_second(outcome.received_bytes, seconds),
            sent_per_s: per_second(outcome.sent, seconds),
            open_ms: Figures::of(&outcome.open_us),
            first_ms: Figures::of(&outcome.first_us),
            gaps_ms: Figures::of(&outcome.gaps_us),
            round_trip_ms: Figures::of(&outcome.round_trip_us),
        };
        self.notes = self.remarks();
    }

    pub fn is_web_socket(&self) -> bool {
        self.plan.messages.is_some()
    }

    /// Returns the unit of received data: `events` or `messages`.
    pub fn units(&self) -> &'static str {
        if self.is_web_socket() { "messages" } else { "events" }
    }

    fn remarks(&self) -> Vec<String> {
        let outcome = &self.outcome;
        let mut notes = Vec::new();
        if outcome.busy >= BUSY {
            notes.push("the load generator was the bottleneck: use more threads (-t), or run bench on another machine".to_owned());
        }
        if outcome.received == 0 {
            notes.push(format!("no {} came in the counted part", self.units()));
        }
        if outcome.unsent > 0 {
            notes.push(format!(
                "{} messages were due but not sent, because the server did not read what was sent before",
                outcome.unsent
            ));
        }
        let replies =
            self.plan.messages.as_ref().is_some_and(|messages| messages.send > 0 && messages.reply == "echo");
        if replies && outcome.sent > 0 && outcome.round_trip_us.is_empty() {
            notes
                .push("no message came back: --reply says which message of the server is a reply".to_owned());
        }
        notes
    }
}

fn messages(talk: &Conversation) -> Messages {
    Messages {
        send: talk.send.len(),
        bytes: talk.send.first().map_or(0, |message| message.content.len()),
        rate_per_s: match talk.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::AfterReply(_) => None,
        },
        reply: match talk.reply {
            Reply::Echo => "echo",
            Reply::Next => "next",
            Reply::Matching(_) => "match",
            Reply::None => "none",
        },
    }
}
