//! The authority for development certificates: created once, kept on disk, used to sign leaves.
//!
//! Contract:
//! 1. `authority.key` holds both key and certificate, so that they are never separated on disk.
//!    `authority.crt` is a public copy of the certificate; it is written again if it is missing or differs.
//! 2. An authority that expires within a month is replaced by a new one, which has to be trusted again.
//! 3. A file that cannot be used is an error and never overwritten: browsers may trust its certificate.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DnType, ExtendedKeyUsagePurpose, GeneralSubtree, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::private;

/// The start of each authority's name. Eight hexadecimal digits of its key's identifier follow.
pub const COMMON_NAME: &str = "Firebrick local authority";

const DAY: Duration = Duration::from_secs(24 * 3600);
const LIFE: Duration = Duration::from_secs(3652 * 24 * 3600);
/// An authority that expires sooner than this is replaced.
const LAST_DAYS: Duration = Duration::from_secs(30 * 24 * 3600);
/// Backdates certificates, because clocks of other machines (for example a phone) may be slow.
pub(super) const EARLIER: Duration = DAY;

#[derive(Debug)]
pub enum Error {
    /// No directory is known for the authority.
    Homeless,
    /// A file or directory cannot be read or written.
    Io(PathBuf, io::Error),
    /// A file has invalid content.
    Unusable(PathBuf, String),
    /// A certificate cannot be created.
    Making(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Homeless => write!(
                f,
                "there is no folder for the authority of development certificates: set HOME or XDG_DATA_HOME to an \
                 absolute path"
            ),
            Error::Io(path, why) => write!(f, "{}: {why}", path.display()),
            Error::Unusable(path, why) => write!(
                f,
                "{}: {why}; expected the key and the certificate of the authority of development certificates; remove \
                 the file to have a new one made, then run `firebrick trust` again",
                path.display()
            ),
            Error::Making(why) => write!(f, "a certificate cannot be made: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// The authority of a user's development certificates.
pub struct Authority {
    folder: PathBuf,
    name: String,
    until: SystemTime,
    certificate: CertificateDer<'static>,
    /// The certificate as PEM.
    text: String,
    pub(super) issuer: Issuer<'static, KeyPair>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).field("name", &self.name).finish()
    }
}

impl Authority {
    /// Reads the authority in `folder`, or creates it. The flag says whether it was created.
    ///
    /// # Errors
    /// The directory or its files cannot be used.
    pub fn open(folder: &Path, now: SystemTime) -> Result<(Authority, bool), Error> {
        let found = Authority::find(folder)?;
        let outdated = found.is_some();
        if let Some(found) = found.filter(|found| found.lasts(now)) {
            found.publish()?;
            return Ok((found, false));
        }
        private::make_folder(folder).map_err(|why| Error::Io(folder.to_owned(), why))?;
        let path = key_file(folder);
        let text = make(now)?;
        let written = if outdated {
            private::replace(&path, &text, 0o600)
        } else {
            private::write_new(&path, &text, 0o600)
        };
        let made = match written {
            Ok(()) => true,
            // Another process has created it meanwhile.
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => false,
            Err(why) => return Err(Error::Io(path, why)),
        };
        let missing = || Error::Unusable(path.clone(), "has just been removed".to_owned());
        let authority = Authority::find(folder)?.ok_or_else(missing)?;
        authority.publish()?;
        Ok((authority, made))
    }

    /// Reads the authority in `folder`, if there is one.
    ///
    /// # Errors
    /// The file cannot be read or used.
    pub fn find(folder: &Path) -> Result<Option<Authority>, Error> {
        let path = key_file(folder);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(Error::Io(path, why)),
        };
        close_to_others(&path).map_err(|why| Error::Io(path.clone(), why))?;
        let unusable = |why: String| Error::Unusable(path.clone(), why);
        read(folder, &text).map(Some).map_err(unusable)
    }

    /// Returns the path of the certificate, for trust stores and clients.
    pub fn file(&self) -> PathBuf {
        self.folder.join("authority.crt")
    }

    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// Returns the common name, which is unique to the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn until(&self) -> SystemTime {
        self.until
    }

    fn lasts(&self, now: SystemTime) -> bool {
        self.until > now + LAST_DAYS
    }

    /// Writes the copy of the certificate, unless it exists.
    fn publish(&self) -> Result<(), Error> {
        let path = self.file();
        if std::fs::read_to_string(&path).is_ok_and(|found| found == self.text) {
            return Ok(());
        }
        private::replace(&path, &self.text, 0o644).map_err(|why| Error::Io(path, why))
    }
}

fn key_file(folder: &Path) -> PathBuf {
    folder.join("authority.key")
}

/// Removes other users' permissions on the key.
fn close_to_others(path: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(path)?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o700))
}

