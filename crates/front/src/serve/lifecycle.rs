//! From the start of the workers to the end of the last: when the port opens, what signals do, in which order things end.
//!
//! Contract:
//! 1. The port opens when all workers are ready, and then the banner is printed.
//! 2. TERM, QUIT and the first INT drain the front threads, then the workers. A second INT ends both at once.
//! 3. Clients that have not finished after `timeouts.shutdown` do not hold the workers any longer.

use super::configuration::Configuration;
use super::logs::Logs;
use super::pool::RunningPool;
use super::threads::Threads;
use crate::banner::Banner;
use crate::listen::{Address, Bound};
use crate::signals::{SignalAction, Signals};
use crate::tls::Encryption;
use ::pool::supervisor::{Command, Notice};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long tunnels may take to end when the workers are gone: WebSockets still get a Close frame.
const LAST_TUNNELS: Duration = Duration::from_millis(500);

/// A server at work.
pub(super) struct Lifecycle<'a> {
    configuration: &'a Configuration,
    logs: &'a Logs,
    encryption: &'a Encryption,
    /// Bound ports, until they listen.
    ports: Vec<Bound>,
    pool: RunningPool,
    /// Front threads, until they have drained.
    threads: Option<Threads>,
    /// As [`Threads::ended`].
    tunnels: Option<mpsc::Receiver<()>>,
    banner: Banner,
    interrupted: bool,
    outcome: Result<(), String>,
}

impl<'a> Lifecycle<'a> {
    pub(super) fn new(
        configuration: &'a Configuration,
        logs: &'a Logs,
        encryption: &'a Encryption,
        ports: Vec<Bound>,
        pool: RunningPool,
        mut threads: Threads,
        banner: Banner,
    ) -> Lifecycle<'a> {
        let tunnels = threads.ended.take();
        let (threads, interrupted, outcome) = (Some(threads), false, Ok(()));
        Lifecycle {
            configuration,
            logs,
            encryption,
            ports,
            pool,
            threads,
            tunnels,
            banner,
            interrupted,
            outcome,
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
                action = signals.next() => self.signal(action).await,
            }
        }
        while let Ok(Notice::Log(text)) = self.pool.notices.try_recv() {
            self.logs.error.write(&text);
        }
        if let (None, Some(mut tunnels)) = (self.threads, self.tunnels) {
            // The workers' exit has ended their tunnels; the last bytes are on their way to the clients.
            let _ = tokio::time::timeout(LAST_TUNNELS, tunnels.recv()).await;
        }
        self.outcome
    }

    async fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Log(text) => self.logs.error.write(&text),
            Notice::Reloaded(settings) => self.configuration.replace(settings),
            Notice::Settled => match self.open_ports() {
                Ok(addresses) => {
                    self.banner.print(&self.configuration.watch_sites().borrow(), &addresses);
                    self.encryption.opened();
                }
                Err(error) => self.fail(error).await,
            },
            Notice::Hopeless => {
                let error = "the workers exit before they are ready; see above for the reason";
                self.fail(error.to_owned()).await;
            }
        }
    }

    async fn signal(&mut self, action: SignalAction) {
        match action {
            SignalAction::ReopenLogs => self.logs.reopen(),
            SignalAction::AddWorker => self.order(Command::More).await,
            SignalAction::RemoveWorker => self.order(Command::Fewer).await,
            SignalAction::Reload => self.order(Command::Reload(None)).await,
            SignalAction::Unsupported => {
                self.logs.error.write("USR2 does nothing here: USR1 or `firebrick reload` loads new code");
            }
            SignalAction::Stop => self.drain(),
            SignalAction::Interrupt if self.interrupted => self.order(Command::Halt).await,
            SignalAction::Interrupt => {
                self.interrupted = true;
                self.drain();
            }
        }
    }

    /// Lets the ports listen and gives each thread its listeners.
    fn open_ports(&mut self) -> Result<Vec<Address>, String> {
        let mut addresses = Vec::new();
        for bound in self.ports.drain(..) {
            let address = bound.address().clone();
            let listeners = bound.listen().map_err(|e| format!("cannot listen on {address}: {e}"))?;
            if let Some(threads) = &self.threads {
                threads.listen(listeners);
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// Clients first; the workers when the front threads have drained, or after the time for it.
    fn drain(&self) {
        let Some(threads) = &self.threads else { return };
        threads.drain();
        let commands = self.pool.commands.clone();
        let timeout = self.configuration.settings().timeouts.shutdown;
        tokio::task::spawn_local(async move {
            tokio::time::sleep(timeout).await;
            // The pool may have ended by then.
            let _ = commands.send(Command::Drain).await;
        });
    }

    async fn fail(&mut self, error: String) {
        self.outcome = Err(error);
        self.order(Command::Halt).await;
    }

    async fn order(&self, command: Command) {
        // A pool that has ended takes no orders.
        let _ = self.pool.commands.send(command).await;
    }
}

/// Waits until all front threads have drained; once they have, never returns.
async fn drained(threads: &mut Option<Threads>) {
    match threads {
        Some(threads) => threads.drained().await,
        None => std::future::pending().await,
    }
}
