//! The screen of a fleet: sums, versions and rollouts, one line per server, and the values in which the
//! selected server is an outlier.
//!
//! Contract: any area can be drawn, however small; lists show how many lines are hidden. Pure.

use super::model::{Row, State, Totals, View};
use super::servers;
use crate::draw::{keys_line, line, line_right, rows, too_small};
use crate::number::{bytes, grouped, interval, percent, significant, span, time};
use crate::options::{LONGEST, SHORTEST};
use crate::theme::Theme;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;
use std::time::Duration;

/// The action that a key requests.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Nothing,
    Quit,
    Suspend,
    Redraw,
    Interval(Duration),
    /// Show only the server at this address.
    Open(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Attention,
    Address,
    Requests,
    Time,
    Saturation,
    Cpu,
    Memory,
}

impl Sort {
    const ALL: [(Sort, &'static str); 7] = [
        (Sort::Attention, "attention"),
        (Sort::Address, "address"),
        (Sort::Requests, "req/s"),
        (Sort::Time, "p99"),
        (Sort::Saturation, "saturation"),
        (Sort::Cpu, "CPU"),
        (Sort::Memory, "memory"),
    ];

    fn place(self) -> usize {
        Sort::ALL.iter().position(|(sort, _)| *sort == self).unwrap_or_default()
    }

    fn name(self) -> &'static str {
        Sort::ALL[self.place()].1
    }

    fn next(self) -> Sort {
        Sort::ALL[(self.place() + 1) % Sort::ALL.len()].0
    }
}

/// The user's choices.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) interval: Duration,
    pub(super) paused: bool,
    sort: Sort,
    /// The address of the selected server; `None` selects the first one.
    selected: Option<String>,
}

impl Screen {
    pub(super) fn new(interval: Duration) -> Screen {
        Screen { interval, paused: false, sort: Sort::Attention, selected: None }
    }

    /// Returns the servers in the chosen order.
    fn sorted<'a>(&self, view: &'a View) -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = view.servers.iter().collect();
        let by = |value: fn(&Row) -> f64| move |one: &&Row, other: &&Row| value(other).total_cmp(&value(one));
        match self.sort {
            Sort::Attention => {}
            Sort::Address => rows.sort_by(|one, other| one.address.cmp(&other.address)),
            Sort::Requests => rows.sort_by(by(|row| row.requests_per_s)),
            Sort::Time => rows.sort_by(by(|row| row.p99_ms)),
            Sort::Saturation => rows.sort_by(by(|row| row.saturation)),
            Sort::Cpu => rows.sort_by(by(|row| row.cpus)),
            Sort::Memory => rows.sort_by(by(|row| row.pss_bytes as f64)),
        }
        rows
    }

    fn place(&self, rows: &[&Row]) -> usize {
        let chosen = |row: &&Row| Some(&row.address) == self.selected.as_ref();
        rows.iter().position(chosen).unwrap_or_default()
    }

    /// Processes a key.
    pub(super) fn key_pressed(&mut self, key: KeyEvent, view: &View) -> Action {
        if key.kind == KeyEventKind::Release {
            return Action::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let rows = self.sorted(view);
        let (at, last) = (self.place(&rows), rows.len().saturating_sub(1));
        let to = match key.code {
            KeyCode::Char('c') if control => return Action::Quit,
            KeyCode::Char('z') if control => return Action::Suspend,
            KeyCode::Char('l') if control => return Action::Redraw,
            _ if control => return Action::Nothing,
            KeyCode::Char('q') | KeyCode::Esc => return Action::Quit,
            KeyCode::Up => at.saturating_sub(1),
            KeyCode::Down => at + 1,
            KeyCode::PageUp => at.saturating_sub(10),
            KeyCode::PageDown => at + 10,
            KeyCode::Home => 0,
            KeyCode::End => last,
            KeyCode::Enter => {
                let up = rows.get(at).filter(|row| row.state == State::Up);
                return up.map_or(Action::Nothing, |row| Action::Open(row.address.clone()));
            }
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                return Action::Nothing;
            }
            KeyCode::Char('p') | KeyCode::Char(' ') => {
                self.paused = !self.paused;
                return Action::Nothing;
            }
            KeyCode::Char('+') | KeyCode::Char('=') => return self.change_interval(2.0),
            KeyCode::Char('-') => return self.change_interval(0.5),
            _ => return Action::Nothing,
        };
        self.selected = rows.get(to.min(last)).map(|row| row.address.clone());
        Action::Nothing
    }

    fn change_interval(&mut self, times: f64) -> Action {
        self.interval = self.interval.mul_f64(times).clamp(SHORTEST, LONGEST);
        Action::Interval(self.interval)
    }
}

