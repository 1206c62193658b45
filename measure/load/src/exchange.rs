//! Receives a response and checks it.

use sha2::{Digest, Sha256};

use crate::clock::Moment;
use crate::job::{Failure, Job, Response};
use crate::lane::Lane;
use crate::outcome::ServerInfo;
use crate::recorded::{Expected, Recorded};
use crate::response::head::Head;
use crate::response::reader::Sink;
use crate::scenario::{Checks, Length};
use crate::timing;

/// The longest prefix of a body that is kept for the regular expression, in bytes; the rest is not matched.
const LONGEST_KEPT: usize = 16 * 1024 * 1024;

/// The received parts of a response.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    pub response: Response,
    /// The index of the request among those of the scenario.
    kind: usize,
    hash: Option<Sha256>,
    kept: Vec<u8>,
    software: Option<String>,
    pub cookies: Vec<Vec<u8>>,
    /// Whether body and fields are kept for a journey.
    keeps: bool,
    pub fields: Vec<(String, Vec<u8>)>,
}

impl Incoming {
    /// `keeps`: body and fields are kept.
    pub(crate) fn new(keeps: bool) -> Incoming {
        Incoming { keeps, ..Incoming::default() }
    }

    /// Returns the kept body.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept
    }

    /// Clears the state for the next response: to request `kind` of the scenario.
    pub(crate) fn reset(&mut self, kind: usize) {
        self.kind = kind;
        self.response = Response::default();
        self.hash = None;
        self.kept.clear();
        self.cookies.clear();
        self.fields.clear();
    }

    pub(crate) fn field(&mut self, name: &str, value: &[u8]) {
        if self.keeps {
            self.fields.push((name.to_owned(), value.to_vec()));
        }
        if name.eq_ignore_ascii_case("server-timing") {
            self.response.timing = timing::parse(value).or(self.response.timing);
        } else if name.eq_ignore_ascii_case("set-cookie") {
            self.cookies.push(value.to_vec());
        } else if name.eq_ignore_ascii_case("server") {
            self.software = Some(String::from_utf8_lossy(value).into_owned());
        }
    }

    pub(crate) fn body(&mut self, bytes: &[u8], checks: &Checks) {
        self.response.length += bytes.len() as u64;
        if checks.compare_digest(self.kind, self.response.status) {
            self.hash.get_or_insert_default().update(bytes);
        }
        if self.keeps || checks.matching.is_some() {
            let room = LONGEST_KEPT - self.kept.len();
            self.kept.extend_from_slice(&bytes[..room.min(bytes.len())]);
        }
    }

    /// Checks and records a complete response. `step` is the verdict of a journey, which replaces the checks. Returns whether the response is good.
    pub(crate) fn finish(
        &mut self,
        lane: &Lane,
        job: &Job,
        sent: Moment,
        now: Moment,
        protocol: &str,
        step: Option<Result<(), (Failure, String)>>,
    ) -> bool {
        self.response.sent = sent;
        self.response.end = now;
        let verdict = match step {
            Some(step) => step.err(),
            None => self.judge(lane, job),
        };
        let good = verdict.is_none();
        let mut recorder = lane.recorder.borrow_mut();
        match verdict {
            None => {
                recorder.succeeded(job, &self.response);
                if recorder.server.is_none() {
                    recorder.server = Some(ServerInfo {
                        software: self.software.take(),
                        protocol: protocol.to_owned(),
                        tls: lane.tls(),
                        length: self.response.length,
                    });
                }
            }
            Some((failure, text)) => recorder.rejected(job, &self.response, failure, &text),
        }
        good
    }

    fn judge(&mut self, lane: &Lane, job: &Job) -> Option<(Failure, String)> {
        let checks = &lane.run.scenario.checks;
        let Response { status, length, .. } = self.response;
        if let Some(recorded) = &checks.recorded {
            return self.compare(recorded, lane, job);
        }
        if !checks.accepts(status) {
            return Some((Failure::Status, format!("status {status}")));
        }
        let expected = match checks.length {
            None => length,
            Some(Length::Exactly(expected)) => expected,
            Some(Length::Same) => lane.run.first_length(job.kind, length),
        };
        if length != expected {
            return Some((Failure::Length, format!("body of {length} bytes, expected {expected}")));
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

    /// Compares a response with the recorded one. Only another status is a failure.
    fn compare(&mut self, recorded: &Recorded, lane: &Lane, job: &Job) -> Option<(Failure, String)> {
        let Response { status, length, .. } = self.response;
        let expected = recorded.expected.get(job.kind)?;
        let mut recorder = lane.recorder.borrow_mut();
        let compared = recorder.compared.get_mut(expected.group).filter(|_| job.counted)?;
        let name = || lane.run.prepared.kinds[job.kind].name.clone();
        if !expected.accepts(status) {
            compared.status += 1;
            compared.example(|| format!("{}: status {status} instead of {}", name(), expected.status));
            return Some((Failure::Status, format!("status {status} instead of {}", expected.status)));
        }
        let hash = self.hash.take().unwrap_or_default();
        match expected {
            Expected { length: Some(wanted), .. } if *wanted != length => {
                compared.length += 1;
                compared.example(|| format!("{}: {length} bytes instead of {wanted}", name()));
            }
            Expected { sha256: Some(wanted), .. } if hash.finalize().as_slice() != wanted => {
                compared.body += 1;
                compared.example(|| format!("{}: another body of {length} bytes", name()));
            }
            _ => compared.same += 1,
        }
        None
    }
}

/// Feeds parsed HTTP/1 responses into an [`Incoming`].
pub(crate) struct ResponseSink<'a> {
    pub incoming: &'a mut Incoming,
    pub checks: &'a Checks,
    pub to_head: bool,
    pub wants_fields: bool,
}

impl Sink for ResponseSink<'_> {
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
        self.incoming.response.status = head.status;
    }

    fn body(&mut self, bytes: &[u8]) {
        self.incoming.body(bytes, self.checks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn only_digests_that_are_compared_are_computed() {
        let without = Expected { group: 0, status: 200, is_masked: false, length: Some(1), sha256: None };
        let with = Expected { sha256: Some([0; 32]), ..without.clone() };
        let recorded = Recorded { expected: vec![without, with], groups: Vec::new() };
        let checks = Checks { recorded: Some(Arc::new(recorded)), ..Checks::default() };
        let mut incoming = Incoming::new(false);
        let mut digests = |kind, status| {
            incoming.reset(kind);
            incoming.response.status = status;
            incoming.body(b"x", &checks);
            incoming.hash.is_some()
        };
        assert_eq!(
            [digests(0, 200), digests(1, 200), digests(1, 404), digests(2, 200)],
            [false, true, false, false]
        );
        let all = Checks { sha256: Some([0; 32]), ..Checks::default() };
        incoming.reset(0);
        incoming.body(b"x", &all);
        assert!(incoming.hash.is_some());
    }
}
