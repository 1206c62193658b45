//! How Ruby is run and what the app is told.

use super::entry::{Category, bare, entries, long};
use crate::kind::Completion;
use crate::kind::lists::{Proxies, RequestPaths};
use crate::kind::texts::{HeaderName, Path, Switch};
use crate::kind::wrappers::OrOff;

entries! { Category::Rack;
    RUBY: Path = Path(Completion::File), {
        key: "ruby",
        flags: &[long("ruby", "PATH")],
        default: "ruby",
        doc: "The Ruby that runs the app",
        more: "A name without a slash is looked up in PATH.",
    }
    TRUSTED_PROXIES: Proxies = Proxies, {
        key: "rack.trusted_proxies",
        flags: &[long("trusted-proxies", "LIST")],
        default: "127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7,unix",
        default_shown: Some("loopback and private networks, unix"),
        doc: "Peers whose X-Forwarded-* headers are believed",
        more: "Networks such as 10.0.0.0/8 or ::1, and unix for every peer on a Unix socket; or only none.",
        reloadable: true,
        known_as: &["trusted_proxy"],
    }
    ALLOW_UNDERSCORE_HEADERS: Switch = Switch, {
        key: "rack.allow_underscore_headers",
        flags: &[bare("allow-underscore-headers", "true")],
        default: "false",
        doc: "Give header names with _ to the app",
        more: "They reach the app under the same name as their twins with -, so a client could forge a header that \
               a proxy sets. Without this they are dropped.",
        reloadable: true,
    }
    EARLY_HINTS: Switch = Switch, {
        key: "rack.early_hints",
        flags: &[bare("early-hints", "true"), bare("no-early-hints", "false")],
        default: "true",
        doc: "Offer rack.early_hints (103 responses)",
    }
    WARMUP: RequestPaths = RequestPaths, {
        key: "rack.warmup",
        flags: &[long("warmup", "PATHS")],
        default_shown: Some("none"),
        doc: "Paths requested once before workers are forked",
        more: "What the app loads and builds on its first requests is then shared by all workers. Separate paths \
               with commas or repeat the flag.",
    }
    COMPACT: Switch = Switch, {
        key: "rack.compact",
        flags: &[bare("compact", "true"), bare("no-compact", "false")],
        default: "true",
        doc: "Collect and compact the heap before workers are forked",
        more: "Workers then share more memory. Turn it off for a native extension that cannot bear GC.compact.",
    }
    REQUEST_ID_HEADER: OrOff<HeaderName> = OrOff(HeaderName), {
        key: "rack.request_id_header",
        flags: &[long("request-id-header", "NAME|off")],
        default: "X-Request-Id",
        doc: "Header that carries the request id in and out",
        reloadable: true,
    }
}
