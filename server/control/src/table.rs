//! Formats statistics for people.

use stats::{
    CertificateSnapshot, Changes, CountedKind, DurationSummary, HandlerFigures, HandlersSnapshot, PauseState,
    QueueClassSnapshot, QueueSnapshot, RateLimitsSnapshot, ServedCertificate, ServerSnapshot,
    ServiceSnapshot, TlsSnapshot, WaiterSnapshot, WorkerSnapshot,
};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::time::{Duration, SystemTime};
use text::people::grouped;

/// Returns the output of `firebrick stats`.
pub(crate) fn stats(server: &ServerSnapshot) -> String {
    let mut text = headline(server);
    text.push('\n');
    if has_app(server) {
        let rows = server.workers.iter().map(|worker| worker_row(worker, server.taken_at));
        text.push_str(&table(&WORKERS.replace("threads", server.seats_word()), rows));
        text.push('\n');
    }
    if let Some(handlers) = &server.handlers {
        text.push_str(&table(HANDLERS, handler_rows(handlers)));
        text.push('\n');
    }
    let mut facts = TitledLines::default();
    if has_app(server) {
        queue(&mut facts, server);
    }
    counters(&mut facts, server);
    interruptions(&mut facts, server);
    changes(&mut facts, server);
    facts.list("services", server.services.iter().map(|one| service(one, server.taken_at)));
    facts.list("rate limits", server.rate_limits.iter().flat_map(rate_limits));
    facts.list("certificates", server.acme.iter().flat_map(|one| certificate(one, server.taken_at)));
    if let Some(tls) = &server.tls {
        facts.line("TLS", encryption(tls));
        tls.certificates.iter().for_each(|one| facts.line("certificate", served(one, server.taken_at)));
    }
    text.push_str(&facts.0);
    text.push('\n');
    text.push_str(&table(TIMES, times(server)));
    text
}

const WORKERS: &str = "worker|pid|state|requests|failed|busy/threads|in flight|PSS MiB|restarts|uptime";
const HANDLERS: &str = "mruby|requests|failed|refused|tasks/max|waiting|most|heap/max MiB|new VMs|reloads";
/// The most clients in the list of those that wait.
const WAITERS: usize = 5;
const TIMES: &str = "ms|count|mean|p50|p75|p90|p95|p99|p99.9|max";

/// Lines that begin with a title.
#[derive(Default)]
struct TitledLines(String);

impl TitledLines {
    fn line(&mut self, title: &str, text: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{title:<12} {text}");
    }

    /// Adds lines, of which only the first has the title.
    fn list(&mut self, title: &str, lines: impl Iterator<Item = String>) {
        for (line, title) in lines.zip(std::iter::once(title).chain(std::iter::repeat(""))) {
            self.line(title, line);
        }
    }
}

/// Describes the handshakes, with the reasons of failures.
fn encryption(tls: &TlsSnapshot) -> String {
    let listed = |counts: &BTreeMap<String, u64>| {
        let all: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
        all.join(", ")
    };
    let (all, resumed) = (grouped(tls.full + tls.resumed), grouped(tls.resumed));
    let mut text = format!("{all} handshakes, {resumed} of them resumed");
    // Writing to a String cannot fail.
    if !tls.versions.is_empty() {
        let _ = write!(text, " ({}; {})", listed(&tls.versions), listed(&tls.ciphers));
    }
    if !tls.failed.is_empty() {
        let _ = write!(text, "; {} failed ({})", grouped(tls.failures()), listed(&tls.failed));
    }
    text
}

/// Describes a certificate in force.
fn served(certificate: &ServedCertificate, now: SystemTime) -> String {
    let until = match certificate.not_after.duration_since(now) {
        Ok(left) => format!("{} days left", left.as_secs() / 86_400),
        Err(_) => "EXPIRED".to_owned(),
    };
    format!("{} ({}), {until}", certificate.names.join(", "), certificate.source)
}

/// Whether there is an app. A static site has no workers.
fn has_app(server: &ServerSnapshot) -> bool {
    !server.rack.is_empty() || !server.workers.is_empty()
}

fn headline(server: &ServerSnapshot) -> String {
    let serves = if has_app(server) {
        let ruby = &server.ruby;
        format!("{} {} · Rack {} · {}", ruby.engine, ruby.version, server.rack, server.environment)
    } else if server.handlers.is_some() {
        "handlers on mruby".to_owned()
    } else {
        "static site".to_owned()
    };
    format!(
        "Firebrick {} · {serves} · pid {} · up {} · {} MiB\n{}\n",
        server.version,
        server.pid,
        span(server.uptime()),
        mib(server.total_pss_bytes()),
        server.dir,
    )
}

