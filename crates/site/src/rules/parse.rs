//! The keys of `static.json`: each one's type, default and meaning, in one table of matches.
//!
//! Contract: everything that is wrong is reported, not only the first; unknown keys are notes, because the buildpack ignored them.
//! With `"compat": "heroku"` the keys that the buildpack did not have are unknown.

use std::sync::Arc;

use super::glob::Glob;
use super::json::{self, Member, Node, Value};
use super::location::Location;
use super::read::Reader;
use super::source::{Mistake, Place, Source};
use super::variables::Variables;
use super::{BasicAuth, HeaderRule, Parsed, RedirectRule, Route, Rules, TrailingSlash};

/// Keys of the buildpack.
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

/// Keys beyond them.
const OWN_KEYS: [&str; 7] = [
    "header_rules",
    "trailing_slash",
    "directory_listing",
    "index",
    "fingerprinted_assets",
    "compress",
    "precompressed",
];

const ERROR_LEVELS: [&str; 8] = ["debug", "info", "notice", "warn", "error", "crit", "alert", "emerg"];

/// Reads a whole file.
pub(super) fn parse(source: Source, variables: Variables<'_>) -> Result<Parsed, Vec<Mistake>> {
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
        // In Ruby, null is what a key has that is not written.
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
    let (mistakes, notes) = (reader.mistakes, reader.notes);
    if mistakes.is_empty() {
        rules.source = Some(Arc::new(source));
        Ok(Parsed { rules, notes })
    } else {
        Err(mistakes)
    }
}

/// What holds without a file.
pub(super) fn without_file(variables: Variables<'_>) -> Parsed {
    let source = Source { name: String::new(), text: String::new() };
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

/// Reads one key of the top.
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
            rules.places.canonical_host = member.at;
        }
        "encoding" => rules.encoding = encoding(reader, node).unwrap_or_default(),
        "error_page" => {
            rules.error_page = reader.site_path(name, node);
            rules.places.error_page = node.at;
        }
        "logging" => logging(reader, rules, node),
        "routes" => rules.routes = routes(reader, node),
        "redirects" => rules.redirects = redirects(reader, node),
        "proxies" => rules.proxies = super::proxy_options::proxies(reader, node),
        "headers" => rules.headers = headers(reader, node),
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
        "root" => rules.places.root = node.at,
        "https_only" => rules.places.https_only = member.at,
        "clean_urls" => rules.places.clean_urls = member.at,
        "trailing_slash" => rules.places.trailing_slash = member.at,
        _ => {}
    }
}

fn unknown(reader: &mut Reader<'_>, member: &Member) {
    match member.key.as_str() {
        "debug" => reader.note(
            member.at,
            "debug is not a key: set the variable STATIC_DEBUG, or logging.error to \"debug\"",
        ),
        "resolver" => reader.note(member.at, "resolver is not a key: names are looked up as the system does"),
        key if OWN_KEYS.contains(&key) => {
            reader.note(
                member.at,
                format!("unknown key {key:?}: with \"compat\": \"heroku\" only the buildpack's keys hold"),
            );
        }
        _ if reader.compat => reader.unknown_key("", member, &BUILDPACK_KEYS),
        _ => {
            let names: Vec<&str> = BUILDPACK_KEYS.into_iter().chain(OWN_KEYS).chain(["compat"]).collect();
            reader.unknown_key("", member, &names);
        }
    }
}

/// A string without NUL that is not empty.
fn text_of(reader: &mut Reader<'_>, key: &str, node: &Node, expected: &str) -> Option<String> {
    let text = reader.string(key, node, expected)?.to_owned();
    if text.is_empty() { reader.expected(key, node, expected) } else { Some(text) }
}

fn root(reader: &mut Reader<'_>, node: &Node) -> Option<String> {
    const EXPECTED: &str = "the path of a folder, such as \"public_html/\"";
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
    // An unset variable stays, braces and all, as specified; nothing else but a host may be here.
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
            "access" => rules.access_log = reader.boolean("logging.access", &member.node).unwrap_or_default(),
            "error" => {
                if let Some(level) = reader.word("logging.error", &member.node, &ERROR_LEVELS) {
                    rules.error_level = level.to_owned();
                }
            }
            _ => reader.unknown_key("logging", member, &["access", "error"]),
        }
    }
}

fn routes(reader: &mut Reader<'_>, node: &Node) -> Vec<Route> {
    let members =
        reader.members("routes", node, "an object such as {\"/**\": \"index.html\"}").unwrap_or_default();
    let mut routes = Vec::new();
    for member in members {
        reader.check_path_key("routes", member);
        let key = format!("routes {:?}", member.key);
        if let Value::Object(_) = member.node.value {
            reader.mistake(
                member.node.at,
                format!(
                    "{key}: expected a file below the root, found an object: \"excepts\" never worked; \
                write a route with a target such as \"/missing/\" for each exception before this one"
                ),
            );
            continue;
        }
        if let Some(target) = reader.site_path(&key, &member.node) {
            routes.push(Route {
                key: member.key.clone(),
                glob: Glob::new(&member.key),
                target,
                at: member.at,
                target_at: member.node.at,
            });
        }
    }
    routes
}

