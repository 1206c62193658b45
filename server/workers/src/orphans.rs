//! Adopts and reaps orphaned descendants: templates that workers have forked, workers of dead templates, and
//! processes that the app has left behind. The front is their child subreaper, so that they stay below it in
//! the process tree.
//!
//! Contract:
//! 1. A child that other code waits for is never reaped here: such code reaps its child at once, so only
//!    children that have been dead since the previous check are reaped ([`LOOK_EVERY`]).
//! 2. Does nothing except on Linux, because other systems adopt orphans themselves.

use rustix::process::{Pid, WaitOptions, waitpid};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The interval between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Adopts orphaned descendants from now on.
pub(crate) fn adopt() {
    // Fails on old kernels; then the system adopts orphans.
    let _ = sys::process::adopt_orphans();
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[derive(Debug)]
pub(crate) struct Orphans {
    next: Instant,
    /// Children that were dead at the previous check.
    dead: BTreeSet<u32>,
}

impl Orphans {
    /// Schedules the first check at `now`.
    pub(crate) fn new(now: Instant) -> Orphans {
        Orphans { next: now, dead: BTreeSet::new() }
    }

    /// Reaps the children that have been dead since the previous check. `are_ours`: processes that other code
    /// waits for.
    pub(crate) fn reap(&mut self, are_ours: &[u32], now: Instant) {
        if now < self.next {
            return;
        }
        self.next = now + LOOK_EVERY;
        let dead: BTreeSet<u32> = dead_children().filter(|pid| !are_ours.contains(pid)).collect();
        for pid in self.dead.intersection(&dead).copied().filter_map(pid_of) {
            // Fails if other code has reaped the child in the meantime.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
        self.dead = dead;
    }
}

/// Returns the children that have ended and have not been reaped.
fn dead_children() -> impl Iterator<Item = u32> {
    sys::process::children().into_iter().filter(|pid| crate::os::is_dead(*pid))
}

#[cfg(test)]
#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod tests {
    use super::*;
    use rustix::process::{Signal, kill_process};
    use std::process::{Command, Stdio};

    fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !done() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a grandchild that is orphaned at once and exits at the end of its standard input.
    fn orphan() -> (u32, std::process::Child) {
        let shell = "exec 3<&0; (exec cat <&3) >/dev/null & echo $!; read line";
        let mut parent = Command::new("sh")
            .args(["-c", shell])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = parent.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        (line.trim().parse().unwrap(), parent)
    }

    /// Returns all children except this one. The others belong to other tests, and each test checks without
    /// waiting.
    fn all_but(pid: u32) -> Vec<u32> {
        sys::process::children().into_iter().filter(|child| *child != pid).collect()
    }

    fn kill(pid: u32) {
        kill_process(pid_of(pid).unwrap(), Signal::KILL).unwrap();
    }

    #[test]
    fn orphans_are_adopted_and_reaped_when_they_have_been_dead_for_a_while() {
        adopt();
        let (pid, mut parent) = orphan();
        parent.kill().unwrap();
        parent.wait().unwrap();
        kill(pid);
        wait_until("it has ended", || crate::os::is_dead(pid));
        let exists = || std::path::Path::new(&format!("/proc/{pid}")).exists();
        let (mut orphans, now) = (Orphans::new(Instant::now()), Instant::now());
        orphans.reap(&all_but(pid), now);
        assert!(exists(), "somebody may be about to wait for it");
        orphans.reap(&all_but(pid), now + LOOK_EVERY / 2);
        assert!(exists(), "it is too early to look again");
        orphans.reap(&sys::process::children(), now + LOOK_EVERY);
        assert!(exists(), "it is waited for elsewhere");
        orphans.reap(&all_but(pid), now + 2 * LOOK_EVERY);
        orphans.reap(&all_but(pid), now + 3 * LOOK_EVERY);
        assert!(!exists());
    }

    #[test]
    fn a_child_that_others_wait_for_is_left_to_them() {
        let mut child = Command::new("true").spawn().unwrap();
        wait_until("it has exited", || crate::os::is_dead(child.id()));
        let (mut orphans, now) = (Orphans::new(Instant::now()), Instant::now());
        for look in 0..3 {
            orphans.reap(&sys::process::children(), now + LOOK_EVERY * look);
        }
        assert!(child.wait().unwrap().success());
    }
}
