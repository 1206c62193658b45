//! The settings of each version of the code, and the callers of reloads.

use super::*;
use crate::process::ReleaseId;
use crate::reconciler::{Caller, Plan};
use crate::spawner::BootConfig;
use stats::ReloadStep;

pub(super) struct Releases {
    /// The start configuration of each code version: the one that a reload brings and the one before.
    boots: BTreeMap<ReleaseId, BootConfig>,
    /// The code version whose settings are in force.
    in_force: ReleaseId,
    callers: BTreeMap<Caller, Follower>,
    last_caller: Caller,
}

impl Releases {
    /// `boot` is the start configuration of the first template.
    pub(super) fn new(boot: BootConfig) -> Releases {
        let boots = BTreeMap::from([(FIRST_RELEASE, boot)]);
        Releases { boots, in_force: FIRST_RELEASE, callers: BTreeMap::new(), last_caller: 0 }
    }

    /// Adds the caller of a reload.
    pub(super) fn caller(&mut self, follower: Option<Follower>) -> Option<Caller> {
        let follower = follower?;
        self.last_caller += 1;
        self.callers.insert(self.last_caller, follower);
        Some(self.last_caller)
    }

    pub(super) fn tell(&mut self, caller: Caller, step: ReloadStep) {
        let ended = step.is_end();
        if let Some(follower) = self.callers.get_mut(&caller) {
            follower.tell(step);
        }
        if ended {
            self.callers.remove(&caller);
        }
    }

    pub(super) fn insert(&mut self, release: ReleaseId, boot: BootConfig) {
        self.boots.insert(release, boot);
    }

    pub(super) fn get(&self, release: ReleaseId) -> Option<&BootConfig> {
        self.boots.get(&release)
    }

    /// Returns how to start a template with this code. The list of files is that of the configuration `now`.
    pub(super) fn boot_config(&self, release: ReleaseId, now: &BootConfig) -> BootConfig {
        BootConfig { unlink: now.unlink.clone(), ..self.get(release).unwrap_or(now).clone() }
    }
}

impl Supervisor {
    /// Reads the settings of new code. The plan of its reload is that of the settings in force.
    pub(super) fn read(&mut self, release: ReleaseId) -> Result<Plan, String> {
        let boot = (self.options.refresh.0)(release, None)?;
        let before = self.reconciler.wish().release;
        self.releases.boots.retain(|release, _| *release == before);
        self.releases.insert(release, boot);
        let settings = self.options.settings.borrow();
        let reload = &settings.reload;
        if settings.process.environment == "development" {
            return Ok(Plan { step: reload.step, ..Plan::default() });
        }
        let watch = Some(reload.watch).filter(|_| reload.share > 0);
        Ok(Plan { probe: true, watch, share: reload.share, step: reload.step, keep: reload.keep })
    }

    /// Puts the settings that were read with this code in force.
    pub(super) fn publish(&mut self, release: ReleaseId) {
        if self.releases.in_force == release {
            return;
        }
        if let Some(boot) = self.releases.get(release).cloned() {
            self.notify(Notice::Reloaded(release));
            self.options.boot = BootConfig { unlink: self.options.boot.unlink.clone(), ..boot };
            self.releases.in_force = release;
        }
    }
}
