//! Loading the app: for `serve`, which goes on with what is loaded, and for `check`, which lets it go.

use pool::spawner::BootConfig;
use pool::supervisor::{BootError, Options, Refresh, Supervisor};
use settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The variable that names the folder of our Ruby files; set by the gem's launcher.
const LIB: &str = "FIREBRICK_LIB";

/// Starts the template and waits until it has loaded the app. Should the front be killed, the template removes `unlink`.
///
/// # Errors
/// There is no app; our Ruby files are not found; the app raised, or took longer than `timeouts.worker_boot`.
pub(crate) async fn boot(
    settings: watch::Receiver<Arc<Settings>>,
    refresh: Refresh,
    unlink: Vec<PathBuf>,
) -> Result<Supervisor, String> {
    let now = settings.borrow().clone();
    let app = now.app.clone().ok_or("there is no app to run")?;
    let boot = BootConfig { app, lib: lib()?, settings: now.clone(), environment: Vec::new(), unlink };
    let timeout = now.timeouts.worker_boot;
    match tokio::time::timeout(timeout, Supervisor::boot(Options { boot, settings, refresh })).await {
        Ok(Ok(supervisor)) => Ok(supervisor),
        Ok(Err(error)) => Err(explain(&error, &now)),
        Err(_) => {
            let seconds = timeout.as_secs_f64();
            Err(format!("the app did not load within worker_boot_timeout ({seconds} s)"))
        }
    }
}

/// A failure to boot, in words.
fn explain(error: &BootError, settings: &Settings) -> String {
    match error {
        BootError::App(text) => {
            let app = settings.app.as_deref().unwrap_or(&settings.dir).display();
            format!("{app} cannot be loaded:\n{}", text.trim_end())
        }
        BootError::Template(error) => error.to_string(),
    }
}

/// `lib` beside the program: named by the launcher, or found going up from the executable (`target/release`, `libexec`).
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
    let found = exe.ancestors().skip(1).take(4).map(|dir| dir.join("lib")).find(|lib| holds(lib));
    found.ok_or_else(|| {
        format!("Firebrick's Ruby files are not near {}; install the gem, or set {LIB} to the folder that holds firebrick/template.rb", exe.display())
    })
}
