//! Loads the app: for `check`, which discards it, and for `serve`, which handles signals meanwhile and then has its
//! workers supervised in a task. Without an app the task only waits for the order to end, so that callers need no
//! special case.

use crate::error_log::ErrorLog;
use crate::release::{Releases, Reread};
use crate::signals::{SignalAction, Signals};
use settings::{Loaded, Settings};
use stats::ReloadStep;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use workers::Shared;
use workers::reconciler::{Capabilities, FIRST_RELEASE};
use workers::spawner::{AppFacts, BootConfig, Handoff, Prepared, WarmUp, without_fork};
use workers::supervisor::{BootError, Command, Notice, Options, Processes, ReleaseReader, Supervisor};

/// The variable with the path of the server's Ruby files, set by the gem's launcher.
const LIB: &str = "FIREBRICK_LIB";

/// Returns the settings with those of `puma.rb`, and the process that has evaluated the file and will load
/// the app. Starts nothing without a `puma.rb`. The process at the other end of `attached` evaluates the file
/// itself.
///
/// # Errors
/// The file raised, or calls a method that Puma does not have; a value in it is invalid; it took longer than
/// `timeouts.worker_boot`.
pub fn configure(
    loaded: Loaded,
    reread: &Reread,
    attached: Option<&UnixStream>,
) -> Result<(Loaded, Handoff), String> {
    if loaded.settings.puma_rb.is_none() {
        return Ok((loaded, Handoff::default()));
    }
    let within = loaded.settings.timeouts.worker_boot;
    let (prepared, evaluated) = match attached {
        Some(socket) => (None, Prepared::configure_attached(&loaded.settings, socket, within)?),
        None => {
            if let (Some(ruby), Some(file)) = (without_fork(&loaded.settings), &loaded.settings.puma_rb) {
                let shown = file.shown.display();
                return Err(format!(
                    "{shown}: puma.rb needs a Ruby that forks, and this is {ruby}: write its settings into a firebrick.toml, which takes its place"
                ));
            }
            let (prepared, evaluated) = Prepared::configure(&loaded.settings, &lib()?, within)?;
            (Some(prepared), evaluated)
        }
    };
    let calls = evaluated.map_err(|refusal| refusal.to_string())?;
    Ok((reread.evaluated(&loaded, &calls)?, Handoff::new(prepared)))
}

/// Starts the template and waits until it has loaded the app. If the front is killed, the template removes
/// the files in `unlink`. `replay`, `warm_up`: see [`BootConfig`].
///
/// # Errors
/// There is no app; the server's Ruby files are not found; the app raised, or took longer than `timeouts.worker_boot`.
pub(crate) async fn boot(
    settings: watch::Receiver<Arc<Settings>>,
    releases: Rc<dyn ReleaseReader>,
    unlink: Vec<PathBuf>,
    prepared: Handoff,
    attached: Option<Arc<UnixStream>>,
    replay: Option<Vec<u8>>,
    warm_up: WarmUp,
) -> Result<Supervisor, String> {
    let now = settings.borrow().clone();
    let app = now.app.clone().ok_or("there is no app to run")?;
    // An attached process has found them itself.
    let lib = if attached.is_some() { PathBuf::new() } else { lib()? };
    let boot = BootConfig {
        release: FIRST_RELEASE,
        app,
        lib,
        settings: now.clone(),
        environment: Vec::new(),
        unlink,
        replay,
        warm_up,
        prepared,
    };
    let options = Options { boot, settings, releases, attached };
    Supervisor::boot(options).await.map_err(|error| explain(&error, &now))
}

