//! Statistics for people.

use stats::{DurationSummary, HandlerThread, HandlersSnapshot, ServerSnapshot, TlsSnapshot, WorkerSnapshot};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::SystemTime;

/// All that `firebrick stats` says about a server.
pub(crate) fn stats(server: &ServerSnapshot) -> String {
    let mut text = headline(server);
    text.push('\n');
    if has_app(server) {
        text.push_str(&grid(&workers(server)));
        text.push('\n');
    }
    if let Some(handlers) = &server.handlers {
        text.push_str(&grid(&handler_rows(handlers)));
        text.push('\n');
    }
    text.push_str(&counters(server));
    text.push_str(&certificates(server));
    text.push_str(&server.tls.as_ref().map(|tls| encryption(tls, server.taken_at)).unwrap_or_default());
    text.push('\n');
    text.push_str(&grid(&times(server)));
    text
}

/// Handshakes, why some failed, and the certificates in force.
fn encryption(tls: &TlsSnapshot, now: SystemTime) -> String {
    let listed = |counts: &BTreeMap<String, u64>| {
        let all: Vec<String> =
            counts.iter().map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
        all.join(", ")
    };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "TLS          {} handshakes, {} of them resumed",
        grouped(tls.full + tls.resumed),
        grouped(tls.resumed)
    );
    if !tls.versions.is_empty() {
        let _ = write!(text, " ({}; {})", listed(&tls.versions), listed(&tls.ciphers));
    }
    if !tls.failed.is_empty() {
        let _ = write!(text, "; {} failed ({})", grouped(tls.failures()), listed(&tls.failed));
    }
    text.push('\n');
    for certificate in &tls.certificates {
        let names = certificate.names.join(", ");
        let until = match certificate.not_after.duration_since(now) {
            Ok(left) => format!("{} days left", left.as_secs() / 86_400),
            Err(_) => "EXPIRED".to_owned(),
        };
        let _ = writeln!(text, "certificate  {names} ({}), {until}", certificate.source);
    }
    text
}

/// Whether there are workers, or are to be; a static site has none.
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

fn workers(server: &ServerSnapshot) -> Vec<Vec<String>> {
    let titles = "worker|pid|state|requests|failed|busy/threads|in flight|PSS MiB|restarts|uptime";
    let rows = server.workers.iter().map(|worker| worker_row(worker, server.taken_at));
    std::iter::once(titles.split('|').map(str::to_owned).collect()).chain(rows).collect()
}

fn worker_row(worker: &WorkerSnapshot, now: SystemTime) -> Vec<String> {
    vec![
        worker.index.to_string(),
        worker.pid.to_string(),
        format!("{:?}", worker.state).to_lowercase(),
        grouped(worker.requests),
        grouped(worker.failures),
        format!("{}/{}", worker.busy_threads, worker.threads_max),
        worker.in_flight.to_string(),
        mib(worker.pss_bytes),
        worker.restarts.to_string(),
        span(worker.uptime(now)),
    ]
}

/// A line for each front thread, since each has limits of its own, and one for all of them.
fn handler_rows(handlers: &HandlersSnapshot) -> Vec<Vec<String>> {
    let titles = "mruby|requests|failed|refused|tasks/max|waiting|most|heap/max MiB|new VMs|reloads";
    let threads =
        handlers.threads.iter().map(|thread| handler_row(&format!("thread {}", thread.index), thread, true));
    // The largest of two threads at different times is no number of both together.
    let all = handler_row("all", &together(handlers), false);
    let all = Some(all).filter(|_| handlers.threads.len() > 1);
    std::iter::once(titles.split('|').map(str::to_owned).collect()).chain(threads).chain(all).collect()
}

fn together(all: &HandlersSnapshot) -> HandlerThread {
    HandlerThread {
        index: 0,
        requests: all.requests,
        failures: all.failures,
        refused: all.refused,
        tasks: all.tasks,
        waiting: all.waiting,
        tasks_most: 0,
        tasks_max: all.tasks_max,
        heap_bytes: all.heap_bytes,
        heap_max_bytes: all.heap_max_bytes,
        vms_replaced: all.vms_replaced,
        reloads: all.reloads,
    }
}

