//! Describes how one middleware of an app sends files: for which paths and clients, with which fields. No I/O.

use super::path::FilePath;
use crate::files::path::has_hidden_name;
use handler::Request;
use representation::coding::Coding;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Types by extension, as in the app's Rack.
pub(crate) type Types = HashMap<Box<str>, Box<str>>;

/// A directory, and how to send its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileRule {
    /// The name of the middleware.
    pub(crate) by: String,
    pub(crate) root: PathBuf,
    /// An earlier middleware that may refuse requests.
    pub(crate) behind: Option<String>,
    /// Path prefixes that the rule applies to. If `exact` is empty too, the rule applies to all paths.
    pub(crate) prefixes: Vec<String>,
    /// Single paths, and their files.
    pub(crate) exact: Vec<(String, String)>,
    /// The file name for a path that ends with a slash.
    pub(crate) index: Option<String>,
    /// Suffixes to try for a path without a file of its own.
    pub(crate) tries: Vec<String>,
    /// A trailing slash makes no difference.
    pub(crate) chomp: bool,
    /// A path whose extension has a type is tried only as it is.
    pub(crate) typed: bool,
    /// A path without a file is passed to the next rule; otherwise to the app.
    pub(crate) falls_through: bool,
    /// Codings of the precompressed files.
    pub(crate) codings: Vec<Coding>,
    pub(crate) charset: Option<String>,
    /// The type of files whose extension has none. Without this, the server's own types are used.
    pub(crate) default_type: Option<String>,
    /// Condition, name, value, and whether the field is set only if there is none of that name.
    pub(crate) headers: Vec<(Condition, String, String, bool)>,
    /// Only for TLS: the app redirects other requests.
    pub(crate) https: bool,
    /// The app compares the client addresses that proxies have set.
    pub(crate) spoofing: bool,
    /// If not empty, the rule is only for these hosts.
    pub(crate) hosts: Vec<Host>,
    /// Requests with one of these fields go to the app: all requests, or those for a type.
    pub(crate) unless: Vec<(String, Option<String>)>,
}

/// Which responses get a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    All,
    /// HTML and XML.
    Markup,
    Extension(String),
    Path(String),
}

/// A host that an app accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    /// The name, and names with one more label before it.
    Below(String),
    AnyAddress,
}

impl Condition {
    pub(crate) fn read(text: &str) -> Option<Condition> {
        match text.split_once(':') {
            None if text == "all" => Some(Condition::All),
            None if text == "markup" => Some(Condition::Markup),
            Some(("extension", extension)) => Some(Condition::Extension(format!(".{extension}"))),
            Some(("path", path)) => Some(Condition::Path(path.to_owned())),
            _ => None,
        }
    }

    fn holds(&self, path: &str, content_type: &str) -> bool {
        match self {
            Condition::All => true,
            Condition::Markup => {
                let essence = essence(content_type);
                matches!(essence, "text/html" | "text/xml" | "application/xml")
                    || essence.starts_with("application/xhtml")
            }
            Condition::Extension(extension) => path.ends_with(extension.as_str()),
            Condition::Path(prefix) => path.starts_with(prefix.as_str()),
        }
    }
}

impl Host {
    pub(crate) fn read(text: &str) -> Host {
        let lower = text.to_ascii_lowercase();
        match lower.strip_prefix('.') {
            _ if lower == "any-address" => Host::AnyAddress,
            Some(below) => Host::Below(below.to_owned()),
            None => Host::Name(lower),
        }
    }

    fn is(&self, host: &str, authority: &str) -> bool {
        match self {
            Host::Name(name) => host == name || authority == name,
            Host::Below(name) => {
                host == name
                    || host.strip_suffix(name.as_str()).and_then(|rest| rest.strip_suffix('.')).is_some_and(
                        |label| {
                            !label.is_empty()
                                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                        },
                    )
            }
            Host::AnyAddress => {
                host.trim_matches(|letter| matches!(letter, '[' | ']')).parse::<IpAddr>().is_ok()
            }
        }
    }
}

impl FileRule {
    /// Creates a rule without conditions; the app's lines are added to it.
    pub(crate) fn of(by: &str, root: &Path) -> FileRule {
        FileRule { by: by.to_owned(), root: root.to_owned(), ..FileRule::default() }
    }

    /// Returns the usual rule for files that the app does not describe: pages by their names, the server's
    /// own types, all precompressed files.
    pub(crate) fn plain(root: &Path) -> FileRule {
        FileRule {
            index: Some("index.html".to_owned()),
            tries: vec![".html".to_owned()],
            codings: vec![Coding::Br, Coding::Zstd, Coding::Gzip],
            charset: Some("utf-8".to_owned()),
            falls_through: true,
            ..FileRule::of("", root)
        }
    }

