//! Releases: everything that was read from the app's folder, together, at one moment.
//!
//! Contract:
//! 1. [`Releases::read`] reads a release once, through the path as it was typed. Its id comes with the order
//!    to read it. `puma.rb` is evaluated later, by the template; its calls complete the values that were read
//!    ([`Releases::evaluated`]), and nothing is read again.
//! 2. A release does not change. The declarations of its app ([`Releases::declared`]), and changed rules or
//!    handlers on disk, make another value with the same id.
//! 3. Front threads get all parts of a release in one message ([`Releases::watch`]). A request is served by
//!    the release that was in force when it arrived.
//! 4. A release goes into force by its id ([`Releases::put_in_force`]): the one that was read for a reload,
//!    or the one before, for an undo. Both are kept until the next one is read. A reload that has waited is
//!    read before the front has put the release of the last one in force, so the order names that one.
//! 5. While a release is being tried, its files are served where the release in force has no such file,
//!    because its first workers refer to them.
//! 6. Changes of the running server ([`Releases::apply`]) are in force on top of each release, also of one that
//!    is read or comes back while they are in force. They make another value with the same id.
//! 7. [`watch_sites`] and [`watch_handlers`] replace the rules and the handlers of the release in force when
//!    their files change.

mod merge;
pub(crate) mod watch_handlers;
pub(crate) mod watch_sites;

use crate::public;
use crate::scripts::{self, Edition};
use crate::sites::{self, Sites};
use crate::warm_up::RecentRequests;
use merge::{at_once, merge, takes_restart};
use settings::puma::Call;
use settings::{AccessLog, Bind, Choice, Loaded, RunningValue, Service, Settings, ValueSource};
use site::AppFiles;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::watch;
use workers::ReleaseId;
use workers::reconciler::FIRST_RELEASE;

/// Loads the settings of `serve` again.
pub trait Rereads {
    /// Loads the settings with the arguments and the directory (as typed) of the start.
    ///
    /// # Errors
    /// The mistakes in them.
    fn read(&self) -> Result<Loaded, String>;

    /// Completes settings by the calls of the `puma.rb` that they name.
    ///
    /// # Errors
    /// The mistakes in them.
    fn evaluated(&self, loaded: &Loaded, calls: &[Call]) -> Result<Loaded, String>;

    /// Returns the settings with values that replace their own.
    ///
    /// # Errors
    /// The mistakes in them.
    fn changed(&self, loaded: &Loaded, values: &[RunningValue]) -> Result<Loaded, String>;
}

pub type Reread = Rc<dyn Rereads>;

/// Everything that was read from the app's folder at one moment.
#[derive(Clone)]
pub(crate) struct Release {
    pub(crate) id: ReleaseId,
    /// The settings in which this release is served: its own, where they take effect without a restart.
    pub(crate) settings: Arc<Settings>,
    pub(crate) sites: Arc<Sites>,
    /// The mruby handlers; `None` if no route uses any.
    pub(crate) handlers: Option<Arc<Edition>>,
    /// The app's files that the front serves. Empty until the app is loaded.
    pub(crate) files: Arc<AppFiles>,
    /// The services that the app has declared.
    pub(crate) services: Vec<Service>,
    /// Sentences for the log when the release goes into force.
    notes: Vec<String>,
    /// The settings as they were read, without the changes of the running server.
    loaded: Arc<Loaded>,
    /// The number of changes of the running server when its settings were made.
    changes: u64,
    /// The most threads of the workers that are started for it. Changes of the running server do not change that.
    threads: u16,
}

/// Settings with changes of the running server that fit together.
pub(crate) struct TriedChanges {
    values: Vec<RunningValue>,
    /// For the values as they are written, and their sources.
    pub(crate) loaded: Loaded,
    pub(crate) settings: Arc<Settings>,
    /// Sentences about what only a reload applies.
    pub(crate) notes: Vec<String>,
}

