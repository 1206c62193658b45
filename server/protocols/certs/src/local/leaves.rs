//! Server certificates for development, signed in memory for each name that a client requests.
//!
//! Contract:
//! 1. A client that requests a permitted host gets a certificate for that host alone. A client without a host
//!    name, or with `localhost`, gets one for `localhost` and the loopback addresses. Any other name gets
//!    `None`.
//! 2. A certificate is valid for 90 days (browsers accept at most 397). It is replaced when 30 are left, or
//!    when the clock was set back to before its start.
//! 3. At most 1,000 are cached; then the oldest is dropped. Creating one costs a signature, less than the
//!    handshake itself.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use tls::Certificate;

use super::authority::{Authority, EARLIER, Error};
use super::names::covers;

const LIFE: Duration = Duration::from_secs(90 * 24 * 3600);
const RENEW: Duration = Duration::from_secs(30 * 24 * 3600);
const MOST: usize = 1_000;
/// The name in the certificate for clients that request no host.
const NAMELESS: &str = "localhost";

#[derive(Debug)]
struct Leaf {
    /// Without a chain: clients know the authority.
    certificate: Arc<Certificate>,
    begins: SystemTime,
    /// When the certificate is replaced.
    until: SystemTime,
}

impl Leaf {
    fn is_fresh(&self, now: SystemTime) -> bool {
        self.begins <= now && now < self.until
    }
}

/// The certificates of one process, shared by its threads.
#[derive(Debug)]
pub struct Leaves {
    authority: Authority,
    /// One key serves for all certificates, which belong to the same process.
    key: KeyPair,
    made: Mutex<Made>,
}

#[derive(Debug, Default)]
struct Made {
    leaves: HashMap<String, Leaf>,
    /// Names in the order of their first request.
    order: VecDeque<String>,
}

impl Leaves {
    /// # Errors
    /// The key cannot be created.
    pub fn new(authority: Authority) -> Result<Leaves, Error> {
        let key = KeyPair::generate().map_err(|why| Error::Making(why.to_string()))?;
        Ok(Leaves { authority, key, made: Mutex::default() })
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the certificate for the host that a client requests (SNI); `None` if the authority may not sign for it.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn leaf(&self, name: Option<&str>, now: SystemTime) -> Result<Option<Arc<Certificate>>, Error> {
        let name = name.map_or_else(|| NAMELESS.to_owned(), str::to_ascii_lowercase);
        let name = name.strip_suffix('.').unwrap_or(&name);
        if !covers(name) {
            return Ok(None);
        }
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leaf) = made.leaves.get(name).filter(|leaf| leaf.is_fresh(now)) {
            return Ok(Some(leaf.certificate.clone()));
        }
        let leaf = self.sign(name, now)?;
        let certificate = leaf.certificate.clone();
        if made.leaves.insert(name.to_owned(), leaf).is_none() {
            made.order.push_back(name.to_owned());
        }
        if made.order.len() > MOST
            && let Some(oldest) = made.order.pop_front()
        {
            made.leaves.remove(&oldest);
        }
        Ok(Some(certificate))
    }

