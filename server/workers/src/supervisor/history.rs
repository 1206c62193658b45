//! The history of reloads, reforks and changes of size, for statistics.

use crate::reconciler::{Milestone, ReloadKind};
use stats::{Ended, ReforksSnapshot, ReloadEnd, ReloadOutcome, ReloadsSnapshot, Running, SizeChange};
use std::time::SystemTime;

#[derive(Default)]
pub(super) struct History {
    reloads: ReloadsSnapshot,
    reforks: ReforksSnapshot,
    /// When the running or last one of both began.
    began: Option<SystemTime>,
    size: Option<SizeChange>,
}

impl History {
    pub(super) fn reached(&mut self, milestone: &Milestone) {
        let now = SystemTime::now();
        match milestone {
            Milestone::Began(_) => self.began = Some(now),
            Milestone::Superseded => self.reloads.counts.count(ReloadOutcome::Superseded),
            Milestone::Reloaded { outcome, text, took, .. } => {
                self.reloads.counts.count(*outcome);
                // The rest of the text concerns the time after the reload and becomes outdated.
                let done = *outcome == ReloadOutcome::Done;
                let text = if done { text.split(';').next().unwrap_or_default() } else { text };
                self.reloads.last = Some(ReloadEnd::new(*outcome, text, *took, now));
            }
            Milestone::Reforked { outcome, text, took } => {
                self.reforks.ended(Ended::new(*outcome, text, *took, now));
            }
            Milestone::Resized { from, to, why } => {
                let [from, to] = [*from, *to].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
                self.size = Some(SizeChange { at: now, from, to, why: why.clone() });
            }
            Milestone::Settled | Milestone::Hopeless(_) | Milestone::Empty => {}
        }
    }

    /// Returns the reloads and the reforks. `stage`: what is under way, its stage, and the same as a sentence.
    pub(super) fn changes(
        &self,
        stage: Option<(ReloadKind, &'static str, String)>,
    ) -> (ReloadsSnapshot, ReforksSnapshot) {
        let (mut reloads, mut reforks) = (self.reloads.clone(), self.reforks.clone());
        if let Some(((kind, stage, text), started_at)) = stage.zip(self.began) {
            let running = Some(Running { stage: stage.to_owned(), text, started_at });
            match kind {
                ReloadKind::Reload => reloads.running = running,
                ReloadKind::Refork => reforks.running = running,
            }
        }
        (reloads, reforks)
    }

    /// Returns the last change of the number of workers.
    pub(super) fn size(&self) -> Option<SizeChange> {
        self.size.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn reloaded(outcome: ReloadOutcome, text: &str) -> Milestone {
        let took = Duration::from_secs(4);
        Milestone::Reloaded { outcome, release: 2, changed: true, text: text.to_owned(), took }
    }

    #[test]
    fn what_runs_has_a_beginning_and_what_has_ended_is_counted() {
        let mut history = History::default();
        assert_eq!(history.changes(None).0.running, None);
        history.reached(&Milestone::Began(ReloadKind::Reload));
        let running =
            history.changes(Some((ReloadKind::Reload, "booting", "loading".to_owned()))).0.running.unwrap();
        assert_eq!((running.stage.as_str(), running.text.as_str()), ("booting", "loading"));
        history.reached(&reloaded(
            ReloadOutcome::Done,
            "the new code serves (4.0 s); for 30 s there is a way back",
        ));
        history.reached(&Milestone::Superseded);
        let shown = history.changes(None).0;
        let last = shown.last.unwrap();
        assert_eq!((last.took_s, last.text.as_str()), (4.0, "the new code serves (4.0 s)"));
        let counts = [ReloadOutcome::Done, ReloadOutcome::Superseded, ReloadOutcome::Failed];
        assert_eq!(counts.map(|outcome| shown.counts.of(outcome)), [1, 1, 0]);
        history.reached(&reloaded(ReloadOutcome::Failed, "a; b"));
        assert_eq!(history.changes(None).0.last.unwrap().text, "a; b");
    }
}
