//! Parses the keys of `static.json`: type, default and meaning of each, in one table of matches.
//!
//! Contract: all mistakes are reported, not only the first. Unknown keys are notes, because the buildpack
//! ignored them. With `"compat": "heroku"`, keys that the buildpack did not have count as unknown.

use std::sync::Arc;

use super::json::{self, Member, Node, Value};
use super::read::Reader;
use super::source::{RuleMistake, Source};
use super::variables::Variables;
use super::{BasicAuth, Parsed, Rules, TrailingSlash, lists, proxy_options};

/// The keys of Heroku's buildpack.
const BUILDPACK_KEYS: [&str; 15] = [
    "root",
    "clean_urls",
    "https_only",
    "canonical_host",
    "encoding",
    "error_page",
    "logging",
    "routes",
    "redirects",
    "proxies",
    "headers",
    "basic_auth",
    "basic_auth_htpasswd_path",
    "worker_connections",
    "port",
];

/// Firebrick's own keys.
const OWN_KEYS: [&str; 7] = [
    "header_rules",
    "trailing_slash",
    "directory_listing",
    "index",
    "fingerprinted_assets",
    "compress",
    "precompressed",
];

/// All keys, for the test of the reference documentation.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    BUILDPACK_KEYS.into_iter().chain(OWN_KEYS).chain(["compat"])
}

const ERROR_LEVELS: [&str; 8] = ["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"];

/// Parses a whole file.
pub(super) fn parse(source: Source, variables: Variables<'_>) -> Result<Parsed, Vec<RuleMistake>> {
    let members = json::parse(&source).map_err(|mistake| vec![mistake])?;
    let mut reader =
        Reader { source: &source, variables, compat: false, mistakes: Vec::new(), notes: Vec::new() };
    let members = reader.unique(&members);
    let mut rules = Rules::defaults();
    if let Some(member) = members.iter().find(|member| member.key == "compat") {
        reader.compat = !is_null(&member.node) && reader.word("compat", &member.node, &["heroku"]).is_some();
    }
    rules.compat = reader.compat;
    rules.precompressed = !reader.compat;
    let mut asks_password = false;
    let mut htpasswd = None;
    for member in members {
        // In Ruby, null means that the key is absent.
        if is_null(&member.node) && known(&member.key, reader.compat) {
            continue;
        }
        match member.key.as_str() {
            "basic_auth" => asks_password = reader.boolean("basic_auth", &member.node).unwrap_or(true),
            "basic_auth_htpasswd_path" => {
                htpasswd =
                    text_of(&mut reader, "basic_auth_htpasswd_path", &member.node, "the path of a file");
            }
            _ => key(&mut reader, &mut rules, member),
        }
    }
    from_environment(&mut reader, &mut rules, asks_password, htpasswd);
    rules.proxy_order = super::proxy::longest_first(&rules.proxies);
    rules.exact_redirects = exact(&rules);
    let (mistakes, notes) = (reader.mistakes, reader.notes);
    if mistakes.is_empty() {
        rules.source = Some(Arc::new(source));
        Ok(Parsed { rules, notes })
    } else {
        Err(mistakes)
    }
}

/// Returns the redirects without wildcards, by path.
fn exact(rules: &Rules) -> std::collections::HashMap<String, usize> {
    let plain = rules.redirects.iter().enumerate().filter(|(_, rule)| rule.glob.is_none());
    plain.map(|(id, rule)| (rule.key.clone(), id)).collect()
}

/// Returns the rules of a site without a file.
pub(super) fn without_file(variables: Variables<'_>) -> Parsed {
    let source = Source::new("", "");
    let mut reader =
        Reader { source: &source, variables, compat: false, mistakes: Vec::new(), notes: Vec::new() };
    let mut rules = Rules::defaults();
    rules.clean_urls = true;
    from_environment(&mut reader, &mut rules, false, None);
    Parsed { rules, notes: reader.notes }
}

fn is_null(node: &Node) -> bool {
    node.value == Value::Null
}

