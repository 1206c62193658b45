//! Runs upgrades in both roles: a new program takes over from this one, or this one from an old one.
//! [`crate::handover`] defines the protocol.
//!
//! Contract:
//! 1. Only one upgrade runs at a time, never during a reload, and not before the old program of the last upgrade has exited.
//! 2. A signal that ends this program also ends a new program that is not ready yet. If the new program has
//!    taken over meanwhile, it receives TERM as well.
//! 3. While a new program may own the sockets' files, no template of this program removes them.
//! 4. Keep-alive clients have [`LAST_REQUESTS`] to learn from a response that their connection closes. Only
//!    then are idle connections closed.

use super::interruptions::Interruptions;
use super::observer::Wishes;
use super::server::{Kept, Server};
use crate::error_log::ErrorLog;
use crate::handover::{Offer, Predecessor, Started, Successor, SuccessorChannel, UpgradeRecord};
use crate::hub::heirloom::give_away;
use cache::{Purge, Store};
use net::task::spawn_local;
use stats::{ReloadStage, ReloadStep, ServerState, UpgradeOutcome};
use std::fs::File;
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
pub(super) const LAST_REQUESTS: Duration = Duration::from_secs(2);
/// The longest time that an unwanted new program can delay the exit of this one.
const LAST_SUCCESSOR: Duration = Duration::from_secs(5);

/// A new program that has taken over, and the files that it owns.
type TakeoverResult = Result<(Successor, Vec<PathBuf>), String>;

/// The channel for the progress of an upgrade.
type Steps = mpsc::UnboundedSender<ReloadStep>;

/// Events of upgrades to which the lifecycle reacts.
pub(super) enum Event {
    /// An upgrade is to begin. Its progress goes to a client of the control server, or only to the log.
    Asked(Option<Steps>),
    /// The upgrade in progress has ended.
    Ended(Result<TakeoverResult, JoinError>),
    /// This program may take over, if the old one has not failed to hand over.
    MayServe(Result<Result<bool, String>, JoinError>),
    /// The old program has exited.
    OldEnded,
}

