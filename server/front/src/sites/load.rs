//! Turns settings into sites. No other code reads `static.json` and the password file.

use super::{SitePlan, Sites, canonical};
use crate::file_state::{FileStamp, stamp};
use auth::Users;
use proxy::{Origin, Upstreams};
use settings::{Settings, Site, TrustedProxies};
use site::rules::{OriginScheme, ProxyRule, RuleMistake, RuleNote, Rules};
use site::{CacheBounds, SiteConfig};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files that are never served, wherever the root is.
const CONFIGURATION: [&str; 2] = ["firebrick.toml", "config.ru"];

/// Reads the files of all sites. Also returns notes about rules that are valid but probably not intended.
///
/// # Errors
/// All errors, one after the other, each with its file and line.
pub(crate) fn load(settings: &Settings) -> Result<(Sites, Vec<RuleNote>), String> {
    let mut notes = Vec::new();
    let mut sources = Vec::new();
    let mut main = None;
    if let Some(site) = &settings.sites.main {
        main = Some(one(settings, site, settings.app.is_some(), &mut notes, &mut sources)?);
    }
    let mut hosts = Vec::new();
    for host in &settings.sites.hosts {
        hosts.push((host.host.clone(), one(settings, &host.site, false, &mut notes, &mut sources)?));
    }
    let sites = Sites { main, hosts, sources };
    canonical::agree(settings, &sites)?;
    Ok((sites, notes))
}

/// Returns whether the same files lead to the same sites under these settings.
pub(crate) fn agree(one: &Settings, other: &Settings) -> bool {
    let same_app =
        (one.app.is_some(), &one.files, &one.https) == (other.app.is_some(), &other.files, &other.https);
    same_app
        && one.sites == other.sites
        && one.rack.trusted_proxies == other.rack.trusted_proxies
        && one.limits.max_connections == other.limits.max_connections
}

/// Reads the rules of a site, with notes about rules that are valid but probably not intended.
///
/// # Errors
/// See [`load`].
pub(crate) fn rules(site: &Site) -> Result<(Rules, Vec<RuleNote>), String> {
    let variables = |name: &str| std::env::var(name).ok();
    let parsed = match &site.static_json {
        Some(path) => {
            let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let text =
                String::from_utf8(text).map_err(|_| format!("{}: expected text in UTF-8", path.display()))?;
            Rules::parse(&shown(path, &site.dir), &text, &variables)
                .map_err(|mistakes| lines::<RuleMistake>(&mistakes))?
        }
        None => Rules::from_variables(&variables),
    };
    Ok((parsed.rules, parsed.notes))
}

/// Returns the directory of a site's files.
pub(crate) fn root(settings: &Settings, site: &Site, rules: &Rules) -> PathBuf {
    let default = || site.dir.join("public_html");
    let before_app = settings.app.is_some() && settings.sites.main.as_ref() == Some(site);
    let path = match (&site.root, rules.root()) {
        (Some(root), _) => root.clone(),
        (None, Some(root)) => site.dir.join(root),
        (None, None) if before_app => {
            settings.files.public.clone().unwrap_or_else(|| site.dir.join("public"))
        }
        (None, None) if site.static_json.is_some() && (rules.compat() || default().is_dir()) => default(),
        (None, None) => site.found.clone().unwrap_or_else(default),
    };
    path.components().collect()
}

fn one(
    settings: &Settings,
    site: &Site,
    before_app: bool,
    notes: &mut Vec<RuleNote>,
    sources: &mut Vec<(PathBuf, FileStamp)>,
) -> Result<SitePlan, String> {
    sources.extend(site.static_json.clone().map(|path| (path.clone(), stamp(&path))));
    let (mut rules, more) = rules(site)?;
    notes.extend(more);
    // In front of an app, the app has the paths without a file.
    rules.show_more(settings.sites.pages.browse, settings.sites.pages.spa && !before_app);
    let root = root(settings, site, &rules);
    let upstreams = rules.proxies().iter().map(|rule| upstreams(rule, site, &settings.rack.trusted_proxies));
    // A note, for example about an unset variable, is often the reason for the error.
    let why = |error: String| notes.iter().map(|note| format!("{note}\n")).chain([error]).collect::<String>();
    let upstreams = upstreams.collect::<Result<_, _>>().map_err(why)?;
    let users = users(&rules, site, sources)?;
    let configuration = CONFIGURATION.map(|name| site.dir.join(name));
    let private = configuration
        .iter()
        .chain(sources.iter().map(|(path, _)| path))
        .filter_map(|path| below(path, &root))
        .collect();
    let plan =
        SiteConfig { root, rules: Arc::new(rules), users, before_app, private, bounds: bounds(settings) };
    // The pages of an app are not this server's to change.
    let live = settings.sites.pages.live_reload && settings.app.is_none();
    Ok(SitePlan { plan, upstreams, live })
}

