//! A helper process that outlives this one, to stop servers that this one could not stop.
//!
//! Servers are stopped when their [`Guarded`] is dropped. That does not happen if this process is killed
//! (`kill -9`, out of memory). So a copy of the program waits at the other end of a pipe, in its own process
//! group. This process announces each server to it, and when the pipe breaks it stops the remaining ones.
//!
//! Contract:
//! 1. The guard stops only servers that were announced to it and not reported as stopped.
//! 2. It sends TERM, waits, then sends KILL. Then it removes the servers' folder and exits.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::processes::ServerProcesses;

/// The hidden flag that starts the guard.
pub(crate) const FLAG: &str = "guard";
/// Prefix of the folders that the guard removes.
pub(crate) const FOLDER: &str = "firebrick-tune-";
/// The time limit for a server to stop after TERM.
const TERM_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The guard process and the pipe to it.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Guard {
    /// Starts the guard. The servers write to `folder`, whose name begins with [`FOLDER`].
    ///
    /// # Errors
    /// The program cannot be started again.
    pub(crate) fn start(program: &Path, folder: &Path) -> io::Result<Guard> {
        let mut command = Command::new(program);
        command.args(["tune", &format!("--{FLAG}")]).current_dir("/").process_group(0);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut pipe = child.stdin.take();
        if let Some(pipe) = &mut pipe {
            writeln!(pipe, "{}", folder.display())?;
        }
        Ok(Guard { child, pipe: Arc::new(Mutex::new(pipe)) })
    }

    /// Announces a server to the guard. The server is stopped when the returned value is dropped, or by the guard.
    pub(crate) fn watch(&self, processes: ServerProcesses) -> Guarded {
        let guarded = Guarded { processes, pipe: Arc::clone(&self.pipe) };
        guarded.tell('+');
        guarded
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing the pipe ends the guard.
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.child.wait();
    }
}

/// A server that is stopped in all cases.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) processes: ServerProcesses,
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Guarded {
    fn tell(&self, sign: char) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // If the guard was killed, writing fails harmlessly: this process still stops the servers.
            let ServerProcesses { leader, started, mark } = &self.processes;
            let _ = writeln!(pipe, "{sign}{leader} {started} {mark}");
        }
    }

    /// Sends TERM, waits, then kills the remaining processes. Calls `reap` repeatedly to wait for the child.
    pub(crate) fn end(&self, mut reap: impl FnMut()) {
        end(&self.processes, &mut reap);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.tell('-');
    }
}

/// Stops a server: sends TERM to its first process, which stops the others, and KILL to the remaining ones.
fn end(processes: &ServerProcesses, reap: &mut dyn FnMut()) {
    if let Some(leader) = rustix::process::Pid::from_raw(processes.leader)
        && processes.pids().contains(&processes.leader)
    {
        let _ = rustix::process::kill_process(leader, Signal::TERM);
        gone_within(processes, TERM_TIMEOUT, reap);
    }
    processes.signal(Signal::TERM);
    if !gone_within(processes, TERM_TIMEOUT / 10, reap) {
        processes.signal(Signal::KILL);
        gone_within(processes, TERM_TIMEOUT, reap);
    }
}

fn gone_within(processes: &ServerProcesses, timeout: Duration, reap: &mut dyn FnMut()) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        reap();
        if processes.pids().is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(POLL_INTERVAL);
    }
}

/// The guard's main function: reads until the pipe breaks, then stops the remaining servers.
pub(crate) fn keep(input: impl BufRead) -> ExitCode {
    let mut left: Vec<ServerProcesses> = Vec::new();
    let mut folder = None;
    for line in input.lines().map_while(Result::ok) {
        folder = folder.or_else(|| own_folder(&line));
        note(&mut left, &line);
    }
    for processes in &left {
        end(processes, &mut || ());
    }
    if let Some(folder) = folder {
        // Usually the folder has been removed already.
        let _ = std::fs::remove_dir_all(folder);
    }
    ExitCode::SUCCESS
}

/// Returns the folder if it may be removed, which is the case if it has our prefix.
fn own_folder(line: &str) -> Option<PathBuf> {
    let path = Path::new(line);
    let named = path.file_name()?.to_str()?.starts_with(FOLDER);
    (named && path.is_absolute()).then(|| path.to_path_buf())
}

fn note(left: &mut Vec<ServerProcesses>, line: &str) {
    let Some((leader, (started, mark))) = line.get(1..).and_then(|rest| {
        let (leader, rest) = rest.split_once(' ')?;
        Some((leader, rest.split_once(' ')?))
    }) else {
        return;
    };
    let (Ok(leader), Ok(started)) = (leader.parse::<i32>(), started.parse::<u64>()) else { return };
    let processes = ServerProcesses { leader, started, mark: mark.to_owned() };
    left.retain(|other| *other != processes);
    // A pid of 0 or less would signal this process group, or all processes.
    if line.starts_with('+') && leader > 1 && !mark.is_empty() {
        left.push(processes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::MARK;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn sleeper(mark: &str) -> (Child, ServerProcesses) {
        let mut command = Command::new("sleep");
        let child = command.arg("60").env(MARK, mark).process_group(0).spawn().unwrap();
        let processes = ServerProcesses::of(child.id() as i32, mark.to_owned());
        (child, processes)
    }

    #[test]
    fn only_servers_not_reported_as_stopped_are_stopped() {
        let (mut left, one) = sleeper("guard-left");
        let (mut ended, two) = sleeper("guard-ended");
        let folder = tempfile::Builder::new().prefix(FOLDER).tempdir().unwrap();
        let input = format!(
            "{}\n+{} 0 {}\n+{} 0 {}\n-{} 0 {}\n",
            folder.path().display(),
            one.leader,
            one.mark,
            two.leader,
            two.mark,
            two.leader,
            two.mark
        );
        // An exited child stays a zombie until its parent waits for it, as here.
        let waiter = std::thread::spawn(move || left.wait().unwrap());
        keep(input.as_bytes());
        assert!(!waiter.join().unwrap().success());
        assert!(!folder.path().exists());
        assert!(ended.try_wait().unwrap().is_none(), "this one was reported as stopped");
        ended.kill().unwrap();
        ended.wait().unwrap();
    }

    #[test]
    fn only_our_own_folder_is_removed() {
        assert!(own_folder("/tmp/firebrick-tune-x").is_some());
        for other in ["/", "/tmp", "firebrick-tune-x", "/firebrick-tune-x/..", "", "+1 /tmp/firebrick"] {
            assert_eq!(own_folder(other), None, "{other}");
        }
    }

    #[test]
    fn a_server_that_ignores_term_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]).stdout(Stdio::piped());
        let mut child = command.env(MARK, "guard-deaf").process_group(0).spawn().unwrap();
        // Until the trap is set, TERM ends the shell.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let processes = ServerProcesses::of(child.id() as i32, "guard-deaf".to_owned());
        processes.signal(Signal::TERM);
        assert!(!gone_within(&processes, Duration::from_millis(100), &mut || ()));
        processes.signal(Signal::KILL);
        assert!(gone_within(&processes, TERM_TIMEOUT, &mut || drop(child.try_wait())));
    }

    proptest! {
        #[test]
        fn invalid_input_stops_nothing(text in any::<String>(), leader in -5..2) {
            let mut left = Vec::new();
            note(&mut left, &text);
            note(&mut left, &format!("+{leader} 0 mark"));
            prop_assert!(left.iter().all(|processes: &ServerProcesses| processes.leader > 1));
        }
    }
}
