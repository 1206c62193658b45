//! From settings to what the pool needs; finding our Ruby files.

use crate::sites::Sites;
use pool::supervisor::Options;
use pool::table::Patience;
use pool::template::Plan;
use settings::{AccessLog, Bind, Choice, Loaded, Origin, Settings};
use std::path::{Path, PathBuf};

/// The variable that names the folder of our Ruby files; set by the gem's launcher.
const LIB: &str = "FIREBRICK_LIB";

/// The settings with what `static.json` says about the server itself, where nobody has said otherwise.
pub(crate) fn with_rules(loaded: Loaded, sites: &Sites) -> Settings {
    let Loaded { mut settings, choices, .. } = loaded;
    // As in the buildpack, the file counts before the variables.
    let said = |choice: &Choice| !matches!(choice.origin, Origin::Env(_));
    let chosen = |key: &str| choices.iter().any(|choice| choice.key == key && said(choice));
    let Some(rules) = sites.main.as_ref().map(|site| &site.plan.rules) else { return settings };
    if let Some(port) = rules.port().filter(|_| !chosen("port") && !chosen("bind"))
        && let [Bind::Tcp { port: default, .. }] = settings.binds.as_mut_slice()
    {
        *default = port;
    }
    if let Some(connections) = rules.worker_connections().filter(|_| !chosen("limits.max_connections")) {
        // nginx counts connections of each of its worker processes.
        settings.limits.max_connections =
            (connections as usize).saturating_mul(settings.front_threads as usize);
    }
    if let Some(access) = rules.access_log().filter(|_| !chosen("log.access")) {
        settings.logs.access_log = if access { AccessLog::Stdout } else { AccessLog::Off };
    }
    settings
}

/// How to run the app.
///
/// # Errors
/// There is no app, or our Ruby files are not where they should be.
pub(crate) fn options(settings: &Settings, unlink: Vec<PathBuf>) -> Result<Options, String> {
    let app = settings.app.clone().ok_or("there is no app to run")?;
    let plan = Plan {
        ruby: settings.rack.ruby.clone(),
        lib: lib()?,
        dir: settings.dir.clone(),
        app,
        environment: settings.environment.clone(),
        threads_min: settings.threads.min.into(),
        threads_max: settings.threads.max.into(),
        warmup: settings.rack.warmup.clone(),
        compact: settings.rack.compact,
        early_hints: settings.rack.early_hints,
        temp_dir: settings.temp_dir.clone(),
        tag: settings.tag.clone(),
        max_response_head: settings.limits.max_response_header_bytes,
        unlink,
    };
    Ok(Options {
        plan,
        workers: settings.workers as usize,
        front_threads: settings.front_threads as usize,
        max_queue: settings.limits.max_queue,
        queue_timeout: settings.timeouts.queue_timeout,
        worker_timeout: settings.timeouts.worker_timeout,
        patience: Patience {
            boot: settings.timeouts.worker_boot_timeout,
            shutdown: settings.timeouts.shutdown_timeout,
        },
    })
}

/// `lib` beside the program: named by the launcher, or found going up from the executable (`target/release`, `libexec`).
fn lib() -> Result<PathBuf, String> {
    let holds = |lib: &Path| lib.join("firebrick/template.rb").is_file();
    if let Some(named) = std::env::var_os(LIB).map(PathBuf::from) {
        return if holds(&named) {
            Ok(named)
        } else {
            Err(format!("{LIB} is {}, but there is no firebrick/template.rb in it", named.display()))
        };
    }
    let exe =
        std::env::current_exe().and_then(std::fs::canonicalize).map_err(|e| format!("where am I? {e}"))?;
    let found = exe.ancestors().skip(1).take(4).map(|dir| dir.join("lib")).find(|lib| holds(lib));
    found.ok_or_else(|| {
        format!("Firebrick's Ruby files are not near {}; install the gem, or set {LIB} to the folder that holds firebrick/template.rb", exe.display())
    })
}
