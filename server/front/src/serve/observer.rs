//! The data source of the control server. It exists before the app is loaded; until then it reports only the server's phase.

use super::heap;
use super::interruptions::Interruptions;
use super::reload::Reloads;
use super::snapshot::{Detail, Snapshotter};
use crate::caching::{self, SharedPurges};
use crate::listen::Address;
use crate::vitals::Vitals;
use control::cache::{PurgeOrder, Purged};
use control::changes::{ChangeReport, ChangesReport, CheckedSet, UndoOrder};
use control::heap::HeapWish;
use control::orders::{self, OrderError};
use control::profile::ProfileOrder;
use control::record::{RecordOrder, RecordedLine};
use control::{ControlCaller, Provider, PumaCommand};
use rustix::process::{Signal, getpid, kill_process};
use stats::{
    CacheLookup, CacheReport, Death, HubReport, InFlight, KeptRequest, Load, MaintenanceSnapshot,
    PauseSnapshot, ReloadStep, ReloadWish, RoutesSnapshot, ServerSnapshot, ShadowReport, Status,
};
use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::{Notify, mpsc, oneshot};

/// The delay before the signal of an order, so that the client gets its response first.
const ANSWERED: Duration = Duration::from_millis(100);

/// Requests for upgrades, each with the channel for its progress.
pub(crate) type Wishes = mpsc::UnboundedReceiver<mpsc::UnboundedSender<ReloadStep>>;

#[derive(Clone)]
pub(crate) struct Observer(Rc<Observed>);

struct Observed {
    vitals: Arc<Vitals>,
    interruptions: Interruptions,
    dir: PathBuf,
    /// The initial number of workers; `None` without an app.
    workers: Option<u32>,
    started: SystemTime,
    addresses: RefCell<Vec<String>>,
    snapshotter: OnceCell<Snapshotter>,
    /// The purges of a group of servers; unset without Redis or cache.
    purges: OnceCell<Rc<SharedPurges>>,
    begun: Notify,
    /// Requests for upgrades, each with the channel for its progress.
    upgrades: mpsc::UnboundedSender<mpsc::UnboundedSender<ReloadStep>>,
    /// Held while a worker writes a heap dump.
    dump: heap::Turn,
    /// Set when the pool runs.
    reloads: OnceCell<Reloads>,
}

impl Observer {
    /// Creates the source, and the receiver of requests for upgrades.
    pub(crate) fn new(
        settings: &settings::Settings,
        vitals: &Arc<Vitals>,
        interruptions: &Interruptions,
        started: SystemTime,
    ) -> (Observer, Wishes) {
        let (upgrades, wishes) = mpsc::unbounded_channel();
        let observer = Observer(Rc::new(Observed {
            vitals: vitals.clone(),
            interruptions: interruptions.clone(),
            dir: settings.dir.clone(),
            workers: settings.app.as_ref().map(|_| settings.workers_at_start()),
            started,
            addresses: RefCell::default(),
            snapshotter: OnceCell::new(),
            purges: OnceCell::new(),
            begun: Notify::new(),
            upgrades,
            dump: heap::Turn::default(),
            reloads: OnceCell::new(),
        }));
        (observer, wishes)
    }

    /// Provides the figures, and takes orders to reload, from now on.
    pub(crate) fn begin(&self, snapshotter: Snapshotter, reloads: Reloads) {
        // Only the first call has an effect.
        let _ = self.0.snapshotter.set(snapshotter);
        let _ = self.0.reloads.set(reloads);
        self.0.begun.notify_waiters();
    }

    /// Tells purges to other servers from now on.
    pub(crate) fn share(&self, purges: Rc<SharedPurges>) {
        // Only the first call has an effect.
        let _ = self.0.purges.set(purges);
    }

    /// Records the addresses of the open ports.
    pub(crate) fn opened(&self, addresses: &[Address]) {
        self.0.addresses.replace(addresses.iter().map(ToString::to_string).collect());
    }

    /// Waits for the end of the boot. Routes respond that there are no figures yet instead of calling this.
    async fn snapshotter(&self) -> &Snapshotter {
        loop {
            // All of this runs on one thread, so no notification is lost between the check and the wait.
            match self.0.snapshotter.get() {
                Some(snapshotter) => return snapshotter,
                None => self.0.begun.notified().await,
            }
        }
    }
}

impl Provider for Observer {
    async fn stats(&self) -> ServerSnapshot {
        self.snapshotter().await.stats(Detail::ALL).await
    }

    async fn scraped(&self) -> ServerSnapshot {
        self.snapshotter().await.stats(Detail::SCRAPED).await
    }

    async fn load(&self) -> Load {
        self.snapshotter().await.load().await
    }

    async fn requests(&self, limit: usize, backtraces: bool) -> Vec<InFlight> {
        self.snapshotter().await.in_flight(limit, backtraces).await
    }

    async fn deaths(&self) -> Vec<Death> {
        self.snapshotter().await.deaths()
    }

    async fn differences(&self) -> Option<ShadowReport> {
        self.snapshotter().await.differences()
    }

    async fn kept_requests(&self, death: u64) -> Vec<KeptRequest> {
        self.snapshotter().await.kept_requests(death)
    }

    async fn routes(&self) -> RoutesSnapshot {
        self.snapshotter().await.routes()
    }

