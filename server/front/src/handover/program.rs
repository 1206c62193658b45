//! Records how this program was started, so that an upgrade can start it in the same way. Pure except
//! [`Started::now`] and [`Surroundings::now`].
//!
//! Contract:
//! 1. The program's path is resolved again as it was typed: a link such as `current` may now lead to another
//!    release, and the running file may have been replaced or deleted.
//! 2. If the program was started by the gem's launcher, the launcher runs again, because another version of
//!    the gem is in another directory.
//! 3. An upgrade is refused if the end of this process would end its environment (a container, a measurement).

use settings::Environment;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Set by the gem's launcher: its own path as typed.
const LAUNCHER: &str = "FIREBRICK_LAUNCHER";
/// The name under which the launcher runs the program.
const LAUNCHED: &str = "firebrick";
/// Set by `firebrick tune` for the servers that it measures.
const MEASURED: &str = "FIREBRICK_TUNE_SERVER";
/// Programs that, as process 1, exit together with their child, which ends the container.
const ENDS_WITH_ITS_CHILD: [&str; 8] =
    ["tini", "docker-init", "dumb-init", "catatonit", "sh", "bash", "dash", "ash"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The program's name as typed.
    program: OsString,
    arguments: Vec<OsString>,
    /// The working directory as typed, with symbolic links.
    directory: PathBuf,
    /// Directories reached through links: the resolved path and the path as typed.
    links: Vec<(PathBuf, PathBuf)>,
    /// The path of the gem's launcher.
    launcher: Option<PathBuf>,
}

impl Started {
    /// Records the start of this process. Must be called before the working directory changes.
    pub fn now(environment: &dyn Environment) -> Started {
        let mut words = std::env::args_os();
        let directory = environment.current_dir();
        let found = directory.canonicalize().ok().filter(|found| *found != directory);
        Started {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            links: found.map(|found| (found, directory.clone())).into_iter().collect(),
            directory,
            launcher: std::env::var_os(LAUNCHER).map(PathBuf::from),
        }
    }

    /// Adds a directory that was reached through a link.
    pub(crate) fn link(&mut self, found: &Path, typed: &Path) {
        if found != typed {
            self.links.push((found.to_owned(), typed.to_owned()));
        }
    }

    pub(super) fn name(&self) -> &OsStr {
        &self.program
    }

    pub(super) fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the file to start.
    ///
    /// # Errors
    /// No such file. The text names the paths that were tried.
    pub(super) fn file(&self, surroundings: &Surroundings) -> Result<PathBuf, String> {
        let launcher = self.launcher.as_ref().filter(|_| self.program == LAUNCHED);
        if let Some(launcher) = launcher {
            return self.runnable(launcher, surroundings);
        }
        if self.program.as_bytes().contains(&b'/') {
            return self.runnable(&self.directory.join(&self.program), surroundings);
        }
        let found = std::env::split_paths(&surroundings.path)
            .map(|folder| self.directory.join(folder).join(&self.program))
            .find(|file| (surroundings.is_program)(file));
        match (found, &surroundings.executable) {
            (Some(found), _) => Ok(found),
            // The program was started by a path that differs from its name.
            (None, Some(executable)) => self.runnable(&without_deleted(executable), surroundings),
            (None, None) => Err(format!("{} is not in any folder of PATH", self.program.display())),
        }
    }

    fn runnable(&self, file: &Path, surroundings: &Surroundings) -> Result<PathBuf, String> {
        if (surroundings.is_program)(file) {
            Ok(file.to_owned())
        } else {
            Err(format!("{} is missing or not executable", file.display()))
        }
    }

    /// Returns the environment variables to change: the directory, and a Gemfile that was found through a link.
    pub(super) fn variables(&self, gemfile: Option<&OsStr>) -> Vec<(OsString, OsString)> {
        let mut changes = vec![("PWD".into(), self.directory.clone().into_os_string())];
        let typed = gemfile.map(Path::new).and_then(|gemfile| {
            self.links.iter().find_map(|(found, typed)| Some(typed.join(gemfile.strip_prefix(found).ok()?)))
        });
        changes.extend(typed.map(|typed| (OsString::from("BUNDLE_GEMFILE"), typed.into_os_string())));
        changes
    }
}

/// Removes the suffix that the kernel adds to the path of a deleted program.
fn without_deleted(executable: &Path) -> PathBuf {
    let bytes = executable.as_os_str().as_bytes();
    let bytes = bytes.strip_suffix(b" (deleted)").unwrap_or(bytes);
    OsString::from_vec(bytes.to_vec()).into()
}

/// The process's environment, as far as it decides about an upgrade.
pub(super) struct Surroundings {
    pub(super) path: OsString,
    /// The running file as the kernel reports it.
    pub(super) executable: Option<PathBuf>,
    pub(super) is_program: fn(&Path) -> bool,
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) first: Option<String>,
    /// Whether `firebrick tune` measures this server.
    pub(super) measured: bool,
}

