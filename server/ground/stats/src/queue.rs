//! The classes of the queue, and the clients with the most requests in it.

use crate::figures::figures;

figures! {
    /// A class of requests in the queues of all pools.
    #[derive(Default, Eq)]
    pub struct QueueClassSnapshot [class = |it| it.name.clone()] {
        /// Its name; `default` for requests of no other class.
        name: String,
        /// Its weight; 0 is the last lane.
        weight: u32,
        /// Requests that wait now.
        waiting: u64 = gauge("firebrick_queue_class_waiting"; "Requests of a class that wait"),
        /// Clients whose requests wait now.
        clients: u64 = gauge("firebrick_queue_class_clients"; "Clients with waiting requests of a class"),
        /// Requests since the start that got a worker after a wait.
        served: u64 = counter("firebrick_queue_class_served"; "Requests of a class that got a worker after a wait"),
        /// The total wait of those requests.
        waited_ms: u64 = counter("firebrick_queue_class_wait_seconds"; "Total wait of the requests of a class that got a worker"),
        /// Requests since the start that got 503, for any of the reasons in
        /// [queue](#queue-requests-that-wait-for-a-worker).
        refused: u64 = counter("firebrick_queue_class_refusals"; "Requests of a class that got no worker (503)"),
    }

    /// A client with waiting requests. Not in `/metrics`.
    #[derive(Default)]
    pub struct WaiterSnapshot {
        /// Its address, the 64-bit network of an IPv6 address, `unix`, or, with another `queue.fair`, a hash
        /// that this server process gives the value: `#` and 16 hexadecimal digits.
        client: String,
        /// The name of the pool.
        pool: String,
        /// The name of the class.
        class: String,
        /// Its requests that wait.
        waiting: u32,
        /// Its requests that have waited and are with a worker now.
        served: u32,
        /// The longest wait of them.
        oldest_wait_ms: f64,
    }
}
