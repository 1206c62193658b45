//! `firebrick trust`: makes this machine trust the authority of development certificates, or removes that trust.
//!
//! Contract:
//! 1. Every command that changes a store is printed before any of them runs, and none runs without consent: a
//!    yes at a terminal, or `--yes`.
//! 2. A problem (a missing program, a failed command) is reported, and the other stores are still changed.
//! 3. Exit codes: 0 all stores are as wanted, 1 some are not, or the answer was no, 2 wrong usage, or no
//!    terminal to ask at.

use std::fmt::Write as _;
use std::io::{self, BufRead, IsTerminal};
use std::process::{Command, ExitCode, Stdio};
use std::time::SystemTime;

use certs::local::stores::{self, LocalMachine, Need, TrustCommand, TrustStore, TrustStoreKind};
use certs::local::{self, Authority};
use settings::Environment;

/// The typed arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Remove the authority instead of adding it.
    pub undo: bool,
    pub yes: bool,
    /// Only show the commands.
    pub dry_run: bool,
    /// The stores to change.
    pub kinds: Vec<TrustStoreKind>,
}

impl Trust {
    /// Reads the names of stores; no names mean all stores.
    ///
    /// # Errors
    /// A name is unknown.
    pub(crate) fn kinds<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<TrustStoreKind>, String> {
        let mut kinds = Vec::new();
        for name in names {
            let known = TrustStoreKind::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
            let all = TrustStoreKind::ALL.map(|(name, _)| name).join(", ");
            kinds.push(known.ok_or_else(|| format!("--store {name}: expected one of {all}"))?);
        }
        kinds.dedup();
        Ok(if kinds.is_empty() { TrustStoreKind::ALL.map(|(_, kind)| kind).to_vec() } else { kinds })
    }
}

pub fn trust(given: &Trust, environment: &dyn Environment) -> ExitCode {
    let code = match wanted(given, environment) {
        Ok((introduction, stores)) => proceed(given, &introduction, &stores),
        Err(error) => {
            output::complain(format_args!("error: {error}"));
            1
        }
    };
    ExitCode::from(code)
}

/// Returns the introduction, and the needs of each store.
fn wanted(given: &Trust, environment: &dyn Environment) -> Result<(String, Vec<TrustStore>), local::Error> {
    let var = |name: &str| environment.var(name);
    let (folder, machine) = (local::folder(var)?, LocalMachine::here(var, environment.uid())?);
    let mut text = String::new();
    if let Some(user) = var("SUDO_USER").filter(|_| machine.uid == 0) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "Note: this is the authority of root. For that of {user}, run it as {user}: it calls sudo where that is needed."
        );
    }
    if given.undo {
        // Stores are changed even if the authority's file is unusable.
        let authority = Authority::find(&folder).ok().flatten();
        let _ = writeln!(text, "Removing the authority of development certificates from:\n");
        return Ok((text, stores::remove(&machine, authority.as_ref(), &given.kinds)));
    }
    let (authority, made) = Authority::open(&folder, SystemTime::now())?;
    let _ = writeln!(text, "{}{}", authority.name(), if made { ", made just now" } else { "" });
    let _ = writeln!(text, "  {}", authority.file().display());
    let _ = writeln!(text, "  can sign for {} only\n", local::COVERED);
    Ok((text, stores::install(&machine, &authority, &given.kinds)))
}

fn proceed(given: &Trust, introduction: &str, stores: &[TrustStore]) -> u8 {
    let nothing = if given.undo { "does not have it" } else { "trusts it already" };
    let mut out = introduction.to_owned();
    stores.iter().for_each(|store| describe(&mut out, store, nothing));
    output::print(out);
    let impossible = stores.iter().any(|store| matches!(store.need, Need::Impossible(_)));
    let code = u8::from(impossible);
    if given.dry_run || !stores.iter().any(|store| matches!(store.need, Need::Run(_))) {
        return code;
    }
    match agreed(given) {
        Ok(true) => {}
        Ok(false) => {
            output::print("Nothing was changed.\n");
            return 1;
        }
        Err(why) => {
            output::complain(format_args!("error: {why}"));
            return 2;
        }
    }
    let failed = stores.iter().filter(|store| !run(store, given.yes)).count();
    if stores.iter().any(|store| store.name.starts_with("Firefox") || store.name.starts_with("Chromium")) {
        output::print("Browsers that are running notice it when they are started again.\n");
    }
    code.max(u8::from(failed > 0))
}

