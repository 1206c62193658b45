//! Implements `firebrick explain`: shows the handling of a request, without a server.

use crate::disk::Disk;
use crate::files::path::{PathError, SitePath};
use crate::rules::{self, RequestView};
use crate::site::SiteConfig;
use handler::Fields;

#[derive(Debug)]
pub struct ExplainRequest<'a> {
    /// Path and query, as in a request line.
    pub target: &'a str,
    /// The value of the Host field.
    pub host: &'a str,
    /// The client uses `https`.
    pub https: bool,
    /// The other header fields.
    pub fields: &'a Fields,
}

/// Lists the rules tried, the one that applies, and the header fields it adds.
///
/// # Errors
/// If the target is invalid, the error text gives the reason and the status of such a request.
pub fn explain(config: &SiteConfig, input: &ExplainRequest<'_>) -> Result<String, String> {
    let (path, query) = input.target.split_once('?').unwrap_or((input.target, ""));
    let decoded = SitePath::decode(path.as_bytes()).map_err(|why| match why {
        PathError::Malformed => format!(
            "{path:?} is not a valid path: expected it to begin with /, with %xx only for bytes of UTF-8 text, and not to lead \
             above /; such a request gets 400"
        ),
        PathError::Ambiguous => {
            format!(
                "{path:?} combines . or .. with an encoded slash (%2F), which an origin may resolve to a parent directory; such a request \
                 gets 404"
            )
        }
    })?;
    let request = RequestView {
        path: decoded.as_str(),
        raw_path: path.as_bytes(),
        query: query.as_bytes(),
        host: input.host.as_bytes(),
        https: input.https,
        forwarded_proto: input.fields.get("x-forwarded-proto"),
        remote: "127.0.0.1",
        fields: input.fields,
    };
    Ok(rules::explain(&config.rules, &request, &Disk::new(config)).to_string())
}
