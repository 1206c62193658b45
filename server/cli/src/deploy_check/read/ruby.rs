//! Asks a short Ruby process for its version, and for the pools of `config/database.yml`, which may be ERB.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use settings::Settings;

use super::super::facts::{ConnectionPool, RubyAnswer};
use super::process;

const SCRIPT: &str = include_str!("ask.rb");
/// JRuby takes a few seconds to start.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks the Ruby of `settings`, in the app's directory. `active_record`: whether the app uses it.
///
/// # Errors
/// Ruby cannot be started, or does not answer.
pub(super) fn ask(settings: &Settings, active_record: bool) -> Result<RubyAnswer, String> {
    let environment = &settings.process.environment;
    let mut command = Command::new(&settings.rack.ruby);
    command.current_dir(&settings.dir).args(["-e", SCRIPT, "--", environment]).arg(if active_record {
        "1"
    } else {
        "0"
    });
    for name in ["RACK_ENV", "RAILS_ENV"] {
        if std::env::var_os(name).is_none() {
            command.env(name, environment);
        }
    }
    let run = process::run(&mut command, LIMIT)?;
    let refused = || {
        let line = run.err.lines().find(|line| !line.trim().is_empty()).unwrap_or("no output");
        text::masked(&format!("{}: {}", run.status, line.trim())).into_owned()
    };
    // Output of Ruby itself, or of a library in RUBYOPT, comes before.
    let (_, json) = run.out.rsplit_once('\0').ok_or_else(refused)?;
    parse(json).ok_or_else(refused)
}

/// Reads the answer of the script.
fn parse(json: &str) -> Option<RubyAnswer> {
    let answer: Value = serde_json::from_str(json.trim()).ok()?;
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let is = |name: &str| answer[name].as_bool().unwrap_or(false);
    let pool = |one: &Value| {
        Some(ConnectionPool {
            name: word(&one["name"])?,
            adapter: word(&one["adapter"])?,
            size: one["size"].as_u64().and_then(|size| size.try_into().ok()),
            origin: word(&one["origin"])?,
        })
    };
    Some(RubyAnswer {
        engine: word(&answer["engine"])?,
        version: word(&answer["version"])?,
        has_yjit: is("has_yjit"),
        yjit_by_itself: is("yjit"),
        pools: answer["pools"].as_array().into_iter().flatten().filter_map(pool).collect(),
        pools_error: word(&answer["error"]).map(|why| text::masked(&why).into_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_answer_is_read() {
        let json = r#"{"engine":"ruby","version":"3.3.0","has_yjit":true,"yjit":false,
            "pools":[{"name":"primary","adapter":"postgresql","origin":"default","size":5},{"name":"queue","adapter":"x","origin":"y","size":null}]}"#;
        let answer = parse(json).unwrap();
        assert_eq!(
            (answer.version.as_str(), answer.has_yjit, answer.pools_error.clone()),
            ("3.3.0", true, None)
        );
        assert_eq!(answer.pools.iter().map(|pool| pool.size).collect::<Vec<_>>(), [Some(5), None]);
        assert_eq!(parse(r#"{"engine":1}"#), None);
        assert_eq!(parse("no JSON"), None);
        assert_eq!(
            parse(r#"{"engine":"ruby","version":"3","error":"KeyError: x"}"#).unwrap().pools_error.unwrap(),
            "KeyError: x"
        );
    }

    #[test]
    fn a_ruby_that_fails_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let ruby = dir.path().join("a-ruby");
        fs::write(&ruby, "#!/bin/sh\necho 'no such library' >&2\nexit 1\n").unwrap();
        fs::set_permissions(&ruby, fs::Permissions::from_mode(0o755)).unwrap();
        let mut settings = Settings::defaults(dir.path());
        settings.rack.ruby = ruby;
        let why = ask(&settings, false).unwrap_err();
        assert!(why.contains("no such library"), "{why}");
    }
}
