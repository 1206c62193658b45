//! A certificate with its chain and its private key, checked together.
//!
//! Contract:
//! 1. Every value can serve a handshake: all parts parse, the first certificate is the server's own, and the
//!    key matches it.
//! 2. Dates are not checked: an expired certificate is served, because a client can choose to accept it, and
//!    a server that does not start is worse. [`Certificate::warnings`] reports it.

use crate::{Error, pem, provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trust::Secret;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

/// A certificate with its chain and its private key.
#[derive(Debug)]
pub struct Certificate {
    key: Arc<CertifiedKey>,
    facts: CertificateFacts,
}

/// The contents of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// Host names (also `*.example.com`) and IP addresses, in lower case.
    pub names: Vec<String>,
    /// The subject (RFC 4514).
    pub subject: String,
    /// The common name of the subject.
    pub common_name: Option<String>,
    /// The issuer (RFC 4514).
    pub issuer: String,
    pub not_before: SystemTime,
    pub not_after: SystemTime,
    /// The serial number in hexadecimal digits, without separators.
    pub serial: String,
    /// SHA-256 of the DER form.
    pub fingerprint: [u8; 32],
    /// Whether subject and issuer are the same.
    pub self_signed: bool,
    /// The number of certificates that are sent, including this one.
    pub chain: usize,
}

impl Certificate {
    /// Reads a chain and a key in PEM form. Both may be in the same file.
    ///
    /// # Errors
    /// A part does not parse, is missing or encrypted, or the key does not match the first certificate.
    pub fn from_pem(chain: &Secret, key: &Secret) -> Result<Certificate, Error> {
        Certificate::from_der(pem::chain(chain)?, pem::key(key)?)
    }

    /// Like [`Certificate::from_pem`], from DER.
    ///
    /// # Errors
    /// See [`Certificate::from_pem`].
    pub fn from_der(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certificate, Error> {
        let mut subjects = Vec::new();
        for (place, der) in chain.iter().enumerate() {
            let facts = CertificateFacts::read(der, chain.len())
                .map_err(|()| Error::Chain(format!("certificate {} of it is damaged", place + 1)))?;
            subjects.push(facts);
        }
        if subjects.is_empty() {
            return Err(Error::Chain("there is no certificate in it".to_owned()));
        }
        // The library's error may quote the key, so it is dropped.
        let signing = provider().key_provider.load_private_key(key).map_err(|_| {
            Error::Key(
                "the private key cannot be used: RSA from 2048 bits, ECDSA or Ed25519 is expected".to_owned(),
            )
        })?;
        let certified = CertifiedKey::new(chain, signing);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(Error::Pair(misfit(&certified, &subjects))),
        }
        let facts = subjects.swap_remove(0);
        Ok(Certificate { key: Arc::new(certified), facts })
    }

    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    /// Returns the key and chain for rustls.
    pub fn certified_key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// Returns warnings, a sentence each, about properties that are valid but probably not intended.
    pub fn warnings(&self, now: SystemTime) -> Vec<String> {
        let facts = &self.facts;
        let mut warnings = Vec::new();
        if now > facts.not_after {
            warnings.push(format!(
                "it EXPIRED {} ago: clients refuse it; replace the file by a renewed one, until then it is served",
                ago(now.duration_since(facts.not_after).unwrap_or_default())
            ));
        }
        if now < facts.not_before {
            let wait = facts.not_before.duration_since(now).unwrap_or_default();
            warnings.push(format!("it is not valid for another {}: is the clock right?", ago(wait)));
        }
        if facts.chain == 1 && !facts.self_signed {
            warnings.push(format!(
                "it comes without an intermediate certificate: clients that do not know its issuer ({}) refuse it; \
                 append the issuer's certificate to the file",
                facts.issuer
            ));
        }
        if facts.names.is_empty() {
            warnings.push("it names no host (subjectAltName): clients refuse it for every name".to_owned());
        }
        warnings
    }
}

/// Explains why the key does not match. Usually the chain is in the wrong order.
fn misfit(certified: &CertifiedKey, all: &[CertificateFacts]) -> String {
    let fits = |place: &usize| {
        let alone = CertifiedKey::new(vec![certified.cert[*place].clone()], certified.key.clone());
        alone.keys_match().is_ok()
    };
    match (1..all.len()).find(fits) {
        Some(place) => format!(
            "the chain is in the wrong order: the key belongs to certificate {} ({}), which has to be the first",
            place + 1,
            all[place].subject
        ),
        None => format!(
            "the private key does not belong to the certificate ({}): give the key that it was requested with",
            all[0].subject
        ),
    }
}

impl CertificateFacts {
    /// Reads the facts from DER. `chain` is the number of certificates that are sent.
    pub(crate) fn read(der: &[u8], chain: usize) -> Result<CertificateFacts, ()> {
        let (_, certificate) = X509Certificate::from_der(der).map_err(drop)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest.as_ref());
        let time = |seconds: i64| {
            let seconds = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            UNIX_EPOCH.checked_add(seconds).unwrap_or(UNIX_EPOCH)
        };
        let validity = certificate.validity();
        Ok(CertificateFacts {
            names: names(&certificate),
            subject: crate::dn::text(certificate.subject()),
            common_name: crate::dn::common_name(certificate.subject()),
            issuer: crate::dn::text(certificate.issuer()),
            not_before: time(validity.not_before.timestamp()),
            not_after: time(validity.not_after.timestamp()),
            serial: text::hex(unsigned(certificate.raw_serial())),
            fingerprint,
            self_signed: certificate.subject().as_raw() == certificate.issuer().as_raw(),
            chain,
        })
    }

    /// Returns the fingerprint in hexadecimal digits.
    pub fn fingerprint_text(&self) -> String {
        text::hex(&self.fingerprint)
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let mut names = Vec::new();
    if let Ok(Some(alternative)) = certificate.subject_alternative_name() {
        for name in &alternative.value.general_names {
            match name {
                GeneralName::DNSName(name) => names.push(crate::names::normal(name).into_owned()),
                GeneralName::IPAddress(bytes) => names.extend(address(bytes)),
                _ => {}
            }
        }
    }
    names.dedup();
    names
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

/// Returns the bytes of a positive DER number without the leading 0 that only marks it as positive. Other
/// programs do not show it.
fn unsigned(bytes: &[u8]) -> &[u8] {
    match bytes {
        [0, rest @ ..] if !rest.is_empty() => rest,
        _ => bytes,
    }
}

fn ago(span: Duration) -> String {
    let (number, unit) = match span.as_secs() {
        seconds if seconds >= 2 * 86_400 => (seconds / 86_400, "days"),
        seconds if seconds >= 2 * 3_600 => (seconds / 3_600, "hours"),
        seconds if seconds >= 2 * 60 => (seconds / 60, "minutes"),
        seconds => (seconds, "seconds"),
    };
    format!("{number} {unit}")
}