/// The release that front threads serve, and the files of a release that is being tried.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) release: Arc<Release>,
    /// The files of a release that is being tried.
    pub(crate) tried: Option<Arc<AppFiles>>,
}

/// The releases that serve, are being loaded, or can be returned to.
pub(crate) struct Releases {
    reread: Reread,
    serving: watch::Sender<Serving>,
    /// The settings of the release in force.
    settings: watch::Sender<Arc<Settings>>,
    others: RefCell<BTreeMap<ReleaseId, Arc<Release>>>,
    /// The changes of the running server: how often they have changed, and the values in force.
    changes: RefCell<(u64, Vec<RunningValue>)>,
    /// The requests that the template of the next release repeats.
    pub(crate) recent: Arc<RecentRequests>,
    /// Warnings about settings of the start that are valid but probably not intended. For the error log.
    pub(crate) warnings: Vec<String>,
}

impl Releases {
    /// Reads the first release, and puts it in force.
    ///
    /// # Errors
    /// There is nothing to serve, or it cannot be served.
    pub(crate) fn first(loaded: Loaded, reread: Reread) -> Result<Releases, String> {
        loaded.settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
        ratelimit::check(&loaded.settings)?;
        let (sites, warnings) = sites::load::load(&loaded.settings)?;
        let settings = Arc::new(with_rules(loaded.settings.clone(), &loaded.choices, &sites));
        let handlers = scripts::plan(&settings)?.map(Edition::new);
        let warnings = warnings.iter().map(ToString::to_string).collect();
        Ok(Releases::of((loaded, settings), sites, handlers, reread, warnings))
    }

    fn of(
        (loaded, settings): (Loaded, Arc<Settings>),
        sites: Sites,
        handlers: Option<Arc<Edition>>,
        reread: Reread,
        warnings: Vec<String>,
    ) -> Releases {
        let release = Arc::new(Release {
            id: FIRST_RELEASE,
            settings: settings.clone(),
            sites: Arc::new(sites),
            handlers,
            files: Arc::default(),
            services: Vec::new(),
            notes: Vec::new(),
            loaded: Arc::new(loaded),
            changes: 0,
            threads: settings.default_pool().threads.max,
        });
        Releases {
            reread,
            serving: watch::Sender::new(Serving { release, tried: None }),
            settings: watch::Sender::new(settings),
            others: RefCell::default(),
            changes: RefCell::default(),
            recent: Arc::default(),
            warnings,
        }
    }

    /// Returns the release in force.
    pub(crate) fn in_force(&self) -> Arc<Release> {
        self.serving.borrow().release.clone()
    }

    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Serving> {
        self.serving.subscribe()
    }

