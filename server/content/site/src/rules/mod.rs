//! Parses `static.json` into [`Rules`], which give the steps for a path.
//!
//! Why: the file, proxy or redirect of a path is determined here without I/O, so it can be tested, cached,
//! explained (`firebrick explain`) and checked (`firebrick check`) without a server or a disk.
//!
//! Contract:
//! 1. No I/O. Environment variables and the site's files are reached through a closure and through [`FileTree`].
//! 2. [`Rules`] are immutable; a new text makes new rules.
//! 3. Paths passed in are decoded once, begin with `/`, and contain no `.`, `..`, empty segment or NUL. A
//!    directory's path may end with `/`.
//! 4. [`Rules::steps`] and [`Rules::headers`] depend only on the path, so their results can be cached by path.
//! 5. The order of steps is the specified one: files, clean URLs, proxies, redirects, routes, 404.

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
mod request_view;
mod source;
mod step;
#[cfg(test)]
mod tests;
mod variables;
mod walk;

pub use basic_auth::BasicAuth;
pub use explain::{Explanation, explain};
pub use lint::lint;
pub use proxy::{OriginScheme, ProxyOrigin, ProxyRule};
pub use request_view::{Redirect, RequestView};
pub use source::{RuleMistake, RuleNote};
pub use step::{FileAction, RuleKind, RuleRef, RuleStep, RuleSteps};
pub use walk::{FileKind, FileTree};

use std::collections::HashMap;
use std::sync::Arc;

use glob::Glob;
use location::Location;
use source::{Source, SourceSpan};

/// The rules of one site.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The text they were parsed from.
    source: Option<Arc<Source>>,
    /// The positions of the top-level keys.
    spans: KeySpans,
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
    /// Paths without a file show the index at the top, as apps of one page want it.
    spa: bool,
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
    /// Indexes of the redirects without wildcards, by path.
    exact_redirects: HashMap<String, usize>,
    proxies: Vec<ProxyRule>,
    /// Indexes into `proxies`, the longest prefix first.
    proxy_order: Vec<usize>,
    headers: Vec<HeaderRule>,
    merge_headers: bool,
}

/// The positions of top-level keys that are not lists; line 0 if absent.
#[derive(Debug, Clone, Default)]
struct KeySpans {
    root: SourceSpan,
    clean_urls: SourceSpan,
    trailing_slash: SourceSpan,
    https_only: SourceSpan,
    canonical_host: SourceSpan,
    error_page: SourceSpan,
}

/// The value of `trailing_slash`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TrailingSlash {
    /// Directories are redirected to their slash; nothing else changes.
    Keep,
    /// Clean URLs and directories end with a slash.
    Always,
    /// Only the root ends with a slash.
    Never,
}

#[derive(Debug, Clone)]
struct Route {
    key: String,
    glob: Glob,
    /// A path below the root; one that ends with `/` is not a file, so the route ends in 404.
    target: String,
    at: SourceSpan,
    target_at: SourceSpan,
}

#[derive(Debug, Clone)]
struct RedirectRule {
    key: String,
    /// `None`: the key is compared literally.
    glob: Option<Glob>,
    location: Location,
    status: u16,
    keep_query: bool,
    at: SourceSpan,
}

#[derive(Debug, Clone)]
struct HeaderRule {
    key: String,
    glob: Glob,
    /// Name, value, and position.
    fields: Vec<(String, String, SourceSpan)>,
    at: SourceSpan,
}

#[derive(Debug, Clone)]
pub struct Parsed {
    pub rules: Rules,
    /// Warnings about valid but probably unintended entries: unknown keys, unset variables, …
    pub notes: Vec<RuleNote>,
}

