//! The system's store on Linux: a directory for the administrator's certificates, and a program that reads it.

use std::path::{Path, PathBuf};

use super::{LocalMachine, Need, TrustCommand, TrustStore};
use crate::local::Authority;

/// The store of a family of distributions.
struct Family {
    /// The directory for the administrator's certificates.
    folder: &'static str,
    /// The program that applies changes, with its arguments.
    update: &'static [&'static str],
    /// The program to run after a certificate was removed.
    update_removed: &'static [&'static str],
    /// The file that programs read, if it can be searched for the certificate.
    bundle: Option<&'static str>,
}

const FAMILIES: [Family; 4] = [
    // Fedora, RHEL and relatives.
    Family {
        folder: "/etc/pki/ca-trust/source/anchors",
        update: &["update-ca-trust", "extract"],
        update_removed: &["update-ca-trust", "extract"],
        bundle: None,
    },
    // Debian, Ubuntu, Alpine and relatives.
    Family {
        folder: "/usr/local/share/ca-certificates",
        update: &["update-ca-certificates"],
        // Without --fresh, the links to removed files stay.
        update_removed: &["update-ca-certificates", "--fresh"],
        bundle: Some("/etc/ssl/certs/ca-certificates.crt"),
    },
    // Arch and relatives.
    Family {
        folder: "/etc/ca-certificates/trust-source/anchors",
        update: &["trust", "extract-compat"],
        update_removed: &["trust", "extract-compat"],
        bundle: None,
    },
    // openSUSE.
    Family {
        folder: "/usr/share/pki/trust/anchors",
        update: &["update-ca-certificates"],
        update_removed: &["update-ca-certificates"],
        bundle: None,
    },
];

const UNKNOWN: &str = "no way to add a certificate is known for this system: install the package ca-certificates, or \
                       add the file in the way its manual describes";

fn family(machine: &LocalMachine) -> Option<(&'static Family, PathBuf)> {
    FAMILIES.iter().find_map(|family| {
        let folder = machine.at(family.folder);
        let program = family.update.first().and_then(|program| machine.program(program));
        (folder.is_dir() && program.is_some()).then_some((family, folder))
    })
}

/// Returns the prefix of this user's files in the directory. Other users of the machine have their own.
fn prefix(machine: &LocalMachine) -> String {
    format!("firebrick-local-authority-{}-", machine.uid)
}

pub(super) fn install(machine: &LocalMachine, authority: &Authority) -> TrustStore {
    let Some((family, folder)) = family(machine) else { return unknown() };
    let id = authority.name().rsplit(' ').next().unwrap_or_default();
    let target = folder.join(format!("{}{id}.crt", prefix(machine)));
    let same = |a: &Path, b: &Path| std::fs::read(a).is_ok_and(|a| std::fs::read(b).is_ok_and(|b| a == b));
    let copied = same(&target, &authority.file());
    let mut steps = Vec::new();
    if !copied {
        let (from, to) = (authority.file().display().to_string(), target.display().to_string());
        steps.push(TrustCommand::new(["install", "-m", "0644", &from, &to]));
    }
    if !copied || !in_force(machine, family, authority) {
        steps.push(TrustCommand::new(family.update.iter().copied()));
    }
    TrustStore { name: shown(&folder), need: as_root(machine, steps) }
}

pub(super) fn remove(machine: &LocalMachine) -> TrustStore {
    let Some((family, folder)) = family(machine) else { return unknown() };
    let prefix = prefix(machine);
    let ours = |name: &str| name.starts_with(&prefix) && name.ends_with(".crt");
    let mut files: Vec<String> = std::fs::read_dir(&folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok())
        .filter(|entry| entry.file_name().to_str().is_some_and(ours))
        .map(|entry| entry.path().display().to_string())
        .collect();
    files.sort();
    let mut steps = Vec::new();
    if !files.is_empty() {
        steps.push(TrustCommand::new(["rm", "-f", "--"].into_iter().map(str::to_owned).chain(files)));
        steps.push(TrustCommand::new(family.update_removed.iter().copied()));
    }
    TrustStore { name: shown(&folder), need: as_root(machine, steps) }
}

fn shown(folder: &Path) -> String {
    format!("system store ({})", folder.display())
}

fn unknown() -> TrustStore {
    TrustStore { name: "system store".to_owned(), need: Need::Impossible(UNKNOWN.to_owned()) }
}

/// Whether the file that programs read contains the certificate; `true` if that is unknown.
fn in_force(machine: &LocalMachine, family: &Family, authority: &Authority) -> bool {
    let Some(Ok(bundle)) = family.bundle.map(|bundle| std::fs::read_to_string(machine.at(bundle))) else {
        return true;
    };
    // Any line of the PEM text identifies the certificate, except the first lines, which all authorities share.
    let text = std::fs::read_to_string(authority.file()).unwrap_or_default();
    text.lines().rev().nth(2).is_none_or(|line| bundle.contains(line))
}

fn as_root(machine: &LocalMachine, steps: Vec<TrustCommand>) -> Need {
    if steps.is_empty() {
        return Need::Nothing;
    }
    if machine.uid == 0 {
        return Need::Run(steps);
    }
    let with = |helper: &str| {
        steps
            .iter()
            .map(|step| TrustCommand::new([helper.to_owned()].into_iter().chain(step.0.iter().cloned())))
            .collect()
    };
    match ["sudo", "doas"].into_iter().find(|helper| machine.program(helper).is_some()) {
        Some(helper) => Need::Run(with(helper)),
        None => {
            let typed: Vec<String> = steps.iter().map(TrustCommand::to_string).collect();
            Need::Impossible(format!(
                "it belongs to root, and there is no sudo; as root, run: {}",
                typed.join(" && ")
            ))
        }
    }
}
