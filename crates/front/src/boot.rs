//! Loading the app: for `serve`, which goes on with what is loaded, and for `check`, which lets it go.

use crate::serve::Reread;
use pool::spawner::{BootConfig, Handoff, Prepared, without_fork};
use pool::supervisor::{BootError, Options, Refresh, Supervisor};
use settings::{Loaded, Settings};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The variable that names the folder of our Ruby files; set by the gem's launcher.
const LIB: &str = "FIREBRICK_LIB";

/// The settings with what `puma.rb` says, and the process that has evaluated it and is to load the app. Without a `puma.rb` nothing is
/// started. The process at the other end of `attached` evaluates it itself.
///
/// # Errors
/// It raised, or calls what Puma does not have; a value in it is wrong; it took longer than `timeouts.worker_boot`.
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
    Ok((reread(Some(&calls))?, Handoff::new(prepared)))
}

/// Starts the template and waits until it has loaded the app. Should the front be killed, the template removes `unlink`.
///
/// # Errors
/// There is no app; our Ruby files are not found; the app raised, or took longer than `timeouts.worker_boot`.
pub(crate) async fn boot(
    settings: watch::Receiver<Arc<Settings>>,
    refresh: Refresh,
    unlink: Vec<PathBuf>,
    prepared: Handoff,
    attached: Option<Arc<UnixStream>>,
) -> Result<Supervisor, String> {
    let now = settings.borrow().clone();
    let app = now.app.clone().ok_or("there is no app to run")?;
    // An attached process has found them.
    let lib = if attached.is_some() { PathBuf::new() } else { lib()? };
    let boot = BootConfig { app, lib, settings: now.clone(), environment: Vec::new(), unlink, prepared };
    let options = Options { boot, settings, refresh, attached };
    Supervisor::boot(options).await.map_err(|error| explain(&error, &now))
}

/// A failure to boot, in words.
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
                    format!("{text}, and what it calls does not return to Ruby, so it cannot say where it is")
                }
            }
        }
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
