//! An answer while it comes in, and whether it is right.

use sha2::{Digest, Sha256};

use crate::clock::Moment;
use crate::h1::head::Head;
use crate::h1::reader::Sink;
use crate::job::{Answer, Failure, Job};
use crate::lane::Lane;
use crate::outcome::Seen;
use crate::plan::{Checks, Length};
use crate::timing;

/// Bodies that a regular expression looks at are kept up to here; what follows is not looked at.
const LONGEST_KEPT: usize = 16 * 1024 * 1024;

/// What has come of an answer.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub answer: Answer,
    hash: Option<Sha256>,
    kept: Vec<u8>,
    software: Option<String>,
    /// `Set-Cookie` fields.
    pub cookies: Vec<Vec<u8>>,
}

impl Incoming {
    /// Begins anew.
    pub(crate) fn reset(&mut self) {
        self.answer = Answer::default();
        self.hash = None;
        self.kept.clear();
        self.cookies.clear();
    }

    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        if name.eq_ignore_ascii_case("server-timing") {
            self.answer.timing = timing::parse(value).or(self.answer.timing);
        } else if name.eq_ignore_ascii_case("set-cookie") {
            self.cookies.push(value.to_vec());
        } else if name.eq_ignore_ascii_case("server") {
            self.software = Some(String::from_utf8_lossy(value).into_owned());
        }
    }

    pub(crate) fn body(&mut self, bytes: &[u8], checks: &Checks) {
        self.answer.length += bytes.len() as u64;
        if checks.sha256.is_some() {
            self.hash.get_or_insert_default().update(bytes);
        }
        if checks.matching.is_some() {
            let room = LONGEST_KEPT - self.kept.len();
            self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
    }

    /// The answer is whole: judges and counts it.
    pub(crate) fn finish(&mut self, lane: &Lane, job: &Job, sent: Moment, now: Moment, protocol: &str) {
        self.answer.sent = sent;
        self.answer.end = now;
        let verdict = self.judge(lane, job);
        let mut recorder = lane.recorder.borrow_mut();
        match verdict {
            None => {
                recorder.right(job, &self.answer);
                if recorder.seen.is_none() {
                    recorder.seen = Some(Seen {
                        software: self.software.take(),
                        protocol: protocol.to_owned(),
                        tls: lane.tls(),
                        length: self.answer.length,
                    });
                }
            }
            Some((failure, text)) => recorder.wrong(job, &self.answer, failure, &text),
        }
    }

    fn judge(&mut self, lane: &Lane, job: &Job) -> Option<(Failure, String)> {
        let checks = &lane.run.plan.checks;
        let Answer { status, length, .. } = self.answer;
        let right = match checks.statuses.as_slice() {
            [] => status < 400,
            ranges => ranges.iter().any(|(first, last)| (*first..=*last).contains(&status)),
        };
        if !right {
            return Some((Failure::Status, format!("status {status}")));
        }
        let expected = match checks.length {
            None => length,
            Some(Length::Exactly(expected)) => expected,
            Some(Length::Same) => lane.run.first_length(job.kind, length),
        };
        if length != expected {
            return Some((Failure::Length, format!("body of {length} bytes instead of {expected}")));
        }
        if let Some(expected) = &checks.sha256 {
            let hash = self.hash.take().unwrap_or_default().finalize();
            if hash.as_slice() != expected {
                return Some((Failure::Body, "body with another SHA-256".to_owned()));
            }
        }
        if checks.matching.as_ref().is_some_and(|expression| !expression.is_match(&self.kept)) {
            return Some((Failure::Body, "body that does not match the regular expression".to_owned()));
        }
        None
    }
}

/// Incoming HTTP/1 bytes on their way into an [`Incoming`].
pub(crate) struct Receiving<'a> {
    pub incoming: &'a mut Incoming,
    pub checks: &'a Checks,
    pub to_head: bool,
    pub wants_fields: bool,
}

impl Sink for Receiving<'_> {
    fn to_head(&self) -> bool {
        self.to_head
    }

    fn wants_fields(&self) -> bool {
        self.wants_fields
    }

    fn field(&mut self, name: &str, value: &[u8]) {
        self.incoming.field(name, value);
    }

    fn head(&mut self, head: &Head) {
        self.incoming.answer.status = head.status;
    }

    fn body(&mut self, bytes: &[u8]) {
        self.incoming.body(bytes, self.checks);
    }
}