/// Returns the number of a worker, and the name of its pool if that is not the default one.
fn name(worker: &WorkerSnapshot) -> String {
    if worker.pool == "default" {
        worker.index.to_string()
    } else {
        format!("{} {}", worker.index, worker.pool)
    }
}

fn worker_row(worker: &WorkerSnapshot, now: SystemTime) -> Vec<String> {
    vec![
        name(worker),
        worker.pid.to_string(),
        format!("{:?}", worker.state).to_lowercase(),
        grouped(worker.requests),
        grouped(worker.failures),
        worker.seats_text(),
        worker.in_flight.to_string(),
        mib(worker.pss_bytes),
        worker.restarts.to_string(),
        span(worker.uptime(now)),
    ]
}

/// Returns a line for each front thread, because each has its own limits, and a line for all of them.
fn handler_rows(handlers: &HandlersSnapshot) -> impl Iterator<Item = Vec<String>> {
    let all = Some(&handlers.all).filter(|_| handlers.threads.len() > 1);
    handlers.threads.iter().chain(all).map(handler_row)
}

fn handler_row(of: &HandlerFigures) -> Vec<String> {
    vec![
        of.index.map_or("all".to_owned(), |index| format!("thread {index}")),
        grouped(of.requests),
        grouped(of.failures),
        grouped(of.refused),
        format!("{}/{}", grouped(of.tasks), grouped(of.tasks_max)),
        grouped(of.waiting),
        of.tasks_most.map(grouped).unwrap_or_default(),
        format!("{}/{}", mib(of.heap_bytes), mib(of.heap_max_bytes)),
        grouped(of.vms_replaced),
        grouped(of.reloads),
    ]
}

/// Returns ` (7 for fibers)` if there are two queues.
fn for_fibers(queue: &QueueSnapshot) -> String {
    queue.for_fibers.map_or(String::new(), |count| format!(" ({} for fibers)", grouped(count)))
}

fn queue(facts: &mut TitledLines, server: &ServerSnapshot) {
    let queue = &server.queue;
    let (length, longest, max) = (grouped(queue.length), grouped(queue.longest), grouped(queue.max));
    let wait = ms(queue.oldest_wait_ms);
    facts.line(
        "queue",
        format!(
            "{length} waiting{}, the first for {wait} ms (most so far {longest}, limit {max})",
            for_fibers(queue)
        ),
    );
    if queue.length > 0 {
        let plural = if queue.clients == 1 { "client" } else { "clients" };
        facts.list(
            "waiting",
            std::iter::once(format!("{} {plural}", grouped(queue.clients)))
                .chain(server.waiters.iter().take(WAITERS).map(waiter)),
        );
    }
    facts.list("classes", server.queue_classes.iter().map(queue_class));
    if queue.refused_full + queue.refused_early + queue.expired > 0 {
        let [early, expired, full] = [queue.refused_early, queue.expired, queue.refused_full].map(grouped);
        facts.line(
            "refused",
            format!("{early} at once for the wait to come, {expired} after waiting, {full} by a full queue"),
        );
    }
    if let Some(sizing) = server.sizing.as_ref().filter(|sizing| sizing.min < sizing.max) {
        let pinned = if sizing.pinned { ", set by a signal until the next reload" } else { "" };
        let last = sizing.last.as_ref().map(|last| {
            format!("; {}, {} ago: {}", last.course(), span(ago(last.at, server.taken_at)), last.why)
        });
        let last = last.unwrap_or_default();
        facts.line("workers", format!("{} of {}:{}{pinned}{last}", sizing.wanted, sizing.min, sizing.max));
    }
}

/// Describes a client with waiting requests.
fn waiter(one: &WaiterSnapshot) -> String {
    let of = |what: &str, name: &str| match name {
        "default" | "" => String::new(),
        name => format!(", {what} {name}"),
    };
    let (pool, class) = (of("pool", &one.pool), of("class", &one.class));
    let (waiting, wait) = (grouped(one.waiting.into()), ms(one.oldest_wait_ms));
    format!(
        "{}: {waiting} waiting, the first for {wait} ms, {} at workers{pool}{class}",
        one.client, one.served
    )
}

