//! Turns [`WrittenValues`] into [`Settings`]: reads every value, checks every combination and keeps every mistake.
//!
//! Contract: pure. All facts about the outside are in [`ResolveContext`].

mod acme;
mod bounds;
mod control;
mod listen;
mod memory;
mod mruby;
mod named;
mod pools;
mod queue;
mod rate_limits;
mod sendfile;
mod services;
mod shape;
mod site;
mod threads;
mod tls;

use std::path::{Path, PathBuf};
use sys::Machine;

use crate::auto::{Chosen, auto_front_threads, auto_workers, worker_room};
use crate::discover::Discovered;
use crate::error::Error;
use crate::nearest::nearest;
use crate::origin::ValueSource;
use crate::puma::{Call, CallDescription, Mapped, PumaFile, left_out, toml};
use crate::raw::Raw;
use crate::reading::Reading;
use crate::settings::{
    DEVELOPMENT, Files, Health, Hub, Logs, Process, Rack, Settings, Shared, Traces, ordinary_pool,
};
use crate::table::section::Section;
use crate::table::taker::{Choice, Taker};
use crate::table::{self, app, files, logs, traces, workers};
use crate::value::log::{AccessLog, LogFormat};
use crate::value::pool::Pool;
use crate::value::public::{Public, ServePublic, USUAL};
use crate::value::refork::ReforkAfter;
use crate::value::workers::Workers;
use crate::value::yjit::Yjit;
use crate::written::{Route, Written, WrittenValues};

/// Facts besides the written values.
pub(crate) struct ResolveContext {
    /// The current directory of the command.
    pub(crate) typed_in: PathBuf,
    pub(crate) dir: PathBuf,
    /// The same directory with its links unresolved.
    pub(crate) typed_dir: PathBuf,
    /// The base of relative paths of files and folders: one of these two.
    pub(crate) base: PathBuf,
    pub(crate) app: Option<PathBuf>,
    pub(crate) config: Option<PathBuf>,
    /// The parts of a static site that the directory contains.
    pub(crate) site: Discovered,
    /// The `[sites]` table: the host, the written value, the directory if the value names one, and its contents.
    pub(crate) host_sites: Vec<(String, Written, Option<PathBuf>, Discovered)>,
    pub(crate) routes: Vec<Route>,
    /// The handler that was named instead of a directory.
    pub(crate) handler: Option<PathBuf>,
    /// The address for `control = "auto"`.
    pub(crate) control: PathBuf,
    /// The same for the directory as typed, if that is a link. Clients find the server there after the link has changed.
    pub(crate) typed_control: Option<TypedControl>,
    /// The control socket of a server that uses other folders than this user does, if there is one and this user's own socket is missing.
    pub(crate) control_elsewhere: Option<PathBuf>,
    pub(crate) puma_rb: Option<PumaFile>,
    /// The calls of that file, once it has been evaluated.
    pub(crate) puma: Option<Mapped>,
    /// The folder for files that outlive this user's servers.
    pub(crate) state_dir: PathBuf,
    pub(crate) machine: Machine,
    /// Whether the server runs in Kubernetes.
    pub(crate) kubernetes: bool,
    /// Whether the app runs in the Ruby process that started the front.
    pub(crate) attached: bool,
}

/// A control socket that is named after a link.
pub(crate) struct TypedControl {
    pub(crate) path: PathBuf,
    pub(crate) exists: bool,
}

/// Checked settings with their origins.
#[derive(Clone, Debug, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    /// The written values in force, in the table's order, without options at their defaults.
    pub choices: Vec<Choice>,
    /// The reason for the number of workers.
    pub workers_why: String,
    /// The reason for the number of front threads.
    pub front_threads_why: String,
    /// Warnings of values that are allowed but probably not meant, one sentence each.
    pub warnings: Vec<String>,
    /// The resources that this process may use.
    pub machine: Machine,
    /// The calls of `puma.rb` and their effects; `None` without such a file and before it is evaluated.
    pub puma: Option<Vec<CallDescription>>,
    /// The same settings as a `firebrick.toml`.
    pub puma_toml: Option<String>,
    /// The number of values that are only comments in it, because `puma.rb` sets them under a condition.
    pub puma_left_out: usize,
    /// The files and arguments that these settings come from, for [`Loaded::evaluated`].
    pub(crate) reading: Reading,
    /// The calls of `puma.rb` that are in them.
    pub(crate) calls: Option<Vec<Call>>,
}

