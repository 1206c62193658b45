//! The `firebrick` program: a table of contents of what can be typed.

use std::process::ExitCode;

use cli::Command;
use settings::ProcessEnvironment;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os(), &ProcessEnvironment) {
        Ok(Command::Serve(_)) => not_built_in("serve"),
        Ok(Command::Check(loaded)) => cli::check(&loaded, None),
        Ok(Command::Stats { .. }) => not_built_in("stats"),
        Ok(Command::Completions(shell)) => cli::completions(shell),
        Ok(Command::Man) => cli::man(),
        Err(code) => code,
    }
}

fn not_built_in(command: &str) -> ExitCode {
    eprintln!("error: this build of firebrick has no `{command}`: it was made without the server");
    ExitCode::from(2)
}
