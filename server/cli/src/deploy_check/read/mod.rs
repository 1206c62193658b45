//! Reads the facts.
//!
//! Contract: loads no app, listens nowhere, writes nothing, and ends within seconds: each program and look-up has a time limit.

mod names;
mod process;
mod rails;
mod ruby;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use settings::{ControlAddress, Loaded, Settings};

use super::DeployCheckWish;
use super::facts::{
    DeployFacts, EnvironmentName, FolderPurpose, LookedUpNames, TemporaryFolder, WrittenFolder,
};
use super::platform::{ProxyInFront, Surroundings};

/// How long `nginx -v` may take.
const NGINX: Duration = Duration::from_secs(2);

/// Returns a variable that is set and not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()).filter(|value| !value.is_empty())
}

/// Reads everything that the questions are answered from.
pub(super) fn read(loaded: &Loaded, wish: &DeployCheckWish, environment: EnvironmentName) -> DeployFacts {
    let settings = &loaded.settings;
    let has_app = settings.app.is_some();
    let surroundings =
        Surroundings::detect(wish.behind, wish.grace, settings, |name| variable(name).is_some());
    let asks_nginx = settings.rack.early_hints && surroundings.proxy == ProxyInFront::Nginx;
    let rails = has_app.then(|| rails::read(&settings.dir, &environment.name, &variable)).flatten();
    let temp_dir = &settings.process.temp_dir;
    let public = settings.files.public.clone().unwrap_or_else(|| settings.base().join("public"));
    DeployFacts {
        worker_memory: worker_memory(loaded),
        sections: settings.config.as_deref().map(sections).unwrap_or_default(),
        ruby: has_app.then(|| ruby::ask(settings, rails::has_active_record(&settings.dir))),
        folders: folders(settings, rails.is_some()),
        temp: TemporaryFolder {
            problem: problem(temp_dir),
            in_memory: sys::file::is_in_memory(temp_dir),
            free: sys::file::free_bytes(temp_dir),
        },
        addresses: settings
            .binds
            .iter()
            .map(|bind| (bind.clone(), front::try_address(bind, &settings.binds)))
            .collect(),
        port_variable: variable("PORT").and_then(|port| port.parse().ok()).filter(|port| *port > 0),
        program: std::env::current_exe().unwrap_or_else(|_| PathBuf::from("firebrick")),
        certificates: certificates(settings),
        now: SystemTime::now(),
        names: if wish.offline {
            LookedUpNames::Skipped
        } else {
            LookedUpNames::Done(names::look_up(settings))
        },
        nginx: asks_nginx.then(nginx).flatten(),
        jemalloc: front::jemalloc(),
        arenas: variable("MALLOC_ARENA_MAX"),
        public_entries: std::fs::read_dir(public).ok().map(Iterator::count),
        machine: loaded.machine.clone(),
        soft_open_files: sys::machine::soft_open_files(),
        database_limit: wish.database_connections,
        settings: settings.clone(),
        environment,
        surroundings,
        rails,
    }
}

/// Returns the names of the tables of a TOML file that has been read before.
fn sections(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let name = |line: &str| {
        let (name, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
        Some(name.trim().trim_matches('"').to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// The memory of a worker, where a setting tells it.
fn worker_memory(loaded: &Loaded) -> Option<u64> {
    let is_set = |key: &str| loaded.choices.iter().any(|choice| choice.key == key);
    let estimate = loaded.settings.workers_auto.filter(|_| is_set("worker_memory_estimate"));
    loaded.settings.limits.worker_memory.or(estimate)
}

/// Returns the certificates in files, and those obtained before.
fn certificates(settings: &Settings) -> Vec<stats::CertificateSnapshot> {
    let obtained = if settings.acme.is_on() && settings.acme.storage.is_none() {
        certs::stored(&settings.acme).unwrap_or_default()
    } else {
        Vec::new()
    };
    [certs::in_files(settings), obtained].concat()
}

/// Returns the reason why no file can be made in a folder, or in the parent in which it would be made.
fn problem(folder: &Path) -> Option<String> {
    front::writable_folder(Some(folder)).err().map(|error| error.to_string())
}

fn folders(settings: &Settings, rails: bool) -> Vec<WrittenFolder> {
    let mut folders = Vec::new();
    let mut add = |purpose, path: &Path| {
        let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(path);
        folders.push(WrittenFolder { purpose, path: path.to_owned(), problem: problem(existing) });
    };
    let control = settings.control.listen.iter().find_map(|address| match address {
        ControlAddress::Unix(path) => path.parent(),
        ControlAddress::Tcp { .. } => None,
    });
    control.into_iter().for_each(|folder| add(FolderPurpose::ControlSocket, folder));
    let pidfile = settings.process.pidfile.as_deref().and_then(Path::parent);
    pidfile.into_iter().for_each(|folder| add(FolderPurpose::Pidfile, folder));
    if settings.acme.is_on() && settings.acme.storage.is_none() {
        add(FolderPurpose::Certificates, &settings.acme.dir);
    }
    if rails {
        add(FolderPurpose::RailsTemporary, &settings.dir.join("tmp"));
    }
    folders
}

/// Asks the nginx of this machine for its version.
fn nginx() -> Option<(u32, u32, u32)> {
    let run = process::run(Command::new("nginx").arg("-v"), NGINX).ok()?;
    version(&run.err).or_else(|| version(&run.out))
}

/// Reads `nginx version: nginx/1.22.1`, with anything behind it.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let (_, rest) = text.split_once("nginx/")?;
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let mut numbers = rest[..end].split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tables_of_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            file.path(),
            "workers = 2\n[timeouts]\n worker = \"[x]\"\n  [ limits ] # x\n[[rate_limits]]\n",
        )
        .unwrap();
        assert_eq!(sections(file.path()), ["timeouts", "limits", "[rate_limits"]);
        assert_eq!(sections(Path::new("/nonexistent")), Vec::<String>::new());
    }

    #[test]
    fn versions_of_nginx() {
        assert_eq!(version("nginx version: nginx/1.22.1\n"), Some((1, 22, 1)));
        assert_eq!(version("nginx version: nginx/1.29.3 (Ubuntu)"), Some((1, 29, 3)));
        assert_eq!(version("nginx/1.30"), Some((1, 30, 0)));
        assert_eq!(version("openresty/1.25.3.1"), None);
        assert_eq!(version("nginx/x"), None);
    }

    proptest! {
        #[test]
        fn no_version_makes_it_panic(text in ".{0,20}(nginx/)?.{0,30}") {
            version(&text);
        }
    }
}