fn handler_row(name: &str, of: &HandlerThread, one: bool) -> Vec<String> {
    vec![
        name.to_owned(),
        grouped(of.requests),
        grouped(of.failures),
        grouped(of.refused),
        format!("{}/{}", grouped(of.tasks), grouped(of.tasks_max)),
        grouped(of.waiting),
        if one { grouped(of.tasks_most) } else { String::new() },
        format!("{}/{}", mib(of.heap_bytes), mib(of.heap_max_bytes)),
        grouped(of.vms_replaced),
        grouped(of.reloads),
    ]
}

fn counters(server: &ServerSnapshot) -> String {
    let (queue, front) = (&server.queue, &server.front);
    let (requests, failures) = (&front.requests, &front.failures);
    let mut text = String::new();
    // Writing to a String cannot fail.
    if has_app(server) {
        let _ = writeln!(
            text,
            "queue        {} waiting, the first for {} ms (most so far {}, limit {})",
            grouped(queue.length),
            ms(queue.oldest_wait_ms),
            grouped(queue.longest),
            grouped(queue.max),
        );
    }
    let _ = writeln!(
        text,
        "requests     {} (2xx {}, 3xx {}, 4xx {}, 5xx {}, client gone {}, hijacked {})",
        grouped(requests.total),
        grouped(requests.successful),
        grouped(requests.redirected),
        grouped(requests.client_errors),
        grouped(requests.server_errors),
        grouped(requests.client_gone),
        grouped(requests.hijacked),
    );
    let _ = writeln!(
        text,
        "failures     by clients {}, by the app {}, by limits of the server {}",
        grouped(failures.client),
        grouped(failures.app),
        grouped(failures.server),
    );
    let _ = writeln!(
        text,
        "connections  {} open, {} accepted, {} MiB of bodies sent",
        grouped(front.connections.open),
        grouped(front.connections.accepted),
        mib(front.sent_body_bytes),
    );
    text
}

/// A line for each certificate that the server obtains, and one for what is wrong with it. More says `firebrick certs`.
fn certificates(server: &ServerSnapshot) -> String {
    let mut text = String::new();
    for (place, one) in server.acme.iter().enumerate() {
        let title = if place == 0 { "certificates" } else { "" };
        let now = server.taken_at;
        let left = |at: Option<SystemTime>| at.and_then(|at| at.duration_since(now).ok());
        let state = match (one.state(now), left(one.not_after)) {
            ("valid", Some(left)) => format!("valid for {}", span(left.as_secs_f64())),
            (state, _) => state.to_owned(),
        };
        let next =
            left(one.next_order).map_or("now".to_owned(), |left| format!("in {}", span(left.as_secs_f64())));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{title:<12} {}: {state}, next order {next}", one.names.join(", "));
        if let Some(error) = &one.error {
            let _ = writeln!(text, "{:<12} failed {} times: {error}", "", one.failures);
        }
    }
    text
}

fn times(server: &ServerSnapshot) -> Vec<Vec<String>> {
    let titles = "ms|count|mean|p50|p75|p90|p95|p99|p99.9|max".split('|').map(str::to_owned).collect();
    let front = &server.front;
    let rows = [("queue", &front.queue_ms), ("app", &front.app_ms), ("total", &front.total_ms)];
    let shown = &rows[if has_app(server) { 0 } else { 2 }..];
    std::iter::once(titles).chain(shown.iter().map(|(name, summary)| time_row(name, summary))).collect()
}

fn time_row(name: &str, summary: &DurationSummary) -> Vec<String> {
    let s = summary;
    let figures = [s.mean, s.p50, s.p75, s.p90, s.p95, s.p99, s.p999, s.max].map(ms);
    [name.to_owned(), grouped(s.count)].into_iter().chain(figures).collect()
}

