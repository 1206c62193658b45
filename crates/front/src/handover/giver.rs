//! The side that serves: starts the new program, gives it copies of all sockets, and follows it until it serves.
//!
//! Contract:
//! 1. Until [`Successor::take_over`] has succeeded nothing has changed: this program accepts on the same sockets all the time.
//! 2. A new program that does not become ready within the time that it has named is ended, as is one that says nonsense.
//! 3. Dropping a [`Successor`] leaves the process alone.

use super::channel::{Channel, VARIABLE};
use super::message::{MOST_FDS, Message, Place, VERSION};
use super::packets;
use super::program::{Started, Surroundings};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a program may take to say that it knows handovers, and when it expects to be ready.
const FIRST_WORDS: Duration = Duration::from_secs(20);
/// How long a program that is gone is listened to.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The most that it may ask for.
const LONGEST_BOOT: Duration = Duration::from_secs(3600);
/// How long a ready program may take to serve.
const TAKE_OVER: Duration = Duration::from_secs(30);
/// How long a program that is ended may take, before it is killed.
const END: Duration = Duration::from_secs(3);

/// What is handed over.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// Sockets, and what they are for.
    pub(crate) sockets: Vec<(Place, Vec<OwnedFd>)>,
    /// The token that the control server has generated.
    pub(crate) token: Option<String>,
    /// Upgrades so far: failed and successful ones. The new program goes on counting.
    pub(crate) upgrades: (u64, u64),
}

/// A program that takes over.
#[derive(Debug)]
pub(crate) struct Successor {
    child: Child,
    channel: Channel,
}

impl Successor {
    /// Starts the program as this one was started, and sends it the sockets.
    ///
    /// # Errors
    /// It cannot be started; the text says what to do.
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
        // systemd names the process for which the watchdog is meant; it will be another one.
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
        // It has the other end of the socket.
        drop(command);
        let channel = match Channel::new(ours) {
            Ok(channel) => channel,
            Err(e) => return Err(abandon(child, &format!("no socket to the new program: {e}"))),
        };
        let mut successor = Successor { child, channel };
        if let Err(error) = successor.send_all(stdin, offer).await {
            // A program that has ended knows better why.
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
            self.channel.send(&hello, &[stdin.as_fd()]).await?;
            for (place, sockets) in &offer.sockets {
                let fds: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
                for some in fds.chunks(MOST_FDS) {
                    self.channel.send(&Message::Sockets(place.clone()), some).await?;
                }
            }
            if let Some(token) = offer.token {
                self.channel.send(&Message::Token(token), &[]).await?;
            }
            self.channel.send(&Message::End, &[]).await
        };
        timeout(FIRST_WORDS, all).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it could serve; `step` hears what it is at.
    ///
    /// # Errors
    /// It cannot, has ended, or takes too long.
    pub(crate) async fn ready(&mut self, step: impl Fn(&str)) -> Result<(), String> {
        let mut within = FIRST_WORDS;
        let mut deadline = Instant::now() + within;
        loop {
            let Ok(received) = timeout_at(deadline, self.channel.receive()).await else {
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

    /// Lets it serve; the files that are its own from now on.
    ///
    /// # Errors
    /// It does not serve.
    pub(crate) async fn take_over(&mut self) -> Result<Vec<PathBuf>, String> {
        if self.channel.send(&Message::Go, &[]).await.is_err() {
            return Err(self.why_gone("it closed its socket").await);
        }
        match timeout(TAKE_OVER, self.channel.receive()).await {
            Ok(Ok(Some((Message::Serving(files), _)))) => Ok(files),
            Ok(Ok(Some((Message::Failed(why), _)))) => Err(why),
            Ok(Ok(Some((other, _)))) => Err(format!("the new program sent {other:?}")),
            Ok(Ok(None)) => Err(self.why_gone("it closed its socket").await),
            Ok(Err(error)) => Err(format!("the new program: {error}")),
            Err(_) => Err(format!("the new program did not serve within {} s", TAKE_OVER.as_secs())),
        }
    }

    /// Tells it that the service manager knows it.
    pub(crate) async fn confirm(&self) {
        // It sees by the end of the socket, too, that it is alone.
        let _ = self.channel.send(&Message::Yours, &[]).await;
    }

    /// Tells it to end, as a signal to this one would have.
    pub(crate) fn stop(&self) {
        signal(&self.child, Signal::TERM);
    }

    /// Ends it, and waits until it has ended.
    pub(crate) async fn end(mut self) {
        signal(&self.child, Signal::TERM);
        if self.exited(END).await.is_none() {
            // Its template sees that, and removes what it has made.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// What it has said about its end, or how it ended, if it ended by itself.
    async fn why_gone(&mut self, otherwise: &str) -> String {
        while let Ok(Ok(Some((message, _)))) = timeout(LAST_WORDS, self.channel.receive()).await {
            if let Message::Failed(why) = message {
                return why;
            }
        }
        match self.exited(Duration::from_secs(1)).await {
            Some(status) => {
                format!("the new program ended ({status}) before it served; the error log has what it said")
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

fn signal(child: &Child, signal: Signal) {
    // It may have ended, but nobody has waited for it: the number is still its own.
    let _ = kill_process(Pid::from_child(child), signal);
}

fn abandon(mut child: Child, why: &str) -> String {
    let _ = child.kill();
    let _ = child.wait();
    why.to_owned()
}
