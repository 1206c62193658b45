//! Pairs of files, a chain and its key: read, and read again when they change.
//!
//! Contract:
//! 1. What replaces a certificate is complete and sound. Until both files are, the old one stays.
//! 2. A mistake is reported once, not each time the files are looked at.

use crate::{Certificate, Error};
use settings::CertificateFiles;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use trust::Secret;

/// A longer file is no certificate.
const MOST: u64 = 1 << 20;

/// Reads a chain and its key.
///
/// # Errors
/// A file cannot be read, or what is in it cannot be used; the text names it.
pub fn read_pair(files: &CertificateFiles) -> Result<Certificate, String> {
    let (cert, key) = (files.cert.display(), files.key.display());
    let chain = read(&files.cert).map_err(|why| format!("the certificate {cert} cannot be read: {why}"))?;
    let secret = read(&files.key).map_err(|why| format!("the private key {key} cannot be read: {why}"))?;
    Certificate::from_pem(&chain, &secret).map_err(|error| match error {
        Error::Chain(why) => format!("the certificate {cert} cannot be used: {why}"),
        Error::Key(why) => format!("the private key {key} cannot be used: {why}"),
        Error::Pair(why) => format!("{cert} and {key} cannot be used: {why}"),
    })
}

/// Reads a collection of authorities.
///
/// # Errors
/// The file cannot be read; the text names it.
pub fn read_authorities(file: &Path) -> Result<Secret, String> {
    read(file).map_err(|why| format!("the authorities {} cannot be read: {why}", file.display()))
}

/// A file of reasonable size.
fn read(file: &Path) -> io::Result<Secret> {
    Secret::read(file, MOST)
}

/// What identifies a version of a file, as far as the kernel says; `None` if it is not there.
type Stamp = Option<(u64, u64, (i64, i64), (i64, i64))>;

fn stamp(file: &Path) -> Stamp {
    let found = fs::metadata(file).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.ino(), found.len(), modified, changed))
}

/// A pair of files and the certificate that was last read from it.
#[derive(Debug)]
pub struct Pair {
    files: CertificateFiles,
    seen: (Stamp, Stamp),
    current: Arc<Certificate>,
    complained: Option<String>,
}

/// What has become of a pair of files.
#[derive(Debug)]
pub enum Change {
    /// Nothing new.
    None,
    /// There is a new certificate.
    Replaced(Arc<Certificate>),
    /// The files have changed, and cannot be used; why. The old certificate stays.
    Unusable(String),
}

impl Pair {
    /// Reads the pair.
    ///
    /// # Errors
    /// As [`read_pair`].
    pub fn open(files: CertificateFiles) -> Result<Pair, String> {
        let seen = (stamp(&files.cert), stamp(&files.key));
        let current = Arc::new(read_pair(&files)?);
        Ok(Pair { files, seen, current, complained: None })
    }

    /// The files.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// The certificate in force.
    pub fn current(&self) -> &Arc<Certificate> {
        &self.current
    }

    /// Whether the files held the certificate in force when they were looked at last.
    pub fn is_sound(&self) -> bool {
        self.complained.is_none()
    }

    /// Looks whether the files have changed.
    pub fn look(&mut self) -> Change {
        let seen = (stamp(&self.files.cert), stamp(&self.files.key));
        // What could not be used is read again: it may have been read while it was written, in the same tick of the clock.
        if seen == self.seen && self.complained.is_none() {
            return Change::None;
        }
        self.seen = seen;
        match read_pair(&self.files) {
            Ok(read) => {
                self.complained = None;
                let same = read.certified_key().cert == self.current.certified_key().cert;
                if same {
                    return Change::None;
                }
                self.current = Arc::new(read);
                Change::Replaced(self.current.clone())
            }
            Err(why) if self.complained.as_deref() == Some(&why) => Change::None,
            Err(why) => {
                self.complained = Some(why.clone());
                Change::Unusable(why)
            }
        }
    }
}
