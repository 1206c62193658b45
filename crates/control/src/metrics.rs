//! `/metrics`: the figures of `/stats` in Prometheus's formats.
//!
//! There are two formats: OpenMetrics 1.0, and the text format 0.0.4 for older readers. docs/metrics.md lists the names.
//!
//! Contract:
//! 1. Pure. Names carry their unit; every family has HELP and TYPE and is contiguous.
//! 2. Label values never come from clients or the app. The most series are one per worker, service or certificate.
//! 3. Counters never fall while the server runs. Figures of a process that can be replaced are gauges.

use stats::{
    Counts, DurationSummary, Kind, Load, RecentLoad, ServerSnapshot, ServiceState, WorkerSnapshot,
    WorkerState,
};
use std::collections::BTreeSet;
use std::fmt::{Display, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// The largest number of certificates shown. There can be one for each of very many names.
const CERTIFICATES: usize = 100;

/// The approximate bytes per worker on the page.
const OF_WORKER: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    OpenMetrics,
    /// The text format 0.0.4.
    Text,
}

impl Format {
    /// Chooses the format by an `Accept` field: OpenMetrics if it is named and no other is preferred.
    pub(crate) fn accepted(accept: &str) -> Format {
        let quality = |wanted: &str| {
            let ranges = accept.split(',').filter_map(|range| {
                let mut parts = range.split(';').map(str::trim);
                let name = parts.next()?;
                let q = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse().ok());
                name.eq_ignore_ascii_case(wanted).then_some(q.unwrap_or(1.0))
            });
            ranges.fold(0.0_f64, f64::max)
        };
        let open = quality("application/openmetrics-text");
        if open > 0.0 && open >= quality("text/plain") { Format::OpenMetrics } else { Format::Text }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Renders all families. `recent`: the load of the last seconds.
pub(crate) fn render(server: &ServerSnapshot, recent: &RecentLoad, ready: bool, format: Format) -> String {
    let room = (20 << 10) + server.workers.len() * OF_WORKER;
    let mut page = Page { text: String::with_capacity(room), format };
    about(&mut page, server, ready);
    requests(&mut page, server);
    times(&mut page, server);
    workers(&mut page, server, recent);
    services(&mut page, server);
    rate_limits(&mut page, server);
    encryption(&mut page, server);
    puma(&mut page, server);
    if format == Format::OpenMetrics {
        page.text.push_str("# EOF\n");
    }
    page.text
}

fn about(page: &mut Page, server: &ServerSnapshot, ready: bool) {
    let ruby = format!("{} {}", server.ruby.engine, server.ruby.version);
    page.gauge("firebrick_build_info", "What runs; always 1")
        .at(&[("version", &server.version), ("ruby", ruby.trim()), ("rack", &server.rack)], 1);
    page.gauge("firebrick_start_time_seconds", "When the server started, since the epoch")
        .plain(seconds(server.started_at));
    page.gauge("firebrick_ready", "Whether the server wants requests, as /ready says").plain(u8::from(ready));
    let mut families = page.gauge(
        "firebrick_memory_pss_bytes",
        "Memory by process (PSS: private memory plus its share of shared memory)",
    );
    families.at(&[("process", "front")], server.pss_bytes);
    families.at(&[("process", "workers")], server.total_pss_bytes().saturating_sub(server.pss_bytes));
    let mut families = page
        .gauge("firebrick_memory_rss_bytes", "Resident memory by process; what is shared counts for each");
    families.at(&[("process", "front")], server.rss_bytes);
    families.at(&[("process", "workers")], server.total_rss_bytes().saturating_sub(server.rss_bytes));
    page.gauge("firebrick_memory_limit_bytes", "Memory that the server may use; 0 when unknown")
        .plain(server.memory_limit_bytes);
    let held = server.held;
    page.gauge(
        "firebrick_held_descriptors",
        "Open files of responses that clients have not taken, and of uploads",
    )
    .plain(held.descriptors);
    page.gauge("firebrick_held_memory_bytes", "Memory of responses that clients have not taken")
        .plain(held.memory_bytes);
    page.gauge(
        "firebrick_held_disk_bytes",
        "Files made for responses that clients have not taken, and for uploads",
    )
    .plain(held.disk_bytes);
    page.gauge("firebrick_cpus", "CPUs' worth of time that the server may use; 0 when unknown")
        .plain(server.cores);
}

fn services(page: &mut Page, server: &ServerSnapshot) {
    if server.services.is_empty() {
        return;
    }
    let mut family = page.gauge("firebrick_service_up", "Whether a service runs");
    for service in &server.services {
        family.at(&[("service", &service.name)], u8::from(service.state == ServiceState::Running));
    }
    let mut family = page
        .counter("firebrick_service_restarts", "How often a service was started again because it had ended");
    for service in &server.services {
        family.at(&[("service", &service.name)], service.restarts);
    }
}

fn rate_limits(page: &mut Page, server: &ServerSnapshot) {
    let Some(all) = &server.rate_limits else { return };
    let mut family = page.counter("firebrick_rate_limit_requests", "Requests that a rate limit has judged");
    for limit in &all.limits {
        family.at(&[("limit", &limit.name), ("result", "admitted")], limit.admitted);
        family.at(&[("limit", &limit.name), ("result", "refused")], limit.refused);
    }
    if let Some(up) = all.redis_up {
        let mut family = page.counter(
            "firebrick_rate_limit_alone",
            "Requests that a shared rate limit has judged without Redis, by this server's share",
        );
        for limit in all.limits.iter().filter(|limit| limit.shared) {
            family.at(&[("limit", &limit.name)], limit.alone);
        }
        page.gauge("firebrick_rate_limit_redis_up", "Whether the Redis of shared rate limits answers")
            .plain(u8::from(up));
        page.gauge("firebrick_rate_limit_servers", "Servers that share rate limits, as seen last")
            .plain(all.servers);
    }
}

fn requests(page: &mut Page, server: &ServerSnapshot) {
    let (requests, failures) = (&server.front.requests, &server.front.failures);
    let mut family = page.counter(
        "firebrick_requests",
        "Requests that are over, by class of their status; none: the client left before there was one",
    );
    for (status, count) in [
        ("1xx", requests.informational),
        ("2xx", requests.successful),
        ("3xx", requests.redirected),
        ("4xx", requests.client_errors),
        ("5xx", requests.server_errors),
        ("none", requests.client_gone),
    ] {
        family.at(&[("status", status)], count);
    }
    let mut family = page.counter("firebrick_failures", "Failures by whose fault they were");
    for (fault, count) in [("client", failures.client), ("app", failures.app), ("server", failures.server)] {
        family.at(&[("fault", fault)], count);
    }
    page.counter(
        "firebrick_hijacked_connections",
        "Connections that the app has taken over, such as WebSockets",
    )
    .plain(requests.hijacked);
    page.counter("firebrick_response_body_bytes", "Bytes of response bodies sent")
        .plain(server.front.sent_body_bytes);
    page.counter("firebrick_accepted_connections", "Connections accepted")
        .plain(server.front.connections.accepted);
    page.counter("firebrick_displaced_connections", "Connections closed to make room for others")
        .plain(server.front.connections.displaced);
    page.counter("firebrick_refused_connections", "Connections refused because their addresses had too many")
        .plain(server.front.connections.refused_of_address);
    page.gauge("firebrick_connections", "Connections that are open").plain(server.front.connections.open);
}

fn times(page: &mut Page, server: &ServerSnapshot) {
    let front = &server.front;
    for (name, help, times) in [
        ("firebrick_queue_seconds", "Waiting for a worker, of requests for the app", &front.queue_ms),
        ("firebrick_app_seconds", "In the app", &front.app_ms),
        (
            "firebrick_request_seconds",
            "From the first byte of a request to the last of its response",
            &front.total_ms,
        ),
        (
            "firebrick_app_cpu_seconds",
            "Processor time in the app, of the requests that were measured (one in 16)",
            &front.app_cpu_ms,
        ),
        (
            "firebrick_gvl_wait_seconds",
            "Waiting for Ruby's global lock, of the requests that were measured; needs Ruby 3.2",
            &front.gvl_ms,
        ),
    ] {
        page.histogram(name, help, times);
    }
}

fn workers(page: &mut Page, server: &ServerSnapshot, recent: &RecentLoad) {
    let count = |state| server.workers.iter().filter(|worker| worker.state == state).count();
    let mut family = page.gauge("firebrick_workers", "Worker processes by what they are at");
    for (name, state) in [
        ("booting", WorkerState::Booting),
        ("ready", WorkerState::Ready),
        ("draining", WorkerState::Draining),
    ] {
        family.at(&[("state", name)], count(state));
    }
    if let Some(sizing) = &server.sizing {
        page.gauge("firebrick_workers_wanted", "How many workers there should be").plain(sizing.wanted);
        let mut family =
            page.gauge("firebrick_workers_limit", "The least and the most workers that the settings allow");
        family.at(&[("bound", "min")], sizing.min);
        family.at(&[("bound", "max")], sizing.max);
    }
    page.counter("firebrick_reloads", "Reloads of the app that have ended, by how")
        .counts("outcome", &server.reloads.counts);
    page.counter(
        "firebrick_reforks",
        "Warm workers that were to become the next template, by how that ended",
    )
    .counts("outcome", &server.reforks.counts);
    page.counter("firebrick_upgrades", "New programs that were to take over, by how that ended")
        .counts("outcome", &server.upgrades.counts);
    let load = Load::of(server);
    let mut family = page.gauge("firebrick_requests_in_flight", "Requests for the app by where they are");
    family.at(&[("stage", "queue")], load.waiting);
    family.at(&[("stage", "app")], load.busy);
    page.gauge("firebrick_seats", "Threads of the workers that take requests").plain(load.seats);
    if let Some(fibers) = &load.fibers {
        page.gauge("firebrick_fiber_seats", "Those of the seats that are fibers, for fiber_paths")
            .plain(fibers.seats);
        let mut family = page.gauge("firebrick_fiber_requests", "Requests for fiber_paths by where they are");
        family.at(&[("stage", "queue")], fibers.waiting);
        family.at(&[("stage", "app")], fibers.busy);
    }
    page.gauge(
        "firebrick_saturation",
        "Requests for the app, waiting ones included, divided by seats, in the last 15 seconds; above 1 they wait",
    )
    .plain(recent.saturation().unwrap_or_else(|| load.saturation()));
    page.gauge("firebrick_queue_limit", "Requests that may wait (limits.max_queue)").plain(server.queue.max);
    page.gauge("firebrick_queue_oldest_seconds", "How long the first request of the queue has been waiting")
        .plain(server.queue.oldest_wait_ms / 1e3);
    let mut family =
        page.counter("firebrick_queue_refusals", "Requests for the app that got no seat (503), by why");
    family.at(&[("reason", "early")], server.queue.refused_early);
    family.at(&[("reason", "expired")], server.queue.expired);
    family.at(&[("reason", "full")], server.queue.refused_full);
    if server.sizing.is_some() {
        page.counter("firebrick_worker_deaths", "Workers that have ended, by why")
            .counts("cause", &server.deaths);
        page.counter(
            "firebrick_worker_blocking_calls",
            "Calls that have stopped a thread's fibers for longer than rack.blocking_call",
        )
        .plain(server.blocking_calls);
        page.counter("firebrick_worker_blocking_seconds", "How long those calls took")
            .plain(server.blocked_ms as f64 / 1e3);
    }
    if server.workers.is_empty() {
        return;
    }
    // While one worker replaces another, both have the same number. Only the newer one is shown.
    let mut seen = BTreeSet::new();
    let newest = server.workers.iter().rev().filter(|worker| seen.insert(worker.index));
    let numbered: Vec<(String, &WorkerSnapshot)> =
        newest.map(|worker| (worker.index.to_string(), worker)).collect();
    for (name, help, value) in [
        (
            "firebrick_worker_pss_bytes",
            "Memory of a worker (PSS: private memory plus its share of shared memory)",
            (|worker| worker.pss_bytes) as OfWorker,
        ),
        ("firebrick_worker_rss_bytes", "Resident memory of a worker, what is shared included", |worker| {
            worker.rss_bytes
        }),
        ("firebrick_worker_restarts", "How often the worker of this number was replaced", |worker| {
            worker.restarts.into()
        }),
    ] {
        let mut family = page.gauge(name, help);
        for (number, worker) in &numbered {
            family.at(&[("worker", number)], value(worker));
        }
    }
}

type OfWorker = fn(&WorkerSnapshot) -> u64;

fn encryption(page: &mut Page, server: &ServerSnapshot) {
    let Some(tls) = &server.tls else { return };
    let mut family = page.counter("firebrick_tls_handshakes", "Handshakes of TLS by what became of them");
    for (outcome, count) in [("full", tls.full), ("resumed", tls.resumed), ("failed", tls.failures())] {
        family.at(&[("outcome", outcome)], count);
    }
    let mut family = page.gauge(
        "firebrick_certificate_expiry_timestamp_seconds",
        "When a certificate in force ends, since the epoch; the first 100",
    );
    for certificate in tls.certificates.iter().take(CERTIFICATES) {
        let name = certificate.names.first().map(String::as_str).unwrap_or_default();
        let labels = [("name", name), ("serial", &certificate.serial), ("source", &certificate.source)];
        family.at(&labels, seconds(certificate.not_after));
    }
}

/// Adds the metrics of the gems that read Puma's stats, so that existing dashboards and alerts keep working.
fn puma(page: &mut Page, server: &ServerSnapshot) {
    if server.workers.is_empty() {
        return;
    }
    page.gauge("puma_workers", "As Puma's: workers").plain(server.workers.len());
    let booted = server.workers.iter().filter(|worker| worker.state != WorkerState::Booting).count();
    page.gauge("puma_booted_workers", "As Puma's: workers that have booted").plain(booted);
    let old = server.workers.iter().filter(|worker| worker.phase != server.phase).count();
    page.gauge("puma_old_workers", "As Puma's: workers of an earlier phase").plain(old);
    let sums = server.puma_sums();
    for (name, help, value) in [
        ("puma_backlog", "As Puma's: requests that wait for a thread", sums.backlog),
        ("puma_running", "As Puma's: threads that have been started", sums.running),
        ("puma_pool_capacity", "As Puma's: requests that could be started now", sums.pool_capacity),
        ("puma_max_threads", "As Puma's: threads that may be started", sums.max_threads),
        ("puma_busy_threads", "As Puma's: threads at work, and what waits for one", sums.busy_threads),
    ] {
        page.gauge(name, help).plain(value);
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

struct Page {
    text: String,
    format: Format,
}

impl Page {
    fn gauge<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        self.begin(name, help, "gauge");
        Family { page: self, name, suffix: "" }
    }

    /// `name` is without `_total`, which the samples have.
    fn counter<'a>(&'a mut self, name: &'a str, help: &str) -> Family<'a> {
        match self.format {
            Format::OpenMetrics => self.begin(name, help, "counter"),
            Format::Text => self.begin(&format!("{name}_total"), help, "counter"),
        }
        Family { page: self, name, suffix: "_total" }
    }

    fn histogram(&mut self, name: &str, help: &str, times: &DurationSummary) {
        self.begin(name, help, "histogram");
        let Page { text, .. } = self;
        // Writing to a String cannot fail.
        for bucket in &times.buckets {
            let _ = writeln!(text, "{name}_bucket{{le=\"{:?}\"}} {}", bucket.le / 1e3, bucket.count);
        }
        let (count, sum) = (times.count, times.sum / 1e3);
        let _ =
            writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}");
    }

    fn begin(&mut self, name: &str, help: &str, kind: &str) {
        self.push(&["# HELP ", name, " ", help, ".\n# TYPE ", name, " ", kind, "\n"]);
        let unit = ["seconds", "bytes"]
            .into_iter()
            .find(|unit| name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')));
        if let Some(unit) = unit.filter(|_| self.format == Format::OpenMetrics) {
            self.push(&["# UNIT ", name, " ", unit, "\n"]);
        }
    }

    fn sample(&mut self, name: &str, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        self.push(&[name, suffix]);
        for (index, (label, text)) in labels.iter().enumerate() {
            self.push(&[if index == 0 { "{" } else { "," }, label, "=\""]);
            self.push_escaped(text);
            self.text.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{close} {value}");
    }

    fn push(&mut self, parts: &[&str]) {
        self.text.extend(parts.iter().copied());
    }

    fn push_escaped(&mut self, label: &str) {
        for part in label.split_inclusive(['\\', '"', '\n']) {
            let (plain, escaped) = match part.as_bytes().last() {
                Some(b'\\') => (&part[..part.len() - 1], "\\\\"),
                Some(b'"') => (&part[..part.len() - 1], "\\\""),
                Some(b'\n') => (&part[..part.len() - 1], "\\n"),
                _ => (part, ""),
            };
            self.push(&[plain, escaped]);
        }
    }
}

struct Family<'a> {
    page: &'a mut Page,
    name: &'a str,
    suffix: &'static str,
}

impl Family<'_> {
    fn plain(&mut self, value: impl Display) {
        self.page.sample(self.name, self.suffix, &[], value);
    }

    fn at(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.page.sample(self.name, self.suffix, labels, value);
    }

    /// Adds a sample for each kind, including those with a count of 0.
    fn counts<K: Kind>(&mut self, label: &str, counts: &Counts<K>) {
        for (kind, count) in counts.iter() {
            self.at(&[(label, kind.name())], count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_negotiated() {
        use Format::{OpenMetrics, Text};
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        let old = "text/plain;version=0.0.4;q=1,*/*;q=0.1";
        let unwilling = "application/openmetrics-text;q=0, */*";
        let prefers_text = "application/openmetrics-text;q=0.2, text/plain";
        for (accept, wanted) in [
            (prometheus, OpenMetrics),
            ("application/openmetrics-text", OpenMetrics),
            (old, Text),
            ("*/*", Text),
            ("", Text),
            (unwilling, Text),
            (prefers_text, Text),
        ] {
            assert_eq!(Format::accepted(accept), wanted, "{accept}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        let mut page = Page { text: String::new(), format: Format::Text };
        page.sample("one", "_total", &[("a", "a\"b\\c\nd"), ("b", ""), ("c", "\n")], 1);
        page.sample("two", "", &[], 0.5);
        assert_eq!(page.text, "one_total{a=\"a\\\"b\\\\c\\nd\",b=\"\",c=\"\\n\"} 1\ntwo 0.5\n");
    }
}
