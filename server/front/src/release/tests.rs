//! Tests the releases with a folder of real files, whose settings are read again by a stand-in.

use super::*;
use settings::{Bind, Environment, Machine};
use std::fs;
use std::path::{Path, PathBuf};

/// Reads the settings that a test has put there.
struct Stand(Rc<RefCell<Settings>>);

impl Rereads for Stand {
    fn read(&self) -> Result<Loaded, String> {
        let mut loaded = settings::load(&[], &Nowhere).map_err(|errors| errors.to_string())?;
        loaded.settings = self.0.borrow().clone();
        Ok(loaded)
    }

    fn evaluated(&self, loaded: &Loaded, _: &[Call]) -> Result<Loaded, String> {
        let mut loaded = loaded.clone();
        loaded.settings.limits.max_headers = 7;
        Ok(loaded)
    }

    fn changed(&self, loaded: &Loaded, values: &[RunningValue]) -> Result<Loaded, String> {
        let mut changed = loaded.changed(&Nowhere, values).map_err(|errors| errors.to_string())?;
        let body = changed.settings.limits.max_body;
        changed.settings = loaded.settings.clone();
        changed.settings.limits.max_body =
            if values.is_empty() { loaded.settings.limits.max_body } else { body };
        Ok(changed)
    }
}

/// An environment without variables, in the root of the file system.
struct Nowhere;

impl Environment for Nowhere {
    fn var(&self, _: &str) -> Option<String> {
        None
    }

    fn current_dir(&self) -> PathBuf {
        PathBuf::from("/")
    }

    fn uid(&self) -> u32 {
        7
    }

    fn machine(&self) -> Machine {
        Machine::unlimited(2)
    }
}

/// Returns releases whose settings are those in `next` at each reading.
pub(crate) fn releases_of(next: Rc<RefCell<Settings>>) -> Releases {
    let settings = Arc::new(next.borrow().clone());
    let loaded = Stand(next.clone()).read().unwrap();
    let (sites, _) = sites::load::load(&settings).unwrap();
    let handlers = scripts::plan(&settings).unwrap().map(Edition::new);
    Releases::of((loaded, settings), sites, handlers, Rc::new(Stand(next)), Vec::new())
}

/// A folder of releases, each with rules and a folder of files.
struct Deploys {
    root: tempfile::TempDir,
    next: Rc<RefCell<Settings>>,
    releases: Releases,
}

impl Deploys {
    fn new() -> Deploys {
        let root = tempfile::tempdir().unwrap();
        for number in ["1", "2", "3"] {
            fs::create_dir_all(root.path().join(number).join("public")).unwrap();
        }
        let next = Rc::new(RefCell::new(settings(&root.path().join("1"))));
        let releases = releases_of(next.clone());
        Deploys { root, next, releases }
    }

    fn deploy(&self, number: &str) -> Arc<Release> {
        *self.next.borrow_mut() = settings(&self.root.path().join(number));
        self.releases.read(number.parse().unwrap(), self.releases.in_force().id).unwrap()
    }

    fn load(&self, id: ReleaseId) -> Vec<String> {
        let root = self.root.path().join(id.to_string()).join("public");
        self.releases.declared(
            id,
            Vec::new(),
            &["mount\t".into(), format!("rule\tRack::Static\t{}", root.display())],
        )
    }

    fn roots(&self) -> (Vec<PathBuf>, Vec<PathBuf>) {
        let serving = self.releases.watch().borrow().clone();
        let roots = |files: &AppFiles| files.roots().map(Path::to_owned).collect();
        (roots(&serving.release.files), serving.tried.map(|files| roots(&files)).unwrap_or_default())
    }

    fn public(&self, number: &str) -> Vec<PathBuf> {
        vec![self.root.path().join(number).join("public")]
    }
}

fn settings(dir: &Path) -> Settings {
    let mut settings = Settings::defaults(dir);
    settings.binds = vec![Bind::tcp("127.0.0.1", 0)];
    settings.app = Some(dir.join("config.ru"));
    settings.files.public = Some(dir.join("public"));
    settings
}

#[test]
fn a_release_goes_into_force_whole_and_comes_back_whole() {
    let deploys = Deploys::new();
    let releases = &deploys.releases;
    deploys.load(1);
    let second = deploys.deploy("2");
    assert_eq!((second.id, releases.in_force().id), (2, 1));
    assert_eq!(deploys.roots(), (deploys.public("1"), Vec::new()));
    deploys.load(2);
    assert_eq!(
        deploys.roots(),
        (deploys.public("1"), deploys.public("2")),
        "its files serve where there are no others"
    );
    releases.put_in_force(2);
    assert_eq!(deploys.roots(), (deploys.public("2"), Vec::new()));
    assert!(releases.settings().dir.ends_with("2"));
    // The link may lead elsewhere now: an undo reads nothing.
    *deploys.next.borrow_mut() = settings(&deploys.root.path().join("3"));
    releases.put_in_force(1);
    assert_eq!(deploys.roots(), (deploys.public("1"), Vec::new()));
    assert!(releases.settings().dir.ends_with("1"));
    releases.put_in_force(9);
    assert_eq!(releases.in_force().id, 1, "a release that was never read");
}