fn queue_class(one: &QueueClassSnapshot) -> String {
    let weight = if one.weight == 0 { "last lane".to_owned() } else { format!("weight {}", one.weight) };
    let [waiting, clients, served, refused] =
        [one.waiting, one.clients, one.served, one.refused].map(grouped);
    let mean = ms(one.waited_ms as f64 / one.served.max(1) as f64);
    format!(
        "{}: {weight}, {waiting} waiting of {clients} clients, {served} served after {mean} ms on average, {refused} refused",
        one.name
    )
}

fn counters(facts: &mut TitledLines, server: &ServerSnapshot) {
    let front = &server.front;
    let requests = &front.requests;
    let classes = [
        ("2xx", requests.successful),
        ("3xx", requests.redirected),
        ("4xx", requests.client_errors),
        ("5xx", requests.server_errors),
        ("client gone", requests.client_gone),
        ("hijacked", requests.hijacked),
    ];
    let classes = classes.map(|(name, count)| format!("{name} {}", grouped(count))).join(", ");
    facts.line("requests", format!("{} ({classes})", grouped(requests.total)));
    let [client, app, own] = [front.failures.client, front.failures.app, front.failures.server].map(grouped);
    facts.line("failures", format!("by clients {client}, by the app {app}, by limits of the server {own}"));
    let [open, accepted] = [front.connections.open, front.connections.accepted].map(grouped);
    let sent = mib(front.sent_body_bytes);
    let if_any = |count: u64, what: &str| match count {
        0 => String::new(),
        count => format!("{} {what}, ", grouped(count)),
    };
    let displaced = if_any(front.connections.displaced, "closed to make room");
    let refused = if_any(front.connections.refused_of_address, "refused (max_connections_per_address)");
    let made = format!("{open} open, {accepted} accepted, {displaced}{refused}");
    facts.line("connections", format!("{made}{sent} MiB of bodies sent"));
    let died = server.deaths.iter().filter(|(_, count)| *count > 0);
    let died: Vec<String> =
        died.map(|(cause, count)| format!("{} {}", cause.name(), grouped(count))).collect();
    if !died.is_empty() {
        facts.line("deaths", format!("of workers: {} (`firebrick deaths`)", died.join(", ")));
    }
}

/// Describes a pause, a maintenance and changes of settings, while there are any.
fn interruptions(facts: &mut TitledLines, server: &ServerSnapshot) {
    if server.pause.state != PauseState::Off {
        let rest = text::people::span(crate::described::rest(&server.pause));
        facts.line("pause", format!("{}; {rest} more", server.pause.summary()));
    }
    if server.maintenance.on {
        let text = crate::described::maintenance(&server.maintenance, server.taken_at);
        text.lines().take(1).for_each(|line| facts.line("service", line));
    }
    server.changed_settings.iter().for_each(|change| facts.line("set", change));
}

/// Describes the changes in progress, and the outcome of the last ones.
fn changes(facts: &mut TitledLines, server: &ServerSnapshot) {
    change(facts, "reload", &server.reloads, server.taken_at);
    change(facts, "refork", &server.reforks, server.taken_at);
    change(facts, "upgrade", &server.upgrades, server.taken_at);
}

fn change<K: CountedKind + Display>(
    facts: &mut TitledLines,
    name: &str,
    changes: &Changes<K>,
    now: SystemTime,
) {
    if let Some(running) = &changes.running {
        facts.line(name, format!("{}: {}", running.stage, running.text));
    }
    if let Some(last) = &changes.last {
        let text = format!("{}, {} ago: {}", last.outcome, span(ago(last.at, now)), last.summary());
        facts.line(&format!("last {name}"), text);
    }
}

/// Returns the seconds since `at`.
fn ago(at: SystemTime, now: SystemTime) -> f64 {
    now.duration_since(at).map_or(0.0, |ago| ago.as_secs_f64())
}

fn service(one: &ServiceSnapshot, now: SystemTime) -> String {
    let pid = if one.pid == 0 { String::new() } else { format!(" (pid {})", one.pid) };
    let (since, restarts) = (span(one.seconds(now)), grouped(one.restarts));
    let end = if one.last_end.is_empty() { String::new() } else { format!("; {}", one.last_end) };
    format!("{} {}{pid} for {since}, {restarts} restarts{end}", one.name, one.state.name())
}

