//! Statistics of the front's memory for clients.

use crate::figures::{Label, Metric, Page, Value, figures};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How scarce memory is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryLevel {
    #[default]
    Normal,
    /// Bodies go to files.
    Files,
    /// Senders wait.
    Waiting,
    /// New requests are refused.
    Full,
}

impl fmt::Display for MemoryLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MemoryLevel::Normal => "normal",
            MemoryLevel::Files => "files",
            MemoryLevel::Waiting => "waiting",
            MemoryLevel::Full => "full",
        })
    }
}

/// From 0 (normal) to 3 (full).
impl Value for MemoryLevel {
    fn sample(&self, metric: &'static Metric, labels: &[Label<'_>], page: &mut dyn Page) {
        page.sample(metric, labels, &(*self as u8));
    }
}

figures! {
    /// The memory that the front uses for clients.
    #[derive(Copy, Default, Eq)]
    #[serde(default)]
    pub struct MemorySnapshot {
        /// `limits.memory`; 0 if there is no limit because the machine's memory is unknown.
        limit_bytes: u64 = gauge("firebrick_budget_limit_bytes"; "Memory that the front may use for clients (limits.memory)"),
        /// The sum of the following.
        used_bytes: u64 = gauge("firebrick_budget_used_bytes"; "Memory that the front uses for clients"),
        /// `normal`; `files`: bodies go to files; `waiting`: senders wait; `full`: new requests are refused
        /// ([memory](memory.md)).
        level: MemoryLevel = gauge("firebrick_budget_level"; "How scarce that memory is, from 0 (normal) to 3 (full)"),
        /// Connections: their state, and unsent bytes for their sockets.
        connections_bytes: u64 = gauge("firebrick_budget_bytes", class = "connections"; "Memory that the front uses for clients, by class"),
        /// Bodies of requests.
        requests_bytes: u64 = gauge("firebrick_budget_bytes", class = "requests"),
        /// Responses that clients have not read.
        responses_bytes: u64 = gauge("firebrick_budget_bytes", class = "responses"),
        /// Parts of files that HTTP/3 streams have read from a disk.
        streams_bytes: u64 = gauge("firebrick_budget_bytes", class = "streams"),
        /// Received bytes of HTTP/3 that no handler has read, and sent ones that clients have not acknowledged; measured each second.
        quic_bytes: u64 = gauge("firebrick_budget_bytes", class = "quic"),
        /// Files in memory.
        files_bytes: u64 = gauge("firebrick_budget_bytes", class = "files"),
        /// The [cache of responses](caching.md).
        cache_bytes: u64 = gauge("firebrick_budget_bytes", class = "cache"),
        /// Files of sites that are kept in memory.
        sites_bytes: u64 = gauge("firebrick_budget_bytes", class = "sites"),
        /// The heaps of handlers on mruby.
        handlers_bytes: u64 = gauge("firebrick_budget_bytes", class = "handlers"),
        /// Encoders of compressed responses.
        encoders_bytes: u64 = gauge("firebrick_budget_bytes", class = "encoders"),
        /// Other resident memory of the front, at most a quarter of the limit.
        other_bytes: u64 = gauge("firebrick_budget_bytes", class = "other"),
        /// How often the level `files` was reached.
        reached_files: u64 = counter("firebrick_budget_reached", level = "files"; "How often each level was reached"),
        /// How often the level `waiting` was reached.
        reached_waiting: u64 = counter("firebrick_budget_reached", level = "waiting"),
        /// How often the level `full` was reached.
        reached_full: u64 = counter("firebrick_budget_reached", level = "full"),
        /// Requests that got 503 because memory was full.
        refused: u64 = counter("firebrick_budget_refused"; "Requests that were refused because memory was full"),
    }
}
