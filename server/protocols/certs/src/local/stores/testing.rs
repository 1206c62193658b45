//! A machine in a temporary directory, for tests.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use super::{LocalMachine, Need, TrustCommand, TrustStore};
use crate::local::Authority;

pub(super) struct Fake {
    _dir: tempfile::TempDir,
    pub(super) machine: LocalMachine,
    pub(super) authority: Authority,
}

impl Fake {
    /// Creates an empty home directory, no programs, and a user who is not root.
    pub(super) fn new() -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let data = home.join(".local/share");
        let (authority, _) = Authority::open(&data.join("firebrick"), SystemTime::now()).unwrap();
        let (root, path) = (dir.path().join("root"), vec![dir.path().join("bin")]);
        let machine = LocalMachine { home, data, root, path, uid: 1000, macos: false };
        Fake { _dir: dir, machine, authority }
    }

    /// Creates a directory below the root.
    pub(super) fn folder(&self, path: &str) -> PathBuf {
        let folder = self.machine.at(path);
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    /// Adds a program: a shell script.
    pub(super) fn program(&self, name: &str, script: &str) {
        let folder = &self.machine.path[0];
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Runs the commands for a store, with the fake programs first.
    pub(super) fn run(&self, store: &TrustStore) {
        let Need::Run(steps) = &store.need else { panic!("{store:?}") };
        let path = format!("{}:{}", self.machine.path[0].display(), std::env::var("PATH").unwrap());
        for step in steps {
            let status =
                Command::new("sh").arg("-c").arg(step.to_string()).env("PATH", &path).status().unwrap();
            assert!(status.success(), "{step}");
        }
    }
}

/// Returns the commands for a store that needs some.
pub(super) fn lines(store: &TrustStore) -> Vec<String> {
    let Need::Run(steps) = &store.need else { panic!("{store:?}") };
    steps.iter().map(TrustCommand::to_string).collect()
}

/// Returns the directory of the real certutil.
pub(super) fn certutil() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("certutil").is_file())
}

/// Returns the certificates in a real database.
pub(super) fn listed(folder: &Path) -> String {
    let listed =
        Command::new("certutil").args(["-L", "-d"]).arg(format!("sql:{}", folder.display())).output();
    String::from_utf8_lossy(&listed.unwrap().stdout).into_owned()
}
