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
mod escape;
mod explain;
mod fingerprint;
mod gate;
mod glob;
mod json;
mod lint;
mod lists;
mod location;
mod nearest;
mod parse;
mod proxy;
mod proxy_options;
mod read;
mod source;
mod step;
#[cfg(test)]
mod tests;
mod variables;
mod walk;

pub use asked::{Asked, Redirect};
pub use basic_auth::BasicAuth;
pub use explain::{Explanation, Kind, Tree, explain};
pub use lint::lint;
pub use proxy::{Balance, Health, HostPolicy, Origin, OriginScheme, ProxyRule};
pub use source::{Mistake, Note};
pub use step::{Answer, Because, Rule, Step, Steps};

use std::collections::HashMap;
use std::sync::Arc;

use glob::Glob;
use location::Location;
use source::{Place, Source};

/// The rules of one site.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The text they come from.
    source: Option<Arc<Source>>,
    /// Where single keys stand.
    places: Places,
    root: Option<String>,
    compat: bool,
    clean_urls: bool,
    https_only: bool,
    canonical_host: Option<String>,
    encoding: String,
    error_page: Option<String>,
    index: Vec<String>,
    trailing_slash: TrailingSlash,
    directory_listing: bool,
    fingerprinted_assets: bool,
    compress: bool,
    precompressed: bool,
    access_log: Option<bool>,
    error_level: String,
    port: Option<u16>,
    worker_connections: Option<u32>,
    basic_auth: Option<BasicAuth>,
    routes: Vec<Route>,
    redirects: Vec<RedirectRule>,
    /// Indexes of those without wildcards, by their path.
    exact_redirects: HashMap<String, usize>,
    proxies: Vec<ProxyRule>,
    /// Indexes of `proxies`, the longest prefix first.
    proxy_order: Vec<usize>,
    headers: Vec<HeaderRule>,
    merge_headers: bool,
}

/// Where keys stand that are no lists; line 0 when they are not written.
#[derive(Debug, Clone, Default)]
struct Places {
    root: Place,
    clean_urls: Place,
    trailing_slash: Place,
    https_only: Place,
    canonical_host: Place,
    error_page: Place,
}

/// `trailing_slash`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrailingSlash {
    /// Directories get their slash, nothing else changes.
    Keep,
    /// Clean URLs and directories end with a slash.
    Always,
    /// Nothing but the root ends with a slash.
    Never,
}

/// An entry of `routes`.
#[derive(Debug, Clone)]
struct Route {
    key: String,
    glob: Glob,
    /// A path below the root; one that ends with `/` is no file, so the route ends in 404.
    target: String,
    at: Place,
    target_at: Place,
}

/// An entry of `redirects`.
#[derive(Debug, Clone)]
struct RedirectRule {
    key: String,
    /// `None`: the key is compared as it is.
    glob: Option<Glob>,
    location: Location,
    status: u16,
    keep_query: bool,
    at: Place,
}

/// An entry of `headers`.
#[derive(Debug, Clone)]
struct HeaderRule {
    key: String,
    glob: Glob,
    /// Name, value, and where they stand.
    fields: Vec<(String, String, Place)>,
    at: Place,
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
    fn defaults() -> Rules {
        Rules {
            source: None,
            places: Places::default(),
            root: None,
            compat: false,
            clean_urls: false,
            https_only: false,
            canonical_host: None,
            encoding: "UTF-8".to_owned(),
            error_page: None,
            index: vec!["index.html".to_owned()],
            trailing_slash: TrailingSlash::Keep,
            directory_listing: false,
            fingerprinted_assets: false,
            compress: true,
            precompressed: true,
            access_log: None,
            error_level: "error".to_owned(),
            port: None,
            worker_connections: None,
            basic_auth: None,
            routes: Vec::new(),
            redirects: Vec::new(),
            exact_redirects: HashMap::new(),
            proxies: Vec::new(),
            proxy_order: Vec::new(),
            headers: Vec::new(),
            merge_headers: false,
        }
    }

    /// The rules of a site without `static.json` and without `BASIC_AUTH_*`: clean URLs, all else as by default.
    pub fn without_file() -> Rules {
        Rules::from_variables(&|_| None).rules
    }

