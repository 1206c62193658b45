//! The cache of responses.

use std::path::PathBuf;
use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::Completion;
use crate::kind::numbers::{Period, Size};
use crate::kind::texts::{Choice, Path, Switch};
use crate::kind::wrappers::{Maybe, OrOff};

/// The effect of a reload on kept responses.
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

    /// Memory for cached responses; 0 turns the cache off
    memory: Option<u64> = OrOff(Size { min: 0, max: 1 << 40 }), {
        key: "cache.memory",
        flags: &[long("cache", "SIZE")],
        default: "0",
        default_shown: Some("0: the cache is off"),
        more: "The server keeps a response if its Cache-Control allows a shared cache to store it. Concurrent requests for the same \
               page become one request to the app. docs/caching.md has the rules.",
        known_as: &["proxy_cache_path", "cache_size"],
    }
    /// Maximum size of a cached body
    max_object: u64 = Size { min: 1, max: 1 << 30 }, {
        key: "cache.max_object",
        flags: &[long("cache-max-object", "SIZE")],
        default: "1MiB",
        reloadable: true,
        known_as: &["max_cache_item_size", "max_cacheable_body_bytes"],
    }
    /// Directory for cached responses, in addition to memory
    disk: Option<PathBuf> = Maybe(Path(Completion::Directory)), {
        key: "cache.disk",
        flags: &[long("cache-disk", "DIR")],
        default_shown: Some("none: memory only"),
        more: "The server creates the directory if it does not exist. Responses on disk survive restarts and upgrades, and serve requests \
               when memory has no room for them.",
        known_as: &["proxy_cache_dir"],
    }
    /// Maximum size of all files in cache.disk
    disk_size: u64 = Size { min: 1 << 20, max: 1 << 50 }, {
        key: "cache.disk_size",
        flags: &[long("cache-disk-size", "SIZE")],
        default: "1GiB",
    }
    /// Effect of a reload on cached responses: keep or empty
    on_reload: OnReload = Choice(&[("keep", OnReload::Keep), ("empty", OnReload::Empty)]), {
        key: "cache.on_reload",
        flags: &[long("cache-on-reload", "WORD")],
        default: "keep",
        reloadable: true,
    }
    /// Also cache responses from the origins of proxied sites
    proxied: bool = Switch, {
        key: "cache.proxied",
        flags: &[bare("no-cache-proxied", "false")],
        off: "Cache only responses of the app",
        default: "true",
        reloadable: true,
    }
    /// Maximum lifetime of a response that does not state one
    heuristic: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(86_400) }, {
        key: "cache.heuristic",
        flags: &[long("cache-heuristic", "TIME")],
        default: "1m",
        more: "A response with Last-Modified, but without a lifetime and ETag, is fresh for a tenth of the time since Last-Modified, up to \
               this maximum (RFC 9111 section 4.2.2), unless its request has cookies. With 0 such responses are not cached.",
        reloadable: true,
    }
    /// How long a stale response may be sent while it is renewed
    stale_while_revalidate: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(604_800) }, {
        key: "cache.stale_while_revalidate",
        flags: &[long("cache-stale-while-revalidate", "TIME")],
        default: "0",
        more: "Applies to responses that neither state this time (RFC 5861) nor forbid stale use (must-revalidate, s-maxage).",
        reloadable: true,
        known_as: &["proxy_cache_background_update"],
    }
    /// How long a stale response may be sent when the app fails
    stale_if_error: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(604_800) }, {
        key: "cache.stale_if_error",
        flags: &[long("cache-stale-if-error", "TIME")],
        default: "0",
        more: "Applies to responses that neither state this time (RFC 5861) nor forbid stale use. A failure is 500, 502, 503 or 504.",
        reloadable: true,
        known_as: &["proxy_cache_use_stale"],
    }
    /// How long the app may take before a stale response is sent
    stale_if_slow: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3600) }, {
        key: "cache.stale_if_slow",
        flags: &[long("cache-stale-if-slow", "TIME")],
        default: "1s",
        more: "Only for responses that may be sent when the app fails (stale_if_error). The app's response is cached when it arrives. With 0, \
               clients wait for the app.",
        reloadable: true,
    }
    /// Maximum time that a request waits for another for the same page
    collapse_wait: Duration = Period { min: Duration::ZERO, max: Duration::from_secs(3600) }, {
        key: "cache.collapse_wait",
        flags: &[long("cache-collapse-wait", "TIME")],
        default: "5s",
        more: "After this time it goes to the app as well. With 0, requests do not wait for each other.",
        reloadable: true,
        known_as: &["proxy_cache_lock_timeout"],
    }
    /// Treat URLs as equal if they differ only in the order of parameters
    sort_query: bool = Switch, {
        key: "cache.sort_query",
        flags: &[bare("cache-sort-query", "true")],
        default: "false",
        reloadable: true,
    }
    /// Cache public responses that have Set-Cookie or vary by cookies
    cookies: bool = Switch, {
        key: "cache.cookies",
        flags: &[bare("cache-cookies", "true")],
        default: "false",
        more: "Applies only to responses with Cache-Control: public. All clients then get the same Set-Cookie.",
        reloadable: true,
    }
    /// Cache responses to requests with Authorization, if they allow it
    authorization: bool = Switch, {
        key: "cache.authorization",
        flags: &[bare("cache-authorization", "true")],
        default: "false",
        more: "A response allows it with public, s-maxage or must-revalidate (RFC 9111 section 3.5).",
        reloadable: true,
    }
    /// Let clients ask for newer responses
    client_control: bool = Switch, {
        key: "cache.client_control",
        flags: &[bare("no-cache-client-control", "false")],
        off: "Ignore Cache-Control of requests",
        default: "true",
        more: "A request with Cache-Control: no-cache, which browsers send when a user reloads a page, goes to the app. With false the server \
               ignores Cache-Control of requests.",
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
