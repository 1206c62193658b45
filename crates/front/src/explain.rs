//! `firebrick explain`: which rule responds to a request, without a server.

use crate::redirect;
use crate::sites::{load, of_host};
use handler::Fields;
use settings::Settings;
use site::ExplainRequest;

/// A request, as it was typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Path and query.
    pub target: String,
    /// Host, if it was given.
    pub host: Option<String>,
    /// Header fields, `Name: value`.
    pub headers: Vec<String>,
    /// Whether the client would use https.
    pub https: bool,
}

/// What would respond, why, and with which header fields.
///
/// # Errors
/// There is no site, its rules are wrong, or the request is malformed.
pub fn explain(settings: &Settings, question: &Question) -> Result<String, String> {
    settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
    let mut fields = Fields::default();
    for header in &question.headers {
        let (name, value) = header
            .split_once(':')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| format!("--header {header:?}: expected \"Name: value\""))?;
        fields.push(name.trim().as_bytes(), value.trim().as_bytes());
    }
    let host = host(question, &fields);
    let path = question.target.split(['?', '#']).next().unwrap_or_default().as_bytes();
    let redirects = redirect::explain(settings, question.https, &host, &question.target);
    Ok(redirects
        + &limited(settings, path)
        + &first(settings, path)
        + &behind(settings, question, &fields, &host)?)
}

/// The rate limits that may refuse it.
fn limited(settings: &Settings, path: &[u8]) -> String {
    let lines: Vec<String> =
        ratelimit::concerning(settings, path).map(|limit| format!("Rate limit {limit}\n")).collect();
    if lines.is_empty() { String::new() } else { lines.concat() + "\n" }
}

/// What comes before all else: the handlers of a route, if there are any.
fn first(settings: &Settings, path: &[u8]) -> String {
    let mut routes = settings.mruby.routes.iter();
    match routes.find(|route| script::is_below(path, route.path.as_bytes())) {
        Some(route) => {
            let handlers = route.describe(settings.base());
            format!("First {handlers} on mruby; if they pass it on (399):\n\n")
        }
        None => String::new(),
    }
}

/// The host that is asked for.
fn host(question: &Question, fields: &Fields) -> String {
    let of_field = fields.get("host").map(|host| String::from_utf8_lossy(host).into_owned());
    question.host.clone().or(of_field).unwrap_or_else(|| "localhost".to_owned())
}

/// What responds after all handlers.
fn behind(settings: &Settings, question: &Question, fields: &Fields, host: &str) -> Result<String, String> {
    let (sites, _) = load::load(settings)?;
    let plan = match of_host(&sites.hosts, host.as_bytes()) {
        Some(index) => &sites.hosts[index].1,
        None => match &sites.main {
            Some(site) => site,
            None if settings.app.is_some() => {
                return Ok("There is no static site here: the app responds.\n".to_owned());
            }
            None => return Ok(format!("There is no site for the host {host}: 404.\n")),
        },
    };
    let input = ExplainRequest { target: &question.target, host, https: question.https, fields };
    site::explain(&plan.plan, &input)
}
