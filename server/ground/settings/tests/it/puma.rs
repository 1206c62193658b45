//! Tests of settings with a `puma.rb`: when it is read, its precedence, and the directory that it names.

use crate::shared;

use settings::puma::{Call, CallOutcome, PumaValue};
use settings::{Bind, ValueSource};
use shared::{App, below};

fn call(line: usize, method: &str, arguments: &[PumaValue]) -> Call {
    let file = "config/puma.rb".into();
    Call {
        file,
        line,
        method: method.into(),
        arguments: arguments.to_vec(),
        block: false,
        conditional: false,
    }
}

fn text(text: &str) -> PumaValue {
    PumaValue::Text(text.into())
}

fn with_puma() -> App {
    let app = App::new();
    app.write("config/puma.rb", "");
    app
}

#[test]
fn it_is_read_where_there_is_no_toml_or_where_it_is_named() {
    let found = |app: &App| app.loaded().settings.puma_rb.map(|file| file.shown);
    assert_eq!(found(&App::new()), None);
    assert_eq!(found(&with_puma()), Some("config/puma.rb".into()));
    assert_eq!(found(&with_puma().flag("--config", "-")), None);
    let app = with_puma();
    app.write("config/puma/production.rb", "");
    app.write("web.rb", "");
    assert_eq!(found(&app), Some("config/puma.rb".into()));
    let app = app.flag("--environment", "production");
    assert_eq!(found(&app), Some("config/puma/production.rb".into()));
    let app = app.flag("--config", "web.rb");
    assert_eq!(found(&app), Some("web.rb".into()));
    app.write("firebrick.toml", "workers = 3");
    let loaded = app.loaded();
    assert_eq!(
        (loaded.settings.workers.max, loaded.settings.config),
        (3, Some(below(&app, "firebrick.toml")))
    );
    let app = with_puma();
    app.write("firebrick.toml", "");
    assert_eq!(found(&app), None);
}

#[test]
fn it_is_weaker_than_all_but_defaults() {
    let app = with_puma().var("WEB_CONCURRENCY", "4").flag("--port", "80").flag("--config", "config/puma.rb");
    app.write("firebrick.toml", "tag = 'toml'");
    let calls = [
        call(1, "workers", &[PumaValue::Integer(2)]),
        call(2, "threads", &[PumaValue::Integer(2), PumaValue::Integer(6)]),
        call(3, "port", &[text("3000")]),
        call(4, "tag", &[text("puma")]),
    ];
    let loaded = app.evaluated(&calls).unwrap();
    let settings = &loaded.settings;
    assert_eq!(
        (settings.workers.max, settings.threads.to_string(), settings.tag.as_str()),
        (4, "2:6".into(), "toml")
    );
    assert_eq!(settings.binds, [Bind::tcp("::", 80)]);
    let threads = loaded.choices.iter().find(|choice| choice.key == "threads").unwrap();
    let place = ("config/puma.rb".into(), 2, "threads 2, 6".into());
    assert_eq!(threads.origin, ValueSource::Puma { path: place.0, line: place.1, call: place.2 });
    let outcome = |index: usize| loaded.puma.as_ref().unwrap()[index].outcome.clone();
    assert_eq!(outcome(2), CallOutcome::Sets(vec![("port", "3000".into())]));
}

#[test]
fn its_values_are_judged_as_all_others() {
    let app = with_puma();
    let calls = [
        call(3, "workers", &[text("many")]),
        call(5, "worker_timeout", &[PumaValue::Object("Object".into())]),
    ];
    let errors = app.evaluated(&calls).unwrap_err().to_string();
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines[0].starts_with("config/puma.rb:3: workers \"many\": expected "), "{errors}");
    assert!(lines[1].starts_with("config/puma.rb:5: worker_timeout #<Object>: expected "), "{errors}");
    assert_eq!(lines.len(), 2);
}

#[test]
fn it_leads_to_an_app_unless_one_was_typed() {
    let app = with_puma();
    app.write("other.ru", "");
    app.write("inside/config.ru", "");
    let rackup = [call(1, "rackup", &[text("other.ru")])];
    assert_eq!(app.evaluated(&rackup).unwrap().settings.app, Some(below(&app, "other.ru")));
    let inside = [call(1, "directory", &[text("inside")])];
    let settings = app.evaluated(&inside).unwrap().settings;
    assert_eq!(
        (settings.dir.clone(), settings.app),
        (below(&app, "inside"), Some(below(&app, "inside/config.ru")))
    );
    // Commands search for the server where they were typed.
    let commands_look_at = app.loaded().settings.control.ask;
    let link = settings.control.link.clone().map(|path| path.display().to_string());
    assert_eq!(link, commands_look_at.map(|address| address.to_string()));
    let own = [call(1, "app", &[])];
    assert_eq!(app.evaluated(&own).unwrap().settings.app, Some(below(&app, "config/puma.rb")));
    let app = app.flag("DIR", "config.ru");
    for calls in [&rackup[..], &own] {
        assert_eq!(app.evaluated(calls).unwrap().settings.app, Some(below(&app, "config.ru")));
    }
    assert_eq!(app.evaluated(&inside).unwrap().settings.dir, app.dir());
}

#[test]
fn what_it_names_has_to_be_there() {
    let app = with_puma();
    let mistake = |calls: &[Call]| app.evaluated(calls).unwrap_err().to_string();
    let rackup = mistake(&[call(1, "rackup", &[text("no.ru")])]);
    assert_eq!(rackup, "config/puma.rb:1: rackup \"no.ru\": expected a rackup file that exists");
    let directory = mistake(&[call(1, "directory", &[text("no")])]);
    assert_eq!(directory, "config/puma.rb:1: directory \"no\": expected a directory that exists");
}

#[test]
fn what_does_nothing_is_noted() {
    let app = with_puma();
    let calls = [call(2, "prune_bundler", &[]), call(3, "queue_requests", &[]), call(4, "own_setting", &[])];
    let notes: Vec<String> = app.evaluated(&calls).unwrap().puma_notes().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("config/puma.rb:2: prune_bundler is ignored: "), "{notes:?}");
    assert_eq!(app.loaded().puma_notes().count(), 0);
}