/// Returns a line for each limit, and a line if its counts are only those of this server.
fn rate_limits(all: &RateLimitsSnapshot) -> impl Iterator<Item = String> {
    let lines = all.limits.iter().map(|limit| {
        let (admitted, refused) = (grouped(limit.admitted), grouped(limit.refused));
        let dry = if limit.dry_run { " (dry run)" } else { "" };
        format!("{} {}: {admitted} admitted, {refused} refused{dry}", limit.name, limit.rate)
    });
    let servers = all.servers;
    let shared = all.limits.iter().any(|limit| limit.shared);
    let redis = all.redis_up.filter(|_| shared).map(|up| match up {
        true => format!("shared by {servers} servers"),
        false => format!("Redis is away: this server admits one share of {servers}"),
    });
    lines.chain(redis)
}

/// Returns a line for a certificate that the server obtains, and a line for its error. `firebrick certs` shows more.
fn certificate(one: &CertificateSnapshot, now: SystemTime) -> impl Iterator<Item = String> {
    let left = |at: Option<SystemTime>| at.and_then(|at| at.duration_since(now).ok());
    let state = match (one.state(now), left(one.not_after)) {
        ("valid", Some(left)) => format!("valid for {}", span(left.as_secs_f64())),
        (state, _) => state.to_owned(),
    };
    let next =
        left(one.next_order).map_or("now".to_owned(), |left| format!("in {}", span(left.as_secs_f64())));
    let line = format!("{}: {state}, next order {next}", one.names.join(", "));
    let error = one.error.as_ref().map(|error| format!("failed {} times: {error}", one.failures));
    std::iter::once(line).chain(error)
}

fn times(server: &ServerSnapshot) -> impl Iterator<Item = Vec<String>> {
    let front = &server.front;
    let rows = [("queue", &front.queue_ms), ("app", &front.app_ms), ("total", &front.total_ms)];
    rows.into_iter().skip(if has_app(server) { 0 } else { 2 }).map(|(name, summary)| time_row(name, summary))
}

fn time_row(name: &str, summary: &DurationSummary) -> Vec<String> {
    let s = summary;
    let figures = [s.mean, s.p50, s.p75, s.p90, s.p95, s.p99, s.p999, s.max].map(ms);
    [name.to_owned(), grouped(s.count)].into_iter().chain(figures).collect()
}

/// Formats rows under their titles, which `|` separates.
fn table(titles: &str, rows: impl Iterator<Item = Vec<String>>) -> String {
    let titles = titles.split('|').map(str::to_owned).collect();
    grid(&std::iter::once(titles).chain(rows).collect::<Vec<_>>())
}

/// Aligns columns to the right, with two blanks between them.
pub(crate) fn grid(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        text.push_str(&cells.join("  "));
        text.push('\n');
    }
    text
}

fn ms(value: f64) -> String {
    let digits = if value < 1.0 { 3 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.digits$}")
}