impl Loaded {
    /// Returns the lines to print at start for an evaluated `puma.rb`: warnings, and one line for each call without effect.
    pub fn puma_notes(&self) -> impl Iterator<Item = String> {
        let said = self.puma.is_some();
        let warnings =
            self.warnings.iter().filter(move |_| said).map(|warning| format!("warning: {warning}"));
        warnings.chain(self.puma.iter().flatten().filter_map(CallDescription::note))
    }
}

/// Returns the settings, or all mistakes.
pub(crate) fn resolve(given: &WrittenValues, facts: &ResolveContext) -> Result<Loaded, Vec<Error>> {
    let taker = Taker::new(given, &facts.typed_in, &facts.base);
    let process = process(&taker, facts);
    let development = process.environment == DEVELOPMENT;
    let slo = shape::slo(&taker, facts);
    let workers = workers_of(&taker, facts, development, slo.is_some());
    let hub = hub(&taker);
    let front_threads = front_threads_of(&taker, facts, &hub);
    // These two were read before the file; this only records them as choices.
    taker.take(&app::TARGET);
    taker.take(&app::CONFIG);
    let acme = acme::acme(&taker, given, facts);
    let https = taker.take(&crate::table::tls::HTTPS).value;
    if https && acme.is_on() {
        taker.conflict(
            &crate::table::tls::HTTPS.about,
            "it is for development, and domains are for the internet: leave one of them out",
        );
    }
    let binds = listen::binds(&taker, https, acme.is_on(), facts.machine.ipv6);
    let threads = threads::threads(&taker);
    let (limits, timeouts) =
        (bounds::limits(&taker, facts, development), bounds::timeouts(&taker, facts, development));
    let own = ordinary_pool(workers.0.max, threads, &limits, &timeouts);
    let queue = queue::queue(&taker, given);
    let own = Pool { fair: queue.fair.clone(), ..own };
    let (fibers, pools) = pools::pools(&taker, given, facts, &own);
    let (workers, workers_auto, workers_why) = beside(workers, &pools, facts);
    let shape = shape::rule(&taker, slo, facts, workers, threads, fibers);
    let shared: Shared = Section::take(&taker);
    let mut settings = Settings {
        fibers,
        pools,
        queue,
        tls: tls::tls(&taker, given, facts, &binds, https, acme.is_on()),
        https: Section::take(&taker),
        acme,
        state_dir: facts.state_dir.clone(),
        dir: facts.dir.clone(),
        typed_dir: facts.typed_dir.clone(),
        app: facts.app.clone(),
        config: facts.config.clone(),
        puma_rb: facts.puma_rb.clone(),
        tag: taker.take(&app::TAG).value.unwrap_or_else(|| name_of(&facts.dir)),
        process,
        binds,
        workers,
        workers_auto,
        threads,
        shape,
        front_threads: front_threads.number,
        limits,
        timeouts,
        rack: rack_of(&taker, facts),
        reload: Section::take(&taker),
        maintenance: Section::take(&taker),
        compression: Section::take(&taker),
        cache: Section::take(&taker),
        hub,
        files: files_of(&taker, facts),
        sites: site::sites(&taker, facts),
        mruby: mruby::mruby(&taker, facts),
        logs: logs_of(&taker, development && facts.app.is_some() && !facts.attached),
        stats: Section::take(&taker),
        traces: traces_of(&taker),
        control: control::control(&taker, facts),
        health: health(&taker),
        sendfile: sendfile::rules(&taker, given, facts),
        services: services::services(&taker, given),
        rate_limits: rate_limits::rate_limits(&taker, given, shared.redis.is_some()),
        shared,
    };
    memory::memory(&taker, &mut settings, facts);
    bounds::warn(&taker, &settings, facts);
    tls::warn_of_seconds(&taker);
    listen::no_path_twice(&taker, &settings);
    let (mut choices, warnings) = taker.finish()?;
    choices.sort_by_key(|choice| table::entries().position(|entry| entry.about().key == choice.key));
    Ok(Loaded {
        settings,
        choices,
        workers_why,
        front_threads_why: front_threads.why,
        warnings,
        machine: facts.machine.clone(),
        puma: facts.puma.as_ref().map(|mapped| mapped.rows.clone()),
        puma_left_out: facts.puma.as_ref().map_or(0, left_out),
        reading: Reading::default(),
        calls: None,
        puma_toml: facts
            .puma
            .as_ref()
            .zip(facts.puma_rb.as_ref())
            .map(|(mapped, file)| toml(mapped, &file.shown)),
    })
}

