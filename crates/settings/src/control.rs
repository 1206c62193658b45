//! The default path of the control socket.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::system::MAX_SOCKET_PATH;

/// The `auto` path of the control socket of the app in `dir` (canonical): the same for server and `stats`.
///
/// In `$XDG_RUNTIME_DIR/firebrick`, or in `/tmp/firebrick-UID` when that variable is not an absolute path or too long
/// for a socket. The server creates that directory, for its user alone.
pub fn control_path(dir: &Path, environment: &dyn Environment, uid: u32) -> PathBuf {
    let name = format!("{:016x}.sock", fnv1a(dir.as_os_str().as_bytes()));
    let runtime = environment.var("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    runtime
        .map(|runtime| runtime.join("firebrick").join(&name))
        .filter(|path| path.as_os_str().len() <= MAX_SOCKET_PATH)
        .unwrap_or_else(|| PathBuf::from(format!("/tmp/firebrick-{uid}")).join(&name))
}

/// FNV-1a, 64 bits: `std`'s hasher may change between builds, and two builds must find each other.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Fake;

    #[test]
    fn hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn the_runtime_directory_is_preferred() {
        let dir = Path::new("/srv/app");
        let name = format!("{:016x}.sock", fnv1a(b"/srv/app"));
        let fake = Fake::new(&[("XDG_RUNTIME_DIR", "/run/user/7")]);
        assert_eq!(control_path(dir, &fake, 7), Path::new("/run/user/7/firebrick").join(&name));
        let relative = Fake::new(&[("XDG_RUNTIME_DIR", "run")]);
        assert_eq!(control_path(dir, &relative, 7), Path::new("/tmp/firebrick-7").join(&name));
        let long = format!("/run/{}", "x".repeat(100));
        let too_long = Fake::new(&[("XDG_RUNTIME_DIR", &long)]);
        assert_eq!(control_path(dir, &too_long, 7), Path::new("/tmp/firebrick-7").join(&name));
        assert_ne!(control_path(Path::new("/srv/other"), &fake, 7), control_path(dir, &fake, 7));
    }
}
