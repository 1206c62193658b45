//! How the program is linked for packages.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FIREBRICK_PACKED");
    // Addresses to be relocated as a bitmap: nearly a megabyte less. It needs glibc 2.36, which packages need anyway (Debian 12); who
    // compiles on an older system gets a program that runs there.
    if std::env::var_os("FIREBRICK_PACKED").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
