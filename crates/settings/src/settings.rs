//! The checked stage: plain typed fields that the rest of the program reads.
//!
//! Contract: a `Settings` that exists is valid. Sizes are bytes; paths are absolute; "0 = off" of the written
//! form has become `None`.
//!
//! The structs of options that stand for themselves ([`Limits`], [`Timeouts`] and so on) are generated from the table.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::puma::PumaFile;
pub use crate::table::app::Process;
pub use crate::table::health::Health;
pub use crate::table::limits::Limits;
pub use crate::table::logs::Logs;
pub use crate::table::mruby::HandlerLimits;
pub use crate::table::rack::Rack;
pub use crate::table::reload::Reload;
pub use crate::table::shared::Shared;
pub use crate::table::site::FileCache;
pub use crate::table::timeouts::Timeouts;
pub use crate::table::tls::Https;
pub use crate::table::traces::Traces;
use crate::value::acme::Acme;
use crate::value::bind::Bind;
use crate::value::control::ControlAddress;
use crate::value::public::ServePublic;
use crate::value::rate_limit::RateLimit;
use crate::value::sendfile::SendfileRule;
use crate::value::service::Service;
use crate::value::threads::Threads;
use crate::value::tls::{CertificateFiles, TlsVersion, Verify};
use crate::value::workers::Workers;

/// The environment of programmers, in which other defaults count.
pub(crate) const DEVELOPMENT: &str = "development";

/// Everything that a server run depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The application's directory: absolute, canonical when it exists. Workers run in it.
    pub dir: PathBuf,
    /// The same as it was typed: a symbolic link such as `/srv/app/current` is still one.
    pub typed_dir: PathBuf,
    /// The rackup file, absolute, when there is one.
    pub app: Option<PathBuf>,
    /// The configuration file that was read, absolute.
    pub config: Option<PathBuf>,
    /// Puma's configuration file, which each template evaluates before it loads the app.
    pub puma_rb: Option<PumaFile>,
    /// Where the server keeps what must outlive it, absolute. It need not exist.
    pub state_dir: PathBuf,
    /// Shown in process titles; the directory's name by default.
    pub tag: String,
    /// How the server runs as a process.
    pub process: Process,
    /// Addresses to listen on, in order; never empty, no address twice.
    pub binds: Vec<Bind>,
    /// Encryption.
    pub tls: Tls,
    /// Redirects to https and to the right host.
    pub https: Https,
    /// Certificates that are obtained.
    pub acme: Acme,
    /// Worker processes, `auto` already resolved. In development no range.
    pub workers: Workers,
    /// With `workers = "auto"`: bytes of memory that each is assumed to take. Other limits of CPU and memory then mean another number.
    pub workers_auto: Option<u64>,
    /// Threads of each worker.
    pub threads: Threads,
    /// Fibers of each thread; 0: threads serve one request at a time.
    pub fibers: u32,
    /// Prefixes of paths whose requests fibers serve, without the slash at their end; empty: of all.
    pub fiber_paths: Vec<String>,
    /// Event-loop threads of the front, `auto` already resolved; at least 1.
    pub front_threads: u32,
    /// Bounds on what is accepted from a client and kept for it.
    pub limits: Limits,
    /// Bounds on waiting.
    pub timeouts: Timeouts,
    /// How Ruby and the app are run.
    pub rack: Rack,
    /// How `firebrick reload` replaces the workers.
    pub reload: Reload,
    /// Files that are served without entering Ruby.
    pub files: Files,
    /// Static sites.
    pub sites: Sites,
    /// Handlers inside the server.
    pub mruby: Mruby,
    /// What is logged, and where.
    pub logs: Logs,
    /// Where spans of distributed traces go.
    pub traces: Traces,
    /// The control server.
    pub control: Control,
    /// Paths of the app's addresses that the server answers itself.
    pub health: Health,
    /// Folders that `X-Accel-Redirect` of the app means, the longest prefix first.
    pub sendfile: Vec<SendfileRule>,
    /// Processes beside the workers, in the order of the file.
    pub services: Vec<Service>,
    /// How many requests are admitted, in the order of the file.
    pub rate_limits: Vec<RateLimit>,
    /// What several servers share.
    pub shared: Shared,
}

impl Settings {
    /// Whether an app runs in the environment of programmers. A site without an app has no environment.
    pub fn is_development(&self) -> bool {
        self.app.is_some() && self.process.environment == DEVELOPMENT
    }

