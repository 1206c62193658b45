//! The queue in front of the workers.

use super::entry::{Category, entries, long};
use crate::kind::lists::Fairness;
use crate::value::queue::Fair;

entries! { Category::Workers;
    /// What tells the clients apart that take turns in the queue
    FAIR: Fair = Fairness, {
        key: "queue.fair",
        flags: &[long("queue-fair", "KEY")],
        default: "address",
        more: "address, header:NAME, cookie:NAME, host, or off. Requests that wait for a worker are served in turn by client, and in order \
               of arrival for each client, so that no client waits for all requests of another. An IPv6 network of 64 bits counts \
               as one client, and X-Forwarded-For is read if it comes from rack.trusted_proxies. A request without the header or \
               cookie counts for its address. off serves all requests in order of arrival. docs/queue.md describes turns, \
               classes, and which requests a full queue refuses.",
        reloadable: true,
        known_as: &["fair_queue", "queue.key"],
    }
}
