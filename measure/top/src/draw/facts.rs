//! Lines of facts: queue and connections, CPU and memory, errors, TLS, and a range of workers, one line each;
//! two lines for handlers on mruby; one line per service; a pause and a maintenance in force; and, while they
//! are news, one line each for a reload, an upgrade, a refork and deaths of workers.

use super::{bar, name, services};
use crate::number::{bytes, grouped, percent, significant, span, time};
use crate::theme::Theme;
use crate::view::View;
use ratatui::style::Style;
use ratatui::text::Span;
use stats::{
    Changes, CountedKind, Death, HandlerFigures, HandlersSnapshot, MemoryLevel, MemorySnapshot, PauseState,
    ReforkOutcome, ReloadOutcome, ReloadStage, ShapeSnapshot, SizingSnapshot, TlsSnapshot, UpgradeOutcome,
};
use std::fmt::Display;
use std::time::{Duration, SystemTime};

/// The width of a bar on a screen of 80 columns.
const BAR: usize = 10;
/// How long the end of a reload or of a worker is news.
const NEWS: Duration = Duration::from_secs(3_600);

/// Returns the lines from top to bottom. `width`: columns of the screen; `services`: the most lines for services.
pub(super) fn lines(view: &View, theme: Theme, width: u16, services: usize) -> Vec<Vec<Span<'static>>> {
    let server = view.server();
    let mut lines = vec![queue(view, theme)];
    lines.extend(waiters(view, theme, width));
    lines.extend([machine(view, theme, width), errors(view, theme)]);
    lines.extend(memory(&server.memory, theme));
    if let Some(handlers) = &server.handlers {
        lines.push(handled(handlers, view, theme));
        lines.push(heap(handlers, view, theme, width));
    }
    lines.extend(server.tls.as_ref().map(|tls| encryption(tls, view, theme)));
    lines.extend(server.shape.as_ref().map(|shape| shaped(shape, view, theme)));
    lines.extend(server.sizing.as_ref().and_then(|sizing| range(sizing, view, theme)));
    lines.extend(services::lines(&server.services, server.taken_at, theme, services));
    lines.extend(
        interruptions(view)
            .map(|(title, text)| vec![name(title, theme), Span::styled(text, theme.warning())]),
    );
    let settled = |outcome: ReforkOutcome| matches!(outcome, ReforkOutcome::Done | ReforkOutcome::Dropped);
    let news = [
        ("Reload", change(&server.reloads, view, ReloadOutcome::is_success)),
        ("Upgrade", change(&server.upgrades, view, |outcome| outcome == UpgradeOutcome::Done)),
        // A successful refork is not news.
        ("Refork", change(&server.reforks, view, settled).filter(|(_, how)| *how != How::Good)),
    ];
    lines.extend(news.into_iter().filter_map(|(title, news)| {
        let (text, how) = news?;
        let style = if how == How::Bad { theme.alarm() } else { Style::new() };
        Some(vec![name(title, theme), Span::styled(text, style)])
    }));
    lines.extend(last_death(view).map(|death| {
        let text = format!("{} ago: {}", span(since(death.at, view)), death.text);
        vec![name("Died", theme), Span::styled(text, theme.warning())]
    }));
    lines
}

/// Returns a pause and a maintenance, while there are any: a title and a text.
fn interruptions(view: &View) -> impl Iterator<Item = (&'static str, String)> {
    let server = view.server();
    let paused = (server.pause.state != PauseState::Off).then(|| {
        let rest = Duration::from_secs_f64((server.pause.remaining_ms / 1e3).max(0.0));
        ("Pause", format!("{}; {} more", server.pause.summary(), span(rest)))
    });
    let closed = server.maintenance.on.then(|| {
        let since = server.maintenance.since.map(|at| since(at, view)).unwrap_or_default();
        let responses = grouped(server.maintenance.responses);
        ("Maintenance", format!("on for {}, {responses} requests got the page", span(since)))
    });
    paused.into_iter().chain(closed)
}

/// The state of a change of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    UnderWay,
    Good,
    Bad,
}