    fn sign(&self, name: &str, now: SystemTime) -> Result<Leaf, Error> {
        let making = |why: rcgen::Error| Error::Making(why.to_string());
        let begins = now - EARLIER;
        let ends = (now + LIFE).min(self.authority.until());
        let mut params = CertificateParams::default();
        params.not_before = begins.into();
        params.not_after = ends.into();
        // Browsers remember certificates by issuer and serial number, and reject another one with the same pair.
        params.serial_number = Some(SerialNumber::from_slice(&(fastrand::u128(..) >> 1 | 1).to_be_bytes()));
        params.distinguished_name = rcgen::DistinguishedName::new();
        // A common name has at most 64 characters. Clients check the alternative names.
        if name.len() <= 64 {
            params.distinguished_name.push(DnType::CommonName, name);
        }
        params.subject_alt_names = match name.parse::<IpAddr>() {
            Ok(address) => vec![SanType::IpAddress(address)],
            Err(_) => vec![SanType::DnsName(name.try_into().map_err(making)?)],
        };
        if name == NAMELESS {
            let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
            params.subject_alt_names.extend(loopback.map(SanType::IpAddress));
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&self.key, &self.authority.issuer).map_err(making)?;
        let key = PrivatePkcs8KeyDer::from(self.key.serialize_der()).into();
        let certificate = Certificate::from_der(vec![certificate.der().clone()], key);
        let certificate = Arc::new(certificate.map_err(|why| Error::Making(why.to_string()))?);
        // In the last month of the authority, a new certificate would not last longer.
        let until = if ends < self.authority.until() { ends - RENEW } else { ends };
        Ok(Leaf { certificate, begins, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn leaves() -> (tempfile::TempDir, Leaves) {
        let dir = tempfile::tempdir().unwrap();
        let (authority, _) = Authority::open(dir.path(), SystemTime::now()).unwrap();
        (dir, Leaves::new(authority).unwrap())
    }

    fn verified(leaves: &Leaves, leaf: &Certificate, name: &str, now: SystemTime) -> Result<(), String> {
        let mut roots = RootCertStore::empty();
        roots.add(leaves.authority().certificate().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let now = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap());
        verifier
            .verify_server_cert(&leaf.certified_key().cert[0], &[], &name, &[], now)
            .map(drop)
            .map_err(|why| format!("{why:?}"))
    }

    #[test]
    fn each_name_gets_a_certificate_of_its_own() {
        let (_dir, leaves) = leaves();
        let now = SystemTime::now();
        for (asked, names) in [
            (None, vec!["localhost", "127.0.0.1", "::1"]),
            (Some("localhost"), vec!["localhost", "127.0.0.1", "::1"]),
            (Some("Shop.Test"), vec!["shop.test"]),
            (Some("a.b.localhost"), vec!["a.b.localhost"]),
            (Some("127.9.9.9"), vec!["127.9.9.9"]),
        ] {
            let leaf = leaves.leaf(asked, now).unwrap().unwrap();
            for name in names {
                assert_eq!(verified(&leaves, &leaf, name, now), Ok(()), "{name}");
            }
            assert!(verified(&leaves, &leaf, "other.test", now).is_err());
        }
        assert!(leaves.leaf(Some("example.com"), now).unwrap().is_none());
        assert!(leaves.leaf(Some("test"), now).unwrap().is_none());
    }

    #[test]
    fn the_authority_cannot_sign_for_other_names() {
        let (_dir, leaves) = leaves();
        let now = SystemTime::now();
        for name in ["example.com", "8.8.8.8"] {
            let forged = leaves.sign(name, now).unwrap();
            let error = verified(&leaves, &forged.certificate, name, now).unwrap_err();
            assert!(error.contains("NameConstraintViolation"), "{error}");
        }
    }

    #[test]
    fn they_are_kept_and_made_again_in_time() {
        let (_dir, leaves) = leaves();
        let now = SystemTime::now();
        let at = |now| leaves.leaf(Some("a.test"), now).unwrap().unwrap();
        let first = at(now);
        assert!(Arc::ptr_eq(&first, &at(now + 59 * DAY)));
        let later = now + 61 * DAY;
        let second = at(later);
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(verified(&leaves, &second, "a.test", later + 60 * DAY), Ok(()));
        assert!(!Arc::ptr_eq(&second, &at(now)), "the clock was set back");
        let (_, parsed) = x509_parser::parse_x509_certificate(&first.certified_key().cert[0]).unwrap();
        let validity = parsed.validity();
        assert!(validity.not_after.timestamp() - validity.not_before.timestamp() <= 397 * 86_400);
    }

    #[test]
    fn none_outlives_the_authority() {
        let (_dir, leaves) = leaves();
        let end = leaves.authority().until();
        let leaf = leaves.leaf(None, end - 10 * DAY).unwrap().unwrap();
        assert!(leaf.facts().not_after <= end);
        assert!(Arc::ptr_eq(&leaf, &leaves.leaf(None, end - DAY).unwrap().unwrap()));
        assert!(verified(&leaves, &leaf, "localhost", end - DAY).is_ok());
    }

    #[test]
    fn many_names_do_not_fill_the_memory() {
        let (_dir, leaves) = leaves();
        let now = SystemTime::now();
        for number in 0..MOST + 10 {
            leaves.leaf(Some(&format!("n{number}.test")), now).unwrap().unwrap();
        }
        let made = leaves.made.lock().unwrap();
        assert_eq!((made.leaves.len(), made.order.len()), (MOST, MOST));
        assert!(!made.leaves.contains_key("n9.test") && made.leaves.contains_key("n10.test"));
    }
}