    /// The rules of a site without `static.json`; `BASIC_AUTH_USERNAME` and the like hold all the same.
    pub fn from_variables(variables: &dyn Fn(&str) -> Option<String>) -> Parsed {
        parse::without_file(variables)
    }

    /// Reads `static.json`. `name` is what messages call it; `variables` is asked for environment variables.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first mistake.
    pub fn parse(
        name: &str,
        text: &str,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, Vec<Mistake>> {
        parse::parse(Source::new(name, text), variables)
    }

    /// What messages call the file; empty without one.
    pub fn name(&self) -> &str {
        self.source.as_ref().map_or("", |source| &source.name)
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
        (self.fingerprinted_assets && fingerprint::has(path)).then_some("public, max-age=31536000, immutable")
    }

    /// `compress`
    pub fn compress(&self) -> bool {
        self.compress
    }

    /// `precompressed`
    pub fn precompressed(&self) -> bool {
        self.precompressed
    }

    /// `logging.access`; without it there is a log in the buildpack, and here what the server's own option says.
    pub fn access_log(&self) -> Option<bool> {
        self.access_log.or(self.compat.then_some(true))
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

    /// Whether [`Rules::gate`] ever refuses anything.
    pub fn has_gate(&self) -> bool {
        self.https_only || self.canonical_host.is_some()
    }

    /// What comes before everything else: `https_only`, then `canonical_host`.
    pub fn gate(&self, asked: &Asked<'_>) -> Option<Redirect> {
        gate::gate(self, asked).map(|(redirect, _)| redirect)
    }

    /// What may answer `path`, in order.
    pub fn steps(&self, path: &str) -> Steps {
        step::steps(self, path)
    }

    /// The header fields of every answer to `path` (as asked for, before any rewrite).
    pub fn headers(&self, path: &str) -> Vec<(&str, &str)> {
        self.header_lines(path).into_iter().map(|(name, value, _)| (name, value)).collect()
    }

    /// As [`Rules::headers`], with the rule that each is from.
    fn header_lines(&self, path: &str) -> Vec<(&str, &str, &HeaderRule)> {
        let matching = self.headers.iter().rev().filter(|rule| rule.glob.matches(path));
        let mut fields: Vec<(&str, &str, &HeaderRule)> = Vec::new();
        for rule in matching.take(if self.merge_headers { usize::MAX } else { 1 }) {
            for (name, value, _) in &rule.fields {
                // Rules come last to first: who has spoken already wins.
                if !fields.iter().any(|(known, ..)| known.eq_ignore_ascii_case(name)) {
                    fields.push((name, value, rule));
                }
            }
        }
        fields
    }

    /// The redirect of [`Step::Redirect`] for this request.
    ///
    /// # Panics
    /// When `id` is not from these rules.
    pub fn redirect(&self, id: usize, captures: &[String], asked: &Asked<'_>) -> Redirect {
        let rule = &self.redirects[id];
        let mut location = rule.location.evaluate(captures, asked);
        if rule.keep_query {
            gate::add_query(&mut location, asked.query);
        }
        if self.compat && location.first() == Some(&b'/') {
            // nginx makes a path absolute, and `port_in_redirect off` leaves the port out.
            location.splice(0..0, [&b"http://"[..], &location::host(asked.host)].concat());
        }
        Redirect { status: rule.status, location }
    }

    /// Path and query to ask the origin of proxy `id` for. The path is the client's own, byte for byte, without the prefix.
    ///
    /// # Panics
    /// When `id` is not from these rules.
    pub fn upstream_target(&self, id: usize, asked: &Asked<'_>) -> Vec<u8> {
        self.proxies[id].target(asked, self.compat)
    }

    /// A `Location` of the origin of proxy `id`, mapped back below the prefix; `None`: leave it as it is.
    ///
    /// # Panics
    /// When `id` is not from these rules.
    pub fn location_back(&self, id: usize, location: &[u8]) -> Option<Vec<u8>> {
        self.proxies[id].location_back(location)
    }
}
