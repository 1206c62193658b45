//! The server's life from the start of the workers to the end of the last: when ports open, the effects of
//! signals, the order of shutdown.
//!
//! Contract:
//! 1. The ports open when all workers are ready. Then the banner is printed.
//! 2. TERM, QUIT and the first INT drain the front threads, then the workers. A second INT halts both at
//!    once; in development the first INT does. An attached process handles INT itself.
//! 3. After TERM or QUIT, the server is a lame duck for `timeouts.lame_duck` before it drains: not ready, but
//!    still accepting. INT or a second TERM ends that phase at once.
//! 4. USR2 starts a new program that takes over; then this one drains. The new program opens its ports when
//!    the old one sends `go`.
//! 5. Services start when the workers are ready and stop after the last worker has exited. A second INT kills them.
//! 6. Requests that a pause holds get 503 when the ports close, but not after an upgrade: then they wait for its end.
//! 7. Clients that have not finished after `timeouts.shutdown` do not delay the workers' shutdown further.
//! 8. Clients of tunnels (WebSockets, hijacks) that have ended with their worker have the rest of `timeouts.shutdown` to receive what the app
//!    has sent, at least [`LAST_TUNNELS`]. INT ends that at once.

use super::server::Server;
use super::threads::Threads;
use super::upgrade::{Event, LAST_REQUESTS, Upgrades};
use crate::caching;
use crate::listen::Address;
use crate::signals::{SignalAction, Signals};
use cache::Purge;
use settings::{OnReload, Settings};
use stats::ServerState;
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use workers::supervisor::{Command, Notice};

/// The shortest time-out for tunnels to end once the workers are gone. In that time, WebSockets get a Close frame.
const LAST_TUNNELS: Duration = Duration::from_millis(500);

pub(super) struct Lifecycle<'a> {
    server: Server<'a>,
    /// See [`Threads::ended`].
    tunnels: Option<mpsc::Receiver<()>>,
    interrupted: bool,
    /// Whether INT has arrived twice.
    halted: bool,
    /// Whether a signal has ordered the server to end.
    ending: bool,
    /// When the lame duck phase ends, or, after a handover, when idle connections are closed. `None` otherwise.
    lame_until: Option<Instant>,
    /// When the time for requests in progress is over; `None` before the drain.
    drained_by: Option<Instant>,
    outcome: Result<(), String>,
    upgrades: Upgrades,
}

