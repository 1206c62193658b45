//! How the program is linked for packages.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=FIREBRICK_PACKED");
    // Addresses to be relocated as a bitmap: nearly a megabyte less. It needs glibc 2.36, which packages need anyway (Debian 12); who
    // compiles on an older system gets a program that runs there.
    if std::env::var_os("FIREBRICK_PACKED").is_some() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        // Functions that are the same but for their type, once: a third of a megabyte less. "Safe" are those whose address nobody takes; the
        // Makefile has the compiler name them. Other processors' linker does not know the option.
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            println!("cargo::rustc-link-arg-bins=-Wl,--icf=safe");
        }
    }
}
