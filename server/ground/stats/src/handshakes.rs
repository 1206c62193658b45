//! Counts handshakes of TLS.

use std::collections::BTreeMap;

/// A complete handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The version as OpenSSL names it: `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite as IANA names it.
    pub cipher: &'static str,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
}

/// The handshakes of a thread. The names are constants of the program, so their number is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handshakes {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
    pub(crate) versions: BTreeMap<&'static str, u64>,
    pub(crate) ciphers: BTreeMap<&'static str, u64>,
    pub(crate) failed: BTreeMap<&'static str, u64>,
}

impl Handshakes {
    pub(crate) fn complete(&mut self, handshake: &Handshake) {
        *(if handshake.resumed { &mut self.resumed } else { &mut self.full }) += 1;
        *self.versions.entry(handshake.version).or_default() += 1;
        *self.ciphers.entry(handshake.cipher).or_default() += 1;
    }

    pub(crate) fn fail(&mut self, reason: &'static str) {
        *self.failed.entry(reason).or_default() += 1;
    }
}
