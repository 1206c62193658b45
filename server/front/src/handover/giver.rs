//! The old program's side: starts the new program, sends it duplicates of all sockets, and waits until it serves.
//!
//! Contract:
//! 1. Until [`Successor::take_over`] succeeds, this program keeps accepting on the same sockets and nothing changes.
//! 2. A new program is stopped if it breaks the protocol or is not ready within the time that it has announced.
//! 3. Dropping a [`Successor`] does not stop the process.

use super::channel::{Channel, VARIABLE};
use super::message::{MOST_FDS, Message, SocketKind, VERSION};
use super::packets;
use super::program::{Started, Surroundings};
use control::orders::Interruptions;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// Time-out for the new program's first message, which announces when it expects to be ready.
const FIRST_WORDS: Duration = Duration::from_secs(20);
/// Time-out for the last messages of a program that has exited.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The longest boot time that a new program may announce.
const LONGEST_BOOT: Duration = Duration::from_secs(3600);
/// Time-out between `go` and `serving`.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// Grace period between TERM and KILL.
const END: Duration = Duration::from_secs(3);

/// The sockets and facts to hand over.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    pub(crate) sockets: Vec<(SocketKind, Vec<OwnedFd>)>,
    /// The token that the control server generated.
    pub(crate) token: Option<String>,
    /// Upgrades so far, failed and successful. The new program continues the count.
    pub(crate) upgrades: (u64, u64),
    /// The requests that the new program's first template repeats.
    pub(crate) recent: Option<File>,
}

/// A new program that is taking over.
#[derive(Debug)]
pub(crate) struct Successor {
    child: Child,
    channel: Rc<SuccessorChannel>,
}

/// The socket to a new program.
#[derive(Debug)]
pub(crate) struct SuccessorChannel(Channel);

