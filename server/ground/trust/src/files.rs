//! Reads certificates and keys from PEM files.

use crate::{Secret, pem};
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use std::path::Path;

/// The largest file of authorities or of a key; the system's own bundles have 200 KiB.
const MOST: u64 = 16 << 20;

/// Returns all certificates of a file; at least one.
///
/// # Errors
/// The file cannot be read, is malformed, or contains no certificate.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = pem::certificates(&read(file)?)?;
    if certificates.is_empty() {
        return Err("contains no certificate".to_owned());
    }
    Ok(certificates)
}

/// Returns the first private key of a file.
///
/// # Errors
/// The file cannot be read, is malformed, or contains no key.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let key = |(kind, der): (SectionKind, Vec<u8>)| match kind {
        SectionKind::PrivateKey => Some(PrivatePkcs8KeyDer::from(der).into()),
        SectionKind::RsaPrivateKey => Some(PrivatePkcs1KeyDer::from(der).into()),
        SectionKind::EcPrivateKey => Some(PrivateSec1KeyDer::from(der).into()),
        _ => None,
    };
    let found = pem::sections(&read(file)?)?.into_iter().find_map(key);
    found.ok_or_else(|| "contains no unencrypted private key (PKCS #8, PKCS #1 or SEC 1)".to_owned())
}

fn read(file: &Path) -> Result<Secret, String> {
    Secret::read(file, MOST).map_err(|error| error.to_string())
}
