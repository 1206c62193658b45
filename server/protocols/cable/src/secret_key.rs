//! A secret with which texts are signed by HMAC and SHA-256 (RFC 2104).

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Verifies signatures. It is not printed.
#[derive(Clone)]
pub(crate) struct SecretKey(Hmac<Sha256>);

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SecretKey")
    }
}

impl SecretKey {
    pub(crate) fn new(secret: &str) -> SecretKey {
        let hmac = Hmac::new_from_slice(secret.as_bytes());
        SecretKey(hmac.expect("HMAC takes keys of any length"))
    }

    /// Returns whether the signature is that of the text. It is compared in constant time.
    pub(crate) fn has_signed(&self, text: &str, signature: &[u8]) -> bool {
        let mut hmac = self.0.clone();
        hmac.update(text.as_bytes());
        hmac.verify_slice(signature).is_ok()
    }

    pub(crate) fn sign(&self, text: &str) -> Vec<u8> {
        let mut hmac = self.0.clone();
        hmac.update(text.as_bytes());
        hmac.finalize().into_bytes().to_vec()
    }
}