#[test]
fn a_failed_reload_leaves_nothing() {
    let deploys = Deploys::new();
    deploys.load(1);
    deploys.deploy("2");
    deploys.load(2);
    deploys.releases.end_trial();
    assert_eq!(deploys.roots(), (deploys.public("1"), Vec::new()));
    let third = deploys.deploy("3");
    deploys.load(2);
    assert_eq!(
        (third.id, deploys.roots()),
        (3, (deploys.public("1"), Vec::new())),
        "a template of the second reports late"
    );
}

/// A reload that has waited begins at the end of another one, before the front has heard of that end.
#[test]
fn a_release_goes_into_force_although_the_next_one_has_been_read() {
    let deploys = Deploys::new();
    let releases = &deploys.releases;
    deploys.load(1);
    deploys.deploy("2");
    deploys.load(2);
    releases.read(3, 2).unwrap();
    assert_eq!([1, 2, 3].map(|id| releases.get(id).map(|release| release.id)), [Some(1), Some(2), Some(3)]);
    releases.put_in_force(2);
    assert_eq!((releases.in_force().id, deploys.roots().0), (2, deploys.public("2")));
    assert!(releases.get(3).is_some_and(|third| third.id == 3), "it can still take over");
}

#[test]
fn calls_of_puma_rb_complete_what_was_read() {
    let deploys = Deploys::new();
    let read = deploys.deploy("2");
    *deploys.next.borrow_mut() = settings(&deploys.root.path().join("3"));
    let completed = deploys.releases.evaluated(read.id, &[]).unwrap();
    assert!(completed.settings.dir.ends_with("2"), "the link is not followed again");
    assert_eq!((completed.id, completed.settings.limits.max_headers), (read.id, 7));
    deploys.releases.read(3, 1).unwrap();
    assert!(deploys.releases.evaluated(read.id, &[]).is_err(), "a newer one has been read");
}

#[test]
fn rules_that_are_the_same_stay_and_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let rules = dir.path().join("static.json");
    fs::write(&rules, "{}").unwrap();
    let mut settings = Settings::defaults(dir.path());
    let (dir, static_json) = (dir.path().to_owned(), Some(rules.clone()));
    settings.sites.main = Some(settings::Site { dir, static_json, root: None, found: None });
    let releases = releases_of(Rc::new(RefCell::new(settings)));
    let same = releases.read(2, 1).unwrap();
    assert!(Arc::ptr_eq(&same.sites, &releases.in_force().sites));
    fs::write(&rules, "{ \"clean_urls\": true }").unwrap();
    let changed = releases.read(3, 1).unwrap();
    assert!(!Arc::ptr_eq(&changed.sites, &releases.in_force().sites));
    fs::write(&rules, "{ no").unwrap();
    assert!(releases.read(4, 1).is_err_and(|why| why.contains("static.json")));
    // A watcher that has read rules for an earlier release changes nothing.
    releases.replace_sites(changed.id, changed.sites.clone());
    assert!(Arc::ptr_eq(&same.sites, &releases.in_force().sites));
    releases.replace_sites(releases.in_force().id, changed.sites.clone());
    assert!(Arc::ptr_eq(&changed.sites, &releases.in_force().sites));
}

fn max_body(value: &str) -> Vec<RunningValue> {
    vec![RunningValue { key: "limits.max_body".into(), value: value.into(), source: "set by root".into() }]
}

#[test]
fn changes_stay_in_force_over_a_reload_and_its_undo_until_they_are_taken_back() {
    let deploys = Deploys::new();
    let releases = &deploys.releases;
    let in_force = || (releases.settings().limits.max_body, releases.in_force().settings.limits.max_body);
    let default = releases.settings().limits.max_body;
    let tried = releases.try_changes(max_body("7MiB")).unwrap();
    assert_eq!(in_force(), (default, default), "a trial changes nothing");
    assert_eq!(tried.loaded.value_of("limits.max_body").0, "7MiB");
    releases.apply(tried);
    assert_eq!(in_force(), (Some(7 << 20), Some(7 << 20)));
    let (files, id) = (deploys.roots(), releases.in_force().id);
    deploys.deploy("2");
    // The change of this moment comes after the release was read.
    releases.apply(releases.try_changes(max_body("8MiB")).unwrap());
    assert_eq!((deploys.roots(), releases.in_force().id), (files, id));
    releases.put_in_force(2);
    assert_eq!(in_force(), (Some(8 << 20), Some(8 << 20)));
    releases.apply(releases.try_changes(Vec::new()).unwrap());
    releases.put_in_force(1);
    assert_eq!(in_force(), (default, default), "the release of before the change comes back without it");
    assert!(releases.try_changes(max_body("much")).is_err());
}
