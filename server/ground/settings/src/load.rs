//! Loads checked settings from arguments, variables, the file and the calls of `puma.rb`.

use std::path::{Path, PathBuf};

use crate::arguments::Argument;
use crate::control::{control_elsewhere, control_path};
use crate::discover::Discovered;
use crate::environment::{Environment, state_dir};
use crate::error::{Error, Errors};
use crate::origin::ValueSource;
use crate::puma::{self, Call};
use crate::raw::Raw;
use crate::reading::{Attached, Reading};
use crate::resolve::{Loaded, ResolveContext, TypedControl, resolve};
use crate::table::{self, app};
use crate::written::{Written, WrittenValues};

/// Set by the gem's launcher and `rackup -s firebrick`: the Ruby that runs them, if it is not `ruby` of the PATH.
const LAUNCHER_RUBY: &str = "FIREBRICK_LAUNCHER_RUBY";

/// Loads settings from the command line, the environment and the configuration file, but not yet from `puma.rb`. If
/// [`Settings::puma_rb`](crate::Settings::puma_rb) names one, evaluate it and call [`Loaded::evaluated`].
///
/// # Errors
/// All mistakes together.
pub fn load(arguments: &[Argument], environment: &dyn Environment) -> Result<Loaded, Errors> {
    Reading::new(arguments, environment, None).load(environment, None)
}

/// Loads settings for a front whose app runs in the Ruby process that started it; that process also evaluates
/// a `puma.rb`. The file's settings of the app and its directory are ignored.
///
/// # Errors
/// All mistakes together.
pub fn load_attached(
    arguments: &[Argument],
    environment: &dyn Environment,
    attached: &Attached,
) -> Result<Loaded, Errors> {
    Reading::new(arguments, environment, Some(attached)).load(environment, None)
}

impl Loaded {
    /// Returns the settings with the calls that `puma.rb` made. Arguments, `firebrick.toml` and links are not
    /// read again: they lead where they led when the file was found, even if a deploy has replaced a link
    /// while the file was evaluated.
    ///
    /// # Errors
    /// All mistakes together.
    pub fn evaluated(&self, environment: &dyn Environment, calls: &[Call]) -> Result<Loaded, Errors> {
        self.reading.load(environment, Some(calls))
    }
}

impl Reading {
    pub(crate) fn load(
        &self,
        environment: &dyn Environment,
        calls: Option<&[Call]>,
    ) -> Result<Loaded, Errors> {
        let reading = self.clone();
        let Reading { mut given, typed_in, mut target, config, puma_rb, attached, mut errors } = self.clone();
        let app_only = attached.as_ref().is_some_and(|attached| attached.app_only);
        let asked_in = target.typed_dir.clone();
        let mapped = puma_rb.as_ref().and(calls).map(puma::map);
        if let Some(mapped) = &mapped {
            for (key, written) in &mapped.values {
                given.add(key, written.clone());
            }
            errors.extend(mapped.errors.iter().cloned());
            if attached.is_none() {
                errors.extend(target.follow(&given, mapped, puma_rb.as_ref()));
            }
        }
        for (key, value) in attached.iter().flat_map(|attached| &attached.weak) {
            if let Some(entry) = table::entries().find(|entry| entry.about().key == key) {
                let raw = Raw::Word(value.clone());
                given.add(entry.about().key, Written { raw, origin: ValueSource::Default });
            }
        }
        let launcher = || environment.var(LAUNCHER_RUBY).filter(|ruby| !ruby.is_empty());
        if let Some(ruby) = attached.is_none().then(launcher).flatten() {
            // After all others, because it is only a default.
            let origin = ValueSource::Env(LAUNCHER_RUBY.to_owned());
            given.add(table::rack::ruby.about.key, Written { raw: Raw::Word(ruby), origin });
        }
        // An app's release is one unit that a reload replaces. Without an app, a link to the files is
        // followed wherever it leads at the time.
        let is_release = target.app.is_some() || puma_rb.is_some() || attached.is_some();
        let base = if is_release { target.dir.clone() } else { target.typed_dir.clone() };
        let is_named = given
            .written(app::TARGET.about.key)
            .first()
            .is_some_and(|typed| matches!(typed.origin, ValueSource::Flag(_)));
        let nothing_else =
            target.app.is_none() && target.handler.is_none() && puma_rb.is_none() && config.is_none();
        let nothing_else =
            nothing_else && given.routes.is_empty() && given.sites.is_empty() && attached.is_none();
        let site = match app_only {
            true => Discovered::default(),
            false if is_named && nothing_else => Discovered::named(&base),
            false => Discovered::look(&base),
        };
        let facts = ResolveContext {
            state_dir: state_dir(environment),
            control: control_path(&target.dir, environment, environment.uid()),
            // Commands search where they were typed, whatever directory the file names.
            typed_control: (asked_in != target.dir).then(|| {
                let path = control_path(&asked_in, environment, environment.uid());
                TypedControl { exists: path.exists(), path }
            }),
            control_elsewhere: {
                let own =
                    [&target.dir, &asked_in].map(|dir| control_path(dir, environment, environment.uid()));
                let typed = !given.written(app::TARGET.about.key).is_empty();
                let none = !own.iter().any(|path| path.exists());
                none.then(|| control_elsewhere(&[&target.dir, &asked_in], typed, environment.uid())).flatten()
            },
            puma_rb,
            puma: mapped,
            typed_dir: target.typed_dir,
            typed_in,
            app: match attached {
                // The file need not exist, because it is never read.
                Some(_) => target.app.or_else(|| Some(target.dir.join("config.ru"))),
                None => target.app,
            },
            dir: target.dir,
            handler: target.handler,
            routes: given.routes.clone(),
            config,
            host_sites: host_sites(&given, &base),
            site,
            base,
            attached: attached.is_some(),
            machine: environment.machine(),
            kubernetes: environment.var("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()),
        };
        match resolve(&given, &facts) {
            Ok(loaded) if errors.is_empty() => {
                Ok(Loaded { reading, calls: calls.map(<[Call]>::to_vec), ..loaded })
            }
            Ok(_) => Err(sorted(errors, &given)),
            Err(more) => {
                errors.extend(more);
                Err(sorted(errors, &given))
            }
        }
    }
}

/// Returns the directories of the `[sites]` table and their contents.
fn host_sites(given: &WrittenValues, dir: &Path) -> Vec<(String, Written, Option<PathBuf>, Discovered)> {
    let looked = |(host, written): &(String, Written)| {
        let site = written.raw.text().map(|path| dir.join(path).components().collect::<PathBuf>());
        let found = site.as_deref().map(Discovered::look).unwrap_or_default();
        (host.clone(), written.clone(), site, found)
    };
    given.sites.iter().map(looked).collect()
}

/// Sorts mistakes in the order of flags, variables and lines of the file, and quotes the file's own spelling.
fn sorted(mut errors: Vec<Error>, given: &WrittenValues) -> Errors {
    for error in errors.iter_mut().filter(|error| matches!(error.origin, ValueSource::File { .. })) {
        if let Some((_, typed)) = given.spellings.iter().find(|(shown, _)| *shown == error.written) {
            error.written.clone_from(typed);
        }
    }
    errors.sort_by_key(|error| match &error.origin {
        ValueSource::Set(_) | ValueSource::Flag(_) => (0, 0),
        ValueSource::Env(_) => (1, 0),
        ValueSource::File { line, .. } => (2, *line),
        ValueSource::Puma { line, .. } => (3, *line),
        ValueSource::Default => (4, 0),
    });
    Errors(errors)
}
