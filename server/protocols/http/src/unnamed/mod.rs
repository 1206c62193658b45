//! Creates files without a name, so that a crash leaves nothing behind.
//!
//! Why two ways: Linux can create files that never have a name, on most file systems. Elsewhere a file is created and its name removed at once.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
use linux as system;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
use portable as system;

use std::fs::File;
use std::io;
use std::path::Path;

/// Creates an unnamed file in `dir` that only this user may read and write.
///
/// # Errors
/// As open(2): the folder does not exist, is full or is not writable.
pub fn unnamed_file(dir: &Path) -> io::Result<File> {
    system::create(dir)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn files_have_no_name_and_one_user_whichever_way() {
        let dir = std::env::temp_dir().join(format!("firebrick-unnamed-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        for create in [super::system::create, super::portable::create] {
            let mut file = create(&dir).unwrap();
            file.write_all(b"text").unwrap();
            file.rewind().unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            let found = file.metadata().unwrap();
            assert_eq!((text.as_str(), found.nlink(), found.mode() & 0o777), ("text", 0, 0o600));
            assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        }
        std::fs::remove_dir(&dir).unwrap();
        assert!(super::system::create(&dir).is_err() && super::portable::create(&dir).is_err());
    }
}
