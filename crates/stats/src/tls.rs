//! Statistics of TLS handshakes, and the certificates in force.

use crate::when;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::SystemTime;

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

/// The counters of a thread. The names are constants of the program, so their number is bounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handshakes {
    full: u64,
    resumed: u64,
    versions: BTreeMap<&'static str, u64>,
    ciphers: BTreeMap<&'static str, u64>,
    failed: BTreeMap<&'static str, u64>,
}

impl Handshakes {
    pub(crate) fn complete(&mut self, handshake: &Handshake) {
        *(if handshake.resumed { &mut self.resumed } else { &mut self.full }) += 1;
        *self.versions.entry(handshake.version).or_default() += 1;
        *self.ciphers.entry(handshake.cipher).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, reason: &'static str) {
        *self.failed.entry(reason).or_default() += 1;
    }
}

/// The statistics of TLS, and the certificates in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSnapshot {
    /// Complete handshakes that began a session.
    pub full: u64,
    /// Complete handshakes that resumed a session.
    pub resumed: u64,
    /// Complete handshakes by version: `TLSv1.2`, `TLSv1.3`.
    pub versions: BTreeMap<String, u64>,
    /// Complete handshakes by cipher suite.
    pub ciphers: BTreeMap<String, u64>,
    /// Failed handshakes, by reason.
    pub failed: BTreeMap<String, u64>,
    pub certificates: Vec<ServedCertificate>,
}

/// A certificate in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedCertificate {
    /// The source: `files`, `acme` or `local`.
    pub source: String,
    /// The file with its chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Host names and addresses.
    pub names: Vec<String>,
    /// The issuer (RFC 4514).
    pub issuer: String,
    /// Hexadecimal digits.
    pub serial: String,
    /// Hexadecimal digits.
    pub fingerprint_sha256: String,
    /// The beginning of its validity.
    #[serde(with = "when")]
    pub not_before: SystemTime,
    /// The end of its validity.
    #[serde(with = "when")]
    pub not_after: SystemTime,
    /// Whether it had expired when the snapshot was taken.
    pub expired: bool,
}

impl TlsSnapshot {
    /// Adds the counters of a thread.
    pub(crate) fn add(&mut self, counted: &Handshakes) {
        self.full += counted.full;
        self.resumed += counted.resumed;
        for (all, own) in [
            (&mut self.versions, &counted.versions),
            (&mut self.ciphers, &counted.ciphers),
            (&mut self.failed, &counted.failed),
        ] {
            own.iter().for_each(|(name, count)| *all.entry((*name).to_owned()).or_default() += count);
        }
    }

    /// Returns the sums of all threads, with these certificates.
    pub fn of(recorders: &[crate::Recorder], certificates: Vec<ServedCertificate>) -> TlsSnapshot {
        let mut all = TlsSnapshot { certificates, ..TlsSnapshot::default() };
        recorders.iter().for_each(|recorder| all.add(&recorder.handshakes()));
        all
    }

    /// Returns the number of failed handshakes.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Recorder;

    #[test]
    fn threads_add_up() {
        let (first, second) = (Recorder::new(), Recorder::new());
        let handshake = |resumed| Handshake { version: "TLSv1.3", cipher: "TLS_AES_128_GCM_SHA256", resumed };
        first.handshake(&handshake(false));
        second.handshake(&handshake(true));
        second.handshake(&handshake(true));
        second.handshake_failed("timeout");
        let all = TlsSnapshot::of(&[first, second], Vec::new());
        assert_eq!((all.full, all.resumed, all.failures()), (1, 2, 1));
        assert_eq!((all.versions["TLSv1.3"], all.failed["timeout"]), (3, 1));
    }
}
