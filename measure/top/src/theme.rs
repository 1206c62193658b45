//! Colours, and their replacements without colours. Uses only the sixteen colours of the terminal's own
//! theme, so that light and dark themes work.

use ratatui::style::{Color, Modifier, Style};

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

    /// The style of important values.
    pub(crate) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// The style of names and units.
    pub(crate) fn faint(self) -> Style {
        if self.colour { Style::new().fg(Color::DarkGray) } else { Style::new().add_modifier(Modifier::DIM) }
    }

    /// The style of borders and headings.
    pub(crate) fn heading(self) -> Style {
        self.painted(Color::Cyan)
    }

    /// The style of bars and curves.
    pub(crate) fn bar(self) -> Style {
        self.painted(Color::Green)
    }

    /// The style of values that need attention.
    pub(crate) fn warning(self) -> Style {
        self.painted(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    /// The style of errors.
    pub(crate) fn alarm(self) -> Style {
        let style = self.painted(Color::Red).add_modifier(Modifier::BOLD);
        if self.colour { style } else { style.add_modifier(Modifier::UNDERLINED) }
    }

    /// The style of the selected line.
    pub(crate) fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The style of a bar filled to this fraction.
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
