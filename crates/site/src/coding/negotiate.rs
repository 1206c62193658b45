//! Accept-Encoding (RFC 9110 section 12.5.3).

use super::Coding;

/// How much a client wants each coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preferences {
    weights: [u16; 4],
}

impl Preferences {
    /// Reads the values of all Accept-Encoding fields of a request (`fields.all("accept-encoding")`).
    /// Without any the client gets identity.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Preferences {
        let _ = values.into_iter().count();
        unimplemented!()
    }

    /// Whether the client takes this coding.
    pub fn accepts(&self, coding: Coding) -> bool {
        self.weights[coding as usize] > 0
    }

    /// The acceptable codings, the client's favourite first, ours among equals.
    pub fn ranked(&self) -> impl Iterator<Item = Coding> {
        Coding::ALL.into_iter()
    }

    /// The first of [`Preferences::ranked`] that is `available`; `None` when nothing is, which RFC 9110 lets us answer
    /// with 415, and everybody answers with identity.
    pub fn best(&self, available: impl Fn(Coding) -> bool) -> Option<Coding> {
        self.ranked().find(|&coding| available(coding))
    }
}
