//! Detects the engine of a Ruby. Only CRuby can fork; workers of other engines are spawned.
//!
//! Contract: each Ruby is started once to report its engine. The default, `ruby` from the PATH, is not,
//! because that would delay the start of every server. A Ruby that does not report counts as CRuby; starting
//! it for real then reports the error.

use super::prepared::command;
use settings::{Pool, Settings};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use wire::Seats;

const QUESTION: &str = "print RUBY_ENGINE, ' ', RUBY_ENGINE_VERSION";

/// The answers so far: engine and version of a Ruby that cannot fork, `None` for CRuby.
static ASKED: Mutex<Vec<(PathBuf, Option<String>)>> = Mutex::new(Vec::new());

/// Returns the engine and version of the Ruby of `settings`, such as `jruby 9.3.9.0`, or `None` for CRuby.
/// Takes as long as that Ruby needs to start.
pub fn without_fork(settings: &Settings) -> Option<String> {
    let ruby = &settings.rack.ruby;
    if ruby == Path::new("ruby") {
        return None;
    }
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, answer)) = asked.iter().find(|(one, _)| one == ruby) {
        return answer.clone();
    }
    let answer = ask(settings, &[]).filter(|answer| !answer.starts_with("ruby "));
    asked.push((ruby.clone(), answer.clone()));
    answer
}

/// Returns the pools of workers with this Ruby, the default one first. A Ruby that cannot fork has no fibers:
/// threads serve in the default pool, which also gets the paths of the pools of fibers.
pub fn pools(settings: &Settings) -> Vec<Pool> {
    let mut all: Vec<Pool> =
        std::iter::once(settings.default_pool()).chain(settings.pools.iter().cloned()).collect();
    if all.iter().any(|pool| pool.fibers > 0) && without_fork(settings).is_some() {
        all[0].fibers = 0;
        // These are the last ones, so that the others keep their numbers.
        all.retain(|pool| pool.fibers == 0);
    }
    all
}

/// Returns the seats of a worker of this pool.
pub(crate) fn seats(pool: &Pool) -> Seats {
    Seats { threads: pool.threads.max.into(), fibers: pool.fibers }
}

fn ask(settings: &Settings, environment: &[(OsString, Option<OsString>)]) -> Option<String> {
    let output = command(settings, environment).args(["-e", QUESTION]).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && text.split(' ').count() == 2).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(script: &str) -> Option<String> {
        let folder =
            std::env::temp_dir().join(format!("firebrick-engine-{}-{}", std::process::id(), script.len()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a-ruby");
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&file, mode).unwrap();
        let mut settings = Settings::defaults(&folder);
        (settings.rack.ruby, settings.dir) = (file, folder.clone());
        let engine = (without_fork(&settings), without_fork(&settings));
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(engine.0, engine.1);
        engine.0
    }

    #[test]
    fn the_engine_is_what_ruby_says() {
        assert_eq!(engine("printf 'jruby 9.3.9.0'").as_deref(), Some("jruby 9.3.9.0"));
        assert_eq!(engine("echo $0 >> asked; printf 'ruby 3.1.2'"), None);
        assert_eq!(engine("printf 'jruby 9.3.9.0'; exit 1"), None, "it has failed");
        assert_eq!(engine("echo what is this"), None);
    }
}
