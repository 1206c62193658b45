//! The checked stage: plain typed fields that the rest of the program reads.
//!
//! Contract: a `Settings` that exists is valid. Sizes are bytes; paths are absolute; "0 = off" of the written
//! form has become `None`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::value::bind::Bind;
use crate::value::control::ControlAddress;
use crate::value::log::{AccessLog, ErrorLog, LogFormat};
use crate::value::proxies::TrustedProxies;
use crate::value::server_timing::ServerTiming;
use crate::value::threads::Threads;

/// Everything a server run needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The application's directory: absolute, canonical when it exists. Workers run in it.
    pub dir: PathBuf,
    /// The rackup file, absolute, when there is one.
    pub app: Option<PathBuf>,
    /// The configuration file that was read, absolute.
    pub config: Option<PathBuf>,
    /// Addresses to listen on, in order; never empty, no address twice.
    pub binds: Vec<Bind>,
    /// What the app is told as `RACK_ENV`.
    pub environment: String,
    /// Worker processes, `auto` already resolved; at least 1.
    pub workers: u32,
    /// Threads of each worker.
    pub threads: Threads,
    /// Event-loop threads of the front, `auto` already resolved; at least 1.
    pub front_threads: u32,
    /// What a client may send and what may be held for it.
    pub limits: Limits,
    /// How long anybody may take.
    pub timeouts: Timeouts,
    /// How the app is run and what it is told.
    pub rack: Rack,
    /// Files that are served without entering Ruby.
    pub files: Files,
    /// Static sites.
    pub sites: Sites,
    /// Handlers inside the server.
    pub mruby: Mruby,
    /// Where lines go.
    pub logs: Logs,
    /// Where the server is asked what it does.
    pub control: Control,
    /// Who is told where the time of a request went.
    pub server_timing: ServerTiming,
    /// File that holds the front's process id while it runs.
    pub pidfile: Option<PathBuf>,
    /// Shown in process titles; the directory's name by default.
    pub tag: String,
    /// Where spooled bodies live (unlinked at once).
    pub temp_dir: PathBuf,
    /// No banner.
    pub quiet: bool,
}

impl Settings {
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

/// Where a running server is asked what it does, and who may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Where the server answers; empty when it is off. The Unix socket that needs no token comes first.
    pub listen: Vec<ControlAddress>,
    /// Whom `stats` and `top` ask: what was typed, or else the first of `listen`. `None` when it is off.
    pub ask: Option<ControlAddress>,
    /// What has to be shown at TCP ports; `None` when nobody has said, and the server makes one up.
    pub token: Option<String>,
}

impl Control {
    /// Characters that a token needs where strangers may try.
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
             any directory is served as a static site with --root DIR"
        )
    }
}

impl std::error::Error for NothingToServe {}

/// Handlers on the mruby inside the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mruby {
    /// Heap of the VM of each front thread, bytes.
    pub heap: usize,
    /// Who answers where; longer paths first.
    pub routes: Vec<Route>,
}

/// Handlers below a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Without the slash at its end: the root is empty.
    pub path: String,
    /// Handler files, absolute, in the order in which they are asked.
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

/// What a request may take in a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandlerLimits {
    /// Heap of one request, bytes.
    pub request_heap: usize,
    /// Computing without waiting; `None` is unlimited.
    pub step_time: Option<Duration>,
    /// To the head of the response; `None` is unlimited.
    pub deadline: Option<Duration>,
    /// Requests and tasks in the VM at a time.
    pub max_tasks: usize,
    /// Largest request body, bytes.
    pub max_body: usize,
    /// Whether `x-reproxy-url` may name another server.
    pub reproxy: bool,
}

/// The static sites of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sites {
    /// The site of the directory: alone, or in front of the app.
    pub main: Option<Site>,
    /// Sites that answer for a host name.
    pub hosts: Vec<HostSite>,
    /// Read rules again when they change.
    pub watch: bool,
    /// Files that a front thread keeps open.
    pub open_files: usize,
    /// Bytes of small files that a front thread keeps.
    pub cache_memory: u64,
}

/// A static site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The directory that relative paths of the rules begin in.
    pub dir: PathBuf,
    /// The rules' file.
    pub static_json: Option<PathBuf>,
    /// Where the files are, if somebody said so.
    pub root: Option<PathBuf>,
    /// Where they seem to be, for when the rules do not say.
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

/// Bounds on what is accepted from a client and kept for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Request line and header fields together, in bytes (431 beyond).
    pub max_header_bytes: usize,
    /// Number of header fields (431 beyond).
    pub max_headers: usize,
    /// Request target, in bytes (414 beyond); less than `max_header_bytes`.
    pub max_uri: usize,
    /// Request body, in bytes (413 beyond); `None` is unlimited.
    pub max_body: Option<u64>,
    /// Connections open at a time (503 beyond).
    pub max_connections: usize,
    /// Requests answered on one connection before it is closed; `None` is unlimited.
    pub max_requests_per_connection: Option<u64>,
    /// Requests waiting for a worker (503 beyond).
    pub max_queue: usize,
    /// Request bodies above this many bytes are spooled to a file.
    pub body_memory: usize,
    /// Bytes of one response kept in memory for a slow client before spooling.
    pub response_memory: usize,
    /// Bytes of one response spooled before the worker is made to wait.
    pub response_spool: u64,
    /// Status and header fields that an app may answer, in bytes (502 beyond).
    pub max_response_header_bytes: usize,
}

/// Bounds on waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// From the first byte of a request to the end of its head, in total (408).
    pub header_timeout: Duration,
    /// Least average speed of a request body in bytes per second (408); `None` is off.
    pub body_min_rate: Option<u64>,
    /// How long a body may be slower than `body_min_rate` before that counts.
    pub body_grace: Duration,
    /// Idle time between requests on one connection; zero turns keep-alive off.
    pub keep_alive_timeout: Duration,
    /// How long a client may take nothing of its response.
    pub send_timeout: Duration,
    /// How long a request may wait for a worker (503).
    pub queue_timeout: Duration,
    /// How long one request may keep a worker thread before the worker is ended; `None` is off.
    pub worker_timeout: Option<Duration>,
    /// How long the template may take to boot the app, and a worker to report ready.
    pub worker_boot_timeout: Duration,
    /// How long a drain may take before what is left is cut.
    pub shutdown_timeout: Duration,
}

/// How the app is run and what it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rack {
    /// The `ruby` to run: a name looked up in `PATH`, or an absolute path.
    pub ruby: PathBuf,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are believed.
    pub trusted_proxies: TrustedProxies,
    /// Whether header names with `_` reach the app (they can spoof others).
    pub allow_underscore_headers: bool,
    /// Whether `rack.early_hints` is offered.
    pub early_hints: bool,
    /// Paths requested in the template before workers are forked.
    pub warmup: Vec<String>,
    /// Whether the template collects and compacts its heap before it forks.
    pub compact: bool,
    /// Header that carries the request id in and out; `None` is off.
    pub request_id_header: Option<String>,
}

/// Files that are served without entering Ruby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory, absolute; `None` when serving is off. It need not exist.
    pub public: Option<PathBuf>,
}

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logs {
    /// Where a line per request goes.
    pub access_log: AccessLog,
    /// Shape of that line.
    pub log_format: LogFormat,
    /// Where errors, warnings and notices go.
    pub error_log: ErrorLog,
}
