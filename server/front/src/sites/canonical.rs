//! Detects a redirect loop: `canonical_host` of the settings and `canonical_host` of a site's `static.json`
//! name different hosts.

use super::{SitePlan, Sites, of_host};
use settings::Settings;
use std::path::Path;

/// Checks that the pages of a site can be reached.
///
/// # Errors
/// One sentence that names both settings, and a remedy.
pub(super) fn agree(settings: &Settings, sites: &Sites) -> Result<(), String> {
    let Some(own) = settings.https.canonical_host.as_deref() else { return Ok(()) };
    // With this pattern, no request is redirected.
    if settings.https.http_paths.iter().any(|pattern| pattern == "/*") {
        return Ok(());
    }
    // The only site whose requests the settings do not redirect to another host.
    let site = match of_host(&sites.hosts, own.as_bytes()) {
        Some(index) => Some(&sites.hosts[index].1),
        None => sites.main.as_ref(),
    };
    let Some((other, line)) = site.and_then(|SitePlan { plan, .. }| plan.rules.canonical_host()) else {
        return Ok(());
    };
    if bare(name(other)).eq_ignore_ascii_case(bare(own)) {
        return Ok(());
    }
    let rules = site.map_or("", |site| site.plan.rules.name());
    let file = settings.config.as_deref().and_then(Path::file_name);
    let file = file.map(|file| format!("{} or ", file.to_string_lossy())).unwrap_or_default();
    Err(format!(
        "{rules}:{line}: canonical_host {other:?} and canonical_host {own:?} of the settings ({file}--canonical-host) redirect to \
         each other for ever: remove one of them, or write the same name in both places"
    ))
}

/// Removes the port of a host.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    }
}

fn bare(name: &str) -> &str {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.trim_start_matches('[').trim_end_matches(']')
}
