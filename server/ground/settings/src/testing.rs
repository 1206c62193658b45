//! Surroundings for tests.

use std::path::PathBuf;

use crate::environment::Environment;
use sys::Machine;

pub(crate) struct Fake {
    pub(crate) vars: Vec<(String, String)>,
    pub(crate) dir: PathBuf,
    pub(crate) machine: Machine,
}

impl Fake {
    pub(crate) fn new(vars: &[(&str, &str)]) -> Fake {
        Fake {
            vars: vars.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            dir: "/nonexistent".into(),
            machine: Machine::unlimited(2),
        }
    }
}

impl Environment for Fake {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn current_dir(&self) -> PathBuf {
        self.dir.clone()
    }

    fn uid(&self) -> u32 {
        7
    }

    fn machine(&self) -> Machine {
        self.machine.clone()
    }
}
