//! Runs services: processes beside the workers that get no requests, such as job supervisors. A service
//! starts when the app is ready, restarts when it ends, moves to new code after a reload, and stops after the
//! workers. It is a command in the settings, or a block of the app that the template forks.
//!
//! [`guard`] is the process between the server and a service, [`process`] the server's end of it, [`lines`]
//! handles the output. [`workers::services`] decides when to restart.
//!
//! Contract:
//! 1. A service never affects the service of clients: the start does not wait for it, and `/ready` ignores it.
//! 2. At most one instance of a service runs: its successor starts when no process of the old one is left.
//! 3. When the server ends, in whatever way, its services end.

mod guard;
mod lines;
mod process;

use crate::error_log::ErrorLog;
pub use guard::guard;
use process::{End, Guarded, ServiceEnvironment, ServiceReport};
use settings::{Service, ServiceProgram, Settings};
use stats::{ServiceSnapshot, ServiceState};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use workers::services::RestartSchedule;
use workers::spawner::before_bundler;
use workers::supervisor::Command;

/// Grace period of a guard beyond that of its service.
const GUARD_TIME: Duration = Duration::from_secs(5);

/// The state of all services, for statistics.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServiceStates(Arc<Mutex<BTreeMap<String, ServiceSnapshot>>>);

impl ServiceStates {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ServiceSnapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all services, ordered by name.
    pub(crate) fn list(&self) -> Vec<ServiceSnapshot> {
        self.lock().values().cloned().collect()
    }

    /// Records a new state of a service.
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

/// The desired state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum DesiredState {
    Run,
    Stop,
    Kill,
}

pub(crate) struct Services {
    log: Arc<ErrorLog>,
    states: ServiceStates,
    /// Takes orders to fork blocks of the app.
    pool: mpsc::Sender<Command>,
    /// Services that the current app has declared.
    declared: Vec<Service>,
    /// Services of the settings and of the current app.
    current: Vec<Running>,
    /// Services that are stopping, including those whose successor waits for them.
    leaving: Vec<Leaving>,
    started: bool,
}

struct Running {
    service: Service,
    wish: watch::Sender<DesiredState>,
    task: JoinHandle<()>,
}

struct Leaving {
    wish: watch::Sender<DesiredState>,
    /// `None` when its successor waits for it.
    task: Option<JoinHandle<()>>,
}

impl Services {
    /// Creates the manager without starting a service. `pool`: its workers' template forks the blocks of the app.
    pub(crate) fn new(
        log: Arc<ErrorLog>,
        states: ServiceStates,
        pool: mpsc::Sender<Command>,
        declared: Vec<Service>,
    ) -> Services {
        Services { log, states, pool, declared, current: Vec::new(), leaving: Vec::new(), started: false }
    }

    /// Starts the services. Call it when the app is ready.
    pub(crate) fn start(&mut self, settings: &Settings) {
        self.started = true;
        self.follow(settings, false);
    }

    /// Stops all services and starts those of the new settings and the new app, each when no process of its
    /// predecessor is left.
    pub(crate) fn replace(&mut self, settings: &Settings, declared: Vec<Service>) {
        self.declared = declared;
        self.follow(settings, false);
    }

