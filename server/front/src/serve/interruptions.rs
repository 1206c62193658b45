//! Carries out an operator's orders to interrupt service (pausing the app, and maintenance), and hands the
//! interruptions in force to the program that takes over in an upgrade.
//!
//! Contract:
//! 1. Interruptions belong to the process and not to a release: reloads and new workers do not change them.
//! 2. The program that takes over receives them before its first connection. During the handover, orders are
//!    refused.
//! 3. While requests of the old program wait for the end of a pause, the old program receives every change.
//! 4. Each beginning and each end is logged, with its cause.

use super::changes::SettingChanges;
use crate::error_log::ErrorLog;
use crate::handover::Predecessor;
use crate::interruption::{InForce, Maintenance};
use crate::release::Releases;
use crate::vitals::Vitals;
use control::ControlCaller;
use control::changes::{ChangeReport, CheckedSet, UndoOrder};
use control::orders::{self, LARGEST_PAGE, MaintenanceInForce, OrderError, PauseInForce};
use net::task::spawn_local;
use settings::Settings;
use stats::{MaintenanceSnapshot, PauseSnapshot, PauseState, ServerState};
use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use workers::{Pause, PausePhase, PauseTerms, Shared};

/// The origin of orders, for logs and figures.
const COMMAND: &str = "the control socket";
/// Interval between two looks at `maintenance.file`.
const LOOK: Duration = Duration::from_millis(500);
/// The most characters of a message that a file contains.
const LONGEST_MESSAGE: usize = 1000;

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct Interruptions(Rc<InterruptionState>);

struct InterruptionState {
    maintenance: Arc<Maintenance>,
    vitals: Arc<Vitals>,
    log: Arc<ErrorLog>,
    /// The settings in force.
    settings: watch::Receiver<Arc<Settings>>,
    /// The app once it is loaded; the inner `None` means that the server has no app.
    app: OnceCell<Option<Arc<Shared>>>,
    /// How the last pause ended, and when.
    last_end: RefCell<(String, Option<SystemTime>)>,
    /// Whether the state is being handed over to another program.
    frozen: Cell<bool>,
    old: RefCell<Option<OldProgram>>,
    /// The operator's changes of settings, which are handed over with the interruptions.
    changes: SettingChanges,
}

/// The old program of an upgrade, which still runs.
struct OldProgram {
    predecessor: Rc<Predecessor>,
    /// Whether the old program holds requests, because the pause began before the upgrade.
    is_paused: bool,
}

impl Interruptions {
    pub(crate) fn new(releases: &Rc<Releases>, vitals: &Arc<Vitals>, log: &Arc<ErrorLog>) -> Interruptions {
        Interruptions(Rc::new(InterruptionState {
            maintenance: Arc::default(),
            vitals: vitals.clone(),
            log: log.clone(),
            settings: releases.watch_settings(),
            app: OnceCell::new(),
            last_end: RefCell::default(),
            frozen: Cell::new(false),
            old: RefCell::default(),
            changes: SettingChanges::new(releases, log),
        }))
    }

    /// Records that the app is loaded, or that there is none. From now on pauses end by themselves, and
    /// `maintenance.file` is watched.
    pub(crate) fn booted(&self, app: Option<Arc<Shared>>) {
        self.look();
        spawn_local(self.clone().follow_file());
        spawn_local(self.0.changes.clone().follow_time());
        if let Some(app) = app.clone() {
            let (state, settings) = (self.clone(), self.0.settings.clone());
            spawn_local(async move {
                let patience = || settings.borrow().timeouts.queue;
                workers::resume::follow(&app, patience, |waiting| state.ended(waiting, "its time is over"))
                    .await;
            });
        }
        // Only the first call has an effect.
        let _ = self.0.app.set(app);
    }

    /// Returns the changes of settings.
    pub(crate) fn changes(&self) -> &SettingChanges {
        &self.0.changes
    }

    /// Changes settings.
    ///
    /// # Errors
    /// See [`SettingChanges::set`]; or the state is being handed over.
    pub(crate) fn set(&self, order: CheckedSet, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        self.is_ours()?;
        self.0.changes.set(order, caller)
    }

