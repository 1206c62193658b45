//! Loads checked settings from arguments, variables and the file. Only this module opens the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::control::{control_elsewhere, control_path};
use crate::discover::Discovered;
use crate::environment::{Environment, state_dir};
use crate::error::{Error, Errors, written};
use crate::file;
use crate::given::{Argument, Given, Written};
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::puma::{self, Call, Mapped, PumaFile};
use crate::raw::Raw;
use crate::resolve::{Facts, Loaded, TypedControl, resolve};
use crate::table::{self, app, mruby, workers};

/// The name of the default configuration file.
pub const CONFIG_FILE: &str = "firebrick.toml";

/// Loads settings from the command line, the environment and the configuration file, but not yet from `puma.rb`. If
/// [`Settings::puma_rb`](crate::Settings::puma_rb) names one, evaluate it and call [`Loaded::evaluated`].
///
/// # Errors
/// All mistakes together.
pub fn load(arguments: &[Argument], environment: &dyn Environment) -> Result<Loaded, Errors> {
    Reading::new(arguments, environment, None).load(environment, None)
}

/// Loads settings for a front whose app runs in the Ruby process that started it; that process also evaluates a `puma.rb`. The file's settings of
/// the app and its directory are ignored.
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
    /// Returns the settings with the calls that `puma.rb` made. Arguments, `firebrick.toml` and links are not read again: they lead where they
    /// led when the file was found, even if a deploy has replaced a link while the file was evaluated.
    ///
    /// # Errors
    /// All mistakes together.
    pub fn evaluated(&self, environment: &dyn Environment, calls: &[Call]) -> Result<Loaded, Errors> {
        self.reading.load(environment, Some(calls))
    }
}

/// Facts from the Ruby process besides settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// Whether all requests go to the app; then the directory's files and rules are ignored.
    pub app_only: bool,
    /// Values by key that apply if nothing else was written.
    pub weak: Vec<(String, String)>,
}

/// Everything that is read before `puma.rb` is evaluated, and the places that the links led to at that moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Reading {
    given: Given,
    typed_in: PathBuf,
    target: Target,
    config: Option<PathBuf>,
    puma_rb: Option<PumaFile>,
    attached: Option<Attached>,
    /// Empty if the settings could be loaded.
    errors: Vec<Error>,
}

impl Reading {
    fn new(arguments: &[Argument], environment: &dyn Environment, attached: Option<&Attached>) -> Reading {
        let mut given = Given::collect(arguments, environment);
        let mut errors = Vec::new();
        let typed_in = environment.current_dir();
        let target = target(&given, &typed_in).unwrap_or_else(|error| {
            errors.push(error);
            Target {
                dir: typed_in.clone(),
                typed_dir: typed_in.clone(),
                app: None,
                handler: None,
                found: false,
            }
        });
        let named = given.written(app::CONFIG.about.key).first().cloned();
        let config = config(named.as_ref(), &typed_in, &target);
        let app_only = attached.is_some_and(|attached| attached.app_only);
        let puma_rb = match app_only {
            true => None,
            false => {
                puma_file(&given, named.as_ref(), &typed_in, &target, config.is_some(), attached.is_some())
            }
        };
        errors.extend(puma_rb.as_ref().and_then(|file| unreadable_ruby(&file.path, named.as_ref())));
        match config.as_ref().map(|path| (path, read(path))) {
            Some((path, Ok(text))) => {
                errors.extend(file::read(path.strip_prefix(&typed_in).unwrap_or(path), &text, &mut given));
            }
            Some((path, Err(problem))) => errors.push(unreadable(path, problem, named.as_ref())),
            None => {}
        }
        Reading { given, typed_in, target, config, puma_rb, attached: attached.cloned(), errors }
    }

    fn load(&self, environment: &dyn Environment, calls: Option<&[Call]>) -> Result<Loaded, Errors> {
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
                given.add(entry.about().key, Written { raw, origin: Origin::Default });
            }
        }
        // An app's release is one unit that a reload replaces. Without an app, a link to the files is followed wherever it leads at the time.
        let is_release = target.app.is_some() || puma_rb.is_some() || attached.is_some();
        let base = if is_release { target.dir.clone() } else { target.typed_dir.clone() };
        let is_named = given
            .written(app::TARGET.about.key)
            .first()
            .is_some_and(|typed| matches!(typed.origin, Origin::Flag(_)));
        let nothing_else =
            target.app.is_none() && target.handler.is_none() && puma_rb.is_none() && config.is_none();
        let nothing_else =
            nothing_else && given.routes.is_empty() && given.sites.is_empty() && attached.is_none();
        let site = match app_only {
            true => Discovered::default(),
            false if is_named && nothing_else => Discovered::named(&base),
            false => Discovered::look(&base),
        };
        let facts = Facts {
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
            Ok(loaded) if errors.is_empty() => Ok(Loaded { reading, ..loaded }),
            Ok(_) => Err(sorted(errors, &given)),
            Err(more) => {
                errors.extend(more);
                Err(sorted(errors, &given))
            }
        }
    }
}

