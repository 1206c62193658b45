//! Reads certificates and keys from PEM files.

use rustls::pki_types::pem::{Error, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// All certificates of a file; at least one.
///
/// # Errors
/// The file cannot be read, is malformed, or contains no certificate.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, Error>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err("contains no certificate".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

/// The first private key of a file.
///
/// # Errors
/// The file cannot be read, is malformed, or contains no key.
pub(crate) fn key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| match error {
        Error::NoItemsFound => "contains no unencrypted private key (PKCS #8, PKCS #1 or SEC 1)".to_owned(),
        error => error.to_string(),
    })
}
