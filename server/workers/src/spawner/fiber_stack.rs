//! Sets the stack size of Ruby's fibers (`rack.fiber_stack`) through environment variables, which Ruby reads
//! only when it starts.
//!
//! Contract: the app's child processes are not affected, because the template restores the variables.

use std::ffi::OsString;

/// The stack for Ruby calls and the stack for C, each with the variable that keeps the original value for the
/// template; empty if it was not set.
const STACKS: [(&str, &str); 2] = [
    ("RUBY_FIBER_VM_STACK_SIZE", "FIREBRICK_FIBER_VM_STACK_SIZE"),
    ("RUBY_FIBER_MACHINE_STACK_SIZE", "FIREBRICK_FIBER_MACHINE_STACK_SIZE"),
];
/// Ruby's default for the C stack, in bytes. A thread has as much C stack as Ruby stack.
const MACHINE: usize = 512 << 10;

/// Returns the variables to set for a stack of this many bytes. `now`: the environment that Ruby would get
/// otherwise.
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