fn known(key: &str, compat: bool) -> bool {
    key == "compat" || BUILDPACK_KEYS.contains(&key) || !compat && OWN_KEYS.contains(&key)
}

/// Parses one top-level key.
fn key(reader: &mut Reader<'_>, rules: &mut Rules, member: &Member) {
    let (name, node) = (member.key.as_str(), &member.node);
    if !known(name, reader.compat) {
        return unknown(reader, member);
    }
    match name {
        "root" => rules.root = root(reader, node),
        "clean_urls" => rules.clean_urls = reader.boolean(name, node).unwrap_or_default(),
        "https_only" => rules.https_only = reader.boolean(name, node).unwrap_or_default(),
        "canonical_host" => {
            rules.canonical_host = canonical_host(reader, node);
            rules.spans.canonical_host = member.at;
        }
        "encoding" => rules.encoding = encoding(reader, node).unwrap_or_default(),
        "error_page" => {
            rules.error_page = reader.site_path(name, node);
            rules.spans.error_page = node.at;
        }
        "logging" => logging(reader, rules, node),
        "routes" => rules.routes = lists::routes(reader, node),
        "redirects" => rules.redirects = lists::redirects(reader, node),
        "proxies" => rules.proxies = proxy_options::proxies(reader, node),
        "headers" => rules.headers = lists::headers(reader, node),
        "worker_connections" => rules.worker_connections = reader.integer(name, node, 1, 1_000_000),
        "port" => rules.port = reader.integer(name, node, 1, 65535).and_then(|port| u16::try_from(port).ok()),
        "header_rules" => rules.merge_headers = reader.word(name, node, &["last", "merge"]) == Some("merge"),
        "trailing_slash" => {
            rules.trailing_slash = match reader.word(name, node, &["keep", "always", "never"]) {
                Some("always") => TrailingSlash::Always,
                Some("never") => TrailingSlash::Never,
                _ => TrailingSlash::Keep,
            };
        }
        "directory_listing" => rules.directory_listing = reader.boolean(name, node).unwrap_or_default(),
        "index" => rules.index = index(reader, node).unwrap_or_default(),
        "fingerprinted_assets" => rules.fingerprinted_assets = reader.boolean(name, node).unwrap_or_default(),
        "compress" => rules.compress = reader.boolean(name, node).unwrap_or_default(),
        "precompressed" => rules.precompressed = reader.boolean(name, node).unwrap_or_default(),
        _ => {}
    }
    match name {
        "root" => rules.spans.root = node.at,
        "https_only" => rules.spans.https_only = member.at,
        "clean_urls" => rules.spans.clean_urls = member.at,
        "trailing_slash" => rules.spans.trailing_slash = member.at,
        _ => {}
    }
}

fn unknown(reader: &mut Reader<'_>, member: &Member) {
    match member.key.as_str() {
        "debug" => reader.note(
            member.at,
            "debug is not a key: set the variable STATIC_DEBUG, or logging.error to \"debug\"",
        ),
        "resolver" => reader.note(member.at, "resolver is not a key: names are resolved by the system"),
        key if OWN_KEYS.contains(&key) => {
            reader.note(
                member.at,
                format!("unknown key {key:?}: with \"compat\": \"heroku\" only the buildpack's keys apply"),
            );
        }
        _ if reader.compat => reader.unknown_key("", member, &BUILDPACK_KEYS),
        _ => {
            let names: Vec<&str> = BUILDPACK_KEYS.into_iter().chain(OWN_KEYS).chain(["compat"]).collect();
            reader.unknown_key("", member, &names);
        }
    }
}

/// Parses a non-empty string.
fn text_of(reader: &mut Reader<'_>, key: &str, node: &Node, expected: &str) -> Option<String> {
    let text = reader.string(key, node, expected)?.to_owned();
    if text.is_empty() { reader.expected(key, node, expected) } else { Some(text) }
}

