//! Boots the app's workers while signals are handled, then supervises them in a task. Without an app the task
//! only waits for the order to end, so that callers need no special case.

use crate::boot;
use crate::error_log::ErrorLog;
use crate::release::Releases;
use crate::signals::{SignalAction, Signals};
use stats::ReloadStep;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use workers::Shared;
use workers::spawner::Handoff;
use workers::supervisor::{AppFacts, Command, Notice, Processes, Supervisor};

/// The largest number of queued orders to the supervisor.
const COMMANDS: usize = 16;

/// All workers of the app, which is loaded; none is started.
pub(super) struct BootedWorkers(Option<Supervisor>);

impl BootedWorkers {
    /// Loads the app, if there is one, or finds it in an `attached` process. Returns `None` if a signal
    /// stopped the server meanwhile. If the front is killed, the template removes the files in `unlink`.
    ///
    /// # Errors
    /// The reason why the app cannot be loaded.
    pub(super) async fn boot(
        releases: &Rc<Releases>,
        unlink: Vec<PathBuf>,
        prepared: Handoff,
        signals: &mut Signals,
        log: &ErrorLog,
        attached: Option<Arc<UnixStream>>,
    ) -> Result<Option<BootedWorkers>, String> {
        if releases.settings().app.is_none() {
            return Ok(Some(BootedWorkers(None)));
        }
        let booting = boot::boot(releases.watch_settings(), releases.clone(), unlink, prepared, attached);
        tokio::pin!(booting);
        loop {
            tokio::select! {
                booted = &mut booting => return booted.map(|supervisor| Some(BootedWorkers(Some(supervisor)))),
                (name, action) = signals.next() => match action {
                    SignalAction::Stop | SignalAction::Interrupt => {
                        log.write(&format!("{name}: ending while the app is being loaded"));
                        return Ok(None);
                    }
                    SignalAction::Nothing => {}
                    _ => log.write(&format!("{name}: no effect while the app is being loaded")),
                },
            }
        }
    }

    /// Returns the state that front threads and workers share.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.0.as_ref().map(Supervisor::shared)
    }

    pub(super) fn run(self) -> RunningWorkers {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let (sender, notices) = mpsc::unbounded_channel();
        // During shutdown the receiver may be gone.
        let notify = move |notice| drop(sender.send(notice));
        let app = self.0.as_ref().and_then(|supervisor| {
            let facts = supervisor.facts()?.clone();
            Some(RunningApp { facts, shared: supervisor.shared() })
        });
        let task = match self.0 {
            Some(supervisor) => net::task::spawn_local(supervisor.run(orders, notify)),
            None => net::task::spawn_local(without_app(orders, notify)),
        };
        RunningWorkers { task, commands, notices, app }
    }
}

/// All workers, supervised in a task.
pub(crate) struct RunningWorkers {
    /// Ends when the last worker has exited after [`Command::Drain`] or [`Command::Halt`].
    pub(super) task: JoinHandle<()>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(super) notices: mpsc::UnboundedReceiver<Notice>,
    app: Option<RunningApp>,
}

/// The app, and the state that its processes share.
#[derive(Clone)]
pub(crate) struct RunningApp {
    pub(crate) facts: AppFacts,
    pub(crate) shared: Arc<Shared>,
}

impl RunningWorkers {
    /// Returns the app, if there is one.
    pub(crate) fn app(&self) -> Option<&RunningApp> {
        self.app.as_ref()
    }

    /// Returns the template's report about the app.
    pub(super) fn facts(&self) -> Option<&AppFacts> {
        self.app.as_ref().map(|app| &app.facts)
    }
}

/// Replaces the supervisor if there is no app: reports ready at once, and ends when ordered to.
async fn without_app(mut orders: mpsc::Receiver<Command>, notify: impl Fn(Notice)) {
    notify(Notice::Settled);
    while let Some(command) = orders.recv().await {
        match command {
            Command::Drain | Command::Halt => return,
            // The receiver of the reply may be gone.
            Command::Processes(reply) => drop(reply.send(Processes::default())),
            Command::IsReloading(reply) => drop(reply.send(false)),
            Command::Reload(_, follower) => {
                let why = "there is no app to reload; files, static.json and handlers are read again when they change";
                follower.into_iter().for_each(|mut one| one.tell(ReloadStep::end(Err(why.to_owned()))));
            }
            // Without an app there are no blocks to fork. Dropping the order closes its socket.
            Command::ForkService(_) => {}
            Command::More
            | Command::Fewer
            | Command::Leave
            | Command::Trace(..)
            | Command::Unlink(_)
            | Command::Listening(_) => {}
        }
    }
}
