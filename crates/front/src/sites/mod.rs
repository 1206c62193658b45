//! Static sites in the composition: which site a request is for, what it is made of, and when it is replaced.
//!
//! [`load`] reads `static.json` and what it names; [`watch`] does so again when a file changes; [`local`] is a front
//! thread's own sites. A set of sites never changes: a new one takes its place, and requests under way keep the old one.

mod canonical;
pub(crate) mod load;
pub(crate) mod local;
pub(crate) mod watch;

use proxy::Upstreams;
use settings::Settings;
use site::{Disk, rules};
use std::path::PathBuf;
use std::sync::Arc;

/// What all front threads make their sites of.
pub(crate) struct Sites {
    /// The site for requests that no host claims.
    pub(crate) main: Option<SitePlan>,
    /// Host names in lower case, `*.` in front for any name below, with their sites.
    pub(crate) hosts: Vec<(String, SitePlan)>,
    /// The files that were read; a change of one makes the sites anew.
    pub(crate) sources: Vec<PathBuf>,
}

/// What one site is made of.
pub(crate) struct SitePlan {
    pub(crate) plan: site::SiteConfig,
    /// One for each of the rules' proxies.
    pub(crate) upstreams: Vec<Arc<Upstreams>>,
}

impl Sites {
    /// All sites.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SitePlan> {
        self.main.iter().chain(self.hosts.iter().map(|(_, site)| site))
    }
}

/// Everything that is questionable about the sites, as lines; `None` when there is no site.
///
/// # Errors
/// What is wrong, so that they could not be served.
pub(crate) fn check(settings: &Settings) -> Result<Option<String>, String> {
    let (sites, notes) = load::load(settings)?;
    if sites.all().next().is_none() {
        return Ok(None);
    }
    let lint = sites.all().flat_map(|site| rules::lint(&site.plan.rules, &Disk::new(&site.plan)));
    // Before an app links are followed.
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

/// Which of `hosts` a request's authority is for: the name itself before the longest `*.` that it ends with.
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

/// The authority without its port and without a dot at the end.
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
