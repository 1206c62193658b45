//! PEM text to DER (RFC 7468), with mistakes explained.
//!
//! Contract: no bytes make this panic; whatever is no section (comments, other kinds) is passed over.

use crate::Error;
use rustls::pki_types::pem::{self, PemObject, SectionKind};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

/// More certificates are no chain, but a collection of authorities.
const LONGEST_CHAIN: usize = 20;

/// The certificates of a chain, in the order in which they stand there.
pub(crate) fn chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    if text.trim_ascii().is_empty() {
        return Err(Error::Chain(
            "it is empty: write the certificate into it, then the intermediate ones, as PEM".to_owned(),
        ));
    }
    let mut certificates = Vec::new();
    let mut key = false;
    for (kind, der) in sections(text).map_err(|why| Error::Chain(malformed(&why)))? {
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

/// The first private key.
pub(crate) fn key(text: &[u8]) -> Result<PrivateKeyDer<'static>, Error> {
    if text.trim_ascii().is_empty() {
        return Err(Error::Key(
            "it is empty: write the certificate's private key into it, as PEM".to_owned(),
        ));
    }
    let contains = |word: &[u8]| text.windows(word.len()).any(|window| window == word);
    if contains(b"BEGIN ENCRYPTED PRIVATE KEY") || contains(b"Proc-Type: 4,ENCRYPTED") {
        return Err(Error::Key(
            "the private key is encrypted with a password: decrypt it (openssl pkey -in old.pem -out new.pem) and let \
             only this user read the file"
                .to_owned(),
        ));
    }
    let mut certificate = false;
    for (kind, der) in sections(text).map_err(|why| Error::Key(malformed(&why)))? {
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

/// All certificates of a collection.
pub(crate) fn authorities(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let certificates = certificates.map_err(|why| malformed(&why))?;
    if certificates.is_empty() {
        return Err("there is no certificate (-----BEGIN CERTIFICATE-----) in it".to_owned());
    }
    Ok(certificates)
}

/// A certificate as text.
pub(crate) fn encode(der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    // 48 bytes are a line of 64 characters.
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

fn sections(text: &[u8]) -> Result<Vec<(SectionKind, Vec<u8>)>, pem::Error> {
    let mut rest = text;
    let mut all = Vec::new();
    while let Some(section) = pem::from_buf(&mut rest)? {
        all.push(section);
    }
    Ok(all)
}

fn malformed(why: &pem::Error) -> String {
    match why {
        pem::Error::MissingSectionEnd { .. } => {
            "it ends in the middle of a section (-----END is missing): was it written completely?".to_owned()
        }
        pem::Error::Base64Decode(_) => "what is between -----BEGIN and -----END is not Base64".to_owned(),
        other => format!("it is not PEM: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(der in proptest::collection::vec(any::<u8>(), 1..200)) {
            prop_assert_eq!(&*chain(encode(&der).as_bytes()).unwrap()[0], &der[..]);
        }

        #[test]
        fn any_bytes_are_survived(text in "(-----(BEGIN|END) (CERTIFICATE|PRIVATE KEY)-----|[A-Za-z0-9+/=]{0,80}|\\PC|\n){0,12}") {
            let _ = (chain(text.as_bytes()).is_ok(), key(text.as_bytes()).is_ok());
        }
    }
}
