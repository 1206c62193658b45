//! The file in which the learnt [shape](crate::shape) outlives the server: `shapes/HASH.json` in the folder of the
//! server's state, one for each app's directory as it was typed, so that it outlives releases, too.
//!
//! Contract: a reader finds the old content or the new one. The folder and the file are this user's own (0700, 0600).

use crate::shape::{KeptShape, LearntShape, ShapeTerms};
use settings::Settings;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::SystemTime;

/// The place of the file.
#[derive(Debug, Clone)]
pub(super) struct ShapeFile {
    path: PathBuf,
    /// The app's directory.
    root: String,
}

impl ShapeFile {
    pub(super) fn of(settings: &Settings) -> ShapeFile {
        let root = settings.typed_dir.as_os_str();
        let name = format!("{:016x}.json", text::fnv1a(root.as_bytes()));
        ShapeFile {
            path: settings.state_dir.join("shapes").join(name),
            root: root.to_string_lossy().into_owned(),
        }
    }

    /// Returns the shape that was learnt under these terms, and when; `None` if there is no file.
    ///
    /// # Errors
    /// A sentence for the log that says why the file is not used.
    pub(super) fn load(&self, terms: &ShapeTerms) -> Result<Option<(LearntShape, SystemTime)>, String> {
        let unused = |why: String| format!("shape: {} is not used: {why}", self.path.display());
        let bytes = match self.bytes() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unused(error.to_string())),
        };
        let kept = KeptShape::read(&bytes).map_err(unused)?;
        let learnt = kept.for_app(&self.root, terms).map_err(unused)?;
        Ok(Some((learnt, kept.at())))
    }

    fn bytes(&self) -> io::Result<Vec<u8>> {
        // Opening a pipe would wait for its writer.
        if !fs::metadata(&self.path)?.is_file() {
            return Err(io::Error::other("it is no file"));
        }
        let mut bytes = Vec::new();
        // One byte more shows that the file is too long.
        File::open(&self.path)?.take(KeptShape::LONGEST as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Writes what was learnt under these terms.
    ///
    /// # Errors
    /// A sentence for the log that says why the file is not written.
    pub(super) fn save(&self, terms: ShapeTerms, learnt: LearntShape) -> Result<(), String> {
        let text = KeptShape::new(&self.root, terms, learnt, SystemTime::now()).text();
        let mut beside = OsString::from(&self.path);
        beside.push(format!(".{}.tmp", std::process::id()));
        let beside = PathBuf::from(beside);
        let written = self.write(&text, &beside);
        if written.is_err() {
            // Often there is none.
            let _ = fs::remove_file(&beside);
        }
        written.map_err(|error| format!("shape: it cannot be kept in {}: {error}", self.path.display()))
    }

    fn write(&self, text: &str, beside: &PathBuf) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(beside, &self.path)
    }
}
