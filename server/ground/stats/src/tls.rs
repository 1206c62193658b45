//! Statistics of TLS handshakes, and the certificates in force.

use crate::figures::figures;
use crate::handshakes::Handshakes;
use crate::when;
use std::collections::BTreeMap;
use std::time::SystemTime;

figures! {
    /// The statistics of TLS, and the certificates in force.
    #[derive(Default, Eq)]
    pub struct TlsSnapshot {
        /// Completed handshakes with a new session.
        full: u64 = counter("firebrick_tls_handshakes", outcome = "full"; "Handshakes of TLS by what became of them"),
        /// Completed handshakes with a resumed session.
        resumed: u64 = counter("firebrick_tls_handshakes", outcome = "resumed"),
        /// Completed handshakes by version: `TLSv1.2`, `TLSv1.3`.
        versions: BTreeMap<String, u64>,
        /// The same by cipher suite.
        ciphers: BTreeMap<String, u64>,
        /// Failed handshakes, by reason: `plain_http`, `not_tls`, `version` (only old versions),
        /// `nothing_in_common`, `unknown_name`, `no_certificate`, `client_certificate` (none, or a wrong
        /// one), `client_refused` (an alert of the client), `timeout`, `closed`, `displaced` (to make room),
        /// `malformed`.
        failed: BTreeMap<String, u64> = counter("firebrick_tls_handshakes", outcome = "failed"),
        /// The certificates in force.
        certificates: Vec<ServedCertificate> = part(shown_certificates),
    }

    /// A certificate in force.
    #[derive(Eq)]
    pub struct ServedCertificate [
        name = |it| it.names.first().cloned().unwrap_or_default(),
        serial = |it| it.serial.clone(),
        source = |it| it.source.clone()
    ] {
        /// `files`, `acme` or `local`.
        source: String,
        /// The file with its chain; only with `files`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Host names and addresses.
        names: Vec<String>,
        /// The issuer (RFC 4514).
        issuer: String,
        /// Hexadecimal digits.
        serial: String,
        /// Hexadecimal digits.
        fingerprint_sha256: String,
        /// The beginning of its validity.
        #[serde(with = "when")]
        not_before: SystemTime,
        /// The end of its validity.
        #[serde(with = "when")]
        not_after: SystemTime = own(
            "firebrick_certificate_expiry_timestamp_seconds";
            "When a certificate in force ends, since the epoch; the first 100"
        ),
        /// It had expired when these numbers were read.
        expired: bool,
    }
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

    /// Returns the certificates in `/metrics`: there can be one for each of very many names.
    fn shown_certificates(&self) -> impl Iterator<Item = &ServedCertificate> {
        self.certificates.iter().take(100)
    }

    /// Returns the number of failed handshakes.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handshake, Recorder};

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
