//! Timeouts.

use std::time::Duration;

use super::entry::{Category, long, section};
use crate::kind::numbers::{Count, Period};
use crate::kind::wrappers::{Auto, OrOff};

section! { Category::Timeouts;
    /// Bounds on waiting.
    Timeouts:

    /// How long a TLS handshake may take
    handshake: Duration = Period::POSITIVE, {
        key: "timeouts.handshake",
        flags: &[long("handshake-timeout", "TIME")],
        default: "10s",
        more: "Waiting for a certificate that is made on demand is not counted. A PROXY header has the same time, before the \
               handshake.",
        reloadable: true,
        known_as: &["handshake_timeout", "ssl_handshake_timeout"],
    }
    /// How long the head of a request may take to arrive (408)
    header: Duration = Period::POSITIVE, {
        key: "timeouts.header",
        flags: &[long("header-timeout", "TIME")],
        default: "30s",
        reloadable: true,
        known_as: &["header_timeout", "first_data_timeout", "client_header_timeout"],
    }
    /// Slowest request body, in bytes per second (408); 0 is off
    body_min_rate: Option<u64> = OrOff(Count { min: 0, max: 1_000_000_000 }), {
        key: "timeouts.body_min_rate",
        flags: &[long("body-min-rate", "BYTES")],
        default: "500",
        reloadable: true,
    }
    /// How long a request body may be slower than body_min_rate
    body_grace: Duration = Period::ANY, {
        key: "timeouts.body_grace",
        flags: &[long("body-grace", "TIME")],
        default: "10s",
        reloadable: true,
    }
    /// How long a connection may be idle; 0 turns keep-alive off
    keep_alive: Duration = Period::ANY, {
        key: "timeouts.keep_alive",
        flags: &[long("keep-alive-timeout", "TIME")],
        default: "65s",
        more: "Keep it longer than the idle timeout of a load balancer in front. Otherwise the balancer may send a request \
               just as the connection closes.",
        reloadable: true,
        known_as: &["keep_alive_timeout", "persistent_timeout", "keepalive_timeout"],
    }
    /// How long a client may go without reading its response
    send: Duration = Period::POSITIVE, {
        key: "timeouts.send",
        flags: &[long("send-timeout", "TIME")],
        default: "60s",
        more: "A client reads as long as its system acknowledges bytes of what it was sent, however slowly; what the server has handed \
               to its own system does not count as read. After this time the connection is cut, or the stream of HTTP/2 or HTTP/3 \
               whose window it leaves closed, and nothing is kept for it. The same holds for tunnels, for connections that wait for \
               another request, and for those that the server has closed. limits.min_download_rate bounds the rate.",
        reloadable: true,
        known_as: &["send_timeout", "write_timeout"],
    }
    /// Silence of a TCP connection after which its client is probed; 0 is off
    tcp_keepalive: Option<Duration> = OrOff(Period::ANY), {
        key: "timeouts.tcp_keepalive",
        flags: &[long("tcp-keepalive", "TIME")],
        default: "60s",
        more: "The keep-alive of TCP (SO_KEEPALIVE), which finds clients that have vanished while nothing is sent: of tunnels and event \
               streams, and while a request waits. A client that does not answer is asked three times more, each a sixth of this time \
               later; then its connection ends. The system counts whole seconds.",
        known_as: &["so_keepalive", "tcp_keepalive"],
    }
    /// How long a request may wait for a worker (503)
    queue: Duration = Period::POSITIVE, {
        key: "timeouts.queue",
        flags: &[long("queue-timeout", "TIME")],
        default: "60s",
        default_shown: Some("60s; a day in development"),
        reloadable: true,
        known_as: &["queue_timeout"],
    }
    /// How long the app may take to begin a response (504); 0 is off
    worker: Option<Duration> = OrOff(Period::ANY), {
        key: "timeouts.worker",
        flags: &[long("worker-timeout", "TIME")],
        default: "60s",
        default_shown: Some("60s; off in development"),
        more: "Counted from when a worker starts the request. When the time is over the client gets 504 and the worker's \
               backtraces are logged. The worker gets no more requests and is replaced at once; it is ended when its other \
               requests have finished, at the latest after `timeouts.shutdown`. A response that has started is not limited.",
        reloadable: true,
        known_as: &["worker_timeout", "timeout", "request_timeout"],
    }
    /// How long the app may take to load, and a worker to start
    worker_boot: Duration = Period::POSITIVE, {
        key: "timeouts.worker_boot",
        flags: &[long("worker-boot-timeout", "TIME")],
        default: "60s",
        known_as: &["worker_boot_timeout", "boot_timeout"],
    }
    /// How long to go on accepting connections after TERM
    lame_duck: Option<Duration> = Auto(Period::ANY), {
        key: "timeouts.lame_duck",
        flags: &[long("lame-duck", "TIME")],
        default: "auto",
        default_shown: Some("5s in Kubernetes (KUBERNETES_SERVICE_HOST is set), else 0"),
        more: "Load balancers hear of a server that leaves some seconds late. For this time /ready answers \
               503, connections are still accepted, and responses over HTTP/1 end their connection; then the \
               ports close, and requests have timeouts.shutdown to finish. INT, or a second TERM, ends it at \
               once.",
        reloadable: true,
        known_as: &["lame_duck", "lame_duck_timeout", "drain_delay", "shutdown_delay"],
    }
    /// How long requests may take to finish after TERM or INT
    shutdown: Duration = Period::ANY, {
        key: "timeouts.shutdown",
        flags: &[long("shutdown-timeout", "TIME")],
        default: "30s",
        known_as: &["shutdown_timeout", "worker_shutdown_timeout", "force_shutdown_after", "graceful_timeout"],
    }
}
