//! Tells the pool how to start the template of a new release, and passes orders to reload on, by signal and by file.
//!
//! Contract of [`Reloads`]: no reload begins while an upgrade runs, and no upgrade while a reload runs or waits. No order is lost: if the upgrade
//! fails, the reload follows; if it succeeds, the new program gets the order. It sees the file itself.

use crate::boot;
use crate::release::{Release, Releases};
use settings::Settings;
use settings::puma::Call;
use stats::{ReloadStep, ReloadWish};
use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use tokio::sync::{mpsc, oneshot};
use workers::ReleaseId;
use workers::reconciler::FIRST_RELEASE;
use workers::spawner::{BootConfig, Handoff, WarmUp, before_bundler};
use workers::supervisor::{Command, Follower, ReleaseReader};

impl ReleaseReader for Releases {
    fn read(&self, id: ReleaseId, in_force: ReleaseId) -> Result<(), String> {
        let release = Releases::read(self, id, in_force)?;
        boot_config(&release, WarmUp::default()).map(drop)
    }

    fn evaluated(&self, id: ReleaseId, calls: &[Call]) -> Result<(), String> {
        let release = Releases::evaluated(self, id, calls)?;
        // From now on only the app itself will do, not the `puma.rb` that may name it.
        release.settings.app.as_ref().map(drop).ok_or_else(|| no_app(&release.settings))
    }

    fn boot_config(&self, id: ReleaseId) -> Result<BootConfig, String> {
        let release = self.get(id).ok_or_else(|| format!("release {id} has been replaced by a newer one"))?;
        boot_config(&release, self.recent.of_release(&release.settings))
    }
}

/// Returns how to start a template of a release: in the app's directory as typed, with the environment from
/// before Bundler. The first template has that of this program.
fn boot_config(release: &Release, warm_up: WarmUp) -> Result<BootConfig, String> {
    let settings = release.settings.clone();
    // The app that `puma.rb` names is unknown until the file has been evaluated.
    let unknown = settings.puma_rb.as_ref().map(|file| file.path.clone());
    let app = settings.app.clone().or(unknown).ok_or_else(|| no_app(&settings))?;
    let mut environment = Vec::new();
    if release.id != FIRST_RELEASE {
        environment = before_bundler(std::env::vars_os());
        environment.push(("PWD".into(), Some(OsString::from(&settings.typed_dir))));
    }
    Ok(BootConfig {
        release: release.id,
        app,
        lib: boot::lib()?,
        settings,
        environment,
        unlink: Vec::new(),
        replay: None,
        warm_up,
        prepared: Handoff::default(),
    })
}

fn no_app(settings: &Settings) -> String {
    format!("there is no config.ru in {} any more", settings.dir.display())
}

/// The orders to reload of signals and of the file.
#[derive(Clone)]
pub(crate) struct Reloads(Rc<State>);

struct State {
    pool: mpsc::Sender<Command>,
    upgrade: Cell<Upgrade>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    None,
    /// A new program starts. Whether a reload was ordered meanwhile, and whether a signal did it.
    Running {
        ordered: bool,
        by_signal: bool,
    },
    /// The new program serves.
    Done,
}

impl Reloads {
    pub(super) fn new(pool: mpsc::Sender<Command>) -> Reloads {
        Reloads(Rc::new(State { pool, upgrade: Cell::new(Upgrade::None) }))
    }

    /// Returns whether a new program starts, or has taken over.
    pub(super) fn is_upgrading(&self) -> bool {
        self.0.upgrade.get() != Upgrade::None
    }

    /// A client of the control server orders a reload. Returns the steps. Their client must know the outcome,
    /// so this order does not wait for the end of an upgrade.
    pub(super) fn followed(&self, wish: ReloadWish) -> mpsc::UnboundedReceiver<ReloadStep> {
        let (mut follower, steps) = Follower::new();
        let reloads = self.clone();
        net::task::spawn_local(async move {
            // Asked here, because an upgrade may begin before this task does.
            if reloads.is_upgrading() {
                let why = "an upgrade is under way: reload when the new program serves";
                return follower.tell(ReloadStep::end(Err(why.to_owned())));
            }
            // If the pool has ended, the follower that comes back reports it.
            drop(reloads.0.pool.send(Command::Reload(wish, Some(follower))).await);
        });
        steps
    }

    /// A signal orders a reload.
    pub(super) async fn signalled(&self) {
        self.ordered(true).await;
    }

    async fn ordered(&self, signal: bool) {
        match self.0.upgrade.get() {
            // The send fails if the pool has ended.
            Upgrade::None => _ = self.0.pool.send(Command::Reload(ReloadWish::Reload, None)).await,
            Upgrade::Running { by_signal, .. } => {
                self.0.upgrade.set(Upgrade::Running { ordered: true, by_signal: by_signal || signal });
            }
            Upgrade::Done => {}
        }
    }

    /// An upgrade is to begin. Returns false if a reload is under way.
    pub(super) async fn begin_upgrade(&self) -> bool {
        // Orders from now on wait, so the pool knows all earlier ones when it replies.
        self.0.upgrade.set(Upgrade::Running { ordered: false, by_signal: false });
        let (reply, replied) = oneshot::channel();
        let _ = self.0.pool.send(Command::IsReloading(reply)).await;
        let reloads = replied.await.unwrap_or(false);
        if reloads {
            self.upgrade_failed().await;
        }
        !reloads
    }

    /// The upgrade has failed: a reload that was ordered meanwhile begins.
    pub(super) async fn upgrade_failed(&self) {
        let was = self.0.upgrade.replace(Upgrade::None);
        if matches!(was, Upgrade::Running { ordered: true, .. }) {
            self.ordered(true).await;
        }
    }

    /// The new program serves. Returns whether it is to get the order of a signal.
    pub(super) fn upgraded(&self) -> bool {
        matches!(self.0.upgrade.replace(Upgrade::Done), Upgrade::Running { by_signal: true, .. })
    }
}

/// Interval between two checks of `tmp/restart.txt`.
const LOOK: Duration = Duration::from_millis(500);

/// Requests a reload when `tmp/restart.txt` in the app's directory is touched, as Passenger does.
async fn follow_restart_file(mut last: RestartFile, reloads: Reloads) {
    loop {
        tokio::time::sleep(LOOK).await;
        if last.is_touched() {
            reloads.ordered(false).await;
        }
    }
}

/// The app's `tmp/restart.txt`, and when it was touched last.
pub(super) struct RestartFile {
    path: PathBuf,
    touched: Option<SystemTime>,
}

impl RestartFile {
    /// Looks at the file. Call it before the app is loaded: it may be touched meanwhile.
    pub(super) fn of(settings: &Settings) -> RestartFile {
        let mut file = RestartFile { path: settings.typed_dir.join("tmp/restart.txt"), touched: None };
        file.is_touched();
        file
    }

    /// Returns whether it was touched since the last call.
    fn is_touched(&mut self) -> bool {
        let now = std::fs::metadata(&self.path).and_then(|about| about.modified()).ok();
        let is = now.is_some() && now != self.touched;
        self.touched = now.or(self.touched);
        is
    }

    /// Watches the file from now on.
    pub(super) fn follow(self, reloads: &Reloads) {
        net::task::spawn_local(follow_restart_file(self, reloads.clone()));
    }
}