pub(crate) fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// Formats seconds in their two largest units.
pub(crate) fn span(seconds: f64) -> String {
    text::people::span(Duration::from_secs_f64(seconds.clamp(0.0, 1e12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let spans = [0.9, 59.0, 61.0, 3_720.0, 90_000.0, -1.0].map(span);
        assert_eq!(spans, ["0 s", "59 s", "1 min 1 s", "1 h 2 min", "1 d 1 h", "0 s"]);
        assert_eq!([0.0, 0.014, 9.994, 10.04].map(ms), ["0.000", "0.014", "9.99", "10.0"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bcd"], ["ef", "g"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(grid(&rows), " a  bcd\nef    g\n");
        assert_eq!(grid(&[]), "");
    }

    /// Returns an empty snapshot. `more` replaces or adds fields.
    fn told(more: serde_json::Value) -> ServerSnapshot {
        let mut whole = serde_json::to_value(::stats::Snapshot::default()).unwrap();
        let bare = serde_json::json!({
            "version": "0.1.0", "ruby": {"engine": "", "version": "", "patchlevel": null}, "rack": "", "environment": "",
            "dir": "", "pid": 1, "phase": 0, "clustered": false, "started_at": "2026-01-31T12:00:00.000Z",
            "taken_at": "2026-01-31T12:00:00.000Z", "pss_bytes": 0, "workers": [],
            "queue": {"length": 0, "oldest_wait_ms": 0.0, "longest": 0, "max": 0},
        });
        for part in [bare, more] {
            whole.as_object_mut().unwrap().extend(part.as_object().unwrap().clone());
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn everything_is_on_one_screen() {
        let server = told(serde_json::json!({
            "ruby": {"engine": "ruby", "version": "3.1.2", "patchlevel": 20}, "rack": "2.2.4", "environment": "production",
            "dir": "/srv/app", "pid": 99, "taken_at": "2026-01-31T12:01:05.000Z", "pss_bytes": 5_242_880,
            "queue": {"length": 7, "oldest_wait_ms": 1.5, "longest": 1_800, "max": 10_000},
            "workers": [{
                "index": 0, "pid": 100, "state": "ready", "phase": 0, "requests": 1_234, "failures": 1,
                "started_at": "2026-01-31T12:00:05.000Z", "last_checkin": "2026-01-31T12:01:00.000Z",
                "busy_threads": 2, "threads_started": 4, "threads_max": 5, "in_flight": 3, "pss_bytes": 10_485_760,
                "restarts": 6,
            }],
        }));
        let mut fibers = server.clone();
        (fibers.workers[0].fibers, fibers.workers[0].threads_max) = (500, 1_000);
        let shown = stats(&fibers);
        assert!(shown.contains("busy/fibers") && shown.contains(" 2/1000 "), "{shown}");
        fibers.workers[0].pool = "slow".to_owned();
        assert!(stats(&fibers).lines().any(|line| line.trim().starts_with("0 slow")), "{}", stats(&fibers));
        let mut site = server.clone();
        (site.workers, site.rack) = (Vec::new(), String::new());
        let alone = stats(&site);
        assert!(!alone.contains("mruby"), "{alone}");
        assert!(
            alone.starts_with("Firebrick 0.1.0 · static site · pid 99 · up 1 min 5 s · 5.0 MiB"),
            "{alone}"
        );
        assert!(!alone.contains("worker") && !alone.contains("queue") && alone.contains("total"), "{alone}");
        let text = stats(&server);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with(
            "Firebrick 0.1.0 · ruby 3.1.2 · Rack 2.2.4 · production · pid 99 · up 1 min 5 s · 15.0 MiB"
        ));
        assert!(
            lines.contains(&vec!["0", "100", "ready", "1,234", "1", "2/5", "3", "10.0", "6", "1", "min"]),
            "{text}"
        );
        assert!(
            text.contains("7 waiting, the first for 1.50 ms (most so far 1,800, limit 10,000)"),
            "{text}"
        );
        assert!(lines.iter().any(|line| line.first() == Some(&"total") && line.len() == 10), "{text}");
    }

    #[test]
    fn the_clients_that_wait_are_listed_and_no_metric_names_them() {
        let waiter = |client: &str, pool: &str, class: &str| serde_json::json!({"client": client, "pool": pool, "class": class, "waiting": 1_200, "served": 2, "oldest_wait_ms": 12.0});
        let class = |name: &str, weight: u32| serde_json::json!({"name": name, "weight": weight, "waiting": 3, "clients": 2, "served": 1_000, "waited_ms": 5_000, "refused": 7});
        let server = told(serde_json::json!({
            "rack": "2.2.4",
            "queue": {"length": 1_201, "oldest_wait_ms": 12.0, "longest": 2_000, "max": 10_000, "clients": 2, "most_of_client": 1_200},
            "waiters": [waiter("192.0.2.1", "default", "default"), waiter("2001:db8::/64", "slow", "paid")],
            "queue_classes": [class("default", 1), class("bots", 0)],
        }));
        let text = stats(&server);
        for line in [
            "waiting      2 clients\n             192.0.2.1: 1,200 waiting, the first for 12.0 ms, 2 at workers\n",
            "             2001:db8::/64: 1,200 waiting, the first for 12.0 ms, 2 at workers, pool slow, class paid\n",
            "classes      default: weight 1, 3 waiting of 2 clients, 1,000 served after 5.00 ms on average, 7 refused\n",
            "             bots: last lane, 3 waiting",
        ] {
            assert!(text.contains(line), "{line:?} is missing in\n{text}");
        }
        let page = crate::metrics::render(
            &server,
            &::stats::RecentLoad::default(),
            true,
            crate::metrics::Format::OpenMetrics,
        );
        for line in [
            "firebrick_queue_clients 2\n",
            "firebrick_queue_most_of_client 1200\n",
            "firebrick_queue_class_waiting{class=\"bots\"} 3\n",
            "firebrick_queue_class_served_total{class=\"default\"} 1000\n",
            "firebrick_queue_class_wait_seconds_total{class=\"default\"} 5\n",
        ] {
            assert!(page.contains(line), "{line:?} is missing in\n{page}");
        }
        assert!(!page.contains("192.0.2.1") && !page.contains("2001:db8"), "{page}");
    }

    #[test]
    fn certificates_say_what_is_wrong() {
        let mut server = told(serde_json::json!({
            "acme": [{
                "names": ["a.test", "b.test"], "issuer": "CN=X", "not_before": "2026-01-01T00:00:00.000Z",
                "not_after": "2026-02-01T12:00:00.000Z", "next_order": "2026-01-31T13:00:00.000Z", "failures": 2,
                "error": "the CA is away", "directory": "https://ca.test", "storage": "/certs",
            }],
        }));
        let text = stats(&server);
        assert!(text.contains("certificates a.test, b.test: valid for 1 d, next order in 1 h\n"), "{text}");
        assert!(text.contains("failed 2 times: the CA is away\n"), "{text}");
        server.acme[0].not_after = None;
        assert!(stats(&server).contains("a.test, b.test: missing"));
    }

    #[test]
    fn services_have_a_line_each() {
        let server = told(serde_json::json!({
            "taken_at": "2026-01-31T12:01:00.000Z",
            "services": [
                {"name": "jobs", "pid": 7, "state": "running", "since": "2026-01-31T12:00:00.000Z", "restarts": 0, "last_end": ""},
                {"name": "push", "pid": 0, "state": "waiting", "since": "2026-01-31T12:00:58.000Z", "restarts": 1234,
                 "last_end": "ended with exit code 3"},
            ],
        }));
        let text = stats(&server);
        assert!(text.contains("services     jobs running (pid 7) for 1 min, 0 restarts\n"), "{text}");
        assert!(
            text.contains("             push waiting for 2 s, 1,234 restarts; ended with exit code 3\n"),
            "{text}"
        );
        let page = crate::metrics::render(
            &server,
            &stats::RecentLoad::default(),
            true,
            crate::metrics::Format::OpenMetrics,
        );
        for line in [
            "firebrick_service_up{service=\"jobs\"} 1\n",
            "firebrick_service_up{service=\"push\"} 0\n",
            "firebrick_service_restarts_total{service=\"push\"} 1234\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn changes_have_a_line_while_they_run_and_one_for_their_end() {
        let none = serde_json::json!({"done": 0, "failed": 0});
        let change = |stage, outcome| {
            serde_json::json!({
                "counts": none, "running": {"stage": stage, "text": "on its way", "started_at": "2026-01-31T12:00:00Z"},
                "last": {"at": "2026-01-31T11:59:00Z", "outcome": outcome, "text": "why\n  backtrace", "took_s": 1.5},
            })
        };
        let server = told(serde_json::json!({
            "rack": "2.2.4", "reloads": change("watching", "no_way_back"), "reforks": change("becoming", "dropped"),
            "upgrades": change("booting", "failed"),
            "sizing": {"wanted": 3, "min": 2, "max": 8, "pinned": false, "last":
                {"at": "2026-01-31T11:59:55Z", "from": 2, "to": 3, "why": "requests wait"}},
        }));
        let text = stats(&server);
        for line in [
            "reload       watching: on its way\nlast reload  no way back, 1 min ago: why\n",
            "refork       becoming: on its way\nlast refork  dropped, 1 min ago: why\n",
            "upgrade      booting: on its way\nlast upgrade failed, 1 min ago: why\n",
            "workers      3 of 2:8; grew 2 → 3, 5 s ago: requests wait\n",
        ] {
            assert!(text.contains(line), "{line:?} is missing in\n{text}");
        }
    }

    #[test]
    fn handlers_have_a_line_for_each_thread() {
        let threads = [::stats::HandlerCounts::default(), ::stats::HandlerCounts::default()];
        for thread in &threads {
            thread.limits(256 << 20, 1_000);
            thread.heap(0, 5 << 20);
            (0..1_234).for_each(|_| thread.asked());
        }
        threads[1].began();
        threads[1].suspended();
        threads[1].failed();
        let rows = |count: usize| {
            let text = table(HANDLERS, handler_rows(&HandlersSnapshot::of(&threads[..count]).unwrap()));
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
            text.lines().map(words).collect::<Vec<_>>()
        };
        let expected = [
            "mruby requests failed refused tasks/max waiting most heap/max MiB new VMs reloads",
            "thread 0 1,234 0 0 0/1,000 0 0 5.0/256.0 0 0",
            "thread 1 1,234 1 0 1/1,000 1 1 5.0/256.0 0 0",
            "all 2,468 1 0 1/2,000 1 10.0/512.0 0 0",
        ];
        assert_eq!(rows(2), expected);
        assert_eq!(rows(1), expected[..2]);
    }
}
