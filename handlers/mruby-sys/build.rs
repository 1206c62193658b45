//! Finds libmruby and compiles the shim against it. Without libmruby the crate is built so that no VM can be
//! opened, and reports the reason.
//!
//! `MRUBY_DIR` names another mruby (its `include` and `lib`, or the directory in which it was built);
//! otherwise the system's is used. The build options of a library are in the file of flags next to it, if
//! there is one. Debian 13's library has the debug hook although its headers do not say so; `src/probe.c`
//! detects it.

use std::path::{Path, PathBuf};
use std::process::Command;

struct LibraryFiles {
    lib: PathBuf,
    include: PathBuf,
    /// The folder with the symbol names, for a library that was not installed or was installed without them.
    names: Option<PathBuf>,
    /// Whether the library was built with MRB_USE_DEBUG_HOOK.
    has_hook: bool,
}

enum Library {
    Fit(LibraryFiles),
    /// The reason why there is no library, or why it cannot be used.
    None(String),
}

const PLACES: [&str; 7] = [
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/opt/homebrew/lib",
    "/opt/local/lib",
];

/// The source files of the shim.
const SHIM: [&str; 9] = [
    "src/fibers.c",
    "src/memory.c",
    "src/methods.c",
    "src/shapes.c",
    "src/source.c",
    "src/stop.c",
    "src/tape.c",
    "src/tasks.c",
    "src/vm.c",
];

/// The releases with which all tests have passed.
const SUPPORTED: &str = "3.1, 3.3, 3.4 and 4.0 are supported";

fn main() {
    // The whole folder: C files, headers and the probe.
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-env-changed=MRUBY_DIR");
    println!("cargo:rustc-check-cfg=cfg(mruby)");
    if std::env::var_os("CARGO_FEATURE_MRUBY").is_none() {
        return without("the feature mruby was off: build again with it");
    }
    match find() {
        Library::Fit(found) => compile(&found),
        // A library that was named explicitly must be usable.
        Library::None(why) if std::env::var_os("MRUBY_DIR").is_some() => panic!("MRUBY_DIR: {why}"),
        Library::None(why) => {
            println!("cargo:warning=built without handlers on mruby: {why}");
            without(&why);
        }
    }
}

/// Builds without mruby. The program reports the reason when a handler is configured.
fn without(why: &str) {
    println!("cargo:rustc-env=FIREBRICK_WITHOUT_MRUBY={why}");
}

fn compile(found: &LibraryFiles) {
    let mut build = cc::Build::new();
    // For sigsetjmp, and for the registers of an interrupted thread.
    build.define("_GNU_SOURCE", None);
    build.files(SHIM).std("c11").warnings(true).includes(found.includes());
    for (name, value) in found.options() {
        build.define(&name, value.as_deref());
    }
    if found.has_hook {
        build.define("MRB_USE_DEBUG_HOOK", None);
    }
    build.compile("firebrick_shim");
    println!("cargo:rustc-link-search=native={}", found.lib.display());
    println!("cargo:rustc-link-lib=static=mruby");
    println!("cargo:rustc-link-lib=m");
    println!("cargo:rustc-cfg=mruby");
}

impl LibraryFiles {
    fn includes(&self) -> impl Iterator<Item = &PathBuf> {
        std::iter::once(&self.include).chain(&self.names)
    }

    /// Returns the library's options that its headers need: `-DMRB_…` of `libmruby.flags.mak`.
    fn options(&self) -> Vec<(String, Option<String>)> {
        let text = std::fs::read_to_string(self.lib.join("libmruby.flags.mak")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("MRUBY_CFLAGS")).unwrap_or_default();
        let options = line.split_whitespace().filter_map(|word| word.strip_prefix("-D"));
        let options =
            options.filter(|option| option.starts_with("MRB_")).map(|option| match option.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (option.to_owned(), None),
            });
        // Debian's headers lack the file with the symbol names, which is not needed.
        options.chain([("MRB_NO_PRESYM".to_owned(), None)]).collect()
    }
}