    /// Takes a change of settings back.
    ///
    /// # Errors
    /// See [`SettingChanges::undo`]; or the state is being handed over.
    pub(crate) fn undo(&self, order: &UndoOrder, caller: ControlCaller) -> Result<ChangeReport, OrderError> {
        self.is_ours()?;
        self.0.changes.undo(order, caller)
    }

    /// Returns the health of the same server.
    pub(crate) fn vitals(&self) -> Arc<Vitals> {
        self.0.vitals.clone()
    }

    /// Returns the maintenance for the front threads.
    pub(crate) fn maintenance_of_threads(&self) -> Arc<Maintenance> {
        self.0.maintenance.clone()
    }

    /// Describes the interruptions in force, for the banner.
    pub(crate) fn described(&self) -> Vec<String> {
        let (paused, maintenance) = (self.paused(), self.maintenance());
        let seconds = paused.remaining_ms / 1e3;
        let pause = (paused.state == PauseState::On).then(|| format!("Paused for {seconds:.0} s more"));
        let closed =
            maintenance.on.then(|| format!("Maintenance is on, by {}: requests get 503", maintenance.by));
        pause.into_iter().chain(closed).collect()
    }

    fn pause_of_app(&self) -> Option<&Pause> {
        self.0.app.get()?.as_ref().map(|app| app.pause())
    }

    fn log(&self, text: &str) {
        self.0.log.write(text);
    }

    /// Refuses an order while the state is being handed over.
    fn is_ours(&self) -> Result<(), OrderError> {
        if self.0.frozen.get() {
            let why = "a new program is taking over: try again in a moment, it gets the order then";
            return Err(OrderError::Conflict(why.to_owned()));
        }
        Ok(())
    }
}

/// The pause.
impl Interruptions {
    pub(crate) async fn pause(&self, order: orders::CheckedPause) -> Result<PauseSnapshot, OrderError> {
        self.is_ours()?;
        let conflict = |why: &str| OrderError::Conflict(why.to_owned());
        let app = self.0.app.get().ok_or_else(|| conflict("the server is still booting"))?;
        let pause =
            app.as_ref().ok_or_else(|| conflict("there is no app whose requests could be held"))?.pause();
        if self.0.vitals.state() == ServerState::Draining {
            return Err(conflict("the server is shutting down"));
        }
        let orders::CheckedPause { time, max, paths } = order;
        let of = match paths.as_slice() {
            [] => String::new(),
            paths => format!(", requests of {}", paths.join(", ")),
        };
        let until = Instant::now() + time;
        pause.begin(PauseTerms { until, max, paths }).map_err(conflict)?;
        self.log(&format!("paused for {} s by {COMMAND}{of}", time.as_secs_f64()));
        self.tell_old(time);
        // Requests that a thread is passing on at this moment are in flight afterwards.
        let _ = self.0.vitals.ask().await;
        Ok(self.paused())
    }

    pub(crate) fn resume(&self) -> Result<PauseSnapshot, OrderError> {
        self.is_ours()?;
        let waiting = self.pause_of_app().and_then(Pause::end).ok_or_else(|| {
            let (how, at) = self.0.last_end.borrow().clone();
            let ago = at.and_then(|at| at.elapsed().ok());
            let last = ago.map(|ago| format!("; the last pause ended {:.0} s ago: {how}", ago.as_secs_f64()));
            OrderError::Conflict(format!("the app is not paused{}", last.unwrap_or_default()))
        })?;
        self.ended(waiting, &format!("resumed by {COMMAND}"));
        self.tell_old(Duration::ZERO);
        Ok(PauseSnapshot { waiting: waiting as u64, ..self.paused() })
    }

    /// Records the end of a pause.
    fn ended(&self, waiting: usize, why: &str) {
        let requests =
            if waiting == 1 { "1 request goes".to_owned() } else { format!("{waiting} requests go") };
        self.log(&format!("the pause has ended, {why}: {requests} to the app"));
        self.0.last_end.replace((why.to_owned(), Some(SystemTime::now())));
    }

