//! Finds libmruby and compiles the shim against it. Without one the crate is built so that no VM can be opened.
//!
//! `MRUBY_DIR` names an mruby of one's own (its `include` and `lib`, or its build directory); otherwise the system's is
//! taken. Debian 13's library has the debug hook although its headers do not say so: which of the two it is, is tried
//! by asking the library for the size of its state.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Found {
    lib: PathBuf,
    include: Option<PathBuf>,
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

fn main() {
    for file in ["src/shim.c", "src/shim.h", "src/probe.c"] {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-env-changed=MRUBY_DIR");
    println!("cargo:rustc-check-cfg=cfg(mruby)");
    // Without the feature, or without a library, the program says so when a handler is to be served.
    if std::env::var_os("CARGO_FEATURE_MRUBY").is_none() {
        return;
    }
    let Some(found) = find() else { return };
    if let Some(unfit) = unfit(&found) {
        assert!(std::env::var_os("MRUBY_DIR").is_none(), "MRUBY_DIR: {unfit}");
        println!("cargo:warning=built without handlers on mruby: {unfit}");
        return;
    }
    let mut build = cc::Build::new();
    build.file("src/shim.c").define("MRB_NO_PRESYM", None).std("c11").warnings(true);
    if let Some(include) = &found.include {
        build.include(include);
    }
    if has_hook(&found) {
        build.define("MRB_USE_DEBUG_HOOK", None);
    }
    build.compile("firebrick_shim");
    println!("cargo:rustc-link-search=native={}", found.lib.display());
    println!("cargo:rustc-link-lib=static=mruby");
    println!("cargo:rustc-link-lib=m");
    println!("cargo:rustc-cfg=mruby");
}

fn find() -> Option<Found> {
    let Some(dir) = std::env::var_os("MRUBY_DIR").map(PathBuf::from) else {
        let lib = PLACES.iter().map(Path::new).find(|dir| dir.join("libmruby.a").exists())?;
        return Some(Found { lib: lib.to_owned(), include: None });
    };
    let libs = [dir.join("lib"), dir.join("build/host/lib")];
    match libs.into_iter().find(|lib| lib.join("libmruby.a").exists()) {
        Some(lib) => Some(Found { lib, include: Some(dir.join("include")) }),
        None => panic!(
            "MRUBY_DIR={}: expected libmruby.a in lib or build/host/lib below it; build that mruby, or unset the \
             variable to use the system's",
            dir.display()
        ),
    }
}

/// Why this release cannot be used. 4.0 has one allocator for all VMs, so the memory of one could not be limited.
fn unfit(found: &Found) -> Option<String> {
    let include = found.include.clone().unwrap_or_else(|| {
        let beside = found.lib.ancestors().map(|dir| dir.join("include"));
        beside
            .into_iter()
            .find(|dir| dir.join("mruby.h").exists())
            .unwrap_or_else(|| PathBuf::from("/usr/include"))
    });
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
    match (number("MRUBY_RELEASE_MAJOR"), number("MRUBY_RELEASE_MINOR")) {
        (Some(3), Some(1..=4)) => None,
        (Some(major), Some(minor)) => {
            Some(format!("{} is of mruby {major}.{minor}; 3.1 to 3.4 are supported", header.display()))
        }
        _ => {
            Some(format!("{} does not say which mruby it is of; 3.1 to 3.4 are supported", header.display()))
        }
    }
}

/// Whether the library was built with MRB_USE_DEBUG_HOOK: with the wrong guess the sizes differ. When programs for the
/// target cannot be run here, the headers are believed; the check at start remains.
fn has_hook(found: &Found) -> bool {
    if std::env::var("HOST").ok() != std::env::var("TARGET").ok() {
        return false;
    }
    [false, true].into_iter().find(|hook| fits(found, *hook)).unwrap_or(false)
}

fn fits(found: &Found, hook: bool) -> bool {
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else { return false };
    let program = out.join(if hook { "probe-hook" } else { "probe" });
    let mut compile = Command::new(cc::Build::new().get_compiler().path());
    compile.arg("src/probe.c").arg("-DMRB_NO_PRESYM").arg("-o").arg(&program);
    if let Some(include) = &found.include {
        compile.arg("-I").arg(include);
    }
    if hook {
        compile.arg("-DMRB_USE_DEBUG_HOOK");
    }
    compile.arg("-L").arg(&found.lib).args(["-lmruby", "-lm"]);
    let compiled = compile.status().is_ok_and(|status| status.success());
    compiled && Command::new(&program).status().is_ok_and(|status| status.success())
}
