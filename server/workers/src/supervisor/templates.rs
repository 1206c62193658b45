//! Templates as processes: their start, their reports, their end.

use super::*;
use crate::process::Process;
use crate::process::ReleaseId;
use crate::reconciler::{End, ReloadKind, TemplateEnd};
use crate::spawner::{BootConfig, Booted, Source, Spawner, Template, TemplateMessage, message, without_fork};
use std::os::fd::AsFd;

pub(super) struct RunningTemplate {
    pub(super) process: Box<dyn Source>,
    /// `None` while it boots.
    pub(super) facts: Option<AppFacts>,
    begun: Instant,
    /// Set once the template has been asked for its backtrace, because it has almost used up its time to load
    /// the app.
    asked: bool,
}

impl RunningTemplate {
    pub(super) fn new(process: impl Source + 'static) -> RunningTemplate {
        RunningTemplate { process: Box::new(process), facts: None, begun: Instant::now(), asked: false }
    }
}

impl Supervisor {
    pub(super) fn start_template(&mut self, generation: Generation, release: ReleaseId) -> io::Result<()> {
        let boot = self.boot_config_of(generation, release).map_err(io::Error::other)?;
        let (links, sizes) = self.template_sizes();
        let (scoreboard, to) = (self.shared.scoreboard().memory().as_fd(), self.inbox.templates.0.clone());
        let template = if let Some(socket) = &self.options.attached {
            let socket = socket.try_clone()?;
            let process = Template::attach(generation, &boot, links, scoreboard, sizes, socket, to)?;
            RunningTemplate::new(process)
        } else if let Some(ruby) = without_fork(&boot.settings) {
            let pool = self.shared.clone();
            RunningTemplate::new(Spawner::start(generation, boot, ruby, (links, sizes), pool, to)?)
        } else {
            RunningTemplate::new(Template::start(generation, &boot, links, scoreboard, sizes, to)?)
        };
        self.templates.insert(generation, template);
        Ok(())
    }

    /// Orders a template that has evaluated `puma.rb` to load the app. The calls of `puma.rb` are part of the
    /// settings of a reload. A replacement template uses the settings in force.
    fn configured(
        &mut self,
        generation: Generation,
        evaluated: settings::puma::Evaluated,
    ) -> Result<(), String> {
        let calls = evaluated.map_err(|refusal| refusal.to_string())?;
        if let Some(release) = self.reconciler.release_to_read(generation) {
            self.options.releases.evaluated(release, &calls)?;
        }
        let release = self.reconciler.release_of(generation).unwrap_or(self.reconciler.wish().release);
        let boot = self.boot_config_of(generation, release)?;
        let (links, sizes) = self.template_sizes();
        let Some(template) = self.templates.get(&generation) else { return Ok(()) };
        let booted = template.process.boot(&boot, links, self.shared.scoreboard().memory().as_fd(), sizes);
        booted.map_err(|e| format!("the template cannot be told to load the app: {e}"))
    }

    /// Returns how to start the template of a generation. Unless the old code serves meanwhile (that of an upgrade does, too), workers wait for
    /// it, so it takes no longer time for code that is compiled.
    fn boot_config_of(&self, generation: Generation, release: ReleaseId) -> Result<BootConfig, String> {
        let mut boot = self.boot_config(release)?;
        if generation != FIRST && !self.reconciler.has_time(generation) {
            boot.warm_up.compiled = boot.warm_up.limit;
        }
        Ok(boot)
    }

    /// Returns the number of links of a worker, and the number of slots with their size in bytes.
    fn template_sizes(&self) -> (usize, (usize, usize)) {
        let layout = self.shared.scoreboard().layout();
        (layout.links, (self.reconciler.slots(), layout.slot_len()))
    }

    /// Records the facts about the app that a template reports.
    pub(super) fn app_loaded(&mut self, generation: Generation, facts: AppFacts, jobs: &[u32]) {
        self.jobs_started(generation, jobs);
        if let Some(template) = self.templates.get_mut(&generation) {
            template.facts = Some(facts);
        }
    }