/// Returns the directories of the `[sites]` table and their contents.
fn host_sites(given: &Given, dir: &Path) -> Vec<(String, Written, Option<PathBuf>, Discovered)> {
    let looked = |(host, written): &(String, Written)| {
        let site = written.raw.text().map(|path| dir.join(path).components().collect::<PathBuf>());
        let found = site.as_deref().map(Discovered::look).unwrap_or_default();
        (host.clone(), written.clone(), site, found)
    };
    given.sites.iter().map(looked).collect()
}

/// Sorts mistakes in the order of flags, variables and lines of the file, and quotes the file's own spelling.
fn sorted(mut errors: Vec<Error>, given: &Given) -> Errors {
    for error in errors.iter_mut().filter(|error| matches!(error.origin, Origin::File { .. })) {
        if let Some((_, typed)) = given.spellings.iter().find(|(shown, _)| *shown == error.written) {
            error.written.clone_from(typed);
        }
    }
    errors.sort_by_key(|error| match &error.origin {
        Origin::Flag(_) => (0, 0),
        Origin::Env(_) => (1, 0),
        Origin::File { line, .. } => (2, *line),
        Origin::Puma { line, .. } => (3, *line),
        Origin::Default => (4, 0),
    });
    Errors(errors)
}

/// The served directory and its app.
#[derive(Clone, Debug, Default, PartialEq)]
struct Target {
    dir: PathBuf,
    /// The same directory with its links unresolved.
    typed_dir: PathBuf,
    app: Option<PathBuf>,
    handler: Option<PathBuf>,
    found: bool,
}

/// Returns the directory and rackup file that the argument names.
fn target(given: &Given, typed_in: &Path) -> Result<Target, Error> {
    let about = &app::TARGET.about;
    let argument = given.written(about.key).first();
    let default = Written { raw: Raw::Word(about.default.to_owned()), origin: Origin::Default };
    let Written { raw, origin } = argument.unwrap_or(&default);
    let text = raw.text().unwrap_or_default();
    let typed = typed_in.join(text);
    let path = typed.clone();
    let on_mruby =
        given.written(mruby::MRUBY.about.key).first().and_then(|written| written.raw.text()) == Some("true");
    let refused = |expected: &str, nearest: Option<&str>| {
        let written = written(about.key, raw, origin);
        let nearest = nearest.map(str::to_owned);
        Error { origin: origin.clone(), written, problem: format!("expected {expected}"), nearest }
    };
    // Canonical, so that all spellings of the directory lead to the same control socket.
    let Ok(path) = path.canonicalize() else {
        let command = nearest(text, table::COMMANDS.iter().map(|command| command.name));
        let expected = if on_mruby {
            "with --mruby the file of a handler"
        } else {
            "a directory or a rackup file (.ru)"
        };
        return Err(refused(&format!("{expected} that exists"), command));
    };
    if path.is_dir() {
        let rackup = path.join("config.ru");
        if on_mruby {
            return Err(refused("with --mruby the file of a handler such as handler.rb", None));
        }
        let app = rackup.is_file().then_some(rackup);
        return Ok(Target { app, handler: None, typed_dir: as_typed(&typed, &path), dir: path, found: true });
    }
    let is = |wanted: &str| path.extension().is_some_and(|extension| extension == wanted);
    let typed_parent =
        |dir: &Path| typed.parent().map_or_else(|| dir.to_owned(), |parent| as_typed(parent, dir));
    match path.parent() {
        Some(dir) if on_mruby => Ok(Target {
            typed_dir: typed_parent(dir),
            dir: dir.to_owned(),
            app: None,
            handler: Some(as_typed(&typed, &path)),
            found: true,
        }),
        Some(dir) if is("ru") => Ok(Target {
            typed_dir: typed_parent(dir),
            dir: dir.to_owned(),
            app: Some(path),
            handler: None,
            found: true,
        }),
        Some(_) if is("rb") => Err(refused(
            "a directory or a file whose name ends in .ru; a handler for mruby is served with --mruby",
            None,
        )),
        _ => Err(refused("a directory or a file whose name ends in .ru", None)),
    }
}

/// Returns the path as typed if it leads to `dir`, without `.` components, which change nothing.
fn as_typed(typed: &Path, dir: &Path) -> PathBuf {
    let short: PathBuf = typed.components().collect();
    let leads = short.is_absolute() && short.canonicalize().is_ok_and(|found| found == dir);
    // `..` after a link means the parent of the link's target, so the typed form is not stable.
    let is_plain = short.components().all(|part| part != std::path::Component::ParentDir);
    if leads && is_plain { short } else { dir.to_owned() }
}

