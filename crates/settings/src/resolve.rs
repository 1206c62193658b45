//! [`Given`] to [`Settings`]: every value is read, every combination judged, every mistake kept.
//!
//! Contract: pure. What the outside contributes is in [`Facts`].

mod bounds;
mod control;
mod listen;
mod mruby;
mod site;
mod taker;
mod threads;

use std::path::{Path, PathBuf};

use crate::discover::Discovered;
use crate::error::Error;
use crate::given::{Given, Route, Written};
use crate::kind::texts::PathOrWord;
use crate::machine::{Chosen, Machine, auto_front_threads, auto_workers};
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::settings::{Files, Logs, Rack, Settings};
use crate::table::{app, files, logs, rack, workers};
use crate::value::log::{AccessLog, ErrorLog};
pub use taker::Choice;
use taker::{Taken, Taker};

/// What is known besides what was written.
pub(crate) struct Facts {
    /// Where the command was typed.
    pub(crate) typed_in: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) app: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    /// What the directory holds of a static site.
    pub(crate) site: Discovered,
    /// The `[sites]` table: host, what was written, the directory if it is one's name, what is in it.
    pub(crate) host_sites: Vec<(String, Written, Option<PathBuf>, Discovered)>,
    /// The `[routes]` table.
    pub(crate) routes: Vec<Route>,
    /// The handler that was named instead of a directory.
    pub(crate) handler: Option<PathBuf>,
    /// What `control = "auto"` means here.
    pub(crate) control: PathBuf,
    pub(crate) machine: Machine,
}

/// Checked settings and where they come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub settings: Settings,
    /// What was written and counts, in the table's order; options left at their default are not in it.
    pub choices: Vec<Choice>,
    /// Why there are that many workers.
    pub workers_why: String,
    /// Why there are that many front threads.
    pub front_threads_why: String,
    /// What is allowed but probably not meant, one sentence each.
    pub warnings: Vec<String>,
    /// What the machine lets this process use.
    pub machine: Machine,
}

/// The settings, or all that is wrong.
pub(crate) fn resolve(given: &Given, facts: &Facts) -> Result<Loaded, Vec<Error>> {
    let taker = Taker::new(given);
    let workers = workers_of(&taker, facts);
    let front_threads = front_threads_of(&taker, facts);
    let quiet = taker.take(&app::QUIET).value;
    // These two were read before the file could be; here they only join the choices.
    taker.take(&app::TARGET);
    taker.take(&app::CONFIG);
    let settings = Settings {
        dir: facts.dir.clone(),
        app: facts.app.clone(),
        config: facts.config.clone(),
        binds: listen::binds(&taker, facts),
        environment: environment(&taker),
        workers: workers.number,
        threads: threads::threads(&taker),
        front_threads: front_threads.number,
        limits: bounds::limits(&taker),
        timeouts: bounds::timeouts(&taker),
        rack: rack_of(&taker, facts),
        files: files_of(&taker, facts),
        sites: site::sites(&taker, facts),
        mruby: mruby::mruby(&taker, facts),
        logs: logs_of(&taker, facts),
        control: control::control(&taker, facts),
        server_timing: taker.take(&crate::table::listen::SERVER_TIMING).value,
        pidfile: optional_path(taker.take(&app::PIDFILE), facts),
        tag: taker.take(&app::TAG).value.unwrap_or_else(|| name_of(&facts.dir)),
        temp_dir: absolute(taker.take(&app::TEMP_DIR), facts),
        quiet,
    };
    bounds::warn(&taker, &settings, facts);
    listen::no_path_twice(&taker, &settings);
    let (choices, warnings) = taker.finish()?;
    Ok(Loaded {
        settings,
        choices,
        workers_why: workers.why,
        front_threads_why: front_threads.why,
        warnings,
        machine: facts.machine.clone(),
    })
}

/// The table's bounds keep every value below 32 bits' worth.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

fn workers_of(taker: &Taker<'_>, facts: &Facts) -> Chosen {
    let written = taker.take(&workers::WORKERS);
    let estimate = taker.take(&workers::WORKER_MEMORY_ESTIMATE);
    match written.value {
        None => auto_workers(&facts.machine, estimate.value),
        Some(number) => {
            if estimate.origin != Origin::Default {
                taker.warn(format!(
                    "worker_memory_estimate has no effect, because workers is {number}, not auto"
                ));
            }
            exactly(number, &written.origin)
        }
    }
}

