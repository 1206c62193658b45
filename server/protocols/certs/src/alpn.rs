//! Creates the certificates that answer TLS-ALPN-01 challenges (RFC 8737).

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::fmt::Write;
use std::net::IpAddr;

/// Returns the name that a CA sends in its handshake. For an IP address, that is its reverse DNS name (RFC
/// 8738 section 6).
pub fn handshake_name(name: &str) -> String {
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        Ok(IpAddr::V6(address)) => {
            let mut text = String::new();
            for byte in address.octets().iter().rev() {
                // Writing to a String cannot fail.
                let _ = write!(text, "{:x}.{:x}.", byte & 0xf, byte >> 4);
            }
            text + "ip6.arpa"
        }
        Err(_) => name.to_owned(),
    }
}

/// Creates the certificate for `name` that contains the digest of the key authorization.
///
/// # Errors
/// The name or the digest is invalid.
pub fn certificate(name: &str, digest: &[u8]) -> Result<CertifiedKey, String> {
    if digest.len() != 32 {
        return Err("the digest of a challenge has 32 bytes".to_owned());
    }
    let failed =
        |error: rcgen::Error| format!("the answer to a challenge for {name} cannot be made: {error}");
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
    parameters.distinguished_name = DistinguishedName::new();
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = parameters.self_signed(&key).map_err(failed)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let signing = provider.key_provider.load_private_key(key).map_err(|_| "its key cannot be used")?;
    // Not checked against the certificate: rustls cannot read one with a critical extension that it does not know.
    Ok(CertifiedKey::new(vec![certificate.der().clone()], signing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_names_of_the_dns() {
        assert_eq!(handshake_name("a.test"), "a.test");
        assert_eq!(handshake_name("192.0.2.1"), "1.2.0.192.in-addr.arpa");
        let six = handshake_name("2001:db8::1");
        assert!(six.starts_with("1.0.0.0.") && six.ends_with("8.b.d.0.1.0.0.2.ip6.arpa"), "{six}");
    }

    #[test]
    fn the_digest_is_in_a_critical_extension() {
        let made = certificate("a.test", &[7; 32]).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(&made.cert[0]).unwrap();
        let extension = parsed.extensions().iter().find(|one| one.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = extension.unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[0x04, 0x20][..], &[7; 32]].concat());
        assert!(certificate("a.test", &[7; 3]).is_err());
    }
}
