//! Linker options for packages.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FIREBRICK_PACKED");
    // Stores relocated addresses as a bitmap, which saves nearly a megabyte. It needs glibc 2.36, which
    // packages need anyway (Debian 12); a program compiled on an older system runs there without it.
    if std::env::var_os("FIREBRICK_PACKED").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        // Merges functions that differ only in their types, which saves a third of a megabyte. "Safe" allows
        // only functions whose address is never taken; the Makefile makes the compiler mark them. The linkers
        // of other systems do not have the option, unless the variable says that it is LLVM's.
        let usual = std::env::var("TARGET").is_ok_and(|target| target == "x86_64-unknown-linux-gnu");
        if usual || std::env::var("FIREBRICK_PACKED").is_ok_and(|linker| linker == "lld") {
            println!("cargo::rustc-link-arg-bins=-Wl,--icf=safe");
        }
    }
}
