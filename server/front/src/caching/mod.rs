//! Connects the cache with the settings and with the sources of its responses: the app, or an origin of a
//! site.

mod purges;

pub(crate) use purges::SharedPurges;

use crate::error_log::ErrorLog;
use cache::{Kept, Listed, Origin, Policy, Purge, RouteCount, Store};
use control::cache::PurgeOrder;
use handler::{Exchange, Response};
use proxy::Proxy;
use settings::Settings;
use stats::{CacheLookup, CacheRefusal, CacheReport, CacheResource, CacheRoute, CacheSnapshot, CacheVariant};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// Creates the store; `None` if the cache is off.
///
/// # Errors
/// `cache.disk` cannot be used.
pub(crate) fn store(settings: &Settings, log: &Arc<ErrorLog>) -> Result<Option<Arc<Store>>, String> {
    let Some(memory) = settings.cache.memory else { return Ok(None) };
    let policy = policy(settings);
    let Some(folder) = &settings.cache.disk else { return Ok(Some(Store::new(memory, policy))) };
    let log = log.clone();
    let log = Box::new(move |what: &str| log.write(what));
    Store::with_disk(memory, policy, folder, settings.cache.disk_size, log).map(Some)
}

/// Returns the settings of the cache.
pub(crate) fn policy(settings: &Settings) -> Policy {
    let (cache, compression) = (&settings.cache, &settings.compression);
    Policy {
        max_object: cache.max_object,
        heuristic: cache.heuristic,
        stale_while_revalidate: cache.stale_while_revalidate,
        stale_if_error: cache.stale_if_error,
        stale_if_slow: cache.stale_if_slow,
        collapse_wait: cache.collapse_wait,
        sort_query: cache.sort_query,
        cookies: cache.cookies,
        authorization: cache.authorization,
        trusted: settings.rack.trusted_proxies.clone(),
        client_control: cache.client_control,
        status_field: cache.status,
        compress_from: compression.responses.then_some(compression.min_length),
    }
}

/// Returns the figures for `/stats`.
pub(crate) fn snapshot(store: &Store) -> CacheSnapshot {
    let counts = store.counts();
    CacheSnapshot {
        limit_bytes: store.memory(),
        used_bytes: store.bytes(),
        resources: store.len() as u64,
        hits: counts.hits(),
        stale: counts.stale(),
        validated: counts.validated(),
        collapsed: counts.collapsed(),
        misses: counts.misses(),
        stored: counts.kept(),
        renewed: counts.renewals(),
        evicted: store.evicted(),
        purged: counts.purges(),
        invalidated: counts.invalidations(),
        disk_files: store.disk().map(|disk| disk.files),
        disk_bytes: store.disk().map(|disk| disk.bytes),
        disk_skipped: store.disk().map(|disk| disk.skipped),
        refused: counts
            .refusals()
            .map(|(reason, count)| CacheRefusal { reason: reason.to_owned(), count })
            .collect(),
    }
}

/// Returns the report of `firebrick cache` with at most `limit` routes and resources.
pub(crate) fn report(store: &Store, limit: usize) -> CacheReport {
    let route = |count: RouteCount| CacheRoute {
        route: count.route,
        hits: count.hits,
        misses: count.misses,
        refused: count.refused.map(str::to_owned),
    };
    let resource = |listed: Listed| CacheResource {
        url: listed.key,
        bytes: listed.bytes,
        variants: listed.variants as u64,
        hits: listed.hits,
        fresh_s: listed.fresh_for.as_secs_f64(),
    };
    CacheReport {
        cache: snapshot(store),
        routes: store.counts().routes().into_iter().take(limit).map(route).collect(),
        resources: store.list(limit).into_iter().map(resource).collect(),
    }
}

/// Returns the kept responses for a key (scheme, host, path and query), or for a path on any host.
pub(crate) fn lookup(store: &Store, url: &str) -> CacheLookup {
    let of_path = url.starts_with('/').then(|| store.key_of(url)).flatten();
    let key = of_path.as_deref().unwrap_or(url);
    let variant = |kept: Kept| CacheVariant {
        status: kept.status,
        bytes: kept.bytes,
        age_s: kept.age.as_secs_f64(),
        lifetime_s: kept.lifetime.as_secs_f64(),
        because: kept.because,
        varies_by: kept.varies_by,
        tags: kept.tags,
    };
    CacheLookup {
        key: key.to_owned(),
        variants: store.kept(key).into_iter().map(variant).collect(),
        refused: store.counts().last_refusal(key.as_bytes()).map(str::to_owned),
    }
}

/// Carries out an order of `firebrick cache purge`. Returns the number of removed resources.
///
/// # Errors
/// A path is invalid; nothing was removed.
pub(crate) fn carry_out(store: &Store, order: &PurgeOrder) -> Result<u64, String> {
    let all = order.all.then_some(Ok(Purge::All)).into_iter();
    let paths = order.paths.iter().map(|path| Purge::parse(path));
    let tags = order.tags.iter().map(|tag| Ok(Purge::Tag(tag.clone())));
    let purges: Vec<Purge> = all.chain(paths).chain(tags).collect::<Result<_, String>>()?;
    Ok(purges.iter().map(|purge| store.purge(purge) as u64).sum())
}

/// The origin of a proxied request.
pub(crate) struct Proxied {
    pub(crate) proxy: Rc<Proxy>,
    pub(crate) target: Vec<u8>,
}

impl Origin for Proxied {
    fn call(self: Rc<Self>, exchange: Exchange) -> Pin<Box<dyn Future<Output = Response>>> {
        Box::pin(async move { self.proxy.forward(exchange, self.target.clone()).await })
    }
}
