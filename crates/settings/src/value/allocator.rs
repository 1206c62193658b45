//! Which allocator Ruby uses.

/// What takes the place of the C library's `malloc` in the processes of the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// jemalloc where it is installed, unless the environment has chosen an allocator or tuned that of the C library.
    Auto,
    /// jemalloc, with a note where it is not installed.
    Jemalloc,
    /// What Ruby was linked with, or what the environment says.
    System,
}

impl Allocator {
    /// How it is written.
    pub(crate) const WORDS: &'static [(&'static str, Allocator)] =
        &[("auto", Allocator::Auto), ("jemalloc", Allocator::Jemalloc), ("system", Allocator::System)];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            Allocator::Auto => "auto",
            Allocator::Jemalloc => "jemalloc",
            Allocator::System => "system",
        }
    }
}
