//! The workers: one line each, with their busy threads as a bar.

use super::{line, rows};
use crate::number::{bytes, percent, significant, span};
use crate::state::{State, sorted};
use crate::theme::Theme;
use crate::view::View;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use stats::{WorkerSnapshot, WorkerState};
use std::time::Duration;

/// A column: title, width including the blank before it, and the smallest screen width that shows it.
struct Column {
    title: &'static str,
    width: usize,
    from: u16,
    text: fn(&WorkerSnapshot, &View) -> String,
}

/// Shown while there are workers of several generations.
const GENERATION: &str = "gen";
/// The smallest screen width that shows restarts beside it.
const RESTARTS_FROM: u16 = 88;

/// Shown while there are several pools.
const POOL: &str = "pool";

const COLUMNS: [Column; 9] = [
    Column { title: POOL, width: 10, from: 80, text: |worker, _| short(&worker.pool) },
    Column { title: GENERATION, width: 5, from: 72, text: |worker, _| (worker.phase + 1).to_string() },
    Column { title: "req/s", width: 8, from: 0, text: |worker, view| rate(worker, view) },
    Column {
        title: "CPU",
        width: 7,
        from: 0,
        text: |worker, view| view.did(worker).map_or("…".to_owned(), |did| percent(did.cpus)),
    },
    Column { title: "memory", width: 10, from: 0, text: |worker, _| bytes(worker.pss_bytes) },
    Column { title: "RSS", width: 10, from: 100, text: |worker, _| bytes(worker.rss_bytes) },
    Column { title: "waiting", width: 8, from: 0, text: |worker, _| worker.waiting.to_string() },
    Column { title: "restarts", width: 9, from: 72, text: |worker, _| worker.restarts.to_string() },
    Column { title: "up", width: 14, from: 120, text: |worker, view| up(worker, view) },
];
/// The width of `worker`, `pid` and `state`, each followed by a blank.
const BEFORE: usize = 7 + 8 + 9;
/// The smallest width of `12/16` after the bar.
const COUNT: usize = 6;
const LONGEST_BAR: usize = 40;

pub(super) fn draw(buffer: &mut Buffer, area: Rect, state: &State, view: &View, theme: Theme) {
    let generations = view.has_generations();
    let fits = |column: &&Column| match column.title {
        GENERATION => generations && area.width >= column.from,
        POOL => !view.server().pools.is_empty() && area.width >= column.from,
        "restarts" if generations => area.width >= RESTARTS_FROM,
        _ => area.width >= column.from,
    };
    let columns: Vec<&Column> = COLUMNS.iter().filter(fits).collect();
    let behind: usize = columns.iter().map(|column| column.width).sum();
    // With fibers there may be thousands.
    let most = |worker: &WorkerSnapshot| 2 * worker.threads_max.to_string().len();
    let count = COUNT.max(view.server().workers.iter().map(most).max().unwrap_or(0) + 2);
    let bar = usize::from(area.width).saturating_sub(BEFORE + count + behind).clamp(4, LONGEST_BAR);
    let titles =
        columns.iter().map(|column| format!("{:>1$}", column.title, column.width)).collect::<String>();
    let busy = format!("busy {}", view.server().seats_word());
    let heading = format!("{:<7}{:<8}{:<9}{:<4$}{titles}", "worker", "pid", "state", busy, bar + count);
    line(buffer, area, vec![Span::styled(heading, theme.heading())]);
    let workers = sorted(view, state.sort);
    let room = usize::from(area.height.saturating_sub(1));
    let shown = if workers.len() > room { room.saturating_sub(1) } else { workers.len() };
    for (row, worker) in (1..).zip(&workers[..shown]) {
        let mut spans =
            vec![Span::raw(format!("{:<7}{:<8}", worker.index, worker.pid)), state_of(worker, theme)];
        spans.extend(threads(worker, bar, count, theme));
        spans.extend(columns.iter().map(|column| {
            let style =
                if column.title == "waiting" && worker.waiting > 0 { theme.warning() } else { Style::new() };
            Span::styled(format!("{:>1$}", (column.text)(worker, view), column.width), style)
        }));
        line(buffer, rows(area, row, 1), spans);
    }
    if shown < workers.len() && room > 0 {
        let text = format!("… {} more; s sorts", workers.len() - shown);
        line(buffer, rows(area, area.height - 1, 1), vec![Span::styled(text, theme.faint())]);
    }
}

/// Returns the beginning of a name that fits into its column.
fn short(name: &str) -> String {
    name.chars().take(9).collect()
}

fn rate(worker: &WorkerSnapshot, view: &View) -> String {
    let between = view.between.as_ref();
    between
        .zip(view.did(worker))
        .map_or("…".to_owned(), |(between, did)| significant(between.per_second(did.requests)))
}

fn up(worker: &WorkerSnapshot, view: &View) -> String {
    span(Duration::from_secs_f64(worker.uptime(view.server().taken_at).clamp(0.0, 1e12)))
}

fn state_of(worker: &WorkerSnapshot, theme: Theme) -> Span<'static> {
    let (text, style) = match worker.state {
        WorkerState::Ready => ("ready", Style::new()),
        WorkerState::Booting => ("booting", theme.warning()),
        WorkerState::Draining => ("draining", theme.warning()),
        WorkerState::Gone => ("gone", theme.alarm()),
    };
    Span::styled(format!("{text:<9}"), style)
}

/// Returns one cell per thread or fiber if they fit, else in proportion, and the numbers in `count` characters.
fn threads(worker: &WorkerSnapshot, width: usize, count: usize, theme: Theme) -> Vec<Span<'static>> {
    let (busy, most) = (worker.busy_threads as usize, worker.threads_max as usize);
    let cells = most.clamp(1, width);
    let part = busy as f64 / most.max(1) as f64;
    let mut spans = super::bar(cells, part, theme.load(part), theme.faint()).to_vec();
    spans.push(Span::raw(format!("{:<1$}", format!(" {}", worker.seats_text()), width - cells + count)));
    spans
}
