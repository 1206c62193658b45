//! Evaluates Ruby as a handler.

use script::{HandlerPlan, HandlerRoute, HandlerSource, RouteLimits, Script};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Evaluates handler `code` in a file of that name. Returns the lines of its log, or the reason why it cannot
/// be loaded; `None` in a build without mruby.
pub fn load(code: &str, file: &Path) -> Option<Result<Vec<String>, String>> {
    script::version()?;
    let limits = RouteLimits {
        request_heap: 64 << 20,
        step_time: Some(Duration::from_secs(20)),
        deadline: None,
        max_tasks: 100,
        max_body: 1 << 20,
        reproxy: false,
    };
    let code = format!("{code}\nlambda {{ |env| [200, {{}}, []] }}\n");
    let plan = HandlerPlan {
        sources: vec![HandlerSource { file: file.to_owned(), code }],
        routes: vec![HandlerRoute { path: String::new(), handlers: vec![0], limits: Arc::new(limits) }],
        heap: 128 << 20,
        temp_dir: std::env::temp_dir(),
    };
    let lines = Rc::new(RefCell::new(Vec::new()));
    let log = lines.clone();
    let complain =
        Rc::new(move |line: &str| log.borrow_mut().push(line.trim_start_matches("mruby: ").to_owned()));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default()).unwrap();
    let ready = runtime.block_on(async {
        let script = Script::open(Arc::new(plan), complain).unwrap();
        script.ready().await
    });
    Some(ready.map(|()| lines.take()))
}

/// Checks that each row's Ruby has the row's result in the form of `inspect`; an exception is `Class: message`.
pub fn assert_rows(rows: &[(&str, &str)]) {
    assert_rows_after("", rows);
}

/// Returns a Hash in the form of mruby before 3.4.
fn older(text: &str) -> String {
    if !text.starts_with(['{', '[']) {
        return text.to_owned();
    }
    let pattern = fancy_regex::Regex::new(r#"([{ ])([a-z]\w*): "#).unwrap();
    pattern.replace_all(text, "$1:$2=>").replace(" => ", "=>")
}

/// Does the same after `setup`.
pub fn assert_rows_after(setup: &str, rows: &[(&str, &str)]) {
    let mut code = String::from(setup);
    for (ruby, _) in rows {
        let _ = write!(
            code,
            "\nRt.call(Rt::LOG, begin; (\n{ruby}\n).inspect; rescue StandardError => e; \
             \"#{{e.class}}: #{{e.message}}\"; end)\n"
        );
    }
    let Some(lines) = load(&code, Path::new("handlers/rows.rb")) else { return };
    let lines = lines.unwrap();
    let mut wrong = String::new();
    for (index, (ruby, expected)) in rows.iter().enumerate() {
        let got = lines.get(index).map_or("(nothing)", String::as_str);
        if older(got) != *expected {
            let _ = writeln!(wrong, "{ruby}\n  expected {expected}\n  got      {got}");
        }
    }
    assert!(
        wrong.is_empty() && lines.len() == rows.len(),
        "{} lines for {} rows\n{wrong}",
        lines.len(),
        rows.len()
    );
}
