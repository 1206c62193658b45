//! Tests of the kit's classes, from Ruby on a real VM: each `.rb` file in this folder raises if a check fails.
#![cfg(test)]

use script::{HandlerPlan, HandlerRoute, HandlerSource, RouteLimits, Script};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Runs a file of checks in a new VM, with a temporary folder.
fn check(name: &str, folder: &Path) {
    if script::version().is_none() {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/kit");
    let read = |name: &str| std::fs::read_to_string(here.join(name)).expect("the checks are there");
    let code = format!(
        "FOLDER = {folder:?}\n{}\n{}\nlambda {{ |env| [200, {{}}, []] }}\n",
        read("check.rb"),
        read(name)
    );
    let limits = RouteLimits {
        request_heap: 64 << 20,
        step_time: None,
        deadline: None,
        max_tasks: 100,
        max_body: 0,
        reproxy: false,
    };
    let plan = HandlerPlan {
        sources: vec![HandlerSource { file: name.into(), code }],
        routes: vec![HandlerRoute { path: String::new(), handlers: vec![0], limits: Arc::new(limits) }],
        heap: 128 << 20,
        temp_dir: folder.to_owned(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default());
    let ready = runtime.expect("a runtime").block_on(async {
        let complain = Rc::new(|line: &str| eprintln!("{line}"));
        let script = Script::open(Arc::new(plan), complain).expect("a VM with its preludes");
        tokio::time::timeout(Duration::from_secs(60), script.ready()).await.expect("an end")
    });
    if let Err(why) = ready {
        panic!("{why}");
    }
}

macro_rules! checks {
    ($($name:ident)*) => {$(
        #[test]
        fn $name() {
            let folder = tempfile::tempdir().unwrap();
            check(concat!(stringify!($name), ".rb"), folder.path());
        }
    )*};
}

checks! { lru_cache trie_addr acl dos_detector prometheus rate_limit }

#[test]
fn htpasswd() {
    let folder = tempfile::tempdir().unwrap();
    // The second password is "correct horse" by `openssl passwd -apr1 -salt saltsalt`.
    let people = "ann:{PLAIN}secret\nbob:$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/\n";
    std::fs::write(folder.path().join("people"), people).unwrap();
    std::fs::write(folder.path().join("wrong"), "ann:secret\n").unwrap();
    check("htpasswd.rb", folder.path());
}
