//! The trust stores of this machine and the commands that put the authority into them or take it out.
//!
//! Contract:
//! 1. [`install`] and [`remove`] change nothing: they look at each store and return what would have to be run, in order.
//! 2. A store that needs nothing, or that cannot be changed, says so; the others are not affected.
//! 3. A store that a program reads is listed only if that program or its store is here. The system's store is always listed.

mod firefox;
mod macos;
mod nss;
mod system;

use std::fmt;
use std::path::{Path, PathBuf};

use super::{Authority, COMMON_NAME};

/// Which stores are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The operating system's: curl, Ruby, and browsers on macOS.
    System,
    /// The NSS databases that Chromium and its relatives read on Linux.
    Chromium,
    /// The profiles of Firefox.
    Firefox,
}

impl Kind {
    /// All of them, with the names that users type.
    pub const ALL: [(&'static str, Kind); 3] =
        [("system", Kind::System), ("chromium", Kind::Chromium), ("firefox", Kind::Firefox)];
}

/// One command: a program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step(pub Vec<String>);

impl Step {
    fn new<Word: Into<String>>(words: impl IntoIterator<Item = Word>) -> Step {
        Step(words.into_iter().map(Into::into).collect())
    }
}

/// As it would be typed into a shell.
impl fmt::Display for Step {
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

/// What one store needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: it is as it should be.
    Nothing,
    /// These commands, in order; the first failure ends them.
    Run(Vec<Step>),
    /// It cannot be changed: why, and what to do.
    Impossible(String),
}

/// A store and what it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Which one, for people.
    pub name: String,
    /// What is to be done.
    pub need: Need,
}

/// Where stores and programs are looked for.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The user's home directory.
    pub home: PathBuf,
    /// The user's data folder, usually `~/.local/share`.
    pub data: PathBuf,
    /// The root of the file system; `/` but for tests.
    pub root: PathBuf,
    /// Folders of programs.
    pub path: Vec<PathBuf>,
    /// The user's id; 0 needs no sudo.
    pub uid: u32,
    /// Whether this is macOS.
    pub macos: bool,
}

impl Machine {
    /// This machine. `var` reads an environment variable.
    ///
    /// # Errors
    /// There is no home directory.
    pub fn here(var: impl Fn(&str) -> Option<String>, uid: u32) -> Result<Machine, super::Error> {
        let home = var("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        let home = home.ok_or(super::Error::Homeless)?;
        let data = super::data_home(&var).ok_or(super::Error::Homeless)?;
        let mut path: Vec<PathBuf> = var("PATH").iter().flat_map(std::env::split_paths).collect();
        // update-ca-certificates is there, and the path of ordinary users often leaves it out.
        path.extend(["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from));
        Ok(Machine { home, data, root: PathBuf::from("/"), path, uid, macos: cfg!(target_os = "macos") })
    }

    /// Where the program is.
    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|folder| folder.join(name)).find(|path| path.is_file())
    }

    /// A path below the root.
    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A path for people, with `~` for the home directory.
    fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.home) {
            Ok(rest) => format!("~/{}", rest.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

/// The stores of `kinds`, and what makes each of them trust the authority.
pub fn install(machine: &Machine, authority: &Authority, kinds: &[Kind]) -> Vec<Store> {
    let mut stores = Vec::new();
    for kind in kinds {
        match kind {
            Kind::System if machine.macos => stores.push(macos::install(machine, authority)),
            Kind::System => stores.push(system::install(machine, authority)),
            Kind::Chromium if machine.macos => {}
            Kind::Chromium => {
                stores.extend(nss::chromium(machine).map(|store| store.install(machine, authority)))
            }
            Kind::Firefox => {
                stores.extend(firefox::profiles(machine).map(|store| store.install(machine, authority)))
            }
        }
    }
    stores
}

/// The same for removing every authority of this user's.
pub fn remove(machine: &Machine, authority: Option<&Authority>, kinds: &[Kind]) -> Vec<Store> {
    let mut stores = Vec::new();
    for kind in kinds {
        match kind {
            Kind::System if machine.macos => stores.push(macos::remove(machine, authority)),
            Kind::System => stores.push(system::remove(machine)),
            Kind::Chromium if machine.macos => {}
            Kind::Chromium => stores.extend(nss::chromium(machine).map(|store| store.remove(machine))),
            Kind::Firefox => stores.extend(firefox::profiles(machine).map(|store| store.remove(machine))),
        }
    }
    stores
}

/// The common names of authorities in a text, such as the output of a command that lists certificates.
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
