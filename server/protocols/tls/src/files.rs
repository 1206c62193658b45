//! Pairs of files, a chain and its key: reads them, and reads them again when they change.
//!
//! Contract:
//! 1. A new certificate replaces the old one only when both files are complete and valid.
//! 2. An error is reported once, not at every check.

use crate::{Certificate, Error};
use settings::CertificateFiles;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use trust::Secret;

/// The largest file, in bytes.
const MOST: u64 = 1 << 20;

/// Reads a chain and its key.
///
/// # Errors
/// A file cannot be read or used. The text names it.
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

/// # Errors
/// The file cannot be read. The text names it.
pub fn read_authorities(file: &Path) -> Result<Secret, String> {
    read(file).map_err(|why| format!("the authorities {} cannot be read: {why}", file.display()))
}

/// Reads a file of at most [`MOST`] bytes.
fn read(file: &Path) -> io::Result<Secret> {
    Secret::read(file, MOST)
}

/// Identifies a version of a file, as far as the kernel tells; `None` if the file is missing.
type Stamp = Option<(u64, u64, (i64, i64), (i64, i64))>;

fn stamp(file: &Path) -> Stamp {
    let found = fs::metadata(file).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.ino(), found.len(), modified, changed))
}

/// A pair of files, and the certificate last read from it.
#[derive(Debug)]
pub struct Pair {
    files: CertificateFiles,
    seen: (Stamp, Stamp),
    current: Arc<Certificate>,
    complained: Option<String>,
}

/// The result of a check.
#[derive(Debug)]
pub enum FileChange {
    None,
    Replaced(Arc<Certificate>),
    /// The files have changed and cannot be used, for this reason. The old certificate stays in force.
    Unusable(String),
}

impl Pair {
    /// # Errors
    /// See [`read_pair`].
    pub fn open(files: CertificateFiles) -> Result<Pair, String> {
        let seen = (stamp(&files.cert), stamp(&files.key));
        let current = Arc::new(read_pair(&files)?);
        Ok(Pair { files, seen, current, complained: None })
    }

    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    pub fn current(&self) -> &Arc<Certificate> {
        &self.current
    }

    /// Whether the last check found the certificate in force.
    pub fn is_sound(&self) -> bool {
        self.complained.is_none()
    }

    /// Checks whether the files have changed.
    pub fn look(&mut self) -> FileChange {
        let seen = (stamp(&self.files.cert), stamp(&self.files.key));
        // Invalid files are read again: they may have been read in the middle of a write, within the same
        // tick of the clock.
        if seen == self.seen && self.complained.is_none() {
            return FileChange::None;
        }
        self.seen = seen;
        match read_pair(&self.files) {
            Ok(read) => {
                self.complained = None;
                let same = read.certified_key().cert == self.current.certified_key().cert;
                if same {
                    return FileChange::None;
                }
                self.current = Arc::new(read);
                FileChange::Replaced(self.current.clone())
            }
            Err(why) if self.complained.as_deref() == Some(&why) => FileChange::None,
            Err(why) => {
                self.complained = Some(why.clone());
                FileChange::Unusable(why)
            }
        }
    }
}
