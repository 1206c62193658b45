//! `firebrick.toml`: no text makes loading panic, and every mistake is one line that names its place.
//! Run with `make fuzz FUZZ=settings_file`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use settings::{Environment, Machine, load};
use std::path::PathBuf;
use std::sync::OnceLock;

/// A directory with an app, and nothing set but by the file.
struct App(PathBuf);

impl App {
    fn new() -> App {
        let dir = std::env::temp_dir().join(format!("firebrick-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        std::fs::write(dir.join("config.ru"), "").expect("config.ru");
        App(dir)
    }
}

impl Environment for App {
    fn var(&self, _name: &str) -> Option<String> {
        None
    }

    fn current_dir(&self) -> PathBuf {
        self.0.clone()
    }

    fn uid(&self) -> u32 {
        1000
    }

    fn machine(&self) -> Machine {
        Machine::unlimited(2)
    }
}

fuzz_target!(|text: &str| {
    static APP: OnceLock<App> = OnceLock::new();
    let app = APP.get_or_init(App::new);
    std::fs::write(app.0.join("firebrick.toml"), text).expect("firebrick.toml");
    if let Err(errors) = load(&[], app) {
        assert!(!errors.0.is_empty());
        assert_eq!(errors.to_string().lines().count(), errors.0.len(), "{errors}");
    }
});
