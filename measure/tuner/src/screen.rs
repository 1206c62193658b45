//! Output while measuring: the growing table, and on a terminal a progress line below it.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use load::Progress;

use crate::figures;
use crate::results::Measured;
use crate::table;

const REDRAW_EVERY: Duration = Duration::from_millis(100);
const BAR: usize = 24;

pub(crate) struct Screen {
    /// Whether the table is printed.
    table: bool,
    /// Whether the progress line is shown.
    line: bool,
    /// Whether the progress line is on the screen.
    drawn: bool,
    last: Option<Instant>,
    servers: bool,
    began: Instant,
    /// The completed share of all work before this step.
    done: f64,
    share: f64,
    label: String,
}

impl Screen {
    /// Creates the screen. `quiet`: no progress line. `silent`: no table. `servers`: there is more than one server.
    pub(crate) fn new(quiet: bool, silent: bool, servers: bool) -> Screen {
        let line = !quiet && io::stderr().is_terminal();
        Screen {
            table: !silent,
            line,
            drawn: false,
            last: None,
            servers,
            began: Instant::now(),
            done: 0.0,
            share: 0.0,
            label: String::new(),
        }
    }

    /// Prints the lines above the table.
    pub(crate) fn head(&mut self, lines: &[String]) {
        self.began = Instant::now();
        if self.table {
            let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
            output::print(format!("{lines}\n{}\n", table::head(self.servers)));
        }
    }

    /// Starts a step. `label` names it; `done` and `share` (0 to 1) are the completed share of all work and
    /// the share of this step.
    pub(crate) fn step(&mut self, label: String, done: f64, share: f64) {
        self.label = label;
        self.done = done.clamp(0.0, 1.0);
        self.share = share.clamp(0.0, 1.0 - self.done);
        self.draw(0.0, "");
        self.last = None;
    }

    pub(crate) fn step_label(&mut self, label: String) {
        self.label = label;
    }

    /// Updates the progress line; `within` is the completed share of the step.
    pub(crate) fn progress(&mut self, progress: &Progress, within: f64) {
        if self.last.is_some_and(|last| last.elapsed() < REDRAW_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let rate = figures::figure(progress.rate);
        let errors =
            if progress.errors > 0 { format!(", {} errors", progress.errors) } else { String::new() };
        self.draw(within.clamp(0.0, 1.0), &format!("{rate}/s{errors}"));
    }

    /// Prints a row of the table.
    pub(crate) fn row(&mut self, measured: &Measured) {
        self.clear();
        if self.table {
            output::print(format!("{}\n", table::row(measured, self.servers)));
        }
    }

    /// Removes the progress line.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }

    fn draw(&mut self, within: f64, more: &str) {
        if !self.line {
            return;
        }
        let done = self.done + self.share * within;
        let left = left(self.began.elapsed(), done);
        let text = line(done, &self.label, more, &left, width());
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r{text}\x1b[K");
        let _ = err.flush();
        self.drawn = true;
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.clear();
    }
}

fn width() -> usize {
    terminal_size::terminal_size_of(io::stderr()).map_or(80, |(width, _)| usize::from(width.0)).max(20)
}

/// Returns the estimated remaining time.
fn left(elapsed: Duration, done: f64) -> String {
    if done < 0.02 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (1.0 - done) / done;
    match seconds.ceil() as u64 {
        seconds @ 0..100 => format!("about {seconds} s left"),
        seconds => format!("about {} min left", seconds.div_ceil(60)),
    }
}

fn line(done: f64, label: &str, more: &str, left: &str, width: usize) -> String {
    let filled = ((done * BAR as f64).round() as usize).min(BAR);
    let parts: Vec<&str> = [label, more, left].into_iter().filter(|part| !part.is_empty()).collect();
    let text = format!(
        "[{}{}] {:3.0}%  {}",
        "#".repeat(filled),
        ".".repeat(BAR - filled),
        done * 100.0,
        parts.join("  ")
    );
    // A wrapped line could not be overwritten.
    text.chars().take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_line_never_wraps() {
        let text = line(0.5, "2x10", "81.2/s", "about 40 s left", 80);
        assert!(text.contains("############............]  50%  2x10  81.2/s  about 40 s left"), "{text}");
        assert_eq!(line(1.0, "a long label", "", "", 20).chars().count(), 19);
    }

    #[test]
    fn remaining_time_is_extrapolated() {
        assert_eq!(left(Duration::from_secs(10), 0.5), "about 10 s left");
        assert_eq!(left(Duration::from_secs(300), 0.5), "about 5 min left");
        assert_eq!(left(Duration::from_secs(1), 0.0), "");
    }
}
