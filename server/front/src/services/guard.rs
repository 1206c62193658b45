//! The guard of a service: a small process between the server and the service that stops the service when the
//! server ends, even by kill -9.
//!
//! Why a separate process: a parent-death signal reaches one process but not its children, and a dead server
//! cannot wait and then kill. The guard notices when its socket closes instead.
//!
//! Contract:
//! 1. Standard input is a socket to the server. `s`, or end of file, asks the service to stop; `k` kills it.
//!    The guard replies with lines: `pid N` once the service runs, `exit N` or `signal N` when its first
//!    process has ended, `failed TEXT` when it cannot be started.
//! 2. The guard starts a command itself. A block of the app is the guard's child from the start: the template
//!    forks a process, which forks the block and becomes the guard. The server did not start such a guard, so
//!    the guard sends its own process id as `guard N`.
//! 3. The service leads its own process group. The guard sends the group the stop signal, and kills the rest
//!    of the group after the time-out.
//! 4. The guard exits last. When its end of the socket closes, no process of the service is left.
//! 5. The service is killed if the guard dies, where the system supports that (Linux).
//! 6. The guard ignores signals: they are meant for the server, which controls the guard.

use super::lines::{finish, pump};
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
use wire::template::{end, guard as word};

/// First argument of guards of commands, started by the server.
pub(super) const GUARD: &str = "--guard-service";
/// First argument of guards of blocks, started by a template. After the task follow the child's process id
/// and the descriptors of its output.
pub(super) const ADOPT: &str = "--guard-child";
/// First argument of the process that a guard starts and that becomes the command.
const EXEC: &str = "--exec-service";
/// The guard's name in process lists.
const NAME: &str = "firebrick";

/// Interval between two checks whether processes of the group are left.
const LOOK: Duration = Duration::from_millis(20);
/// Exit code for a command that cannot be run, as in shells.
const NOT_RUN: u8 = 127;

/// The server's order to a guard. `prefix`: whether output lines begin with the service's name.
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

/// Runs as a guard, or as a process that a guard starts, if the arguments (without the program's name) say so.
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
    let ward = if first == GUARD { GuardedProcess::Command(rest) } else { GuardedProcess::Child(rest) };
    Some(match run(&task, &ward) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr().lock(), "firebrick: the guard of {name}: {error}");
            ExitCode::FAILURE
        }
    })
}

/// Returns a command that runs this program itself, even if its file has been replaced.
///
/// # Errors
/// The system does not report the program's path.
pub(super) fn program() -> io::Result<Command> {
    let mut command = Command::new(sys::process::own_program()?);
    command.arg0(NAME);
    Ok(command)
}

/// Becomes the command. The kernel kills it when its parent dies.
fn exec(arguments: Vec<OsString>) -> ExitCode {
    let [parent, program, arguments @ ..] = arguments.as_slice() else { return ExitCode::from(NOT_RUN) };
    sys::process::die_with_parent();
    let alive =
        getppid().is_some_and(|pid| parent.to_str() == Some(pid.as_raw_nonzero().to_string().as_str()));
    if alive {
        let error = Command::new(program).args(arguments).exec();
        let _ = writeln!(io::stderr().lock(), "firebrick: cannot run {}: {error}", program.display());
    }
    ExitCode::from(NOT_RUN)
}

enum GuardedProcess {
    /// A command to start.
    Command(Vec<OsString>),
    /// A process that is already a child: its process id, and the descriptors of its output.
    Child(Vec<OsString>),
}

/// The service's first process, and its output.
struct Started {
    leader: Pid,
    output: [Option<Box<dyn Read + Send>>; 2],
}

impl GuardedProcess {
    fn start(&self, task: &Task<'_>) -> io::Result<Started> {
        match self {
            GuardedProcess::Command(words) => {
                let mut child = start(task, words)?;
                let out = child.stdout.take().map(|out| Box::new(out) as Box<dyn Read + Send>);
                let err = child.stderr.take().map(|err| Box::new(err) as Box<dyn Read + Send>);
                Ok(Started { leader: Pid::from_child(&child), output: [out, err] })
            }
            GuardedProcess::Child(words) => {
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

/// Opens a pipe that this process inherited under a number.
fn inherited(number: i32) -> io::Result<std::fs::File> {
    std::fs::File::open(format!("{}/{number}", sys::process::DESCRIPTORS))
}

fn run(task: &Task<'_>, ward: &GuardedProcess) -> io::Result<()> {
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
            // The handler stays installed when its stream is dropped.
            drop(signal(kind)?);
        }
        // Processes that the service leaves behind become children of the guard.
        sys::process::adopt_orphans()?;
        let mut exits = signal(SignalKind::child())?;
        if let GuardedProcess::Child(_) = ward {
            say(&socket, &format!("{} {}", word::GUARD, std::process::id()));
        }
        let Started { leader, output } = match ward.start(task) {
            Ok(started) => started,
            Err(error) => {
                say(&socket, &format!("{} {error}", word::FAILED));
                return Ok(());
            }
        };
        let pumps = pumps(task, output);
        say(&socket, &format!("{} {}", word::PID, leader.as_raw_nonzero()));
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

/// Writes directly: tokio takes a new socket for full until it has polled it. Errors are ignored: the server
/// may have exited.
fn say(socket: &UnixStream, line: &str) {
    let _ = rustix::io::write(socket, format!("{}\n", line.replace('\n', " ")).as_bytes());
}

/// Watches the service from its start until none of its processes is left.
struct Watch<'a> {
    task: &'a Task<'a>,
    socket: &'a UnixStream,
    leader: Pid,
    /// Whether the leader of the group has not been reaped yet.
    leads: bool,
    /// When to kill the group; `None` until a stop was requested.
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
            // SIGCHLD arrives only for direct children, so the group is also checked at intervals.
            let look = if self.deadline.is_some() { LOOK } else { Duration::from_secs(3600) };
            tokio::select! {
                _ = exits.recv() => {}
                order = order(self.socket), if !deaf => match order {
                    GuardOrder::Stop { gone } => {
                        deaf = gone;
                        self.stop();
                    }
                    GuardOrder::Kill => self.kill(),
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
                // The processes that the leader started must not outlive it.
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

enum GuardOrder {
    Stop { gone: bool },
    Kill,
}

async fn order(socket: &UnixStream) -> GuardOrder {
    loop {
        if socket.readable().await.is_err() {
            return GuardOrder::Stop { gone: true };
        }
        let mut byte = [0];
        match socket.try_read(&mut byte) {
            Ok(0) => return GuardOrder::Stop { gone: true },
            Ok(_) => return if byte == *b"k" { GuardOrder::Kill } else { GuardOrder::Stop { gone: false } },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return GuardOrder::Stop { gone: true },
        }
    }
}

fn describe(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("{} {code}", end::EXIT),
        (None, signal) => format!("{} {}", end::SIGNAL, signal.unwrap_or_default()),
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

/// Kills processes that left the group and lost their parent: the guard has adopted them.
fn end_strays() {
    for _ in 0..100 {
        let strays = sys::process::children();
        if strays.is_empty() {
            return;
        }
        for pid in strays {
            let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, Signal::KILL));
        }
        std::thread::sleep(Duration::from_millis(10));
        while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
    }
}

/// Starts threads that forward the service's output. A slow reader of the guard's own output can block these
/// threads, but nothing else.
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