    pub(crate) fn paused(&self) -> PauseSnapshot {
        let figures = self.pause_of_app().map(Pause::figures).unwrap_or_default();
        let is_on = figures.phase == PausePhase::On;
        let now = Instant::now();
        let terms = figures.terms.filter(|_| is_on);
        let remaining = terms.as_ref().map(|terms| terms.until.saturating_duration_since(now));
        let (last_end, last_end_at) = self.0.last_end.borrow().clone();
        let old = self.0.old.borrow();
        let old = old.as_ref().filter(|old| is_on && !old.is_paused);
        PauseSnapshot {
            state: match figures.phase {
                PausePhase::Off => PauseState::Off,
                PausePhase::On => PauseState::On,
                PausePhase::Releasing => PauseState::Releasing,
                PausePhase::Refusing => PauseState::Refusing,
            },
            waiting: figures.waiting as u64,
            in_flight: self.0.vitals.in_progress() as u64,
            max: terms.as_ref().map_or(0, |terms| terms.max as u64),
            remaining_ms: remaining.unwrap_or_default().as_secs_f64() * 1e3,
            paths: terms
                .map(|terms| terms.paths.iter().map(|path| shown(path)).collect())
                .unwrap_or_default(),
            held: figures.held,
            refused: figures.refused,
            left: figures.left,
            old_program: old.and_then(|old| u32::try_from(old.predecessor.pid()).ok()),
            last_end,
            last_end_at,
        }
    }

    /// Refuses the requests that a pause holds, because the server is shutting down.
    pub(crate) fn refuse(&self) {
        let Some(pause) = self.pause_of_app() else { return };
        let waiting = pause.figures().waiting;
        pause.refuse();
        if pause.figures().phase == PausePhase::Refusing {
            self.log(&format!(
                "the server is shutting down while the app is paused: {waiting} requests get 503"
            ));
        }
    }

    /// Waits until no pause holds requests.
    pub(crate) async fn over(&self) {
        if let Some(pause) = self.pause_of_app() {
            pause.over().await;
        }
    }
}

/// The maintenance.
impl Interruptions {
    pub(crate) fn begin_maintenance(
        &self,
        order: orders::Maintenance,
    ) -> Result<MaintenanceSnapshot, OrderError> {
        self.is_ours()?;
        let settings = self.0.settings.borrow().maintenance.clone();
        let page = match (order.page, &settings.page) {
            (Some(page), _) => Some(page),
            // A message is only for the server's own page.
            (None, Some(path)) if order.message.is_none() => {
                Some(read_page(path).map_err(|why| OrderError::Invalid(format!("maintenance.page: {why}")))?)
            }
            (None, _) => None,
        };
        let allow = order.allow.unwrap_or(settings.allow);
        self.begin(MaintenanceInForce {
            page,
            message: order.message,
            retry_after_s: order.retry_after.unwrap_or(settings.retry_after).as_secs(),
            allow: allow.iter().map(ToString::to_string).collect(),
            allow_paths: order.allow_paths.unwrap_or(settings.allow_paths),
            ready: settings.ready,
            since_s: since_epoch(),
            file: None,
        });
        Ok(self.maintenance())
    }

    pub(crate) fn end_maintenance(&self) -> Result<MaintenanceSnapshot, OrderError> {
        self.is_ours()?;
        let Some(in_force) = self.0.maintenance.in_force() else {
            return Err(OrderError::Conflict("maintenance is off".to_owned()));
        };
        if let Some(file) = self.file().filter(|file| file.exists()) {
            let file = file.display();
            return Err(OrderError::Conflict(format!(
                "{file} keeps maintenance on (maintenance.file): remove the file"
            )));
        }
        drop(in_force);
        self.end(COMMAND);
        Ok(self.maintenance())
    }

    fn begin(&self, order: MaintenanceInForce) {
        let changed = self.0.maintenance.in_force().is_some();
        let by = origin(&order);
        self.0.vitals.withdraw(!order.ready);
        self.0.maintenance.set(Some(InForce::new(order)));
        let what = if changed { "changed" } else { "on" };
        self.log(&format!("maintenance is {what}, by {by}: requests get 503"));
    }

