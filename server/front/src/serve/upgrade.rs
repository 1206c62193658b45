//! Runs upgrades in both roles: a new program takes over from this one, or this one from an old one.
//! [`crate::handover`] defines the protocol.
//!
//! Contract:
//! 1. Only one upgrade runs at a time, never during a reload, and not before the old program of the last upgrade has exited.
//! 2. A signal that ends this program also ends a new one that is not ready yet. If the new one has taken
//!    over meanwhile, it is told to stop as well.
//! 3. While a new program may own the sockets' files, no template of this program removes them.
//! 4. Keep-alive clients have [`LAST_REQUESTS`] to learn from a response that their connection closes. Only
//!    then are idle connections closed.

use super::lifecycle::Lifecycle;
use super::observer::Wishes;
use super::upgrade_record::UpgradeRecord;
use crate::error_log::ErrorLog;
use crate::handover::{Offer, Place, Predecessor, Started, Successor};
use crate::listen::LaterUdp;
use control::reload::ReloadLine;
use net::task::spawn_local;
use stats::{ServerState, UpgradeOutcome};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use workers::supervisor::Command;

/// How long connections stay open for another request after a handover.
const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// The longest time that an unwanted new program can delay the exit of this one.
const LAST_SUCCESSOR: Duration = Duration::from_secs(5);

/// A new program that has taken over, and the files that it owns.
type Outcome = Result<(Successor, Vec<PathBuf>), String>;

/// The channel for the progress of an upgrade.
type Lines = mpsc::UnboundedSender<ReloadLine>;

pub(super) struct Upgrades {
    started: Started,
    pub(super) wishes: Wishes,
    /// Duplicates of all listening sockets.
    kept: Vec<(Place, Vec<OwnedFd>)>,
    /// The upgrade in progress.
    pub(super) running: Option<JoinHandle<Outcome>>,
    cancel: Option<oneshot::Sender<()>>,
    reporter: Option<Reporter>,
    /// An upgrade that waits until the old program has exited.
    queued: Option<Reporter>,
    stopping: bool,
    record: UpgradeRecord,
    /// Whether a reload is in progress.
    pub(super) reloading: bool,
    /// The program that has taken over. Its socket stays open until this process exits.
    successor: Option<Successor>,
    /// The program that this one takes over from.
    predecessor: Option<Rc<Predecessor>>,
    /// Waits until this program may serve.
    pub(super) waiting: Option<JoinHandle<Result<bool, String>>>,
    /// Waits until the old program has exited.
    pub(super) old: Option<JoinHandle<()>>,
    /// UDP sockets that the old program still uses.
    pub(super) later: Vec<LaterUdp>,
}

impl Upgrades {
    pub(super) fn new(
        started: Started,
        wishes: Wishes,
        record: UpgradeRecord,
        predecessor: Option<Rc<Predecessor>>,
    ) -> Upgrades {
        Upgrades {
            started,
            wishes,
            kept: Vec::new(),
            running: None,
            cancel: None,
            reporter: None,
            queued: None,
            stopping: false,
            record,
            reloading: false,
            successor: None,
            predecessor,
            waiting: None,
            old: None,
            later: Vec::new(),
        }
    }

    /// Keeps duplicates of sockets for a handover.
    pub(super) fn keep(&mut self, copies: Vec<(Place, Vec<OwnedFd>)>) {
        self.kept.extend(copies);
    }

    /// Closes the duplicates. No handover is possible any more.
    pub(super) fn forget_sockets(&mut self) {
        self.kept.clear();
        self.later.clear();
    }

    /// Cancels an upgrade in progress, because this program is stopping.
    pub(super) fn stop(&mut self) {
        self.stopping |= self.running.is_some();
        self.cancel = None;
    }

    /// Waits until a cancelled upgrade has stopped its program.
    pub(super) async fn end(&mut self) {
        self.stop();
        let Some(running) = self.running.take() else { return };
        if let Ok(Ok(Ok((successor, _)))) = tokio::time::timeout(LAST_SUCCESSOR, running).await {
            successor.stop();
        }
    }

    fn offer(&self, control: io::Result<Offer>) -> io::Result<Offer> {
        let mut offer = control?;
        offer.upgrades = self.record.counted();
        for (place, sockets) in &self.kept {
            let copies = sockets.iter().map(OwnedFd::try_clone).collect::<io::Result<_>>()?;
            offer.sockets.push((place.clone(), copies));
        }
        Ok(offer)
    }
}