impl Rules {
    fn defaults() -> Rules {
        Rules {
            source: None,
            spans: KeySpans::default(),
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
            spa: false,
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

    /// Adds settings of the server: listings of folders, and the index at the top for paths without a file.
    pub fn show_more(&mut self, browse: bool, spa: bool) {
        self.directory_listing |= browse;
        self.spa |= spa;
    }

    /// Returns the rules of a site without `static.json` and without `BASIC_AUTH_*`: clean URLs, otherwise
    /// the defaults.
    pub fn without_file() -> Rules {
        Rules::from_variables(&|_| None).rules
    }

    /// Returns the rules of a site without `static.json`; `BASIC_AUTH_USERNAME` and the like still apply.
    pub fn from_variables(variables: &dyn Fn(&str) -> Option<String>) -> Parsed {
        parse::without_file(variables)
    }

    /// Parses `static.json`. `name` is used in messages; `variables` looks up environment variables.
    ///
    /// # Errors
    /// All mistakes, not only the first.
    pub fn parse(
        name: &str,
        text: &str,
        variables: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Parsed, Vec<RuleMistake>> {
        parse::parse(Source::new(name, text), variables)
    }

    /// The file's name in messages; empty without a file.
    pub fn name(&self) -> &str {
        self.source.as_ref().map_or("", |source| &source.name)
    }

    /// `root` with variables substituted; `None` if absent.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// Returns whether `"compat": "heroku"` is set.
    pub fn compat(&self) -> bool {
        self.compat
    }

    pub fn encoding(&self) -> &str {
        &self.encoding
    }

    /// `error_page`: a path below the root that begins with `/`; `None` if absent.
    pub fn error_page(&self) -> Option<&str> {
        self.error_page.as_deref()
    }

    /// `index`: names to look for in a directory, in order.
    pub fn index(&self) -> &[String] {
        &self.index
    }

    pub fn directory_listing(&self) -> bool {
        self.directory_listing
    }

    pub fn fingerprinted_assets(&self) -> bool {
        self.fingerprinted_assets
    }

    /// Returns the `Cache-Control` of a successful response (200, 206, 304) with the file `path`, if
    /// `fingerprinted_assets` is on and the file's name contains a content hash. A `Cache-Control` of
    /// [`Rules::headers`] takes precedence.
    pub fn cache_control(&self, path: &str) -> Option<&'static str> {
        (self.fingerprinted_assets && fingerprint::has(path)).then_some("public, max-age=31536000, immutable")
    }

    pub fn compress(&self) -> bool {
        self.compress
    }

    pub fn precompressed(&self) -> bool {
        self.precompressed
    }

    /// `logging.access`; if absent, on in compat mode (as in the buildpack), else the server's own option applies.
    pub fn access_log(&self) -> Option<bool> {
        self.access_log.or(self.compat.then_some(true))
    }

    /// `logging.error`: one of debug, info, notice, warn, error, crit, alert, emerg; `debug` if `STATIC_DEBUG` is set.
    pub fn error_level(&self) -> &str {
        &self.error_level
    }

    /// `port`; `None` if absent (then `PORT` applies).
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// `worker_connections`, else `WORKER_CONNECTIONS`.
    pub fn worker_connections(&self) -> Option<u32> {
        self.worker_connections
    }

    /// The users that are admitted; `None` if the site is public.
    pub fn basic_auth(&self) -> Option<&BasicAuth> {
        self.basic_auth.as_ref()
    }

    /// `proxies` in file order; [`RuleStep::Proxy`] refers to them by index.
    pub fn proxies(&self) -> &[ProxyRule] {
        &self.proxies
    }

    /// The host that all others are redirected to, and its line.
    pub fn canonical_host(&self) -> Option<(&str, u32)> {
        self.canonical_host.as_deref().map(|host| (host, self.spans.canonical_host.line))
    }

    /// Returns whether [`Rules::gate`] can redirect at all.
    pub fn has_gate(&self) -> bool {
        self.https_only || self.canonical_host.is_some()
    }

    /// Returns the redirect of `https_only` or `canonical_host`, if the request needs one.
    pub fn gate(&self, request: &RequestView<'_>) -> Option<Redirect> {
        gate::gate(self, request).map(|(redirect, _)| redirect)
    }

    /// Returns the steps for `path`, in order.
    pub fn steps(&self, path: &str) -> RuleSteps {
        step::steps(self, path)
    }

    /// Returns the header fields of every response for `path` (the path of the request, before any rewrite).
    pub fn headers(&self, path: &str) -> Vec<(&str, &str)> {
        self.header_lines(path).into_iter().map(|(name, value, _)| (name, value)).collect()
    }

    /// Like [`Rules::headers`], with the rule of each field.
    fn header_lines(&self, path: &str) -> Vec<(&str, &str, &HeaderRule)> {
        let matching = self.headers.iter().rev().filter(|rule| rule.glob.matches(path));
        let mut fields: Vec<(&str, &str, &HeaderRule)> = Vec::new();
        for rule in matching.take(if self.merge_headers { usize::MAX } else { 1 }) {
            for (name, value, _) in &rule.fields {
                // The rules are iterated from last to first; the first one to set a name wins.
                if !fields.iter().any(|(known, ..)| known.eq_ignore_ascii_case(name)) {
                    fields.push((name, value, rule));
                }
            }
        }
        fields
    }

    /// Returns the redirect of [`RuleStep::Redirect`] for this request.
    ///
    /// # Panics
    /// If `id` is not from these rules.
    pub fn redirect(&self, id: usize, captures: &[String], request: &RequestView<'_>) -> Redirect {
        let rule = &self.redirects[id];
        let mut location = rule.location.evaluate(captures, request);
        if rule.keep_query {
            gate::add_query(&mut location, request.query);
        }
        if self.compat && location.first() == Some(&b'/') {
            // nginx makes a path absolute, and `port_in_redirect off` omits the port.
            location.splice(0..0, [&b"http://"[..], &location::host(request.host)].concat());
        }
        Redirect { status: rule.status, location }
    }

    /// Returns the path and query to request from the origin of proxy `id`. The path is the client's, byte
    /// for byte, without the prefix.
    ///
    /// # Panics
    /// If `id` is not from these rules.
    pub fn upstream_target(&self, id: usize, request: &RequestView<'_>) -> Vec<u8> {
        self.proxies[id].target(request, self.compat)
    }

    /// Maps a `Location` of the origin of proxy `id` back below the prefix. Returns `None` if it stays unchanged.
    ///
    /// # Panics
    /// If `id` is not from these rules.
    pub fn location_back(&self, id: usize, location: &[u8]) -> Option<Vec<u8>> {
        self.proxies[id].location_back(location)
    }
}