/// Draws the live screen.
pub(super) fn draw(buffer: &mut Buffer, screen: &Screen, view: &View, theme: Theme) {
    let area = buffer.area;
    if too_small(buffer, area) {
        return;
    }
    body(buffer, rows(area, 0, area.height - 1), screen, view, theme, true);
    let keys = [
        ("q", "quit".to_owned()),
        ("↑↓", "select".to_owned()),
        ("Enter", "this server".to_owned()),
        ("s", format!("by {}", screen.sort.name())),
        ("p", if screen.paused { "resume" } else { "pause" }.to_owned()),
        ("+-", "interval".to_owned()),
    ];
    line(buffer, rows(area, area.height - 1, 1), keys_line(&keys, theme));
}

/// Returns the rows that [`body`] needs to show everything.
pub(super) fn rows_for(view: &View) -> u16 {
    let lines = view.servers.len() + view.notices.len() + view.servers.iter().map(details).sum::<usize>();
    u16::try_from(lines + 12).unwrap_or(u16::MAX)
}

/// Draws everything but the keys. `live`: with a selection, and with details of the selected server only.
pub(super) fn body(buffer: &mut Buffer, area: Rect, screen: &Screen, view: &View, theme: Theme, live: bool) {
    let mut used = head(buffer, area, screen, &view.totals, theme, live);
    for notice in &view.notices {
        line(buffer, rows(area, used, 1), vec![Span::styled(notice.clone(), theme.warning())]);
        used += 1;
    }
    used += 1;
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| area.width >= column.from).collect();
    let behind: usize = columns.iter().map(|column| column.width).sum();
    let longest = view.servers.iter().map(|row| row.address.chars().count()).max().unwrap_or_default();
    let address = (longest + 2).max(10).min(usize::from(area.width).saturating_sub(behind + 2).max(10));
    let titles: String = columns.iter().map(|column| format!("{:>1$}", column.title, column.width)).collect();
    let heading = format!("  {:<1$}{titles}", "server", address);
    line(buffer, rows(area, used, 1), vec![Span::styled(heading, theme.heading())]);
    used += 1;
    let sorted = screen.sorted(view);
    let selected = screen.place(&sorted);
    let room = usize::from(area.height.saturating_sub(used));
    let for_details = if live { sorted.get(selected).map_or(0, |row| details(row)).min(room / 2) } else { 0 };
    let shown = visible(sorted.len(), selected, room - for_details);
    for (index, row) in sorted.iter().enumerate().skip(shown.start).take(shown.len()) {
        let mut spans = server(row, &columns, address, theme);
        if live && index == selected {
            spans = spans.into_iter().map(|span| span.patch_style(theme.selected())).collect();
        }
        line(buffer, rows(area, used, 1), spans);
        used += 1;
        if !live {
            used += explain(buffer, rows(area, used, area.height), row, theme);
        }
    }
    if shown.len() < sorted.len() {
        let text = format!("  … {} more", sorted.len() - shown.len());
        line(buffer, rows(area, used, 1), vec![Span::styled(text, theme.faint())]);
        used += 1;
    }
    if live && let Some(row) = sorted.get(selected) {
        explain(buffer, rows(area, used, area.height), row, theme);
    }
}

/// Returns the lines of a list to show around the selected one. One line is reserved for the number of hidden ones.
fn visible(count: usize, selected: usize, room: usize) -> std::ops::Range<usize> {
    if count <= room {
        return 0..count;
    }
    let room = room.saturating_sub(1);
    let first = selected.saturating_sub(room / 2).min(count.saturating_sub(room));
    first..first + room
}

/// Draws the sums; returns the number of lines used.
fn head(buffer: &mut Buffer, area: Rect, screen: &Screen, totals: &Totals, theme: Theme, live: bool) -> u16 {
    let up = if totals.up == totals.servers {
        Span::styled(format!("{} up", servers(totals.up)), theme.strong())
    } else {
        Span::styled(format!("{} of {} up", totals.up, servers(totals.servers)), theme.alarm())
    };
    line(buffer, area, vec![Span::styled("Firebrick fleet  ", theme.heading()), up]);
    if live {
        let pause = if screen.paused { "paused" } else { "every" };
        let text =
            if screen.paused { pause.to_owned() } else { format!("{pause} {}", interval(screen.interval)) };
        line_right(buffer, rows(area, 0, 1), vec![Span::styled(text, theme.faint())]);
    }
    let name = |text: &str| Span::styled(format!("{text:<10}"), theme.faint());
    let times = &totals.total_ms;
    let figure = |ms: f64| if times.count == 0 { "–".to_owned() } else { time(ms) };
    line(
        buffer,
        rows(area, 2, 1),
        vec![
            name("Requests"),
            Span::styled(format!("{}/s", significant(totals.requests_per_s)), theme.strong()),
            Span::raw(format!(
                "   mean {}  p50 {}  p95 {}  p99 {}  max {}",
                figure(times.mean),
                figure(times.p50),
                figure(times.p95),
                figure(times.p99),
                figure(times.max)
            )),
        ],
    );
    let wrong = totals.errors_per_s > 0.0;
    line(
        buffer,
        rows(area, 3, 1),
        vec![
            name("Errors"),
            Span::styled(
                format!("5xx {}/s", significant(totals.errors_per_s)),
                if wrong { theme.alarm() } else { Style::new() },
            ),
            Span::raw(format!(
                "   4xx {}/s   client gone {}/s   restarts {}",
                significant(totals.refused_per_s),
                significant(totals.client_gone_per_s),
                totals.restarts
            )),
        ],
    );
    line(
        buffer,
        rows(area, 4, 1),
        vec![
            name("Load"),
            Span::styled(percent(totals.saturation), theme.load(totals.saturation)),
            Span::raw(format!(
                " of {} seats   {} served   {} queued   {} connections",
                grouped(totals.seats),
                grouped(totals.busy),
                grouped(totals.queue),
                grouped(totals.connections_open)
            )),
        ],
    );
    line(
        buffer,
        rows(area, 5, 1),
        vec![
            name("Machine"),
            Span::raw(format!(
                "CPU {} of {}   memory {}",
                significant(totals.cpus),
                significant(totals.cores),
                bytes(totals.pss_bytes)
            )),
        ],
    );
    6
}

