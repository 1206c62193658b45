//! The reaction of a reload to a difference between two releases.

/// The step that follows when the new code responds differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDifference {
    /// List the differences and go on.
    Report,
    /// List them and return to the old code.
    Undo,
}
