//! What is shown while cells are measured: the table as it grows, and on a terminal one line below it that moves.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use load::Progress;

use crate::table;
use crate::work::Measured;

const REDRAW_EVERY: Duration = Duration::from_millis(100);
const BAR: usize = 24;

/// Where lines go.
pub(crate) struct Screen {
    /// The table is printed as it grows.
    table: bool,
    /// The line that moves.
    line: bool,
    /// Something stands in it.
    drawn: bool,
    last: Option<Instant>,
    servers: bool,
    began: Instant,
    /// Share of all work that is done, as the last step said.
    done: f64,
    share: f64,
    label: String,
}

impl Screen {
    /// `quiet`: no line that moves. `silent`: nothing but it. `servers`: there is more than one.
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

    /// Lines above the table.
    pub(crate) fn head(&mut self, lines: &[String]) {
        self.began = Instant::now();
        if self.table {
            let mut out = io::stdout().lock();
            for line in lines {
                let _ = writeln!(out, "{line}");
            }
            let _ = writeln!(out, "\n{}", table::head(self.servers));
            let _ = out.flush();
        }
    }

    /// A step begins: `label` is what is done; `done` and `share` (0 to 1) say how much of everything is over and how
    /// much this step is.
    pub(crate) fn step(&mut self, label: String, done: f64, share: f64) {
        self.label = label;
        self.done = done.clamp(0.0, 1.0);
        self.share = share.clamp(0.0, 1.0 - self.done);
        self.draw(0.0, "");
        self.last = None;
    }

    /// From now on the step is called so.
    pub(crate) fn step_label(&mut self, label: String) {
        self.label = label;
    }

    /// The load of the step goes on: `within` is how much of the step is over.
    pub(crate) fn progress(&mut self, progress: &Progress, within: f64) {
        if self.last.is_some_and(|last| last.elapsed() < REDRAW_EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let rate = table::figure(progress.rate);
        let errors =
            if progress.errors > 0 { format!(", {} errors", progress.errors) } else { String::new() };
        self.draw(within.clamp(0.0, 1.0), &format!("{rate}/s{errors}"));
    }

    /// A row of the table.
    pub(crate) fn row(&mut self, measured: &Measured) {
        self.clear();
        if self.table {
            let mut out = io::stdout().lock();
            let _ = writeln!(out, "{}", table::row(measured, self.servers));
            let _ = out.flush();
        }
    }

    /// Takes the moving line away.
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

/// The time that the rest will take if it goes on like this.
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
    // A line that wraps cannot be drawn over.
    text.chars().take(width.saturating_sub(1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_far_and_never_wraps() {
        let said = line(0.5, "2x10", "81.2/s", "about 40 s left", 80);
        assert!(said.contains("############............]  50%  2x10  81.2/s  about 40 s left"), "{said}");
        assert_eq!(line(1.0, "a long label", "", "", 20).chars().count(), 19);
    }

    #[test]
    fn time_left_is_what_the_past_lets_expect() {
        assert_eq!(left(Duration::from_secs(10), 0.5), "about 10 s left");
        assert_eq!(left(Duration::from_secs(300), 0.5), "about 5 min left");
        assert_eq!(left(Duration::from_secs(1), 0.0), "");
    }
}