/// A column: title, width including the blank before it, and the smallest screen width that shows it.
struct Column {
    title: &'static str,
    width: usize,
    from: u16,
    text: fn(&Row) -> String,
}

const COLUMNS: [Column; 11] = [
    Column { title: "version", width: 9, from: 90, text: |row| row.version.clone() },
    Column { title: "gen", width: 5, from: 80, text: |row| row.generation.to_string() },
    Column { title: "req/s", width: 9, from: 0, text: |row| significant(row.requests_per_s) },
    Column { title: "5xx/s", width: 7, from: 70, text: |row| significant(row.errors_per_s) },
    Column { title: "p50 ms", width: 8, from: 100, text: |row| significant(row.p50_ms) },
    Column { title: "p99 ms", width: 8, from: 0, text: |row| significant(row.p99_ms) },
    Column { title: "queue", width: 7, from: 0, text: |row| grouped(row.queue) },
    Column { title: "load", width: 7, from: 0, text: |row| percent(row.saturation) },
    Column { title: "CPU", width: 7, from: 0, text: |row| significant(row.cpus) },
    Column { title: "memory", width: 10, from: 76, text: |row| bytes(row.pss_bytes) },
    Column {
        title: "up",
        width: 12,
        from: 110,
        text: |row| span(Duration::from_secs_f64(row.for_s.clamp(0.0, 1e9))),
    },
];

fn server(row: &Row, columns: &[&Column], width: usize, theme: Theme) -> Vec<Span<'static>> {
    let marked = !row.outlier.is_empty();
    let (mark, style) = match row.state {
        State::Unreachable => ("✗ ", theme.alarm()),
        State::Gone | State::Asked => ("· ", theme.faint()),
        State::Up if marked => ("▲ ", theme.warning()),
        State::Up if row.change.is_some() => ("↻ ", theme.heading()),
        State::Up => ("  ", Style::new()),
    };
    let shown = if row.address.chars().count() < width {
        row.address.clone()
    } else {
        // The ends of addresses differ.
        let all: Vec<char> = row.address.chars().collect();
        format!("…{}", all[all.len() + 2 - width..].iter().collect::<String>())
    };
    let mut spans = vec![Span::styled(mark, style), Span::styled(format!("{shown:<width$}"), style)];
    if row.state == State::Up {
        spans.extend(
            columns.iter().map(|column| Span::raw(format!("{:>1$}", (column.text)(row), column.width))),
        );
    } else {
        spans.push(Span::styled(told(row), style));
    }
    spans
}

/// Describes the state of a server without figures.
fn told(row: &Row) -> String {
    let ago = span(Duration::from_secs_f64(row.for_s.clamp(0.0, 1e9)));
    match row.state {
        State::Unreachable => format!("{} (for {ago})", row.why.as_deref().unwrap_or("it does not respond")),
        State::Gone => format!("no longer in the list, since {ago}"),
        State::Asked | State::Up => "asking …".to_owned(),
    }
}

/// Returns the number of lines that [`explain`] uses.
fn details(row: &Row) -> usize {
    usize::from(!row.outlier.is_empty())
        + usize::from(row.change.is_some())
        + usize::from(row.workers_old > 0)
}

/// Draws the values in which a server is an outlier, and its changes; returns the number of lines used.
fn explain(buffer: &mut Buffer, area: Rect, row: &Row, theme: Theme) -> u16 {
    let mut lines = Vec::new();
    if !row.outlier.is_empty() {
        lines.push((format!("  ▲ not like the others: {}", row.outlier.join(", ")), theme.warning()));
    }
    if let Some(change) = &row.change {
        lines.push((format!("  ↻ {change}"), theme.heading()));
    }
    if row.workers_old > 0 {
        let new = row.workers - row.workers_old;
        lines.push((
            format!("  {new} of {} workers run generation {}", row.workers, row.generation),
            Style::new(),
        ));
    }
    let count = lines.len();
    for (at, (text, style)) in (0..).zip(lines) {
        line(buffer, rows(area, at, 1), vec![Span::styled(text, style)]);
    }
    u16::try_from(count).unwrap_or_default()
}
