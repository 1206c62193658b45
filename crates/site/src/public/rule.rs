//! How one middleware of an app sends files: which names belong to a path, for whom, with which fields. Pure.

use super::app_files::Types;
use super::path::FilePath;
use crate::coding::Coding;
use handler::Request;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A directory, and how its files are sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FileRule {
    /// The middleware.
    pub(crate) by: String,
    pub(crate) root: PathBuf,
    /// What stands before it, if that may refuse requests.
    pub(crate) behind: Option<String>,
    /// Paths that it is about, each with what is below it. With neither these nor `exact` it is about all.
    pub(crate) prefixes: Vec<String>,
    /// Single paths, and their files.
    pub(crate) exact: Vec<(String, String)>,
    /// The file of a path that ends with a slash.
    pub(crate) index: Option<String>,
    /// What is added to a path without a file of its own.
    pub(crate) tries: Vec<String>,
    /// A slash at the end of a path makes no difference.
    pub(crate) chomp: bool,
    /// A path whose extension has a type is tried as it is only.
    pub(crate) typed: bool,
    /// A path without a file may be one of the next rule; otherwise it is the app's.
    pub(crate) falls_through: bool,
    /// Codings of files that lie beside the others.
    pub(crate) codings: Vec<Coding>,
    pub(crate) charset: Option<String>,
    /// Of files whose extension has none; without it types are ours.
    pub(crate) default_type: Option<String>,
    /// When, name, value, and whether it counts only where there is none of that name.
    pub(crate) headers: Vec<(Condition, String, String, bool)>,
    /// Over TLS only: the app redirects others.
    pub(crate) https: bool,
    /// The app compares the addresses that proxies have named.
    pub(crate) spoofing: bool,
    /// If there are any, for these only.
    pub(crate) hosts: Vec<Host>,
    /// Requests with one of these fields are the app's: all, or those for a type.
    pub(crate) unless: Vec<(String, Option<String>)>,
}

/// Which responses have a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    All,
    /// HTML and XML.
    Markup,
    Extension(String),
    Path(String),
}

/// Whom an app answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Name(String),
    /// The name, and what has one label before it.
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
    /// A rule to which its lines are still to be added.
    pub(crate) fn of(by: &str, root: &Path) -> FileRule {
        FileRule { by: by.to_owned(), root: root.to_owned(), ..FileRule::default() }
    }

    /// What is usual where an app has no say: pages by their names, types of our own, everything that lies beside.
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

    /// For everybody.
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

    /// Whether it is about a path.
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

    /// The files that a path may be for, in order.
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
        // A suffix alone is no name.
        files.extend(more.filter(|name| !text.is_empty() || !name.starts_with('.')));
        files
    }

    /// Whether the app's middleware would let a request for a file of this type pass.
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

    /// The fields of a file's responses.
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

    /// The type of a file; `None` where types are ours.
    pub(crate) fn content_type<'t>(&'t self, file: &str, types: &'t Types) -> Option<&'t str> {
        let default = self.default_type.as_deref()?;
        Some(extension(file).and_then(|known| types.get(known.as_str())).map_or(default, |kind| kind))
    }
}

/// As Ruby's `File.extname`, without the dot, in lower case.
fn extension(file: &str) -> Option<String> {
    let name = file.rsplit('/').next().unwrap_or(file);
    let (stem, extension) = name.rsplit_once('.')?;
    (!stem.is_empty()).then(|| extension.to_ascii_lowercase())
}

fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Without the port.
fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => authority,
    }
}

/// Whether a proxy has named a client that none of the others has (Rack::Protection::IPSpoofing).
fn is_spoofed(request: &Request) -> bool {
    let Some(named) = request.fields.get("x-forwarded-for") else { return false };
    let unknown = |field: &str| {
        request.fields.get(field).is_some_and(|client| {
            !named.split(|&byte| byte == b',').any(|one| one.trim_ascii() == client.trim_ascii())
        })
    };
    unknown("client-ip") || unknown("x-real-ip")
}
