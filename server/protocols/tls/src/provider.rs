//! The cryptography: Mozilla's "intermediate" configuration, version 5.8.
//!
//! All suites have forward secrecy and authenticated encryption; there is no finite-field Diffie-Hellman. The
//! server's order counts, with one exception in [`crate::Endpoint`]: clients that list ChaCha20 first,
//! because they have no AES instructions, get it.

use rustls::SupportedCipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite as suite, kx_group};
use std::sync::{Arc, LazyLock};

/// AES first: it is the fastest with CPU instructions.
const SUITES: [SupportedCipherSuite; 9] = [
    suite::TLS13_AES_128_GCM_SHA256,
    suite::TLS13_AES_256_GCM_SHA384,
    suite::TLS13_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Returns the cryptography of all server configurations.
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| Arc::new(with(SUITES.to_vec())));
    PROVIDER.clone()
}

/// Like [`provider`] with ChaCha20 first, for clients that prefer it.
pub(crate) fn chacha_first() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(|| {
        let mut suites = SUITES.to_vec();
        suites.sort_by_key(|suite| !is_chacha(suite));
        Arc::new(with(suites))
    });
    PROVIDER.clone()
}

fn is_chacha(suite: &SupportedCipherSuite) -> bool {
    suite.suite().as_str().is_some_and(|name| name.contains("CHACHA20"))
}

fn with(cipher_suites: Vec<SupportedCipherSuite>) -> CryptoProvider {
    CryptoProvider {
        cipher_suites,
        kx_groups: vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1, kx_group::SECP384R1],
        ..aws_lc_rs::default_provider()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chacha_is_only_moved() {
        let (usual, other) = (provider(), chacha_first());
        assert!(is_chacha(&other.cipher_suites[0]) && !is_chacha(&usual.cipher_suites[0]));
        assert_eq!(usual.cipher_suites.len(), other.cipher_suites.len());
    }
}
