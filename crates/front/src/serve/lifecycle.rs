//! From the start of the workers to the end of the last: when the port opens, what signals do, in which order things end.
//!
//! Contract:
//! 1. The port opens when all workers are ready, and then the banner is printed.
//! 2. TERM, QUIT and the first INT drain the front threads, then the workers. A second INT ends both at once; in development the first does.
//!    An attached process decides itself what INT means.
//! 3. Before it drains, a server that got TERM or QUIT is a lame duck for `timeouts.lame_duck`: not ready, but still accepting. INT or
//!    another TERM ends that at once.
//! 4. USR2 starts a new program that takes over; then this one drains. A program that takes over opens its ports when the old one lets it.
//! 5. Services start after the workers are ready and stop after the last has ended; a second INT kills them.
//! 6. Clients that have not finished after `timeouts.shutdown` do not hold the workers any longer.

use super::configuration::Configuration;
use super::logs::Logs;
use super::observer::Observer;
use super::pool::RunningPool;
use super::sockets::Sockets;
use super::threads::Threads;
use super::upgrade::{Upgrades, joined};
use crate::banner::Banner;
use crate::listen::{Address, Bound, Listener};
use crate::services::Services;
use crate::signals::{SignalAction, Signals};
use crate::systemd::notify::Notifier;
use crate::tls::Encryption;
use crate::vitals::Vitals;
use ::pool::supervisor::{Command, Notice};
use stats::ServerState;
use std::io::IsTerminal as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long tunnels may take to end when the workers are gone: WebSockets still get a Close frame.
const LAST_TUNNELS: Duration = Duration::from_millis(500);

/// What a server at work needs beside its pool and its threads.
pub(super) struct Server<'a> {
    pub(super) configuration: &'a Configuration,
    pub(super) logs: &'a Logs,
    pub(super) encryption: &'a Encryption,
    pub(super) vitals: &'a Arc<Vitals>,
    pub(super) systemd: Rc<Notifier>,
    pub(super) observer: Observer,
    /// The worker is the process that has started this one.
    pub(super) attached: bool,
}

/// A server at work.
pub(super) struct Lifecycle<'a> {
    pub(super) server: Server<'a>,
    pub(super) sockets: Sockets,
    /// Bound ports, until they listen.
    ports: Vec<Bound>,
    pub(super) pool: RunningPool,
    /// Front threads, until they have drained.
    pub(super) threads: Option<Threads>,
    pub(super) services: Services,
    /// As [`Threads::ended`].
    tunnels: Option<mpsc::Receiver<()>>,
    banner: Banner,
    interrupted: bool,
    /// INT has come twice.
    halted: bool,
    /// When the lame duck ends, or a program that has handed over closes idle connections; `None` while there is none.
    pub(super) lame_until: Option<Instant>,
    outcome: Result<(), String>,
    pub(super) upgrades: Upgrades,
}

