//! Services: processes beside the workers that get no requests, such as job supervisors. Started when the app is ready, started
//! again when they end, moved to new code after a reload, stopped after the workers. They are commands of the settings, or blocks of
//! the app that the template forks.
//!
//! [`guard`] is the process between the server and a service, [`process`] the server's end of it, [`lines`] are the
//! service's output; when to start again is decided by [`pool::services`].
//!
//! Contract:
//! 1. Nothing that a service does changes what the server does for its clients: it is not waited for at the start, and not part of
//!    `/ready`.
//! 2. A service runs once at most: its successor starts when nothing is left of it.
//! 3. However the server ends, its services end.

mod guard;
mod lines;
mod process;

use crate::error_log::ErrorLog;
pub use guard::guard;
use pool::services::Schedule;
use pool::spawner::before_bundler;
use pool::supervisor::Command;
use process::{End, Guarded, Place, Report};
use settings::{Service, ServiceProgram, Settings};
use stats::{ServiceSnapshot, ServiceState};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Time that a guard gets beyond that of its service.
const GUARD_TIME: Duration = Duration::from_secs(5);

/// Where services stand, for statistics.
#[derive(Debug, Clone, Default)]
pub(crate) struct Board(Arc<Mutex<BTreeMap<String, ServiceSnapshot>>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ServiceSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All services, by name.
    pub(crate) fn list(&self) -> Vec<ServiceSnapshot> {
        self.lock().values().cloned().collect()
    }

    /// A service is in a new state.
    fn enter(&self, name: &str, state: ServiceState, change: impl FnOnce(&mut ServiceSnapshot)) {
        let mut all = self.lock();
        let entry = all.entry(name.to_owned()).or_insert_with(|| ServiceSnapshot {
            name: name.to_owned(),
            pid: 0,
            state,
            since: SystemTime::now(),
            restarts: 0,
            last_end: String::new(),
        });
        (entry.state, entry.since) = (state, SystemTime::now());
        change(entry);
    }
}

/// What a service is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Wish {
    Run,
    Stop,
    Kill,
}

/// All services of a server.
pub(crate) struct Services {
    log: Arc<ErrorLog>,
    board: Board,
    /// Where blocks are ordered.
    pool: mpsc::Sender<Command>,
    /// Those that the app in force has declared.
    declared: Vec<Service>,
    /// Those of the settings and of the app in force.
    current: Vec<Running>,
    /// Those that are on their way out, or are waited for by a successor.
    leaving: Vec<Leaving>,
    started: bool,
}

struct Running {
    service: Service,
    wish: watch::Sender<Wish>,
    task: JoinHandle<()>,
}

struct Leaving {
    wish: watch::Sender<Wish>,
    /// `None` when its successor waits for it.
    task: Option<JoinHandle<()>>,
}

impl Services {
    /// None runs yet. `pool`: its workers' template forks what the app has declared.
    pub(crate) fn new(
        log: Arc<ErrorLog>,
        board: Board,
        pool: mpsc::Sender<Command>,
        declared: Vec<Service>,
    ) -> Services {
        Services { log, board, pool, declared, current: Vec::new(), leaving: Vec::new(), started: false }
    }

    /// The app is ready: starts the services.
    pub(crate) fn start(&mut self, settings: &Settings) {
        self.started = true;
        self.follow(settings, false);
    }

    /// The app runs with these settings now, and has declared these services: stops all, and starts those that are wanted, each when
    /// nothing is left of its predecessor.
    pub(crate) fn replace(&mut self, settings: &Settings, declared: Vec<Service>) {
        self.declared = declared;
        self.follow(settings, false);
    }

    /// The app was loaded again because its template had died: what is declared as before, runs on.
    pub(crate) fn declared(&mut self, settings: &Settings, declared: Vec<Service>) {
        self.declared = declared;
        self.follow(settings, true);
    }

    fn wanted(&self, settings: &Settings) -> Vec<Service> {
        let all = settings.services.iter().chain(&self.declared);
        all.filter(|one| one.runs_in(&settings.process.environment)).cloned().collect()
    }

    fn follow(&mut self, settings: &Settings, keep: bool) {
        if !self.started {
            return;
        }
        let place = Arc::new(self.place(settings));
        let mut before: BTreeMap<String, Running> =
            self.current.drain(..).map(|running| (running.service.name.clone(), running)).collect();
        self.leaving.retain(|leaving| !leaving.wish.is_closed());
        for service in self.wanted(settings) {
            if keep && before.get(&service.name).is_some_and(|running| running.service == service) {
                self.current.extend(before.remove(&service.name));
                continue;
            }
            let predecessor = before.remove(&service.name).map(|Running { wish, task, .. }| {
                // The receiver is gone when the service has ended for good.
                let _ = wish.send(Wish::Stop);
                self.leaving.push(Leaving { wish, task: None });
                task
            });
            self.current.push(self.begin(service, place.clone(), predecessor));
        }
        for (name, Running { wish, task, .. }) in before {
            let _ = wish.send(Wish::Stop);
            let board = self.board.clone();
            let task = tokio::task::spawn_local(async move {
                let _ = task.await;
                board.lock().remove(&name);
            });
            self.leaving.push(Leaving { wish, task: Some(task) });
        }
    }

    fn begin(&self, service: Service, place: Arc<Place>, predecessor: Option<JoinHandle<()>>) -> Running {
        let (wish, wishes) = watch::channel(Wish::Run);
        let mut life = Life {
            service: service.clone(),
            place,
            log: self.log.clone(),
            board: self.board.clone(),
            wishes,
        };
        let task = tokio::task::spawn_local(async move {
            if let Some(predecessor) = predecessor {
                let _ = predecessor.await;
            }
            life.run().await;
        });
        Running { service, wish, task }
    }