    pub(crate) fn watch_settings(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    /// Returns a release that is in force or is kept.
    pub(crate) fn get(&self, id: ReleaseId) -> Option<Arc<Release>> {
        let in_force = Some(self.in_force()).filter(|release| release.id == id);
        in_force.or_else(|| self.others.borrow().get(&id).cloned())
    }

    /// Reads a release that will replace `in_force`, which the front may not have put in force yet.
    ///
    /// # Errors
    /// Its settings, rules or handlers are wrong. Nothing of it will serve.
    pub(crate) fn read(&self, id: ReleaseId, in_force: ReleaseId) -> Result<Arc<Release>, String> {
        let release = self.release(id, self.reread.read()?)?;
        // The reload before this one has ended, and can no longer be undone.
        let mut others = self.others.borrow_mut();
        others.retain(|other, _| *other == in_force);
        others.insert(id, release.clone());
        Ok(release)
    }

    /// Completes a release that was read by the calls of its `puma.rb`.
    ///
    /// # Errors
    /// See [`Releases::read`].
    pub(crate) fn evaluated(&self, id: ReleaseId, calls: &[Call]) -> Result<Arc<Release>, String> {
        let Some(read) = self.others.borrow().get(&id).map(|release| release.loaded.clone()) else {
            return Err(format!("release {id} has been replaced by a newer one"));
        };
        let release = self.release(id, self.reread.evaluated(&read, calls)?)?;
        self.others.borrow_mut().insert(id, release.clone());
        Ok(release)
    }

    fn release(&self, id: ReleaseId, loaded: Loaded) -> Result<Arc<Release>, String> {
        let now = self.in_force();
        let (changes, values) = self.changes.borrow().clone();
        let effective = match values.as_slice() {
            [] => loaded.clone(),
            values => self.reread.changed(&loaded, values).map_err(|why| {
                format!("{why}\nwith the changes of the running server: `firebrick set` lists them, and `firebrick set --undo` takes one back")
            })?,
        };
        let rules = sites::load::load(&merge(&now.settings, effective.settings.clone()))?.0;
        let fresh = with_rules(effective.settings, &effective.choices, &rules);
        let takes_restart = takes_restart(&now.settings, &fresh);
        let settings = merge(&now.settings, fresh);
        let plan = scripts::plan(&settings)?;
        let late = plan.is_some() && now.handlers.is_none();
        let late =
            late.then(|| "handlers on mruby take a restart: the server has started without any".to_owned());
        let warnings = takes_restart.into_iter().chain(late);
        // Unchanged rules and handlers keep the state that threads have for them: connections to origins, and
        // a VM.
        let same_rules = now.sites.sources == rules.sources && sites::load::agree(&now.settings, &settings);
        let sites = if same_rules { now.sites.clone() } else { Arc::new(rules) };
        let handlers = match (&now.handlers, plan) {
            (Some(edition), Some(plan)) if edition.plan == plan => Some(edition.clone()),
            (Some(_), Some(plan)) => Some(Edition::new(plan)),
            // Threads that have started without handlers have no VM.
            _ => now.handlers.clone(),
        };
        Ok(Arc::new(Release {
            id,
            threads: settings.default_pool().threads.max,
            settings: Arc::new(settings),
            sites,
            handlers,
            files: Arc::default(),
            services: Vec::new(),
            notes: warnings.map(|text| format!("warning: {text}")).collect(),
            loaded: Arc::new(loaded),
            changes,
        }))
    }

    /// Returns the settings in force with these changes instead of those in force.
    ///
    /// # Errors
    /// A value is wrong, or contradicts another one.
    pub(crate) fn try_changes(&self, values: Vec<RunningValue>) -> Result<TriedChanges, String> {
        self.tried(&self.in_force(), values)
    }

    fn tried(&self, release: &Release, values: Vec<RunningValue>) -> Result<TriedChanges, String> {
        let loaded = self.reread.changed(&release.loaded, &values)?;
        let fresh = with_rules(loaded.settings.clone(), &loaded.choices, &release.sites);
        let settings = Arc::new(at_once(&release.settings, fresh));
        let is_more = settings.fibers == 0 && settings.default_pool().threads.max > release.threads;
        let more = is_more.then(|| {
            format!(
                "the running workers were started with at most {} threads each: more are in use after `firebrick reload`",
                release.threads
            )
        });
        Ok(TriedChanges { values, loaded, settings, notes: more.into_iter().collect() })
    }

    /// Puts changes in force that were tried with the release in force.
    pub(crate) fn apply(&self, tried: TriedChanges) {
        let mut changes = self.changes.borrow_mut();
        *changes = (changes.0 + 1, tried.values);
        self.settings.send_replace(tried.settings.clone());
        self.serving.send_modify(|serving| {
            let release = Arc::make_mut(&mut serving.release);
            (release.settings, release.changes) = (tried.settings, changes.0);
        });
    }

    /// Records what the app of a release has declared once it is loaded: its services, and how its middleware
    /// handles files. Returns notes about surprising results if the release is in force.
    pub(crate) fn declared(&self, id: ReleaseId, services: Vec<Service>, files: &[String]) -> Vec<String> {
        let now = self.in_force();
        let (is_in_force, known) = match self.others.borrow().get(&id) {
            Some(other) => (false, other.clone()),
            None if now.id == id => (true, now.clone()),
            None => return Vec::new(),
        };
        let (files, notes) = public::plan(&known.settings, files);
        let odd = |unlike: &AppFiles| if *unlike == files { Vec::new() } else { public::odd(&notes) };
        let (odd, mut release) = (odd(&now.files), Release::clone(&known));
        if files != *known.files {
            release.files = Arc::new(files);
        }
        release.services = services;
        if is_in_force {
            self.serving.send_modify(|serving| serving.release = Arc::new(release));
            return odd;
        }
        release.notes.extend(odd);
        let tried = release.files.clone();
        self.others.borrow_mut().insert(id, Arc::new(release));
        self.serving.send_modify(|serving| serving.tried = Some(tried));
        Vec::new()
    }

    /// Puts a release in force that has been read. Returns sentences for the log.
    pub(crate) fn put_in_force(&self, id: ReleaseId) -> Vec<String> {
        let mut others = self.others.borrow_mut();
        let Some(mut release) = others.remove(&id) else { return Vec::new() };
        let mut notes = std::mem::take(&mut Arc::make_mut(&mut release).notes);
        let (changes, values) = self.changes.borrow().clone();
        // Changes may have come or gone since the release was read.
        if release.changes != changes {
            match self.tried(&release, values) {
                Ok(tried) => {
                    let release = Arc::make_mut(&mut release);
                    (release.settings, release.changes) = (tried.settings, changes);
                }
                Err(why) => notes.push(format!(
                    "warning: the changes of the running server do not fit the release in force: {why}"
                )),
            }
        }
        self.settings.send_replace(release.settings.clone());
        let before = self.serving.send_replace(Serving { release, tried: None }).release;
        others.insert(before.id, before);
        notes
    }

    /// Stops serving the files of a release that was tried.
    pub(crate) fn end_trial(&self) {
        self.serving.send_if_modified(|serving| serving.tried.take().is_some());
    }

    /// Replaces the changed rules of the sites, in the release that they were read for.
    pub(crate) fn replace_sites(&self, id: ReleaseId, sites: Arc<Sites>) {
        self.replace(id, |release| release.sites = sites);
    }

    /// Replaces the changed handlers, in the release that they were read for.
    pub(crate) fn replace_handlers(&self, id: ReleaseId, handlers: Arc<Edition>) {
        self.replace(id, |release| release.handlers = Some(handlers));
    }

    fn replace(&self, id: ReleaseId, change: impl FnOnce(&mut Release)) {
        self.serving.send_if_modified(|serving| {
            let is_it = serving.release.id == id;
            if is_it {
                change(Arc::make_mut(&mut serving.release));
            }
            is_it
        });
    }
}

/// Applies the server options of `static.json` to the settings, unless a flag or the settings file sets them.
fn with_rules(mut settings: Settings, choices: &[Choice], sites: &Sites) -> Settings {
    // `static.json` takes precedence over environment variables, as in the buildpack.
    let outranks = |choice: &Choice| !matches!(choice.origin, ValueSource::Env(_));
    let chosen = |key: &str| choices.iter().any(|choice| choice.key == key && outranks(choice));
    let Some(rules) = sites.main.as_ref().map(|site| &site.plan.rules) else { return settings };
    if let Some(port) = rules.port().filter(|_| !chosen("port") && !chosen("bind"))
        && let [Bind::Tcp { port: default, .. }] = settings.binds.as_mut_slice()
    {
        *default = port;
    }
    if let Some(connections) = rules.worker_connections().filter(|_| !chosen("limits.max_connections")) {
        // nginx's limit applies per worker process.
        settings.limits.max_connections =
            (connections as usize).saturating_mul(settings.front_threads as usize);
    }
    if let Some(access) = rules.access_log().filter(|_| !chosen("log.access")) {
        settings.logs.access = if access { AccessLog::Stdout } else { AccessLog::Off };
    }
    settings
}

#[cfg(test)]
pub(crate) mod tests;
