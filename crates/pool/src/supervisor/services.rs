//! Forks the processes of services that the app declares, and tells which services it has declared. The
//! caller supervises the processes.

use super::{AppFacts, Generation, Service, ServiceOrder, Supervisor};
use std::io;

impl Supervisor {
    /// Returns the generation whose app is in force: during a reload, the old one.
    fn in_force(&self) -> Option<Generation> {
        self.reloads.old_generation().or_else(|| self.table.serving())
    }

    /// Orders a process from the template of the code in force. Failures are reported over the order's
    /// socket.
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

    /// Returns the services that the app in force has declared.
    pub(super) fn declared_services(&self) -> Vec<Service> {
        self.serving_facts().map_or(Vec::new(), |facts| facts.services.clone())
    }

    /// Returns how the middleware of the app in force handles files.
    pub(super) fn files_told(&self) -> Vec<String> {
        self.serving_facts().map_or(Vec::new(), |facts| facts.files.clone())
    }

    fn serving_facts(&self) -> Option<&AppFacts> {
        let template = self.table.serving().and_then(|generation| self.templates.get(&generation));
        template.and_then(|template| template.facts.as_ref())
    }
}
