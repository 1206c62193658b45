//! `firebrick ps`: the servers of this machine, of all users.
//!
//! Why two ways: a control socket tells everything, but only to its owner; the list of processes tells all users a little.
//!
//! Contract:
//! 1. A server is listed once, however many sockets it has. A server that does not answer within [`WITHIN`] is listed as well.
//! 2. Servers of other users are listed with what the system tells; the reason for the rest is beside them.
//! 3. Servers of other containers are not seen, and without /proc only those whose sockets are in a folder that this user may read.

use crate::caller::ControlCaller;
use crate::client::ControlClient;
use crate::table::span;
use rustix::process::Pid;
use serde::Serialize;
use settings::ControlAddress;
use settings::table::COMMANDS;
use stats::Status;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use sys::process::RunningProgram;

/// The longest wait for the answer of a server.
const WITHIN: Duration = Duration::from_secs(2);

/// A server, as far as it is known.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct FoundServer {
    pid: u32,
    user: String,
    /// The state of the server; `None` if it does not tell this user.
    state: Option<String>,
    up_s: Option<f64>,
    workers: Option<u32>,
    workers_ready: Option<u32>,
    addresses: Vec<String>,
    dir: Option<String>,
    version: Option<String>,
    /// The command line; without a state the only hint.
    command: Option<String>,
    /// The reason why more is not known.
    why: Option<String>,
}

/// Runs `firebrick ps`.
pub fn ps_command(json: bool) -> ExitCode {
    let servers = servers();
    let text = match (json, servers.is_empty()) {
        (true, _) => serde_json::to_string_pretty(&servers).unwrap_or_default(),
        (false, true) => "no Firebrick is running on this machine".to_owned(),
        (false, false) => table(&servers),
    };
    output::print(format!("{}\n", text.trim_end()).as_bytes());
    ExitCode::SUCCESS
}

fn servers() -> Vec<FoundServer> {
    let mut found = BTreeMap::new();
    for path in sockets() {
        let address = ControlAddress::Unix(path);
        if let Ok(status) = ControlClient::new(address, None).within(WITHIN).status() {
            found.entry(status.pid).or_insert_with(|| of_status(status));
        }
    }
    for (pid, program) in fronts() {
        found.entry(pid).or_insert_with(|| of_program(pid, &program));
    }
    let mut all: Vec<FoundServer> = found.into_values().collect();
    all.sort_by(|one, other| (&one.dir, one.pid).cmp(&(&other.dir, other.pid)));
    all
}

fn of_status(status: Status) -> FoundServer {
    FoundServer {
        pid: status.pid,
        user: user(status.pid),
        state: Some(match status.ready {
            true => status.state.to_string(),
            false => format!("{} (not ready)", status.state),
        }),
        up_s: Some(status.uptime()),
        workers: status.workers,
        workers_ready: status.workers_ready,
        addresses: status.addresses,
        dir: Some(status.dir),
        version: Some(status.version),
        command: None,
        why: None,
    }
}

fn of_program(pid: u32, program: &RunningProgram) -> FoundServer {
    let is_own = owner(pid) == Some(rustix::process::getuid().as_raw());
    let up = program.began.and_then(|began| SystemTime::now().duration_since(began).ok());
    FoundServer {
        pid,
        user: user(pid),
        state: None,
        up_s: up.map(|up| up.as_secs_f64()),
        workers: None,
        workers_ready: None,
        addresses: Vec::new(),
        dir: sys::process::working_dir(pid).map(|dir| dir.display().to_string()),
        version: None,
        command: Some(program.words.join(" ")),
        why: Some(match is_own {
            true => "its control socket is off, elsewhere, or does not answer".to_owned(),
            false => format!("only {} and root may ask it", user(pid)),
        }),
    }
}

/// Returns the processes that serve: those of this program's name that run no other command, apart from their own children.
fn fronts() -> Vec<(u32, RunningProgram)> {
    let known: Vec<_> = sys::process::running()
        .into_iter()
        .filter(|stat| stat.pid > 0 && stat.pid != std::process::id().cast_signed())
        .filter_map(|stat| Some((stat, sys::process::program(Pid::from_raw(stat.pid)?)?)))
        .filter(|(_, program)| is_front(&program.words))
        .collect();
    let pids: Vec<i32> = known.iter().map(|(stat, _)| stat.pid).collect();
    let own = known.into_iter().filter(|(stat, _)| !pids.contains(&stat.parent));
    own.filter_map(|(stat, program)| Some((u32::try_from(stat.pid).ok()?, program))).collect()
}

/// Returns whether this is the command line of a server. Workers and templates have titles: `firebrick: worker 0`.
fn is_front(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    let program = words.next().and_then(|word| word.rsplit('/').next());
    let other = |word: &str| word != "serve" && COMMANDS.iter().any(|command| command.name == word);
    let internal = |word: &str| ["--guard-service", "--guard-child", "--exec-service"].contains(&word);
    program == Some("firebrick") && !words.any(|word| other(word) || internal(word))
}