    /// The app was loaded again because its template had died: services with an unchanged declaration keep running.
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
                // The send fails if the service has ended for good.
                let _ = wish.send(DesiredState::Stop);
                self.leaving.push(Leaving { wish, task: None });
                task
            });
            self.current.push(self.begin(service, place.clone(), predecessor));
        }
        for (name, Running { wish, task, .. }) in before {
            let _ = wish.send(DesiredState::Stop);
            let states = self.states.clone();
            let task = net::task::spawn_local(async move {
                let _ = task.await;
                states.lock().remove(&name);
            });
            self.leaving.push(Leaving { wish, task: Some(task) });
        }
    }

    fn begin(
        &self,
        service: Service,
        place: Arc<ServiceEnvironment>,
        predecessor: Option<JoinHandle<()>>,
    ) -> Running {
        let (wish, wishes) = watch::channel(DesiredState::Run);
        let mut supervised = SupervisedService {
            service: service.clone(),
            place,
            log: self.log.clone(),
            states: self.states.clone(),
            wishes,
        };
        let task = net::task::spawn_local(async move {
            if let Some(predecessor) = predecessor {
                let _ = predecessor.await;
            }
            supervised.run().await;
        });
        Running { service, wish, task }
    }

    /// Returns the directory of the app's release, and the environment from before Bundler changed it.
    fn place(&self, settings: &Settings) -> ServiceEnvironment {
        let mut environment = before_bundler(std::env::vars_os());
        environment.push(("PWD".into(), Some(settings.typed_dir.clone().into())));
        environment.push(("RACK_ENV".into(), Some(settings.process.environment.clone().into())));
        ServiceEnvironment { dir: settings.base().to_owned(), environment, pool: self.pool.clone() }
    }

    /// Returns the longest stop time-out of the services; `None` without services.
    pub(crate) fn longest_stop(&self) -> Option<Duration> {
        self.current.iter().map(|one| one.service.stop_timeout).max()
    }

    /// Stops all services. From now on none starts, whatever happens to the app.
    pub(crate) fn stop(&mut self) {
        self.started = false;
        self.tell(DesiredState::Stop);
    }

    pub(crate) fn kill(&self) {
        self.tell(DesiredState::Kill);
    }

    fn tell(&self, wish: DesiredState) {
        let all = self.current.iter().map(|one| &one.wish).chain(self.leaving.iter().map(|one| &one.wish));
        for one in all {
            let _ = one.send(wish);
        }
    }

    /// Waits until all have ended. Cancel-safe.
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

/// One service, from its first start until it is no longer wanted.
struct SupervisedService {
    service: Service,
    place: Arc<ServiceEnvironment>,
    log: Arc<ErrorLog>,
    states: ServiceStates,
    wishes: watch::Receiver<DesiredState>,
}

impl SupervisedService {
    async fn run(&mut self) {
        let mut schedule = RestartSchedule::default();
        while self.is_wanted() {
            let begun = Instant::now();
            let (pid, end) = match Guarded::start(&self.service, &self.place).await {
                Ok(guarded) => self.one(guarded).await,
                Err(error) => (None, End::NotStarted(error.to_string())),
            };
            let lived = begun.elapsed();
            let text = end.to_string();
            let enter = |supervised: &SupervisedService, state| {
                supervised.states.enter(&supervised.service.name, state, |entry| {
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
                    self.states.enter(name, ServiceState::Waiting, |entry| entry.restarts += 1);
                }
                () = self.unwanted() => {}
            }
        }
    }

    fn is_wanted(&self) -> bool {
        // If the manager is gone, no service is wanted.
        *self.wishes.borrow() == DesiredState::Run && self.wishes.has_changed().is_ok()
    }

    async fn unwanted(&mut self) {
        let _ = self.wishes.wait_for(|wish| *wish != DesiredState::Run).await;
    }

    /// Follows one process of the service until none of its processes is left.
    async fn one(&mut self, mut guarded: Guarded) -> (Option<u32>, End) {
        let (mut pid, mut end, mut asked) = (None, None, DesiredState::Run);
        let name = self.service.name.clone();
        let mut deadline: Option<tokio::time::Instant> = None;
        loop {
            let known = asked;
            let late = deadline.unwrap_or_else(|| tokio::time::Instant::now() + Duration::from_secs(86_400));
            tokio::select! {
                report = guarded.next() => match report {
                    ServiceReport::Runs(number) => {
                        pid = Some(number);
                        self.states.enter(&name, ServiceState::Running, |entry| entry.pid = number);
                    }
                    ServiceReport::Ended(how) => {
                        self.states.enter(&name, ServiceState::Stopping, |_| {});
                        end = Some(how);
                    }
                    ServiceReport::Gone => break,
                },
                changed = self.wishes.wait_for(|wish| *wish > known) => {
                    asked = changed.map_or(DesiredState::Kill, |wish| *wish);
                    self.states.enter(&name, ServiceState::Stopping, |_| {});
                    let time = if asked == DesiredState::Kill { Duration::ZERO } else { self.service.stop_timeout };
                    deadline = Some(tokio::time::Instant::now() + time + GUARD_TIME);
                    if asked == DesiredState::Kill { guarded.kill() } else { guarded.stop() }
                }
                // The guard itself is stuck.
                () = tokio::time::sleep_until(late), if deadline.is_some() => break,
            }
        }
        guarded.close(end.is_some());
        let unborn = pid.is_none() && self.service.program == ServiceProgram::Block;
        let lost = if unborn { End::NotStarted("the template has died".to_owned()) } else { End::GuardDied };
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
