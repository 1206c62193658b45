//! The login keychain of macOS, by the program `security`. Safari, Chrome and curl read it.
//!
//! The user's own settings need no sudo; macOS asks for the password in a window.

use std::process::{Command, Stdio};

use super::{LocalMachine, Need, TrustCommand, TrustStore, names_in};
use crate::local::{Authority, COMMON_NAME};

fn keychain(machine: &LocalMachine) -> String {
    machine.home.join("Library/Keychains/login.keychain-db").display().to_string()
}

fn store(machine: &LocalMachine, need: Need) -> TrustStore {
    TrustStore { name: format!("login keychain ({})", keychain(machine)), need }
}

pub(super) fn install(machine: &LocalMachine, authority: &Authority) -> TrustStore {
    let (keychain, file) = (keychain(machine), authority.file().display().to_string());
    if asked(&["verify-cert", "-q", "-l", "-c", &file]).is_some() {
        return store(machine, Need::Nothing);
    }
    let add = ["security", "add-trusted-cert", "-r", "trustRoot", "-p", "ssl", "-k", &keychain, &file];
    store(machine, Need::Run(vec![TrustCommand::new(add)]))
}

pub(super) fn remove(machine: &LocalMachine, authority: Option<&Authority>) -> TrustStore {
    let keychain = keychain(machine);
    let list = asked(&["find-certificate", "-a", "-c", COMMON_NAME, &keychain]).unwrap_or_default();
    let names = names_in(&list);
    let mut steps = Vec::new();
    for name in names {
        // Trust settings are found by the certificate's file, which exists only for the current authority.
        if let Some(authority) = authority.filter(|authority| authority.name() == name) {
            let file = authority.file().display().to_string();
            steps.push(TrustCommand::new(["security", "remove-trusted-cert", &file]));
        }
        steps.push(TrustCommand::new(["security", "delete-certificate", "-c", &name, "-t", &keychain]));
    }
    store(machine, if steps.is_empty() { Need::Nothing } else { Need::Run(steps) })
}

/// Returns the output of a command that only reads; `None` if it fails.
fn asked(arguments: &[&str]) -> Option<String> {
    let output = Command::new("security").args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