fn front_threads_of(taker: &Taker<'_>, facts: &Facts) -> Chosen {
    let written = taker.take(&workers::FRONT_THREADS);
    written
        .value
        .map_or_else(|| auto_front_threads(&facts.machine), |number| exactly(number, &written.origin))
}

fn exactly(number: u64, origin: &Origin) -> Chosen {
    Chosen { number: u32::try_from(number).unwrap_or(u32::MAX), why: origin.to_string() }
}

fn environment(taker: &Taker<'_>) -> String {
    const USUAL: [&str; 3] = ["development", "production", "test"];
    let name = taker.take(&app::ENVIRONMENT).value;
    if !USUAL.contains(&name.as_str())
        && let Some(usual) = nearest(&name, USUAL)
    {
        taker.warn(format!("the environment is called {name:?}; did you mean {usual:?}?"));
    }
    name
}

fn rack_of(taker: &Taker<'_>, facts: &Facts) -> Rack {
    let ruby = taker.take(&rack::RUBY);
    let looked_up =
        ruby.value.components().count() == 1 && !ruby.value.is_absolute() && !is_dotted(&ruby.value);
    Rack {
        ruby: if looked_up { ruby.value } else { absolute(ruby, facts) },
        trusted_proxies: taker.take(&rack::TRUSTED_PROXIES).value,
        allow_underscore_headers: taker.take(&rack::ALLOW_UNDERSCORE_HEADERS).value,
        early_hints: taker.take(&rack::EARLY_HINTS).value,
        warmup: taker.take(&rack::WARMUP).value,
        compact: taker.take(&rack::COMPACT).value,
        request_id_header: taker.take(&rack::REQUEST_ID_HEADER).value,
    }
}

/// `./ruby` has one component too, but says where it is.
fn is_dotted(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b'/')
}

fn files_of(taker: &Taker<'_>, facts: &Facts) -> Files {
    let serve = taker.take(&files::SERVE_PUBLIC);
    let public = taker.take(&files::PUBLIC);
    if !serve.value && public.origin != Origin::Default {
        taker.warn(format!("files.public has no effect, because {} turns it off", serve.origin));
    }
    Files { public: serve.value.then(|| absolute(public, facts)) }
}

fn logs_of(taker: &Taker<'_>, facts: &Facts) -> Logs {
    let access = taker.take(&logs::ACCESS_LOG);
    let format = taker.take(&logs::LOG_FORMAT);
    let access_log = match access.value {
        PathOrWord::Word("off") => AccessLog::Off,
        PathOrWord::Word(_) => AccessLog::Stdout,
        PathOrWord::Path(path) => AccessLog::File(based(&path, &access.origin, facts)),
    };
    if access_log == AccessLog::Off && format.origin != Origin::Default {
        taker.warn("log.format has no effect, because log.access is off".to_owned());
    }
    let error = taker.take(&logs::ERROR_LOG);
    let error_log = match error.value {
        PathOrWord::Word(_) => ErrorLog::Stderr,
        PathOrWord::Path(path) => ErrorLog::File(based(&path, &error.origin, facts)),
    };
    Logs { access_log, log_format: format.value, error_log }
}

fn optional_path(taken: Taken<Option<PathBuf>>, facts: &Facts) -> Option<PathBuf> {
    taken.value.map(|path| based(&path, &taken.origin, facts))
}

fn absolute(taken: Taken<PathBuf>, facts: &Facts) -> PathBuf {
    based(&taken.value, &taken.origin, facts)
}

/// The path made absolute from where it was written, without `.` components.
fn based(path: &Path, origin: &Origin, facts: &Facts) -> PathBuf {
    origin.base(&facts.typed_in, &facts.dir).join(path).components().collect()
}

fn name_of(dir: &Path) -> String {
    dir.file_name().map_or_else(|| "firebrick".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Settings {
    /// Settings in which every option has its default, with one worker and one front thread.
    pub fn defaults(dir: &Path) -> Settings {
        let machine =
            Machine { cores: 1, cpu_quota: None, memory_limit: None, memory_total: None, open_files: None };
        let facts = Facts {
            typed_in: dir.to_owned(),
            dir: dir.to_owned(),
            app: None,
            config: None,
            site: Discovered::default(),
            host_sites: Vec::new(),
            routes: Vec::new(),
            handler: None,
            control: dir.join("control.sock"),
            machine,
        };
        let loaded = resolve(&Given::default(), &facts);
        loaded.map(|loaded| loaded.settings).expect("the table's defaults go together, as the tests show")
    }
}