/// Returns the change under way, or the end of the last one while it is news.
fn change<K: CountedKind + Display>(
    changes: &Changes<K>,
    view: &View,
    is_good: fn(K) -> bool,
) -> Option<(String, How)> {
    // Keeping the old code for a while is not news once the new code serves.
    if let Some(running) = changes.running.as_ref().filter(|running| running.stage != ReloadStage::Settling) {
        let how = if running.stage == ReloadStage::Reverting { How::Bad } else { How::UnderWay };
        return Some((format!("{}: {}", running.stage, running.text), how));
    }
    let last = changes.last.as_ref().filter(|last| since(last.at, view) < NEWS)?;
    let text = format!("{} {} ago: {}", last.outcome, span(since(last.at, view)), last.summary());
    Some((text, if is_good(last.outcome) { How::Good } else { How::Bad }))
}

/// Returns the number of workers where it follows the load, with its range and the reason for its last change.
fn range(sizing: &SizingSnapshot, view: &View, theme: Theme) -> Option<Vec<Span<'static>>> {
    if sizing.min == sizing.max {
        return None;
    }
    let mut spans = vec![name("Workers", theme)];
    spans.push(Span::raw(format!("{} of {}:{}", sizing.wanted, sizing.min, sizing.max)));
    if sizing.pinned {
        spans.push(Span::styled(", set by a signal until the next reload", theme.warning()));
    }
    if let Some(last) = &sizing.last {
        let ago = span(since(last.at, view));
        spans.push(Span::raw(format!("   {}, {ago} ago: {}", last.course(), last.why)));
    }
    Some(spans)
}

/// Returns the objective, whether it holds, the shape, and its last step.
fn shaped(shape: &ShapeSnapshot, view: &View, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![name("Shape", theme)];
    spans.push(Span::raw(format!("{}x{}, {}", shape.workers, shape.seats, shape.objective)));
    match shape.holds {
        Some(true) => spans.push(Span::raw(" holds")),
        Some(false) => spans.push(Span::styled(" is broken", theme.warning())),
        None => {}
    }
    if let Some(last) = shape.steps.last() {
        let ago = span(since(last.at, view));
        spans.push(Span::raw(format!("   {} {}, {ago} ago: {}", last.verdict, last.to, last.why)));
    }
    spans
}

/// Returns the last worker that ended unexpectedly, while that is news.
fn last_death(view: &View) -> Option<&Death> {
    view.sample.deaths.iter().find(|death| death.is_unexpected()).filter(|death| since(death.at, view) < NEWS)
}

fn since(at: SystemTime, view: &View) -> Duration {
    view.server().taken_at.duration_since(at).unwrap_or_default()
}

/// Returns the handshakes, the failed ones, and the certificate that expires first.
fn encryption(tls: &TlsSnapshot, view: &View, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![name("TLS", theme)];
    spans.push(Span::raw(format!(
        "{} handshakes, {} of them resumed",
        grouped(tls.full + tls.resumed),
        grouped(tls.resumed)
    )));
    if tls.failures() > 0 {
        spans.push(Span::styled(format!(", {} failed", grouped(tls.failures())), theme.warning()));
    }
    if let Some(first) = tls.certificates.iter().min_by_key(|certificate| certificate.not_after) {
        let days = first.not_after.duration_since(view.server().taken_at).map(|left| left.as_secs() / 86_400);
        let (text, style) = match days {
            Ok(days) if days >= 7 => (format!("{days} days left"), Style::new()),
            Ok(days) => (format!("{days} days left"), theme.warning()),
            Err(_) => ("EXPIRED".to_owned(), theme.alarm()),
        };
        spans.push(name("   Certificate", theme));
        spans.push(Span::styled(text, style));
    }
    spans
}

