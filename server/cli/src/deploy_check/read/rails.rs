//! Reads what the files of a Rails app show, without loading it.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::super::facts::{AssetPipeline, MasterKey, RailsFacts};

/// The most files of a folder that are counted.
const MOST: usize = 10_000;
/// The longest file that is read: an environment's file, a Gemfile.lock, a key.
const LONGEST: u64 = 4 << 20;

/// An asset pipeline: its gem, the folder of its sources, the folder of its output, and how the names of its manifests begin and end.
struct KnownPipeline {
    gem: &'static str,
    sources: &'static str,
    output: &'static str,
    manifests: &'static [(&'static str, &'static str)],
}

const PIPELINES: &[KnownPipeline] = &[
    KnownPipeline {
        gem: "propshaft",
        sources: "app/assets",
        output: "public/assets",
        manifests: &[(".manifest", ".json")],
    },
    KnownPipeline {
        gem: "sprockets-rails",
        sources: "app/assets",
        output: "public/assets",
        manifests: &[(".sprockets-manifest-", ".json"), ("manifest-", ".json"), ("manifest", ".json")],
    },
    KnownPipeline {
        gem: "shakapacker",
        sources: "app/javascript",
        output: "public/packs",
        manifests: &[("manifest", ".json")],
    },
    KnownPipeline {
        gem: "webpacker",
        sources: "app/javascript",
        output: "public/packs",
        manifests: &[("manifest", ".json")],
    },
    KnownPipeline {
        gem: "vite_ruby",
        sources: "app/frontend",
        output: "public/vite",
        manifests: &[("manifest", ".json"), (".vite", "")],
    },
];

/// Reads the facts of the Rails app in `dir`; `None` if there is none. `variable` returns a variable that is set and not empty.
pub(super) fn read(
    dir: &Path,
    environment: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<RailsFacts> {
    if !dir.join("config/application.rb").is_file() || !dir.join("config/environment.rb").is_file() {
        return None;
    }
    let own = text(&dir.join(format!("config/environments/{environment}.rb"))).unwrap_or_default();
    let asks = |name: &str| lines(&own).any(|line| line.contains(name)) && variable(name).is_none();
    let (credentials, key) = credentials(dir, environment, variable);
    let (pipeline, sources) = pipeline(dir).unzip();
    Some(RailsFacts {
        credentials,
        key,
        secret_key_base: variable("SECRET_KEY_BASE").is_some(),
        dummy_secret: variable("SECRET_KEY_BASE_DUMMY").is_some(),
        secrets_yml: dir.join("config/secrets.yml").is_file(),
        pipeline,
        sources: sources.unwrap_or(0),
        logs_to_a_file: asks("RAILS_LOG_TO_STDOUT"),
        leaves_files_to_the_server: asks("RAILS_SERVE_STATIC_FILES"),
    })
}

/// Whether the app uses Active Record.
pub(super) fn has_active_record(dir: &Path) -> bool {
    dir.join("config/database.yml").is_file() || locks(dir, "activerecord")
}

/// The lines without comments.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim_start().starts_with('#'))
}

fn text(file: &Path) -> Option<String> {
    let short = fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() <= LONGEST);
    short.then(|| fs::read_to_string(file).ok())?
}

/// Whether Gemfile.lock has a gem.
fn locks(dir: &Path, gem: &str) -> bool {
    let lock = text(&dir.join("Gemfile.lock")).unwrap_or_default();
    lock.lines().any(|line| line.trim_start().split(' ').next() == Some(gem))
}

