//! A view: the last sample of the server, and the interval since the previous one. Pure.

use serde_json::{Value, json};
use stats::{
    Death, HandlerFigures, InFlight, Interval, RouteSnapshot, ServerSnapshot, WorkerInterval, WorkerSnapshot,
};
use std::time::Instant;

/// A sample of the server.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) server: ServerSnapshot,
    /// Slowest first.
    pub(crate) requests: Vec<InFlight>,
    /// Recently ended workers, newest first.
    pub(crate) deaths: Vec<Death>,
    /// The monotonic time of the sample.
    pub(crate) at: Instant,
}

/// A sample, and the interval since the previous one.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) sample: Sample,
    /// `None` for the first sample, and if the server has restarted since the previous one.
    pub(crate) between: Option<Interval>,
    /// The routes of the previous sample; `None` where there is no interval.
    pub(crate) routes_before: Option<Vec<RouteSnapshot>>,
}

impl View {
    pub(crate) fn new(sample: Sample, earlier: Option<&Sample>) -> View {
        let between = earlier.and_then(|earlier| {
            let seconds = sample.at.saturating_duration_since(earlier.at).as_secs_f64();
            Interval::between(&earlier.server, &sample.server, seconds)
        });
        let routes_before =
            earlier.filter(|_| between.is_some()).map(|earlier| earlier.server.routes.clone());
        View { sample, between, routes_before }
    }

    pub(crate) fn server(&self) -> &ServerSnapshot {
        &self.sample.server
    }

    /// Returns whether there are workers, or will be; a static site has none.
    pub(crate) fn has_app(&self) -> bool {
        !self.server().rack.is_empty() || !self.server().workers.is_empty()
    }

    /// Returns whether there are or were workers of several generations, so that the generation is worth showing.
    pub(crate) fn has_generations(&self) -> bool {
        let server = self.server();
        server.phase > 0 || server.workers.iter().any(|worker| worker.phase != server.phase)
    }

    /// Returns the busiest routes, with their counts of the interval; the percentiles are those since the start. All figures are since the start without
    /// an interval. And the seconds that the counts are of.
    pub(crate) fn routes(&self) -> (Vec<RouteSnapshot>, f64) {
        let now = &self.server().routes;
        let Some(before) = &self.routes_before else {
            return (now.clone(), self.server().uptime());
        };
        let new = now.iter().filter_map(|route| {
            let new = route.new_since(before.iter().find(|known| known.route == route.route)?);
            Some(RouteSnapshot { total_ms: route.total_ms.clone(), ..new })
        });
        let mut all: Vec<RouteSnapshot> = new.filter(|route| route.requests > 0).collect();
        stats::share_out(&mut all);
        all.sort_by(|one, two| two.app_sum_ms.total_cmp(&one.app_sum_ms));
        (all, self.between.as_ref().map_or(0.0, |between| between.seconds))
    }

