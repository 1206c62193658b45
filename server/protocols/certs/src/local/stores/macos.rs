//! The login keychain of macOS, by the program `security`. Safari, Chrome and curl read it.
//!
//! The user's own settings need no sudo; macOS asks for the password in a window.

use std::process::{Command, Stdio};

use super::{Machine, Need, Step, Store, names_in};
use crate::local::{Authority, COMMON_NAME};

fn keychain(machine: &Machine) -> String {
    machine.home.join("Library/Keychains/login.keychain-db").display().to_string()
}

fn store(machine: &Machine, need: Need) -> Store {
    Store { name: format!("login keychain ({})", keychain(machine)), need }
}

pub(super) fn install(machine: &Machine, authority: &Authority) -> Store {
    let (keychain, file) = (keychain(machine), authority.file().display().to_string());
    if asked(&["verify-cert", "-q", "-l", "-c", &file]).is_some() {
        return store(machine, Need::Nothing);
    }
    let add = ["security", "add-trusted-cert", "-r", "trustRoot", "-p", "ssl", "-k", &keychain, &file];
    store(machine, Need::Run(vec![Step::new(add)]))
}

pub(super) fn remove(machine: &Machine, authority: Option<&Authority>) -> Store {
    let keychain = keychain(machine);
    let list = asked(&["find-certificate", "-a", "-c", COMMON_NAME, &keychain]).unwrap_or_default();
    let names = names_in(&list);
    let mut steps = Vec::new();
    for name in names {
        // Trust settings are found by the certificate's file, which exists only for the current authority.
        if let Some(authority) = authority.filter(|authority| authority.name() == name) {
            let file = authority.file().display().to_string();
            steps.push(Step::new(["security", "remove-trusted-cert", &file]));
        }
        steps.push(Step::new(["security", "delete-certificate", "-c", &name, "-t", &keychain]));
    }
    store(machine, if steps.is_empty() { Need::Nothing } else { Need::Run(steps) })
}

/// Returns the output of a command that only reads; `None` if it fails.
fn asked(arguments: &[&str]) -> Option<String> {
    let output = Command::new("security").args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
