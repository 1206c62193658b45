//! `firebrick deaths --replay`: boots the app as `check` does, in a template that then repeats requests, each in a child process of its own, and ends.
//!
//! Contract: no socket of the server is touched, and no other request reaches the children. The folder with the requests and the outcomes is
//! readable by this user only, and removed at the end.

use crate::boot;
use crate::check::{NeverReloaded, event_loop};
use settings::Settings;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use workers::spawner::{Handoff, WarmUp, without_fork};

/// The time that the template has for each request besides the limit: the fork, and the kill of a child.
const BESIDE: Duration = Duration::from_secs(10);

/// The outcome of a repeated request.
#[derive(Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Whether the app responded, with a status below 500.
    pub good: bool,
    /// The events, in lines.
    pub text: String,
}

/// Repeats requests, given as payloads of REQUEST frames, with this time limit for each.
///
/// # Errors
/// The app cannot be loaded; this Ruby cannot fork; temporary files cannot be written.
pub fn replay(
    settings: &Settings,
    prepared: &Handoff,
    requests: &[Vec<u8>],
    limit: Duration,
) -> Result<Vec<Replayed>, String> {
    if let Some(ruby) = without_fork(settings) {
        return Err(format!("--replay needs a Ruby that forks, and this is {ruby}"));
    }
    let folder = Folder::create(&settings.process.temp_dir).map_err(|e| {
        format!(
            "no folder in {}: {e}; set TMPDIR to one that this user can write",
            settings.process.temp_dir.display()
        )
    })?;
    let write = |(number, request): (usize, &Vec<u8>)| {
        fs::write(folder.0.join(format!("request-{number:03}")), request)
    };
    requests.iter().enumerate().try_for_each(write).map_err(|e| format!("{}: {e}", folder.0.display()))?;
    let mut settings = settings.clone();
    settings.timeouts.worker_boot += (limit + BESIDE) * u32::try_from(requests.len()).unwrap_or(u32::MAX);
    let wish = [limit.as_millis().to_string().as_bytes(), folder.0.as_os_str().as_bytes()].join(&b'\n');
    let (_, unchanging) = watch::channel(Arc::new(settings));
    event_loop()?.block_on(async {
        let booted = boot::boot(
            unchanging,
            Rc::new(NeverReloaded),
            Vec::new(),
            prepared.clone(),
            None,
            Some(wish),
            WarmUp::default(),
        );
        booted.await?.abandon().await;
        Ok::<(), String>(())
    })?;
    (0..requests.len()).map(|number| outcome(&folder.0.join(format!("outcome-{number:03}")))).collect()
}

fn outcome(file: &Path) -> Result<Replayed, String> {
    let bytes =
        fs::read(file).map_err(|e| format!("the request was not repeated: {}: {e}", file.display()))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    Ok(Replayed { good: first == "ok", text: rest.to_owned() })
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn create(parent: &Path) -> io::Result<Folder> {
        // Fails if it exists, so that no other user can have prepared it.
        let path = parent.join(format!("firebrick-replay-{}-{:x}", std::process::id(), fastrand::u64(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        // The template may run in another directory.
        Ok(Folder(fs::canonicalize(path)?))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A file that cannot be removed stays unreadable for others.
        let _ = fs::remove_dir_all(&self.0);
    }
}