/// Checks that parts of the hub have the hub itself, and the secrets that they need.
fn hub(taker: &Taker<'_>) -> Hub {
    let hub = Hub::take(taker);
    if hub.mercure.is_some() && hub.path.is_none() {
        let problem =
            "hub.path is off: set it, for example to \"/cable\", because Mercure is a part of the hub";
        taker.conflict(&table::hub::mercure.about, problem.to_owned());
    }
    for (path, secret, about) in [
        (&hub.rpc, &hub.rpc_secret, &table::hub::rpc.about),
        (&hub.broadcast, &hub.broadcast_secret, &table::hub::broadcast.about),
    ] {
        if path.is_some() && hub.path.is_none() {
            taker.conflict(about, "hub.path is off: set it, for example to \"/cable\"".to_owned());
        } else if path.is_some() && secret.is_none() && hub.secret.is_none() {
            taker.conflict(about, format!("a token is needed: set {}_secret, or hub.secret", about.key));
        }
    }
    if hub.jwt_required && hub.jwt_secret.is_none() && hub.secret.is_none() {
        let problem = "no token can be checked: set hub.jwt_secret, or hub.secret";
        taker.conflict(&table::hub::jwt_required.about, problem.to_owned());
    }
    hub
}

/// Checks that the two paths differ, because their responses do.
fn health(taker: &Taker<'_>) -> Health {
    let health = Health::take(taker);
    if health.live_path.is_some() && health.live_path == health.ready_path {
        taker.conflict(&table::health::ready_path.about, "health.live_path is the same path".to_owned());
    }
    health
}

/// The number of workers, the assumed memory of each if the machine decides the number, and the reason.
type Number = (Workers, Option<u64>, String);

/// Returns the number of workers of the default pool where the machine decides it: the workers of other pools
/// take a part of the memory.
fn beside((workers, auto, why): Number, pools: &[Pool], facts: &ResolveContext) -> Number {
    let Some(estimate) = auto.filter(|_| !pools.is_empty()) else { return (workers, auto, why) };
    let others = pools.iter().map(|pool| pool.workers).sum();
    let Chosen { number, why } = auto_workers(&facts.machine, estimate, others);
    (Workers::exactly(number), auto, why)
}

/// Returns the number of workers of the default pool as if it were the only one. `shaped`: it follows an objective.
fn workers_of(taker: &Taker<'_>, facts: &ResolveContext, development: bool, shaped: bool) -> Number {
    let written = taker.take(&workers::WORKERS);
    let estimate = taker.take(&workers::WORKER_MEMORY_ESTIMATE);
    if facts.attached {
        if written.value.is_some_and(|workers| workers != Workers::exactly(1)) {
            taker.warn(format!(
                "workers has no effect ({}): the Ruby process that has started the server is its worker",
                written.origin
            ));
        }
        return (Workers::exactly(1), None, "the Ruby process that has started the server".to_owned());
    }
    let Some(workers) = written.value else {
        if development && written.origin == ValueSource::Default {
            return (Workers::exactly(1), None, "one in development".to_owned());
        }
        let Chosen { number, why } = auto_workers(&facts.machine, estimate.value, 0);
        return (Workers::exactly(number), Some(estimate.value), why);
    };
    if !workers.is_range() {
        if estimate.origin != ValueSource::Default {
            taker.warn(format!(
                "worker_memory_estimate has no effect, because workers is {workers}, not auto"
            ));
        }
        return (workers, None, written.origin.to_string());
    }
    if development && !shaped {
        return (
            Workers::exactly(workers.min),
            None,
            format!("{}; in development the minimum", written.origin),
        );
    }
    if let Some((room, what)) =
        worker_room(&facts.machine, estimate.value).filter(|(room, _)| *room < workers.max)
    {
        taker.warn(format!(
            "workers is {workers}, but {what} has room for {room} of {} each (worker_memory_estimate); the number \
             grows only as far as the memory that they really take allows",
            text::size::exact(estimate.value)
        ));
    }
    (workers, None, written.origin.to_string())
}

/// The maximum number of links per worker: one message carries the descriptors of all of them.
pub(crate) const LINKS: u32 = 64;

fn front_threads_of(taker: &Taker<'_>, facts: &ResolveContext, hub: &Hub) -> Chosen {
    let written = taker.take(&workers::FRONT_THREADS);
    let serves_app = facts.app.is_some() || facts.puma_rb.is_some() || facts.attached;
    if let Some(number) = written.value.filter(|&number| serves_app && number > LINKS) {
        let problem = format!(
            "an app can have {LINKS} or less: each worker has a link to each, and there are {number}"
        );
        taker.conflict(&workers::FRONT_THREADS.about, problem);
    }
    written.value.map_or_else(
        // Workers have no part in a broadcast to thousands of clients, which waits for the last of them.
        || auto_front_threads(&facts.machine, serves_app && hub.path.is_none()),
        |number| exactly(number, &written.origin),
    )
}

fn exactly(number: u32, origin: &ValueSource) -> Chosen {
    Chosen { number, why: origin.to_string() }
}

