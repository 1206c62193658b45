//! The queue in front of the workers.

use super::entry::{Category, entries, long};
use crate::kind::lists::Fairness;
use crate::value::queue::Fair;

entries! { Category::Workers;
    /// How the queue identifies the clients that take turns
    FAIR: Fair = Fairness, {
        key: "queue.fair",
        flags: &[long("queue-fair", "KEY")],
        default: "address",
        more: "address, header:NAME, cookie:NAME, host, or off. Waiting requests are served in turn by client, and in order of arrival for each client, so that no client waits for all \
               requests of another. An IPv6 network of 64 bits counts \
               as one client, and X-Forwarded-For is read if it comes from rack.trusted_proxies. A request without the header or cookie counts under its address. off serves all requests in order of arrival. docs/queue.md describes turns, \
               classes, and which requests a full queue refuses.",
        reloadable: true,
        known_as: &["fair_queue", "queue.key"],
    }
}