/// Reports progress to the client of the control server and to the log.
#[derive(Clone)]
struct Reporter {
    log: Arc<ErrorLog>,
    lines: Option<Lines>,
    record: UpgradeRecord,
}

impl Reporter {
    fn step(&self, stage: &str, text: &str) {
        self.record.step(stage, text);
        self.log.write(&format!("upgrade: {text}"));
        self.send(ReloadLine::Step { stage: stage.to_owned(), text: text.to_owned() });
    }

    fn done(&self, done: String) {
        self.record.ended(UpgradeOutcome::Done, &done);
        self.log.write(&format!("upgrade: {done}"));
        self.send(ReloadLine::Done { done });
    }

    fn failed(&self, failed: String) {
        self.record.ended(UpgradeOutcome::Failed, &failed);
        self.end(failed);
    }

    /// Reports that the upgrade cannot begin. It is not counted.
    fn refused(&self, why: &str) {
        self.end(format!("{why}; nothing has changed"));
    }

    fn end(&self, failed: String) {
        self.log.write(&format!("upgrade: {failed}"));
        self.send(ReloadLine::Failed { failed });
    }

    fn send(&self, line: ReloadLine) {
        // The client may be gone. The upgrade continues.
        let _ = self.lines.as_ref().map(|lines| lines.send(line));
    }
}

/// Starts the new program, and follows it until it serves.
async fn run(
    started: Started,
    offer: Offer,
    reporter: Reporter,
    cancelled: oneshot::Receiver<()>,
) -> Outcome {
    let begun = Instant::now();
    let mut new = Successor::start(&started, offer).await?;
    reporter.step("starting", &format!("process {} is started", new.pid()));
    let ready = tokio::select! {
        ready = new.ready(|text| reporter.step("booting", text)) => ready,
        _ = cancelled => Err("the server is stopping".to_owned()),
    };
    let taken = match ready {
        Ok(()) => {
            let seconds = begun.elapsed().as_secs_f64();
            reporter.step("handing over", &format!("process {} could serve ({seconds:.1} s)", new.pid()));
            new.take_over().await
        }
        Err(why) => Err(why),
    };
    match taken {
        Ok(files) => Ok((new, files)),
        Err(why) => {
            new.end().await;
            Err(why)
        }
    }
}

