//! The cache of responses.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::numbers::{Period, Size};
use crate::kind::texts::{Choice, Path, Switch};
use crate::kind::wrappers::{Maybe, OrOff};

/// What a reload does to kept responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnReload {
    /// They are sent as long as they are fresh.
    Keep,
    /// They are removed when the new code is in force.
    Empty,
}

section! { Category::Cache;
    /// The shared cache of responses of the app and of origins (RFC 9111).
    Cache:

    /// Memory for responses that are kept and sent again; 0 keeps none
    memory: Option<u64> = OrOff(Size { min: 0, max: 1 << 40 }), {
        key: "cache.memory",
        flags: &[long("cache", "SIZE")],
        default: "0",
        default_shown: Some("0: no response is kept"),
        more: "The server keeps what the response's Cache-Control allows a shared cache to keep, and asks the app once for equal requests. \
               docs/caching.md has the rules.",
        known_as: &["proxy_cache_path", "cache_size"],
    }
    /// Longest body that is kept
    max_object: u64 = Size { min: 1, max: 1 << 30 }, {
        key: "cache.max_object",
        flags: &[long("cache-max-object", "SIZE")],
        default: "1MiB",
        reloadable: true,
        known_as: &["max_cache_item_size", "max_cacheable_body_bytes"],
    }
    /// Folder that kept responses are written to, too
    disk: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "cache.disk",
        flags: &[long("cache-disk", "DIR")],
        default_shown: Some("none: memory only"),
        more: "The folder is created if it is missing. What it keeps survives restarts and upgrades, and what memory has no room for is read \
               from it.",
        known_as: &["proxy_cache_dir"],
    }
    /// Most bytes of files in that folder
    disk_size: u64 = Size { min: 1 << 20, max: 1 << 50 }, {
        key: "cache.disk_size",
        flags: &[long("cache-disk-size", "SIZE")],
        default: "1GiB",
    }
    /// What a reload does to kept responses: keep or empty
    on_reload: OnReload = Choice(&[("keep", OnReload::Keep), ("empty", OnReload::Empty)]), {
        key: "cache.on_reload",
        flags: &[long("cache-on-reload", "WORD")],
        default: "keep",
        reloadable: true,
    }
    /// Keep responses of the origins of proxied sites, too
    proxied: bool = Switch, {
        key: "cache.proxied",
        flags: &[bare("no-cache-proxied", "false")],
        off: "Keep responses of the app only",
        default: "true",
        reloadable: true,
    }
    /// Longest time that a response without a stated lifetime is kept
    heuristic: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(86_400) }, {
        key: "cache.heuristic",
        flags: &[long("cache-heuristic", "TIME")],
        default: "1m",
        more: "A response with Last-Modified, without lifetime and ETag, is kept for a tenth of the time since then, at most this long (RFC 9111 \
               section 4.2.2), unless its request has cookies. 0 keeps none.",
        reloadable: true,
    }
    /// How long a stale response may be sent while it is renewed
    stale_while_revalidate: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(604_800) }, {
        key: "cache.stale_while_revalidate",
        flags: &[long("cache-stale-while-revalidate", "TIME")],
        default: "0",
        more: "For responses that do not say it themselves (RFC 5861), and that do not forbid it (must-revalidate, s-maxage).",
        reloadable: true,
        known_as: &["proxy_cache_background_update"],
    }
    /// How long a stale response may be sent when the app fails
    stale_if_error: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(604_800) }, {
        key: "cache.stale_if_error",
        flags: &[long("cache-stale-if-error", "TIME")],
        default: "0",
        more: "For responses that do not say it themselves (RFC 5861), and that do not forbid it. A failure is 500, 502, 503 or 504.",
        reloadable: true,
        known_as: &["proxy_cache_use_stale"],
    }
    /// How long the app may take before a stale response is sent
    stale_if_slow: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3600) }, {
        key: "cache.stale_if_slow",
        flags: &[long("cache-stale-if-slow", "TIME")],
        default: "1s",
        more: "Only a response that may be sent when the app fails (stale_if_error). The app's response is kept when it arrives. 0 waits for the app.",
        reloadable: true,
    }
    /// Longest time that a request waits for an equal one
    collapse_wait: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3600) }, {
        key: "cache.collapse_wait",
        flags: &[long("cache-collapse-wait", "TIME")],
        default: "5s",
        more: "After this time it goes to the app itself. 0: equal requests do not wait for each other.",
        reloadable: true,
        known_as: &["proxy_cache_lock_timeout"],
    }
    /// Take URLs for equal if only the order of their parameters differs
    sort_query: bool = Switch, {
        key: "cache.sort_query",
        flags: &[bare("cache-sort-query", "true")],
        default: "false",
        reloadable: true,
    }
    /// Keep public responses with Set-Cookie, or that vary by cookies
    cookies: bool = Switch, {
        key: "cache.cookies",
        flags: &[bare("cache-cookies", "true")],
        default: "false",
        more: "Only responses with Cache-Control: public. All clients then get the same Set-Cookie.",
        reloadable: true,
    }
    /// Keep responses to requests with Authorization, if they say so
    authorization: bool = Switch, {
        key: "cache.authorization",
        flags: &[bare("cache-authorization", "true")],
        default: "false",
        more: "Only responses with public, s-maxage or must-revalidate (RFC 9111 section 3.5).",
        reloadable: true,
    }
    /// Let clients ask for newer responses
    client_control: bool = Switch, {
        key: "cache.client_control",
        flags: &[bare("no-cache-client-control", "false")],
        off: "Ignore Cache-Control of requests",
        default: "true",
        more: "Cache-Control: no-cache of a request, which browsers send when a page is loaded again, asks the app. With false it does not.",
        reloadable: true,
    }
    /// Add Cache-Status (RFC 9211) to responses
    status: bool = Switch, {
        key: "cache.status",
        flags: &[bare("no-cache-status", "false")],
        off: "Send no Cache-Status",
        default: "true",
        reloadable: true,
    }
}
