//! Services of the app: which template forks them, and what it has declared. They are looked after by whoever orders them.

use super::{AppFacts, Generation, Service, ServiceOrder, Supervisor};
use std::io;

impl Supervisor {
    /// The generation whose app is in force: until a reload is done, that is the one before it.
    fn in_force(&self) -> Option<Generation> {
        self.reloads.old_generation().or_else(|| self.table.serving())
    }

    /// Orders a process from the template of the code in force. Whoever waits for it hears of failures by its socket.
    pub(super) fn fork_service(&self, order: ServiceOrder) {
        let template = self.in_force().and_then(|generation| self.templates.get(&generation));
        let sent = match template.filter(|template| template.facts.is_some()) {
            Some(template) => template.process.service(&order),
            None => Err(io::Error::other("there is no template at the moment")),
        };
        if let Err(error) = sent {
            order.fail(&error.to_string());
        }
    }

    /// What the app of the generation that serves has declared.
    pub(super) fn declared_services(&self) -> Vec<Service> {
        self.serving_facts().map_or(Vec::new(), |facts| facts.services.clone())
    }

    /// What the middleware of the app in force does with files.
    pub(super) fn files_told(&self) -> Vec<String> {
        self.serving_facts().map_or(Vec::new(), |facts| facts.files.clone())
    }

    fn serving_facts(&self) -> Option<&AppFacts> {
        let template = self.table.serving().and_then(|generation| self.templates.get(&generation));
        template.and_then(|template| template.facts.as_ref())
    }
}