    /// Removes all conditions on requests.
    pub(crate) fn without_conditions(self) -> FileRule {
        FileRule {
            behind: None,
            https: false,
            spoofing: false,
            hosts: Vec::new(),
            unless: Vec::new(),
            ..self
        }
    }

    /// Returns whether the rule applies to a path.
    pub(crate) fn concerns(&self, path: &FilePath) -> bool {
        if self.prefixes.is_empty() && self.exact.is_empty() {
            return true;
        }
        let url = path.url();
        let below = |prefix: &String| {
            let rest = url.strip_prefix(prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || prefix.ends_with('/') || rest.starts_with('/'))
        };
        self.prefixes.iter().any(below) || self.exact.iter().any(|(path, _)| *path == url)
    }

    /// Returns the candidate files of a path, in order.
    pub(crate) fn candidates(&self, path: &FilePath, types: &Types) -> Vec<String> {
        if !self.exact.is_empty()
            && let Some((_, file)) = self.exact.iter().find(|(exact, _)| *exact == path.url())
        {
            return vec![file.clone()];
        }
        let text = path.text();
        if path.is_directory() && !self.chomp {
            let Some(index) = &self.index else { return Vec::new() };
            return vec![if text.is_empty() { index.clone() } else { format!("{text}/{index}") }];
        }
        let mut files = Vec::with_capacity(1 + self.tries.len());
        if !text.is_empty() {
            files.push(text.to_owned());
        }
        if self.typed && extension(text).is_some_and(|known| types.contains_key(known.as_str())) {
            return files;
        }
        let more = self.tries.iter().filter(|suffix| !text.ends_with(suffix.as_str()));
        let more = more.map(|suffix| format!("{text}{suffix}").trim_start_matches('/').to_owned());
        // A suffix alone is not a name, and one of `/.well-known/` makes a hidden file.
        files.extend(more.filter(|name| !has_hidden_name(name)));
        files
    }

    /// Returns whether the app's middleware would let a request for a file of this type pass.
    pub(crate) fn admits(&self, request: &Request, content_type: &str) -> bool {
        let has = |field: &str| request.fields.get(field).is_some();
        let meant = |kind: &Option<String>| kind.as_ref().is_none_or(|kind| essence(content_type) == kind);
        if self.https && !request.https
            || self.unless.iter().any(|(field, kind)| meant(kind) && has(field))
            || self.spoofing && is_spoofed(request)
        {
            return false;
        }
        self.hosts.is_empty()
            || std::str::from_utf8(request.authority()).is_ok_and(|authority| {
                let authority = authority.to_ascii_lowercase();
                let host = host(&authority);
                self.hosts.iter().any(|one| one.is(host, &authority))
            })
    }

    /// Returns the fields of a file's responses.
    pub(crate) fn fields(&self, file: &str, content_type: &str) -> Vec<(String, String)> {
        let path = format!("/{file}");
        let mut fields: Vec<(String, String)> = Vec::new();
        for (condition, name, value, weak) in &self.headers {
            let known = fields.iter().position(|(there, _)| there.eq_ignore_ascii_case(name));
            if !condition.holds(&path, content_type) || (*weak && known.is_some()) {
                continue;
            }
            known.map(|at| fields.remove(at));
            fields.push((name.clone(), value.clone()));
        }
        fields
    }

    /// Returns the type of a file; `None` if the server's own types are used.
    pub(crate) fn content_type<'t>(&'t self, file: &str, types: &'t Types) -> Option<&'t str> {
        let default = self.default_type.as_deref()?;
        Some(extension(file).and_then(|known| types.get(known.as_str())).map_or(default, |kind| kind))
    }
}

/// Like Ruby's `File.extname`, without the dot, in lower case.
fn extension(file: &str) -> Option<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then(|| extension.to_ascii_lowercase())
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Removes the port.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => authority,
    }
}

/// Returns whether a proxy's field names a client that X-Forwarded-For does not (Rack::Protection::IPSpoofing).
fn is_spoofed(request: &Request) -> bool {
    let Some(named) = request.fields.get("x-forwarded-for") else { return false };
    let unknown = |field: &str| {
        request.fields.get(field).is_some_and(|client| {
            !named.split(|&byte| byte == b',').any(|one| one.trim_ascii() == client.trim_ascii())
        })
    };
    unknown("client-ip") || unknown("x-real-ip")
}
