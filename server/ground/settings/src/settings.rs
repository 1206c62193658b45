//! The settings after all checks: plain typed fields that the rest of the program reads.
//!
//! Contract: every `Settings` is valid. Sizes are bytes, paths are absolute, and a written 0 that means "off" is `None`.
//!
//! The structs whose options need no others ([`Limits`], [`Timeouts`] and so on) are generated from the table.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::nothing::NothingToServe;
use crate::puma::PumaFile;
pub use crate::table::app::Process;
pub use crate::table::cache::{Cache, OnReload};
pub use crate::table::compression::Compression;
pub use crate::table::health::Health;
pub use crate::table::hub::Hub;
pub use crate::table::limits::Limits;
pub use crate::table::logs::Logs;
pub use crate::table::maintenance::Maintenance;
pub use crate::table::mruby::HandlerLimits;
pub use crate::table::rack::Rack;
pub use crate::table::reload::Reload;
pub use crate::table::shared::Shared;
pub use crate::table::site::{FileCache, SitePages};
pub use crate::table::stats::Stats;
pub use crate::table::timeouts::Timeouts;
pub use crate::table::tls::Https;
pub use crate::table::traces::Traces;
use crate::value::acme::Acme;
use crate::value::bind::Bind;
use crate::value::control::ControlAddress;
use crate::value::pool::Pool;
use crate::value::public::ServePublic;
use crate::value::queue::{Fair, Queue};
use crate::value::rate_limit::RateLimit;
use crate::value::sendfile::SendfileRule;
use crate::value::service::Service;
use crate::value::slo::ShapeRule;
use crate::value::threads::Threads;
use crate::value::tls::{CertificateFiles, TlsVersion, Verify};
use crate::value::workers::Workers;

/// The name of the development environment, which has its own defaults.
pub(crate) const DEVELOPMENT: &str = "development";

/// All settings of a server run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The app's directory: absolute, and canonical if it exists. Workers run in it.
    pub dir: PathBuf,
    /// The same directory as the user typed it, with symbolic links such as `/srv/app/current` unresolved.
    pub typed_dir: PathBuf,
    /// The rackup file, absolute; `None` if there is none.
    pub app: Option<PathBuf>,
    /// The configuration file that was read, absolute.
    pub config: Option<PathBuf>,
    /// Puma's configuration file, which each template evaluates before it loads the app.
    pub puma_rb: Option<PumaFile>,
    /// The folder for files that outlive the server, absolute. It need not exist.
    pub state_dir: PathBuf,
    /// The name in process titles; the directory's name by default.
    pub tag: String,
    pub process: Process,
    /// The addresses to listen on, in order; never empty, and without duplicates.
    pub binds: Vec<Bind>,
    pub tls: Tls,
    /// Redirects to https and to the right host.
    pub https: Https,
    pub acme: Acme,
    /// The number of worker processes of the default pool, with `auto` resolved. Never a range in development.
    pub workers: Workers,
    /// With `workers = "auto"`: the assumed memory of each worker in bytes. The number changes with the limits of CPU and memory.
    pub workers_auto: Option<u64>,
    /// Threads of each worker of the default pool.
    pub threads: Threads,
    /// The objective that workers and threads of the default pool follow, instead of the load.
    pub shape: Option<ShapeRule>,
    /// Fibers per thread of the default pool; 0: each thread serves one request at a time.
    pub fibers: u32,
    /// The pools beside the default one: those of threads, then those of fibers.
    pub pools: Vec<Pool>,
    /// How queues identify the clients that take turns.
    pub queue: Queue,
    /// Event-loop threads of the front, with `auto` resolved; at least 1.
    pub front_threads: u32,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub rack: Rack,
    pub reload: Reload,
    pub maintenance: Maintenance,
    pub compression: Compression,
    pub cache: Cache,
    /// WebSockets of Action Cable that the server holds.
    pub hub: Hub,
    pub files: Files,
    pub sites: Sites,
    pub mruby: Mruby,
    pub logs: Logs,
    pub stats: Stats,
    pub traces: Traces,
    pub control: Control,
    /// Paths of the app's addresses that the server answers itself.
    pub health: Health,
    /// Folders for the app's `X-Accel-Redirect`, longest prefix first.
    pub sendfile: Vec<SendfileRule>,
    /// Processes that run beside the workers, in the order of the file.
    pub services: Vec<Service>,
    /// The rate limits, in the order of the file.
    pub rate_limits: Vec<RateLimit>,
    pub shared: Shared,
}

