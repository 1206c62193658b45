//! The recorded responses of a recording, and how those of a replay compare with them.
//!
//! Contract: a different status is an error of the request, unless a secret in its path was masked. A different length or body is only counted, because pages with
//! times or tokens differ in every response.

use serde::{Deserialize, Serialize};

use crate::Histogram;

/// The most groups of requests; the last one has all others.
pub(crate) const MOST_GROUPS: usize = 200;
/// The most examples of a group.
const EXAMPLES: usize = 3;

/// The recorded responses of a scenario.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Parallel to the requests.
    pub expected: Vec<Expected>,
    pub groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The index into [`Recorded::groups`].
    pub group: usize,
    pub status: u16,
    /// The request has lost a part of its path, so another status is no error unless the server has failed.
    pub is_masked: bool,
    /// The length of the body; `None` if it cannot be compared.
    pub length: Option<u64>,
    pub sha256: Option<[u8; 32]>,
}

impl Expected {
    /// Returns whether a response with this status is none of an error.
    pub(crate) fn accepts(&self, status: u16) -> bool {
        status == self.status || self.is_masked && status < 500
    }

    /// Returns whether the body of a response with this status is compared by its digest.
    pub(crate) fn has_digest_for(&self, status: u16) -> bool {
        self.sha256.is_some() && self.accepts(status)
    }
}

/// Requests of one route, or of one path.
#[derive(Debug, Clone, Default)]
pub struct Group {
    pub name: String,
    /// The times that the server took when they were recorded; microseconds.
    pub took: Histogram,
}

/// How the responses of a group compare with the recorded ones. Each response counts once.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    pub name: String,
    /// Same status, and same body as far as it can be compared.
    pub same: u64,
    /// Another status.
    pub status: u64,
    /// The same status and another length.
    pub length: u64,
    /// The same status and length, and another body.
    pub body: u64,
    /// The first differences.
    pub examples: Vec<String>,
    /// The times that the server took when the requests were recorded; microseconds.
    pub recorded: Histogram,
}

impl Compared {
    /// Returns the number of responses that differ.
    pub fn differences(&self) -> u64 {
        self.status + self.length + self.body
    }

    /// Returns the comparisons with the most differences first, then those with the most responses.
    pub fn ranked(all: &[Compared]) -> Vec<&Compared> {
        let mut all: Vec<&Compared> = all.iter().collect();
        all.sort_by_key(|one| std::cmp::Reverse((one.differences(), one.same)));
        all
    }

    pub(crate) fn example(&mut self, text: impl FnOnce() -> String) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(text());
        }
    }

    pub(crate) fn add(&mut self, other: Compared) {
        self.same += other.same;
        self.status += other.status;
        self.length += other.length;
        self.body += other.body;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
        self.recorded.take(&other.recorded);
    }
}

/// Adds the comparison of another thread or process, group by group.
pub(crate) fn merge(mut all: Vec<Compared>, more: Vec<Compared>) -> Vec<Compared> {
    for one in more {
        match all.iter_mut().find(|known| known.name == one.name) {
            Some(known) => known.add(one),
            None => all.push(one),
        }
    }
    all
}
