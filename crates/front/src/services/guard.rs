//! The guard of a service: a small process between the server and the service, so that the service ends with the server however
//! that ends, kill -9 included.
//!
//! Why a process of its own: a signal at the death of the parent reaches one process, not what that has started, and nobody is left
//! to wait and kill. The guard notices the end of its socket instead.
//!
//! Contract:
//! 1. Standard input is a socket to the server. `s`, or its end, asks the service to stop; `k` kills it. Lines go back: `pid N` once
//!    it runs, `exit N` or `signal N` when its first process has ended, `failed TEXT` when it cannot be started.
//! 2. A command is started by the guard. A block of the app is the guard's child already: the template has forked a process that
//!    forked the block and became the guard. The guard's own process id goes to the server as `guard N`, which has not started it.
//! 3. The service leads a process group of its own. It is asked with its signal; what is left of the group after its time, is killed.
//! 4. The guard ends last. When its socket ends at the server's side, nothing of the service is left.
//! 5. The service is killed when the guard is, where the system can do that (Linux).
//! 6. Signals to the guard itself do nothing: they are meant for the server, who tells it what to do.

use super::lines::{finish, pump};
use crate::system;
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, getppid, kill_process, kill_process_group, test_kill_process_group,
    wait,
};
use settings::StopSignal;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

/// What the server starts guards of commands with, as the first argument.
pub(super) const GUARD: &str = "--guard-service";
/// What a template starts guards with: behind the task come the child's process id, and descriptors for its output.
pub(super) const ADOPT: &str = "--guard-child";
/// What a guard starts the command with: it becomes the command.
const EXEC: &str = "--exec-service";
/// What it is called in lists of processes.
const NAME: &str = "firebrick";

/// Time between two looks at what is left of a group.
const LOOK: Duration = Duration::from_millis(20);
/// Exit code of a command that cannot be run, as of shells.
const NOT_RUN: u8 = 127;

/// What the server asks of a guard: who, how to stop it, how long that may take, whether lines begin with its name.
#[derive(Debug, Clone)]
pub(super) struct Task<'a> {
    pub(super) name: &'a str,
    pub(super) signal: StopSignal,
    pub(super) timeout: Duration,
    pub(super) prefix: bool,
}

impl Task<'_> {
    /// `kind`: [`GUARD`] or [`ADOPT`].
    pub(super) fn arguments(&self, kind: &str) -> [String; 5] {
        let (signal, millis) = (self.signal.to_string(), self.timeout.as_millis().to_string());
        [kind.to_owned(), self.name.to_owned(), signal, millis, u8::from(self.prefix).to_string()]
    }
}

/// Runs as a guard, or as what a guard starts, if the arguments (without the program's name) say so.
pub fn guard(arguments: impl IntoIterator<Item = OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter();
    let first = arguments.next()?;
    if first == EXEC {
        return Some(exec(arguments.collect()));
    }
    if first != GUARD && first != ADOPT {
        return None;
    }
    let text = |argument: Option<OsString>| argument.and_then(|text| text.into_string().ok());
    let [name, signal, millis, prefix] = std::array::from_fn(|_| text(arguments.next()).unwrap_or_default());
    let task = Task {
        name: &name,
        signal: StopSignal::named(&signal)?,
        timeout: Duration::from_millis(millis.parse().ok()?),
        prefix: prefix == "1",
    };
    let rest: Vec<OsString> = arguments.collect();
    let ward = if first == GUARD { Ward::Command(rest) } else { Ward::Child(rest) };
    Some(match run(&task, &ward) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "firebrick: the guard of {name}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// The program itself, also when its file has been replaced.
///
/// # Errors
/// The system does not say where it is.
pub(super) fn program() -> io::Result<Command> {
    let mut command = Command::new(system::program()?);
    command.arg0(NAME);
    Ok(command)
}

/// Becomes the command, which is killed when its parent is.
fn exec(arguments: Vec<OsString>) -> ExitCode {
    let [parent, program, arguments @ ..] = arguments.as_slice() else { return ExitCode::from(NOT_RUN) };
    system::die_with_parent();
    let alive =
        getppid().is_some_and(|pid| parent.to_str() == Some(pid.as_raw_nonzero().to_string().as_str()));
    if alive {
        let error = Command::new(program).args(arguments).exec();
        let _ = writeln!(io::stderr().lock(), "firebrick: cannot run {}: {error}", program.display());
    }
    ExitCode::from(NOT_RUN)
}

/// What is guarded.
enum Ward {
    /// To be started.
    Command(Vec<OsString>),
    /// Our child already: its process id, and the descriptors of its output.
    Child(Vec<OsString>),
}

/// Its first process, and what it writes.
struct Started {
    leader: Pid,
    output: [Option<Box<dyn Read + Send>>; 2],
}

impl Ward {
    fn start(&self, task: &Task<'_>) -> io::Result<Started> {
        match self {
            Ward::Command(words) => {
                let mut child = start(task, words)?;
                let out = child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>);
                let err = child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>);
                Ok(Started { leader: Pid::from_child(&child), output: [out, err] })
            }
            Ward::Child(words) => {
                let wrong = || io::Error::other("no process id and descriptors of a child");
                let numbers: Option<Vec<i32>> =
                    words.iter().map(|word| word.to_str()?.parse().ok()).collect();
                let (leader, streams) =
                    numbers.as_deref().and_then(<[i32]>::split_first).ok_or_else(wrong)?;
                let mut output = [None, None];
                for (place, number) in output.iter_mut().zip(streams) {
                    *place = Some(Box::new(inherited(*number)?) as Box<dyn Read + Send>);
                }
                Ok(Started { leader: Pid::from_raw(*leader).ok_or_else(wrong)?, output })
            }
        }
    }
}