impl<'a> Lifecycle<'a> {
    pub(super) fn new(mut server: Server<'a>, upgrades: Upgrades) -> Lifecycle<'a> {
        let tunnels = server.threads.as_mut().and_then(|threads| threads.ended.take());
        Lifecycle {
            server,
            tunnels,
            interrupted: false,
            halted: false,
            ending: false,
            lame_until: None,
            drained_by: None,
            outcome: Ok(()),
            upgrades,
        }
    }

    /// Runs until the pool has ended.
    ///
    /// # Errors
    /// A port cannot be opened, or no worker can be started.
    pub(super) async fn run(mut self, mut signals: Signals) -> Result<(), String> {
        loop {
            tokio::select! {
                // A panic in the pool also ends the server.
                _ = &mut self.server.workers.task => break,
                () = drained(&mut self.server.threads) => {
                    let store = self.server.threads.take().and_then(|threads| threads.store);
                    self.upgrades.bequeath(store, &self.server.logs.error).await;
                    self.server.order(Command::Drain).await;
                }
                Some(notice) = self.server.workers.notices.recv() => self.notice(notice).await,
                (name, action) = signals.next() => {
                    self.log_signal(name, action);
                    self.signal(action).await;
                }
                () = until(self.lame_until) => self.drain(),
                event = self.upgrades.next() => self.upgrade(event).await,
            }
        }
        self.stop_services(&mut signals).await;
        self.upgrades.end().await;
        while let Ok(notice) = self.server.workers.notices.try_recv() {
            if let Notice::Log(text) = notice {
                self.server.logs.error.write(&text);
            }
        }
        if let (None, Some(tunnels)) = (&self.server.threads, self.tunnels.take()) {
            self.end_tunnels(tunnels, &mut signals).await;
        }
        self.outcome
    }

    /// Waits until the clients of tunnels, which have ended with the workers, have received what is on the way to them.
    async fn end_tunnels(&self, mut tunnels: mpsc::Receiver<()>, signals: &mut Signals) {
        let least = Instant::now() + LAST_TUNNELS;
        let until = self.drained_by.filter(|_| !self.halted).map_or(least, |by| by.max(least));
        loop {
            tokio::select! {
                _ = tunnels.recv() => return,
                () = tokio::time::sleep_until(until) => return,
                (_, action) = signals.next() => match action {
                    SignalAction::Interrupt if !self.server.workers.are_attached() => return,
                    _ => {}
                },
            }
        }
    }

    /// Follows an upgrade.
    async fn upgrade(&mut self, event: Event) {
        match self.upgrades.follow(event, &mut self.server).await {
            Ok(false) => {}
            Ok(true) => _ = self.lame_until.get_or_insert(Instant::now() + LAST_REQUESTS),
            Err(error) => self.fail(error).await,
        }
    }

    async fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Log(text) => self.server.logs.error.write(&text),
            Notice::Stop => self.signal(SignalAction::Stop).await,
            Notice::Reloading => self.server.systemd.reloading("Loading the app again"),
            Notice::Reloaded(release) => {
                if self.server.releases.in_force().id != release {
                    self.log(self.server.releases.put_in_force(release));
                    let release = self.server.releases.in_force();
                    crate::memory::follow(&release.settings);
                    self.renew_cache(&release.settings);
                    self.server.services.replace(&release.settings, release.services.clone());
                }
                self.server.releases.end_trial();
                self.server.systemd.reloaded();
            }
            Notice::Declared { release, services, files } => {
                self.log(self.server.releases.declared(release, services.clone(), &files));
                let in_force = self.server.releases.in_force();
                if in_force.id == release {
                    self.server.services.declared(&in_force.settings, services);
                }
            }
            Notice::Settled if self.upgrades.waits_for_old() => {}
            Notice::Settled => match self.open_ports() {
                Ok(addresses) => {
                    let status = self.server.opened(&addresses);
                    let places = addresses.iter().map(ToString::to_string).collect();
                    self.server.order(Command::Listening(places)).await;
                    self.server.systemd.ready(&status);
                    self.server.systemd.keep_alive(self.server.vitals);
                }
                Err(error) => self.fail(error).await,
            },
            Notice::Hopeless(why) => self.fail(why.to_owned()).await,
        }
    }

    /// Applies the settings of a release that is in force from now on to the cache.
    fn renew_cache(&self, settings: &Settings) {
        let Some(store) = self.server.threads.as_ref().and_then(|threads| threads.store.as_ref()) else {
            return;
        };
        store.set_policy(caching::policy(settings));
        if settings.cache.on_reload == OnReload::Empty {
            store.purge(&Purge::All);
        }
    }

    fn log(&self, lines: Vec<String>) {
        lines.iter().for_each(|line| self.server.logs.error.write(line));
    }

    /// Logs the effect of a signal.
    fn log_signal(&self, name: &str, action: SignalAction) {
        let settings = self.server.releases.settings();
        let has_app = settings.app.is_some();
        let ending = || {
            let within = settings.timeouts.shutdown.as_secs_f64();
            format!("ending: requests in progress have {within} s (timeouts.shutdown)")
        };
        let effect = match action {
            SignalAction::Stop if self.lame_until.is_some() => format!("{}, at once", ending()),
            SignalAction::Stop => ending(),
            SignalAction::Interrupt if self.server.workers.are_attached() => {
                "left to the program that this server runs in".to_owned()
            }
            SignalAction::Interrupt if self.interrupted => "ending at once".to_owned(),
            SignalAction::Interrupt if settings.is_development() => "ending".to_owned(),
            SignalAction::Interrupt => format!("{}; another INT ends at once", ending()),
            SignalAction::ReopenLogs => "the logs are opened again".to_owned(),
            SignalAction::AddWorker | SignalAction::RemoveWorker | SignalAction::Reload if !has_app => {
                "no effect, there is no app".to_owned()
            }
            SignalAction::AddWorker => "one worker more".to_owned(),
            SignalAction::RemoveWorker => "one worker fewer".to_owned(),
            SignalAction::Reload if self.upgrades.successor().is_some() => {
                "passed on to the program that has taken over".to_owned()
            }
            SignalAction::Reload if self.server.reloads.is_upgrading() => {
                "the app is loaded again after the upgrade".to_owned()
            }
            SignalAction::Reload => "loading the app again".to_owned(),
            SignalAction::Upgrade => "starting the program anew, to take over".to_owned(),
            // A terminal sends WINCH at each change of the window's size.
            SignalAction::Nothing if name == "WINCH" && std::io::stdin().is_terminal() => return,
            SignalAction::Nothing => match name {
                "WINCH" => "no effect (TTOU: one worker fewer)".to_owned(),
                _ => format!("no effect here; a worker logs what its threads do when {name} is sent to it"),
            },
        };
        self.server.logs.error.write(&format!("{name}: {effect}"));
    }

    async fn signal(&mut self, action: SignalAction) {
        match action {
            SignalAction::Nothing => {}
            SignalAction::ReopenLogs => {
                self.server.systemd.reloading("Opening the logs again");
                self.server.logs.reopen();
                self.server.systemd.reloaded();
            }
            SignalAction::AddWorker => self.server.order(Command::More).await,
            SignalAction::RemoveWorker => self.server.order(Command::Fewer).await,
            SignalAction::Reload => match self.upgrades.successor() {
                Some(successor) => successor.reload(),
                None => self.server.reloads.signalled().await,
            },
            SignalAction::Upgrade => self.upgrade(Event::Asked(None)).await,
            SignalAction::Stop => {
                self.ending = true;
                self.server.order(Command::Leave).await;
                self.leave();
            }
            SignalAction::Interrupt if self.server.workers.are_attached() => {}
            SignalAction::Interrupt if self.interrupted => {
                self.halted = true;
                self.server.order(Command::Halt).await;
            }
            SignalAction::Interrupt => {
                self.interrupted = true;
                self.ending = true;
                self.server.order(Command::Leave).await;
                if self.server.releases.settings().is_development() {
                    self.server.order(Command::Halt).await;
                } else {
                    self.drain();
                }
            }
        }
    }

    /// Makes the ports listen and hands the listeners to the threads.
    fn open_ports(&mut self) -> Result<Vec<Address>, String> {
        let (ports, kept) = self.server.listen()?;
        self.upgrades.keep(kept);
        Ok(self.server.accept(ports))
    }

    /// Becomes a lame duck, and drains after `timeouts.lame_duck`. The second call drains at once.
    fn leave(&mut self) {
        self.upgrades.stop();
        let settings = self.server.releases.settings();
        let lame = settings.timeouts.lame_duck.unwrap_or_default();
        // Without open ports, no client has to learn of the shutdown.
        let serving = self.server.vitals.state() == ServerState::Serving;
        let Some(threads) = self.server.threads.as_ref().filter(|_| serving && !lame.is_zero()) else {
            return self.drain();
        };
        self.server.vitals.enter(ServerState::Leaving);
        self.server
            .systemd
            .stopping("Leaving: connections are still accepted", lame + settings.timeouts.shutdown);
        threads.leave();
        self.lame_until = Some(Instant::now() + lame);
        self.server.logs.error.write(&format!(
            "leaving: /ready says no, connections are accepted for {} s more (timeouts.lame_duck)",
            lame.as_secs_f64()
        ));
    }

    /// Drains the front threads. The workers follow when the threads have drained, or after `timeouts.shutdown`.
    fn drain(&mut self) {
        self.lame_until = None;
        self.upgrades.stop();
        // The kept sockets would let new clients wait in a backlog that no process accepts from.
        self.upgrades.forget_sockets();
        self.server.vitals.enter(ServerState::Draining);
        let within = self.server.releases.settings().timeouts.shutdown;
        self.server.systemd.stopping("Finishing requests", within);
        if self.ending || self.upgrades.successor().is_none() {
            self.server.interruptions.refuse();
        }
        let Some(threads) = &self.server.threads else { return };
        threads.drain();
        let commands = self.server.workers.commands.clone();
        let timeout = self.server.releases.settings().timeouts.shutdown;
        self.drained_by.get_or_insert(Instant::now() + timeout);
        let interruptions = self.server.interruptions.clone();
        net::task::spawn_local(async move {
            // After an upgrade the requests that a pause holds have their time when it is over.
            interruptions.over().await;
            tokio::time::sleep(timeout).await;
            // The pool may have ended by then.
            let _ = commands.send(Command::Drain).await;
        });
    }

    /// Stops the services, after the workers have exited.
    async fn stop_services(&mut self, signals: &mut Signals) {
        if let Some(within) = self.server.services.longest_stop() {
            self.server.systemd.stopping("Stopping services", within);
        }
        if self.halted {
            self.server.services.kill()
        } else {
            self.server.services.stop()
        }
        loop {
            tokio::select! {
                () = self.server.services.ended() => return,
                (name, action) = signals.next() => match action {
                    SignalAction::Interrupt if self.interrupted => {
                        self.server.logs.error.write(&format!("{name} again: services are killed"));
                        self.server.services.kill();
                    }
                    SignalAction::Interrupt => {
                        self.server.logs.error.write(&format!("{name}: services are ending; another one kills them"));
                        self.interrupted = true;
                    }
                    SignalAction::ReopenLogs => {
                        self.server.logs.reopen();
                        self.log_signal(name, action);
                    }
                    SignalAction::Nothing => {}
                    _ => self.server.logs.error.write(&format!("{name}: no effect, the server is ending")),
                },
            }
        }
    }

    async fn fail(&mut self, error: String) {
        self.outcome = Err(error);
        self.server.order(Command::Halt).await;
    }
}

/// Waits until the time `at`. Never returns if `at` is `None`.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until all front threads have drained. Never returns if they had drained before.
async fn drained(threads: &mut Option<Threads>) {
    match threads {
        Some(threads) => threads.drained().await,
        None => std::future::pending().await,
    }
}
