//! `--once`: prints two samples, one interval apart, as text or JSON.

use crate::Failure;
use crate::draw;
use crate::options::Options;
use crate::source::sample;
use crate::state::State;
use crate::theme::Theme;
use crate::view::View;
use control::client::{ControlClient, explain};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::io::{IsTerminal, stdout};
use std::path::Path;

/// The width without a terminal.
const COLUMNS: u16 = 100;

pub(crate) fn run(client: &ControlClient, options: &Options, dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::Run(explain(&error, dir));
    let first = sample(client).map_err(failed)?;
    std::thread::sleep(options.interval);
    let view = View::new(sample(client).map_err(failed)?, Some(&first));
    if view.between.is_none() {
        return Err(Failure::Run("the server has been restarted; try again".to_owned()));
    }
    let text = if options.json {
        format!("{:#}\n", view.to_json(&client.address().to_string()))
    } else {
        text(view, options, &client.address().to_string(), columns())
    };
    output::print(text);
    Ok(())
}

/// Returns the columns of the terminal, or the value of COLUMNS.
pub(crate) fn columns() -> u16 {
    let given = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    let own =
        || crossterm::terminal::size().ok().filter(|_| stdout().is_terminal()).map(|(columns, _)| columns);
    given.or_else(own).unwrap_or(COLUMNS).clamp(draw::LEAST.0, 400)
}

/// Returns the screen as text, as high as needed, without colours and keys.
fn text(view: View, options: &Options, address: &str, columns: u16) -> String {
    let rows = draw::rows_for(&view);
    let mut state = State::new(options.interval);
    state.view = Some(view);
    let mut buffer = Buffer::empty(Rect::new(0, 0, columns, rows));
    draw::page(&mut buffer, &state, Theme::new(false), address);
    lines(&buffer)
}

/// Returns the text of a buffer, without trailing blanks and trailing empty lines.
pub(crate) fn lines(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content().chunks(width).map(|row| {
        let text: String = row.iter().map(|cell| cell.symbol()).collect();
        text.trim_end().to_owned()
    });
    format!("{}\n", rows.collect::<Vec<_>>().join("\n").trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::view;
    use std::time::Duration;

    fn options() -> Options {
        Options { interval: Duration::from_secs(2), once: true, json: false, colour: false, fleet: None }
    }

    #[test]
    fn the_page_shows_everything() {
        let mut many = view(40);
        let slow = many.sample.requests[0].clone();
        many.sample.requests =
            (0..30).map(|index| stats::InFlight { path: format!("/r{index}"), ..slow.clone() }).collect();
        let text = text(many, &options(), "/run/c.sock", 100);
        for pid in 4_000..4_040 {
            assert!(text.contains(&format!(" {pid} ")), "{pid} is missing in\n{text}");
        }
        assert!(text.contains("/r29") && !text.contains("more"), "{text}");
    }

    #[test]
    fn lines_fit_and_have_no_trailing_blanks() {
        for columns in [60, 80, 100, 200] {
            let text = text(view(3), &options(), "/run/c.sock", columns);
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(columns) && line.trim_end() == line, "{line:?}");
            }
            assert!(text.contains("123"), "the rate is missing in\n{text}");
        }
    }
}