    fn end(&self, by: &str) {
        self.0.maintenance.set(None);
        self.0.vitals.withdraw(false);
        self.log(&format!("maintenance is off, by {by}"));
    }

    pub(crate) fn maintenance(&self) -> MaintenanceSnapshot {
        let responses = self.0.maintenance.responses();
        let Some(in_force) = self.0.maintenance.in_force() else {
            return MaintenanceSnapshot { responses, ..MaintenanceSnapshot::default() };
        };
        let order = &in_force.order;
        MaintenanceSnapshot {
            on: true,
            since: UNIX_EPOCH.checked_add(Duration::from_secs(order.since_s)),
            by: origin(order),
            retry_after_s: order.retry_after_s,
            message: order.message.clone().unwrap_or_default(),
            own_page: order.page.is_none(),
            allow: order.allow.clone(),
            allow_paths: order.allow_paths.iter().map(|path| shown(path)).collect(),
            ready: order.ready,
            responses,
        }
    }

    fn file(&self) -> Option<PathBuf> {
        self.0.settings.borrow().maintenance.file.clone()
    }

    /// Checks `maintenance.file`: switches maintenance on with the file, and off without it. Maintenance that
    /// a command has begun is left alone.
    fn look(&self) {
        if self.0.frozen.get() {
            return;
        }
        let in_force = self.0.maintenance.in_force();
        let known = in_force.as_ref().map(|in_force| &in_force.order);
        if known.is_some_and(|order| order.file.is_none()) {
            return;
        }
        let found = self.file().filter(|file| file.exists());
        match (known, found) {
            (None, Some(file)) => self.begin_of(file),
            (Some(order), found) if order.file != found => {
                let before = order.file.clone().unwrap_or_default();
                self.end(&format!("{}, which is gone", before.display()));
                if let Some(file) = found {
                    self.begin_of(file);
                }
            }
            _ => {}
        }
    }

    /// Checks `maintenance.file` as long as the server runs. Without the setting, it waits for new settings.
    async fn follow_file(self) {
        let mut settings = self.0.settings.clone();
        loop {
            if self.file().is_some() {
                tokio::time::sleep(LOOK).await;
            } else if settings.changed().await.is_err() {
                return;
            }
            self.look();
        }
    }

    /// Begins maintenance because of a file. An unreadable file also switches it on, with the server's own
    /// page.
    fn begin_of(&self, file: PathBuf) {
        let settings = self.0.settings.borrow().maintenance.clone();
        let is_page = file.extension().is_some_and(|extension| extension == "html" || extension == "htm");
        let text = read_page(&file).inspect_err(|why| self.log(&format!("maintenance.file: {why}"))).ok();
        let message = |text: String| {
            let text: String = text.trim().chars().take(LONGEST_MESSAGE).collect();
            text.replace(|letter: char| letter.is_control() && letter != '\n', " ")
        };
        let (page, message) = if is_page { (text, None) } else { (None, text.map(message)) };
        self.begin(MaintenanceInForce {
            page,
            message,
            retry_after_s: settings.retry_after.as_secs(),
            allow: settings.allow.iter().map(ToString::to_string).collect(),
            allow_paths: settings.allow_paths,
            ready: settings.ready,
            since_s: since_epoch(),
            file: Some(file),
        });
    }
}

/// Upgrades.
impl Interruptions {
    /// Starts or stops refusing orders, because the state is being handed over.
    pub(crate) fn freeze(&self, is: bool) {
        self.0.frozen.set(is);
        self.0.changes.freeze(is);
    }

