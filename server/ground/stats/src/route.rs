//! The figures of routes as they are shown: in `GET /routes`, a few of them in `/stats` and `/metrics`.

use crate::durations::{DurationSummary, ms};
use crate::figures::{Merged, figures};
use crate::finding::Finding;
use crate::finished::RouteKind;
use crate::route_counts::RouteCounts;
use crate::when;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

figures! {
    /// The figures of one route. Times that are measured in samples are scaled up to all requests.
    #[serde(default)]
    #[derive(Default)]
    pub struct RouteSnapshot [route = |it| it.route.clone()]: Merged {
        /// The name that the app gives it, or its method and path, or the kind of requests that have none, in parentheses.
        route: String = own,
        /// The name is one that the app gives.
        named: bool = own,
        /// Finished requests.
        requests: u64 = counter,
        /// Requests with the final status 101.
        informational as "1xx": u64 = counter(
            "firebrick_route_requests", status = "1xx"; "Requests of a route of the app that are over, by class of their status"
        ),
        /// Requests with a status from 200 to 299.
        successful as "2xx": u64 = counter("firebrick_route_requests", status = "2xx"),
        /// Requests with a status from 300 to 399.
        redirected as "3xx": u64 = counter("firebrick_route_requests", status = "3xx"),
        /// Requests with a status from 400 to 499.
        client_errors as "4xx": u64 = counter("firebrick_route_requests", status = "4xx"),
        /// Requests with a status from 500 to 599.
        server_errors as "5xx": u64 = counter("firebrick_route_requests", status = "5xx"),
        /// Requests without a status: the client left before, or the app has taken the connection over.
        no_status: u64 = counter("firebrick_route_requests", status = "none"),
        /// Requests with a status from 500 on, or whose response the app or the server has cut off.
        failures: u64 = counter,
        /// Requests that the [cache](caching.md) has answered.
        cache_hits: u64 = counter,
        /// Bytes of response bodies.
        body_bytes: u64 = counter,
        /// From the first byte of the request to the last of the response; without connections that the app took over.
        total_ms: DurationSummary = histogram,
        /// Waiting for a worker.
        queue_ms: DurationSummary = histogram,
        /// In the app.
        app_ms: DurationSummary = histogram,
        /// All the time in the app, which is `cpu_ms`, `gvl_ms` and `waiting_ms`.
        app_sum_ms: f64 = counter("firebrick_route_app_seconds"; "How long the requests of a route were in the app"),
        /// The route's part of all the time in the app, from 0 to 1.
        share: f64 = own,
        /// Requests whose processor time was measured.
        measured: u64 = counter,
        /// CPU time of the threads that served the requests; null if none was measured.
        cpu_ms: Option<f64> = counter("firebrick_route_cpu_seconds"; "Processor time in the app, scaled up from samples"),
        /// Waiting for Ruby's global lock (GVL); null if no such wait was measured, or can be.
        gvl_ms: Option<f64> = counter(
            "firebrick_route_gvl_wait_seconds"; "Waiting for Ruby's global lock, scaled up from samples; needs Ruby 3.2"
        ),
        /// Collecting garbage, a part of `cpu_ms`.
        gc_ms: Option<f64> = counter("firebrick_route_gc_seconds"; "Collecting garbage in the app, scaled up from samples"),
        /// The rest of the time in the app: waiting for databases, other servers, locks, the client, a processor. Where `gvl_ms` is null, it includes
        /// that. Null if `cpu_ms` is.
        waiting_ms: Option<f64> = counter,
        /// Sending the response after the app had finished it.
        sending_ms: f64 = counter,
        /// Before the queue: reading the request, pauses, limits; and what the server itself took.
        front_ms: f64 = counter,
        /// Objects that Ruby has allocated.
        allocations: Option<u64> =
            counter("firebrick_route_allocations"; "Objects that the app has allocated, scaled up from samples"),
        /// Queries of the database, counted in all requests; null if [no library](routes.md#queries) reports them.
        queries: Option<u64> = counter("firebrick_route_queries"; "Queries of the database"),
        /// The time in those queries.
        queries_ms: Option<f64> = counter("firebrick_route_query_seconds"; "How long queries of the database took"),
        /// Requests that [repeated](advice.md) a query: ten times or more the same one, apart from its values.
        repeating: u64 = counter,
        /// Those queries, of each request those of the query that took the most time.
        repeats: u64 = counter,
        /// The time in them.
        repeats_ms: f64 = counter,
        /// The line of the app that makes them, and the query; null if it is not known.
        repeats_at: Option<String> = own,
        /// Requests in which a function in C [kept Ruby's global lock](advice.md) for 20 ms or more.
        holding: u64 = counter,
        /// The time for which it did, of each request the longest.
        holding_ms: f64 = counter,
        /// The longest of all.
        longest_hold_ms: f64 = peak,
        /// The function, and the line of the app that calls it; null if it is not known.
        holding_at: Option<String> = own,
        /// Requests to the app that were chosen at random, one of 16; while the [cache](caching.md) is off, they are looked at for what it would do.
        sampled: u64 = counter,
        /// Those whose response it could keep.
        cacheable: u64 = counter,
        /// Those that it would have answered: another one of them had had the same response, which was still fresh.
        would_hit: u64 = counter,
    }
}

