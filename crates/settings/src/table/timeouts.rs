//! Bounds on waiting.

use super::entry::{Category, entries, long};
use crate::kind::numbers::{Count, Period};
use crate::kind::wrappers::OrOff;

entries! { Category::Timeouts;
    HEADER_TIMEOUT: Period = Period::POSITIVE, {
        key: "timeouts.header",
        flags: &[long("header-timeout", "TIME")],
        default: "30s",
        doc: "For the whole head of a request to arrive (408)",
        reloadable: true,
        known_as: &["header_timeout", "first_data_timeout", "client_header_timeout"],
    }
    BODY_MIN_RATE: OrOff<Count> = OrOff(Count { min: 0, max: 1_000_000_000 }), {
        key: "timeouts.body_min_rate",
        flags: &[long("body-min-rate", "BYTES")],
        default: "500",
        doc: "Least bytes per second of a request body (408); 0 is off",
        reloadable: true,
    }
    BODY_GRACE: Period = Period::ANY, {
        key: "timeouts.body_grace",
        flags: &[long("body-grace", "TIME")],
        default: "10s",
        doc: "How long a body may be slower than that",
        reloadable: true,
    }
    KEEP_ALIVE_TIMEOUT: Period = Period::ANY, {
        key: "timeouts.keep_alive",
        flags: &[long("keep-alive-timeout", "TIME")],
        default: "65s",
        doc: "How long a connection may be idle; 0 turns keep-alive off",
        more: "Keep it above the idle timeout of a load balancer in front, which otherwise may send a request just \
               as the connection closes.",
        reloadable: true,
        known_as: &["keep_alive_timeout", "persistent_timeout", "keepalive_timeout"],
    }
    SEND_TIMEOUT: Period = Period::POSITIVE, {
        key: "timeouts.send",
        flags: &[long("send-timeout", "TIME")],
        default: "60s",
        doc: "How long a client may take nothing of its response",
        reloadable: true,
        known_as: &["send_timeout", "write_timeout"],
    }
    QUEUE_TIMEOUT: Period = Period::POSITIVE, {
        key: "timeouts.queue",
        flags: &[long("queue-timeout", "TIME")],
        default: "60s",
        doc: "How long a request may wait for a worker (503)",
        reloadable: true,
        known_as: &["queue_timeout"],
    }
    WORKER_TIMEOUT: OrOff<Period> = OrOff(Period::ANY), {
        key: "timeouts.worker",
        flags: &[long("worker-timeout", "TIME")],
        default: "60s",
        doc: "How long one request may hold a worker; 0 is off",
        more: "The worker's backtraces are logged, then it is ended and replaced; the request gets 502.",
        reloadable: true,
        known_as: &["worker_timeout", "timeout", "request_timeout"],
    }
    WORKER_BOOT_TIMEOUT: Period = Period::POSITIVE, {
        key: "timeouts.worker_boot",
        flags: &[long("worker-boot-timeout", "TIME")],
        default: "60s",
        doc: "How long the app may take to load, and a worker to start",
        known_as: &["worker_boot_timeout", "boot_timeout"],
    }
    SHUTDOWN_TIMEOUT: Period = Period::ANY, {
        key: "timeouts.shutdown",
        flags: &[long("shutdown-timeout", "TIME")],
        default: "30s",
        doc: "How long requests may finish after TERM or INT",
        known_as: &["shutdown_timeout", "worker_shutdown_timeout", "force_shutdown_after", "graceful_timeout"],
    }
}
