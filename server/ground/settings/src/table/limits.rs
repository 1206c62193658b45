//! Limits on sizes and numbers.

use std::time::Duration;

use super::entry::{Category, bare, long};
use super::section::section;
use crate::kind::numbers::{Count, Period, Size};
use crate::kind::texts::Switch;
use crate::kind::wrappers::{Auto, OrOff};

section! { Category::Limits;
    /// Bounds on what is accepted from a client and kept for it; sizes are bytes.
    Limits:

    /// Maximum size of the request line and headers together (431)
    max_header_bytes: usize = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_header_bytes",
        flags: &[long("max-header-bytes", "SIZE")],
        default: "64KiB",
        reloadable: true,
        known_as: &["max_header_size"],
    }
    /// Maximum number of request headers (431)
    max_headers: usize = Count { min: 1, max: 10_000 }, {
        key: "limits.max_headers",
        flags: &[long("max-headers", "N")],
        default: "100",
        reloadable: true,
    }
    /// Maximum length of the request target (414)
    max_uri: usize = Size { min: 64, max: 16 << 20 }, {
        key: "limits.max_uri",
        flags: &[long("max-uri", "SIZE")],
        default: "16KiB",
        more: "It must be less than max_header_bytes, which includes the target. The default is at most half of max_header_bytes.",
        reloadable: true,
        known_as: &["max_uri_length", "max_url"],
    }
    /// Maximum size of a request body (413); 0 is unlimited
    max_body: Option<u64> = OrOff(Size { min: 0, max: 1 << 50 }), {
        key: "limits.max_body",
        flags: &[long("max-body", "SIZE")],
        default: "1GiB",
        reloadable: true,
        known_as: &["http_content_length_limit", "client_max_body_size", "max_request_body"],
    }
    /// Maximum number of open connections (503)
    max_connections: usize = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_connections",
        flags: &[long("max-connections", "N")],
        default: "10000",
        more: "At the limit, the server closes an open connection to accept a new one: first a connection whose TLS handshake, PROXY header or \
               request head is unfinished, else the connection that has been idle longest, else the transfer that its client has left \
               without progress for the longest time. The server does the same when only an eighth of the process's descriptors (ulimit -n), at \
               most 1,024, is left.",
        reloadable: true,
        known_as: &["worker_connections"],
    }
    /// Maximum number of open connections per address (429); 0 is unlimited
    max_connections_per_address: Option<usize> = OrOff(Count { min: 0, max: 10_000_000 }), {
        key: "limits.max_connections_per_address",
        flags: &[long("max-connections-per-address", "N")],
        default: "0",
        more: "Many clients may share an address, for example in a company or a mobile network. An IPv6 network of 64 bits counts as one \
               address. Proxies (rack.trusted_proxies) and Unix sockets are not limited. With the PROXY protocol, the address in its \
               header counts. Over HTTP/3, connections above the limit are refused without a status.",
        reloadable: true,
        known_as: &["limit_conn", "max_connections_per_ip", "maxconn_per_ip"],
    }
    /// Minimum download rate of a client, in bytes per second; 0 is off
    min_download_rate: Option<u64> = OrOff(Count { min: 0, max: 1_000_000_000 }), {
        key: "limits.min_download_rate",
        flags: &[long("min-download-rate", "BYTES")],
        default: "0",
        more: "The server measures the rate of the whole connection, over ten seconds in which the client always had data to read, and \
               closes the connections of slower clients. Without a limit, clients can read as slowly as they like, provided they read \
               (timeouts.send). timeouts.body_min_rate is the limit for request bodies.",
        reloadable: true,
        known_as: &["min_download_rate", "min_send_rate"],
    }
    /// Maximum number of requests per connection; 0 is unlimited
    max_requests_per_connection: Option<u64> = OrOff(Count { min: 0, max: u64::MAX }), {
        key: "limits.max_requests_per_connection",
        flags: &[long("max-requests-per-connection", "N")],
        default: "0",
        reloadable: true,
        known_as: &["max_keep_alive", "max_fast_inline", "keepalive_requests"],
    }
    /// Maximum number of concurrent requests per HTTP/2 connection
    http2_streams: usize = Count { min: 1, max: 100_000 }, {
        key: "limits.http2_streams",
        flags: &[long("http2-streams", "N")],
        default: "128",
        more: "Clients hold back further requests until one of these has its response. After a reload, new connections use the new value.",
        reloadable: true,
        known_as: &["max_concurrent_streams", "http2_max_concurrent_streams"],
    }
    /// Maximum number of requests waiting for a worker (503)
    max_queue: usize = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_queue",
        flags: &[long("max-queue", "N")],
        default: "10000",
        known_as: &["queue_size"],
    }
    /// Refuse requests at once if they are predicted to time out in the queue
    predict_wait: bool = Switch, {
        key: "limits.predict_wait",
        flags: &[bare("no-predict-wait", "false")],
        off: "Let requests wait even if they are predicted to time out",
        default: "true",
        more: "The server predicts the wait from the rate at which the queue moves. If it is longer than timeouts.queue, the client gets \
               503 at once, with the predicted wait in Retry-After. If the setting is off, or while the rate is unknown, such requests \
               wait for timeouts.queue and then get 503.",
        reloadable: true,
    }
    /// Memory of the front for all clients together, or auto
    memory: Option<u64> = Auto(Size { min: 32 << 20, max: 1 << 50 }), {
        key: "limits.memory",
        flags: &[long("memory", "SIZE|auto")],
        default: "auto",
        more: "auto is a quarter of the machine's memory, or of the cgroup's limit, and at least 64 MiB. The limit covers connections, request and response bodies, streams, caches, encoders, and the heaps of mruby handlers. At 75 %, \
               bodies go to files and HTTP/2 and HTTP/3 windows stop growing. At 90 %, senders wait. At 100 %, queued requests wait and new ones get 503. The \
               workers' memory is not included (worker_memory).",
        reloadable: true,
    }
    /// Maximum size of a request body in memory; larger ones go to a file
    body_memory: usize = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.body_memory",
        flags: &[long("body-memory", "SIZE")],
        default: "64KiB",
        reloadable: true,
        known_as: &["client_body_buffer_size"],
    }
    /// Maximum size of response data kept in memory for a slow client
    response_memory: usize = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.response_memory",
        flags: &[long("response-memory", "SIZE")],
        default: "1MiB",
        more: "The rest goes to a file, up to response_spool.",
        reloadable: true,
        reload_only: true,
    }
    /// Maximum size of response data kept in a file for a slow client
    response_spool: u64 = Size { min: 0, max: 1 << 50 }, {
        key: "limits.response_spool",
        flags: &[long("response-spool", "SIZE")],
        default: "256MiB",
        more: "When the file is full, the app waits until the client has read some of the data. With 0 the app waits as soon as \
               response_memory is full. The limit applies to all responses of a connection together.",
        reloadable: true,
        reload_only: true,
    }
    /// Maximum size of the response head from the app (502)
    max_response_header_bytes: usize = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_response_header_bytes",
        flags: &[long("max-response-header-bytes", "SIZE")],
        default: "128KiB",
        reloadable: true,
        reload_only: true,
    }
    /// Memory (PSS) above which a worker is replaced; 0 is off
    worker_memory: Option<u64> = OrOff(Size { min: 0, max: 1 << 50 }), {
        key: "limits.worker_memory",
        flags: &[long("worker-memory", "SIZE")],
        default: "0",
        more: "PSS is the proportional set size: each worker counts its part of shared memory. The server starts a replacement first, then \
               the worker finishes its requests. Workers are replaced one at a time, and never in their first minute. A worker at one \
               and a half times the limit is killed at once. If two workers in a row exceed the limit in their first minute, the limit is \
               too small: the log says so, and the server no longer replaces workers for their memory.",
        reloadable: true,
        known_as: &["worker_memory_limit", "max_worker_memory", "reload_on_rss", "reload_on_pss", "memory_limit", "per_worker_max_memory_mb"],
    }
    /// Number of requests after which a worker is replaced; 0 is off
    max_requests: Option<u64> = OrOff(Count { min: 0, max: u64::MAX }), {
        key: "limits.max_requests",
        flags: &[long("max-requests", "N")],
        default: "0",
        more: "The value varies by up to 10 % per worker, so that workers are not all replaced at once. The server starts the \
               replacement first.",
        reloadable: true,
        known_as: &["max_requests_per_worker", "max_worker_requests", "passenger_max_requests"],
    }
    /// Age at which a worker is replaced; 0 is off
    max_age: Option<Duration> = OrOff(Period::ANY), {
        key: "limits.max_age",
        flags: &[long("max-age", "TIME")],
        default: "0",
        more: "The value varies by up to 10 % per worker, so that workers are not all replaced at once. The server starts the \
               replacement first.",
        reloadable: true,
        known_as: &["max_worker_lifetime", "max_worker_age", "rolling_restart_frequency"],
    }
    /// Pass header fields with _ in their names to the app
    allow_underscore_headers: bool = Switch, {
        key: "rack.allow_underscore_headers",
        flags: &[bare("allow-underscore-headers", "true")],
        default: "false",
        more: "By default the server drops these fields. In the Rack environment, _ and - in a name look the same, so a client could forge a \
               header field that a proxy sets.",
        reloadable: true,
    }
}
