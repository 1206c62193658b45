//! The source of the routes' figures.

use crate::cache::{PurgeOrder, Purged};
use crate::caller::ControlCaller;
use crate::changes::{ChangeReport, ChangesReport, CheckedSet, UndoOrder};
use crate::heap::HeapWish;
use crate::orders::{CheckedPause, Maintenance, OrderError};
use crate::profile::ProfileOrder;
use crate::record::{RecordOrder, RecordedLine};
use stats::{
    CacheLookup, CacheReport, Death, HubReport, InFlight, KeptRequest, Load, MaintenanceSnapshot,
    PauseSnapshot, ReloadStep, ReloadWish, RoutesSnapshot, ServerSnapshot, ShadowReport, Status,
};
use tokio::sync::{mpsc, oneshot};

/// The orders of Puma's tools (`pumactl`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumaCommand {
    /// Finish requests, then exit (as TERM).
    Stop,
    /// Exit at once (as a second INT).
    Halt,
    /// Start a new program that takes over (as USR2).
    Restart,
    /// Replace the workers one by one with new code (as USR1).
    PhasedRestart,
}

/// The figures of a running server. All calls run on the thread of [`crate::Server::run`].
pub trait Provider {
    /// Returns all figures for `/stats`.
    fn stats(&self) -> impl Future<Output = ServerSnapshot>;

    /// Returns the figures for `/metrics`: memory may be half a minute old, because measuring it is expensive, and CPU times are 0.
    fn scraped(&self) -> impl Future<Output = ServerSnapshot>;

    /// Returns the server's load. Called every second.
    fn load(&self) -> impl Future<Output = Load>;

    /// Returns the server's phase, and whether it is live and ready. Works at any time, without delay.
    fn status(&self) -> impl Future<Output = Status>;

    /// Whether there are figures yet. Until then, [`Provider::stats`] and [`Provider::requests`] wait.
    fn has_figures(&self) -> bool;

    /// Returns at most `limit` requests in progress, slowest first. With `backtraces`, workers report the
    /// positions of their threads in the app, once they get Ruby's global lock, but at most after a second.
    fn requests(&self, limit: usize, backtraces: bool) -> impl Future<Output = Vec<InFlight>>;

    /// Returns how the last workers ended, newest first.
    fn deaths(&self) -> impl Future<Output = Vec<Death>>;

    /// Returns what the shadow of the last reload has found; `None` if there was none.
    fn differences(&self) -> impl Future<Output = Option<ShadowReport>>;

    /// Returns the requests that are kept of the death with this number.
    fn kept_requests(&self, death: u64) -> impl Future<Output = Vec<KeptRequest>>;

    /// Returns the figures of all routes, with buckets.
    fn routes(&self) -> impl Future<Output = RoutesSnapshot>;

    /// Forgets the figures of all routes.
    fn reset_routes(&self);

    /// Makes a worker describe its heap. Returns the channel for the text of a [`HeapLine`](crate::heap::HeapLine). The worker goes on in any case.
    fn heap(&self, wish: HeapWish) -> oneshot::Receiver<String>;

    /// Returns what the cache keeps, with at most `limit` routes and resources; `None` if it is off.
    fn cache(&self, limit: usize) -> Option<CacheReport>;

    /// Returns the figures of the hub, with at most `limit` streams; `None` if it is off.
    fn hub(&self, limit: usize) -> Option<HubReport>;

    /// Returns what the cache has for a key; `None` if it is off.
    fn cached(&self, key: &str) -> Option<CacheLookup>;

    /// Removes kept responses, here and on the other servers of the group.
    ///
    /// # Errors
    /// The cache is off, or a path is invalid.
    fn purge(&self, order: PurgeOrder) -> impl Future<Output = Result<Purged, OrderError>>;

    /// Starts or undoes a reload. Returns its steps; the last one is the end. The reload continues if the receiver is dropped.
    fn reload(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadStep>;

    /// Performs an order of Puma's tools, as the corresponding signal would. With a short delay, so that the
    /// client gets its response first.
    fn order(&self, order: PumaCommand);

    /// Starts a new program that takes over. Returns steps and end, as of a reload.
    fn upgrade(&self) -> mpsc::UnboundedReceiver<ReloadStep>;

    /// Has a profile of all workers taken. Returns the channel for its document, which comes when the time is over.
    ///
    /// # Errors
    /// One is being taken, or there is no app.
    fn profile(
        &self,
        order: ProfileOrder,
    ) -> impl Future<Output = Result<oneshot::Receiver<String>, OrderError>>;

    /// Records requests from now on. Returns the channel of the lines; dropping it ends the recording.
    ///
    /// # Errors
    /// A recording is under way.
    fn record(&self, order: RecordOrder) -> Result<mpsc::Receiver<RecordedLine>, OrderError>;

    /// Returns the state of the pause.
    fn paused(&self) -> PauseSnapshot;

    /// Holds the requests for the app, or changes the terms of a pause. Returns when no front thread passes a request on any more.
    fn pause(&self, order: CheckedPause) -> impl Future<Output = Result<PauseSnapshot, OrderError>>;

    /// Ends a pause.
    ///
    /// # Errors
    /// Never fails.
    fn resume(&self) -> Result<PauseSnapshot, OrderError>;

    /// Returns the state of the maintenance.
    fn maintenance(&self) -> MaintenanceSnapshot;

    /// Switches maintenance on, or changes it.
    ///
    /// # Errors
    /// The server cannot do so now, or its settings name a page that cannot be read.
    fn begin_maintenance(&self, order: Maintenance) -> Result<MaintenanceSnapshot, OrderError>;

    /// Switches maintenance off.
    ///
    /// # Errors
    /// It is off, or a file keeps it on.
    fn end_maintenance(&self) -> Result<MaintenanceSnapshot, OrderError>;

    /// Returns the changes of settings that are kept.
    fn changes(&self) -> ChangesReport;

    /// Changes settings, or only tries to.
    ///
    /// # Errors
    /// A key or value is wrong, the new settings contradict each other, or the server cannot do so now.
    fn set(&self, order: CheckedSet, caller: ControlCaller) -> Result<ChangeReport, OrderError>;

    /// Takes a change back, or only tries to.
    ///
    /// # Errors
    /// There is no such change in force, or the settings without it contradict each other.
    fn undo(&self, order: UndoOrder, caller: ControlCaller) -> Result<ChangeReport, OrderError>;
}
