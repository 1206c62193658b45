//! Live progress: two lines on a terminal, redrawn several times a second and removed at the end.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use load::Progress;
use report::Unit;

const BAR: usize = 20;
/// The width if the terminal does not report one. Lines are cut to the width, because wrapped lines could not
/// be redrawn.
const COLUMNS: u16 = 80;

/// Draws a run's progress on standard error.
pub(crate) struct Live {
    on: bool,
    drawn: bool,
}

impl Live {
    /// Creates a display that draws only on a terminal, and only if wanted.
    pub fn new(wanted: bool) -> Live {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        Live { on: wanted && io::stderr().is_terminal() && !dumb, drawn: false }
    }

    /// Redraws the lines. The cursor stays at the start of the first line, so that any other output starts there.
    pub fn draw(&mut self, progress: &Progress) {
        if self.on {
            self.show(lines(progress));
        }
    }

    /// Does the same for held connections.
    pub fn draw_held(&mut self, progress: &Progress) {
        if self.on {
            self.show(held(progress));
        }
    }

    fn show(&mut self, lines: [String; 2]) {
        let columns = usize::from(columns());
        let [first, second] =
            lines.map(|line| line.chars().take(columns.saturating_sub(1)).collect::<String>());
        let text = format!("\r\x1b[2K{first}\n\r\x1b[2K{second}\r\x1b[1A");
        // Errors are ignored: progress is not essential.
        let _ = io::stderr().write_all(text.as_bytes());
        self.drawn = true;
    }

    /// Clears both lines.
    pub fn clear(&mut self) {
        if self.drawn {
            let _ = io::stderr().write_all(b"\r\x1b[J");
            self.drawn = false;
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.clear();
    }
}

fn columns() -> u16 {
    rustix::termios::tcgetwinsize(io::stderr())
        .ok()
        .map(|size| size.ws_col)
        .filter(|columns| *columns > 0)
        .unwrap_or(COLUMNS)
}

/// Returns a bar and the remaining time.
fn state(progress: &Progress, before: &str) -> String {
    let done = progress.done.clamp(0.0, 1.0);
    let full = (done * BAR as f64).round() as usize;
    let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR.saturating_sub(full)));
    let state = match progress.elapsed {
        None => before.to_owned(),
        Some(elapsed) => format!("{:>3.0} %  {}", done * 100.0, left(elapsed, done)),
    };
    format!("[{bar}] {state}")
}

fn held(progress: &Progress) -> [String; 2] {
    let count = |count: u64| Unit::Count.show(count as f64);
    let first = format!(
        "{}  {} open, {} errors",
        state(progress, "opening"),
        count(progress.in_flight),
        count(progress.errors)
    );
    [first, format!("{:>10}   {} received", Unit::PerSecond.show(progress.rate), count(progress.ok))]
}

fn lines(progress: &Progress) -> [String; 2] {
    let errors = Unit::Count.show(progress.errors as f64);
    let done = Unit::Count.show(progress.ok as f64);
    let first = format!("{}  {done} done, {errors} errors", state(progress, "warming up"));
    let time = |us: u64| Unit::Milliseconds.show(us as f64 / 1e3);
    let second = format!(
        "{:>10}   p50 {:>8}   p99 {:>8}   max {:>8}   {} in flight",
        Unit::PerSecond.show(progress.rate),
        time(progress.p50_us),
        time(progress.p99_us),
        time(progress.max_us),
        Unit::Count.show(progress.in_flight as f64)
    );
    [first, second]
}

/// Returns the estimated remaining time.
fn left(elapsed: Duration, done: f64) -> String {
    if done <= 0.0 {
        return String::new();
    }
    let left = elapsed.as_secs_f64() * (1.0 - done) / done;
    format!("{:.0} s left", left.ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines() {
        let progress = Progress {
            elapsed: Some(Duration::from_secs(5)),
            done: 0.5,
            ok: 12_345,
            rate: 2_469.0,
            p50_us: 812,
            p99_us: 4_100,
            max_us: 1_200_000,
            in_flight: 50,
            ..Progress::default()
        };
        let [first, second] = lines(&progress);
        assert_eq!(first, "[##########..........]  50 %  5 s left  12,345 done, 0 errors");
        assert!(second.contains("p50   812 µs   p99   4.1 ms   max    1.2 s   50 in flight"), "{second}");
        assert!(lines(&Progress { done: 7.0, ..Progress::default() })[0].contains("warming up"));
    }
}
