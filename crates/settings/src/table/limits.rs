//! Bounds on size and number.

use super::entry::{Category, entries, long};
use crate::kind::numbers::{Count, Size};
use crate::kind::wrappers::OrOff;

entries! { Category::Limits;
    MAX_HEADER_BYTES: Size = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_header_bytes",
        flags: &[long("max-header-bytes", "SIZE")],
        default: "64KiB",
        doc: "Request line and headers together (431)",
        reloadable: true,
        known_as: &["max_header_size"],
    }
    MAX_HEADERS: Count = Count { min: 1, max: 10_000 }, {
        key: "limits.max_headers",
        flags: &[long("max-headers", "N")],
        default: "100",
        doc: "Number of request headers (431)",
        reloadable: true,
    }
    MAX_URI: Size = Size { min: 64, max: 16 << 20 }, {
        key: "limits.max_uri",
        flags: &[long("max-uri", "SIZE")],
        default: "16KiB",
        doc: "Length of the request target (414)",
        more: "It must be less than max_header_bytes, of which it is a part; the default is at most half of that.",
        reloadable: true,
        known_as: &["max_uri_length", "max_url"],
    }
    MAX_BODY: OrOff<Size> = OrOff(Size { min: 0, max: 1 << 50 }), {
        key: "limits.max_body",
        flags: &[long("max-body", "SIZE")],
        default: "1GiB",
        doc: "Size of a request body (413); 0 is unlimited",
        reloadable: true,
        known_as: &["http_content_length_limit", "client_max_body_size", "max_request_body"],
    }
    MAX_CONNECTIONS: Count = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_connections",
        flags: &[long("max-connections", "N")],
        default: "10000",
        doc: "Connections open at a time (503)",
        reloadable: true,
        known_as: &["worker_connections"],
    }
    MAX_REQUESTS_PER_CONNECTION: OrOff<Count> = OrOff(Count { min: 0, max: u64::MAX }), {
        key: "limits.max_requests_per_connection",
        flags: &[long("max-requests-per-connection", "N")],
        default: "0",
        doc: "Requests before a connection is closed; 0 is unlimited",
        reloadable: true,
        known_as: &["max_keep_alive", "max_fast_inline", "keepalive_requests"],
    }
    MAX_QUEUE: Count = Count { min: 1, max: 10_000_000 }, {
        key: "limits.max_queue",
        flags: &[long("max-queue", "N")],
        default: "10000",
        doc: "Requests waiting for a worker (503)",
        reloadable: true,
        known_as: &["queue_size"],
    }
    BODY_MEMORY: Size = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.body_memory",
        flags: &[long("body-memory", "SIZE")],
        default: "64KiB",
        doc: "Request bodies above this go to a file",
        reloadable: true,
        known_as: &["client_body_buffer_size"],
    }
    RESPONSE_MEMORY: Size = Size { min: 1 << 10, max: 1 << 30 }, {
        key: "limits.response_memory",
        flags: &[long("response-memory", "SIZE")],
        default: "1MiB",
        doc: "Bytes of a response kept in memory for a slow client",
        more: "What is more goes to a file, up to response_spool.",
        reloadable: true,
    }
    RESPONSE_SPOOL: Size = Size { min: 0, max: 1 << 50 }, {
        key: "limits.response_spool",
        flags: &[long("response-spool", "SIZE")],
        default: "256MiB",
        doc: "Bytes of a response kept in a file for a slow client",
        more: "What is more waits in the worker until the client has taken some. 0 makes it wait at once.",
        reloadable: true,
    }
    MAX_RESPONSE_HEADER_BYTES: Size = Size { min: 1 << 10, max: 16 << 20 }, {
        key: "limits.max_response_header_bytes",
        flags: &[long("max-response-header-bytes", "SIZE")],
        default: "128KiB",
        doc: "Headers that the app may answer (502)",
        reloadable: true,
    }
}
