//! A directory of an app, and surroundings in which to load its settings.

// Each test program uses its own part of this module.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

use settings::puma::Call;
use settings::table::{Takes, entries};
use settings::{Argument, Environment, Errors, Loaded, Machine, load};

/// A temporary directory with a config.ru, variables, and flags.
pub struct App {
    folder: tempfile::TempDir,
    vars: Vec<(String, String)>,
    arguments: Vec<Argument>,
    pub machine: Machine,
}

impl App {
    pub fn new() -> App {
        let folder = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(folder.path().join("config.ru"), "run ->(env) { [200, {}, []] }\n")
            .expect("config.ru");
        let machine = Machine::unlimited(2);
        App { folder, vars: Vec::new(), arguments: Vec::new(), machine }
    }

    /// Creates an app with this firebrick.toml.
    pub fn with(text: &str) -> App {
        let app = App::new();
        app.write("firebrick.toml", text);
        app
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let parent = self.folder.path().join(name).parent().map(Path::to_owned).expect("a parent");
        std::fs::create_dir_all(parent).expect("a directory");
        std::fs::write(self.folder.path().join(name), text).expect("a file");
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the directory")
    }

    pub fn var(mut self, name: &str, value: &str) -> App {
        self.vars.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds `--flag value`, a flag without a value, or the argument `DIR`.
    pub fn flag(mut self, flag: &str, value: &str) -> App {
        let name = flag.trim_start_matches('-');
        let found = entries().find_map(|entry| {
            let about = entry.about();
            let known = about.flags.iter().find(|known| known.long == name);
            let positional = (flag == "DIR" && about.positional.is_some()).then_some(Takes::Value("DIR"));
            known.map(|known| known.takes).or(positional).map(|takes| (about.key, takes, entry.is_list()))
        });
        let (key, takes, is_list) = found.unwrap_or_else(|| panic!("there is no {flag}"));
        let value = if let Takes::Nothing(means) = takes { means } else { value };
        match self.arguments.iter_mut().find(|argument| is_list && argument.flag == flag) {
            Some(argument) => argument.values.push(value.to_owned()),
            None => {
                let (flag, values) = (flag.to_owned(), vec![value.to_owned()]);
                self.arguments.push(Argument { key, flag, values });
            }
        }
        self
    }

    pub fn arguments(&self) -> Vec<Argument> {
        self.arguments.clone()
    }

    pub fn load(&self) -> Result<Loaded, Errors> {
        load(&self.arguments, self)
    }

    pub fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|errors| panic!("{errors}"))
    }

    /// Loads the settings with the calls of the app's `puma.rb`.
    pub fn evaluated(&self, calls: &[Call]) -> Result<Loaded, Errors> {
        load(&self.arguments, self)?.evaluated(self, calls)
    }

    /// Returns the messages, one per line.
    pub fn mistakes(&self) -> String {
        match self.load() {
            Ok(loaded) => panic!("nothing was wrong: {loaded:?}"),
            Err(errors) => errors.to_string(),
        }
    }
}

impl Environment for App {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn current_dir(&self) -> PathBuf {
        self.dir()
    }

    fn uid(&self) -> u32 {
        7
    }

    fn machine(&self) -> Machine {
        self.machine.clone()
    }
}

/// A path below the app's directory.
pub fn below(app: &App, path: &str) -> PathBuf {
    app.dir().join(Path::new(path))
}