/// Returns the paths of control sockets: of all users where the system tells, otherwise those in folders that this user may read.
fn sockets() -> Vec<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("firebrick"));
    let below = |folder: &str| entries(Path::new(folder));
    let of_users = below("/run/user").into_iter().map(|dir| dir.join("firebrick"));
    let folders =
        runtime.into_iter().chain([PathBuf::from("/run/firebrick")]).chain(below("/tmp")).chain(of_users);
    let listed = folders.filter(|folder| is_folder_of_sockets(folder)).flat_map(|folder| entries(&folder));
    let mut all: Vec<PathBuf> = sys::socket::listening_paths().into_iter().chain(listed).collect();
    all.retain(|path| is_control_socket(path));
    all.sort();
    all.dedup();
    all
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn is_folder_of_sockets(folder: &Path) -> bool {
    folder.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        name == "firebrick" || name.strip_prefix("firebrick-").is_some_and(|uid| uid.parse::<u32>().is_ok())
    })
}

/// Returns whether a path is that of a control socket by its name: sixteen digits of the directory, and a process id where a directory has two.
fn is_control_socket(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".sock"));
    let Some((digits, rest)) = name.and_then(|name| name.split_at_checked(16)) else { return false };
    let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_hex
        && (rest.is_empty() || rest.strip_prefix('-').is_some_and(|pid| pid.parse::<u32>().is_ok()))
        && path.parent().is_some_and(is_folder_of_sockets)
}

fn owner(pid: u32) -> Option<u32> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid())
}

fn user(pid: u32) -> String {
    ControlCaller::User(owner(pid)).to_string()
}

fn table(servers: &[FoundServer]) -> String {
    let titles =
        ["PID", "USER", "STATE", "UP", "WORKERS", "ADDRESSES", "DIRECTORY"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(titles).chain(servers.iter().map(row)).collect();
    let widths: Vec<usize> = (0..rows[0].len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
        if let Some(why) = at.checked_sub(1).and_then(|at| servers[at].why.as_deref()) {
            text.push_str(&format!("{:1$}{why}\n", "", widths[0] + 2));
        }
    }
    text
}

fn row(server: &FoundServer) -> Vec<String> {
    let unknown = || "?".to_owned();
    let workers = match (server.workers, server.workers_ready) {
        (Some(all), ready) => format!("{}/{all}", ready.unwrap_or(0)),
        (None, _) if server.state.is_some() => "-".to_owned(),
        (None, _) => unknown(),
    };
    let addresses = match server.addresses.as_slice() {
        [] => unknown(),
        all => all.join(" "),
    };
    vec![
        server.pid.to_string(),
        server.user.clone(),
        server.state.clone().unwrap_or_else(unknown),
        server.up_s.map_or_else(unknown, span),
        workers,
        addresses,
        server.dir.clone().or_else(|| server.command.clone()).unwrap_or_else(unknown),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_command_line() {
        let is = |line: &str| is_front(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in [
            "firebrick",
            "/usr/bin/firebrick serve -p 3000",
            "firebrick ~/shop -w 4",
            "./firebrick -p 0 serve",
        ] {
            assert!(is(line), "{line}");
        }
        for line in [
            "firebrick: worker 0 [shop]",
            "firebrick top",
            "firebrick bench http://x/",
            "puma",
            "vim firebrick",
            "firebrick --guard-service redis",
        ] {
            assert!(!is(line), "{line}");
        }
    }

    #[test]
    fn a_control_socket_is_known_by_its_path() {
        let is = |path: &str| is_control_socket(Path::new(path));
        for path in [
            "/run/user/1000/firebrick/0123456789abcdef.sock",
            "/tmp/firebrick-1000/0123456789abcdef.sock",
            "/run/firebrick/0123456789abcdef-77.sock",
        ] {
            assert!(is(path), "{path}");
        }
        for path in [
            "",
            "/tmp/0123456789abcdef.sock",
            "/run/firebrick/0123456789abcdeg.sock",
            "/run/firebrick/0123456789abcdef-x.sock",
            "/run/firebrick/0123456789abcdef",
            "/run/firebrick/é.sock",
            "/run/firebrick-x/0123456789abcdef.sock",
        ] {
            assert!(!is(path), "{path}");
        }
    }

    #[test]
    fn a_server_that_does_not_tell_has_a_line_with_the_reason() {
        let server = FoundServer {
            pid: 7,
            user: "amy".to_owned(),
            state: None,
            up_s: Some(61.0),
            workers: None,
            workers_ready: None,
            addresses: Vec::new(),
            dir: None,
            version: None,
            command: Some("firebrick shop".to_owned()),
            why: Some("only amy and root may ask it".to_owned()),
        };
        let text = table(&[server]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("PID  USER  STATE  UP"), "{text}");
        assert!(lines[1].ends_with("firebrick shop") && lines[1].contains("1 min 1 s"), "{text}");
        assert_eq!(lines[2], "     only amy and root may ask it");
    }
}
