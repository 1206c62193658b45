//! What the control server reads, from before the app is loaded: then only what the server is at.

use super::snapshot::{PSS_AGE, SCRAPED_AGE, Snapshotter};
use crate::listen::Address;
use crate::vitals::Vitals;
use control::Provider;
use control::reload::{ReloadLine, ReloadWish};
use stats::{Death, InFlight, ServerSnapshot, Status};
use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::{Notify, mpsc};

/// The control server's source.
#[derive(Clone)]
pub(crate) struct Observer(Rc<Observed>);

struct Observed {
    vitals: Arc<Vitals>,
    dir: PathBuf,
    /// Workers that are wanted; `None` where there is no app.
    workers: Option<u32>,
    started: SystemTime,
    addresses: RefCell<Vec<String>>,
    snapshotter: OnceCell<Snapshotter>,
    begun: Notify,
}

impl Observer {
    pub(crate) fn new(settings: &settings::Settings, vitals: &Arc<Vitals>, started: SystemTime) -> Observer {
        Observer(Rc::new(Observed {
            vitals: vitals.clone(),
            dir: settings.dir.clone(),
            workers: settings.app.as_ref().map(|_| settings.workers),
            started,
            addresses: RefCell::default(),
            snapshotter: OnceCell::new(),
            begun: Notify::new(),
        }))
    }

    /// From now on there are figures.
    pub(crate) fn begin(&self, snapshotter: Snapshotter) {
        // Once; a second call changes nothing.
        let _ = self.0.snapshotter.set(snapshotter);
        self.0.begun.notify_waiters();
    }

    /// The ports are open.
    pub(crate) fn opened(&self, addresses: &[Address]) {
        self.0.addresses.replace(addresses.iter().map(ToString::to_string).collect());
    }

    /// Waits for the end of the boot. Routes say that there are no figures yet instead of calling this.
    async fn snapshotter(&self) -> &Snapshotter {
        loop {
            // One thread: nothing happens between the look and the wait.
            match self.0.snapshotter.get() {
                Some(snapshotter) => return snapshotter,
                None => self.0.begun.notified().await,
            }
        }
    }
}

impl Provider for Observer {
    async fn stats(&self) -> ServerSnapshot {
        self.snapshotter().await.stats(PSS_AGE).await
    }

    async fn scraped(&self) -> ServerSnapshot {
        self.snapshotter().await.stats(SCRAPED_AGE).await
    }

    async fn requests(&self, limit: usize, backtraces: bool) -> Vec<InFlight> {
        self.snapshotter().await.in_flight(limit, backtraces).await
    }

    async fn deaths(&self) -> Vec<Death> {
        self.snapshotter().await.deaths()
    }

    fn reload(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadLine> {
        if let Some(snapshotter) = self.0.snapshotter.get() {
            return snapshotter.reload(wish);
        }
        let (lines, receiver) = mpsc::unbounded_channel();
        let failed = "the server is still starting, with the code as it is now".to_owned();
        // The receiver is ours.
        let _ = lines.send(ReloadLine::Failed { failed });
        receiver
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
            workers: observed.workers,
            workers_ready: health.workers.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
            requests: observed.vitals.in_progress() as u64,
            addresses: observed.addresses.borrow().clone(),
        }
    }

    fn has_figures(&self) -> bool {
        self.0.snapshotter.get().is_some()
    }
}