    fn reset_routes(&self) {
        self.0.snapshotter.get().into_iter().for_each(Snapshotter::reset_routes);
    }

    fn heap(&self, wish: HeapWish) -> oneshot::Receiver<String> {
        heap::describe(self.0.snapshotter.get(), &self.0.dump, wish)
    }

    fn cache(&self, limit: usize) -> Option<CacheReport> {
        let store = self.0.snapshotter.get()?.store()?;
        Some(caching::report(store, limit))
    }

    fn hub(&self, limit: usize) -> Option<HubReport> {
        Some(self.0.snapshotter.get()?.hub()?.report(limit))
    }

    fn cached(&self, key: &str) -> Option<CacheLookup> {
        let store = self.0.snapshotter.get()?.store()?;
        Some(caching::lookup(store, key))
    }

    async fn purge(&self, order: PurgeOrder) -> Result<Purged, OrderError> {
        let store = self.0.snapshotter.get().and_then(Snapshotter::store);
        let store = store.ok_or_else(|| {
            OrderError::Conflict("the cache is off: set cache.memory, for example \"64MiB\"".to_owned())
        })?;
        let removed = caching::carry_out(store, &order).map_err(OrderError::Invalid)?;
        let told = match self.0.purges.get() {
            Some(purges) => Some(purges.tell(&order).await),
            None => None,
        };
        store.flushed().await;
        Ok(Purged { removed, shared: told == Some(Ok(())), error: told.and_then(Result::err) })
    }

    fn reload(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadStep> {
        match self.0.reloads.get() {
            Some(reloads) => reloads.followed(wish),
            None => failed("the server is still booting, and is already loading the current code"),
        }
    }

    fn order(&self, order: PumaCommand) {
        net::task::spawn_local(async move {
            tokio::time::sleep(ANSWERED).await;
            let signal = match order {
                PumaCommand::Stop => Signal::TERM,
                PumaCommand::Halt => Signal::INT,
                PumaCommand::Restart => Signal::USR2,
                PumaCommand::PhasedRestart => Signal::USR1,
            };
            // The order takes the path of a signal, so that both behave alike. The process exists, so this cannot fail.
            let _ = kill_process(getpid(), signal);
            if order == PumaCommand::Halt {
                tokio::time::sleep(ANSWERED).await;
                let _ = kill_process(getpid(), signal);
            }
        });
    }

    fn upgrade(&self) -> mpsc::UnboundedReceiver<ReloadStep> {
        let (steps, receiver) = mpsc::unbounded_channel();
        match self.0.upgrades.send(steps) {
            Ok(()) => receiver,
            Err(_) => failed("the server is stopping"),
        }
    }

    async fn status(&self) -> Status {
        let observed = &self.0;
        let health = observed.vitals.ask().await;
        Status {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            dir: observed.dir.display().to_string(),
            started_at: observed.started,
            taken_at: SystemTime::now(),
            state: health.state,
            live: health.live().is_ok(),
            ready: health.ready().is_ok(),
            reason: health.live().and_then(|()| health.ready()).err(),
            workers: observed.workers.map(|first| observed.vitals.wanted_workers().unwrap_or(first)),
            workers_ready: health.workers.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            requests: observed.vitals.in_progress() as u64,
            addresses: observed.addresses.borrow().clone(),
            pause: observed.interruptions.paused(),
            maintenance: observed.interruptions.maintenance(),
        }
    }

    async fn profile(&self, order: ProfileOrder) -> Result<oneshot::Receiver<String>, OrderError> {
        self.snapshotter().await.profile(order, &self.0.dir).await
    }

    fn record(&self, order: RecordOrder) -> Result<mpsc::Receiver<RecordedLine>, OrderError> {
        crate::recording::begin(order).map_err(OrderError::Conflict)
    }

    fn paused(&self) -> PauseSnapshot {
        self.0.interruptions.paused()
    }

    async fn pause(&self, order: orders::CheckedPause) -> Result<PauseSnapshot, OrderError> {
        self.0.interruptions.pause(order).await
    }

    fn resume(&self) -> Result<PauseSnapshot, OrderError> {
        self.0.interruptions.resume()
    }

    fn maintenance(&self) -> MaintenanceSnapshot {
        self.0.interruptions.maintenance()
    }

    fn begin_maintenance(&self, order: orders::Maintenance) -> Result<MaintenanceSnapshot, OrderError> {
        self.0.interruptions.begin_maintenance(order)
    }

    fn end_maintenance(&self) -> Result<MaintenanceSnapshot, OrderError> {
        self.0.interruptions.end_maintenance()
    }

    fn changes(&self) -> ChangesReport {
        self.0.interruptions.changes().report()
    }

    fn set(&self, order: CheckedSet, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        self.0.interruptions.set(order, caller)
    }

    fn undo(&self, order: UndoOrder, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        self.0.interruptions.undo(&order, caller)
    }

    fn has_figures(&self) -> bool {
        self.0.snapshotter.get().is_some()
    }
}

/// Returns a channel whose only step is the failure.
pub(super) fn failed(why: &str) -> mpsc::UnboundedReceiver<ReloadStep> {
    let (steps, receiver) = mpsc::unbounded_channel();
    // Cannot fail: the receiver is still in scope.
    let _ = steps.send(ReloadStep::end(Err(why.to_owned())));
    receiver
}
