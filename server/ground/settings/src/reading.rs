//! Reads what is known before `puma.rb` is evaluated: arguments, variables, the file and the served
//! directory. Only this module opens the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::arguments::{Argument, collect};
use crate::environment::Environment;
use crate::error::{Error, written};
use crate::file;
use crate::nearest::nearest;
use crate::origin::ValueSource;
use crate::puma::{self, Mapped, PumaFile};
use crate::raw::Raw;
use crate::table::{self, app, mruby, workers};
use crate::written::{Written, WrittenValues};

/// The name of the default configuration file.
pub const CONFIG_FILE: &str = "firebrick.toml";

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
    pub(crate) given: WrittenValues,
    pub(crate) typed_in: PathBuf,
    pub(crate) target: Target,
    pub(crate) config: Option<PathBuf>,
    pub(crate) puma_rb: Option<PumaFile>,
    pub(crate) attached: Option<Attached>,
    /// Empty if the settings could be loaded.
    pub(crate) errors: Vec<Error>,
}

impl Reading {
    pub(crate) fn new(
        arguments: &[Argument],
        environment: &dyn Environment,
        attached: Option<&Attached>,
    ) -> Reading {
        let mut given = collect(arguments, environment);
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
                let shown = path.strip_prefix(&typed_in).unwrap_or(path);
                errors.extend(file::read(shown, &text, &mut given, environment));
            }
            Some((path, Err(problem))) => errors.push(unreadable(path, problem, named.as_ref())),
            None => {}
        }
        Reading { given, typed_in, target, config, puma_rb, attached: attached.cloned(), errors }
    }
}

/// The served directory and its app.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Target {
    pub(crate) dir: PathBuf,
    /// The same directory with its links unresolved.
    pub(crate) typed_dir: PathBuf,
    pub(crate) app: Option<PathBuf>,
    pub(crate) handler: Option<PathBuf>,
    found: bool,
}

/// Returns the directory and rackup file that the argument names.
fn target(given: &WrittenValues, typed_in: &Path) -> Result<Target, Error> {
    let about = &app::TARGET.about;
    let argument = given.written(about.key).first();
    let default = Written { raw: Raw::Word(about.default.to_owned()), origin: ValueSource::Default };
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
        let command = table::command_like(text)
            .or_else(|| nearest(text, table::COMMANDS.iter().map(|command| command.name)));
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
    given: &WrittenValues,
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

/// Returns the path of a file with the links of its folder resolved: a template that evaluates the file later
/// must not get that of another release. A link in the place of the file itself stays, because the file may
/// look for others beside its own name.
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
    pub(crate) fn follow(
        &mut self,
        given: &WrittenValues,
        mapped: &Mapped,
        file: Option<&PumaFile>,
    ) -> Option<Error> {
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
fn refused(path: &str, origin: &ValueSource, problem: &str) -> Error {
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
        None => (ValueSource::Default, path.display().to_string()),
    };
    Error { origin, written, problem, nearest: None }
}