impl Surroundings {
    pub(super) fn now() -> Surroundings {
        Surroundings {
            path: std::env::var_os("PATH").unwrap_or_default(),
            executable: std::fs::read_link("/proc/self/exe").or_else(|_| std::env::current_exe()).ok(),
            is_program: |file| {
                file.is_file() && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
            },
            pid: std::process::id(),
            parent: std::os::unix::process::parent_id(),
            first: sys::process::name(1),
            measured: std::env::var_os(MEASURED).is_some(),
        }
    }

    /// Whether another process can replace this one.
    ///
    /// # Errors
    /// The reason against it, and a remedy.
    pub(super) fn repeatable(&self) -> Result<(), String> {
        let instead =
            "replace the container instead (a rolling update), or load new code with `firebrick reload`";
        if self.pid == 1 {
            return Err(format!("this is process 1 of a container, which ends with it: {instead}"));
        }
        let first = self.first.as_deref().unwrap_or_default();
        if self.parent == 1 && ENDS_WITH_ITS_CHILD.contains(&first) {
            return Err(format!(
                "process 1 of this container is {first}, which ends when this process does: {instead}"
            ));
        }
        if self.measured {
            return Err("`firebrick tune` measures this server".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(program: &str) -> Started {
        Started {
            program: program.into(),
            arguments: vec!["serve".into()],
            directory: "/srv/app/current".into(),
            links: vec![("/srv/app/releases/1".into(), "/srv/app/current".into())],
            launcher: None,
        }
    }

    fn surroundings() -> Surroundings {
        Surroundings {
            path: "/usr/local/bin:bin:/usr/bin".into(),
            executable: Some("/opt/releases/1/firebrick (deleted)".into()),
            is_program: |file| {
                let there = [
                    "/srv/app/current/bin/firebrick",
                    "/usr/bin/firebrick",
                    "/opt/releases/1/firebrick",
                    "/gems/bin/firebrick",
                ];
                there.iter().any(|one| Path::new(one) == file)
            },
            pid: 100,
            parent: 50,
            first: Some("systemd".to_owned()),
            measured: false,
        }
    }

    #[test]
    fn the_program_is_looked_up_as_it_was_typed() {
        let found = |program: &str| started(program).file(&surroundings());
        assert_eq!(found("bin/firebrick"), Ok("/srv/app/current/bin/firebrick".into()));
        assert_eq!(found("/usr/bin/firebrick"), Ok("/usr/bin/firebrick".into()));
        assert_eq!(
            found("/usr/sbin/firebrick").unwrap_err(),
            "/usr/sbin/firebrick is missing or not executable"
        );
        assert_eq!(found("firebrick"), Ok("/srv/app/current/bin/firebrick".into()), "by PATH");
        assert_eq!(found("other name"), Ok("/opt/releases/1/firebrick".into()), "not in PATH");
        let lost = Surroundings { executable: Some("/gone (deleted)".into()), ..surroundings() };
        assert_eq!(started("other").file(&lost).unwrap_err(), "/gone is missing or not executable");
    }

    #[test]
    fn the_gems_launcher_is_run_again_where_it_was_typed() {
        let mut launched = started(LAUNCHED);
        launched.launcher = Some("/gems/bin/firebrick".into());
        assert_eq!(launched.file(&surroundings()), Ok("/gems/bin/firebrick".into()));
        // The variable was inherited from another program.
        launched.program = "/usr/bin/firebrick".into();
        assert_eq!(launched.file(&surroundings()), Ok("/usr/bin/firebrick".into()));
    }

    #[test]
    fn folders_and_gemfile_are_those_that_were_typed() {
        let own = started("firebrick");
        let pwd = ("PWD".into(), "/srv/app/current".into());
        assert_eq!(own.variables(None), std::slice::from_ref(&pwd));
        assert_eq!(own.variables(Some(OsStr::new("/elsewhere/Gemfile"))), std::slice::from_ref(&pwd));
        assert_eq!(
            own.variables(Some(OsStr::new("/srv/app/releases/1/Gemfile"))),
            [pwd, ("BUNDLE_GEMFILE".into(), "/srv/app/current/Gemfile".into())]
        );
    }

    #[test]
    fn who_would_end_something_else_is_not_upgraded() {
        assert_eq!(surroundings().repeatable(), Ok(()));
        let with = |change: fn(&mut Surroundings)| {
            let mut changed = surroundings();
            change(&mut changed);
            changed.repeatable().unwrap_err()
        };
        assert!(with(|one| one.pid = 1).contains("replace the container"));
        let under_tini = with(|one| (one.parent, one.first) = (1, Some("tini".to_owned())));
        assert!(under_tini.contains("process 1 of this container is tini"), "{under_tini}");
        assert!(with(|one| one.measured = true).contains("firebrick tune"));
        // The parent is a service manager, or a process that adopted the program from an old one.
        let adopted = Surroundings { parent: 1, ..surroundings() };
        assert_eq!(adopted.repeatable(), Ok(()));
    }
}