fn process(taker: &Taker<'_>, facts: &ResolveContext) -> Process {
    const USUAL: [&str; 3] = [DEVELOPMENT, "production", "test"];
    let mut process = Process::take(taker);
    if facts.attached {
        // A pidfile of this server would hold the front's id, but the user who started the Ruby process wants that process's id.
        process.pidfile = None;
        process.state_path = None;
    }
    let name = process.environment.as_str();
    if !USUAL.contains(&name)
        && let Some(usual) = nearest(name, USUAL)
    {
        taker.warn(format!("the environment is called {name:?}; did you mean {usual:?}?"));
    }
    process
}

fn files_of(taker: &Taker<'_>, facts: &ResolveContext) -> Files {
    let serve = taker.take(&files::SERVE_PUBLIC);
    let public = taker.take(&files::PUBLIC);
    if serve.value.is_none() && public.origin != ValueSource::Default {
        taker.warn(format!("files.public has no effect, because {} turns it off", serve.origin));
    }
    let named = public.origin != ValueSource::Default;
    let (directory, word) = match public.value {
        Public::Directory(directory) => (directory, Some(None)),
        Public::Word(word) => (facts.base.join(USUAL), word.map(Some)),
    };
    let always = |serve: ServePublic| serve == ServePublic::Always;
    let serve = match (serve.value, word) {
        (None, _) | (_, None) => return Files { public: None, serve: ServePublic::Auto },
        (Some(one), Some(other)) if always(one) || other.is_some_and(always) => ServePublic::Always,
        (Some(_), Some(None)) if named => ServePublic::Named,
        (Some(_), Some(_)) => ServePublic::Auto,
    };
    Files { public: Some(directory), serve }
}

/// Turns off the options that would change a Ruby process that the server did not start.
fn rack_of(taker: &Taker<'_>, facts: &ResolveContext) -> Rack {
    let mut rack = Rack::take(taker);
    if facts.attached {
        (rack.out_of_band_gc, rack.refork_after) = (false, ReforkAfter::default());
        if rack.yjit == Yjit::Auto {
            rack.yjit = Yjit::Off;
        }
    }
    rack
}

/// With `shown`, sends the access log to standard output unless the user chose a target.
fn logs_of(taker: &Taker<'_>, shown: bool) -> Logs {
    let mut logs = Logs::take(taker);
    if shown && taker.origin(&logs::access) == ValueSource::Default {
        logs.access = AccessLog::Stdout;
    }
    // The json format applies to the error log, too.
    let is_used = logs.access != AccessLog::Off || logs.format == LogFormat::Json;
    if !is_used && taker.origin(&logs::format) != ValueSource::Default {
        taker.warn("log.format has no effect, because log.access is off".to_owned());
    }
    logs
}

/// Warns of trace options without an endpoint, which have no effect.
fn traces_of(taker: &Taker<'_>) -> Traces {
    let taken = Traces::take(taker);
    if taken.endpoint == Some(None) {
        let given = [
            ("traces.sample", taker.origin(&traces::sample)),
            ("traces.service_name", taker.origin(&traces::service_name)),
            ("traces.headers", taker.origin(&traces::headers)),
        ];
        for (key, _) in given.iter().filter(|(_, origin)| *origin != ValueSource::Default) {
            taker.warn(format!("{key} has no effect, because traces.endpoint is off"));
        }
    }
    taken
}

fn name_of(dir: &Path) -> String {
    dir.file_name().map_or_else(|| "firebrick".to_owned(), |name| name.to_string_lossy().into_owned())
}

impl Settings {
    /// Returns settings with all defaults of production, one worker and one front thread.
    pub fn defaults(dir: &Path) -> Settings {
        let machine = Machine::unlimited(1);
        let facts = ResolveContext {
            typed_in: dir.to_owned(),
            dir: dir.to_owned(),
            typed_dir: dir.to_owned(),
            base: dir.to_owned(),
            app: None,
            config: None,
            puma_rb: None,
            puma: None,
            site: Discovered::default(),
            host_sites: Vec::new(),
            routes: Vec::new(),
            handler: None,
            state_dir: "/state".into(),
            control: dir.join("control.sock"),
            typed_control: None,
            control_elsewhere: None,
            machine,
            kubernetes: false,
            attached: false,
        };
        let mut given = WrittenValues::default();
        let production = Written { raw: Raw::Word("production".to_owned()), origin: ValueSource::Default };
        given.add(app::environment.about.key, production);
        let loaded = resolve(&given, &facts);
        loaded.map(|loaded| loaded.settings).expect("the table's defaults go together, as the tests show")
    }
}
