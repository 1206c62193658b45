//! A second process that outlives this one for a moment, to end the servers that this one could not end itself.
//!
//! Servers are ended when their [`Guarded`] is dropped, which is enough for every end but one: a process that is
//! killed (`kill -9`, the kernel's lack of memory) drops nothing. So a copy of the program waits at the other end of a
//! pipe, in a process group of its own. It is told of each server, and when the pipe breaks it ends those that are left.
//!
//! Contract:
//! 1. The guard ends only servers that it was told of and not told the end of.
//! 2. It asks with TERM, waits, then kills; then it removes their folder and ends itself.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::processes::Family;

/// The hidden flag that makes the program a guard.
pub(crate) const FLAG: &str = "guard";
/// What the names of folders begin with that the guard removes.
pub(crate) const FOLDER: &str = "firebrick-tune-";
/// How long a server may take to end after TERM.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The pipe to the guard.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Guard {
    /// Starts the guard. `folder` is what the servers write into; its name begins with [`FOLDER`].
    ///
    /// # Errors
    /// When the program cannot be started again.
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

    /// Tells the guard of a server; it is ended when what is returned is dropped, or by the guard.
    pub(crate) fn watch(&self, family: Family) -> Guarded {
        let guarded = Guarded { family, pipe: Arc::clone(&self.pipe) };
        guarded.tell('+');
        guarded
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Closing the pipe lets it go.
        self.pipe.lock().unwrap_or_else(PoisonError::into_inner).take();
        let _ = self.child.wait();
    }
}

/// A server that will not be left behind.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) family: Family,
    pipe: Arc<Mutex<Option<ChildStdin>>>,
}

impl Guarded {
    fn tell(&self, sign: char) {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = pipe.as_mut() {
            // A guard that was killed is of no use and does no harm: our own end still ends the servers.
            let Family { leader, born, mark } = &self.family;
            let _ = writeln!(pipe, "{sign}{leader} {born} {mark}");
        }
    }

    /// Asks with TERM, waits as long as it may take, kills what is left. `reap` is asked often, to wait for the child.
    pub(crate) fn end(&self, mut reap: impl FnMut()) {
        end(&self.family, &mut reap);
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.tell('-');
    }
}

/// Ends a server: TERM to its first process, which tells the others; KILL for those that are left.
fn end(family: &Family, reap: &mut dyn FnMut()) {
    if let Some(leader) = rustix::process::Pid::from_raw(family.leader)
        && family.pids().contains(&family.leader)
    {
        let _ = rustix::process::kill_process(leader, Signal::TERM);
        gone_within(family, PATIENCE, reap);
    }
    family.signal(Signal::TERM);
    if !gone_within(family, PATIENCE / 10, reap) {
        family.signal(Signal::KILL);
        gone_within(family, PATIENCE, reap);
    }
}

fn gone_within(family: &Family, patience: Duration, reap: &mut dyn FnMut()) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        reap();
        if family.pids().is_empty() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK_EVERY);
    }
}

/// What the guard does: listens until the pipe breaks, then ends what is left.
pub(crate) fn keep(input: impl BufRead) -> ExitCode {
    let mut left: Vec<Family> = Vec::new();
    let mut folder = None;
    for line in input.lines().map_while(Result::ok) {
        folder = folder.or_else(|| own_folder(&line));
        note(&mut left, &line);
    }
    for family in &left {
        end(family, &mut || ());
    }
    if let Some(folder) = folder {
        // Mostly it has been removed already.
        let _ = std::fs::remove_dir_all(folder);
    }
    ExitCode::SUCCESS
}

/// A folder that may be removed: one whose name says that it is ours.
fn own_folder(line: &str) -> Option<PathBuf> {
    let path = Path::new(line);
    let named = path.file_name()?.to_str()?.starts_with(FOLDER);
    (named && path.is_absolute()).then(|| path.to_path_buf())
}

fn note(left: &mut Vec<Family>, line: &str) {
    let Some((leader, (born, mark))) = line.get(1..).and_then(|rest| {
        let (leader, rest) = rest.split_once(' ')?;
        Some((leader, rest.split_once(' ')?))
    }) else {
        return;
    };
    let (Ok(leader), Ok(born)) = (leader.parse::<i32>(), born.parse::<u64>()) else { return };
    let family = Family { leader, born, mark: mark.to_owned() };
    left.retain(|other| *other != family);
    // A group of 0 or less would mean our own, or everybody.
    if line.starts_with('+') && leader > 1 && !mark.is_empty() {
        left.push(family);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::MARK;
    use proptest::prelude::*;
    use std::io::BufReader;

    fn sleeper(mark: &str) -> (Child, Family) {
        let mut command = Command::new("sleep");
        let child = command.arg("60").env(MARK, mark).process_group(0).spawn().unwrap();
        let family = Family::of(child.id() as i32, mark.to_owned());
        (child, family)
    }

    #[test]
    fn what_was_not_ended_is_ended_and_the_rest_is_let_alone() {
        let (mut left, one) = sleeper("guard-left");
        let (mut ended, two) = sleeper("guard-ended");
        let folder = tempfile::Builder::new().prefix(FOLDER).tempdir().unwrap();
        let told = format!(
            "{}\n+{} 0 {}\n+{} 0 {}\n-{} 0 {}\n",
            folder.path().display(),
            one.leader,
            one.mark,
            two.leader,
            two.mark,
            two.leader,
            two.mark
        );
        // A child that has ended stays until it is waited for, which its parent does here.
        let waiter = std::thread::spawn(move || left.wait().unwrap());
        keep(told.as_bytes());
        assert!(!waiter.join().unwrap().success());
        assert!(!folder.path().exists());
        assert!(ended.try_wait().unwrap().is_none(), "the guard was told that this one is over");
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
        command.args(["-c", "trap '' TERM; echo deaf; while :; do sleep 0.1; done"]).stdout(Stdio::piped());
        let mut child = command.env(MARK, "guard-deaf").process_group(0).spawn().unwrap();
        // Until the shell has got so far, TERM ends it like any other.
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "deaf\n");
        let family = Family::of(child.id() as i32, "guard-deaf".to_owned());
        family.signal(Signal::TERM);
        assert!(!gone_within(&family, Duration::from_millis(100), &mut || ()));
        family.signal(Signal::KILL);
        assert!(gone_within(&family, PATIENCE, &mut || drop(child.try_wait())));
    }

    proptest! {
        #[test]
        fn nonsense_ends_nobody(text in any::<String>(), leader in -5..2) {
            let mut left = Vec::new();
            note(&mut left, &text);
            note(&mut left, &format!("+{leader} 0 mark"));
            prop_assert!(left.iter().all(|family: &Family| family.leader > 1));
        }
    }
}
