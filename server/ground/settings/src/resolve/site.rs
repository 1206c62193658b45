//! Static sites: that of the directory and those of host names.

use super::ResolveContext;
use crate::discover::Discovered;
use crate::error::Error;
use crate::settings::{HostSite, Site, Sites};
use crate::table::section::Section;
use crate::table::site;
use crate::table::taker::Taker;

/// Returns the sites that are served besides the app.
pub(super) fn sites(taker: &Taker<'_>, facts: &ResolveContext) -> Sites {
    let root_dir = taker.take(&site::ROOT).value;
    let rules = taker.take(&site::STATIC_JSON).value;
    let found = &facts.site;
    if let Some(root) = root_dir.as_ref().filter(|root| !root.is_dir()) {
        taker.conflict(
            &site::ROOT.about,
            format!("expected a directory that exists, {} is not one", root.display()),
        );
    }
    if let Some(file) = rules.as_ref().filter(|file| !file.is_file()) {
        taker.conflict(
            &site::STATIC_JSON.about,
            format!("expected a file that exists, {} is not one", file.display()),
        );
    }
    let named = root_dir.is_some() || rules.is_some();
    // In front of an app a site needs rules.
    let there = if facts.handler.is_some() {
        false
    } else if facts.app.is_some() {
        found.static_json.is_some()
    } else {
        found.is_site()
    };
    let main = (named || there).then(|| Site {
        dir: facts.base.clone(),
        static_json: rules.or_else(|| found.static_json.clone()),
        root: root_dir,
        found: if facts.app.is_some() { None } else { found.root.clone() },
    });
    Sites { main, hosts: hosts(taker, facts), pages: Section::take(taker), cache: Section::take(taker) }
}

fn hosts(taker: &Taker<'_>, facts: &ResolveContext) -> Vec<HostSite> {
    let mut sites: Vec<HostSite> = Vec::new();
    for (host, written, dir, found) in &facts.host_sites {
        let refuse = |problem: String| {
            taker.refuse(Error {
                origin: written.origin.clone(),
                written: format!("sites.{host:?} = {}", written.raw),
                problem,
                nearest: None,
            });
        };
        let Some(dir) = dir else {
            refuse("expected a directory, as text".to_owned());
            continue;
        };
        if !is_host(host) {
            refuse(
                "expected a host name such as \"example.com\" or \"*.example.com\", without scheme and port"
                    .to_owned(),
            );
        } else if !dir.is_dir() {
            refuse(format!("expected a directory that exists, {} is not one", dir.display()));
        } else if !found.is_site() {
            refuse(format!(
                "there is no static.json, _site/, public_html/, dist/, build/ or index.html in {}",
                dir.display()
            ));
        }
        let host = host.to_ascii_lowercase();
        if sites.iter().any(|site| site.host == host) {
            refuse("this host is there twice".to_owned());
        }
        let Discovered { static_json, root } = found.clone();
        sites.push(HostSite { host, site: Site { dir: dir.clone(), static_json, root: None, found: root } });
    }
    sites
}

fn is_host(host: &str) -> bool {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let letters =
        |label: &str| label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let bracketed = name.starts_with('[') && name.ends_with(']') && name.len() > 2;
    bracketed || (!name.is_empty() && name.split('.').all(|label| !label.is_empty() && letters(label)))
}