impl Successor {
    /// Starts the program in the same way as this one was started, and sends it the sockets.
    ///
    /// # Errors
    /// The program cannot be started. The text names a remedy.
    pub(crate) async fn start(started: &Started, offer: Offer) -> Result<Successor, String> {
        let surroundings = Surroundings::now();
        surroundings.repeatable()?;
        let file = started.file(&surroundings)?;
        if !started.directory().is_dir() {
            return Err(format!("the folder {} is gone", started.directory().display()));
        }
        let (ours, theirs) = packets::pair().map_err(|e| format!("no pair of sockets: {e}"))?;
        let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|e| format!("no descriptor: {e}"))?;
        let mut command = Command::new(&file);
        command.arg0(started.name()).args(started.arguments()).current_dir(started.directory());
        let own = std::process::id().to_string();
        // `WATCHDOG_PID` names the process that the watchdog watches; the new program has another id.
        if std::env::var("WATCHDOG_PID").is_ok_and(|pid| pid == own) {
            command.env_remove("WATCHDOG_PID");
        }
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"] {
            command.env_remove(name);
        }
        command.envs(started.variables(std::env::var_os("BUNDLE_GEMFILE").as_deref()));
        let child = command
            .env(VARIABLE, own)
            .stdin(Stdio::from(theirs))
            .spawn()
            .map_err(|e| format!("cannot start {}: {e}", file.display()))?;
        // The command holds a copy of the other end of the socket.
        drop(command);
        let channel = match Channel::new(ours) {
            Ok(channel) => channel,
            Err(e) => return Err(abandon(child, &format!("no socket to the new program: {e}"))),
        };
        let mut successor = Successor { child, channel: Rc::new(SuccessorChannel(channel)) };
        if let Err(error) = successor.send_all(stdin, offer).await {
            // If the program has exited, its own message gives the better reason.
            let why = successor.why_gone(&format!("it does not take the sockets: {error}")).await;
            successor.end().await;
            return Err(why);
        }
        Ok(successor)
    }

    async fn send_all(&self, stdin: OwnedFd, offer: Offer) -> io::Result<()> {
        let program = format!("Firebrick {}", crate::VERSION);
        let hello = Message::Hello { version: VERSION, program, upgrades: offer.upgrades };
        let all = async {
            let files: Vec<BorrowedFd<'_>> =
                std::iter::once(stdin.as_fd()).chain(offer.recent.as_ref().map(AsFd::as_fd)).collect();
            self.channel.0.send(&hello, &files).await?;
            for (place, sockets) in &offer.sockets {
                let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                for some in fds.chunks(MOST_FDS) {
                    self.channel.0.send(&Message::Sockets(place.clone()), some).await?;
                }
            }
            if let Some(token) = offer.token {
                self.channel.0.send(&Message::Token(token), &[]).await?;
            }
            self.channel.0.send(&Message::End, &[]).await
        };
        timeout(FIRST_WORDS, all).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the new program can serve. Calls `step` with each progress message.
    ///
    /// # Errors
    /// The new program failed, exited or took too long.
    pub(crate) async fn ready(&mut self, step: impl Fn(&str)) -> Result<(), String> {
        let mut within = FIRST_WORDS;
        let mut deadline = Instant::now() + within;
        loop {
            let Ok(received) = timeout_at(deadline, self.channel.0.receive()).await else {
                let seconds = within.as_secs_f64();
                return Err(if within == FIRST_WORDS {
                    format!(
                        "the new program has not asked for the sockets within {seconds} s: is it Firebrick?"
                    )
                } else {
                    format!("the new program was not ready within {seconds} s")
                });
            };
            match received {
                Ok(Some((Message::Within(time), _))) => {
                    within = time.min(LONGEST_BOOT);
                    deadline = Instant::now() + within;
                }
                Ok(Some((Message::Step(text), _))) => step(&text),
                Ok(Some((Message::Ready, _))) => return Ok(()),
                Ok(Some((Message::Failed(why), _))) => return Err(why),
                Ok(Some((other, _))) => return Err(format!("the new program sent {other:?}")),
                Ok(None) => return Err(self.why_gone("it closed its socket").await),
                Err(error) => return Err(format!("the new program: {error}")),
            }
        }
    }

    /// Lets the new program serve, with these interruptions in force. Returns the files that it owns from now on.
    ///
    /// # Errors
    /// The new program does not serve.
    pub(crate) async fn take_over(&mut self, interruptions: &Interruptions) -> Result<Vec<PathBuf>, String> {
        if !interruptions.is_empty() {
            let file = written(interruptions).map_err(|e| format!("no file for the interruptions: {e}"))?;
            // A program that has gone is noticed below.
            let _ = self.channel.0.send(&Message::Interruptions, &[file.as_fd()]).await;
        }
        if self.channel.0.send(&Message::Go, &[]).await.is_err() {
            return Err(self.why_gone("it closed its socket").await);
        }
        match timeout(TAKE_OVER, self.channel.0.receive()).await {
            Ok(Ok(Some((Message::Serving(files), _)))) => Ok(files),
            Ok(Ok(Some((Message::Failed(why), _)))) => Err(why),
            Ok(Ok(Some((other, _)))) => Err(format!("the new program sent {other:?}")),
            Ok(Ok(None)) => Err(self.why_gone("it closed its socket").await),
            Ok(Err(error)) => Err(format!("the new program: {error}")),
            Err(_) => Err(format!("the new program did not serve within {} s", TAKE_OVER.as_secs())),
        }
    }

    /// Confirms that the service manager knows the new program.
    pub(crate) async fn confirm(&self) {
        // An error is harmless: the new program also notices when the socket closes.
        let _ = self.channel.0.send(&Message::Yours, &[]).await;
    }

    /// Returns the socket on which the new program reports the end of a pause.
    pub(crate) fn channel(&self) -> Rc<SuccessorChannel> {
        self.channel.clone()
    }

    /// Sends TERM to the new program, after this one has got a signal.
    pub(crate) fn stop(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Orders the new program, which serves, to load the app again.
    pub(crate) fn reload(&self) {
        signal(&self.child, Signal::USR1);
    }

    /// Stops the new program, and waits until it has exited.
    pub(crate) async fn end(mut self) {
        signal(&self.child, Signal::TERM);
        if self.exited(END).await.is_none() {
            // The new program's template notices and cleans up.
            sys::process::kill(self.child);
        }
    }

    /// Returns the new program's own reason, or else describes its exit status if it exited by itself.
    async fn why_gone(&mut self, otherwise: &str) -> String {
        while let Ok(Ok(Some((message, _)))) = timeout(LAST_WORDS, self.channel.0.receive()).await {
            if let Message::Failed(why) = message {
                return why;
            }
        }
        match self.exited(Duration::from_secs(1)).await {
            Some(status) => {
                format!("the new program ended ({status}) before it served; see the error log")
            }
            None => format!("the new program cannot take over: {otherwise}"),
        }
    }

    async fn exited(&mut self, within: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + within;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(10)).await,
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl SuccessorChannel {
    /// Sends the new program the file with the kept responses.
    pub(crate) async fn kept(&self, file: &File) {
        // A new program that has exited needs no responses.
        let _ = self.0.send(&Message::Kept, &[file.as_fd()]).await;
    }

    /// Sends the new program the streams and members of the hub.
    pub(crate) async fn hub_streams(&self, streams: &File) {
        // A new program that has exited needs nothing of the hub.
        let _ = self.0.send(&Message::HubStreams, &[streams.as_fd()]).await;
    }

    /// Sends the new program WebSockets of the hub, with the file of their records.
    pub(crate) async fn hub_sockets(&self, records: &File, sockets: &[BorrowedFd<'_>]) {
        let fds: Vec<BorrowedFd<'_>> =
            std::iter::once(records.as_fd()).chain(sockets.iter().copied()).collect();
        let _ = self.0.send(&Message::HubSockets, &fds).await;
    }

    /// Tells the new program that no more WebSockets follow.
    pub(crate) async fn hub_end(&self) {
        let _ = self.0.send(&Message::HubEnd, &[]).await;
    }

    /// Tells the new program that the cached responses of a key are no longer valid.
    pub(crate) async fn invalidated(&self, key: Vec<u8>) {
        let _ = self.0.send(&Message::Invalidated(key), &[]).await;
    }

    /// Waits for a report of the new program about a pause; see [`Message::Paused`]. `None` when it has
    /// exited.
    pub(crate) async fn paused(&self) -> Option<Duration> {
        loop {
            match self.0.receive().await {
                Ok(Some((Message::Paused(time), _))) => return Some(time),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

/// Returns a file with the interruptions, to be read from its start.
fn written(interruptions: &Interruptions) -> io::Result<File> {
    let mut file = sys::file::in_memory("firebrick interruptions")?;
    file.write_all(&interruptions.write())?;
    file.rewind()?;
    Ok(file)
}

fn signal(child: &Child, signal: Signal) {
    // The process may have exited, but it has not been reaped, so its id has not been reused.
    let _ = kill_process(Pid::from_child(child), signal);
}

fn abandon(child: Child, why: &str) -> String {
    sys::process::kill(child);
    why.to_owned()
}