impl Settings {
    /// Returns whether an app runs in the development environment. A site without an app has no environment.
    pub fn is_development(&self) -> bool {
        self.app.is_some() && self.process.environment == DEVELOPMENT
    }

    /// Returns the path of the Unix socket on which processes of the app publish.
    pub fn hub_socket(&self) -> PathBuf {
        self.hub.socket.clone().unwrap_or_else(|| self.dir.join("tmp/firebrick-hub.sock"))
    }

    /// Describes the threads and fibers of a worker of the default pool that has `fibers` fibers per thread:
    /// `1:5 threads x 100 fibers`.
    pub fn seats_text(&self, fibers: u32) -> String {
        let threads = self.threads;
        if fibers == 0 {
            format!("{threads} threads")
        } else {
            format!("{threads} threads x {fibers} fibers")
        }
    }

    /// Returns the directory to which relative paths of files and folders belong. With an app this is the directory of its release; without one,
    /// the directory as it was typed, which may be a link that changes later.
    pub fn base(&self) -> &Path {
        if self.app.is_some() || self.puma_rb.is_some() { &self.dir } else { &self.typed_dir }
    }

    /// Checks that there is something to serve.
    ///
    /// # Errors
    /// There is neither an app nor a site.
    pub fn something_to_serve(&self) -> Result<(), NothingToServe> {
        let found = self.app.is_some()
            || self.sites.main.is_some()
            || !self.sites.hosts.is_empty()
            || !self.mruby.routes.is_empty();
        if found { Ok(()) } else { Err(NothingToServe { dir: self.dir.clone() }) }
    }
}

/// Encryption of the addresses that begin with `ssl://`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// Whether the local development authority signs certificates for the names of this machine.
    pub development: bool,
    pub certificates: Vec<CertificateFiles>,
    /// The CAs of client certificates, for addresses that name none.
    pub client_ca: Option<PathBuf>,
    /// Whether clients must show a certificate, for addresses that do not say.
    pub verify: Verify,
    pub min_version: TlsVersion,
    /// Whether the server refuses clients that ask for a name without a certificate.
    pub strict_names: bool,
    /// The secret that encrypts session tickets.
    pub ticket_secret: Option<String>,
    /// The file with that secret, created if it is missing; `None` if the secret itself was given or no address needs one.
    pub ticket_secret_file: Option<PathBuf>,
}

/// The control server: where it listens, and its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// The addresses to listen on; empty when the control server is off. The Unix socket, which needs no token, comes first.
    pub listen: Vec<ControlAddress>,
    /// A second socket path, used if the app's directory was typed as a link: clients still find the server there after the link has changed.
    pub link: Option<PathBuf>,
    /// The address to which `stats` and `top` connect: the typed address, else the first of `listen`. `None` when the control server is off.
    pub ask: Option<ControlAddress>,
    /// The token that clients of TCP ports must send; `None`: the server generates one.
    pub token: Option<String>,
}

impl Control {
    /// The minimum length of a token for a port that other machines can reach.
    pub const LONG_ENOUGH: usize = 16;

    /// Checks that the control server may listen on these addresses.
    ///
    /// # Errors
    /// A port that other machines can reach has no token, or one that can be guessed. The message names the port and the remedy.
    pub fn safe_to_listen(&self) -> Result<(), String> {
        let Some(open) = self.listen.iter().find(|address| !address.is_local()) else { return Ok(()) };
        let least = Control::LONG_ENOUGH;
        let why = match &self.token {
            Some(token) if token.len() >= least => return Ok(()),
            Some(_) => format!("its control_token is shorter than {least} characters"),
            None => format!("there is no control_token of at least {least} characters"),
        };
        Err(format!(
            "control {open} can be reached from other machines, and {why}; set FIREBRICK_CONTROL_TOKEN \
             (`openssl rand -hex 16` makes one), or listen on 127.0.0.1"
        ))
    }
}

