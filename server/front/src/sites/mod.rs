//! Static sites: finds the site of a request, and builds sites from their files.
//!
//! [`load`] reads `static.json` and the files that it names, and [`local`] holds a front thread's sites. A
//! set of sites never changes: a new set replaces it, and requests in progress keep the old one.

mod canonical;
pub(crate) mod live;
pub(crate) mod load;
pub(crate) mod local;

use crate::file_state::FileStamp;
use proxy::Upstreams;
use settings::Settings;
use site::{Disk, rules};
use std::path::PathBuf;
use std::sync::Arc;

/// The configuration from which each front thread builds its sites.
pub(crate) struct Sites {
    /// The site for requests that no host matches.
    pub(crate) main: Option<SitePlan>,
    /// Host names in lower case with their sites. A leading `*.` matches any name below.
    pub(crate) hosts: Vec<(String, SitePlan)>,
    /// The files that were read, each with its previous state. A change of any of them rebuilds the sites.
    pub(crate) sources: Vec<(PathBuf, FileStamp)>,
}

pub(crate) struct SitePlan {
    pub(crate) plan: site::SiteConfig,
    /// One element for each proxy in the rules.
    pub(crate) upstreams: Vec<Arc<Upstreams>>,
    /// Whether pages change in the browser when their files do.
    pub(crate) live: bool,
}

impl Sites {
    pub(crate) fn all(&self) -> impl Iterator<Item = &SitePlan> {
        self.main.iter().chain(self.hosts.iter().map(|(_, site)| site))
    }
}

/// Returns warnings about the sites, as lines; `None` without a site.
///
/// # Errors
/// The errors that make a site unusable.
pub(crate) fn check(settings: &Settings) -> Result<Option<String>, String> {
    let (sites, notes) = load::load(settings)?;
    if sites.all().next().is_none() {
        return Ok(None);
    }
    let lint = sites.all().flat_map(|site| rules::lint(&site.plan.rules, &Disk::new(&site.plan)));
    // Links are followed in the files of a site before an app.
    let links = sites.all().flat_map(|site| match site.plan.before_app {
        true => site::broken_links(&site.plan.root),
        false => site::refused_links(&site.plan.root),
    });
    let warnings = notes.into_iter().chain(lint).map(|note| note.to_string()).chain(links);
    let mut lines: Vec<String> = warnings.map(|warning| format!("warning: {warning}")).collect();
    lines.dedup();
    lines.push("The rules of the static site are right.".to_owned());
    Ok(Some(lines.join("\n")))
}

/// Returns which of `hosts` matches a request's authority: the exact name, else the longest `*.` pattern.
pub(crate) fn of_host<T>(hosts: &[(String, T)], authority: &[u8]) -> Option<usize> {
    if hosts.is_empty() {
        return None;
    }
    let name = host_name(authority);
    let fits = |pattern: &str| match pattern.strip_prefix('*') {
        Some(suffix) => {
            name.len() > suffix.len()
                && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
        }
        None => name.eq_ignore_ascii_case(pattern.as_bytes()),
    };
    let fitting = hosts.iter().enumerate().filter(|(_, (pattern, _))| fits(pattern));
    let best = fitting.max_by_key(|(_, (pattern, _))| (!pattern.starts_with('*'), pattern.len()));
    best.map(|(index, _)| index)
}

/// Removes the port and a final dot from the authority.
fn host_name(authority: &[u8]) -> &[u8] {
    let name = match authority.iter().rposition(|&byte| byte == b':') {
        Some(colon) if authority[colon + 1..].iter().all(u8::is_ascii_digit) => &authority[..colon],
        _ => authority,
    };
    name.strip_suffix(b".").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let hosts: Vec<(String, ())> = ["example.com", "*.example.com", "*.a.example.com", "[::1]"]
            .map(|host| (host.to_owned(), ()))
            .into();
        let of = |authority: &str| of_host(&hosts, authority.as_bytes());
        assert_eq!(of("example.com"), Some(0));
        assert_eq!(of("EXAMPLE.com.:80"), Some(0));
        assert_eq!(of("www.example.com:8080"), Some(1));
        assert_eq!(of("x.a.example.com"), Some(2));
        assert_eq!(of("[::1]:80"), Some(3));
        assert_eq!((of("notexample.com"), of(".example.com"), of("")), (None, None, None));
        assert_eq!(of_host::<()>(&[], b"example.com"), None);
    }
}