impl Lifecycle<'_> {
    // The role of the old program.

    /// Starts a new program that takes over.
    pub(super) async fn upgrade(&mut self, lines: Option<Lines>) {
        let (log, record) = (self.server.logs.error.clone(), self.upgrades.record.clone());
        let reporter = Reporter { log, lines, record };
        if self.server.attached {
            return reporter.refused(
                "this server was started by a Ruby process, which would keep using the old program: restart that process instead",
            );
        }
        if self.upgrades.predecessor.is_some()
            && self.upgrades.old.is_some()
            && self.upgrades.queued.is_none()
        {
            reporter.step("waiting", "the program from before the last upgrade finishes its requests");
            self.upgrades.queued = Some(reporter);
            return;
        }
        self.begin_upgrade(reporter).await;
    }

    async fn begin_upgrade(&mut self, reporter: Reporter) {
        let offer = match self.may_upgrade() {
            Ok(offer) => offer,
            Err(why) => return reporter.refused(&why),
        };
        self.server.systemd.reloading("Starting a new program");
        self.server.observer.upgrading(true);
        // From now on the files may belong to the new program, so the template must not remove them if this program is killed.
        self.order(Command::Unlink(Vec::new())).await;
        let (cancel, cancelled) = oneshot::channel();
        let upgrade = run(self.upgrades.started.clone(), offer, reporter.clone(), cancelled);
        self.upgrades.running = Some(spawn_local(upgrade));
        self.upgrades.cancel = Some(cancel);
        self.upgrades.reporter = Some(reporter);
    }

    fn may_upgrade(&self) -> Result<Offer, String> {
        match self.server.vitals.state() {
            ServerState::Serving => {}
            ServerState::Booting => return Err("the server is still starting".to_owned()),
            _ => return Err("the server is stopping".to_owned()),
        }
        if self.upgrades.running.is_some() || self.upgrades.queued.is_some() {
            return Err("another upgrade is under way".to_owned());
        }
        if self.upgrades.reloading {
            return Err(
                "a reload is under way: wait for its end, or break it off with `firebrick reload --undo`"
                    .to_owned(),
            );
        }
        self.upgrades.offer(self.sockets.offer()).map_err(|e| format!("the sockets cannot be copied: {e}"))
    }

    /// Handles the end of an upgrade.
    pub(super) async fn upgraded(&mut self, outcome: Result<Outcome, JoinError>) {
        self.upgrades.running = None;
        self.upgrades.cancel = None;
        let Some(reporter) = self.upgrades.reporter.take() else { return };
        match outcome.unwrap_or_else(|e| Err(format!("the upgrade failed: {e}"))) {
            Ok((successor, files)) => self.hand_over(successor, files, &reporter).await,
            Err(why) => {
                self.order(Command::Unlink(self.sockets.files())).await;
                self.server.observer.upgrading(false);
                self.server.systemd.reloaded();
                reporter.failed(format!("{why}\nThe program that served before goes on"));
            }
        }
    }

    /// Hands over to the new program, which serves now. This program finishes its requests.
    async fn hand_over(&mut self, successor: Successor, files: Vec<PathBuf>, reporter: &Reporter) {
        let pid = successor.pid();
        self.server.systemd.handed_over(pid);
        successor.confirm().await;
        self.sockets.handed_over(files).await;
        self.upgrades.forget_sockets();
        self.server.vitals.enter(ServerState::Draining);
        // The new program has started its own services, so these can stop before the last request is done.
        self.services.stop();
        if self.upgrades.stopping {
            successor.stop();
        }
        self.upgrades.successor = Some(successor);
        if let Some(threads) = &self.threads {
            threads.hand_over();
        }
        self.lame_until.get_or_insert(Instant::now() + LAST_REQUESTS);
        reporter.done(format!(
            "process {pid} serves; process {} finishes its requests and ends",
            std::process::id()
        ));
    }

    // The role of the new program.

    /// Called when all workers are ready. Returns whether this program has to wait for the old one.
    pub(super) fn wait_for_old(&mut self) -> bool {
        if self.upgrades.waiting.is_some() {
            return true;
        }
        let Some(old) = self.upgrades.predecessor.clone().filter(|_| self.upgrades.old.is_none()) else {
            return false;
        };
        self.upgrades.waiting = Some(spawn_local(async move { old.ready().await }));
        true
    }

    /// Takes over, once the old program has sent `go` or has died.
    pub(super) async fn may_serve(&mut self, go: Result<Result<bool, String>, JoinError>) {
        self.upgrades.waiting = None;
        let served = match go.unwrap_or_else(|e| Err(format!("the upgrade failed: {e}"))) {
            // A signal has stopped this program meanwhile.
            Ok(_) if self.server.vitals.state() != ServerState::Booting => return,
            Ok(old_lives) => self.take_over(old_lives).await,
            Err(why) => Err(why),
        };
        if let Err(error) = served {
            self.fail(error).await;
        }
    }

    async fn take_over(&mut self, old_lives: bool) -> Result<(), String> {
        let Some(old) = self.upgrades.predecessor.clone() else { return Ok(()) };
        // All steps that can fail come before the first connection.
        let listening = self.listen()?;
        self.sockets.take_over(self.server.observer.clone())?;
        let addresses = self.accept(listening);
        let status = self.opened(&addresses);
        let text = format!("process {} took over from process {}", std::process::id(), old.pid());
        self.upgrades.record.ended(UpgradeOutcome::Done, &text);
        let files = self.sockets.files();
        self.order(Command::Unlink(files.clone())).await;
        if !old_lives {
            self.server.logs.error.write(&format!("process {} died while it handed over", old.pid()));
        }
        let (systemd, vitals) = (self.server.systemd.clone(), self.server.vitals.clone());
        self.upgrades.old = Some(spawn_local(async move {
            if old_lives {
                old.serving(files).await;
            }
            systemd.ready(&status);
            systemd.keep_alive(&vitals);
            old.gone().await;
        }));
        Ok(())
    }

    /// Called when the old program has exited: starts HTTP/3 on the UDP sockets that it used.
    pub(super) async fn alone(&mut self) {
        self.upgrades.old = None;
        self.upgrades.predecessor = None;
        for later in std::mem::take(&mut self.upgrades.later) {
            let Some(threads) = &self.threads else { break };
            match later.listen(threads.count()) {
                Ok((listeners, copies)) => {
                    self.upgrades.kept.retain(|(place, _)| *place != copies.0);
                    self.upgrades.kept.push(copies);
                    threads.listen(listeners);
                }
                Err(why) => self.server.logs.error.write(&why),
            }
        }
        if let Some(queued) = self.upgrades.queued.take() {
            self.upgrades.record.waited();
            self.begin_upgrade(queued).await;
        }
    }
}

/// Waits for the task. Never returns if `task` is `None`.
pub(super) async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