/// The response to `GET /routes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RoutesSnapshot {
    /// When counting began: the start of the server, or the last reset.
    #[serde(with = "when")]
    pub since: SystemTime,
    #[serde(with = "when")]
    pub taken_at: SystemTime,
    /// The most routes that are kept (`stats.routes`).
    pub limit: u64,
    pub routes: Vec<RouteSnapshot>,
    /// The advice, the best first; only with `?advice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<Vec<Finding>>,
}

impl RouteSnapshot {
    /// `busy_us`: the time in the app of all routes together.
    pub(crate) fn new(name: &str, named: bool, counts: &RouteCounts, busy_us: u64) -> RouteSnapshot {
        let [no_status, informational, successful, redirected, client_errors, server_errors] = counts.classes;
        let app_us = counts.app.sum_us();
        // Rounding and clocks may differ a little.
        let part = |us: Option<u64>, of: u64| us.map(|us| us.min(of));
        let cpu = part(counts.cpu.sum(), app_us);
        let gvl = cpu.and_then(|cpu| part(counts.gvl.sum(), app_us - cpu));
        let parts = app_us + counts.queue.sum_us() + counts.sending_us;
        RouteSnapshot {
            route: name.to_owned(),
            named,
            requests: counts.requests,
            informational,
            successful,
            redirected,
            client_errors,
            server_errors,
            no_status,
            failures: counts.failures,
            cache_hits: counts.cache_hits,
            body_bytes: counts.body_bytes,
            total_ms: counts.total.summary(),
            queue_ms: counts.queue.summary(),
            app_ms: counts.app.summary(),
            app_sum_ms: ms(app_us),
            share: if busy_us == 0 { 0.0 } else { app_us as f64 / busy_us as f64 },
            measured: counts.measured,
            cpu_ms: cpu.map(ms),
            gvl_ms: gvl.map(ms),
            gc_ms: cpu.and_then(|cpu| part(counts.gc.sum(), cpu)).map(ms),
            waiting_ms: cpu.map(|cpu| ms(app_us - cpu - gvl.unwrap_or(0))),
            sending_ms: ms(counts.sending_us),
            front_ms: ms(counts.total.sum_us().saturating_sub(parts)),
            allocations: counts.allocations.sum(),
            queries: (counts.queried > 0).then_some(counts.queries),
            queries_ms: (counts.queried > 0).then(|| ms(counts.queries_us)),
            repeating: counts.repeats.requests,
            repeats: counts.repeats.count,
            repeats_ms: ms(counts.repeats.us),
            repeats_at: counts.repeats.at.as_deref().map(str::to_owned),
            holding: counts.holds.requests,
            holding_ms: ms(counts.holds.us),
            longest_hold_ms: ms(counts.holds.most_us.into()),
            sampled: counts.sampled[0],
            cacheable: counts.sampled[1],
            would_hit: counts.sampled[2],
            holding_at: counts.holds.at.as_deref().map(str::to_owned),
        }
    }

    fn summaries(&mut self) -> [&mut DurationSummary; 3] {
        [&mut self.total_ms, &mut self.queue_ms, &mut self.app_ms]
    }

    /// Returns the figures since `earlier`, a snapshot of the same route. Percentiles need the buckets of both; the share is that of the whole
    /// time until [`share_out`].
    pub fn new_since(&self, earlier: &RouteSnapshot) -> RouteSnapshot {
        match self.requests < earlier.requests {
            // It has given way in between, or the figures were reset.
            true => self.clone(),
            false => self.since(earlier),
        }
    }
}

