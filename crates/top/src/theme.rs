//! Colours, and their replacements without colours. Only the sixteen of the terminal's own theme are used, so that
//! light and dark themes work.

use ratatui::style::{Color, Modifier, Style};

/// The styles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Theme {
    colour: bool,
}

impl Theme {
    pub(crate) fn new(colour: bool) -> Theme {
        Theme { colour }
    }

    fn painted(self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }

    /// Important values.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Names and units.
    pub(crate) fn faint(self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// Borders and headings.
    pub(crate) fn heading(self) -> Style {
        self.painted(Color::Cyan)
    }

    /// Bars and curves.
    pub(crate) fn bar(self) -> Style {
        self.painted(Color::Green)
    }

    /// Needs attention.
    pub(crate) fn warning(self) -> Style {
        self.painted(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// An error.
    pub(crate) fn alarm(self) -> Style {
        let style = self.painted(Color::Red).add_modifier(Modifier::BOLD);
        if self.colour { style } else { style.add_modifier(Modifier::UNDERLINED) }
    }

    /// The selected line.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// A bar filled to this fraction.
    pub(crate) fn load(self, part: f64) -> Style {
        if part >= 0.95 {
            self.alarm()
        } else if part >= 0.75 {
            self.warning()
        } else {
            self.bar()
        }
    }
}
