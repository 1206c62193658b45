//! What an address or `[tls]` says about encryption.

use std::path::{Path, PathBuf};

use crate::kind::texts::anchored;

/// How the connections of an address are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindTls {
    /// The certificate of this address alone. Without one, and for names that it does not cover, those of `[tls]`, of
    /// ACME and of the development authority are used.
    pub files: Option<CertificateFiles>,
    /// The authorities of client certificates; `None`: those of `tls.client_ca`.
    pub ca: Option<PathBuf>,
    /// Whether clients show a certificate; `None`: as `tls.verify` says.
    pub verify: Option<Verify>,
}

/// A certificate with its chain, and its private key: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate ones.
    pub cert: PathBuf,
    /// The private key, not encrypted.
    pub key: PathBuf,
}

/// Whether clients show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// They are not asked.
    #[default]
    Off,
    /// They are asked. One that does not verify ends the handshake.
    Optional,
    /// Without a certificate that verifies there is no connection.
    Required,
}

impl Verify {
    /// Its words, Puma's and ours. The first of each value is the one that is written.
    pub(crate) const WORDS: &'static [(&'static str, Verify)] = &[
        ("none", Verify::Off),
        ("peer", Verify::Optional),
        ("force_peer", Verify::Required),
        ("off", Verify::Off),
        ("optional", Verify::Optional),
        ("required", Verify::Required),
    ];

    /// The word that stands for it.
    pub fn word(self) -> &'static str {
        match self {
            Verify::Off => "none",
            Verify::Optional => "peer",
            Verify::Required => "force_peer",
        }
    }
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl BindTls {
    /// With relative paths taken from `base`.
    pub(crate) fn based_at(self, base: &Path) -> BindTls {
        BindTls {
            files: self.files.map(|files| CertificateFiles {
                cert: anchored(&files.cert, base),
                key: anchored(&files.key, base),
            }),
            ca: self.ca.map(|ca| anchored(&ca, base)),
            verify: self.verify,
        }
    }

    /// As options behind the `?` of an address.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if let Some(files) = &self.files {
            options.push(format!("cert={}", encoded(&files.cert)));
            options.push(format!("key={}", encoded(&files.key)));
        }
        options.extend(self.ca.as_ref().map(|ca| format!("ca={}", encoded(ca))));
        options.extend(self.verify.map(|verify| format!("verify_mode={}", verify.word())));
        options
    }
}

/// The path as an option's value.
fn encoded(path: &Path) -> String {
    let text = path.display().to_string();
    text.replace('%', "%25").replace('&', "%26")
}