fn queue(view: &View, theme: Theme) -> Vec<Span<'static>> {
    let server = view.server();
    let mut spans = Vec::new();
    if view.has_app() {
        let queue = &server.queue;
        let style = match queue.length {
            0 => Style::new(),
            length if length * 2 >= queue.max => theme.alarm(),
            _ => theme.warning(),
        };
        let first = if queue.length > 0 {
            format!(", the oldest for {}", time(queue.oldest_wait_ms))
        } else {
            String::new()
        };
        spans.push(name("Queue", theme));
        spans.push(Span::styled(
            format!("{} of {} waiting{first}   ", grouped(queue.length), grouped(queue.max)),
            style,
        ));
    }
    let connections = &server.front.connections;
    let new = view.between.as_ref().map_or(0.0, |between| between.per_second(between.connections.accepted));
    spans.push(name("Connections", theme));
    spans.push(Span::raw(format!("{} open, {} new/s", grouped(connections.open), significant(new))));
    spans
}

/// Returns the clients with the most waiting requests, as many as the width has room for, and the classes with
/// waiting requests.
fn waiters(view: &View, theme: Theme, columns: u16) -> Option<Vec<Span<'static>>> {
    let server = view.server();
    if server.waiters.is_empty() {
        return None;
    }
    let title = name("Waiting", theme);
    let classes = server.queue_classes.iter().filter(|class| class.waiting > 0);
    let classes: Vec<String> =
        classes.map(|class| format!("{} {}", class.name, grouped(class.waiting))).collect();
    let classes =
        if classes.is_empty() { String::new() } else { format!("   by class: {}", classes.join(", ")) };
    // `--once` has room for all.
    let room = if columns == 0 { usize::MAX } else { usize::from(columns) };
    let mut room = room.saturating_sub(title.width() + classes.chars().count() + " and 10,000 more".len());
    let mut text = String::new();
    let mut shown = 0;
    for one in &server.waiters {
        let its =
            format!("{}{} {}", if shown > 0 { ", " } else { "" }, one.client, grouped(one.waiting.into()));
        let width = its.chars().count();
        if shown > 0 && width > room {
            break;
        }
        (room, shown) = (room.saturating_sub(width), shown + 1);
        text.push_str(&its);
    }
    let more = server.queue.clients.saturating_sub(shown);
    if more > 0 {
        text.push_str(&format!(" and {} more", grouped(more)));
    }
    Some(vec![title, Span::raw(text), Span::styled(classes, theme.faint())])
}

/// Returns how much memory the front uses for clients, from half of the limit on, and after requests were refused.
fn memory(memory: &MemorySnapshot, theme: Theme) -> Option<Vec<Span<'static>>> {
    let is_news = memory.used_bytes >= memory.limit_bytes / 2 || memory.refused > 0;
    if memory.limit_bytes == 0 || !is_news {
        return None;
    }
    let (means, style) = match memory.level {
        MemoryLevel::Normal => ("", Style::new()),
        MemoryLevel::Files => (": bodies go to files", theme.warning()),
        MemoryLevel::Waiting => (": senders wait", theme.alarm()),
        MemoryLevel::Full => (": requests are refused", theme.alarm()),
    };
    let (used, limit) = (bytes(memory.used_bytes), bytes(memory.limit_bytes));
    let mut spans = vec![name("Front", theme), Span::styled(format!("{used} of {limit}{means}"), style)];
    if memory.refused > 0 {
        spans.push(Span::styled(format!("   {} requests refused", grouped(memory.refused)), theme.warning()));
    }
    Some(spans)
}

fn machine(view: &View, theme: Theme, columns: u16) -> Vec<Span<'static>> {
    let width = if columns >= 120 { 2 * BAR } else { BAR };
    let server = view.server();
    let cpus = view.between.as_ref().map_or(0.0, |between| between.cpus);
    let mut spans = vec![name("CPU", theme)];
    if server.cores > 0.0 {
        let share = cpus / server.cores;
        spans.extend(bar(width, share, theme.load(share), theme.faint()));
        spans.push(Span::raw(format!(" {} of {}   ", percent(share), cores(server.cores))));
    } else {
        spans.push(Span::raw(format!("{} of one   ", percent(cpus))));
    }
    spans.push(name("Memory", theme));
    let (used, limit) = (server.total_pss_bytes(), server.memory_limit_bytes);
    if limit > 0 {
        let share = used as f64 / limit as f64;
        spans.extend(bar(width, share, theme.load(share), theme.faint()));
        spans.push(Span::raw(format!(" {} of {}", bytes(used), bytes(limit))));
    } else {
        spans.push(Span::raw(bytes(used)));
    }
    if server.total_rss_bytes() > 0 && columns >= 90 {
        spans.push(Span::styled(format!(" (RSS {})", bytes(server.total_rss_bytes())), theme.faint()));
    }
    spans
}