fn find() -> Library {
    let (lib, include, names) = match std::env::var_os("MRUBY_DIR").map(PathBuf::from) {
        Some(dir) => {
            let libs = [dir.join("lib"), dir.join("build/host/lib")];
            let Some(lib) = libs.into_iter().find(|lib| lib.join("libmruby.a").exists()) else {
                return Library::None(format!(
                    "{}: expected libmruby.a in lib or build/host/lib below it; build that mruby, or unset the variable to use \
                     the system's",
                    dir.display()
                ));
            };
            (lib, dir.join("include"), Some(dir.join("build/host/include")).filter(|names| names.exists()))
        }
        None if !is_native() => {
            let why = "it was compiled for another system than the compiling machine's; set MRUBY_DIR to an mruby for it, and build again";
            return Library::None(why.to_owned());
        }
        None => {
            let Some(lib) = PLACES.iter().map(Path::new).find(|dir| dir.join("libmruby.a").exists()) else {
                let why = "no libmruby.a was found; on Debian install libmruby-dev, elsewhere set MRUBY_DIR, and build again";
                return Library::None(why.to_owned());
            };
            let beside = lib.ancestors().map(|dir| dir.join("include"));
            let include = beside.into_iter().find(|dir| dir.join("mruby.h").exists());
            (lib.to_owned(), include.unwrap_or_else(|| PathBuf::from("/usr/include")), None)
        }
    };
    if let Some(why) = unfit(&include) {
        return Library::None(why);
    }
    let names = names.or_else(|| names_instead_of(&include));
    let mut found = LibraryFiles { lib, include, names, has_hook: false };
    // If programs for the target cannot run here, the headers are trusted; the check at start remains.
    if is_native() {
        match [false, true].map(|hook| fits(&found, hook)) {
            [Ok(true), _] => {}
            [_, Ok(true)] => found.has_hook = true,
            [Err(why), _] | [_, Err(why)] => return Library::None(why),
            _ => {
                return Library::None(format!(
                    "{} was built with other options than its headers have; the file libmruby.flags.mak beside it would name them",
                    found.lib.join("libmruby.a").display()
                ));
            }
        }
    }
    Library::Fit(found)
}

/// Returns whether the program is compiled for the system that compiles it.
fn is_native() -> bool {
    std::env::var("HOST").ok() == std::env::var("TARGET").ok()
}

/// Returns the folder that replaces the symbol names. Headers before 4.0 work without them, which needs MRB_NO_PRESYM.
fn names_instead_of(include: &Path) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/names");
    (!include.join("mruby/presym/id.h").exists()).then_some(own)
}

/// Returns why this release is not supported.
fn unfit(include: &Path) -> Option<String> {
    let header = include.join("mruby/version.h");
    let Ok(text) = std::fs::read_to_string(&header) else {
        return Some(format!("{} cannot be read; on Debian it is in libmruby-dev", header.display()));
    };
    let number = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("#define ")?.strip_prefix(name)?.strip_prefix(' '))?;
        line.trim().parse::<u32>().ok()
    };
    let advice = "build one of these and set MRUBY_DIR to its directory";
    let parts = ["MRUBY_RELEASE_MAJOR", "MRUBY_RELEASE_MINOR", "MRUBY_RELEASE_TEENY"].map(number);
    let [Some(major), Some(minor), Some(teeny)] = parts else {
        return Some(format!(
            "{} does not say which mruby it is of; {SUPPORTED}: {advice}",
            header.display()
        ));
    };
    let why = match (major, minor) {
        (3, 1 | 3 | 4) | (4, 0) => return None,
        // Seen in handlers/mruby/tests/it/stress.rs. Also, methods cannot be called as f(a: 1) (mruby issue 5944).
        (3, 2) => ", which loses the blocks of tasks that wait",
        _ => "",
    };
    Some(format!("{} is of mruby {major}.{minor}.{teeny}{why}; {SUPPORTED}: {advice}", header.display()))
}

/// Returns whether a program built with these options, and with or without MRB_USE_DEBUG_HOOK, works with the library.
///
/// # Errors
/// The program cannot be built.
fn fits(found: &LibraryFiles, hook: bool) -> Result<bool, String> {
    let out = std::env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let program = out.join(if hook { "probe-hook" } else { "probe" });
    let compiler = cc::Build::new().get_compiler();
    let mut compile = Command::new(compiler.path());
    compile.arg("src/probe.c").arg("-o").arg(&program);
    for include in found.includes() {
        compile.arg("-I").arg(include);
    }
    for (name, value) in found.options() {
        compile.arg(value.map_or_else(|| format!("-D{name}"), |value| format!("-D{name}={value}")));
    }
    if hook {
        compile.arg("-DMRB_USE_DEBUG_HOOK");
    }
    compile.arg("-L").arg(&found.lib).args(["-lmruby", "-lm"]);
    let compiled = compile.output().map_err(|error| format!("{}: {error}", compiler.path().display()))?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        let first = said
            .lines()
            .find(|line| line.contains("error") || line.contains("undefined"))
            .unwrap_or_default();
        let lib = found.lib.join("libmruby.a");
        return Err(format!(
            "{} cannot be linked to a small program, perhaps because libmruby.flags.mak is not beside it: {}",
            lib.display(),
            first.trim()
        ));
    }
    Ok(Command::new(&program).status().is_ok_and(|status| status.success()))
}
