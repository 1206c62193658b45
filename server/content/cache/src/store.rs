//! The cache's memory, shared by all front threads.
//!
//! Why `quick_cache` and neither moka nor foyer: all three keep frequently requested pages and survive a scan
//! of pages requested once. moka applies insertions and evictions later, from a queue, so it may briefly exceed its limit. `quick_cache` never exceeds its limit,
//! reports evicted entries, and takes a third of the time for a hit. foyer adds a disk engine that needs a
//! runtime with several threads. The site's caches already use `quick_cache`.
//!
//! Contract:
//! 1. [`Store::bytes`] never exceeds the limit. An entry counts with its key, fields, body, encoded forms,
//!    tags and bookkeeping.
//! 2. After [`Store::remove`] and [`Store::purge`], no response requested earlier returns, wherever it is at
//!    that moment ([`removals`]).
//!
//! [`removals`]: crate::removals

use crate::counts::Counts;
use crate::disk::Disk;
use crate::flight::Flights;
use crate::key;
use crate::policy::Policy;
use crate::purge::Purge;
use crate::removals::{Moment, Recent, Removals};
use crate::resource::Resource;
use crate::storable::{Refusal, Refused};
use crate::stored::Stored;
use net::memory::{self, MemoryClass};
use quick_cache::sync::Cache;
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The most variants of a resource. A client can create variants with fields that it makes up
/// (Accept-Language), so eviction does not simply take the oldest variant: see [`least_useful`].
const MOST_VARIANTS: usize = 32;

/// While memory is scarce, this part of the limit becomes free each [`SHRINK_PAUSE`].
const SHRINK: u64 = 8;

/// In this time memory is measured again.
const SHRINK_PAUSE: Duration = Duration::from_millis(200);

/// How long requests for a URL with an unshareable response are not collapsed.
const NOT_COLLAPSED: Duration = Duration::from_secs(30);

/// How long a stale response is sent without asking an origin again that has failed, or was slow.
const FAILING: Duration = Duration::from_secs(1);

/// The most URLs that are remembered for that.
const MOST_NOT_COLLAPSED: usize = 1 << 14;

/// The expected size of an entry, in bytes.
const TYPICAL: u64 = 8 << 10;

#[derive(Debug, Clone)]
struct ByBytes;

impl Weighter<Box<[u8]>, Arc<Resource>> for ByBytes {
    fn weight(&self, _: &Box<[u8]>, resource: &Arc<Resource>) -> u64 {
        resource.weight()
    }
}

/// Receives the key of each resource whose responses a request has removed.
type RemovalObserver = Box<dyn Fn(&[u8]) + Send + Sync>;