    /// Returns the interruptions in force, for the program that takes over.
    pub(crate) fn in_force(&self) -> orders::Interruptions {
        let figures = self.pause_of_app().map(Pause::figures).unwrap_or_default();
        let terms = figures.terms.filter(|_| figures.phase == PausePhase::On);
        let pause = terms.map(|terms| PauseInForce {
            remaining_ms: terms.until.saturating_duration_since(Instant::now()).as_millis() as u64,
            max: terms.max,
            paths: terms.paths,
        });
        let maintenance = self.0.maintenance.in_force().map(|in_force| in_force.order.clone());
        orders::Interruptions { pause, maintenance, changes: self.0.changes.list() }
    }

    /// Puts the interruptions of the old program in force. Called before the first connection.
    pub(crate) fn adopt(&self, old: &Rc<Predecessor>) {
        let orders::Interruptions { pause, maintenance, changes } = old.interruptions();
        self.0.changes.adopt(changes);
        let is_paused = pause.is_some();
        if let (Some(given), Some(pause)) = (pause, self.pause_of_app()) {
            let PauseInForce { remaining_ms, max, paths } = given;
            let until = Instant::now() + Duration::from_millis(remaining_ms);
            // Only a shutdown refuses a pause; it refuses the requests too.
            let _ = pause.begin(PauseTerms { until, max, paths });
            self.log(&format!("paused for {:.1} s more, as before the upgrade", remaining_ms as f64 / 1e3));
        }
        if let Some(order) = maintenance {
            self.0.vitals.withdraw(!order.ready);
            self.0.maintenance.set(Some(InForce::new(order)));
            self.log("maintenance is on, as before the upgrade");
        }
        self.0.old.replace(Some(OldProgram { predecessor: old.clone(), is_paused }));
    }

    /// Records that the old program has exited.
    pub(crate) fn old_ended(&self) {
        self.0.old.replace(None);
    }

    /// Reports a change to the old program, if it holds requests: the pause continues for `time`, or ends if
    /// that is zero.
    fn tell_old(&self, time: Duration) {
        if let Some(old) = self.0.old.borrow().as_ref().filter(|old| old.is_paused) {
            old.predecessor.paused(time);
        }
    }

    /// Follows a report of the program that has taken over: the pause continues for `time`, or ends.
    pub(crate) fn told_by_successor(&self, time: Duration) {
        let Some(pause) = self.pause_of_app() else { return };
        let Some(terms) = pause.figures().terms.filter(|_| pause.figures().phase == PausePhase::On) else {
            return;
        };
        if time.is_zero() {
            if let Some(waiting) = pause.end() {
                self.ended(waiting, "as the new program has said");
            }
        } else {
            // See `adopt`.
            let _ = pause.begin(PauseTerms { until: Instant::now() + time, ..terms });
        }
    }
}

/// Returns a path as people write it. The root is stored as the empty text.
fn shown(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

fn origin(order: &MaintenanceInForce) -> String {
    order.file.as_ref().map_or_else(|| COMMAND.to_owned(), |file| file.display().to_string())
}

fn since_epoch() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Reads a page, which may not be larger than a page may be.
fn read_page(path: &Path) -> Result<String, String> {
    let named = |why: String| format!("{}: {why}", path.display());
    let read = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LARGEST_PAGE + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().map_err(|error| named(error.to_string()))?;
    if bytes.len() as u64 > LARGEST_PAGE {
        return Err(named(format!("a page may have {} KiB", LARGEST_PAGE >> 10)));
    }
    let text = String::from_utf8(bytes).map_err(|_| named("the page is not UTF-8".to_owned()))?;
    orders::is_page(text.len() as u64).map_err(named)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_whole_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("page.html");
        assert!(read_page(&file).unwrap_err().contains("page.html: No such file"));
        for (content, why) in [
            (Vec::new(), "is empty"),
            (vec![b'x'; LARGEST_PAGE as usize + 1], "may have 512 KiB"),
            (vec![0xff], "not UTF-8"),
        ] {
            std::fs::write(&file, content).unwrap();
            let told = read_page(&file).unwrap_err();
            assert!(told.contains("page.html") && told.contains(why), "{told}");
        }
        std::fs::write(&file, vec![b'x'; LARGEST_PAGE as usize]).unwrap();
        assert_eq!(read_page(&file).unwrap().len(), LARGEST_PAGE as usize);
    }
}