    /// The paths that fibers serve, for people: `/events, /cable`. `None`: all.
    pub fn fiber_paths_text(&self) -> Option<String> {
        let shown = |path: &String| if path.is_empty() { "/".to_owned() } else { path.clone() };
        let all: Vec<String> = self.fiber_paths.iter().map(shown).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    /// What serves the requests of a worker that has so many fibers, for people: `1:5 threads x 100 fibers`.
    pub fn seats_text(&self, fibers: u32) -> String {
        let threads = self.threads;
        match (fibers, self.fiber_paths_text()) {
            (0, _) => format!("{threads} threads"),
            (fibers, None) => format!("{threads} threads x {fibers} fibers"),
            (fibers, Some(paths)) => format!("({threads} threads + {fibers} fibers for {paths})"),
        }
    }

    /// Where relative paths of files and folders begin: in the release of an app; without an app in the directory as it was typed, which
    /// may lead elsewhere later.
    pub fn base(&self) -> &Path {
        if self.app.is_some() || self.puma_rb.is_some() { &self.dir } else { &self.typed_dir }
    }

    /// Whether there is anything to serve.
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
    /// Whether the authority of development signs for the names of this machine.
    pub development: bool,
    /// Certificates by name; the first is the default.
    pub certificates: Vec<CertificateFiles>,
    /// The authorities of client certificates, for addresses that name none.
    pub client_ca: Option<PathBuf>,
    /// Whether clients show a certificate, for addresses that do not say.
    pub verify: Verify,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// Whether clients that ask for a name that no certificate has are refused.
    pub strict_names: bool,
    /// What session tickets are encrypted with.
    pub ticket_secret: Option<String>,
    /// The file with that secret, made when it is not there; `None` when the secret itself was given, or no address needs it.
    pub ticket_secret_file: Option<PathBuf>,
}

/// The control server: where it listens, and its token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Where it listens; empty when it is off. The Unix socket, which needs no token, comes first.
    pub listen: Vec<ControlAddress>,
    /// Where it listens, too, if the app's directory was typed as a link: clients find it there when the link has been changed.
    pub link: Option<PathBuf>,
    /// What `stats` and `top` connect to: the address that was typed, or else the first of `listen`. `None` when it is off.
    pub ask: Option<ControlAddress>,
    /// What clients of TCP ports must send; `None` when none is set, and the server generates one.
    pub token: Option<String>,
}

impl Control {
    /// Fewest characters of a token that other machines can try to guess.
    pub const LONG_ENOUGH: usize = 16;

    /// Whether a server may listen like this.
    ///
    /// # Errors
    /// A port that other machines reach has no token of its own, or one that can be guessed; says which and what to do.
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

/// There is neither an app nor a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NothingToServe {
    /// Where it was looked for.
    pub dir: PathBuf,
}

impl fmt::Display for NothingToServe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dir = self.dir.display();
        write!(
            f,
            "there is no config.ru in {dir}, and no static site (static.json, _site/, public_html/, dist/index.html, \
             build/index.html, index.html); go to the app's directory or name it: firebrick DIR; \
             any directory is served as a static site with --root DIR, and one of pages by its name alone"
        )
    }
}

impl std::error::Error for NothingToServe {}

/// Handlers on the built-in mruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mruby {
    /// Heap of the VM of each front thread, bytes.
    pub heap: usize,
    /// Which handlers serve which path; longer paths first.
    pub routes: Vec<Route>,
}

/// Handlers below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Without the slash at its end: the root is empty.
    pub path: String,
    /// Handler files, absolute, in the order in which they run.
    pub handlers: Vec<PathBuf>,
    /// What a request may take there.
    pub limits: HandlerLimits,
}

impl Route {
    /// The handlers and the path, for people: `limit.rb, auth.rb at /`. Files are named from `dir` on.
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
    /// The site of the directory: alone, or in front of the app.
    pub main: Option<Site>,
    /// Sites of host names.
    pub hosts: Vec<HostSite>,
    /// How their files are kept and watched.
    pub cache: FileCache,
}

/// A static site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The directory that relative paths of the rules begin in.
    pub dir: PathBuf,
    /// The rules' file.
    pub static_json: Option<PathBuf>,
    /// Where the files are, if an option says so.
    pub root: Option<PathBuf>,
    /// Where they were found, unless the rules name a directory.
    pub found: Option<PathBuf>,
}

/// A site for requests to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSite {
    /// The host name in lower case, without port; `*.` in front stands for any name below.
    pub host: String,
    /// The site.
    pub site: Site,
}

/// Files that are served without entering Ruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory, absolute; `None` when serving is off. It need not exist.
    pub public: Option<PathBuf>,
    /// Who decides whether its files are served.
    pub serve: ServePublic,
}