fn read(folder: &Path, text: &str) -> Result<Authority, String> {
    // The key comes first.
    let from = text.find("-----BEGIN CERTIFICATE-----").ok_or("has no certificate")?;
    let published = text[from..].to_owned();
    let certificate =
        CertificateDer::from_pem_slice(published.as_bytes()).map_err(|_| "has a broken certificate")?;
    let key = KeyPair::from_pem(text).map_err(|_| "has no private key")?;
    let (_, parsed) =
        x509_parser::parse_x509_certificate(&certificate).map_err(|_| "has a broken certificate")?;
    if parsed.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
        return Err("its key does not belong to its certificate".to_owned());
    }
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let name =
        name.filter(|name| name.starts_with(COMMON_NAME)).ok_or("is not a certificate of ours")?.to_owned();
    let until = u64::try_from(parsed.validity().not_after.timestamp()).map_err(|_| "has ended")?;
    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until);
    let issuer =
        Issuer::from_ca_cert_der(&certificate, key).map_err(|_| "has a certificate that cannot sign")?;
    Ok(Authority { folder: folder.to_owned(), name, until, certificate, text: published, issuer })
}

/// Creates an authority. Returns the text of its file.
fn make(now: SystemTime) -> Result<String, Error> {
    let making = |why: rcgen::Error| Error::Making(why.to_string());
    let key = KeyPair::generate().map_err(making)?;
    let mut params = CertificateParams::default();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + LIFE).into();
    let id = text::hex(&params.key_identifier(&key)[..4]);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{COMMON_NAME} {id}"));
    // Allows leaves only, no authority below this one.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints =
        Some(NameConstraints { permitted_subtrees: permitted(), excluded_subtrees: Vec::new() });
    let certificate = params.self_signed(&key).map_err(making)?;
    Ok(key.serialize_pem() + &certificate.pem())
}

/// Returns the permitted names. A DNS name covers itself and all names below it.
fn permitted() -> Vec<GeneralSubtree> {
    vec![
        GeneralSubtree::DnsName("localhost".to_owned()),
        GeneralSubtree::DnsName("test".to_owned()),
        GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(Ipv4Addr::new(127, 0, 0, 0).octets(), 8)),
        GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(Ipv6Addr::LOCALHOST.octets(), 128)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn now() -> SystemTime {
        SystemTime::now()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn it_is_made_once_for_its_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data/firebrick/local-authority");
        let (first, made) = Authority::open(&folder, now()).unwrap();
        assert!(made);
        assert_eq!((mode(&folder), mode(&key_file(&folder)), mode(&first.file())), (0o700, 0o600, 0o644));
        let (second, again) = Authority::open(&folder, now()).unwrap();
        assert!(!again);
        assert_eq!((first.certificate(), first.name()), (second.certificate(), second.name()));
        assert!(!std::fs::read_to_string(first.file()).unwrap().contains("PRIVATE"));
        let files = std::fs::read_dir(&folder).unwrap().count();
        assert_eq!(files, 2, "temporary files stay");
    }

    #[test]
    fn processes_that_start_together_use_one() {
        let dir = Arc::new(tempfile::tempdir().unwrap());
        let open = |_| {
            let dir = dir.clone();
            std::thread::spawn(move || {
                let (authority, made) = Authority::open(&dir.path().join("a"), now()).unwrap();
                (authority.certificate().clone(), made)
            })
        };
        let threads: Vec<_> = (0..8).map(open).collect();
        let found: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(found.iter().filter(|(_, made)| *made).count(), 1);
        assert!(found.iter().all(|(certificate, _)| *certificate == found[0].0));
    }

    #[test]
    fn what_is_missing_or_open_to_others_is_mended() {
        let dir = tempfile::tempdir().unwrap();
        let (first, _) = Authority::open(dir.path(), now()).unwrap();
        std::fs::remove_file(first.file()).unwrap();
        std::fs::set_permissions(key_file(dir.path()), std::fs::Permissions::from_mode(0o644)).unwrap();
        let (second, made) = Authority::open(dir.path(), now()).unwrap();
        assert!(!made && second.file().exists());
        assert_eq!(mode(&key_file(dir.path())), 0o600);
    }

    #[test]
    fn a_new_one_is_made_before_the_old_one_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (old, _) = Authority::open(dir.path(), now() - LIFE).unwrap();
        let (new, made) = Authority::open(dir.path(), now()).unwrap();
        assert!(made && new.certificate() != old.certificate());
        assert!(new.until() > now() + LIFE - DAY);
        assert_eq!(Authority::find(dir.path()).unwrap().unwrap().name(), new.name());
    }

    #[test]
    fn a_broken_file_is_named_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Authority::find(dir.path()).unwrap().is_none());
        let (_, other) = (Authority::open(dir.path(), now()).unwrap(), make(now()).unwrap());
        let good = std::fs::read_to_string(key_file(dir.path())).unwrap();
        let certificate = |text: &str| text[text.find("-----BEGIN CERT").unwrap()..].to_owned();
        let key = |text: &str| text[..text.find("-----BEGIN CERT").unwrap()].to_owned();
        for (text, why) in [
            (String::new(), "no certificate"),
            (certificate(&good), "no private key"),
            (key(&good), "no certificate"),
            (key(&good) + &certificate(&other), "does not belong"),
        ] {
            std::fs::write(key_file(dir.path()), &text).unwrap();
            let error = Authority::open(dir.path(), now()).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("authority.key"), "{error}");
            assert_eq!(std::fs::read_to_string(key_file(dir.path())).unwrap(), text);
        }
    }
}