    /// Returns requests per second; `None` without an interval.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.between.as_ref().map(|between| between.per_second(between.requests.total))
    }

    /// Returns the worker's counts in the interval.
    pub(crate) fn did(&self, worker: &WorkerSnapshot) -> Option<&WorkerInterval> {
        self.between.as_ref()?.workers.iter().find(|did| (did.index, did.pid) == (worker.index, worker.pid))
    }

    /// Returns the counts of handlers on mruby in the interval.
    pub(crate) fn handled(&self) -> Option<&HandlerFigures> {
        self.between.as_ref()?.handlers.as_ref()
    }

    /// Returns the output of `--once --json`, described in docs/top.md.
    pub(crate) fn to_json(&self, address: &str) -> Value {
        let server = self.server();
        let mut raw = server.clone();
        raw.front = raw.front.without_buckets();
        let between = self.between.clone().unwrap_or_default();
        let per_s = |count: u64| between.per_second(count);
        let workers = server.workers.iter().map(|worker| {
            let did = self.did(worker).copied().unwrap_or_default();
            json!({
                "index": worker.index,
                "pid": worker.pid,
                "state": worker.state,
                "generation": worker.phase + 1,
                "requests_per_s": per_s(did.requests),
                "cpus": did.cpus,
                "busy_threads": worker.busy_threads,
                "threads_max": worker.threads_max,
                "fibers": worker.fibers,
                "fiber_paths": worker.fiber_paths,
                "pool": worker.pool,
                "waiting": worker.waiting,
                "pss_bytes": worker.pss_bytes,
                "rss_bytes": worker.rss_bytes,
                "restarts": worker.restarts,
            })
        });
        let handlers = server.handlers.as_ref().map(|now| {
            let did = self.handled().cloned().unwrap_or_default();
            json!({
                "requests_per_s": per_s(did.requests),
                "failures_per_s": per_s(did.failures),
                "refused_per_s": per_s(did.refused),
                "tasks": now.all.tasks,
                "waiting": now.all.waiting,
                "tasks_max": now.all.tasks_max,
                "heap_bytes": now.all.heap_bytes,
                "heap_max_bytes": now.all.heap_max_bytes,
                "vms_replaced": did.vms_replaced,
            })
        });
        json!({
            "kind": "firebrick top",
            "version": 1,
            "asked": address,
            "interval_s": between.seconds,
            "requests_per_s": per_s(between.requests.total),
            "errors_per_s": {
                "4xx": per_s(between.requests.client_errors),
                "5xx": per_s(between.requests.server_errors),
                "client_gone": per_s(between.requests.client_gone),
            },
            "failures_per_s": {
                "client": per_s(between.failures.client),
                "app": per_s(between.failures.app),
                "server": per_s(between.failures.server),
            },
            "accepted_per_s": per_s(between.connections.accepted),
            "sent_body_bytes_per_s": per_s(between.sent_body_bytes),
            "total_ms": between.total_ms,
            "queue_ms": between.queue_ms,
            "app_ms": between.app_ms,
            "queue": server.queue,
            "connections_open": server.front.connections.open,
            "cpus": between.cpus,
            "cores": server.cores,
            "pss_bytes": server.total_pss_bytes(),
            "rss_bytes": server.total_rss_bytes(),
            "memory_limit_bytes": server.memory_limit_bytes,
            "restarts": between.restarts,
            "workers": workers.collect::<Vec<_>>(),
            "handlers": handlers,
            "requests": self.sample.requests,
            "deaths": self.sample.deaths,
            "stats": raw,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use stats::{Finished, HandlersSnapshot, Recorder, RequestPhase, Snapshot, WorkerState};
    use std::time::{Duration, SystemTime};

    /// Returns a server with `workers` workers (0: a static site) and the requests counted by `recorder`.
    pub(crate) fn server(workers: u32, recorder: &Recorder) -> ServerSnapshot {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_769_860_800);
        let empty = json!({
            "version": "0.1.0", "ruby": { "engine": "", "version": "", "patchlevel": null }, "rack": "", "environment": "production",
            "dir": "/srv/shop", "pid": 99, "started_at": "2026-01-31T11:00:00Z", "taken_at": "2026-01-31T12:00:00Z", "phase": 0,
            "clustered": true, "pss_bytes": 30 << 20, "workers": [], "queue": { "length": 0, "oldest_wait_ms": 0.0, "longest": 0, "max": 0 },
        });
        let mut whole = serde_json::to_value(Snapshot::of([recorder])).unwrap();
        whole.as_object_mut().unwrap().extend(empty.as_object().unwrap().clone());
        let mut server: ServerSnapshot = serde_json::from_value(whole).unwrap();
        (server.cores, server.memory_limit_bytes, server.cpu_ms, server.rss_bytes) =
            (2.0, 512 << 20, 1_000, 60 << 20);
        if workers > 0 {
            server.ruby = "ruby 3.1.2p20".into();
            server.rack = "2.2.4".into();
            server.queue.max = 10_000;
        }
        server.workers = (0..workers)
            .map(|index| WorkerSnapshot {
                index,
                pid: 4_000 + index,
                state: if index == 1 { WorkerState::Booting } else { WorkerState::Ready },
                phase: 0,
                started_at: now - Duration::from_secs(600),
                last_checkin: now,
                requests: 1_000,
                failures: 0,
                blocking_calls: 0,
                blocked_ms: 0,
                busy_threads: index % 6,
                threads_started: 5,
                threads_max: 5,
                fibers: 0,
                fiber_paths: None,
                pool: "default".to_owned(),
                in_flight: 3,
                waiting: 0,
                pss_bytes: u64::from(40 + index) << 20,
                rss_bytes: 90 << 20,
                cpu_ms: 5_000,
                restarts: index,
            })
            .collect();
        server
    }

    pub(crate) fn request(path: &str, age_ms: f64, worker: Option<u32>) -> InFlight {
        InFlight {
            worker,
            pid: worker.map(|index| 4_000 + index),
            thread: worker.map(|_| 2),
            method: "GET".into(),
            path: path.into(),
            age_ms,
            queue_ms: if worker.is_some() { 0.2 } else { age_ms },
            state: if worker.is_some() { RequestPhase::App } else { RequestPhase::Queued },
            backtrace: None,
        }
    }

    /// Returns two samples, two seconds apart: 246 requests of 12 ms, two of them failed, one CPU busy.
    pub(crate) fn view(workers: u32) -> View {
        let recorder = Recorder::new();
        let at = Instant::now();
        let requests = if workers == 0 {
            Vec::new()
        } else {
            vec![
                request("/slow?", 12_300.0, Some(0)),
                request("/reports/2026", 450.0, Some(2)),
                request("/queued", 8.0, None),
            ]
        };
        let earlier =
            Sample { server: server(workers, &recorder), requests: Vec::new(), deaths: Vec::new(), at };
        let served = |status, total_us| Finished {
            status,
            total_us,
            queue_us: (workers > 0).then_some(300),
            app_us: (workers > 0).then_some(11_000),
            ..Finished::default()
        };
        (0..244).for_each(|_| _ = recorder.finished(&served(200, 12_000)));
        (0..2).for_each(|_| _ = recorder.finished(&served(500, 200_000)));
        let mut later = server(workers, &recorder);
        later.cpu_ms += 500;
        if let Some(worker) = later.workers.first_mut() {
            worker.cpu_ms += 1_500;
            worker.requests += 246;
        }
        View::new(
            Sample { server: later, requests, deaths: Vec::new(), at: at + Duration::from_secs(2) },
            Some(&earlier),
        )
    }

    /// Returns the same with handlers on mruby in two front threads: 120 requests, 4 of which failed, 2 of them because the second thread was at
    /// its task limit; 40 tasks, 30 of them waiting.
    pub(crate) fn view_with_handlers(workers: u32) -> View {
        let counts = [stats::HandlerCounts::default(), stats::HandlerCounts::default()];
        let mut view = view(workers);
        let mut earlier = view.sample.clone();
        earlier.server.handlers = HandlersSnapshot::of(&counts);
        earlier.at -= Duration::from_secs(2);
        for (thread, mib) in counts.iter().zip([20, 61]) {
            thread.limits(64 << 20, 40);
            thread.heap(0, mib << 20);
            (0..60).for_each(|_| thread.asked());
        }
        let second = &counts[1];
        (0..40).for_each(|_| second.began());
        (0..30).for_each(|_| second.suspended());
        (0..4).for_each(|_| second.failed());
        (0..2).for_each(|_| second.refused());
        second.replaced();
        view.sample.server.handlers = HandlersSnapshot::of(&counts);
        View::new(view.sample, Some(&earlier))
    }

    #[test]
    fn json_contains_handlers() {
        assert!(view(1).to_json("x")["handlers"].is_null());
        let json = view_with_handlers(0).to_json("x");
        let expected = json!({
            "requests_per_s": 60.0, "failures_per_s": 2.0, "refused_per_s": 1.0, "tasks": 40, "waiting": 30, "tasks_max": 80,
            "heap_bytes": 81 << 20, "heap_max_bytes": 128 << 20, "vms_replaced": 1,
        });
        assert_eq!(json["handlers"], expected);
        assert_eq!(json["stats"]["handlers"]["threads"][1]["tasks_most"], 40);
    }

    #[test]
    fn json_contains_the_interval_and_the_raw_counters() {
        let view = view(2);
        let json = view.to_json("/run/c.sock");
        assert_eq!((&json["kind"], &json["version"]), (&"firebrick top".into(), &1.into()));
        assert_eq!((&json["interval_s"], &json["requests_per_s"]), (&2.0.into(), &123.0.into()));
        assert_eq!(json["errors_per_s"]["5xx"], 1.0);
        assert!((json["total_ms"]["p50"].as_f64().unwrap() - 12.0).abs() < 0.2, "{}", json["total_ms"]);
        assert_eq!(
            (&json["workers"][0]["requests_per_s"], &json["workers"][0]["cpus"]),
            (&123.0.into(), &0.75.into())
        );
        assert_eq!(
            (&json["requests"][2]["state"], &json["stats"]["requests"]["total"]),
            (&"queued".into(), &246.into())
        );
        assert!(json["stats"]["total_ms"].get("buckets").is_none());
    }

    #[test]
    fn the_first_sample_has_no_rates() {
        let first = View::new(
            Sample {
                server: server(1, &Recorder::new()),
                requests: Vec::new(),
                deaths: Vec::new(),
                at: Instant::now(),
            },
            None,
        );
        assert_eq!(first.rate(), None);
        assert_eq!(first.to_json("x")["requests_per_s"], 0.0);
    }
}