/// A pipe that this process was given by its number.
fn inherited(number: i32) -> io::Result<std::fs::File> {
    std::fs::File::open(format!("{}/{number}", system::DESCRIPTORS))
}

fn run(task: &Task<'_>, ward: &Ward) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = std::os::unix::net::UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        socket.set_nonblocking(true)?;
        let socket = UnixStream::from_std(socket)?;
        for kind in [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::quit(),
            SignalKind::hangup(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ] {
            // A handler stays when its stream is dropped.
            drop(signal(kind)?);
        }
        // What the service leaves behind becomes a child of ours.
        system::adopt_orphans()?;
        let mut exits = signal(SignalKind::child())?;
        if let Ward::Child(_) = ward {
            say(&socket, &format!("guard {}", std::process::id()));
        }
        let Started { leader, output } = match ward.start(task) {
            Ok(started) => started,
            Err(error) => {
                say(&socket, &format!("failed {error}"));
                return Ok(());
            }
        };
        let pumps = pumps(task, output);
        say(&socket, &format!("pid {}", leader.as_raw_nonzero()));
        Watch { task, socket: &socket, leader, leads: true, deadline: None }.until_gone(&mut exits).await;
        finish(pumps);
        Ok(())
    })
}

fn start(task: &Task<'_>, command: &[OsString]) -> io::Result<Child> {
    let stream = || if task.prefix { Stdio::piped() } else { Stdio::inherit() };
    program()?
        .arg(EXEC)
        .arg(std::process::id().to_string())
        .args(command)
        .stdin(Stdio::null())
        .stdout(stream())
        .stderr(stream())
        .process_group(0)
        .spawn()
}

/// Not by way of tokio, which takes a socket for full until it has looked. The server may have gone.
fn say(socket: &UnixStream, line: &str) {
    let _ = rustix::io::write(socket, format!("{}\n", line.replace('\n', " ")).as_bytes());
}

/// The service, from its start until nothing of it is left.
struct Watch<'a> {
    task: &'a Task<'a>,
    socket: &'a UnixStream,
    leader: Pid,
    /// Whether the leader of the group has not been reaped yet.
    leads: bool,
    /// When the group is killed; `None` while nobody has asked it to stop.
    deadline: Option<Instant>,
}

impl Watch<'_> {
    async fn until_gone(mut self, exits: &mut tokio::signal::unix::Signal) {
        let mut deaf = false;
        loop {
            self.reap();
            if !self.leads && self.is_empty() {
                break;
            }
            if self.deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                self.kill();
            }
            // An exit in the group is a signal to us only if the process is our child.
            let look = if self.deadline.is_some() { LOOK } else { Duration::from_secs(3600) };
            tokio::select! {
                _ = exits.recv() => {}
                order = order(self.socket), if !deaf => match order {
                    Order::Stop { gone } => {
                        deaf = gone;
                        self.stop();
                    }
                    Order::Kill => self.kill(),
                },
                () = tokio::time::sleep(look) => {}
            }
        }
        end_strays();
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.leader && self.leads {
                self.leads = false;
                say(self.socket, &describe(status));
                // Those that it has started are not to outlive it.
                let _ = kill_process_group(self.leader, Signal::TERM);
                self.within_time();
            }
        }
    }

    fn is_empty(&self) -> bool {
        test_kill_process_group(self.leader).is_err()
    }

    fn stop(&mut self) {
        if self.deadline.is_none() && self.leads {
            let _ = kill_process(self.leader, signal_of(self.task.signal));
        }
        self.within_time();
    }

    fn within_time(&mut self) {
        self.deadline.get_or_insert(Instant::now() + self.task.timeout);
    }

    fn kill(&mut self) {
        self.deadline = Some(Instant::now() + Duration::from_secs(1));
        let _ = kill_process_group(self.leader, Signal::KILL);
    }
}

enum Order {
    Stop { gone: bool },
    Kill,
}

async fn order(socket: &UnixStream) -> Order {
    loop {
        if socket.readable().await.is_err() {
            return Order::Stop { gone: true };
        }
        let mut byte = [0];
        match socket.try_read(&mut byte) {
            Ok(0) => return Order::Stop { gone: true },
            Ok(_) => return if byte == *b"k" { Order::Kill } else { Order::Stop { gone: false } },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Order::Stop { gone: true },
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}

fn signal_of(signal: StopSignal) -> Signal {
    match signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Usr1 => Signal::USR1,
        StopSignal::Usr2 => Signal::USR2,
        StopSignal::Kill => Signal::KILL,
    }
}

/// Kills processes that have left the group and lost their parent: they are our children now.
fn end_strays() {
    for _ in 0..100 {
        let strays = system::children();
        if strays.is_empty() {
            return;
        }
        for pid in strays {
            let _ = kill_process(pid, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(10));
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Threads that pass on what the service writes: they may be held up by whoever reads our own output, and nothing else may.
fn pumps(task: &Task<'_>, [out, err]: [Option<Box<dyn Read + Send>>; 2]) -> Vec<std::thread::JoinHandle<()>> {
    let prefix = format!("{} | ", task.name);
    let out = out.map(|from| pump(from, prefix.clone(), |bytes| io::stdout().lock().write_all(bytes)));
    let err = err.map(|from| pump(from, prefix, |bytes| io::stderr().lock().write_all(bytes)));
    out.into_iter().chain(err).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_arguments_are_not_for_a_guard() {
        assert!(guard(["serve".into()]).is_none());
        assert!(guard([]).is_none());
    }
}