fn explain(error: &BootError, settings: &Settings) -> String {
    match error {
        BootError::App(text) => {
            let app = settings.app.as_deref().unwrap_or(&settings.dir).display();
            format!("{app} cannot be loaded:\n{}", text.trim_end())
        }
        BootError::Template(error) => error.to_string(),
        BootError::Slow(place) => {
            let seconds = settings.timeouts.worker_boot.as_secs_f64();
            let text = format!("the app did not load within timeouts.worker_boot ({seconds} s)");
            match place {
                Some(lines) => format!("{text}; it was here:\n{}", lines.trim_end()),
                None => {
                    format!(
                        "{text}; it is in a native call that does not return to Ruby, so no backtrace is available"
                    )
                }
            }
        }
    }
}

/// Finds the folder of Ruby files: named by the launcher, or near the executable: `lib` of a package beside
/// its `bin`, `worker/lib` of a checkout above its `target/release`.
pub(crate) fn lib() -> Result<PathBuf, String> {
    let holds = |lib: &Path| lib.join("firebrick/template.rb").is_file();
    if let Some(named) = std::env::var_os(LIB).map(PathBuf::from) {
        return if holds(&named) {
            Ok(named)
        } else {
            Err(format!("{LIB} is {}, but there is no firebrick/template.rb in it", named.display()))
        };
    }
    let exe = std::env::current_exe()
        .and_then(std::fs::canonicalize)
        .map_err(|e| format!("cannot find the program's own path: {e}"))?;
    let near = exe.ancestors().skip(1).take(4);
    let found = near.flat_map(|dir| [dir.join("lib"), dir.join("worker/lib")]).find(|lib| holds(lib));
    found.ok_or_else(|| {
        format!("Firebrick's Ruby files are not near {}; install the gem, or set {LIB} to the folder that holds firebrick/template.rb", exe.display())
    })
}

/// The largest number of queued orders to the supervisor.
const COMMANDS: usize = 16;

/// All workers of the app, which is loaded; none is started.
pub(crate) struct BootedWorkers(Option<Supervisor>);

impl BootedWorkers {
    /// Loads the app, if there is one, or finds it in an `attached` process. Returns `None` if a signal
    /// stopped the server meanwhile. If the front is killed, the template removes the files in `unlink`.
    ///
    /// # Errors
    /// The reason why the app cannot be loaded.
    pub(crate) async fn boot(
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
        // Of the program before an upgrade; a process that is attached has loaded its app.
        let warm_up = match attached {
            Some(_) => WarmUp::default(),
            None => releases.recent.of_release(&releases.settings()),
        };
        let booting =
            boot(releases.watch_settings(), releases.clone(), unlink, prepared, attached, None, warm_up);
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
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.0.as_ref().map(Supervisor::shared)
    }

    pub(crate) fn run(self) -> RunningWorkers {
        let (commands, orders) = mpsc::channel(COMMANDS);
        let (sender, notices) = mpsc::unbounded_channel();
        // During shutdown the receiver may be gone.
        let notify = move |notice| drop(sender.send(notice));
        let app = self.0.as_ref().and_then(|supervisor| {
            let facts = supervisor.facts()?.clone();
            Some(RunningApp { facts, shared: supervisor.shared(), source: supervisor.source() })
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
    pub(crate) task: JoinHandle<()>,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) notices: mpsc::UnboundedReceiver<Notice>,
    app: Option<RunningApp>,
}

/// The app, and the state that its processes share.
#[derive(Clone)]
pub(crate) struct RunningApp {
    pub(crate) facts: AppFacts,
    pub(crate) shared: Arc<Shared>,
    pub(crate) source: Capabilities,
}

impl RunningWorkers {
    /// Returns the app, if there is one.
    pub(crate) fn app(&self) -> Option<&RunningApp> {
        self.app.as_ref()
    }

    /// Returns whether the app's process has started this one.
    pub(crate) fn are_attached(&self) -> bool {
        self.app.as_ref().is_some_and(|app| app.source.starts_server)
    }

    /// Returns the template's report about the app.
    pub(crate) fn facts(&self) -> Option<&AppFacts> {
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
            | Command::BeginProfile(..)
            | Command::EndProfile(_)
            | Command::Unlink(_)
            | Command::Listening(_) => {}
        }
    }
}
