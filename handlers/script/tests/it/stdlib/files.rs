//! `require` of files beside the handler.

use super::vm::load;
use std::path::Path;

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("app/lib")).unwrap();
    let write = |name: &str, code: &str| std::fs::write(dir.path().join(name), code).unwrap();
    write("outside.rb", "puts 'outside'");
    write("app/one.rb", "puts 'one'\nrequire_relative 'lib/two'\nmodule One; HERE = __dir__; end");
    write("app/lib/two.rb", "puts 'two'\nsleep 0.001\nTWO = 2");
    write("app/broken.rb", "def x\n  1 +\nend end\n");
    write("app/fails.rb", "raise 'not today'");
    dir
}

fn run(dir: &Path, code: &str) -> Option<Result<Vec<String>, String>> {
    load(code, &dir.join("app/handler.rb"))
}

#[test]
fn each_file_is_loaded_once() {
    let dir = folder();
    let code = "
      puts require('one'), require('one.rb'), require_relative('./one')
      puts TWO, require('json'), require('digest/sha2')
      $LOAD_PATH << \"#{__dir__}/lib\"
      puts require('two')
      load 'lib/two.rb'
    ";
    let Some(lines) = run(dir.path(), code) else { return };
    assert_eq!(
        lines.unwrap(),
        ["one", "two", "true", "false", "false", "2", "false", "false", "false", "two"]
    );
    let required = script::required();
    let app = dir.path().canonicalize().unwrap().join("app");
    assert!(
        required.contains(&app.join("one.rb")) && required.contains(&app.join("lib/two.rb")),
        "{required:?}"
    );
}

#[test]
fn errors_say_why_a_file_cannot_be_loaded() {
    let dir = folder();
    for (code, why) in [
        ("require 'nothing'", "cannot load such file -- nothing.rb (looked below"),
        ("require_relative '../outside'", "only files below the folder of a handler can be required"),
        ("require 'broken'", "app/broken.rb"),
        ("require 'broken'", "line 3"),
        ("require 'fails'", "not today"),
    ] {
        let Some(loaded) = run(dir.path(), code) else { return };
        let error = loaded.unwrap_err();
        assert!(error.contains(why), "{code}: {error}");
    }
}

#[test]
fn a_file_that_failed_can_be_loaded_again() {
    let dir = folder();
    let code = "2.times { begin; require 'fails'; rescue => e; puts e.message; end }";
    let Some(lines) = run(dir.path(), code) else { return };
    assert_eq!(lines.unwrap(), ["not today", "not today"]);
}