/// Handlers on the built-in mruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mruby {
    /// Heap size of each front thread's VM, in bytes.
    pub heap: usize,
    /// The routes, longest path first.
    pub routes: Vec<Route>,
}

/// The handlers of a path and all paths below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The path without a trailing slash; empty for the root.
    pub path: String,
    /// Handler files, absolute, in the order in which they run.
    pub handlers: Vec<PathBuf>,
    pub limits: HandlerLimits,
}

impl Route {
    /// Returns the handlers and the path as text: `limit.rb, auth.rb at /`. File names are relative to `dir`.
    pub fn describe(&self, dir: &Path) -> String {
        let names: Vec<String> = self
            .handlers
            .iter()
            .map(|file| file.strip_prefix(dir).unwrap_or(file).display().to_string())
            .collect();
        let path = if self.path.is_empty() { "/" } else { &self.path };
        format!("{} at {path}", names.join(", "))
    }
}

/// The static sites of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// The site of the directory, served alone or in front of the app.
    pub main: Option<Site>,
    pub hosts: Vec<HostSite>,
    pub pages: SitePages,
    pub cache: FileCache,
}

/// A static site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The directory to which relative paths of the rules belong.
    pub dir: PathBuf,
    /// The file with the site's rules.
    pub static_json: Option<PathBuf>,
    /// The directory of the files, if an option sets it.
    pub root: Option<PathBuf>,
    /// The detected directory of the files, unless the rules name one.
    pub found: Option<PathBuf>,
}

/// A site for one host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSite {
    /// The host name in lower case, without a port; a leading `*.` matches any subdomain.
    pub host: String,
    pub site: Site,
}

/// Files that are served without entering Ruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory, absolute; `None` when serving is off. It need not exist.
    pub public: Option<PathBuf>,
    /// Whether the server or the app decides which files are served.
    pub serve: ServePublic,
}

/// Returns the default pool of these settings, without fibers.
pub(crate) fn ordinary_pool(workers: u32, threads: Threads, limits: &Limits, timeouts: &Timeouts) -> Pool {
    Pool {
        name: Pool::DEFAULT.to_owned(),
        paths: Vec::new(),
        workers,
        threads,
        fibers: 0,
        fair: Fair::default(),
        max_queue: limits.max_queue,
        queue: timeouts.queue,
        worker: timeouts.worker,
    }
}

impl Settings {
    /// Returns the number of workers of the default pool at the start.
    pub fn workers_at_start(&self) -> u32 {
        self.shape
            .map_or(self.workers.min, |shape| self.workers.min.clamp(shape.workers.min, shape.workers.max))
    }

    /// Returns the default pool. With an objective its threads are the most that may be in use.
    pub fn default_pool(&self) -> Pool {
        // A worker can have as many threads as may be in use; the queue decides how many are.
        let threads = self.shape.filter(|_| self.fibers == 0).map_or(self.threads, |shape| Threads {
            min: self.threads.min.min(shape.start),
            max: shape.threads.max.max(shape.start),
        });
        let pool = ordinary_pool(self.workers_at_start(), threads, &self.limits, &self.timeouts);
        Pool { fibers: self.fibers, fair: self.queue.fair.clone(), ..pool }
    }

    /// Returns whether fibers serve any pool.
    pub fn has_fibers(&self) -> bool {
        self.fibers > 0 || self.pools.iter().any(|pool| pool.fibers > 0)
    }

    /// Returns by what the clients of a pool are told apart. The default pool is number 0, the others follow.
    pub fn fair_of(&self, pool: usize) -> &Fair {
        let other = pool.checked_sub(1).and_then(|at| self.pools.get(at));
        other.map_or(&self.queue.fair, |pool| &pool.fair)
    }

    /// Returns how long a request of a pool may wait, and how long its worker may take. The default pool is
    /// number 0, the others follow.
    pub fn timeouts_of(&self, pool: usize) -> (Duration, Option<Duration>) {
        match pool.checked_sub(1).and_then(|at| self.pools.get(at)) {
            Some(pool) => (pool.queue, pool.worker),
            None => (self.timeouts.queue, self.timeouts.worker),
        }
    }
}
