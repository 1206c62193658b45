//! `firebrick explain`: finds the rule that responds to a request, without a running server.

use crate::pipeline::explain_redirects;
use crate::sites::{load, of_host};
use handler::Fields;
use settings::Settings;
use site::ExplainRequest;

/// A request as typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    pub target: String,
    pub host: Option<String>,
    /// Header fields, each as `Name: value`.
    pub headers: Vec<String>,
    /// Whether the client would use https.
    pub https: bool,
}

/// Returns the rule that would respond, the reason, and the header fields of the response.
///
/// # Errors
/// There is no site, its rules are invalid, or the request is malformed.
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
    let redirects = explain_redirects(settings, question.https, &host, &question.target);
    Ok(redirects
        + &limited(settings, path)
        + &first(settings, path)
        + &behind(settings, question, &fields, &host)?)
}

/// Returns the rate limits that can refuse the request.
fn limited(settings: &Settings, path: &[u8]) -> String {
    let lines: Vec<String> =
        ratelimit::concerning(settings, path).map(|limit| format!("Rate limit {limit}\n")).collect();
    if lines.is_empty() { String::new() } else { lines.concat() + "\n" }
}

/// Returns the mruby handlers of the route. They run before everything else.
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

fn host(question: &Question, fields: &Fields) -> String {
    let of_field = fields.get("host").map(|host| String::from_utf8_lossy(host).into_owned());
    question.host.clone().or(of_field).unwrap_or_else(|| "localhost".to_owned())
}

/// Returns the target after all handlers.
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