fn describe(out: &mut String, store: &TrustStore, nothing: &str) {
    // Writing to a String cannot fail.
    let _ = match &store.need {
        Need::Nothing => writeln!(out, "{}\n  {nothing}", store.name),
        Need::Impossible(why) => writeln!(out, "{}\n  cannot be changed: {why}", store.name),
        Need::Run(steps) => {
            let lines: String = steps.iter().map(|step| format!("  {step}\n")).collect();
            write!(out, "{}\n{lines}", store.name)
        }
    };
}

/// Returns whether the commands may run.
fn agreed(given: &Trust) -> Result<bool, String> {
    if given.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(
            "standard input is not a terminal; use --yes to run the commands above without confirmation"
                .to_owned(),
        );
    }
    output::print("\nRun these commands? [y/N] ");
    let mut answer = String::new();
    // The end of the input counts as no.
    let _ = io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Runs the commands for a store; returns whether they succeeded.
fn run(store: &TrustStore, unattended: bool) -> bool {
    let Need::Run(steps) = &store.need else { return true };
    let failure = steps.iter().find_map(|step| execute(step, unattended).err().map(|why| (step, why)));
    match failure {
        None => output::print(format!("done: {}\n", store.name)),
        Some((step, ref why)) => output::complain(format_args!("error: {}: {step}: {why}", store.name)),
    }
    failure.is_none()
}

fn execute(step: &TrustCommand, unattended: bool) -> Result<(), String> {
    let Some((program, arguments)) = step.0.split_first() else { return Ok(()) };
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    // The PATH of ordinary users often lacks the folders of administrators' programs.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/local/sbin"));
    // A program may ask for a password at a terminal, but a script must not wait for one.
    if unattended && !io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    let status = command.status().map_err(|why| why.to_string())?;
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named() {
        assert_eq!(Trust::kinds(std::iter::empty()).unwrap().len(), 3);
        assert_eq!(Trust::kinds(["firefox"].into_iter()), Ok(vec![TrustStoreKind::Firefox]));
        assert!(Trust::kinds(["safari"].into_iter()).unwrap_err().contains("system, chromium, firefox"));
    }

    #[test]
    fn each_store_says_what_it_needs() {
        let mut out = String::new();
        let store = |name: &str, need| TrustStore { name: name.to_owned(), need };
        let steps =
            vec![TrustCommand(vec!["a".to_owned(), "b c".to_owned()]), TrustCommand(vec!["d".to_owned()])];
        for store in [
            store("one", Need::Nothing),
            store("two", Need::Impossible("gone".to_owned())),
            store("three", Need::Run(steps)),
        ] {
            describe(&mut out, &store, "is right");
        }
        assert_eq!(out, "one\n  is right\ntwo\n  cannot be changed: gone\nthree\n  a 'b c'\n  d\n");
    }

    #[test]
    fn commands_run_until_one_fails() {
        let step = |words: &[&str]| TrustCommand(words.iter().map(|word| (*word).to_owned()).collect());
        let store = |steps| TrustStore { name: "test".to_owned(), need: Need::Run(steps) };
        assert!(run(&store(vec![step(&["true"])]), true));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("made");
        let touch = step(&["touch", &file.display().to_string()]);
        assert!(!run(&store(vec![step(&["false"]), touch]), true));
        assert!(!file.exists());
        assert!(!run(&store(vec![step(&["/nowhere/program"])]), true));
    }
}
