//! The variables that give Ruby's fibers their stacks (`rack.fiber_stack`). Ruby reads them when it starts, or never.
//!
//! Contract: the app's own children are not affected: the template puts the variables back to what they were before.

use std::ffi::OsString;

/// The stack of Ruby's own calls, and that of C: each with the name under which the template finds what it was before, empty when it was not set.
const STACKS: [(&str, &str); 2] = [
    ("RUBY_FIBER_VM_STACK_SIZE", "FIREBRICK_FIBER_VM_STACK_SIZE"),
    ("RUBY_FIBER_MACHINE_STACK_SIZE", "FIREBRICK_FIBER_MACHINE_STACK_SIZE"),
];
/// Ruby's own choice for the second one, in bytes. A thread has as much of it as of the first.
const MACHINE: usize = 512 << 10;

/// The variables to set, if a fiber is to have so many bytes. `now`: the environment that Ruby would have otherwise.
pub(super) fn variables(
    stack: Option<usize>,
    now: impl Fn(&str) -> Option<OsString>,
) -> Vec<(&'static str, OsString)> {
    let Some(stack) = stack else { return Vec::new() };
    let sizes = STACKS.into_iter().zip([stack, stack.max(MACHINE)]);
    sizes
        .flat_map(|((name, before), bytes)| {
            [(name, bytes.to_string().into()), (before, now(name).unwrap_or_default())]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_set_unless_a_size_is() {
        assert!(variables(None, |_| None).is_empty());
    }

    #[test]
    fn both_stacks_are_set_and_what_they_were_is_kept() {
        let now = |name: &str| (name == "RUBY_FIBER_VM_STACK_SIZE").then(|| OsString::from("65536"));
        let wanted = [
            ("RUBY_FIBER_VM_STACK_SIZE", "1048576"),
            ("FIREBRICK_FIBER_VM_STACK_SIZE", "65536"),
            ("RUBY_FIBER_MACHINE_STACK_SIZE", "1048576"),
            ("FIREBRICK_FIBER_MACHINE_STACK_SIZE", ""),
        ];
        assert_eq!(variables(Some(1 << 20), now), wanted.map(|(name, value)| (name, value.into())));
        let machine = variables(Some(128 << 10), |_| None)[2].clone();
        assert_eq!(machine, ("RUBY_FIBER_MACHINE_STACK_SIZE", "524288".into()), "never less than Ruby's own");
    }
}