/// Returns the credentials of the environment, relative to the app, and their key.
fn credentials(
    dir: &Path,
    environment: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> (Option<PathBuf>, MasterKey) {
    let own = PathBuf::from(format!("config/credentials/{environment}.yml.enc"));
    let shared = PathBuf::from("config/credentials.yml.enc");
    let (file, key) = if dir.join(&own).is_file() {
        (own, PathBuf::from(format!("config/credentials/{environment}.key")))
    } else if dir.join(&shared).is_file() {
        (shared, PathBuf::from("config/master.key"))
    } else {
        return (None, MasterKey::Missing);
    };
    const VARIABLE: &str = "RAILS_MASTER_KEY";
    let found = match variable(VARIABLE) {
        Some(key) => MasterKey::Present {
            place: VARIABLE.to_owned(),
            characters: key.trim().chars().count(),
            open: false,
        },
        None => key_file(dir, key),
    };
    (Some(file), found)
}

fn key_file(dir: &Path, file: PathBuf) -> MasterKey {
    let path = dir.join(&file);
    match fs::read_to_string(&path) {
        Ok(key) => MasterKey::Present {
            place: file.display().to_string(),
            characters: key.trim().chars().count(),
            open: fs::metadata(&path).is_ok_and(|found| is_open(&found)),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => MasterKey::Missing,
        Err(error) => MasterKey::Unreadable { file, why: error.to_string() },
    }
}

/// Whether all users can read a file.
fn is_open(found: &Metadata) -> bool {
    found.permissions().mode() & 0o004 != 0
}

/// Returns the first pipeline that Gemfile.lock has, with its output, and the number of its source files.
fn pipeline(dir: &Path) -> Option<(AssetPipeline, usize)> {
    let known = PIPELINES.iter().find(|known| locks(dir, known.gem))?;
    let names: Vec<String> = fs::read_dir(dir.join(known.output))
        .into_iter()
        .flatten()
        .flatten()
        .take(MOST)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let is_manifest = |name: &String| {
        known.manifests.iter().any(|(begin, end)| name.starts_with(begin) && name.ends_with(end))
    };
    let pipeline = AssetPipeline {
        name: known.gem,
        output: known.output,
        has_files: !names.is_empty(),
        manifest: names.iter().any(is_manifest),
    };
    Some((pipeline, count(&dir.join(known.sources))))
}

/// Counts the files below a folder, without those of Git and the list of Sprockets' entry points.
fn count(folder: &Path) -> usize {
    let (mut folders, mut number) = (vec![folder.to_owned()], 0);
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let name = entry.file_name();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(_) if name != ".keep" && name != "manifest.js" => number += 1,
                _ => {}
            }
            if number >= MOST {
                return number;
            }
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    struct App(tempfile::TempDir);

    impl App {
        fn new(files: &[(&str, &str)]) -> App {
            let app = App(tempfile::tempdir().unwrap());
            for (name, text) in
                [("config/application.rb", ""), ("config/environment.rb", "")].iter().chain(files)
            {
                let path = app.0.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            app
        }

        fn read(&self, set: &[(&str, &str)]) -> RailsFacts {
            let variable = |name: &str| {
                set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            read(self.0.path(), "production", &variable).unwrap()
        }
    }

    #[test]
    fn an_app_without_rails_has_no_facts() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path(), "production", &|_| None), None);
    }

    #[test]
    fn the_key_of_the_environment_comes_first() {
        let app = App::new(&[
            ("config/credentials.yml.enc", "x"),
            ("config/master.key", "0123456789abcdef0123456789abcdef\n"),
        ]);
        let place = |facts: &RailsFacts| match &facts.key {
            MasterKey::Present { place, characters, .. } => format!("{place} {characters}"),
            other => format!("{other:?}"),
        };
        assert_eq!(place(&app.read(&[])), "config/master.key 32");
        assert_eq!(place(&app.read(&[("RAILS_MASTER_KEY", "abc")])), "RAILS_MASTER_KEY 3");
        fs::create_dir(app.0.path().join("config/credentials")).unwrap();
        fs::write(app.0.path().join("config/credentials/production.yml.enc"), "x").unwrap();
        let facts = app.read(&[]);
        assert_eq!(facts.key, MasterKey::Missing);
        assert_eq!(facts.credentials.unwrap(), Path::new("config/credentials/production.yml.enc"));
        fs::create_dir(app.0.path().join("config/credentials/production.key")).unwrap();
        assert!(matches!(app.read(&[]).key, MasterKey::Unreadable { .. }));
    }

    #[test]
    fn variables_that_the_environment_asks_for() {
        let file = "# ENV[\"RAILS_SERVE_STATIC_FILES\"]\nif ENV[\"RAILS_LOG_TO_STDOUT\"].present?\n";
        let app = App::new(&[("config/environments/production.rb", file)]);
        let facts = app.read(&[]);
        assert!(facts.logs_to_a_file && !facts.leaves_files_to_the_server);
        assert!(!app.read(&[("RAILS_LOG_TO_STDOUT", "1")]).logs_to_a_file);
    }

    #[test]
    fn a_pipeline_has_sources_output_and_a_manifest() {
        let lock = "GEM\n  specs:\n    sprockets-rails (3.4.1)\n";
        let app = App::new(&[
            ("Gemfile.lock", lock),
            ("app/assets/a.css", ""),
            ("app/assets/config/manifest.js", ""),
        ]);
        let facts = app.read(&[]);
        let pipeline = facts.pipeline.unwrap();
        assert_eq!(
            (pipeline.name, facts.sources, pipeline.has_files, pipeline.manifest),
            ("sprockets-rails", 1, false, false)
        );
        fs::create_dir_all(app.0.path().join("public/assets")).unwrap();
        fs::write(app.0.path().join("public/assets/a-1.css"), "").unwrap();
        assert!(app.read(&[]).pipeline.is_some_and(|pipeline| pipeline.has_files && !pipeline.manifest));
        fs::write(app.0.path().join("public/assets/.sprockets-manifest-1.json"), "").unwrap();
        assert!(app.read(&[]).pipeline.is_some_and(|pipeline| pipeline.manifest));
        assert_eq!(App::new(&[]).read(&[]).pipeline, None);
    }
}