    /// The app's folder as typed, and its environment as before Bundler.
    fn place(&self, settings: &Settings) -> Place {
        let mut environment = before_bundler(std::env::vars_os());
        environment.push(("PWD".into(), Some(settings.typed_dir.clone().into())));
        environment.push(("RACK_ENV".into(), Some(settings.process.environment.clone().into())));
        Place { dir: settings.typed_dir.clone(), environment, pool: self.pool.clone() }
    }

    /// How long it may take until all have stopped; `None` when there are none.
    pub(crate) fn longest_stop(&self) -> Option<Duration> {
        self.current.iter().map(|one| one.service.stop_timeout).max()
    }

    /// Asks all to stop.
    pub(crate) fn stop(&self) {
        self.tell(Wish::Stop);
    }

    /// Kills all.
    pub(crate) fn kill(&self) {
        self.tell(Wish::Kill);
    }

    fn tell(&self, wish: Wish) {
        let all = self.current.iter().map(|one| &one.wish).chain(self.leaving.iter().map(|one| &one.wish));
        for one in all {
            let _ = one.send(wish);
        }
    }

    /// Waits until all have ended. Safe to drop and call again.
    pub(crate) async fn ended(&mut self) {
        while let Some(Running { task, .. }) = self.current.last_mut() {
            let _ = task.await;
            self.current.pop();
        }
        while let Some(Leaving { task, .. }) = self.leaving.last_mut() {
            if let Some(task) = task {
                let _ = task.await;
            }
            self.leaving.pop();
        }
    }
}

/// One service, from its first start until it is not wanted any more.
struct Life {
    service: Service,
    place: Arc<Place>,
    log: Arc<ErrorLog>,
    board: Board,
    wishes: watch::Receiver<Wish>,
}

impl Life {
    async fn run(&mut self) {
        let mut schedule = Schedule::default();
        while self.is_wanted() {
            let begun = Instant::now();
            let (pid, end) = match Guarded::start(&self.service, &self.place).await {
                Ok(guarded) => self.one(guarded).await,
                Err(error) => (None, End::NotStarted(error.to_string())),
            };
            let lived = begun.elapsed();
            let text = end.to_string();
            let enter = |life: &Life, state| {
                life.board.enter(&life.service.name, state, |entry| {
                    (entry.pid, entry.last_end) = (0, text.clone());
                });
            };
            if !self.is_wanted() {
                enter(self, ServiceState::Ended);
                return;
            }
            let wait = schedule.ended(self.service.restart, end == End::Exit(0), lived);
            self.report(pid, &end, lived, wait);
            enter(self, if wait.is_some() { ServiceState::Waiting } else { ServiceState::Ended });
            let again = tokio::time::Instant::now() + wait.unwrap_or(Duration::from_secs(u32::MAX.into()));
            tokio::select! {
                () = tokio::time::sleep_until(again) => {
                    let name = &self.service.name;
                    self.board.enter(name, ServiceState::Waiting, |entry| entry.restarts += 1);
                }
                () = self.unwanted() => {}
            }
        }
    }

    fn is_wanted(&self) -> bool {
        // A manager that is gone wants nothing.
        *self.wishes.borrow() == Wish::Run && self.wishes.has_changed().is_ok()
    }

    async fn unwanted(&mut self) {
        let _ = self.wishes.wait_for(|wish| *wish != Wish::Run).await;
    }

    /// One process, until nothing of it is left.
    async fn one(&mut self, mut guarded: Guarded) -> (Option<u32>, End) {
        let (mut pid, mut end, mut asked) = (None, None, Wish::Run);
        let name = self.service.name.clone();
        let mut deadline: Option<tokio::time::Instant> = None;
        loop {
            let known = asked;
            let late = deadline.unwrap_or_else(|| tokio::time::Instant::now() + Duration::from_secs(86_400));
            tokio::select! {
                report = guarded.next() => match report {
                    Report::Runs(number) => {
                        pid = Some(number);
                        self.board.enter(&name, ServiceState::Running, |entry| entry.pid = number);
                    }
                    Report::Ended(how) => {
                        self.board.enter(&name, ServiceState::Stopping, |_| {});
                        end = Some(how);
                    }
                    Report::Gone => break,
                },
                changed = self.wishes.wait_for(|wish| *wish > known) => {
                    asked = changed.map_or(Wish::Kill, |wish| *wish);
                    self.board.enter(&name, ServiceState::Stopping, |_| {});
                    let time = if asked == Wish::Kill { Duration::ZERO } else { self.service.stop_timeout };
                    deadline = Some(tokio::time::Instant::now() + time + GUARD_TIME);
                    if asked == Wish::Kill { guarded.kill() } else { guarded.stop() }
                }
                // The guard itself hangs.
                () = tokio::time::sleep_until(late), if deadline.is_some() => break,
            }
        }
        guarded.close(end.is_some());
        let unborn = pid.is_none() && self.service.program == ServiceProgram::Block;
        let lost =
            if unborn { End::NotStarted("the template died meanwhile".to_owned()) } else { End::GuardDied };
        (pid, end.unwrap_or(lost))
    }

    fn report(&self, pid: Option<u32>, end: &End, lived: Duration, wait: Option<Duration>) {
        let pid = pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default();
        let next = match wait {
            Some(wait) => format!("it starts again in {} s", wait.as_secs()),
            None => "it is not started again (restart)".to_owned(),
        };
        let (name, seconds) = (&self.service.name, lived.as_secs_f64());
        self.log.write(&format!("service {name}{pid} {end}, after {seconds:.1} s; {next}"));
    }
}
