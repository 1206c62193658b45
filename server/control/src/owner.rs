//! Decides whether the process that a pid file names is still the server that wrote the file.
//!
//! Why: a pid file survives a power failure of the machine, or the end of a container whose volume is reused,
//! and process ids then start over. A process with that id may be any program; its program and its start time
//! tell.
//!
//! Contract:
//! 1. A server is this program or another one that serves Ruby apps. While such a process runs, the pid file
//!    is respected.
//! 2. A process that started after the file was written did not write it.
//! 3. If the system does not tell the program of a process, any living process counts as the server.

use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

use sys::process::{PROGRAMS_ARE_KNOWN, RunningProgram, program};

/// Programs that serve Ruby apps and write pid files.
const SERVERS: &[&str] = &[
    "firebrick",
    "puma",
    "pumactl",
    "unicorn",
    "unicorn_rails",
    "pitchfork",
    "falcon",
    "thin",
    "passenger",
    "webrick",
    "rackup",
    "rails",
    "iodine",
    "itsi",
    "agoo",
];
/// Programs whose arguments name the program that they run.
const RUNNERS: &[&str] = &["ruby", "jruby", "truffleruby", "java", "bundle", "bundler"];
/// The tolerance between process start times and file times.
const SLACK: Duration = Duration::from_secs(2);

/// Returns the process id of the running server that a pid file names. `None` if the file is stale, invalid,
/// or names this process.
pub fn living(path: &Path) -> Option<i32> {
    let number: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    let pid = (number > 0).then(|| Pid::from_raw(number))??;
    let written = std::fs::metadata(path).ok()?.modified().ok();
    let is_server = number != std::process::id().cast_signed() && is_server(pid, written);
    is_server.then_some(number)
}

/// Whether a process is a server that may have written a pid file at that time.
fn is_server(pid: Pid, written: Option<SystemTime>) -> bool {
    match program(pid) {
        Some(program) => serves(&program) && !began_later(&program, written),
        None if PROGRAMS_ARE_KNOWN => false,
        // A permission error means that the process exists.
        None => test_kill_process(pid) != Err(Errno::SRCH),
    }
}

fn began_later(program: &RunningProgram, written: Option<SystemTime>) -> bool {
    let (Some(began), Some(written)) = (program.began, written) else { return false };
    began.duration_since(written).is_ok_and(|later| later > SLACK)
}

fn serves(program: &RunningProgram) -> bool {
    let own = std::env::current_exe().ok();
    let is_own = own.is_some() && own == program.file;
    let mut words = program.words.iter().map(|word| name(word));
    let Some(first) = words.next() else { return false };
    let first = first.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    is_own
        || SERVERS.contains(&first)
        || (RUNNERS.contains(&first) && words.any(|word| SERVERS.contains(&word)))
}

/// Returns the program's name in a word. Servers set titles such as `puma 6.4 (tcp://…) [shop]`.
fn name(word: &str) -> &str {
    let word = word.split(' ').next().unwrap_or_default().trim_end_matches(':');
    word.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};

    fn called(words: &[&str]) -> RunningProgram {
        RunningProgram {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            file: None,
            began: None,
        }
    }

    #[test]
    fn servers_are_known_by_their_names() {
        for words in [
            &["firebrick", "-p", "3000"][..],
            &["/usr/local/bin/firebrick"],
            &["firebrick: worker 0"],
            &["puma 6.4.2 (tcp://0.0.0.0:3000) [shop]"],
            &["puma: cluster worker 0: 12 [shop]"],
            &["ruby", "bin/rails", "server"],
            &["/usr/bin/ruby3.1", "/usr/local/bin/puma", "-C", "config/puma.rb"],
            &["unicorn master -c config/unicorn.rb"],
            &["java", "-jar", "x.jar", "/opt/jruby/bin/puma"],
        ] {
            assert!(serves(&called(words)), "{words:?}");
        }
        for words in [
            &[][..],
            &["sleep", "30"],
            &["vim", "config/puma.rb"],
            &["tail", "-f", "log/firebrick"],
            &["sidekiq 7.2 shop [0 of 5 busy]"],
            &["ruby", "bin/jobs"],
            &["postgres: puma"],
        ] {
            assert!(!serves(&called(words)), "{words:?}");
        }
    }

    struct Running(Child);

    impl Running {
        fn named(name: &str) -> Running {
            Running(Command::new("sleep").arg0(name).arg("60").spawn().expect("sleep"))
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(firebrick_portable)))]
    fn the_number_of_another_process_is_nobodys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.pid");
        for (name, is_one) in [("firebrick", true), ("puma", true), ("sleep", false), ("sidekiq", false)] {
            let running = Running::named(name);
            let pid = running.0.id();
            std::fs::write(&path, format!("{pid}\n")).unwrap();
            // Between fork and exec, the process has the name of this test.
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while living(&path).is_some() != is_one && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            assert_eq!(living(&path), is_one.then_some(pid.cast_signed()), "{name}");
        }
        let later = Running::named("firebrick");
        std::fs::write(&path, later.0.id().to_string()).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
        assert_eq!(living(&path), None, "it has begun after the file was written");
        let ended = Command::new("true").arg0("firebrick").spawn().unwrap();
        std::fs::write(&path, ended.id().to_string()).unwrap();
        let mut ended = Running(ended);
        let _ = ended.0.wait();
        assert_eq!(living(&path), None);
    }

    #[test]
    fn files_without_a_number_name_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.pid");
        assert_eq!(living(&path), None, "no file");
        for text in ["", "x", "0", "-1", "-5", "1 2", "999999999999"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(living(&path), None, "{text:?}");
        }
        std::fs::write(&path, std::process::id().to_string()).unwrap();
        assert_eq!(living(&path), None, "this process");
    }
}
