//! How Ruby and the app are run.

use std::path::PathBuf;

use super::entry::{Category, bare, long, section};
use crate::kind::lists::{Proxies, RequestPaths};
use crate::kind::texts::{HeaderName, Program, Switch};
use crate::kind::wrappers::OrOff;
use crate::value::proxies::TrustedProxies;

section! { Category::Rack;
    /// How Ruby and the app are run.
    Rack:

    /// The Ruby that runs the app
    ruby: PathBuf = Program, {
        key: "ruby",
        flags: &[long("ruby", "PATH")],
        default: "ruby",
        more: "A name without a slash is looked up in PATH.",
        reloadable: true,
    }
    /// Peers whose X-Forwarded-* headers are trusted
    trusted_proxies: TrustedProxies = Proxies, {
        key: "rack.trusted_proxies",
        flags: &[long("trusted-proxies", "LIST")],
        default: "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,unix",
        default_shown: Some("loopback and private networks, unix"),
        more: "Networks such as 10.0.0.0/8 or ::1, and unix for every peer on a Unix socket; or none alone.",
        known_as: &["trusted_proxy"],
    }
    /// Offer rack.early_hints (103 responses)
    early_hints: bool = Switch, {
        key: "rack.early_hints",
        flags: &[bare("early-hints", "true"), bare("no-early-hints", "false")],
        default: "true",
    }
    /// Paths requested once before workers are forked
    warmup: Vec<String> = RequestPaths, {
        key: "rack.warmup",
        flags: &[long("warmup", "PATHS")],
        default_shown: Some("none"),
        more: "What the app loads and caches on its first requests is then shared by all workers. Separate paths \
               with commas or repeat the flag.",
        reloadable: true,
    }
    /// Collect and compact the heap before workers are forked
    compact: bool = Switch, {
        key: "rack.compact",
        flags: &[bare("compact", "true"), bare("no-compact", "false")],
        default: "true",
        more: "Workers then share more memory. Turn it off if a native extension does not support GC.compact.",
        reloadable: true,
    }
    /// Header that carries the request id in and out
    request_id_header: Option<String> = OrOff(HeaderName), {
        key: "rack.request_id_header",
        flags: &[long("request-id-header", "NAME|off")],
        default: "X-Request-Id",
    }
}
