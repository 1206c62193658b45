//! Parses the entries of `routes`, `redirects` and `headers`.

use super::glob::Glob;
use super::json::{Member, Node, Value};
use super::location::Location;
use super::read::Reader;
use super::source::SourceSpan;
use super::{HeaderRule, RedirectRule, Route};

/// Parses all entries, in file order.
pub(super) fn routes(reader: &mut Reader<'_>, node: &Node) -> Vec<Route> {
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
                    "{key}: expected a file below the root, found an object: \"excepts\" is not supported; \
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

/// Parses all entries, in file order.
pub(super) fn redirects(reader: &mut Reader<'_>, node: &Node) -> Vec<RedirectRule> {
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
            _ if option.node.value == Value::Null => {}
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
            format!("{name}: \"url\" is missing: expected a target such as {{\"url\": \"/new\"}}"),
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

/// Parses all entries, in file order.
pub(super) fn headers(reader: &mut Reader<'_>, node: &Node) -> Vec<HeaderRule> {
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

/// Parses name, value, and position.
fn header(reader: &mut Reader<'_>, rule: &str, field: &Member) -> Option<(String, String, SourceSpan)> {
    if !text::is_token(field.key.as_bytes()) {
        reader.mistake(
            field.at,
            format!("{rule}: {:?} is not the name of a header: expected letters, digits and -", field.key),
        );
        return None;
    }
    let framing =
        ["connection", "content-length", "transfer-encoding", "keep-alive", "upgrade", "te", "trailer"];
    if framing.contains(&field.key.to_ascii_lowercase().as_str()) {
        reader.note(field.at, format!("{rule}: {} is set by the server: this rule is ignored", field.key));
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
            format!("{key}: a header value must be one line without control characters"),
        );
        return None;
    }
    Some((field.key.clone(), value.trim().to_owned(), field.at))
}
