//! Parses the entries of `proxies`: origins and their options.

use std::time::Duration;

use super::json::{Member, Node, Value};
use super::proxy::{ProxyOrigin, ProxyRule};
use super::read::Reader;
use handler::proxying::{Balance, Health, HostPolicy, Via};

const OPTIONS: [&str; 14] = [
    "origin",
    "balance",
    "connect_timeout",
    "read_timeout",
    "send_timeout",
    "retries",
    "max_idle",
    "host",
    "tls_verify",
    "tls_ca",
    "forwarded",
    "via",
    "websocket",
    "health",
];
const HEALTH_OPTIONS: [&str; 5] = ["path", "interval", "timeout", "healthy", "unhealthy"];

/// All options, for the test of the reference documentation.
#[cfg(test)]
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().chain(HEALTH_OPTIONS)
}

/// Parses all entries, in file order.
pub(super) fn proxies(reader: &mut Reader<'_>, node: &Node) -> Vec<ProxyRule> {
    const EXPECTED: &str = "an object such as {\"/api\": {\"origin\": \"http://localhost:3000\"}}";
    let members = reader.members("proxies", node, EXPECTED).unwrap_or_default();
    let rules: Vec<ProxyRule> = members.into_iter().filter_map(|member| proxy(reader, member)).collect();
    if !reader.compat {
        for (index, rule) in rules.iter().enumerate() {
            let same =
                |other: &&ProxyRule| other.prefix.trim_end_matches('/') == rule.prefix.trim_end_matches('/');
            if let Some(earlier) = rules[..index].iter().find(same) {
                let text = format!(
                    "proxies {:?} has the same prefix as {:?} in line {}: the earlier one is used",
                    rule.prefix, earlier.prefix, earlier.line
                );
                reader.note(rule.at, text);
            }
        }
    }
    rules
}

fn proxy(reader: &mut Reader<'_>, member: &Member) -> Option<ProxyRule> {
    let name = format!("proxies {:?}", member.key);
    reader.check_path_key("proxies", member);
    if member.key.contains('*') {
        reader.note(member.at, format!("{name}: a prefix has no wildcards: * matches itself; \"/api\" means /api and everything below it"));
    }
    let options =
        reader.members(&name, &member.node, "an object such as {\"origin\": \"http://localhost:3000\"}")?;
    let mut rule = ProxyRule::new(&member.key, member.at, reader.compat);
    let known: &[&str] = if reader.compat { &OPTIONS[..1] } else { &OPTIONS };
    let mut given = false;
    for option in options {
        let key = format!("{name}: {}", option.key);
        let node = &option.node;
        match option.key.as_str() {
            option_key if !known.contains(&option_key) => reader.unknown_key(&name, option, known),
            _ if node.value == Value::Null => {}
            "origin" => {
                given = true;
                rule.origins = origins(reader, &key, node);
            }
            "balance" => {
                if reader.word(&key, node, &["round_robin", "least_connections"]) == Some("least_connections")
                {
                    rule.balance = Balance::LeastConnections;
                }
            }
            "connect_timeout" => set(&mut rule.connect_timeout, reader.duration(&key, node)),
            "read_timeout" => set(&mut rule.read_timeout, reader.duration(&key, node)),
            "send_timeout" => set(&mut rule.send_timeout, reader.duration(&key, node)),
            "retries" => set(&mut rule.retries, reader.integer(&key, node, 0, 10)),
            "max_idle" => {
                set(&mut rule.max_idle, reader.integer(&key, node, 0, 100_000).map(|count| count as usize))
            }
            "host" => {
                if reader.word(&key, node, &["origin", "client"]) == Some("client") {
                    rule.host = HostPolicy::Client;
                }
            }
            "tls_verify" => set(&mut rule.tls_verify, reader.boolean(&key, node)),
            "tls_ca" => rule.tls_ca = reader.filled_text(&key, node, "the path of a PEM file"),
            "forwarded" => set(&mut rule.forwarded, reader.boolean(&key, node)),
            "via" => match reader.word(&key, node, &["both", "requests", "off"]) {
                Some("requests") => rule.via = Via::Requests,
                Some("off") => rule.via = Via::Off,
                _ => {}
            },
            "websocket" => set(&mut rule.websocket, reader.boolean(&key, node)),
            _ => rule.health = health(reader, &key, node),
        }
    }
    if !given {
        reader.mistake(member.at, format!("{name}: \"origin\" is missing: expected a URL such as {{\"origin\": \"http://localhost:3000\"}}"));
    }
    (!rule.origins.is_empty()).then_some(rule)
}

fn set<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}

fn origins(reader: &mut Reader<'_>, key: &str, node: &Node) -> Vec<ProxyOrigin> {
    let nodes = match &node.value {
        Value::Array(nodes) if !reader.compat && !nodes.is_empty() => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut origins: Vec<ProxyOrigin> = Vec::new();
    for node in nodes {
        let Some(text) = reader.filled_text(key, node, "a URL such as \"http://localhost:3000\"") else {
            continue;
        };
        match ProxyOrigin::parse(&text, reader.compat) {
            Ok(origin) if origins.first().is_some_and(|first| first.base != origin.base) => {
                reader.mistake(
                    node.at,
                    format!(
                        "{key}: all origins of a proxy must have the same path, but {:?} and {:?} differ",
                        origins[0].base, origin.base
                    ),
                );
            }
            Ok(origin) => origins.push(origin),
            Err(why) => reader.mistake(node.at, format!("{key}: {why}")),
        }
    }
    origins
}

fn health(reader: &mut Reader<'_>, name: &str, node: &Node) -> Option<Health> {
    let mut health = Health {
        path: "/up".to_owned(),
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        healthy: 2,
        unhealthy: 3,
    };
    for option in reader.members(name, node, "an object such as {\"path\": \"/up\"}")? {
        let key = format!("{name}.{}", option.key);
        let node = &option.node;
        match option.key.as_str() {
            "path" => {
                let path = reader.filled_text(&key, node, "a path such as \"/up\"")?;
                if !path.starts_with('/') || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
                    return reader.expected(&key, node, "a path such as \"/up\" (percent-encoded)");
                }
                health.path = path;
            }
            "interval" => set(&mut health.interval, reader.duration(&key, node)),
            "timeout" => set(&mut health.timeout, reader.duration(&key, node)),
            "healthy" => set(&mut health.healthy, reader.integer(&key, node, 1, 1000)),
            "unhealthy" => set(&mut health.unhealthy, reader.integer(&key, node, 1, 1000)),
            _ => reader.unknown_key(name, option, &HEALTH_OPTIONS),
        }
    }
    Some(health)
}
