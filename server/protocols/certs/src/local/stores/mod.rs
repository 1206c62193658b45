//! The trust stores of this machine, and the commands that add the authority to them or remove it.
//!
//! Contract:
//! 1. [`install`] and [`remove`] change nothing: they inspect each store and return the commands to run, in order.
//! 2. A store that needs nothing, or cannot be changed, is reported as such and does not affect the others.
//! 3. A program's store is listed only if that program or its store exists. The system's store is always listed.

mod firefox;
mod macos;
mod nss;
mod system;

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Authority, COMMON_NAME};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrustStoreKind {
    /// The operating system's, for curl, Ruby, and browsers on macOS.
    System,
    /// The NSS databases that Chromium and its relatives read on Linux.
    Chromium,
    Firefox,
}

impl TrustStoreKind {
    /// All kinds, with the names that users type.
    pub const ALL: [(&'static str, TrustStoreKind); 3] = [
        ("system", TrustStoreKind::System),
        ("chromium", TrustStoreKind::Chromium),
        ("firefox", TrustStoreKind::Firefox),
    ];
}

/// One command: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustCommand(pub Vec<String>);

impl TrustCommand {
    fn new<Word: Into<String>>(words: impl IntoIterator<Item = Word>) -> TrustCommand {
        TrustCommand(words.into_iter().map(Into::into).collect())
    }
}

/// Formats the command as it would be typed into a shell.
impl fmt::Display for TrustCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:,=@%+".contains(&byte);
        for (index, word) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            if !word.is_empty() && word.bytes().all(plain) {
                write!(f, "{space}{word}")?;
            } else {
                write!(f, "{space}'{}'", word.replace('\'', "'\\''"))?;
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The store is up to date.
    Nothing,
    /// Run these commands in order, until one fails.
    Run(Vec<TrustCommand>),
    /// The store cannot be changed: the reason and a remedy.
    Impossible(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustStore {
    /// The store's name, for people.
    pub name: String,
    pub need: Need,
}

/// Where to find stores and programs.
#[derive(Clone, Debug)]
pub struct LocalMachine {
    pub home: PathBuf,
    /// The user's data directory, usually `~/.local/share`.
    pub data: PathBuf,
    /// The root of the file system: `/`, except in tests.
    pub root: PathBuf,
    /// The directories in `PATH`.
    pub path: Vec<PathBuf>,
    /// The user's id. 0 needs no sudo.
    pub uid: u32,
    pub macos: bool,
}

impl LocalMachine {
    /// Describes this machine. `var` reads an environment variable.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn here(var: impl Fn(&str) -> Option<String>, uid: u32) -> Result<LocalMachine, super::Error> {
        let home = var("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.ok_or(super::Error::Homeless)?;
        let data = super::data_home(&var).ok_or(super::Error::Homeless)?;
        let mut path: Vec<PathBuf> = var("PATH").iter().flat_map(std::env::split_paths).collect();
        // update-ca-certificates is there, but the path of ordinary users often omits it.
        path.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
        Ok(LocalMachine { home, data, root: PathBuf::from("/"), path, uid, macos: cfg!(target_os = "macos") })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// Returns a path below the root.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Formats a path for people, with `~` for the home directory.
    fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

/// Returns the stores of `kinds`, with the commands that make each of them trust the authority.
pub fn install(machine: &LocalMachine, authority: &Authority, kinds: &[TrustStoreKind]) -> Vec<TrustStore> {
    let mut stores = Vec::new();
    for kind in kinds {
        match kind {
            TrustStoreKind::System if machine.macos => stores.push(macos::install(machine, authority)),
            TrustStoreKind::System => stores.push(system::install(machine, authority)),
            TrustStoreKind::Chromium if machine.macos => {}
            TrustStoreKind::Chromium => {
                stores.extend(nss::chromium(machine).map(|store| store.install(machine, authority)))
            }
            TrustStoreKind::Firefox => {
                stores.extend(firefox::profiles(machine).map(|store| store.install(machine, authority)))
            }
        }
    }
    stores
}

/// Returns the stores of `kinds`, with the commands that remove every authority of this user.
pub fn remove(
    machine: &LocalMachine,
    authority: Option<&Authority>,
    kinds: &[TrustStoreKind],
) -> Vec<TrustStore> {
    let mut stores = Vec::new();
    for kind in kinds {
        match kind {
            TrustStoreKind::System if machine.macos => stores.push(macos::remove(machine, authority)),
            TrustStoreKind::System => stores.push(system::remove(machine)),
            TrustStoreKind::Chromium if machine.macos => {}
            TrustStoreKind::Chromium => {
                stores.extend(nss::chromium(machine).map(|store| store.remove(machine)))
            }
            TrustStoreKind::Firefox => {
                stores.extend(firefox::profiles(machine).map(|store| store.remove(machine)))
            }
        }
    }
    stores
}

/// Returns the common names of authorities in a text, for example in a list of certificates.
fn names_in(text: &str) -> Vec<String> {
    let mut names: Vec<String> = text
        .match_indices(COMMON_NAME)
        .filter_map(|(at, name)| {
            let id = text[at + name.len()..].strip_prefix(' ')?.get(..8)?;
            id.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| format!("{name} {id}"))
        })
        .collect();
    names.dedup();
    names
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
