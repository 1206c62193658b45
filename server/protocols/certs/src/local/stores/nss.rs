//! NSS databases (cert9.db). Chromium and its relatives read them on Linux, Firefox everywhere.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::{LocalMachine, Need, TrustCommand, TrustStore, names_in};
use crate::local::Authority;

const NO_CERTUTIL: &str = "certutil is not installed: the package is libnss3-tools (Debian, Ubuntu), nss-tools (Fedora, \
                           RHEL, Alpine), nss (Arch, Homebrew) or mozilla-nss-tools (openSUSE)";

#[derive(Debug)]
pub(super) struct Database {
    /// The programs that read the database.
    pub(super) reader: String,
    pub(super) folder: PathBuf,
}

/// Returns the databases of Chromium and its relatives.
///
/// Since version 146, Chromium reads `~/.local/share/pki/nssdb` unless `~/.pki/nssdb` exists; older versions
/// read only the latter. The latter is not created for a user who has the former, because Chromium would then
/// ignore the certificates there.
pub(super) fn chromium(machine: &LocalMachine) -> impl Iterator<Item = Database> {
    let (new, old) = (machine.data.join("pki/nssdb"), machine.home.join(".pki/nssdb"));
    let mut folders = Vec::new();
    if old.is_dir() || !new.is_dir() {
        folders.push(old);
    }
    folders.push(new);
    let packaged = ["snap/chromium/current/.pki/nssdb", ".var/app/org.chromium.Chromium/.pki/nssdb"];
    let flatpak =
        [".var/app/org.chromium.Chromium/data/pki/nssdb", ".var/app/com.google.Chrome/data/pki/nssdb"];
    let found = packaged.into_iter().chain(flatpak).map(|path| machine.home.join(path));
    folders.extend(found.filter(|folder| folder.join("cert9.db").exists()));
    let reader = |folder| Database { reader: "Chromium".to_owned(), folder };
    folders.into_iter().map(reader)
}

impl Database {
    pub(super) fn install(self, machine: &LocalMachine, authority: &Authority) -> TrustStore {
        let (file, name) = (authority.file().display().to_string(), authority.name());
        let d = self.address();
        let need = self.with_certutil(machine, |certutil| {
            let mut steps = Vec::new();
            if !self.exists() {
                steps.push(TrustCommand::new([
                    "mkdir",
                    "-p",
                    "-m",
                    "0700",
                    "--",
                    &self.folder.display().to_string(),
                ]));
                steps.push(TrustCommand::new(["certutil", "-N", "-d", &d, "--empty-password"]));
            } else if ask(certutil, &["-L", "-d", &d, "-n", name, "-a"]).is_some_and(|text| {
                CertificateDer::from_pem_slice(text.as_bytes())
                    .is_ok_and(|found| found == *authority.certificate())
            }) && ask(certutil, &["-L", "-d", &d]).is_some_and(|text| trusted(&text, name))
            {
                return steps;
            }
            // C: trusted to sign for servers, and for nothing else.
            steps.push(TrustCommand::new(["certutil", "-A", "-d", &d, "-n", name, "-t", "C,,", "-i", &file]));
            steps
        });
        TrustStore { name: self.shown(machine), need }
    }

    pub(super) fn remove(self, machine: &LocalMachine) -> TrustStore {
        let d = self.address();
        let need = if self.exists() {
            self.with_certutil(machine, |certutil| {
                let names = ask(certutil, &["-L", "-d", &d]).map(|text| names_in(&text)).unwrap_or_default();
                names.iter().map(|name| TrustCommand::new(["certutil", "-D", "-d", &d, "-n", name])).collect()
            })
        } else {
            Need::Nothing
        };
        TrustStore { name: self.shown(machine), need }
    }

    fn with_certutil(
        &self,
        machine: &LocalMachine,
        steps: impl FnOnce(&PathBuf) -> Vec<TrustCommand>,
    ) -> Need {
        match machine.program("certutil") {
            // macOS has another program of this name.
            Some(path) if machine.macos && path.starts_with("/usr/bin") => {
                Need::Impossible(NO_CERTUTIL.to_owned())
            }
            Some(path) => {
                let steps = steps(&path);
                if steps.is_empty() { Need::Nothing } else { Need::Run(steps) }
            }
            None => Need::Impossible(NO_CERTUTIL.to_owned()),
        }
    }

    fn exists(&self) -> bool {
        self.folder.join("cert9.db").exists()
    }

    pub(super) fn address(&self) -> String {
        format!("sql:{}", self.folder.display())
    }

    fn shown(&self, machine: &LocalMachine) -> String {
        format!("{} ({})", self.reader, machine.shown(&self.folder))
    }
}

/// Whether the list of certificates shows that this one may sign for servers.
fn trusted(list: &str, name: &str) -> bool {
    list.lines().filter_map(|line| line.strip_prefix(name)).any(|flags| flags.trim().starts_with('C'))
}

/// Returns the output of a command that only reads; `None` if it fails.
fn ask(certutil: &PathBuf, arguments: &[&str]) -> Option<String> {
    let output = Command::new(certutil).args(arguments).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
