//! Counts of requests, failures and connections.

use crate::figures::figures;

figures! {
    /// Requests by outcome.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct RequestCounts: Merged {
        /// Finished requests.
        total: u64 = counter,
        /// Requests with the final status 101.
        informational as "1xx": u64 = counter(
            "firebrick_requests", status = "1xx";
            "Requests that are over, by class of their status; none: the client left before there was one"
        ),
        /// Requests with a status from 200 to 299.
        successful as "2xx": u64 = counter("firebrick_requests", status = "2xx"),
        /// Requests with a status from 300 to 399.
        redirected as "3xx": u64 = counter("firebrick_requests", status = "3xx"),
        /// Requests with a status from 400 to 499.
        client_errors as "4xx": u64 = counter("firebrick_requests", status = "4xx"),
        /// Requests with a status from 500 to 599.
        server_errors as "5xx": u64 = counter("firebrick_requests", status = "5xx"),
        /// The client disconnected before there was a response: 499 in the access log, not part of `4xx`.
        client_gone: u64 = counter("firebrick_requests", status = "none"),
        /// Connections that the app has taken over, such as WebSockets. Those that began with a response
        /// count in its class, too.
        hijacked: u64 =
            counter("firebrick_hijacked_connections"; "Connections that the app has taken over, such as WebSockets"),
    }

    /// Failures by the party that caused them.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct FaultCounts: Merged {
        /// Invalid requests (bad syntax, too large, too slow).
        client: u64 = counter("firebrick_failures", fault = "client"; "Failures by whose fault they were"),
        /// The app or its worker failed (502, 504).
        app: u64 = counter("firebrick_failures", fault = "app"),
        /// Limits and errors of the server (500, 503).
        server: u64 = counter("firebrick_failures", fault = "server"),
    }

    /// Client connections.
    #[derive(Default, Eq)]
    #[serde(default)]
    pub struct ConnectionCounts: Merged, ConnectionCells {
        /// Connections accepted.
        accepted: u64 = counter("firebrick_accepted_connections"),
        /// Connections that are open.
        open: u64 = gauge("firebrick_connections"),
        /// Connections closed to make room for others (`limits.max_connections`).
        displaced: u64 = counter("firebrick_displaced_connections"; "Connections closed to make room for others"),
        /// Connections refused because their addresses had too many (`limits.max_connections_per_address`).
        refused_of_address: u64 = counter(
            "firebrick_refused_connections"; "Connections refused because their addresses had too many"
        ),
    }
}