/// Returns the limits of one front thread's caches. Connections take precedence: files get the remaining
/// descriptors, but at least a quarter of all.
pub(crate) fn bounds(settings: &Settings) -> CacheBounds {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let left = limit.saturating_sub(settings.limits.max_connections as u64 + OTHER_DESCRIPTORS);
    let share = left.max(limit / 4) / u64::from(settings.front_threads.max(1));
    let files = settings.sites.cache.open_files.min(usize::try_from(share).unwrap_or(usize::MAX)).max(16);
    CacheBounds { files, bytes: settings.sites.cache.cache_memory }
}

/// Descriptors for listeners, logs, event loops and others.
const OTHER_DESCRIPTORS: u64 = 128;

fn users(
    rules: &Rules,
    site: &Site,
    sources: &mut Vec<(PathBuf, FileStamp)>,
) -> Result<Option<Arc<Users>>, String> {
    let Some(basic_auth) = rules.basic_auth() else { return Ok(None) };
    let path = site.dir.join(basic_auth.htpasswd_path.as_deref().unwrap_or(".htpasswd"));
    sources.push((path.clone(), stamp(&path)));
    let mut users = Users::default();
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            users = Users::parse(&shown(&path, &site.dir), &text).map_err(|mistakes| lines(&mistakes))?
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && basic_auth.user.is_some() => {}
        Err(error) => {
            return Err(format!(
                "{}: {error}; basic_auth needs this file, or BASIC_AUTH_USERNAME and BASIC_AUTH_PASSWORD",
                path.display()
            ));
        }
    }
    if let Some((user, hash)) = &basic_auth.user {
        users = users.with(user, hash).map_err(|mistake| mistake.to_string())?;
    }
    Ok(Some(Arc::new(users)))
}

fn upstreams(rule: &ProxyRule, site: &Site, trusted: &TrustedProxies) -> Result<Arc<Upstreams>, String> {
    let name = format!("proxies {:?}", rule.prefix);
    let place = |problem: String| match &site.static_json {
        Some(path) => format!("{}:{}: {name}: {problem}", shown(path, &site.dir), rule.line),
        None => format!("{name}: {problem}"),
    };
    let origins = rule.origins.iter().map(|origin| Origin::parse(&without_base(origin)).map_err(&place));
    let origins = origins.collect::<Result<Vec<_>, _>>()?;
    let trusted = trusted.clone();
    let config = proxy::ProxyConfig {
        balance: rule.balance,
        connect_timeout: rule.connect_timeout,
        read_timeout: rule.read_timeout,
        send_timeout: rule.send_timeout,
        retries: rule.retries,
        max_idle: rule.max_idle,
        host: rule.host,
        forwarded: rule.forwarded,
        via: rule.via,
        websocket: rule.websocket,
        tls_verify: rule.tls_verify,
        tls_ca: rule.tls_ca.as_ref().map(|path| site.dir.join(path)),
        health: rule.health.clone(),
        trusted: Arc::new(move |peer| trusted.trusts(peer.remote.ip())),
        ..proxy::ProxyConfig::new(name.clone(), origins)
    };
    Upstreams::new(config).map_err(place)
}

/// Returns the origin's address. Its base path is part of the target that the rules create.
fn without_base(origin: &site::rules::ProxyOrigin) -> String {
    let host = if origin.host.contains(':') { format!("[{}]", origin.host) } else { origin.host.clone() };
    let port = origin.port.map(|port| format!(":{port}")).unwrap_or_default();
    match origin.scheme {
        OriginScheme::Http => format!("http://{host}{port}"),
        OriginScheme::Https => format!("https://{host}{port}"),
        OriginScheme::Unix => format!("unix:{}", origin.host),
    }
}

/// Returns a path for messages, relative to the site's directory if it is below.
fn shown(path: &Path, dir: &Path) -> String {
    path.strip_prefix(dir).unwrap_or(path).display().to_string()
}

fn below(path: &Path, root: &Path) -> Option<String> {
    path.strip_prefix(root).ok().map(|name| name.to_string_lossy().into_owned())
}

fn lines<M: Display>(mistakes: &[M]) -> String {
    mistakes.iter().map(M::to_string).collect::<Vec<_>>().join("\n")
}