    /// Handles the report that a template other than the first has loaded the app.
    fn booted(&mut self, generation: Generation, booted: Booted) {
        let Booted { facts, jobs, warmed } = booted;
        self.app_loaded(generation, facts.clone(), &jobs);
        let brought_by = self.reconciler.brought_by(generation);
        let Some(template) = self.templates.get(&generation) else { return };
        // A template that does not read messages now is about to be replaced.
        let _ = template.process.tell(&message::unlink(&self.options.boot.unlink));
        if brought_by != Some(ReloadKind::Refork) {
            facts.notes(self.has_fibers()).for_each(|note| self.log(note));
            match (brought_by, warmed) {
                (None, None) => self.log("a new template has loaded the app".to_owned()),
                (None, Some(warmed)) => self.log(format!("a new template has loaded the app; {warmed}")),
                (Some(_), Some(text)) => self.see(Change::Warming { generation, text }),
                (Some(_), None) => {}
            }
            self.declared(generation, facts);
        }
        self.see(Change::Template { generation, usable: Ok(()) });
    }

    /// Records how the app's middleware handles files, as reported by a worker that loads the app itself. All
    /// workers of a generation report the same.
    fn told_of_files(&mut self, generation: Generation, files: Vec<String>) {
        let facts = self.templates.get_mut(&generation).and_then(|template| template.facts.as_mut());
        let Some(facts) = facts.filter(|facts| facts.files != files) else { return };
        facts.files = files;
        let facts = facts.clone();
        self.declared(generation, facts);
    }

    fn declared(&mut self, generation: Generation, facts: AppFacts) {
        if let Some(release) = self.reconciler.release_of(generation) {
            let (services, files) = (facts.services, facts.files);
            self.notify(Notice::Declared { release, services, files });
        }
    }

    pub(super) fn end_template(&mut self, generation: Generation, why: TemplateEnd) {
        let Some(template) = self.templates.remove(&generation) else { return };
        let pid = template.process.pid();
        self.trials.ending(pid);
        match why {
            // The template has no workers; only its exit remains to be awaited.
            TemplateEnd::Replaced => drop(tokio::spawn(template.process.exit())),
            // The template is loading the app and does not read messages.
            TemplateEnd::Abandoned => {}
            // No worker has left this template behind yet.
            TemplateEnd::Failed { .. } if pid == 0 => {}
            TemplateEnd::Failed { why, place } => {
                self.log(format!("the template (pid {pid}) {why} and is killed{place}"));
            }
        }
    }

    pub(super) fn template_reported(
        &mut self,
        generation: Generation,
        message: io::Result<Option<TemplateMessage>>,
    ) {
        // The template may have been ended while its message was in the channel.
        let Some(template) = self.templates.get_mut(&generation) else { return };
        let seen = match message {
            Ok(Some(TemplateMessage::Forked { index, pid })) => {
                self.look_after(index, pid);
                Change::Forked { generation, index, pid: Some(pid) }
            }
            Ok(Some(TemplateMessage::ForkFailed { index, text })) => {
                self.log(format!("worker {index} cannot be forked: {text}"));
                Change::Forked { generation, index, pid: None }
            }
            Ok(Some(TemplateMessage::Exited { pid, status, peak_kib })) => {
                let of = |row: &Row| row.generation == generation && row.pid == pid;
                let Some(Row { serial, index, .. }) = self.reconciler.rows().find(of) else { return };
                let served = self.has_served(index);
                Change::Ended { serial, served, end: End::Reported { status, peak_kib } }
            }
            Ok(Some(TemplateMessage::Stop)) => return self.asked_to_stop(generation),
            Ok(Some(TemplateMessage::Said(text))) => return self.log(text),
            Ok(Some(TemplateMessage::Warming(text))) => Change::Warming { generation, text },
            Ok(Some(TemplateMessage::Loading(text))) => return self.reconciler.loading(generation, text),
            Ok(Some(TemplateMessage::Pid(pid))) => return template.process.is_process(pid),
            Ok(Some(TemplateMessage::Files(files))) => return self.told_of_files(generation, files),
            Ok(Some(TemplateMessage::Jobs(pids))) => return self.jobs_started(generation, &pids),
            Ok(Some(TemplateMessage::Booted(booted))) => return self.booted(generation, booted),
            Ok(Some(TemplateMessage::Configured(evaluated))) => {
                let Err(why) = self.configured(generation, evaluated) else { return };
                self.templates.remove(&generation);
                if self.reconciler.brought_by(generation) != Some(ReloadKind::Reload) {
                    self.log(why.clone());
                }
                Change::Template { generation, usable: Err(why) }
            }
            Ok(Some(TemplateMessage::Failed(text))) => {
                self.templates.remove(&generation);
                Change::Template { generation, usable: Err(self.why_not_loaded(generation, &text)) }
            }
            Ok(None) | Err(_) => {
                if let Err(e) = message {
                    self.log(e.to_string());
                }
                Change::Template { generation, usable: Err(self.template_died(generation)) }
            }
        };
        self.see(seen);
    }

