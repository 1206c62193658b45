//! Whether and how Ruby's compiler YJIT is switched on.

/// The setting for YJIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yjit {
    /// On in Ruby 3.3 and later, unless Rails decides.
    Auto,
    /// On in every Ruby that has YJIT.
    On,
    /// Left to Ruby, its environment and the app.
    Off,
}

impl Yjit {
    pub(crate) const WORDS: &'static [(&'static str, Yjit)] =
        &[("auto", Yjit::Auto), ("on", Yjit::On), ("off", Yjit::Off)];

    /// Returns the word for the value.
    pub fn word(self) -> &'static str {
        match self {
            Yjit::Auto => "auto",
            Yjit::On => "on",
            Yjit::Off => "off",
        }
    }
}
