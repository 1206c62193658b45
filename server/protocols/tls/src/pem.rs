//! Reads a chain and a key from PEM text (RFC 7468), and explains errors.
//!
//! Contract: no input causes a panic. Text outside of sections and sections of other kinds are skipped. Chain
//! and key may be swapped by mistake, so both are [`Secret`]: no message contains a byte of them.

use crate::Error;
use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use trust::Secret;
use trust::pem::{certificates, sections};

/// A longer chain is probably a collection of authorities.
const LONGEST_CHAIN: usize = 20;

/// Returns the certificates of a chain in their order.
pub(crate) fn chain(text: &Secret) -> Result<Vec<CertificateDer<'static>>, Error> {
    if text.is_blank() {
        return Err(Error::Chain(
            "it is empty: write the certificate into it, then the intermediate ones, as PEM".to_owned(),
        ));
    }
    let mut certificates = Vec::new();
    let mut key = false;
    for (kind, der) in sections(text).map_err(Error::Chain)? {
        match kind {
            SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => key = true,
            _ => {}
        }
    }
    if certificates.is_empty() {
        let hint = if key { ", only a private key: are the two files swapped?" } else { "" };
        return Err(Error::Chain(format!(
            "there is no certificate (-----BEGIN CERTIFICATE-----) in it{hint}"
        )));
    }
    if certificates.len() > LONGEST_CHAIN {
        return Err(Error::Chain(format!(
            "there are {} certificates in it: expected the server's own, then the intermediate ones, at most \
             {LONGEST_CHAIN}",
            certificates.len()
        )));
    }
    Ok(certificates)
}

pub(crate) fn key(text: &Secret) -> Result<PrivateKeyDer<'static>, Error> {
    if text.is_blank() {
        return Err(Error::Key(
            "it is empty: write the certificate's private key into it, as PEM".to_owned(),
        ));
    }
    if text.contains(b"BEGIN ENCRYPTED PRIVATE KEY") || text.contains(b"Proc-Type: 4,ENCRYPTED") {
        return Err(Error::Key(
            "the private key is encrypted with a password: decrypt it (openssl pkey -in old.pem -out new.pem) and let \
             only this user read the file"
                .to_owned(),
        ));
    }
    let mut certificate = false;
    for (kind, der) in sections(text).map_err(Error::Key)? {
        match kind {
            SectionKind::PrivateKey => return Ok(PrivatePkcs8KeyDer::from(der).into()),
            SectionKind::RsaPrivateKey => return Ok(PrivatePkcs1KeyDer::from(der).into()),
            SectionKind::EcPrivateKey => return Ok(PrivateSec1KeyDer::from(der).into()),
            SectionKind::Certificate => certificate = true,
            _ => {}
        }
    }
    let hint = if certificate { ", only a certificate: are the two files swapped?" } else { "" };
    Err(Error::Key(format!("there is no private key (-----BEGIN PRIVATE KEY-----) in it{hint}")))
}

/// Returns all certificates in a collection.
pub(crate) fn authorities(text: &Secret) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = certificates(text)?;
    if certificates.is_empty() {
        return Err("there is no certificate (-----BEGIN CERTIFICATE-----) in it".to_owned());
    }
    Ok(certificates)
}

/// Encodes a certificate as PEM.
pub(crate) fn encode(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // 48 bytes make a line of 64 characters.
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits =
                group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
            let digit = |place: usize| DIGITS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            let filled = group.len() + 1;
            text.extend((0..4).map(|place| if place < filled { digit(place) } else { '=' }));
        }
        text.push('\n');
    }
    text.push_str("-----END CERTIFICATE-----\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(der in proptest::collection::vec(any::<u8>(), 1..200)) {
            prop_assert_eq!(&*chain(&Secret::from(&*encode(&der))).unwrap()[0], &der[..]);
        }

        #[test]
        fn any_bytes_are_survived(text in "(-----(BEGIN|END) (CERTIFICATE|PRIVATE KEY)-----|[A-Za-z0-9+/=]{0,80}|\\PC|\n){0,12}") {
            let text = Secret::from(&*text);
            let _ = (chain(&text).is_ok(), key(&text).is_ok());
        }
    }
}