/// Returns the file to read: the named one, or the one in the app's directory if it exists.
fn config(named: Option<&Written>, typed_in: &Path, target: &Target) -> Option<PathBuf> {
    match named.map(|written| written.raw.text().unwrap_or_default()) {
        Some("-" | "") => None,
        Some(path) if !puma::is_ruby(Path::new(path)) => Some(typed_in.join(path).components().collect()),
        _ => Some(target.dir.join(CONFIG_FILE)).filter(|path| target.found && path.exists()),
    }
}

/// Returns Puma's configuration file: the named one, or the app's own if there is no `firebrick.toml`.
fn puma_file(
    given: &Given,
    named: Option<&Written>,
    typed_in: &Path,
    target: &Target,
    has_config: bool,
    is_attached: bool,
) -> Option<PumaFile> {
    let first = |key: &str| given.written(key).first()?.raw.text().map(str::to_owned);
    let typed: PathBuf = match named.map(|written| written.raw.text().unwrap_or_default()) {
        Some(path) if puma::is_ruby(Path::new(path)) => typed_in.join(path).components().collect(),
        Some(_) => return None,
        None if has_config || !target.found || target.handler.is_some() => return None,
        None => {
            let about = &app::environment.about;
            puma::find(&target.dir, &first(about.key).unwrap_or_else(|| about.default.to_owned()))?
        }
    };
    let path = in_folder(&typed);
    let shown = [&target.dir, &target.typed_dir].into_iter().find_map(|dir| path.strip_prefix(dir).ok());
    Some(PumaFile {
        shown: shown.unwrap_or(&typed).to_owned(),
        workers: if is_attached { Some("1".to_owned()) } else { first(workers::WORKERS.about.key) },
        environment: first(app::environment.about.key),
        path,
    })
}

/// Returns the path of a file with the links of its folder resolved: a template that evaluates the file later must not get that of another
/// release. A link in the place of the file itself stays, because the file may look for others beside its own name.
fn in_folder(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    folder.zip(path.file_name()).map_or_else(|| path.to_owned(), |(folder, name)| folder.join(name))
}

/// Returns why a named Ruby file cannot be evaluated.
fn unreadable_ruby(path: &Path, named: Option<&Written>) -> Option<Error> {
    let problem = match std::fs::File::open(path) {
        Ok(file) if file.metadata().is_ok_and(|about| about.is_dir()) => {
            "expected a file, this is a directory".to_owned()
        }
        Ok(_) => return None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => "there is no such file".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
    };
    Some(unreadable(path, problem, named))
}

impl Target {
    /// Changes to the directory and app that `puma.rb` names, unless the user typed others.
    fn follow(&mut self, given: &Given, mapped: &Mapped, file: Option<&PumaFile>) -> Option<Error> {
        let typed = given.written(app::TARGET.about.key).first().and_then(|written| written.raw.text());
        let typed_file = typed.is_some_and(|typed| typed.ends_with(".ru"));
        let mut error = None;
        if let Some((path, origin)) = mapped.directory.as_ref().filter(|_| typed.is_none()) {
            let typed_dir = self.typed_dir.join(path);
            match typed_dir.canonicalize() {
                Ok(dir) if dir.is_dir() => {
                    self.typed_dir = as_typed(&typed_dir, &dir);
                    self.app = Some(dir.join("config.ru")).filter(|path| path.is_file());
                    self.dir = dir;
                }
                _ => error = Some(refused(path, origin, "expected a directory that exists")),
            }
        }
        if mapped.is_app && !typed_file {
            self.app = file.map(|file| file.path.clone());
        } else if let Some((path, origin)) = mapped.rackup.as_ref().filter(|_| !typed_file) {
            match self.dir.join(path).canonicalize() {
                Ok(app) if app.is_file() => self.app = Some(app),
                _ => error = Some(refused(path, origin, "expected a rackup file that exists")),
            }
        }
        error
    }
}

/// Returns the mistake of a `puma.rb` that names a missing file.
fn refused(path: &str, origin: &Origin, problem: &str) -> Error {
    let written = written("path", &Raw::Text(path.to_owned()), origin);
    Error { origin: origin.clone(), written, problem: problem.to_owned(), nearest: None }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => "expected text in UTF-8".to_owned(),
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::IsADirectory => "expected a file, this is a directory".to_owned(),
        _ => format!("cannot be read: {error}"),
    })
}

fn unreadable(path: &Path, problem: String, named: Option<&Written>) -> Error {
    let (origin, written) = match named {
        Some(named) => (named.origin.clone(), written(app::CONFIG.about.key, &named.raw, &named.origin)),
        None => (Origin::Default, path.display().to_string()),
    };
    Error { origin, written, problem, nearest: None }
}
