//! Arguments, variables and the file to checked settings: the one place that opens the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::control::control_path;
use crate::discover::Discovered;
use crate::environment::{Environment, state_dir};
use crate::error::{Error, Errors, written};
use crate::file;
use crate::given::{Argument, Given, Written};
use crate::nearest::nearest;
use crate::origin::Origin;
use crate::raw::Raw;
use crate::resolve::{Facts, Loaded, TypedControl, resolve};
use crate::table::{self, app, mruby};

/// The configuration file that is read when none is named.
pub const CONFIG_FILE: &str = "firebrick.toml";

/// Loads settings from the command line, the environment and the configuration file.
///
/// # Errors
/// All that is wrong, together.
pub fn load(arguments: &[Argument], environment: &dyn Environment) -> Result<Loaded, Errors> {
    let mut given = Given::collect(arguments, environment);
    let mut errors = Vec::new();
    let typed_in = environment.current_dir();
    let target = target(&given, &typed_in).unwrap_or_else(|error| {
        errors.push(error);
        Target { dir: typed_in.clone(), typed_dir: typed_in.clone(), app: None, handler: None, found: false }
    });
    let named = given.written(app::CONFIG.about.key).first().cloned();
    let config = config(named.as_ref(), &typed_in, &target);
    match config.as_ref().map(|path| (path, read(path))) {
        Some((path, Ok(text))) => {
            errors.extend(file::read(path.strip_prefix(&typed_in).unwrap_or(path), &text, &mut given));
        }
        Some((path, Err(problem))) => errors.push(unreadable(path, problem, named.as_ref())),
        None => {}
    }
    let site_base = target.dir.clone();
    let facts = Facts {
        state_dir: state_dir(environment),
        control: control_path(&target.dir, environment, environment.uid()),
        typed_control: (target.typed_dir != target.dir).then(|| {
            let path = control_path(&target.typed_dir, environment, environment.uid());
            TypedControl { exists: path.exists(), path }
        }),
        typed_dir: target.typed_dir,
        typed_in,
        dir: target.dir,
        app: target.app,
        handler: target.handler,
        routes: given.routes.clone(),
        config,
        host_sites: host_sites(&given, &site_base),
        site: Discovered::look(&site_base),
        machine: environment.machine(),
        kubernetes: environment.var("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()),
    };
    match resolve(&given, &facts) {
        Ok(loaded) if errors.is_empty() => Ok(loaded),
        Ok(_) => Err(sorted(errors)),
        Err(more) => {
            errors.extend(more);
            Err(sorted(errors))
        }
    }
}

/// The directories of the `[sites]` table and what is in them.
fn host_sites(given: &Given, dir: &Path) -> Vec<(String, Written, Option<PathBuf>, Discovered)> {
    let looked = |(host, written): &(String, Written)| {
        let site = written.raw.text().map(|path| dir.join(path).components().collect::<PathBuf>());
        let found = site.as_deref().map(Discovered::look).unwrap_or_default();
        (host.clone(), written.clone(), site, found)
    };
    given.sites.iter().map(looked).collect()
}

/// In the order in which a reader meets them: flags, variables, lines of the file.
fn sorted(mut errors: Vec<Error>) -> Errors {
    errors.sort_by_key(|error| match &error.origin {
        Origin::Flag(_) => (0, 0),
        Origin::Env(_) => (1, 0),
        Origin::File { line, .. } => (2, *line),
        Origin::Default => (3, 0),
    });
    Errors(errors)
}

/// What is to be served.
struct Target {
    dir: PathBuf,
    /// The same with the links that were typed.
    typed_dir: PathBuf,
    app: Option<PathBuf>,
    handler: Option<PathBuf>,
    found: bool,
}

/// The directory and rackup file that the argument names.
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
    // Canonical, so that the control socket is found however the directory is spelled.
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
            handler: Some(path),
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

/// The path as it was typed, if it leads to `dir`; without dots at its end, which change nothing.
fn as_typed(typed: &Path, dir: &Path) -> PathBuf {
    let short: PathBuf = typed.components().collect();
    let leads = short.is_absolute() && short.canonicalize().is_ok_and(|found| found == dir);
    // `..` behind a link means the parent of where the link leads: what is typed then says nothing that lasts.
    let is_plain = short.components().all(|part| part != std::path::Component::ParentDir);
    if leads && is_plain { short } else { dir.to_owned() }
}

/// The file to read: the one that is named, or the one in the app's directory when there is one.
fn config(named: Option<&Written>, typed_in: &Path, target: &Target) -> Option<PathBuf> {
    match named.map(|written| written.raw.text().unwrap_or_default()) {
        Some("-" | "") => None,
        Some(path) => Some(typed_in.join(path).components().collect()),
        None => Some(target.dir.join(CONFIG_FILE)).filter(|path| target.found && path.exists()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    if path.extension().is_some_and(|extension| extension == "rb") {
        return Err("expected a TOML file such as firebrick.toml; Ruby configuration is not read".to_owned());
    }
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
