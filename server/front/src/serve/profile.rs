//! Profiles of the workers, for `POST /profile`.

use super::snapshot::Snapshotter;
use control::orders::OrderError;
use control::profile::ProfileOrder;
use jiff::Timestamp;
use profile::{Folders, Part, Profile};
use std::path::{Path, PathBuf};
use tokio::sync::{mpsc, oneshot};
use workers::Clock;
use workers::supervisor::{Command, PROFILE_GRACE, ProfileWish};

/// A profile that has begun.
struct BegunProfile {
    order: ProfileOrder,
    started_at: String,
    dir: PathBuf,
}

impl Snapshotter {
    /// Begins a profile. Its document comes when its time is over.
    ///
    /// # Errors
    /// One is being taken, there is no app, or the server is stopping.
    pub(crate) async fn profile(
        &self,
        order: ProfileOrder,
        dir: &Path,
    ) -> Result<oneshot::Receiver<String>, OrderError> {
        if self.shared().is_none() {
            return Err(OrderError::Conflict("this server has no app, so there are no workers".to_owned()));
        }
        let clock = if order.cpu { Clock::Cpu } else { Clock::Wall };
        let (reply, begun) = oneshot::channel();
        let asked =
            self.commands().send(Command::BeginProfile(ProfileWish { hz: order.hz, clock }, reply)).await;
        match begun.await {
            Ok(Ok(())) if asked.is_ok() => {}
            Ok(Err(why)) => return Err(OrderError::Conflict(why)),
            _ => return Err(OrderError::Conflict("the server is stopping".to_owned())),
        }
        let started_at = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string();
        let (document, receiver) = oneshot::channel();
        let begun = BegunProfile { order, started_at, dir: dir.to_owned() };
        net::task::spawn_local(begun.finish(self.commands().clone(), document));
        Ok(receiver)
    }
}

impl BegunProfile {
    /// Ends the profile when its time is over, or when its client has gone.
    async fn finish(self, commands: mpsc::Sender<Command>, mut document: oneshot::Sender<String>) {
        tokio::select! {
            () = tokio::time::sleep(self.order.time) => {}
            () = document.closed() => {}
        }
        let (reply, parts) = oneshot::channel();
        if commands.send(Command::EndProfile(reply)).await.is_err() {
            return;
        }
        // The supervisor looks at its clock once a second when it is idle.
        let Ok(Ok(parts)) = tokio::time::timeout(PROFILE_GRACE * 2, parts).await else { return };
        // Many stacks take a while, and the control socket must not wait for them.
        if let Ok(text) = tokio::task::spawn_blocking(move || self.document(&parts)).await {
            // The client may have gone.
            let _ = document.send(text);
        }
    }

    fn document(self, parts: &[Part]) -> String {
        let named = [Some(self.dir.clone()), self.dir.canonicalize().ok()];
        let folders = named.into_iter().flatten().map(|dir| dir.display().to_string());
        let merged = profile::merge(parts, &Folders::new(folders));
        let profile = Profile {
            started_at: self.started_at,
            seconds: self.order.time.as_secs_f64(),
            hz: self.order.hz.into(),
            clock: if self.order.cpu { "cpu" } else { "wall" }.to_owned(),
            dir: self.dir.display().to_string(),
            ..merged
        };
        serde_json::to_string(&profile).unwrap_or_default()
    }
}
