//! Statistics of the cache of responses.

use crate::figures::figures;
use serde::{Deserialize, Serialize};

figures! {
    #[derive(Eq)]
    pub struct CacheSnapshot {
        /// The limit of the cache's memory.
        limit_bytes: u64 = gauge("firebrick_cache_limit_bytes"; "Memory that kept responses may use"),
        /// Memory that kept responses use, including bookkeeping.
        used_bytes: u64 = gauge("firebrick_cache_bytes"; "Memory that kept responses use"),
        /// Resources with kept responses; a resource can have several variants.
        resources: u64 = gauge("firebrick_cache_resources"; "Resources with kept responses"),
        /// Requests answered with a fresh kept response.
        hits: u64 = counter("firebrick_cache_requests", result = "hit"; "Requests that the cache has handled"),
        /// Requests answered with a stale kept response.
        stale: u64 = counter("firebrick_cache_requests", result = "stale"),
        /// Requests answered with a kept response that the app has confirmed.
        validated: u64 = counter("firebrick_cache_requests", result = "validated"),
        /// Requests that waited for an equal request and got its response.
        collapsed: u64 = counter("firebrick_cache_requests", result = "collapsed"),
        /// Requests answered by the app.
        misses: u64 = counter("firebrick_cache_requests", result = "miss"),
        /// Responses that were kept, renewals included.
        stored: u64 = counter("firebrick_cache_stored"; "Responses that were kept"),
        /// Renewals of a response while the stale response was sent.
        renewed: u64 = counter("firebrick_cache_renewed"; "Renewals of a response while the stale response was sent"),
        /// Resources evicted to make room for others.
        evicted: u64 = counter("firebrick_cache_evicted"; "Resources evicted to make room for others"),
        /// Resources removed by a purge.
        purged: u64 = counter("firebrick_cache_purged"; "Resources removed by a purge"),
        /// Resources removed by a request with an unsafe method.
        invalidated: u64 =
            counter("firebrick_cache_invalidated"; "Resources removed by a request with an unsafe method"),
        /// Files in `cache.disk`; null without that setting, like the next two.
        disk_files: Option<u64> = gauge("firebrick_cache_disk_files"; "Files of kept responses"),
        /// The bytes of these files.
        disk_bytes: Option<u64> = gauge("firebrick_cache_disk_bytes"; "Bytes of the files of kept responses"),
        /// Responses that were not written because the disk was behind.
        disk_skipped: Option<u64> =
            counter("firebrick_cache_disk_skipped"; "Responses that were not written because the disk was behind"),
        /// Responses that were not kept, by reason.
        refused: Vec<CacheRefusal> = part,
    }

    /// Responses that were not kept for one reason.
    #[derive(Default, Eq)]
    pub struct CacheRefusal [reason = |it| it.reason.clone()] {
        /// `status`, `no-store`, `private`, `cookie`, `authorization`, `forwarded`, `vary`, `no-lifetime`,
        /// `too-long`, `file`, `stream`, `incomplete`, `invalidated`, `memory` ([responses that are never
        /// kept](caching.md#responses-that-are-never-kept)).
        reason: String,
        /// Their number.
        count: u64 = counter("firebrick_cache_refused"; "Responses that were not kept, by reason"),
    }
}

/// The output of `firebrick cache`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    pub cache: CacheSnapshot,
    /// The busiest routes.
    pub routes: Vec<CacheRoute>,
    /// The most requested resources.
    pub resources: Vec<CacheResource>,
}

/// Paths that differ only in ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheRoute {
    pub route: String,
    /// Requests answered without the app, or after the app had confirmed the kept response.
    pub hits: u64,
    pub misses: u64,
    /// The last reason for not keeping a response; null if all were kept.
    pub refused: Option<String>,
}

/// The kept responses for one URL, for `firebrick explain`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheLookup {
    /// Scheme, host, path and query.
    pub key: String,
    pub variants: Vec<CacheVariant>,
    /// Why the last response of this route was not kept; null if it was.
    pub refused: Option<String>,
}

/// A kept response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheVariant {
    pub status: u16,
    pub bytes: u64,
    pub age_s: f64,
    pub lifetime_s: f64,
    /// The field that states the lifetime.
    pub because: String,
    /// The fields that select it, as the request had them.
    pub varies_by: Vec<String>,
    pub tags: Vec<String>,
}

/// A kept resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheResource {
    /// Scheme, host, path and query.
    pub url: String,
    pub bytes: u64,
    pub variants: u64,
    pub hits: u64,
    /// Seconds until it is stale; 0 if it is stale.
    pub fresh_s: f64,
}