impl<'a> Lifecycle<'a> {
    pub(super) fn new(
        server: Server<'a>,
        mut sockets: Sockets,
        pool: RunningPool,
        mut threads: Threads,
        services: Services,
        banner: Banner,
        upgrades: Upgrades,
    ) -> Lifecycle<'a> {
        let (ports, tunnels) = (sockets.ports(), threads.ended.take());
        Lifecycle {
            server,
            sockets,
            ports,
            pool,
            threads: Some(threads),
            services,
            tunnels,
            banner,
            interrupted: false,
            halted: false,
            lame_until: None,
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
                // A panic there ends the server, too.
                _ = &mut self.pool.task => break,
                () = drained(&mut self.threads) => {
                    self.threads = None;
                    self.order(Command::Drain).await;
                }
                Some(notice) = self.pool.notices.recv() => self.notice(notice).await,
                (name, action) = signals.next() => {
                    self.log_signal(name, action);
                    self.signal(action).await;
                }
                () = until(self.lame_until) => self.drain(),
                Some(lines) = self.upgrades.wishes.recv() => self.upgrade(Some(lines)).await,
                outcome = joined(&mut self.upgrades.running) => self.upgraded(outcome).await,
                go = joined(&mut self.upgrades.waiting) => self.may_serve(go).await,
                _ = joined(&mut self.upgrades.old) => self.alone().await,
            }
        }
        self.stop_services(&mut signals).await;
        self.upgrades.end().await;
        while let Ok(notice) = self.pool.notices.try_recv() {
            if let Notice::Log(text) = notice {
                self.server.logs.error.write(&text);
            }
        }
        if let (None, Some(mut tunnels)) = (self.threads, self.tunnels) {
            // The workers' exit has ended their tunnels; the last bytes are on their way to the clients.
            let _ = tokio::time::timeout(LAST_TUNNELS, tunnels.recv()).await;
        }
        self.outcome
    }

    async fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Log(text) => self.server.logs.error.write(&text),
            Notice::Stop => self.signal(SignalAction::Stop).await,
            Notice::Reloading => {
                self.upgrades.reloading = true;
                self.server.systemd.reloading("Loading the app again");
            }
            Notice::ReloadEnded => {
                self.upgrades.reloading = false;
                self.server.systemd.reloaded();
            }
            Notice::Reloaded(settings, declared) => {
                if let Err(error) = self.server.configuration.replace(settings) {
                    let text = format!("{error}\nsites and handlers stay as they were before the reload");
                    self.server.logs.error.write(&text);
                }
                self.services.replace(&self.server.configuration.settings(), declared);
            }
            Notice::Files(told) => {
                for note in self.server.configuration.replace_public(&told) {
                    self.server.logs.error.write(&note);
                }
            }
            Notice::Services(declared) => {
                self.services.declared(&self.server.configuration.settings(), declared);
            }
            Notice::Settled if self.wait_for_old() => {}
            Notice::Settled => match self.open_ports() {
                Ok(addresses) => {
                    let status = self.opened(&addresses);
                    let places = addresses.iter().map(ToString::to_string).collect();
                    self.order(Command::Listening(places)).await;
                    self.server.systemd.ready(&status);
                    self.server.systemd.keep_alive(self.server.vitals);
                }
                Err(error) => self.fail(error).await,
            },
            Notice::Hopeless(why) => self.fail(why.to_owned()).await,
        }
    }

    /// Writes what a signal does.
    fn log_signal(&self, name: &str, action: SignalAction) {
        let settings = self.server.configuration.settings();
        let has_app = settings.app.is_some();
        let ending = || {
            let within = settings.timeouts.shutdown.as_secs_f64();
            format!("ending: requests in progress have {within} s (timeouts.shutdown)")
        };
        let effect = match action {
            SignalAction::Stop if self.lame_until.is_some() => format!("{}, at once", ending()),
            SignalAction::Stop => ending(),
            SignalAction::Interrupt if self.server.attached => {
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
            SignalAction::Reload => "loading the app again".to_owned(),
            SignalAction::Upgrade => "starting the program anew, to take over".to_owned(),
            // Each change of a window's size sends one.
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
            SignalAction::AddWorker => self.order(Command::More).await,
            SignalAction::RemoveWorker => self.order(Command::Fewer).await,
            SignalAction::Reload => self.order(Command::Reload(None)).await,
            SignalAction::Upgrade => self.upgrade(None).await,
            SignalAction::Stop => {
                self.order(Command::Leave).await;
                self.leave();
            }
            SignalAction::Interrupt if self.server.attached => {}
            SignalAction::Interrupt if self.interrupted => {
                self.halted = true;
                self.order(Command::Halt).await;
            }
            SignalAction::Interrupt => {
                self.interrupted = true;
                self.order(Command::Leave).await;
                if self.server.configuration.settings().is_development() {
                    self.order(Command::Halt).await;
                } else {
                    self.drain();
                }
            }
        }
    }

    /// Lets the ports listen and gives the threads their listeners.
    fn open_ports(&mut self) -> Result<Vec<Address>, String> {
        let listening = self.listen()?;
        Ok(self.accept(listening))
    }

    /// Lets the ports listen; nothing accepts yet.
    pub(super) fn listen(&mut self) -> Result<Vec<(Address, Vec<Listener>)>, String> {
        let mut listening = Vec::new();
        let keepalive = self.server.configuration.settings().timeouts.tcp_keepalive;
        for bound in self.ports.drain(..) {
            bound.prepare(keepalive);
            let address = bound.address().clone();
            let failed = |e| format!("cannot listen on {address}: {e}");
            self.upgrades.keep(bound.copies().map_err(failed)?);
            let (listeners, later) = bound.listen().map_err(failed)?;
            self.upgrades.later.extend(later);
            listening.push((address, listeners));
        }
        Ok(listening)
    }

    /// Gives the threads their listeners.
    pub(super) fn accept(&self, listening: Vec<(Address, Vec<Listener>)>) -> Vec<Address> {
        let mut addresses = Vec::new();
        for (address, listeners) in listening {
            if let Some(threads) = &self.threads {
                threads.listen(listeners);
            }
            addresses.push(address);
        }
        addresses
    }

    /// The ports are open: tells those who want to know. Returns the line for the service manager.
    pub(super) fn opened(&mut self, addresses: &[Address]) -> String {
        self.server.vitals.enter(ServerState::Serving);
        self.server.observer.opened(addresses);
        self.banner.print(&self.server.configuration.watch_sites().borrow(), addresses);
        self.server.encryption.opened();
        self.services.start(&self.server.configuration.settings());
        let places: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("Serving {}", places.join(", "))
    }

    /// Tells probes and clients that the server leaves, and drains after `timeouts.lame_duck`. The second time: at once.
    fn leave(&mut self) {
        self.upgrades.stop();
        let settings = self.server.configuration.settings();
        let lame = settings.timeouts.lame_duck.unwrap_or_default();
        // Where no port is open yet, nobody has to hear of it.
        let serving = self.server.vitals.state() == ServerState::Serving;
        let Some(threads) = self.threads.as_ref().filter(|_| serving && !lame.is_zero()) else {
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

    /// Clients first; the workers when the front threads have drained, or after the time for it.
    fn drain(&mut self) {
        self.lame_until = None;
        self.upgrades.stop();
        // Clients must be refused, not left waiting in a queue that nobody reads.
        self.upgrades.forget_sockets();
        self.server.vitals.enter(ServerState::Draining);
        let within = self.server.configuration.settings().timeouts.shutdown;
        self.server.systemd.stopping("Finishing requests", within);
        let Some(threads) = &self.threads else { return };
        threads.drain();
        let commands = self.pool.commands.clone();
        let timeout = self.server.configuration.settings().timeouts.shutdown;
        tokio::task::spawn_local(async move {
            tokio::time::sleep(timeout).await;
            // The pool may have ended by then.
            let _ = commands.send(Command::Drain).await;
        });
    }

    /// The workers have ended: now the services do.
    async fn stop_services(&mut self, signals: &mut Signals) {
        if let Some(within) = self.services.longest_stop() {
            self.server.systemd.stopping("Stopping services", within);
        }
        if self.halted {
            self.services.kill()
        } else {
            self.services.stop()
        }
        loop {
            tokio::select! {
                () = self.services.ended() => return,
                (name, action) = signals.next() => match action {
                    SignalAction::Interrupt if self.interrupted => {
                        self.server.logs.error.write(&format!("{name} again: services are killed"));
                        self.services.kill();
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

    pub(super) async fn fail(&mut self, error: String) {
        self.outcome = Err(error);
        self.order(Command::Halt).await;
    }

    pub(super) async fn order(&self, command: Command) {
        // A pool that has ended takes no orders.
        let _ = self.pool.commands.send(command).await;
    }
}

/// Waits for a time, or for ever when there is none.
async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Waits until all front threads have drained; once they have, never returns.
async fn drained(threads: &mut Option<Threads>) {
    match threads {
        Some(threads) => threads.drained().await,
        None => std::future::pending().await,
    }
}
