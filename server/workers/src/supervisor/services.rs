//! Forks the processes of services that the app declares. The caller supervises the processes.

use super::Supervisor;
use crate::spawner::ServiceOrder;
use std::io;

impl Supervisor {
    /// Orders a process from the template of the code in force. Failures are reported over the order's
    /// socket.
    pub(super) fn fork_service(&self, order: ServiceOrder) {
        let template = self.reconciler.in_force().and_then(|generation| self.templates.get(&generation));
        let sent = match template.filter(|template| template.facts.is_some()) {
            Some(template) => template.process.service(&order),
            None => Err(io::Error::other("there is no template at the moment")),
        };
        if let Err(error) = sent {
            order.fail(&error.to_string());
        }
    }
}
