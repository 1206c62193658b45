//! Who switches Ruby's compiler on.

/// What is done about YJIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Yjit {
    /// It is switched on where Ruby offers that (3.3 and later), unless Rails decides it.
    Auto,
    /// It is switched on in every Ruby that has it.
    On,
    /// It is left to Ruby, its environment and the app.
    Off,
}

impl Yjit {
    /// How it is written.
    pub(crate) const WORDS: &'static [(&'static str, Yjit)] =
        &[("auto", Yjit::Auto), ("on", Yjit::On), ("off", Yjit::Off)];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            Yjit::Auto => "auto",
            Yjit::On => "on",
            Yjit::Off => "off",
        }
    }
}
