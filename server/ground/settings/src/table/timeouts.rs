//! Timeouts.

use std::time::Duration;

use super::entry::{Category, long};
use super::section::section;
use crate::kind::numbers::{Count, Period};
use crate::kind::texts::Choice;
use crate::kind::wrappers::{Auto, OrOff};
use crate::value::statement::StatementLimit;

section! { Category::Timeouts;
    /// Bounds on waiting.
    Timeouts:

    /// Maximum time for a TLS handshake
    handshake: Duration = Period::POSITIVE, {
        key: "timeouts.handshake",
        flags: &[long("handshake-timeout", "TIME")],
        default: "10s",
        more: "The wait for a certificate that is obtained on demand does not count. A PROXY header must arrive within the same time, \
               before the handshake.",
        reloadable: true,
        known_as: &["handshake_timeout", "ssl_handshake_timeout"],
    }
    /// Maximum time for the head of a request to arrive (408)
    header: Duration = Period::POSITIVE, {
        key: "timeouts.header",
        flags: &[long("header-timeout", "TIME")],
        default: "30s",
        reloadable: true,
        known_as: &["header_timeout", "first_data_timeout", "client_header_timeout"],
    }
    /// Minimum rate of a request body, in bytes per second (408); 0 is off
    body_min_rate: Option<u64> = OrOff(Count { min: 0, max: 1_000_000_000 }), {
        key: "timeouts.body_min_rate",
        flags: &[long("body-min-rate", "BYTES")],
        default: "500",
        reloadable: true,
    }
    /// Maximum time that a request body can be slower than body_min_rate
    body_grace: Duration = Period::ANY, {
        key: "timeouts.body_grace",
        flags: &[long("body-grace", "TIME")],
        default: "10s",
        reloadable: true,
    }
    /// Maximum idle time of a connection; 0 turns keep-alive off
    keep_alive: Duration = Period::ANY, {
        key: "timeouts.keep_alive",
        flags: &[long("keep-alive-timeout", "TIME")],
        default: "65s",
        more: "Keep it longer than the idle timeout of a load balancer in front. Otherwise the balancer may send a request \
               just as the connection closes.",
        reloadable: true,
        known_as: &["keep_alive_timeout", "persistent_timeout", "keepalive_timeout"],
    }
    /// Maximum time that a client can go without reading its response
    send: Duration = Period::POSITIVE, {
        key: "timeouts.send",
        flags: &[long("send-timeout", "TIME")],
        default: "60s",
        more: "A client counts as reading while its system acknowledges data, however slowly. A client that has taken 256 KiB \
               or more over TCP, or 576 KiB of one response over HTTP/2 or HTTP/3, may read them at 4 kB/s, for up to five times this time. Data in the send buffer of the server's own \
               system does not count as read. After this time the server aborts the connection, or the HTTP/2 or HTTP/3 stream whose \
               window the client leaves closed, and drops the rest of the response. The same limit applies to tunnels, to connections \
               that wait for another request, and to connections that the server has closed. limits.min_download_rate limits the rate.",
        reloadable: true,
        known_as: &["send_timeout", "write_timeout"],
    }
    /// Idle time after which TCP keep-alive probes start; 0 is off
    tcp_keepalive: Option<Duration> = OrOff(Period::ANY), {
        key: "timeouts.tcp_keepalive",
        flags: &[long("tcp-keepalive", "TIME")],
        default: "60s",
        more: "TCP keep-alive (SO_KEEPALIVE) detects clients that have vanished while no data is sent: on tunnels and event \
               streams, and while a request waits. If a client does not answer, the system repeats the probe three times, each a sixth of \
               this time later, and then ends the connection. The system uses whole seconds.",
        known_as: &["so_keepalive", "tcp_keepalive"],
    }
    /// Maximum time that a request waits for a worker (503)
    queue: Duration = Period::POSITIVE, {
        key: "timeouts.queue",
        flags: &[long("queue-timeout", "TIME")],
        default: "60s",
        default_shown: Some("60s; a day in development"),
        reloadable: true,
        known_as: &["queue_timeout"],
    }
    /// Maximum time for the app to begin a response (504); 0 is off
    worker: Option<Duration> = OrOff(Period::ANY), {
        key: "timeouts.worker",
        flags: &[long("worker-timeout", "TIME")],
        default: "60s",
        default_shown: Some("60s; off in development"),
        more: "The time starts when a worker starts the request. After it, the client gets 504 and the server logs the worker's \
               backtraces. The worker gets no more requests and is replaced at once. The server ends the worker when its other \
               requests have finished, at the latest after `timeouts.shutdown`. A response that has started has no time limit.",
        reloadable: true,
        known_as: &["worker_timeout", "timeout", "request_timeout"],
    }
    /// Whether queries of Active Record end with the time of their request
    statement: StatementLimit = Choice(StatementLimit::WORDS), {
        key: "timeouts.statement",
        flags: &[long("statement-timeout", "off|session|transaction")],
        default: "off",
        more: "With session, a query on PostgreSQL (statement_timeout) or MySQL (max_execution_time, SELECT only; MariaDB: max_statement_time) takes \
               no longer than is left of timeouts.worker, as it was when the worker started. It raises ActiveRecord::QueryCanceled or \
               StatementTimeout in time for the app to respond. A value of the connection that is shorter stays. transaction does this only inside of \
               transactions, with SET LOCAL on PostgreSQL: for PgBouncer in transaction mode, where a session has many users. \
               docs/statement-timeouts.md has the rules.",
        reloadable: true,
        reload_only: true,
        known_as: &["statement_timeout", "statement_limit"],
    }
    /// Maximum time for the app to load, and for a worker to start
    worker_boot: Duration = Period::POSITIVE, {
        key: "timeouts.worker_boot",
        flags: &[long("worker-boot-timeout", "TIME")],
        default: "60s",
        known_as: &["worker_boot_timeout", "boot_timeout"],
    }
    /// Time to keep accepting connections after TERM
    lame_duck: Option<Duration> = Auto(Period::ANY), {
        key: "timeouts.lame_duck",
        flags: &[long("lame-duck", "TIME")],
        default: "auto",
        default_shown: Some("5s in Kubernetes (KUBERNETES_SERVICE_HOST is set), else 0"),
        more: "Load balancers take a few seconds to notice that a server is shutting down. During this time /ready returns \
               503, the server still accepts connections, and each HTTP/1 response closes its connection. Then the \
               ports close, and requests have timeouts.shutdown to finish. INT, or a second TERM, ends this time at \
               once.",
        reloadable: true,
        known_as: &["lame_duck", "lame_duck_timeout", "drain_delay", "shutdown_delay"],
    }
    /// Maximum time for requests to finish after TERM or INT
    shutdown: Duration = Period::ANY, {
        key: "timeouts.shutdown",
        flags: &[long("shutdown-timeout", "TIME")],
        default: "30s",
        known_as: &["shutdown_timeout", "worker_shutdown_timeout", "force_shutdown_after", "graceful_timeout"],
    }
}