/// Lines up columns: right-aligned, two blanks between them.
fn grid(rows: &[Vec<String>]) -> String {
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

fn mib(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Seconds as the two largest units that matter: `3d 4h`, `5m 6s`, `7s`.
pub(crate) fn span(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m {}s", seconds % 60),
        3_600..86_400 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        let spans = [0.9, 59.0, 61.0, 3_720.0, 90_000.0, -1.0].map(span);
        assert_eq!(spans, ["0s", "59s", "1m 1s", "1h 2m", "1d 1h", "0s"]);
        assert_eq!([0.0, 0.014, 9.994, 10.04].map(ms), ["0.000", "0.014", "9.99", "10.0"]);
    }

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bcd"], ["ef", "g"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(grid(&rows), " a  bcd\nef    g\n");
        assert_eq!(grid(&[]), "");
    }

    #[test]
    fn everything_is_on_one_screen() {
        let mut server: serde_json::Value = serde_json::json!({
            "version": "0.1.0", "ruby": {"engine": "ruby", "version": "3.1.2", "patchlevel": 20}, "rack": "2.2.4",
            "environment": "production", "dir": "/srv/app", "pid": 99, "phase": 0, "clustered": true,
            "started_at": "2026-01-31T12:00:00.000Z", "taken_at": "2026-01-31T12:01:05.000Z", "pss_bytes": 5_242_880,
            "queue": {"length": 7, "oldest_wait_ms": 1.5, "longest": 1_800, "max": 10_000},
            "workers": [{
                "index": 0, "pid": 100, "state": "ready", "phase": 0, "requests": 1_234, "failures": 1,
                "started_at": "2026-01-31T12:00:05.000Z", "last_checkin": "2026-01-31T12:01:00.000Z",
                "busy_threads": 2, "threads_started": 4, "threads_max": 5, "in_flight": 3, "pss_bytes": 10_485_760,
                "restarts": 6,
            }],
        });
        let front = serde_json::to_value(::stats::Snapshot::default()).unwrap();
        server.as_object_mut().unwrap().extend(front.as_object().unwrap().clone());
        let mut site: ServerSnapshot = serde_json::from_value(server.clone()).unwrap();
        (site.workers, site.rack) = (Vec::new(), String::new());
        let alone = stats(&site);
        assert!(!alone.contains("mruby"), "{alone}");
        assert!(alone.starts_with("Firebrick 0.1.0 · static site · pid 99 · up 1m 5s · 5.0 MiB"), "{alone}");
        assert!(!alone.contains("worker") && !alone.contains("queue") && alone.contains("total"), "{alone}");
        let text = stats(&serde_json::from_value(server).unwrap());
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with(
            "Firebrick 0.1.0 · ruby 3.1.2 · Rack 2.2.4 · production · pid 99 · up 1m 5s · 15.0 MiB"
        ));
        assert!(
            lines.contains(&vec!["0", "100", "ready", "1,234", "1", "2/5", "3", "10.0", "6", "1m", "0s"]),
            "{text}"
        );
        assert!(
            text.contains("7 waiting, the first for 1.50 ms (most so far 1,800, limit 10,000)"),
            "{text}"
        );
        assert!(lines.iter().any(|line| line.first() == Some(&"total") && line.len() == 10), "{text}");
    }

    #[test]
    fn certificates_say_what_is_wrong() {
        let mut server = serde_json::json!({
            "version": "0.1.0", "ruby": {"engine": "", "version": "", "patchlevel": null}, "rack": "", "environment": "",
            "dir": "", "pid": 1, "phase": 0, "clustered": false, "started_at": "2026-01-31T12:00:00.000Z",
            "taken_at": "2026-01-31T12:00:00.000Z", "pss_bytes": 0, "workers": [],
            "queue": {"length": 0, "oldest_wait_ms": 0.0, "longest": 0, "max": 0},
            "acme": [{
                "names": ["a.test", "b.test"], "issuer": "CN=X", "not_before": "2026-01-01T00:00:00.000Z",
                "not_after": "2026-02-01T12:00:00.000Z", "next_order": "2026-01-31T13:00:00.000Z", "failures": 2,
                "error": "the CA is away", "directory": "https://ca.test", "storage": "/certs",
            }],
        });
        let front = serde_json::to_value(::stats::Snapshot::default()).unwrap();
        server.as_object_mut().unwrap().extend(front.as_object().unwrap().clone());
        let mut server: ServerSnapshot = serde_json::from_value(server).unwrap();
        let text = stats(&server);
        assert!(
            text.contains("certificates a.test, b.test: valid for 1d 0h, next order in 1h 0m\n"),
            "{text}"
        );
        assert!(text.contains("failed 2 times: the CA is away\n"), "{text}");
        server.acme[0].not_after = None;
        assert!(stats(&server).contains("a.test, b.test: missing"));
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
            let text = grid(&handler_rows(&HandlersSnapshot::of(&threads[..count]).unwrap()));
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
