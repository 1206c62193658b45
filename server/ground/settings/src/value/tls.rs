//! TLS settings of an address and of `[tls]`.

use std::path::{Path, PathBuf};

use super::anchored;

/// TLS settings of one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BindTls {
    /// The certificate of this address alone. Without one, and for names that it does not cover, the
    /// certificates of `[tls]`, of ACME and of the development authority are used.
    pub files: Option<CertificateFiles>,
    /// The CAs of client certificates; `None`: those of `tls.client_ca`.
    pub ca: Option<PathBuf>,
    /// Whether clients must show a certificate; `None`: as in `tls.verify`.
    pub verify: Option<Verify>,
}

/// A certificate with its chain, and its private key: PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, followed by the intermediate certificates.
    pub cert: PathBuf,
    /// The private key, unencrypted.
    pub key: PathBuf,
}

/// Whether clients must show a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Clients are not asked for a certificate.
    #[default]
    Off,
    /// Clients are asked. An invalid certificate ends the handshake; none is fine.
    Optional,
    /// Without a valid certificate the handshake fails.
    Required,
}

impl Verify {
    /// The words of Puma and of this server. The first word of each value is the one that is written.
    pub(crate) const WORDS: &'static [(&'static str, Verify)] = &[
        ("none", Verify::Off),
        ("peer", Verify::Optional),
        ("force_peer", Verify::Required),
        ("off", Verify::Off),
        ("optional", Verify::Optional),
        ("required", Verify::Required),
    ];

    /// Returns the word for the value.
    pub fn word(self) -> &'static str {
        match self {
            Verify::Off => "none",
            Verify::Optional => "peer",
            Verify::Required => "force_peer",
        }
    }
}

/// The oldest accepted version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2 (RFC 5246).
    V1_2,
    /// TLS 1.3 (RFC 8446).
    V1_3,
}

impl BindTls {
    /// Resolves relative paths against `base`.
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

    /// Returns the settings as options after the `?` of an address.
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

/// Returns the path, escaped for the value of an option.
fn encoded(path: &Path) -> String {
    let text = path.display().to_string();
    text.replace('%', "%25").replace('&', "%26")
}
