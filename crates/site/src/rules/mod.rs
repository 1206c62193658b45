//! What `static.json` says: text becomes [`Rules`], and rules answer questions about a path.
//!
//! Why: which file, proxy or redirect a path leads to is decided here in pure code, so that it can be tested, cached, explained
//! (`firebrick explain`) and checked (`firebrick check`) without a server and without a disk.
//!
//! Contract:
//! 1. Nothing here does I/O. Variables and the files of a site are asked for through a closure and through [`Tree`].
//! 2. [`Rules`] never change; a new text makes new rules.
//! 3. Paths given in are decoded once, begin with `/`, and hold no `.`, `..`, empty segment or NUL. A directory's path may end with `/`.
//! 4. [`Rules::steps`] and [`Rules::headers`] depend on the path alone: their answers can be cached by path.
//! 5. The order of steps is the specification's: files, clean URLs, proxies, redirects, routes, nothing.

mod asked;
mod basic_auth;
mod proxy;
mod step;

pub use asked::{Asked, Redirect};
pub use basic_auth::BasicAuth;
pub use proxy::{Balance, Health, HostPolicy, Origin, OriginScheme, ProxyRule};
pub use step::{Answer, Because, Rule, Step, Steps};
mod explain;
mod lint;
mod source;

pub use explain::{Explanation, Kind, Tree, explain};
pub use lint::lint;
pub use source::{Mistake, Note};

/// The rules of one site.
#[derive(Debug, Clone)]
pub struct Rules {
    name: String,
    root: Option<String>,
    compat: bool,
    encoding: String,
    error_page: Option<String>,
    index: Vec<String>,
    directory_listing: bool,
    fingerprinted_assets: bool,
    compress: bool,
    precompressed: bool,
    access_log: bool,
    error_level: String,
    port: Option<u16>,
    worker_connections: Option<u32>,
    basic_auth: Option<BasicAuth>,
    proxies: Vec<ProxyRule>,
}

/// What became of a text.
#[derive(Debug, Clone)]
pub struct Parsed {
    /// The rules.
    pub rules: Rules,
    /// What is allowed but probably not meant: unknown keys, unset variables, …
    pub notes: Vec<Note>,
}

impl Rules {
    /// The rules of a site without `static.json` and without `BASIC_AUTH_*`: clean URLs, all else as by default.
    pub fn without_file() -> Rules {
        Rules::from_variables(&|_| None).rules
    }

    /// The rules of a site without `static.json`; `BASIC_AUTH_USERNAME` and the like hold all the same.
    pub fn from_variables(variables: &dyn Fn(&str) -> Option<String>) -> Parsed {
        let _ = variables;
        unimplemented!()
    }

    /// Reads `static.json`. `name` is what messages call it; `variables` is asked for environment variables.
    ///
    /// # Errors
    /// Everything that is wrong, in the order of the text.
    pub fn parse(
        name: &str,
        text: &str,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, Vec<Mistake>> {
        let _ = (name, text, variables);
        unimplemented!()
    }

    /// What messages call the file; empty without one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `root`, its variables put in; `None` when it is not written.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// Whether `"compat": "heroku"` holds.
    pub fn compat(&self) -> bool {
        self.compat
    }

    /// `encoding`.
    pub fn encoding(&self) -> &str {
        &self.encoding
    }

    /// `error_page`: a path below the root, beginning with `/`; `None` when it is not written.
    pub fn error_page(&self) -> Option<&str> {
        self.error_page.as_deref()
    }

    /// `index`: names to look for in a directory, in order.
    pub fn index(&self) -> &[String] {
        &self.index
    }

    /// `directory_listing`
    pub fn directory_listing(&self) -> bool {
        self.directory_listing
    }

    /// `fingerprinted_assets`
    pub fn fingerprinted_assets(&self) -> bool {
        self.fingerprinted_assets
    }

    /// The `Cache-Control` for a successful answer (200, 206, 304) from the file `path`, if `fingerprinted_assets` is on and its name
    /// holds a content hash. A `Cache-Control` of [`Rules::headers`] goes before it.
    pub fn cache_control(&self, path: &str) -> Option<&'static str> {
        let _ = path;
        unimplemented!()
    }

    /// `compress`
    pub fn compress(&self) -> bool {
        self.compress
    }

    /// `precompressed`
    pub fn precompressed(&self) -> bool {
        self.precompressed
    }

    /// `logging.access`
    pub fn access_log(&self) -> bool {
        self.access_log
    }

    /// `logging.error`: one of debug, info, notice, warn, error, crit, alert, emerg; `debug` when `STATIC_DEBUG` is set.
    pub fn error_level(&self) -> &str {
        &self.error_level
    }

    /// `port`; `None` when it is not written (then `PORT` counts).
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// `worker_connections`, else `WORKER_CONNECTIONS`.
    pub fn worker_connections(&self) -> Option<u32> {
        self.worker_connections
    }

    /// Who may come in; `None` when everybody may.
    pub fn basic_auth(&self) -> Option<&BasicAuth> {
        self.basic_auth.as_ref()
    }

    /// `proxies` in file order; [`Step::Proxy`] names them by index.
    pub fn proxies(&self) -> &[ProxyRule] {
        &self.proxies
    }

    /// What comes before everything else: `https_only`, then `canonical_host`.
    pub fn gate(&self, asked: &Asked<'_>) -> Option<Redirect> {
        let _ = asked;
        unimplemented!()
    }

    /// What may answer `path`, in order.
    pub fn steps(&self, path: &str) -> Steps {
        let _ = path;
        unimplemented!()
    }

    /// The header fields of every answer to `path` (as asked for, before any rewrite).
    pub fn headers(&self, path: &str) -> Vec<(&str, &str)> {
        let _ = path;
        unimplemented!()
    }

    /// The redirect of [`Step::Redirect`] for this request.
    pub fn redirect(&self, id: usize, captures: &[String], asked: &Asked<'_>) -> Redirect {
        let _ = (id, captures, asked);
        unimplemented!()
    }

    /// Path and query to ask the origin of proxy `id` for.
    pub fn upstream_target(&self, id: usize, asked: &Asked<'_>) -> Vec<u8> {
        let _ = (id, asked);
        unimplemented!()
    }

    /// A `Location` of the origin of proxy `id`, mapped back below the prefix; `None`: leave it as it is.
    pub fn location_back(&self, id: usize, location: &[u8]) -> Option<Vec<u8>> {
        let _ = (id, location);
        unimplemented!()
    }
}
