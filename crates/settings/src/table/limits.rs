//! Limits on sizes and numbers.

use std::time::Duration;

use super::entry::{Category, bare, long, section};
use crate::kind::numbers::{Count, Period, Size};
use crate::kind::texts::Switch;
use crate::kind::wrappers::OrOff;

section! { Category::Limits;
    /// Bounds on what is accepted from a client and kept for it; sizes are bytes.
    Limits:

    /// Largest request line and headers together (431)
    max_header_bytes: usize = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_header_bytes",
        flags: &[long("max-header-bytes", "SIZE")],
        default: "64KiB",
        reloadable: true,
        known_as: &["max_header_size"],
    }
    /// Most request headers (431)
    max_headers: usize = Count { min: 1, max: 10_000 }, {
        key: "limits.max_headers",
        flags: &[long("max-headers", "N")],
        default: "100",
        reloadable: true,
    }
    /// Longest request target (414)
    max_uri: usize = Size { min: 64, max: 16 << 20 }, {
        key: "limits.max_uri",
        flags: &[long("max-uri", "SIZE")],
        default: "16KiB",
        more: "It must be less than max_header_bytes, which includes it; the default is at most half of that.",
        reloadable: true,
        known_as: &["max_uri_length", "max_url"],
    }
    /// Largest request body (413); 0 is unlimited
    max_body: Option<u64> = OrOff(Size { min: 0, max: 1 << 50 }), {
        key: "limits.max_body",
        flags: &[long("max-body", "SIZE")],
        default: "1GiB",
        reloadable: true,
        known_as: &["http_content_length_limit", "client_max_body_size", "max_request_body"],
    }
    /// Most connections open at a time (503)
    max_connections: usize = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_connections",
        flags: &[long("max-connections", "N")],
        default: "10000",
        more: "At the limit a new connection takes the place of one whose client has proved nothing (a handshake, a PROXY header or the head of a request that does not end), else of the one that has been idle longest, else of the transfer that its client has not taken further for the longest time. The same happens when only an eighth of the process's descriptors (ulimit -n), at most 1,024, is left.",
        reloadable: true,
        known_as: &["worker_connections"],
    }
    /// Most connections open at a time of one address (429); 0 is unlimited
    max_connections_per_address: Option<usize> = OrOff(Count { min: 0, max: 10_000_000 }), {
        key: "limits.max_connections_per_address",
        flags: &[long("max-connections-per-address", "N")],
        default: "0",
        more: "Many clients may share an address: a company's, a mobile network's. Of IPv6 a network of 64 bits counts as one address. \
               Proxies (rack.trusted_proxies) and Unix sockets are not limited; behind the PROXY protocol the address is that of its \
               header. With HTTP/3 a connection beyond the limit is refused without a status.",
        reloadable: true,
        known_as: &["limit_conn", "max_connections_per_ip", "maxconn_per_ip"],
    }
    /// Slowest client of a response, in bytes per second; 0 is off
    min_download_rate: Option<u64> = OrOff(Count { min: 0, max: 1_000_000_000 }), {
        key: "limits.min_download_rate",
        flags: &[long("min-download-rate", "BYTES")],
        default: "0",
        more: "Without it a client may read as slowly as it likes, as long as it reads (timeouts.send). The rate is that of a whole \
               connection, over ten seconds in which the client always had something to read; a slower client's connection is cut. \
               timeouts.body_min_rate is the same for request bodies.",
        reloadable: true,
        known_as: &["min_download_rate", "min_send_rate"],
    }
    /// Most requests on one connection; 0 is unlimited
    max_requests_per_connection: Option<u64> = OrOff(Count { min: 0, max: u64::MAX }), {
        key: "limits.max_requests_per_connection",
        flags: &[long("max-requests-per-connection", "N")],
        default: "0",
        reloadable: true,
        known_as: &["max_keep_alive", "max_fast_inline", "keepalive_requests"],
    }
    /// Most requests at a time on one connection of HTTP/2
    http2_streams: usize = Count { min: 1, max: 100_000 }, {
        key: "limits.http2_streams",
        flags: &[long("http2-streams", "N")],
        default: "128",
        more: "A client waits with further requests until one of them has been answered. New connections use a new value.",
        reloadable: true,
        known_as: &["max_concurrent_streams", "http2_max_concurrent_streams"],
    }
    /// Most requests waiting for a worker (503)
    max_queue: usize = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_queue",
        flags: &[long("max-queue", "N")],
        default: "10000",
        known_as: &["queue_size"],
    }
    /// Refuse requests at once that would wait longer than timeouts.queue (503)
    predict_wait: bool = Switch, {
        key: "limits.predict_wait",
        flags: &[bare("no-predict-wait", "false")],
        default: "true",
        more: "Judged by the pace at which the queue moves. Retry-After says how long the request would have waited. \
               Without it, and while the pace is unknown, such requests wait for timeouts.queue and get 503 then.",
        reloadable: true,
    }
    /// Largest request body kept in memory; larger ones go to a file
    body_memory: usize = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.body_memory",
        flags: &[long("body-memory", "SIZE")],
        default: "64KiB",
        reloadable: true,
        known_as: &["client_body_buffer_size"],
    }
    /// Bytes of a response kept in memory for a slow client
    response_memory: usize = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.response_memory",
        flags: &[long("response-memory", "SIZE")],
        default: "1MiB",
        more: "The rest goes to a file, up to response_spool.",
        reloadable: true,
    }
    /// Bytes of a response kept in a file for a slow client
    response_spool: u64 = Size { min: 0, max: 1 << 50 }, {
        key: "limits.response_spool",
        flags: &[long("response-spool", "SIZE")],
        default: "256MiB",
        more: "Beyond that the app waits until the client has read some. 0 makes it wait as soon as memory is full. \
               It counts for all responses of a connection together.",
        reloadable: true,
    }
    /// Largest response head an app may send; larger ones become 502
    max_response_header_bytes: usize = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_response_header_bytes",
        flags: &[long("max-response-header-bytes", "SIZE")],
        default: "128KiB",
        reloadable: true,
    }
    /// Memory of a worker (PSS) beyond which it is replaced; 0 is off
    worker_memory: Option<u64> = OrOff(Size { min: 0, max: 1 << 50 }), {
        key: "limits.worker_memory",
        flags: &[long("worker-memory", "SIZE")],
        default: "0",
        more: "The proportional set size: what workers share counts in parts. Its successor is started first, then it finishes its \
               requests; one worker at a time, and none in its first minute. At one and a half times the limit a worker is \
               killed at once. When two workers in a row exceed the limit in their first minute, it is too small: the \
               log says so, and no worker is replaced for its memory.",
        reloadable: true,
        known_as: &["worker_memory_limit", "max_worker_memory", "reload_on_rss", "reload_on_pss", "memory_limit", "per_worker_max_memory_mb"],
    }
    /// Requests after which a worker is replaced; 0 is off
    max_requests: Option<u64> = OrOff(Count { min: 0, max: u64::MAX }), {
        key: "limits.max_requests",
        flags: &[long("max-requests", "N")],
        default: "0",
        more: "Varied by up to 10 % for each worker, so that they do not all leave at once. Its successor is started first.",
        reloadable: true,
        known_as: &["max_requests_per_worker", "max_worker_requests", "passenger_max_requests"],
    }
    /// Age at which a worker is replaced; 0 is off
    max_age: Option<Duration> = OrOff(Period::ANY), {
        key: "limits.max_age",
        flags: &[long("max-age", "TIME")],
        default: "0",
        more: "Varied by up to 10 % for each worker, so that they do not all leave at once. Its successor is started first.",
        reloadable: true,
        known_as: &["max_worker_lifetime", "max_worker_age", "rolling_restart_frequency"],
    }
    /// Pass header names with _ to the app
    allow_underscore_headers: bool = Switch, {
        key: "rack.allow_underscore_headers",
        flags: &[bare("allow-underscore-headers", "true")],
        default: "false",
        more: "The app sees them under the same name as those with -, so a client could forge a header that a proxy \
               sets. By default they are dropped.",
        reloadable: true,
    }
}