/// Counts evictions.
#[derive(Debug, Clone)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<Box<[u8]>, Arc<Resource>> for Evictions {
    type RequestState = ();

    fn begin_request(&self) -> Self::RequestState {}

    // Not `on_evict`, which is also called for replaced entries.
    fn before_evict(&self, (): &mut (), _: &Box<[u8]>, _: &mut Arc<Resource>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The kept responses of all front threads.
pub struct Store {
    memory: u64,
    resources: Cache<Box<[u8]>, Arc<Resource>, ByBytes, DefaultHashBuilder, Evictions>,
    /// Until when a URL is not collapsed.
    not_collapsed: Cache<Box<[u8]>, Instant>,
    /// Until when the origin of a URL counts as failing.
    failing: Cache<Box<[u8]>, Instant>,
    pub(crate) flights: Arc<Flights>,
    pub(crate) counts: Counts,
    evicted: Arc<AtomicU64>,
    disk: Option<Arc<Disk>>,
    /// The bytes that are counted for the memory of the process.
    counted: Counted,
    /// Locked while resources are changed.
    removals: Arc<Removals>,
    /// When this program began to serve, if it will inherit the kept responses of another program.
    inherits_since: Mutex<Option<Moment>>,
    /// Receives each key that is removed, once another program serves.
    successor: OnceLock<RemovalObserver>,
    /// When resources made room for memory last.
    shrunk: Mutex<Option<Instant>>,
    policy: RwLock<Arc<Policy>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// The counted bytes of a store, until it is dropped.
#[derive(Debug, Default)]
struct Counted(AtomicU64);

impl Counted {
    fn set(&self, bytes: u64) {
        memory::change(MemoryClass::Cache, self.0.swap(bytes, Ordering::Relaxed), bytes);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl Store {
    /// Creates a store of at most `memory` bytes.
    pub fn new(memory: u64, policy: Policy) -> Arc<Store> {
        Arc::new(Store::without_disk(memory, policy))
    }

    /// Creates a store of at most `memory` bytes that also writes its responses to a folder, at most `limit`
    /// bytes of files. `log` receives write errors.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn with_disk(
        memory: u64,
        policy: Policy,
        folder: &Path,
        limit: u64,
        log: Box<dyn Fn(&str) + Send>,
    ) -> Result<Arc<Store>, String> {
        let store = Store::without_disk(memory, policy);
        let disk = Some(Arc::new(Disk::open(folder, limit, log, store.removals.clone())?));
        Ok(Arc::new(Store { disk, ..store }))
    }

    fn without_disk(memory: u64, policy: Policy) -> Store {
        let evicted = Arc::new(AtomicU64::new(0));
        let items = usize::try_from(memory / TYPICAL).unwrap_or(usize::MAX).clamp(64, 1 << 20);
        // The shards share the memory equally, and an object must fit into one shard: so there are few.
        let shards = usize::try_from(memory / (4 * policy.max_object).max(1)).unwrap_or(1).clamp(1, 16);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(memory)
            .shards(shards)
            .build()
            .expect("capacity and weight are set");
        let hasher = DefaultHashBuilder::default();
        Store {
            memory,
            resources: Cache::with_options(options, ByBytes, hasher, Evictions(evicted.clone())),
            not_collapsed: Cache::new(MOST_NOT_COLLAPSED),
            failing: Cache::new(MOST_NOT_COLLAPSED),
            flights: Arc::default(),
            counts: Counts::default(),
            evicted,
            disk: None,
            counted: Counted::default(),
            removals: Arc::default(),
            inherits_since: Mutex::default(),
            successor: OnceLock::new(),
            shrunk: Mutex::default(),
            policy: RwLock::new(Arc::new(policy)),
        }
    }

    /// Returns the limit in bytes.
    pub fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the number of bytes that are held.
    pub fn bytes(&self) -> u64 {
        self.resources.weight()
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of evicted entries.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    pub(crate) fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the settings; kept responses stay.
    pub fn set_policy(&self, policy: Policy) {
        *self.policy.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Resource>> {
        self.resources.get(key)
    }

    /// Returns the present moment, for a request to the origin that begins.
    pub(crate) fn moment(&self) -> Moment {
        self.removals.now()
    }

    /// Adds a response requested at `moment`, replacing the variant that it renews. Returns false if the
    /// response was removed since; then it must not be used.
    pub(crate) fn put(&self, key: &[u8], stored: Arc<Stored>, moment: Moment) -> bool {
        let recent = self.removals.lock();
        if recent.cover(moment, key, stored.tags.iter()) {
            return false;
        }
        self.insert(key, stored, &recent);
        drop(recent);
        self.not_collapsed.remove(key);
        self.counts.stored();
        self.count();
        true
    }

    fn insert(&self, key: &[u8], stored: Arc<Stored>, recent: &Recent) {
        let mut variants = self.get(key).map(|resource| resource.variants.clone()).unwrap_or_default();
        let renewed = |other: &Arc<Stored>| other.selection == stored.selection;
        // Responses of the origin may overtake each other.
        if variants.iter().any(|other| renewed(other) && other.asked() > stored.asked()) {
            return;
        }
        variants.retain(|other| !renewed(other));
        if variants.len() >= MOST_VARIANTS {
            variants.remove(least_useful(&variants, Instant::now()));
        }
        variants.push(stored);
        let resource = Resource::new(key, variants);
        if let Some(disk) = &self.disk {
            disk.put(key, resource.clone(), recent.now());
        }
        self.resources.insert(key.into(), resource);
    }

    /// Counts the memory.
    fn count(&self) {
        self.counted.set(self.bytes());
    }

    /// Removes the least useful responses, because memory is scarce: an eighth of the limit at a time, until an eighth is left.
    #[cold]
    pub(crate) fn shrink(&self, now: Instant) {
        // If another thread holds the lock, it shrinks the store.
        let Ok(mut last) = self.shrunk.try_lock() else { return };
        let step = self.memory / SHRINK;
        let left = self.bytes().saturating_sub(step).max(step);
        if left >= self.bytes() || last.is_some_and(|last| now.saturating_duration_since(last) < SHRINK_PAUSE)
        {
            return;
        }
        *last = Some(now);
        // The cost follows from what goes, not from what is kept.
        self.resources.set_capacity(left);
        self.resources.set_capacity(self.memory);
        self.count();
    }

    /// Counts an entry again after it has grown.
    pub(crate) fn weigh_again(&self, key: &[u8]) {
        let _changes = self.removals.lock();
        if let Some(resource) = self.get(key) {
            self.resources.insert(key.into(), Resource::new(key, resource.variants.clone()));
            self.count();
        }
    }

    /// Removes what is kept for a key: scheme, host, path and query. Returns whether there was something.
    pub fn remove(&self, key: &[u8]) -> bool {
        let removed = self.take(key, &mut self.removals.lock());
        self.count();
        removed
    }

    /// Removes a resource, and adds the response to the unsafe request that changed it, requested at
    /// `moment`. Returns whether the resource was kept.
    pub(crate) fn replace(&self, key: &[u8], stored: Arc<Stored>, moment: Moment) -> bool {
        let mut recent = self.removals.lock();
        let is_old = recent.cover(moment, key, stored.tags.iter());
        let removed = self.take(key, &mut recent);
        if !is_old {
            self.insert(key, stored, &recent);
            self.counts.stored();
        }
        drop(recent);
        self.count();
        removed
    }

    fn take(&self, key: &[u8], recent: &mut Recent) -> bool {
        // First the file: a load that begins after the removal must not find it any more.
        let on_disk = self.disk.as_ref().is_some_and(|disk| disk.remove(key));
        self.removals.remove(key, recent);
        if let Some(tell) = self.successor.get() {
            tell(key);
        }
        let in_memory = self.resources.remove(key).is_some();
        in_memory || on_disk
    }

    /// Calls `tell` with each key whose responses are removed from now on because a request has changed the
    /// resource. Only the first call has an effect.
    pub fn tell_removals(&self, tell: impl Fn(&[u8]) + Send + Sync + 'static) {
        let _ = self.successor.set(Box::new(tell));
    }

    /// Returns whether the resource is on disk but not in memory.
    pub(crate) fn is_on_disk(&self, key: &[u8]) -> bool {
        self.disk.as_ref().is_some_and(|disk| disk.has(key))
    }

    /// Reads a resource from the folder into memory.
    pub(crate) async fn load(&self, key: &[u8]) -> Option<Arc<Resource>> {
        let (disk, wanted, moment) = (self.disk.clone()?, Box::<[u8]>::from(key), self.moment());
        let variants = tokio::task::spawn_blocking(move || disk.load(&wanted)).await.ok()??;
        let resource = Resource::new(key, variants.into_iter().map(Arc::new).collect());
        // A response that arrived in between is newer.
        if self.add(key, resource.clone(), moment) { Some(resource) } else { self.get(key) }
    }

    pub(crate) fn inherits_since(&self) -> MutexGuard<'_, Option<Moment>> {
        self.inherits_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns all that is in memory.
    pub(crate) fn in_memory(&self) -> impl Iterator<Item = (Box<[u8]>, Arc<Resource>)> {
        self.resources.iter()
    }

    /// Adds a resource that is not there and was not removed since the moment. Returns whether it was added.
    pub(crate) fn add(&self, key: &[u8], resource: Arc<Resource>, since: Moment) -> bool {
        let recent = self.removals.lock();
        let tags = resource.variants.iter().flat_map(|stored| stored.tags.iter());
        let adds = self.resources.peek(key).is_none() && !recent.cover(since, key, tags);
        if adds {
            self.resources.insert(key.into(), resource);
            self.count();
        }
        adds
    }

    /// Returns the number and the bytes of the files, and the number of responses not written because the
    /// disk was behind; `None` without a folder.
    pub fn disk(&self) -> Option<DiskFigures> {
        let disk = self.disk.as_ref()?;
        Some(DiskFigures { files: disk.len() as u64, bytes: disk.bytes(), skipped: disk.skipped() })
    }

    /// Notes that a response may not be shared.
    pub(crate) fn refuse(&self, key: &[u8], refused: Refused, now: Instant) {
        let Refused { why, by_request } = refused;
        self.counts.refused(why);
        if !by_request && !matches!(why, Refusal::Incomplete | Refusal::Invalidated | Refusal::Memory) {
            self.part(key, now);
        }
    }

    /// Stops collapsing requests for this key for a while.
    pub(crate) fn part(&self, key: &[u8], now: Instant) {
        self.not_collapsed.insert(key.into(), now + NOT_COLLAPSED);
    }

    /// Returns whether requests for this key are collapsed.
    pub(crate) fn collapses(&self, key: &[u8], now: Instant) -> bool {
        self.not_collapsed.get(key).is_none_or(|until| now >= until)
    }

    /// Notes that the origin has failed for a URL, or was slow.
    pub(crate) fn fail(&self, key: &[u8], now: Instant) {
        self.failing.insert(key.into(), now + FAILING);
    }

    /// Returns whether the origin has failed for a URL a moment ago.
    pub(crate) fn is_failing(&self, key: &[u8], now: Instant) -> bool {
        self.failing.get(key).is_some_and(|until| now < until)
    }

    /// Removes matching resources. Returns their number.
    ///
    /// The purge is recorded first, so that no earlier response comes back. Then one resource after the other is
    /// compared, without a lock for all of them: other threads keep reading and adding, however many resources
    /// there are.
    pub fn purge(&self, purge: &Purge) -> usize {
        let begin = || self.removals.purge(purge, &mut self.removals.lock());
        begin();
        let on_disk = self.disk.as_ref().map_or(0, |disk| disk.purge(purge));
        if self.disk.is_some() {
            // A load that has begun since may have found a file before it was purged.
            begin();
        }
        let in_memory = self.sweep(purge).filter(|removed| *removed).count();
        // Resources in memory may be on the disk, too.
        let removed = in_memory.max(on_disk);
        self.count();
        self.counts.purged(removed as u64);
        removed
    }

    /// Compares one resource at each step, and removes it if the purge matches. Yields whether it did.
    fn sweep<'a>(&'a self, purge: &'a Purge) -> impl Iterator<Item = bool> + 'a {
        let matches = |key: &[u8], resource: &Resource| {
            purge.matches(key, || resource.variants.iter().flat_map(|stored| stored.tags.iter()))
        };
        self.resources.iter().map(move |(key, resource)| {
            if !matches(&key, &resource) {
                return false;
            }
            // Another thread may have put variants beside the purged ones, or in their place.
            let _changes = self.removals.lock();
            let is_purged = self.resources.peek(&key).is_some_and(|resource| matches(&key, &resource));
            is_purged && self.resources.remove(&key).is_some()
        })
    }

    /// Waits until the files of removed resources are deleted from the folder, and earlier responses are
    /// written.
    pub async fn flushed(&self) {
        if let Some(disk) = &self.disk {
            disk.flushed().await;
        }
    }

    /// Returns the key of the most requested resource with this path and query, on any host.
    pub fn key_of(&self, path: &str) -> Option<String> {
        let hits = |resource: &Resource| {
            resource.variants.iter().map(|stored| stored.hits.load(Ordering::Relaxed)).sum::<u64>()
        };
        let matching = self.resources.iter().filter(|(key, _)| key::path(key) == path.as_bytes());
        let most = matching.max_by_key(|(_, resource)| hits(resource));
        most.map(|(key, _)| String::from_utf8_lossy(&key).into_owned())
    }

    /// Returns the variants that are kept for a key.
    pub fn kept(&self, key: &str) -> Vec<Kept> {
        let now = Instant::now();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let of = |stored: &Arc<Stored>| Kept {
            status: stored.status,
            bytes: stored.body.len() as u64,
            age: stored.age(now),
            lifetime: stored.lifetime,
            because: ["cdn-cache-control", "cache-control", "expires", "last-modified"]
                .iter()
                .find_map(|name| Some(format!("{name}: {}", text(stored.head.get(name)?))))
                .unwrap_or_default(),
            varies_by: stored
                .selection
                .pairs()
                .map(|(name, value)| format!("{}: {}", text(name), value.map_or("none".to_owned(), text)))
                .collect(),
            tags: stored.tags.iter().map(|tag| text(tag)).collect(),
        };
        self.get(key.as_bytes())
            .map(|resource| resource.variants.iter().map(of).collect())
            .unwrap_or_default()
    }

    /// Returns the kept resources with their keys and sizes, the largest first, at most `most`.
    pub fn list(&self, most: usize) -> Vec<Listed> {
        let now = Instant::now();
        let mut listed: Vec<Listed> = self
            .resources
            .iter()
            .map(|(key, resource)| Listed {
                bytes: resource.weight(),
                key: String::from_utf8_lossy(&key).into_owned(),
                variants: resource.variants.len(),
                hits: resource.variants.iter().map(|stored| stored.hits.load(Ordering::Relaxed)).sum(),
                fresh_for: resource
                    .variants
                    .iter()
                    .map(|stored| stored.lifetime.saturating_sub(stored.age(now)))
                    .max()
                    .unwrap_or_default(),
            })
            .collect();
        listed.sort_by(|one, other| other.hits.cmp(&one.hits).then(other.bytes.cmp(&one.bytes)));
        listed.truncate(most);
        listed
    }
}

/// Returns the index of the variant to evict: a stale one before fresh ones; among these the least often
/// sent, and of several such the oldest.
fn least_useful(variants: &[Arc<Stored>], now: Instant) -> usize {
    let use_of = |stored: &Stored| (stored.age(now) < stored.lifetime, stored.hits.load(Ordering::Relaxed));
    variants.iter().enumerate().min_by_key(|(_, stored)| use_of(stored)).map_or(0, |(at, _)| at)
}

/// A kept response, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub status: u16,
    /// Of its body.
    pub bytes: u64,
    pub age: Duration,
    pub lifetime: Duration,
    /// The field that states its lifetime.
    pub because: String,
    /// The fields that select it.
    pub varies_by: Vec<String>,
    pub tags: Vec<String>,
}

/// The state of the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFigures {
    pub files: u64,
    pub bytes: u64,
    pub skipped: u64,
}

/// A kept resource in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Scheme, host, path and query.
    pub key: String,
    pub bytes: u64,
    pub variants: usize,
    pub hits: u64,
    /// How long its freshest variant is fresh.
    pub fresh_for: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::storable::judge;
    use crate::stored::Arrival;
    use crate::summary::FieldSummary;
    use handler::testing::request;
    use handler::{Body, Fields, Response};
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::time::SystemTime;

    fn stored(size: usize, asked: &[(&str, &str)], vary: &str) -> Arc<Stored> {
        let mut fields = Fields::default();
        fields.push(b"Cache-Control", b"max-age=60");
        fields.push(b"Vary", vary.as_bytes());
        fields.push(b"Cache-Tag", b"all");
        let body = bytes::Bytes::from(vec![b'x'; size]);
        let request = request("GET", "/", asked);
        let response = Response::new(200, fields, Body::Bytes(body.clone()));
        let plan = judge(&request, &response, &Policy::default(), SystemTime::now()).unwrap();
        let arrival = Arrival::now(Instant::now(), Moment::default());
        Arc::new(Stored::new(200, &response.fields, body, &plan, &request, arrival))
    }

    #[test]
    fn a_variant_takes_the_place_of_the_one_that_it_renews() {
        let store = Store::new(1 << 20, Policy::default());
        for (language, size) in [("en", 10), ("de", 20), ("en", 30)] {
            store.put(
                b"http://a/",
                stored(size, &[("Accept-Language", language)], "Accept-Language"),
                store.moment(),
            );
        }
        let resource = store.get(b"http://a/").unwrap();
        let size = |language| {
            let request = request("GET", "/", &[("Accept-Language", language)]);
            let summary = FieldSummary::of(&request.fields);
            resource.variant(&request.fields, summary).map(|stored| stored.body.len())
        };
        assert_eq!(
            (size("en"), size("de"), size("fr"), resource.variants.len()),
            (Some(30), Some(20), None, 2)
        );
    }

    #[test]
    fn variants_that_nobody_else_asks_for_displace_each_other() {
        let store = Store::new(8 << 20, Policy::default());
        let of = |language: &str| stored(10, &[("Accept-Language", language)], "Accept-Language");
        let real = of("en");
        store.put(b"http://a/", real.clone(), store.moment());
        real.hits.fetch_add(1, Ordering::Relaxed);
        for made_up in 0..1000 {
            store.put(b"http://a/", of(&format!("x-{made_up}")), store.moment());
        }
        let resource = store.get(b"http://a/").unwrap();
        assert_eq!(resource.variants.len(), MOST_VARIANTS);
        assert!(resource.variants.iter().any(|stored| Arc::ptr_eq(stored, &real)));
    }

    #[test]
    fn a_response_that_was_asked_for_earlier_comes_too_late() {
        let store = Store::new(1 << 20, Policy::default());
        let (first, second) = (stored(10, &[], ""), stored(20, &[], ""));
        store.put(b"http://a/", second, store.moment());
        store.put(b"http://a/", first, store.moment());
        assert_eq!(store.get(b"http://a/").unwrap().variants[0].body.len(), 20);
    }

    #[test]
    fn a_scan_does_not_displace_what_is_asked_for_often() {
        let store = Store::new(1 << 20, Policy { max_object: 64 << 10, ..Policy::default() });
        let key = |number: usize| format!("http://a/{number}").into_bytes();
        for number in 0..20 {
            store.put(&key(number), stored(10_000, &[], ""), store.moment());
        }
        for _ in 0..20 {
            (0..20).for_each(|number| drop(store.get(&key(number))));
        }
        for number in 1000..3000 {
            store.put(&key(number), stored(10_000, &[], ""), store.moment());
            // Frequently requested pages are also requested during the scan.
            store.get(&key(number % 20));
        }
        let left = (0..20).filter(|number| store.get(&key(*number)).is_some()).count();
        assert!(left >= 16, "{left} of 20 are left");
        assert!(store.evicted() > 1000 && store.bytes() <= 1 << 20);
        let evicted = store.evicted();
        store.put(&key(0), stored(10, &[], ""), store.moment());
        store.put(&key(0), stored(10, &[], ""), store.moment());
        assert!(store.evicted() <= evicted + 1, "a replaced entry is none that had to make room");
    }

    #[test]
    fn scarce_memory_takes_a_part_at_a_time_however_many_responses_are_refused() {
        let store = Store::new(1 << 20, Policy::default());
        let key = |number: usize| format!("http://a/{number}").into_bytes();
        let fill = || {
            (0..1000).for_each(|number| _ = store.put(&key(number), stored(2000, &[], ""), store.moment()))
        };
        fill();
        let (full, step, now) = (store.bytes(), 1 << 17, Instant::now());
        assert!(full > 7 * step, "{full}");
        let near = |bytes: u64| store.bytes() <= bytes && store.bytes() > bytes - (1 << 13);
        (0..36).for_each(|_| store.shrink(now));
        assert!(near(full - step), "{}", store.bytes());
        store.shrink(now + SHRINK_PAUSE);
        assert!(near(full - 2 * step), "{}", store.bytes());
        (2..50).for_each(|turn| store.shrink(now + SHRINK_PAUSE * turn));
        assert!(near(step), "{}", store.bytes());
        let evicted = store.evicted();
        store.shrink(now + SHRINK_PAUSE * 50);
        assert_eq!(store.evicted(), evicted, "an eighth stays");
        fill();
        assert!(store.bytes() > 7 * step, "it fills again: {}", store.bytes());
    }

    #[test]
    fn entries_that_have_grown_are_counted_again() {
        let store = Store::new(1 << 20, Policy::default());
        let one = stored(1000, &[], "");
        store.put(b"http://a/", one.clone(), store.moment());
        let before = store.bytes();
        one.forms.set(representation::coding::Coding::Gzip, Some(vec![0; 500].into()));
        store.weigh_again(b"http://a/");
        assert_eq!(store.bytes(), before + 500);
        store.remove(b"http://a/");
        assert_eq!(store.bytes(), 0);
    }

    #[test]
    fn a_purge_holds_no_lock_between_two_resources() {
        let store = Store::new(8 << 20, Policy::default());
        let key = |number: usize| format!("http://a/{number}").into_bytes();
        let before = store.moment();
        (0..100).for_each(|number| _ = store.put(&key(number), stored(10, &[], ""), before));
        let purge = Purge::Tag("all".to_owned());
        store.removals.purge(&purge, &mut store.removals.lock());
        let mut sweep = store.sweep(&purge);
        assert_eq!(sweep.next(), Some(true));
        assert!(store.removals.try_lock().is_some());
        assert!(!store.put(&key(200), stored(10, &[], ""), before), "it was asked for before the purge");
        for number in 0..100 {
            store.weigh_again(&key(number));
            assert!(store.put(&key(1000 + number), stored(10, &[], ""), store.moment()));
        }
        assert!(sweep.filter(|removed| *removed).count() >= 99);
        assert!((0..100).all(|number| store.get(&key(number)).is_none()));
    }

    /// Other threads put, weigh and load responses while this thread removes them.
    #[test]
    fn what_is_removed_does_not_come_back_from_another_thread() {
        const KEY: &[u8] = b"http://example.org/";
        let dir = tempfile::tempdir().unwrap();
        let store =
            Store::with_disk(1 << 20, Policy::default(), dir.path(), 1 << 20, Box::new(|_| {})).unwrap();
        // The version of the page is the size of its body.
        let (version, over) = (AtomicUsize::new(1), AtomicBool::new(false));
        let until_over = |step: &dyn Fn()| {
            while !over.load(Ordering::Relaxed) {
                step();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until_over(&|| {
                    let moment = store.moment();
                    let stored = stored(version.load(Ordering::SeqCst), &[], "");
                    store.put(KEY, stored, moment);
                    std::thread::sleep(Duration::from_micros(50));
                });
            });
            scope.spawn(|| until_over(&|| store.weigh_again(KEY)));
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                until_over(&|| {
                    store.resources.remove(KEY);
                    drop(runtime.block_on(store.load(KEY)));
                });
            });
            for number in 0..3000 {
                let new = version.fetch_add(1, Ordering::SeqCst) + 1;
                match number % 3 {
                    0 => _ = store.remove(KEY),
                    1 => _ = store.purge(&Purge::Path("/".to_owned())),
                    _ => _ = store.purge(&Purge::Tag("all".to_owned())),
                }
                for _ in 0..200 {
                    let kept = store.get(KEY).map(|resource| resource.variants[0].body.len());
                    if kept.is_some_and(|kept| kept < new) {
                        over.store(true, Ordering::Relaxed);
                        panic!("version {kept:?} after the removal of all before {new}");
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn the_limit_is_never_exceeded(sizes in prop::collection::vec((0_usize..40, 0_usize..200_000), 1..200)) {
            let store = Store::new(1 << 20, Policy { max_object: 256 << 10, ..Policy::default() });
            for (number, size) in sizes {
                store.put(format!("http://a/{number}").as_bytes(), stored(size, &[], ""), store.moment());
                prop_assert!(store.bytes() <= store.memory());
            }
            prop_assert_eq!(store.purge(&Purge::Tag("all".into())) > 0, true);
            prop_assert_eq!(store.bytes(), 0);
        }
    }
}