    /// Starts the shutdown that the attached process requests.
    fn asked_to_stop(&mut self, generation: Generation) {
        let may_stop = self.reconciler.source().starts_server;
        let Some(template) = self.templates.get(&generation).filter(|_| may_stop) else { return };
        let timeouts = self.options.timeouts();
        // For the clients first, and then for the app.
        let within = timeouts.lame_duck.unwrap_or_default() + timeouts.shutdown * 2;
        // If the process has exited, its closed socket reports that.
        let _ = template.process.tell(&message::stopping(within));
        self.notify(Notice::Stop);
    }

    fn why_not_loaded(&mut self, generation: Generation, text: &str) -> String {
        match self.reconciler.brought_by(generation) {
            Some(ReloadKind::Reload) => format!("the app cannot be loaded:\n{}", text.trim_end()),
            Some(ReloadKind::Refork) => format!("the worker cannot become a template:\n{}", text.trim_end()),
            None => {
                let why = format!("the app cannot be loaded again: {text}");
                self.log(why.clone());
                why
            }
        }
    }

    /// Handles the death of a template. Returns the message for callers waiting for the template.
    fn template_died(&mut self, generation: Generation) -> String {
        let template = self.templates.remove(&generation);
        if self.reconciler.source().starts_server {
            return "the process has ended".to_owned();
        }
        let booting = template.as_ref().is_some_and(|template| template.facts.is_none());
        let unborn = template.as_ref().is_some_and(|template| template.process.pid() == 0);
        let is_refork = self.reconciler.brought_by(generation) == Some(ReloadKind::Refork);
        if !(booting && is_refork) {
            self.log(if booting {
                "warning: the new template died while it loaded the app".to_owned()
            } else {
                "warning: the template has died; its workers keep serving until workers of a new template replace them"
                    .to_owned()
            });
        }
        let why = match (is_refork, unborn) {
            (true, true) => "the worker ended without leaving a template behind",
            (true, false) => "its template died",
            (false, _) => "the template died while it loaded the app",
        };
        why.to_owned()
    }

    /// Requests backtraces from templates that have almost used up their time to load the app, before they
    /// are killed.
    pub(super) fn ask_slow_templates(&mut self, now: Instant) {
        let limit = self.options.timeouts().worker_boot;
        let slow = limit.saturating_sub(asks_before(limit));
        let loads = |one: &&mut RunningTemplate| one.facts.is_none() && !one.asked;
        for template in self.templates.values_mut().filter(loads) {
            if now.saturating_duration_since(template.begun) >= slow {
                template.asked = true;
                template.process.ask_where();
            }
        }
    }

    /// Watches the process that was forked for this slot, so that its end is noticed even if its links and
    /// its template are gone.
    fn look_after(&mut self, index: u32, pid: u32) {
        let Some(serial) = self.reconciler.serial_in(index) else { return };
        let Some(worker) = self.workers.get_mut(&serial) else { return };
        let (process, shared) = (Process::open(pid), self.shared.clone());
        worker.process = Some(process.clone());
        tokio::spawn(async move {
            process.ended().await;
            shared.report(SupervisorMessage::Ended(serial));
        });
    }
}
