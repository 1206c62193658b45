//! The memory allocator of Ruby.

/// The allocator that replaces the C library's `malloc` in the app's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// jemalloc where it is installed, unless the environment selects an allocator or tunes the C library's.
    Auto,
    /// jemalloc; a note says so where it is not installed.
    Jemalloc,
    /// The allocator with which Ruby was linked or that the environment selects.
    System,
}

impl Allocator {
    pub(crate) const WORDS: &'static [(&'static str, Allocator)] =
        &[("auto", Allocator::Auto), ("jemalloc", Allocator::Jemalloc), ("system", Allocator::System)];

    /// Returns the word for the value.
    pub fn word(self) -> &'static str {
        match self {
            Allocator::Auto => "auto",
            Allocator::Jemalloc => "jemalloc",
            Allocator::System => "system",
        }
    }
}