fn root(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    const EXPECTED: &str = "the path of a directory, such as \"public_html/\"";
    if reader.compat {
        return text_of(reader, "root", node, EXPECTED);
    }
    let text = reader.filled_text("root", node, EXPECTED)?;
    if text.is_empty() { reader.expected("root", node, EXPECTED) } else { Some(text) }
}

fn canonical_host(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    const EXPECTED: &str = "a host name such as \"www.example.com\", or false";
    if let Value::Bool(false) = node.value {
        return None;
    }
    let host = reader.filled_text("canonical_host", node, EXPECTED)?;
    // An unset variable stays, braces and all, as specified; otherwise only a host is valid.
    let name = |c: char| c.is_ascii_alphanumeric() || "-._:[]${}".contains(c);
    if !host.chars().all(name) {
        reader.mistake(
            node.at,
            format!("canonical_host: expected {EXPECTED} (without https:// and /), found {host:?}"),
        );
        return None;
    }
    Some(host.to_ascii_lowercase()).filter(|host| !host.is_empty())
}

fn encoding(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    const EXPECTED: &str = "the name of a character set, such as \"UTF-8\"";
    let name = text_of(reader, "encoding", node, EXPECTED)?;
    if name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:+".contains(c)) {
        Some(name)
    } else {
        reader.expected("encoding", node, EXPECTED)
    }
}

fn logging(reader: &mut Reader<'_>, rules: &mut Rules, node: &Node) {
    for member in reader.members("logging", node, "an object such as {\"access\": false}").unwrap_or_default()
    {
        match member.key.as_str() {
            _ if is_null(&member.node) => {}
            "access" => rules.access_log = reader.boolean("logging.access", &member.node),
            "error" => {
                if let Some(level) = reader.word("logging.error", &member.node, &ERROR_LEVELS) {
                    rules.error_level = level.to_owned();
                }
            }
            _ => reader.unknown_key("logging", member, &["access", "error"]),
        }
    }
}

fn index(reader: &mut Reader<'_>, node: &Node) -> Option<Vec<String>> {
    const EXPECTED: &str = "the name of a file such as \"index.html\", or a list of names";
    let nodes = match &node.value {
        Value::Array(nodes) if !nodes.is_empty() => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut names = Vec::new();
    for node in nodes {
        let name = text_of(reader, "index", node, EXPECTED)?;
        if name.contains('/') || name.starts_with('.') {
            return reader.expected("index", node, "a name without / and without a dot in front");
        }
        names.push(name);
    }
    Some(names)
}

/// Applies environment variables, and the precedence between them and the file.
fn from_environment(
    reader: &mut Reader<'_>,
    rules: &mut Rules,
    asks_password: bool,
    htpasswd_path: Option<String>,
) {
    let compat = reader.compat;
    let variable = |name: &str| (reader.variables)(name).filter(|value| compat || !value.is_empty());
    let (user, password) = (variable("BASIC_AUTH_USERNAME"), variable("BASIC_AUTH_PASSWORD"));
    if (reader.variables)("STATIC_DEBUG").is_some() {
        rules.error_level = "debug".to_owned();
    }
    let connections = variable("WORKER_CONNECTIONS").and_then(|text| text.trim().parse().ok());
    rules.worker_connections = rules.worker_connections.or(connections);
    let name = reader.source.name.clone();
    match (&user, &password) {
        (Some(_), None) => reader.notes.push(super::RuleNote::general(
            &name,
            "BASIC_AUTH_USERNAME is set but BASIC_AUTH_PASSWORD is not: a password is required, and only the htpasswd file's users are accepted",
        )),
        (None, Some(_)) => reader.notes.push(super::RuleNote::general(
            &name,
            "BASIC_AUTH_PASSWORD is set but BASIC_AUTH_USERNAME is not: it has no effect",
        )),
        _ => {}
    }
    if asks_password || user.is_some() {
        rules.basic_auth = Some(BasicAuth { htpasswd_path, user: user.zip(password) });
    }
}