/// Sets each route's part of the time in the app that these routes have together.
pub fn share_out(routes: &mut [RouteSnapshot]) {
    let busy: f64 = routes.iter().map(|route| route.app_sum_ms).sum();
    for route in routes {
        route.share = if busy > 0.0 { route.app_sum_ms / busy } else { 0.0 };
    }
}

/// The figure by which routes are sorted, the greatest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RouteOrder {
    /// The time in the app.
    #[default]
    Time,
    Cpu,
    Requests,
    /// The time in the queue.
    Queue,
    /// The time in queries of the database.
    Sql,
    /// Allocated objects.
    Alloc,
}

impl RouteOrder {
    pub const ALL: [(&'static str, RouteOrder); 6] = [
        ("time", RouteOrder::Time),
        ("cpu", RouteOrder::Cpu),
        ("requests", RouteOrder::Requests),
        ("queue", RouteOrder::Queue),
        ("sql", RouteOrder::Sql),
        ("alloc", RouteOrder::Alloc),
    ];

    /// Returns the names of all orders, for messages.
    pub fn names() -> String {
        RouteOrder::ALL.map(|(name, _)| name).join(", ")
    }

    /// Returns the order of this name.
    pub fn named(name: &str) -> Option<RouteOrder> {
        RouteOrder::ALL.iter().find(|(known, _)| *known == name).map(|(_, order)| *order)
    }

    fn key(self, route: &RouteSnapshot) -> f64 {
        match self {
            RouteOrder::Time => route.app_sum_ms,
            RouteOrder::Cpu => route.cpu_ms.unwrap_or(0.0),
            RouteOrder::Requests => route.requests as f64,
            RouteOrder::Queue => route.queue_ms.sum,
            RouteOrder::Sql => route.queries_ms.unwrap_or(0.0),
            RouteOrder::Alloc => route.allocations.unwrap_or(0) as f64,
        }
    }
}

impl RoutesSnapshot {
    /// Sorts the routes; equal ones by their requests, then by their names.
    #[must_use]
    pub fn sorted(mut self, order: RouteOrder) -> RoutesSnapshot {
        self.routes.sort_by(|one, two| {
            let by = order.key(two).total_cmp(&order.key(one));
            by.then(two.requests.cmp(&one.requests)).then_with(|| one.route.cmp(&two.route))
        });
        self
    }

    /// Returns the first `most` routes in this order.
    pub fn first(self, most: usize, order: RouteOrder) -> Vec<RouteSnapshot> {
        let mut routes = self.sorted(order).without_buckets().routes;
        routes.truncate(most);
        routes
    }

    /// Returns the routes for metrics: the first `most` that the app has named, and all others together.
    pub fn labelled(self, most: usize) -> Vec<RouteSnapshot> {
        if most == 0 {
            return Vec::new();
        }
        let (mut named, mut others): (Vec<RouteSnapshot>, Vec<RouteSnapshot>) =
            self.sorted(RouteOrder::Time).without_buckets().routes.into_iter().partition(|route| route.named);
        others.extend(named.split_off(most.min(named.len())));
        let mut sum = RouteSnapshot { route: RouteKind::Other.name().to_owned(), ..RouteSnapshot::default() };
        others.iter().for_each(|route| sum.add(route));
        named.extend((sum.requests > 0).then_some(sum));
        named
    }

    /// Removes the buckets of the histograms.
    #[must_use]
    pub fn without_buckets(mut self) -> RoutesSnapshot {
        for route in &mut self.routes {
            route.summaries().into_iter().for_each(|summary| summary.buckets.clear());
        }
        self
    }

    /// Returns the figures since `earlier`, which needs the buckets of both. Routes without new requests are left out.
    #[must_use]
    pub fn since(&self, earlier: &RoutesSnapshot) -> RoutesSnapshot {
        let new = |route: &RouteSnapshot| match earlier.routes.iter().find(|known| known.route == route.route)
        {
            Some(known) => route.new_since(known),
            None => route.clone(),
        };
        let mut routes: Vec<RouteSnapshot> =
            self.routes.iter().map(new).filter(|route| route.requests > 0).collect();
        share_out(&mut routes);
        RoutesSnapshot {
            since: earlier.taken_at,
            taken_at: self.taken_at,
            limit: self.limit,
            routes,
            advice: None,
        }
    }

    /// Returns the seconds that the figures are of.
    pub fn seconds(&self) -> f64 {
        self.taken_at.duration_since(self.since).map_or(0.0, |time| time.as_secs_f64())
    }
}