fn redirects(reader: &mut Reader<'_>, node: &Node) -> Vec<RedirectRule> {
    const EXPECTED: &str = "an object such as {\"/old\": {\"url\": \"/new\"}}";
    let members = reader.members("redirects", node, EXPECTED).unwrap_or_default();
    members.into_iter().filter_map(|member| redirect(reader, member)).collect()
}

fn redirect(reader: &mut Reader<'_>, member: &Member) -> Option<RedirectRule> {
    reader.check_path_key("redirects", member);
    let name = format!("redirects {:?}", member.key);
    let glob = (!reader.compat && member.key.contains('*')).then(|| Glob::new(&member.key));
    let captures = glob.as_ref().map_or(0, Glob::wildcards);
    let (mut location, mut written) = (None, false);
    let (mut status, mut keep_query) = (301, false);
    let known: &[&str] = if reader.compat { &["url", "status"] } else { &["url", "status", "query"] };
    for option in
        reader.members(&name, &member.node, "an object such as {\"url\": \"/new\", \"status\": 302}")?
    {
        let key = format!("{name}: {}", option.key);
        match option.key.as_str() {
            known_key if !known.contains(&known_key) => reader.unknown_key(&name, option, known),
            _ if is_null(&option.node) => {}
            "url" => {
                written = true;
                location = url(reader, &key, &option.node, captures);
            }
            "status" => {
                let number = reader.integer(&key, &option.node, 301, 308)?;
                if ![301, 302, 303, 307, 308].contains(&number) {
                    return reader.expected(&key, &option.node, "301, 302, 303, 307 or 308");
                }
                status = number as u16;
            }
            _ => keep_query = reader.word(&key, &option.node, &["keep", "drop"]) == Some("keep"),
        }
    }
    if !written {
        reader.mistake(
            member.at,
            format!("{name}: \"url\" is missing: expected where to, such as {{\"url\": \"/new\"}}"),
        );
    }
    Some(RedirectRule {
        key: member.key.clone(),
        glob,
        location: location?,
        status,
        keep_query,
        at: member.at,
    })
}

fn url(reader: &mut Reader<'_>, key: &str, node: &Node, captures: usize) -> Option<Location> {
    let filled = reader.filled(key, node, "a path or a URL")?;
    match Location::new(&filled, captures) {
        Ok(location) => {
            reader.note_unset(key, node.at, filled.unset.iter().filter(|name| !Location::evaluates(name)));
            Some(location)
        }
        Err(why) => {
            reader.mistake(node.at, format!("{key}: {why}"));
            None
        }
    }
}

fn headers(reader: &mut Reader<'_>, node: &Node) -> Vec<HeaderRule> {
    const EXPECTED: &str = "an object such as {\"/**\": {\"Cache-Control\": \"no-cache\"}}";
    let members = reader.members("headers", node, EXPECTED).unwrap_or_default();
    let mut rules = Vec::new();
    for member in members {
        reader.check_path_key("headers", member);
        let name = format!("headers {:?}", member.key);
        let Some(fields) =
            reader.members(&name, &member.node, "an object such as {\"Cache-Control\": \"no-cache\"}")
        else {
            continue;
        };
        let fields = fields.into_iter().filter_map(|field| header(reader, &name, field)).collect();
        rules.push(HeaderRule {
            key: member.key.clone(),
            glob: Glob::new(&member.key),
            fields,
            at: member.at,
        });
    }
    rules
}

/// A name, a value, and where they stand.
fn header(reader: &mut Reader<'_>, rule: &str, field: &Member) -> Option<(String, String, Place)> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if field.key.is_empty() || !field.key.bytes().all(token) {
        reader.mistake(
            field.at,
            format!("{rule}: {:?} is not the name of a header: expected letters, digits and -", field.key),
        );
        return None;
    }
    let framing =
        ["connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer"];
    if framing.contains(&field.key.to_ascii_lowercase().as_str()) {
        reader.note(
            field.at,
            format!("{rule}: {} is the server's own business: the rule is left out", field.key),
        );
        return None;
    }
    let key = format!("{rule}: {}", field.key);
    let value = match &field.node.value {
        Value::String(_) if reader.compat => reader.string(&key, &field.node, "")?.to_owned(),
        Value::String(_) => reader.filled_text(&key, &field.node, "a string")?,
        Value::Number(number) => number.clone(),
        Value::Bool(value) => value.to_string(),
        Value::Null => return None,
        _ => return reader.expected(&key, &field.node, "a string, a number, true or false"),
    };
    if value.chars().any(char::is_control) {
        reader.mistake(
            field.node.at,
            format!("{key}: a header's value is one line without control characters"),
        );
        return None;
    }
    Some((field.key.clone(), value.trim().to_owned(), field.at))
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

/// What environment variables say, and the precedence between them and the file.
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
        (Some(_), None) => reader.notes.push(super::Note::general(
            &name,
            "BASIC_AUTH_USERNAME is set but BASIC_AUTH_PASSWORD is not: passwords are asked for, and only the htpasswd file's users come in",
        )),
        (None, Some(_)) => reader.notes.push(super::Note::general(
            &name,
            "BASIC_AUTH_PASSWORD is set but BASIC_AUTH_USERNAME is not: it has no effect",
        )),
        _ => {}
    }
    if asks_password || user.is_some() {
        rules.basic_auth = Some(BasicAuth { htpasswd_path, user: user.zip(password) });
    }
}