pub(super) struct Upgrades {
    started: Started,
    wishes: Wishes,
    kept: Kept,
    /// The upgrade in progress.
    running: Option<JoinHandle<TakeoverResult>>,
    cancel: Option<oneshot::Sender<()>>,
    reporter: Option<Reporter>,
    /// An upgrade that waits until the old program has exited.
    queued: Option<Reporter>,
    stopping: bool,
    record: UpgradeRecord,
    /// The program that has taken over. Its socket stays open until this process exits.
    successor: Option<Successor>,
    /// The program that this one takes over from.
    predecessor: Option<Rc<Predecessor>>,
    /// Waits until this program may serve.
    waiting: Option<JoinHandle<Result<bool, String>>>,
    /// Waits until the old program has exited.
    old: Option<JoinHandle<()>>,
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
            kept: Kept::default(),
            running: None,
            cancel: None,
            reporter: None,
            queued: None,
            stopping: false,
            record,
            successor: None,
            predecessor,
            waiting: None,
            old: None,
        }
    }

    /// Waits for the next event of an upgrade.
    pub(super) async fn next(&mut self) -> Event {
        tokio::select! {
            Some(steps) = self.wishes.recv() => Event::Asked(Some(steps)),
            outcome = joined(&mut self.running) => Event::Ended(outcome),
            go = joined(&mut self.waiting) => Event::MayServe(go),
            _ = joined(&mut self.old) => Event::OldEnded,
        }
    }

    /// Acts on an event. Returns whether a new program has taken over, so that this one has to finish its requests.
    ///
    /// # Errors
    /// This program was to take over from an old one and cannot.
    pub(super) async fn follow(&mut self, event: Event, server: &mut Server<'_>) -> Result<bool, String> {
        match event {
            Event::Asked(steps) => self.asked(steps, server).await,
            Event::Ended(outcome) => return Ok(self.ended(outcome, server).await),
            Event::MayServe(go) => self.may_serve(go, server).await?,
            Event::OldEnded => self.alone(server).await,
        }
        Ok(false)
    }

    /// Keeps sockets for a handover.
    pub(super) fn keep(&mut self, kept: Kept) {
        self.kept.copies.extend(kept.copies);
        self.kept.later.extend(kept.later);
    }

    /// Closes the duplicates. No handover is possible any more.
    pub(super) fn forget_sockets(&mut self) {
        self.kept = Kept::default();
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
        for (place, sockets) in &self.kept.copies {
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
    steps: Option<Steps>,
    record: UpgradeRecord,
}

impl Reporter {
    fn step(&self, stage: ReloadStage, text: &str) {
        self.record.step(stage, text);
        self.log.write(&format!("upgrade: {text}"));
        self.send(ReloadStep::Step { stage, text: text.to_owned() });
    }

    fn done(&self, done: String) {
        self.record.ended(UpgradeOutcome::Done, &done);
        self.log.write(&format!("upgrade: {done}"));
        self.send(ReloadStep::Done { done });
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
        self.send(ReloadStep::Failed { failed });
    }

    fn send(&self, step: ReloadStep) {
        // The client may be gone. The upgrade continues.
        let _ = self.steps.as_ref().map(|steps| steps.send(step));
    }
}

/// Starts the new program, and follows it until it serves.
async fn run(
    started: Started,
    offer: Offer,
    reporter: Reporter,
    interruptions: Interruptions,
    cancelled: oneshot::Receiver<()>,
) -> TakeoverResult {
    let begun = Instant::now();
    let mut new = Successor::start(&started, offer).await?;
    reporter.step(ReloadStage::Starting, &format!("process {} is started", new.pid()));
    let ready = tokio::select! {
        ready = new.ready(|text| reporter.step(ReloadStage::Booting, text)) => ready,
        _ = cancelled => Err("the server is stopping".to_owned()),
    };
    let taken = match ready {
        Ok(()) => {
            let seconds = begun.elapsed().as_secs_f64();
            reporter.step(
                ReloadStage::HandingOver,
                &format!("process {} could serve ({seconds:.1} s)", new.pid()),
            );
            interruptions.freeze(true);
            new.take_over(&interruptions.in_force()).await
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

impl Upgrades {
    // The role of the old program.

    /// Starts a new program that takes over.
    async fn asked(&mut self, steps: Option<Steps>, server: &mut Server<'_>) {
        let (log, record) = (server.logs.error.clone(), self.record.clone());
        let reporter = Reporter { log, steps, record };
        if server.workers.are_attached() {
            return reporter.refused(
                "this server was started by a Ruby process, which would keep using the old program: restart that process instead",
            );
        }
        if self.predecessor.is_some() && self.old.is_some() && self.queued.is_none() {
            reporter
                .step(ReloadStage::Waiting, "the program from before the last upgrade finishes its requests");
            self.queued = Some(reporter);
            return;
        }
        self.begin(reporter, server).await;
    }

    async fn begin(&mut self, reporter: Reporter, server: &mut Server<'_>) {
        let offer = match self.may_begin(server) {
            Ok(offer) => offer,
            Err(why) => return reporter.refused(&why),
        };
        if !server.reloads.begin_upgrade().await {
            return reporter.refused(
                "a reload is under way: wait for its end, or break it off with `firebrick reload --undo`",
            );
        }
        server.systemd.reloading("Starting a new program");
        // From now on the files may belong to the new program, so the template must not remove them if this program is killed.
        server.order(Command::Unlink(Vec::new())).await;
        let (cancel, cancelled) = oneshot::channel();
        let interruptions = server.interruptions.clone();
        let upgrade = run(self.started.clone(), offer, reporter.clone(), interruptions, cancelled);
        self.running = Some(spawn_local(upgrade));
        self.cancel = Some(cancel);
        self.reporter = Some(reporter);
    }

    fn may_begin(&self, server: &Server<'_>) -> Result<Offer, String> {
        match server.vitals.state() {
            ServerState::Serving => {}
            ServerState::Booting => return Err("the server is still starting".to_owned()),
            _ => return Err("the server is stopping".to_owned()),
        }
        if self.running.is_some() || self.queued.is_some() {
            return Err("another upgrade is under way".to_owned());
        }
        let recent = server.releases.recent.handed_over();
        let recent = recent.map_err(|e| format!("the recent requests cannot be copied: {e}"))?;
        let offer = self.offer(server.sockets.offer());
        let offer = offer.map_err(|e| format!("the sockets cannot be copied: {e}"))?;
        Ok(Offer { recent, ..offer })
    }

    /// Handles the end of an upgrade. Returns whether the new program has taken over.
    async fn ended(&mut self, outcome: Result<TakeoverResult, JoinError>, server: &mut Server<'_>) -> bool {
        self.running = None;
        self.cancel = None;
        let Some(reporter) = self.reporter.take() else { return false };
        match outcome.unwrap_or_else(|e| Err(format!("the upgrade failed: {e}"))) {
            Ok((successor, files)) => {
                self.hand_over(successor, files, &reporter, server).await;
                true
            }
            Err(why) => {
                server.order(Command::Unlink(server.sockets.files())).await;
                server.interruptions.freeze(false);
                server.systemd.reloaded();
                reporter.failed(format!("{why}\nThe old program keeps serving"));
                server.reloads.upgrade_failed().await;
                false
            }
        }
    }

    /// Hands over to the new program, which serves now. This program finishes its requests.
    async fn hand_over(
        &mut self,
        successor: Successor,
        files: Vec<PathBuf>,
        reporter: &Reporter,
        server: &mut Server<'_>,
    ) {
        let pid = successor.pid();
        server.systemd.handed_over(pid);
        successor.confirm().await;
        server.sockets.handed_over(files).await;
        self.forget_sockets();
        server.vitals.enter(ServerState::Draining);
        // The new program has started its own services, so these can stop before the last request is done.
        server.services.stop();
        let reloads = server.reloads.upgraded();
        if self.stopping {
            successor.stop();
        } else if reloads {
            successor.reload();
        }
        spawn_local(follow(successor.channel(), server.interruptions.clone()));
        if let Some(store) = server.threads.as_ref().and_then(|threads| threads.store.as_ref()) {
            let (tell, mut invalid) = mpsc::unbounded_channel();
            // Fails only when this program ends.
            store.tell_removals(move |key| _ = tell.send(key.to_vec()));
            let channel = successor.channel();
            spawn_local(async move {
                while let Some(key) = invalid.recv().await {
                    channel.invalidated(key).await;
                }
            });
        }
        self.successor = Some(successor);
        if let Some(threads) = &server.threads {
            threads.hand_over();
        }
        if let Some(publishing) = server.publishing.take() {
            publishing.stop().await;
        }
        let hub = server.threads.as_ref().and_then(|threads| threads.hub.clone());
        if let Some((hub, successor)) = hub.zip(self.successor.as_ref()) {
            let log = server.logs.error.clone();
            let channel = successor.channel();
            spawn_local(async move { give_away(hub, channel, |what| log.write(what)).await });
        }
        reporter.done(format!(
            "process {pid} serves; process {} finishes its requests and ends",
            std::process::id()
        ));
    }

    /// Gives the kept responses to the program that has taken over. Called when the last request has ended.
    pub(super) async fn bequeath(&self, store: Option<Arc<Store>>, log: &ErrorLog) {
        let (Some(successor), Some(store)) = (&self.successor, store) else { return };
        let written = tokio::task::spawn_blocking(move || {
            let file = sys::file::in_memory("firebrick kept responses")?;
            store.bequeath(&file).map(|_| file)
        });
        match written.await.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(file) => successor.channel().kept(&file).await,
            Err(error) => log.write(&format!("the kept responses are not handed over: {error}")),
        }
    }

    /// Returns the program that has taken over.
    pub(super) fn successor(&self) -> Option<&Successor> {
        self.successor.as_ref()
    }

    // The role of the new program.

    /// Called when all workers are ready. Returns whether this program has to wait for the old one.
    pub(super) fn waits_for_old(&mut self) -> bool {
        if self.waiting.is_some() {
            return true;
        }
        let Some(old) = self.predecessor.clone().filter(|_| self.old.is_none()) else {
            return false;
        };
        self.waiting = Some(spawn_local(async move { old.ready().await }));
        true
    }

    /// Takes over, once the old program has sent `go` or has died.
    ///
    /// # Errors
    /// The old program does not hand over, or this one cannot take over.
    async fn may_serve(
        &mut self,
        go: Result<Result<bool, String>, JoinError>,
        server: &mut Server<'_>,
    ) -> Result<(), String> {
        self.waiting = None;
        match go.unwrap_or_else(|e| Err(format!("the upgrade failed: {e}"))) {
            // A signal has stopped this program meanwhile.
            Ok(_) if server.vitals.state() != ServerState::Booting => Ok(()),
            Ok(old_lives) => self.take_over(old_lives, server).await,
            Err(why) => Err(why),
        }
    }

    async fn take_over(&mut self, old_lives: bool, server: &mut Server<'_>) -> Result<(), String> {
        let Some(old) = self.predecessor.clone() else { return Ok(()) };
        // All steps that can fail come before the first connection.
        let (ports, kept) = server.listen()?;
        self.keep(kept);
        server.interruptions.adopt(&old);
        server.sockets.take_over(server.observer.clone())?;
        let store = server.threads.as_ref().and_then(|threads| threads.store.clone());
        store.iter().for_each(|store| store.expect_inheritance());
        let hub = server.threads.as_ref().and_then(|threads| threads.hub.clone());
        let addresses = server.accept(ports);
        let status = server.opened(&addresses);
        let text = format!("process {} took over from process {}", std::process::id(), old.pid());
        self.record.ended(UpgradeOutcome::Done, &text);
        let files = server.sockets.files();
        server.order(Command::Unlink(files.clone())).await;
        if !old_lives {
            server.logs.error.write(&format!("process {} died while it handed over", old.pid()));
        }
        let (systemd, vitals, log) =
            (server.systemd.clone(), server.vitals.clone(), server.logs.error.clone());
        self.old = Some(spawn_local(async move {
            if old_lives {
                old.serving(files).await;
            }
            systemd.ready(&status);
            systemd.keep_alive(&vitals);
            let take_up = |heirloom| {
                if let Some(Err(why)) = hub.as_ref().map(|hub| hub.inherit(heirloom)) {
                    log.write(&why);
                }
            };
            old.gone(|file| inherit(&store, file, &log), |key| forget(&store, key), take_up).await;
        }));
        Ok(())
    }

    /// Called when the old program has exited: starts HTTP/3 on the UDP sockets that it used.
    async fn alone(&mut self, server: &mut Server<'_>) {
        self.old = None;
        self.predecessor = None;
        server.interruptions.old_ended();
        for later in std::mem::take(&mut self.kept.later) {
            let Some(threads) = &server.threads else { break };
            match later.listen(threads.count()) {
                Ok((listeners, copies)) => {
                    self.kept.copies.retain(|(place, _)| *place != copies.0);
                    self.kept.copies.push(copies);
                    threads.listen(listeners);
                }
                Err(why) => server.logs.error.write(&why),
            }
        }
        if let Some(queued) = self.queued.take() {
            self.record.waited();
            self.begin(queued, server).await;
        }
    }
}

/// Removes what a request of the old program has invalidated: one key, or all if it is empty.
fn forget(store: &Option<Arc<Store>>, key: &[u8]) {
    match store {
        Some(store) if key.is_empty() => _ = store.purge(&Purge::All),
        Some(store) => _ = store.remove(key),
        None => {}
    }
}

/// Takes over the kept responses of the old program.
fn inherit(store: &Option<Arc<Store>>, file: File, log: &Arc<ErrorLog>) {
    let Some(store) = store.clone() else { return };
    let log = log.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(error) = store.inherit(file) {
            log.write(&format!("the kept responses of the old program cannot be read: {error}"));
        }
    });
}

/// Follows what the program that has taken over says about a pause, until it has exited.
async fn follow(new: Rc<SuccessorChannel>, interruptions: Interruptions) {
    while let Some(time) = new.paused().await {
        interruptions.told_by_successor(time);
    }
}

/// Waits for the task. Never returns if `task` is `None`.
async fn joined<T>(task: &mut Option<JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}
