//! What would happen to a request, without a server: `firebrick explain`.

use crate::disk::Disk;
use crate::files::path::{SitePath, Unnameable};
use crate::rules::{self, Asked};
use crate::site::Plan;
use handler::Fields;

/// A request that somebody asks about.
#[derive(Debug)]
pub struct Question<'a> {
    /// Path and query, as they would stand in the request line.
    pub target: &'a str,
    /// What the Host field would say.
    pub host: &'a str,
    /// Whether the client would use `https`.
    pub https: bool,
    /// Other fields of the request.
    pub fields: &'a Fields,
}

/// Which rule answers, what came before it, and with which fields.
///
/// # Errors
/// The target is none: what is wrong with it, and how it would be answered.
pub fn explain(plan: &Plan, question: &Question<'_>) -> Result<String, String> {
    let (path, query) = question.target.split_once('?').unwrap_or((question.target, ""));
    let decoded = SitePath::decode(path.as_bytes()).map_err(|why| match why {
        Unnameable::Malformed => format!(
            "{path:?} is no path: expected it to begin with /, with %xx only for bytes of UTF-8 text, and not to lead \
             above /; it is answered with 400"
        ),
        Unnameable::Ambiguous => {
            format!("{path:?} has . or .. beside an encoded slash (%2F), which may lead upwards; it is answered with 404")
        }
    })?;
    let asked = Asked {
        path: decoded.as_str(),
        raw_path: path.as_bytes(),
        query: query.as_bytes(),
        host: question.host.as_bytes(),
        https: question.https,
        forwarded_proto: question.fields.get("x-forwarded-proto"),
        remote: "127.0.0.1",
        fields: question.fields,
    };
    Ok(rules::explain(&plan.rules, &asked, &Disk::new(plan)).to_string())
}