fn cores(cores: f64) -> String {
    if cores == 1.0 { "1 CPU".to_owned() } else { format!("{} CPUs", (cores * 10.0).round() / 10.0) }
}

fn errors(view: &View, theme: Theme) -> Vec<Span<'static>> {
    let mut spans = vec![name("Errors/s", theme)];
    let Some(between) = &view.between else { return spans };
    let (requests, failures) = (&between.requests, &between.failures);
    let kinds = [
        ("5xx", requests.server_errors, theme.alarm()),
        ("4xx", requests.client_errors, theme.warning()),
        ("client gone", requests.client_gone, theme.warning()),
        ("app failed", failures.app, theme.alarm()),
        ("server limits", failures.server, theme.alarm()),
    ];
    for (kind, count, style) in kinds.into_iter().filter(|(kind, ..)| view.has_app() || *kind != "app failed")
    {
        let style = if count > 0 { style } else { Style::new() };
        spans.push(name(kind, theme));
        spans.push(Span::styled(format!("{}  ", significant(between.per_second(count))), style));
    }
    spans
}

/// Returns rates and tasks of handlers on mruby.
fn handled(handlers: &HandlersSnapshot, view: &View, theme: Theme) -> Vec<Span<'static>> {
    let per_s = |count: fn(&HandlerFigures) -> u64| {
        let between = view.between.as_ref().zip(view.handled());
        between.map_or(0.0, |(between, did)| between.per_second(count(did)))
    };
    let (failed, refused) = (per_s(|did| did.failures), per_s(|did| did.refused));
    let alarming = |rate: f64| if rate > 0.0 { theme.alarm() } else { Style::new() };
    let mut spans = vec![
        name("Handlers", theme),
        Span::raw(format!("{}/s  ", significant(per_s(|did| did.requests)))),
        name("failed", theme),
        Span::styled(format!("{}/s  ", significant(failed)), alarming(failed)),
    ];
    if refused > 0.0 {
        spans.push(name("refused", theme));
        spans.push(Span::styled(format!("{}/s  ", significant(refused)), alarming(refused)));
    }
    // Each thread has its own limit; the busiest one refuses requests first.
    let share = handlers.busiest().map_or(0.0, HandlerFigures::tasks_share);
    spans.push(name(" Tasks", theme));
    spans.push(Span::styled(
        format!("{} of {}", grouped(handlers.all.tasks), grouped(handlers.all.tasks_max)),
        near_limit(share, theme),
    ));
    spans.push(Span::raw(format!(", {} waiting", grouped(handlers.all.waiting))));
    spans
}

/// Returns the heap of the thread that is closest to its limit.
fn heap(handlers: &HandlersSnapshot, view: &View, theme: Theme, columns: u16) -> Vec<Span<'static>> {
    let width = if columns >= 120 { 2 * BAR } else { BAR };
    let mut spans = vec![name("Heap", theme)];
    if let Some(fullest) = handlers.fullest() {
        let share = fullest.heap_share();
        spans.extend(bar(width, share, theme.load(share), theme.faint()));
        let of = format!(" {} of {}", bytes(fullest.heap_bytes), bytes(fullest.heap_max_bytes));
        spans.push(Span::styled(of, near_limit(share, theme)));
    }
    if handlers.threads.len() > 1 {
        spans.push(Span::styled(format!(" (fullest of {} threads)", handlers.threads.len()), theme.faint()));
    }
    let replaced = view.handled().is_some_and(|did| did.vms_replaced > 0);
    spans.push(name("   VMs replaced", theme));
    spans.push(Span::styled(
        grouped(handlers.all.vms_replaced),
        if replaced { theme.alarm() } else { Style::new() },
    ));
    spans
}

/// Returns the style that highlights a value near its limit.
fn near_limit(share: f64, theme: Theme) -> Style {
    if share >= 0.75 { theme.load(share) } else { Style::new() }
}
