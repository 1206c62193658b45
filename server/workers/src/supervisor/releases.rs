//! The settings of each version of the code, and the callers of reloads.

use super::*;
use crate::reconciler::{Caller, Code, Plan};
use crate::spawner::BootConfig;
use stats::ReloadStep;

pub(super) struct Releases {
    /// The start configuration of each code version: the one that a reload brings and the one before.
    boots: BTreeMap<Code, BootConfig>,
    /// The code version whose settings are in force.
    published: Code,
    callers: BTreeMap<Caller, Follower>,
    last_caller: Caller,
}

impl Releases {
    /// `boot` is the start configuration of the first template.
    pub(super) fn new(boot: BootConfig) -> Releases {
        let boots = BTreeMap::from([(FIRST_CODE, boot)]);
        Releases { boots, published: FIRST_CODE, callers: BTreeMap::new(), last_caller: 0 }
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

    pub(super) fn insert(&mut self, code: Code, boot: BootConfig) {
        self.boots.insert(code, boot);
    }

    pub(super) fn get(&self, code: Code) -> Option<&BootConfig> {
        self.boots.get(&code)
    }

    /// Returns how to start a template with this code. The list of files is that of the configuration `now`.
    pub(super) fn boot_config(&self, code: Code, now: &BootConfig) -> BootConfig {
        BootConfig { unlink: now.unlink.clone(), ..self.get(code).unwrap_or(now).clone() }
    }
}

impl Supervisor {
    /// Reads the settings of new code. The plan of its reload is that of the settings in force.
    pub(super) fn read(&mut self, code: Code) -> Result<Plan, String> {
        let boot = (self.options.refresh.0)(code, None)?;
        let before = self.reconciler.wish().code;
        self.releases.boots.retain(|code, _| *code == before);
        self.releases.insert(code, boot);
        let settings = self.options.settings.borrow();
        let reload = &settings.reload;
        if settings.process.environment == "development" {
            return Ok(Plan { step: reload.step, ..Plan::default() });
        }
        let watch = Some(reload.watch).filter(|_| reload.share > 0);
        Ok(Plan { probe: true, watch, share: reload.share, step: reload.step, keep: reload.keep })
    }

    /// Puts the settings that were read with this code in force.
    pub(super) fn publish(&mut self, code: Code) {
        if self.releases.published == code {
            return;
        }
        if let Some(boot) = self.releases.get(code).cloned() {
            self.notify(Notice::Reloaded(code));
            self.options.boot = BootConfig { unlink: self.options.boot.unlink.clone(), ..boot };
            self.releases.published = code;
        }
    }
}
