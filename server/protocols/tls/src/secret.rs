//! The secret from which the keys of session tickets are derived.
//!
//! Contract:
//! 1. The secret is never shown. Only the owner can read its file, from the moment it exists.
//! 2. Servers that start at the same time with the same file use the same secret.

use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The shortest secret, in bytes.
const LEAST: usize = 32;
/// The largest file, in bytes.
const MOST: u64 = 4096;

/// The secret from which the keys of session tickets are derived.
#[derive(Clone)]
pub struct TicketSecret(Vec<u8>);

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(not shown)")
    }
}

/// Generates 32 random bytes in hexadecimal digits.
///
/// # Errors
/// The system has no random numbers.
pub fn random_secret() -> io::Result<String> {
    let mut bytes = [0; LEAST];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(text::hex(&bytes))
}

impl TicketSecret {
    /// Uses a configured secret.
    pub fn new(text: &str) -> TicketSecret {
        TicketSecret(text.as_bytes().to_vec())
    }

    /// Generates a secret for this process only.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> io::Result<TicketSecret> {
        Ok(TicketSecret(random_secret()?.into_bytes()))
    }

    /// Reads the secret from `file`, which is created if it is missing.
    ///
    /// # Errors
    /// The file cannot be read or created, other users can read it, or its content is too short. The text
    /// names a remedy.
    pub fn kept_in(file: &Path) -> Result<TicketSecret, String> {
        loop {
            match read(file) {
                Ok(secret) => return Ok(secret),
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.to_string()),
                Err(_) => make(file).map_err(|error| format!("it cannot be made: {error}"))?,
            }
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

fn read(file: &Path) -> io::Result<TicketSecret> {
    let opened = fs::File::open(file)?;
    let mode = opened.metadata()?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others may read it (mode {:04o}): chmod 600, or delete it, and a new one is made",
            mode & 0o7777
        )));
    }
    let mut text = Vec::new();
    opened.take(MOST + 1).read_to_end(&mut text)?;
    let trimmed = text.trim_ascii();
    if trimmed.len() < LEAST || text.len() as u64 > MOST {
        return Err(io::Error::other(format!(
            "it has to hold {LEAST} to {MOST} bytes (`openssl rand -hex 32` makes some), it holds {}",
            trimmed.len()
        )));
    }
    Ok(TicketSecret(trimmed.to_vec()))
}

/// Creates the file with its full content. Keeps a file that another process has created meanwhile.
fn make(file: &Path) -> io::Result<()> {
    if let Some(dir) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    let draft = file.with_extension(format!("{}.new", &random_secret()?[..16]));
    let written = write(&draft).and_then(|()| match fs::hard_link(&draft, file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    });
    let _ = fs::remove_file(&draft);
    written
}

fn write(draft: &Path) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(draft)?;
    writeln!(opened, "{}", random_secret()?)?;
    opened.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_for_one_user() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/dir/tickets.secret");
        let first = TicketSecret::kept_in(&file).unwrap();
        assert_eq!(first.bytes(), TicketSecret::kept_in(&file).unwrap().bytes());
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no draft is left");
        assert!(!format!("{first:?}").contains(&*String::from_utf8_lossy(first.bytes())));
    }

    #[test]
    fn what_cannot_be_used_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        let refused = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            TicketSecret::kept_in(&file).unwrap_err()
        };
        assert!(refused("short", 0o600).contains("32 to"));
        assert!(refused(&"x".repeat(64), 0o644).contains("chmod 600"));
        assert!(TicketSecret::kept_in(Path::new("/proc/none/s")).unwrap_err().contains("cannot be made"));
    }

    #[test]
    fn servers_that_start_together_agree() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s");
        let all: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let read = || TicketSecret::kept_in(&file).unwrap().bytes().to_vec();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(all.windows(2).all(|pair| pair[0] == pair[1]));
    }
}
