//! The settings, sites and handlers, read and checked before anything starts.

use crate::error_log::ErrorLog;
use crate::public::Public;
use crate::scripts::{self, Edition};
use crate::sites::{self, Sites};
use settings::{AccessLog, Bind, Choice, Loaded, Origin, Settings};
use site::AppFiles;
use std::sync::Arc;
use tokio::sync::watch;

/// The parts of the configuration that front threads read and that can be replaced at run time.
pub(super) struct Configuration {
    settings: watch::Sender<Arc<Settings>>,
    sites: watch::Sender<Arc<Sites>>,
    /// The mruby handlers; `None` without routes to any.
    handlers: Option<watch::Sender<Arc<Edition>>>,
    public: Public,
    /// Warnings about settings that are valid but probably not intended. For the error log.
    pub(super) warnings: Vec<String>,
}

impl Configuration {
    /// Reads the rules of the sites and the handlers that the settings name.
    ///
    /// # Errors
    /// There is nothing to serve, or it cannot be served.
    pub(super) fn read(loaded: Loaded) -> Result<Configuration, String> {
        loaded.settings.something_to_serve().map_err(|nothing| nothing.to_string())?;
        ratelimit::check(&loaded.settings)?;
        let (sites, warnings) = sites::load::load(&loaded.settings)?;
        let settings = with_rules(loaded, &sites);
        let handlers = scripts::plan(&settings)?;
        Ok(Configuration {
            settings: watch::Sender::new(Arc::new(settings)),
            sites: watch::Sender::new(Arc::new(sites)),
            handlers: handlers.map(|plan| watch::Sender::new(Edition::new(plan))),
            public: Public::new(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        })
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        self.settings.borrow().clone()
    }

    pub(super) fn watch_settings(&self) -> watch::Receiver<Arc<Settings>> {
        self.settings.subscribe()
    }

    pub(super) fn watch_sites(&self) -> watch::Receiver<Arc<Sites>> {
        self.sites.subscribe()
    }

    pub(super) fn watch_handlers(&self) -> Option<watch::Receiver<Arc<Edition>>> {
        self.handlers.as_ref().map(watch::Sender::subscribe)
    }

    /// Watches the set of the app's files that are served.
    pub(super) fn watch_public(&self) -> watch::Receiver<Arc<AppFiles>> {
        self.public.watch()
    }

    /// Puts in force what an app has declared about its files. Returns notes about surprising results.
    pub(super) fn replace_public(&self, told: &[String]) -> Vec<String> {
        self.public.replace(&self.settings(), told)
    }

    /// Puts new settings in force, with the sites and handlers that they name. Sites and handlers whose
    /// location is unchanged are left to the watchers of their files.
    ///
    /// # Errors
    /// One of them is invalid. Sites and handlers stay as they were.
    pub(super) fn replace(&self, settings: Arc<Settings>) -> Result<(), String> {
        let now = self.settings.send_replace(settings.clone());
        let moved = now.sites != settings.sites || now.files != settings.files;
        let sites = moved.then(|| sites::load::load(&settings)).transpose()?;
        let other = now.mruby.routes != settings.mruby.routes;
        let handlers = other.then(|| scripts::plan(&settings)).transpose()?.flatten();
        if let Some((sites, _)) = sites {
            self.sites.send_replace(Arc::new(sites));
        }
        match (&self.handlers, handlers) {
            (Some(sender), Some(plan)) => drop(sender.send_replace(Edition::new(plan))),
            (None, Some(_)) => {
                return Err("handlers on mruby take a restart: the server has started without any".to_owned());
            }
            (_, None) => {}
        }
        Ok(())
    }

    /// Starts watching the files of sites and handlers, and reads them again when they change.
    pub(super) fn follow_files(&self, log: &Arc<ErrorLog>) {
        tokio::task::spawn_local(sites::watch::run(self.watch_settings(), self.sites.clone(), log.clone()));
        if let Some(handlers) = &self.handlers {
            tokio::task::spawn_local(scripts::watch::run(
                self.watch_settings(),
                handlers.clone(),
                log.clone(),
            ));
        }
    }
}

/// Applies the server options of `static.json` to the settings, unless a flag or the settings file sets them.
pub(super) fn with_rules(loaded: Loaded, sites: &Sites) -> Settings {
    let Loaded { mut settings, choices, .. } = loaded;
    // `static.json` takes precedence over environment variables, as in the buildpack.
    let outranks = |choice: &Choice| !matches!(choice.origin, Origin::Env(_));
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
impl Configuration {
    /// Creates a configuration without sites and handlers.
    pub(super) fn of(settings: Settings) -> Configuration {
        let sites = Sites { main: None, hosts: Vec::new(), sources: Vec::new() };
        Configuration {
            settings: watch::Sender::new(Arc::new(settings)),
            sites: watch::Sender::new(Arc::new(sites)),
            handlers: None,
            public: Public::new(),
            warnings: Vec::new(),
        }
    }
}
